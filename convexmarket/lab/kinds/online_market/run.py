"""A simulated online market: the steps of a real one; what the file does not say is drawn."""

from __future__ import annotations

import tempfile
from functools import partial

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.online_market.market import (
    close_and_describe,
    online_policy,
)
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.lab.kinds.online_market.rows import owned_rows
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.online.market import OnlineMarket
from convexmarket.online.release import model_guarantee, release_model

__all__ = ["run_online_market"]

# Purposes of random numbers: each has a branch of the seed to itself.
_ARRIVAL, _REPORTS, _ANSWERS, _NOISE = range(4)


def run_online_market(
    problem: OnlineMarketProblem, progress: Progress | None = None
) -> Result[OnlineMarketProblem]:
    """Simulate a market: sellers arriving, quoted, answering by chance; then close it.

    Everything runs through the database of a real market, in a temporary folder.

    Parameters
    ----------
    problem : OnlineMarketProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem; timings apart.

    Raises
    ------
    ProblemFileError
        If the problem makes no policy, or more sellers are to arrive than there are rows.
    DataError
        If the rows cannot be read or are not as declared.
    ParameterError
        If nobody accepted.
    """
    stages = Stages(progress)
    policy = online_policy(problem)
    rows = owned_rows(problem)
    arriving = _arriving(problem, len(rows.ids))
    if rows.reports is None:
        reports = problem.prior.sample(len(arriving), _generator(problem, _REPORTS))
    else:
        reports = rows.reports[arriving]
    room = min(len(arriving), policy.expected_sellers)
    ids = [rows.ids[place] for place in arriving]
    stream = list(zip(ids, reports.tolist(), strict=True))[:room]
    seed = problem.run.stream(_NOISE)
    learner = problem.classifier()
    train = partial(release_model, learner, rows, seed=seed)
    away = len(arriving) - room
    with (
        tempfile.TemporaryDirectory(prefix="online-market-") as folder,
        OnlineMarket.create(folder, policy) as market,
    ):
        _trade(market, problem, stream, stages)
        guarantee = partial(model_guarantee, learner)
        return close_and_describe(
            market, problem, train, guarantee, stages, simulated=True, turned_away=away
        )


def _trade(
    market: OnlineMarket,
    problem: OnlineMarketProblem,
    stream: list[tuple[str, float]],
    stages: Stages,
) -> None:
    """Quote sellers one by one; each answers by chance before the next one comes."""
    draws = _generator(problem, _ANSWERS).random(len(stream))
    with stages("quote and answer", len(stream)) as advance:
        for (owner, report), draw in zip(stream, draws, strict=True):
            if market.quote(owner, report).epsilon > 0:
                answer = market.accept if draw < problem.simulation.acceptance else market.decline
                answer(owner)
            advance()


def _arriving(problem: OnlineMarketProblem, owners: int) -> NDArray[np.intp]:
    """Return who arrives, in random order: their places among the owners of rows."""
    wanted = problem.simulation.arrivals
    if wanted is not None and wanted > owners:
        raise ProblemFileError(
            f"simulation.arrivals is {wanted}, and the data have rows of {owners} sellers; give "
            "at most as many"
        )
    number = min(owners, problem.buyer.expected_sellers) if wanted is None else wanted
    return _generator(problem, _ARRIVAL).permutation(owners)[:number]


def _generator(problem: OnlineMarketProblem, purpose: int) -> np.random.Generator:
    return np.random.default_rng(problem.run.stream(purpose))
