"""An online market from a problem file to the released model.

A market is opened, quotes sellers as they come, and is closed, each step in a process of its own
if need be: what it knows lies in the database of :class:`convexmarket.online.OnlineMarket`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from convexmarket.errors import (
    ConvexMarketError,
    DataError,
    MarketClosedError,
    ParameterError,
    ProblemFileError,
)
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.lab.kinds.online_market.record import (
    audits_of,
    comparison,
    curves_of,
    offer_rows,
    plan_rows,
)
from convexmarket.lab.kinds.online_market.rows import check_public, owned_rows
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.online.market import OnlineMarket
from convexmarket.online.release import (
    WITHOUT_MODEL,
    check_closing,
    model_guarantee,
    release_model,
)
from convexmarket.privacy import Guarantee

__all__ = [
    "close_and_describe",
    "close_market",
    "online_policy",
    "open_market",
    "problem_of",
]

CAVEATS = (
    "The terms follow from reports and answers; they, and the payments, carry no privacy "
    "guarantee. The guarantees are those of the coefficients alone.",
    "The audit checks reports: a seller who misstates its sensitivity gains nothing. It cannot "
    "check rows, and a seller who comes twice under two names is two sellers.",
)
_LEARNT = (
    "The prior is learnt from reports while the market runs. A seller's own terms follow from "
    "earlier reports alone, so the truth stays a best reply; for the first sellers, from whom "
    "nothing is bought whatever they report, any other reply is as good. The losses given here are "
    "under the prior of the problem file."
)
_SIMULATED = (
    "A simulation: reports are drawn from the prior and answers by chance, both without regard to "
    "the rows."
)
_REPORTED = (
    "A simulation: the reports are the sellers' own, but who comes when, and who accepts, is drawn "
    "by chance."
)


def online_policy(problem: OnlineMarketProblem) -> OnlinePolicy | AdaptivePolicy:
    """Return the policy of a problem; one that cannot be made is the file's mistake.

    Raises
    ------
    ProblemFileError
        Saying why prior, buyer and plan make no policy.
    """
    try:
        return problem.policy()
    except ConvexMarketError as error:
        where = problem.source.path if problem.source else "the problem"
        raise ProblemFileError(f"{where}: prior, buyer and plan make no market: {error}") from None


def open_market(problem: OnlineMarketProblem, folder: str | Path) -> OnlineMarket:
    """Create the market of a problem in a folder, after checking everything that it names.

    Parameters
    ----------
    problem : OnlineMarketProblem
    folder : path
        Where the database goes; made if need be.

    Returns
    -------
    OnlineMarket

    Raises
    ------
    ProblemFileError
        If the problem makes no policy.
    DataError
        If public rows cannot be read or are not as declared, or the folder has a market already.
    """
    policy = online_policy(problem)
    check_public(problem)
    source = problem.source
    if source is None:
        raise ProblemFileError("the problem comes from no file; give what load_problem returned")
    described = {
        "path": _from(folder, source.path),
        "overrides": list(source.overrides),
        "text": source.text,
    }
    return OnlineMarket.create(folder, policy, json.dumps(described, ensure_ascii=False))


def _from(folder: str | Path, path: str) -> str:
    """Return a path relative to a folder, so that both may move together."""
    try:
        return os.path.relpath(path, folder)
    except ValueError:  # another drive
        return os.path.abspath(path)


def problem_of(market: OnlineMarket) -> OnlineMarketProblem:
    """Return the problem that a market was opened with.

    Raises
    ------
    DataError
        If the market was made without a problem file.
    """
    try:
        described = json.loads(market.problem)
        path = os.path.normpath(os.path.join(market.folder, described["path"]))
        problem = parse_problem(described["text"], described["overrides"], path=path)
    except (ValueError, TypeError, KeyError) as error:
        if isinstance(error, ProblemFileError):
            raise
        problem = None
    if not isinstance(problem, OnlineMarketProblem):
        raise DataError(
            f"the market in {market.folder} was made without a problem file, so it does not say "
            "which rows and which learner to train with; close it with OnlineMarket.close"
        )
    return problem


def close_market(
    market: OnlineMarket,
    *,
    lapse: bool = False,
    leave_out: Sequence[str] = (),
    regularization: float | None = None,
    progress: Progress | None = None,
) -> Result[OnlineMarketProblem]:
    """Train on what was sold, once, and close the market for good.

    A market that is closed already keeps its model: it is described again, and nothing is trained.

    Parameters
    ----------
    market : OnlineMarket
        Opened by :func:`open_market`.
    lapse : bool
        Whether offers that are still unanswered count as declined.
    leave_out : sequence of str
        Sellers who accepted and whose rows never came: they are paid, and not used.
    regularization : float, optional
        Lambda in the place of the problem's, where that leaves no room for what was sold. Choose
        it without looking at the rows.
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        See :func:`close_and_describe`.

    Raises
    ------
    OfferError
        If offers are unanswered.
    ParameterError
        If nobody accepted, or the guarantees sold leave no room for the learner.
    BudgetExceededError
        If the model would cost a seller more than it sold and other releases left; no row was read.
    DataError
        If a seller who accepted has no row, or the rows are not as declared.
    """
    problem = problem_of(market)
    released = market.released
    if released == WITHOUT_MODEL:
        raise MarketClosedError(
            f"the market in {market.folder} was closed without a model, for good; open another"
        )
    if released is not None and regularization is not None:
        raise ParameterError(
            f"regularization is {regularization:g}, but the market in {market.folder} was closed "
            "and keeps its model; leave it out to see that again"
        )
    learner = problem.classifier(regularization)
    if not market.is_closed:  # what can go wrong shall go wrong before quoting ends
        rows = partial(owned_rows, problem)
        check_closing(market, learner, rows, lapse=lapse, leave_out=leave_out)

    def train(accepted: pd.DataFrame) -> str:
        return release_model(learner, owned_rows(problem), accepted, leave_out)

    guarantee = partial(model_guarantee, learner, leave_out=leave_out)
    return close_and_describe(market, problem, train, guarantee, Stages(progress), lapse=lapse)


def close_and_describe(
    market: OnlineMarket,
    problem: OnlineMarketProblem,
    train: Callable[[pd.DataFrame], str],
    guarantee: Callable[[pd.DataFrame], Guarantee],
    stages: Stages,
    *,
    lapse: bool = False,
    simulated: bool = False,
    turned_away: int = 0,
) -> Result[OnlineMarketProblem]:
    """Close a market and say what became of it.

    Parameters
    ----------
    market : OnlineMarket
    problem : OnlineMarketProblem
    train : callable
        From the accepted offers to the released model as JSON; not called if one is stored.
    guarantee : callable
        From the accepted offers to what the model will guarantee them.
    stages : Stages
    lapse : bool
        Whether unanswered offers count as declined.
    simulated : bool
        Whether the sellers were drawn.
    turned_away : int
        Sellers who came after the expected number, where that is known.

    Returns
    -------
    Result
        Its tables and numbers:

        offers
            One row per seller quoted, by arrival: number, id, sensitivity, virtual_cost, epsilon,
            payment, surplus (payment minus cost), status, plan, weight (in training) and guarantee
            (total, of the released model).
        summary : dict
            Counts, totals and losses, planned and realised; see
            :func:`convexmarket.online.record.comparison`.
        plans
            plan, after (sellers quoted before it), cutoff (virtual cost), highest_sensitivity
            (bought from), eta (expected total), objective, lower_bound, gap, payment_error.
        curves
            plan, sensitivity, epsilon, payment: the terms, drawn.
        model : dict
            What was released, see
            :func:`convexmarket.online.release.release_model`.
        audits
            plan, sellers_audited, max_gain, min_surplus, tolerance, incentive_compatible,
            individually_rational.
        fraction : float
            xi: sellers quoted over sellers expected.
        simulated : bool
            Whether the sellers were drawn.
    """
    with stages("train", 1) as advance:
        model = json.loads(market.close(train, lapse, guarantee))
        advance()
    with stages("audit", 1) as advance:
        plans = market.plans()
        audits = audits_of(plans)
        advance()
    prior = problem.prior
    offers = offer_rows(market.offers(), prior, model["guarantees"])
    caveats = (*CAVEATS, *((_LEARNT,) if problem.plan.learn else ()))
    return Result(
        problem=problem,
        tables={
            "offers": offers,
            "plans": plan_rows(plans),
            "curves": curves_of(plans),
            "audits": audits,
        },
        numbers={
            "summary": comparison(offers, plans, market.policy.start, prior, turned_away),
            "model": model,
            "fraction": len(offers) / problem.buyer.expected_sellers,
            "simulated": simulated,
        },
        caveats=(_REPORTED if problem.has_reports else _SIMULATED, *caveats)
        if simulated
        else caveats,
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            seed=problem.run.seed if simulated else None,
        ),
    )
