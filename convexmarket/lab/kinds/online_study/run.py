"""Policies for sellers who arrive one by one, beside the optimum in hindsight (A, Fig. 3).

A draw is a stream of sellers. Every policy sees the same stream, and so does the optimum of a buyer
who knows all reports beforehand; of a longer stream, a shorter one is the beginning. A policy that
buys nothing has no model and an infinite loss: such draws are counted, and averages say that they
are over the others.
"""

from __future__ import annotations

import time
from typing import Any, get_args

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.allocation import allocate, loss_limit
from convexmarket.lab.claims import mean_interval, power_fit
from convexmarket.lab.kinds.online_study.claims import study_claims
from convexmarket.lab.kinds.online_study.problem import KNOWING, OnlineStudyProblem, StudyMeasure
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.market import Market
from convexmarket.online import OnlineOutcome, run_online
from convexmarket.sellers import Sellers
from convexmarket.terms import Cap, Noise, Payments, Spread

__all__ = ["MEASURES", "limit_of_ratio", "run_online_study"]

Floats = NDArray[np.float64]

#: What is measured in every draw, of every policy.
MEASURES: tuple[str, ...] = get_args(StudyMeasure)
KEY = ["policy", "fraction", "size"]

_SAME_IN_THE_LIMIT = ("algorithm-3", "expectation")

# The sensitivities' branch of the seed.
_SENSITIVITIES = 0

CAVEATS = (
    "The loss is A's Eq. (11), the price of privacy in a bound; no model is trained here. Sellers "
    "are drawn from the prior and accept every offer.",
    "With few sellers a draw can buy next to nothing and lose very much. Means and intervals rest "
    "on such draws then, and an interval can reach below 1, where no ratio is; the median says "
    "more.",
    "A 95% interval misses the truth once in twenty times, and the page has many of them. "
    "The intervals of fitted exponents come from the scatter around a straight line: where the "
    "points lie on a slight curve, the exponent for many sellers can be outside.",
)
CAPPED = (
    "The cap holds for what is bought in expectation. A policy's weights can exceed it by chance, "
    "while the optimum in hindsight keeps it exactly, so that a ratio can be below 1."
)


def run_online_study(
    problem: OnlineStudyProblem, progress: Progress | None = None
) -> Result[OnlineStudyProblem]:
    """Let every policy buy from the same streams of sellers.

    Parameters
    ----------
    problem : OnlineStudyProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; seconds apart. Its tables and
        numbers:

        points
            One row per policy, fraction and size: arrived (sellers who came), draws, empty (draws
            in which nothing was bought, of infinite loss); of every measure the mean over the other
            draws and its 95% interval (``<measure>_low``, ``<measure>_high``); ratio_median (over
            all draws, the infinite ones among them); ratio_limit (:func:`limit_of_ratio`, where A's
            Assumption IV.3 is known to hold); offline with its interval, over all draws; seconds
            (mean).
        draws
            One row per policy, fraction, size and draw: arrived, offline (the loss of the optimum
            in hindsight), the measures, and seconds (plan and quotes). The measures: loss (A, Eq.
            11, with the virtual costs of the true prior; infinite where nothing was bought),
            paid_loss (with the payments that were made), ratio (loss to offline), regret (loss to
            that of the same policy when it knows the prior, less 1; only where it does not), eta
            (total privacy bought), n_bought, largest_weight (NaN where nothing was bought),
            payments.
        fits
            One row per policy, fraction and quantity ("loss", "loss above the floor", "ratio - 1",
            "regret"): the exponent of m, its 95% interval, the exponent between the last two sizes,
            and how many sizes there were: those at which something was bought in every draw.
        floor : float
            No loss can be smaller: ``2*sqrt(sigma*gamma*psi)`` at the smallest virtual cost.

    Raises
    ------
    ConvexMarketError
        If a policy cannot be planned for one of the sizes.
    """
    stages, study = Stages(progress), problem.study
    places = [
        (size, fraction, draw)
        for size in study.sizes
        for fraction in study.fractions
        for draw in range(study.draws)
    ]
    found = stages.parallel(
        "draws", problem.run.workers, (delayed(_bought)(problem, *place) for place in places)
    )
    draws = pd.DataFrame([row for rows in found for row in rows])
    order = draws.policy.map({name: place for place, name in enumerate(study.policies)})
    draws = draws.assign(order=order).sort_values(["order", "fraction", "size", "draw"])
    draws = draws.drop(columns="order").reset_index(drop=True)
    floor = _floor(problem)
    points = _points(problem, draws)
    return Result(
        problem=problem,
        tables={
            "points": points,
            "draws": draws,
            "fits": _fits(points, floor),
        },
        numbers={
            "floor": floor,
        },
        claims=study_claims(problem, draws),
        caveats=(*CAVEATS, *((CAPPED,) if problem.buyer.cap is not None else ())),
        timings=stages.timings(),
        provenance=provenance_of(problem),
    )


# --------------------------------------------------------------------------- one stream of sellers


def _arrivals(problem: OnlineStudyProblem, number: int, draw: int) -> Floats:
    """Return the first so many sellers of a stream."""
    seed = problem.run.stream(_SENSITIVITIES, draw)
    levels = np.random.default_rng(seed).random(number)
    return np.asarray(problem.prior.quantile(levels))


def _bought(
    problem: OnlineStudyProblem, size: int, fraction: float, draw: int
) -> list[dict[str, Any]]:
    """Return the rows of all policies for one stream."""
    came = _arrivals(problem, max(1, round(fraction * size)), draw)
    offline = _hindsight(problem, came)
    place = {"fraction": fraction, "size": size, "draw": draw, "arrived": came.size}
    rows: dict[str, dict[str, Any]] = {}
    for name in problem.study.policies:
        start = time.perf_counter()
        outcome = run_online(problem.policy(name, size), came)
        seconds = time.perf_counter() - start
        measured = _measured(problem, outcome, offline) | {"seconds": seconds}
        rows[name] = {"policy": name, **place, "offline": offline, **measured}
    for ignorant in KNOWING.keys() & rows.keys():
        known = rows[KNOWING[ignorant]]["loss"]
        if np.isfinite(known):
            rows[ignorant]["regret"] = rows[ignorant]["loss"] / known - 1.0
    return list(rows.values())


def _hindsight(problem: OnlineStudyProblem, came: Floats) -> float:
    """Return the smallest loss of a buyer who knows all reports."""
    buyer = problem.buyer
    objective = buyer.mu * Spread() + buyer.sigma * Noise() + buyer.gamma * Payments()
    constraints = [] if buyer.cap is None else [Cap(buyer.cap)]
    return allocate(Market(Sellers(came, problem.prior), objective, constraints)).objective


def _measured(
    problem: OnlineStudyProblem, outcome: OnlineOutcome, offline: float
) -> dict[str, Any]:
    loss = outcome.loss(problem.prior)
    return {
        "loss": loss,
        "paid_loss": outcome.paid_loss(),
        "ratio": loss / offline,
        "regret": np.nan,
        "eta": outcome.eta,
        "n_bought": outcome.n_bought,
        "largest_weight": float(outcome.weights.max()),
        "payments": float(outcome.payments.sum()),
    }


def limit_of_ratio(fraction: float) -> float:
    """Return where the ratio goes for many sellers, of whom only a fraction xi comes.

    Under A's Assumption IV.3 half of the planned loss is spread, a quarter noise and a quarter
    payments. With xi*m sellers they change by ``xi**(-1/2)``, ``1/xi`` and xi, and the optimum of
    those who came by ``xi**(-1/4)`` (A, Lemma IX.2).

    Examples
    --------
    >>> [round(limit_of_ratio(fraction), 3) for fraction in (1.0, 0.5, 0.1)]
    [1.0, 1.12, 2.309]
    """
    planned = loss_limit(1, 1.0, 1.0, 1.0, density=1.0, share=fraction).total
    return planned / loss_limit(1, 1.0, 1.0, 1.0, density=1.0).total * float(fraction**0.25)


def _floor(problem: OnlineStudyProblem) -> float:
    """Return what noise and payments come to where all is bought at the smallest virtual cost."""
    buyer, prior = problem.buyer, problem.prior
    cheapest = float(np.asarray(prior.ironed_virtual_cost(prior.support[0])))
    return float(2.0 * np.sqrt(buyer.sigma * buyer.gamma * max(cheapest, 0.0)))


# ---------------------------------------------------------------------------------- what is found


def _points(problem: OnlineStudyProblem, draws: pd.DataFrame) -> pd.DataFrame:
    """Average every policy, fraction and size over its draws."""
    # Algorithm 3 is refused where the assumption fails, so where it runs the limit is known.
    holds = _SAME_IN_THE_LIMIT if "algorithm-3" in problem.study.policies else ()
    table = []
    for key, rows in draws.groupby(KEY, sort=False):
        bought = rows[np.isfinite(rows.loss)]
        limit = limit_of_ratio(float(rows.fraction.iloc[0])) if key[0] in holds else np.nan
        row: dict[str, Any] = dict(zip(KEY, key, strict=True))
        row |= {
            "arrived": int(rows.arrived.iloc[0]),
            "draws": len(rows),
            "empty": len(rows) - len(bought),
            **mean_interval(rows.offline, "offline"),
            "ratio_median": float(rows.ratio.median()),
            "ratio_limit": limit,
        }
        for name in MEASURES:
            row |= mean_interval(bought[name], name)
        table.append({**row, "seconds": float(rows.seconds.mean())})
    return pd.DataFrame(table)


def _fits(points: pd.DataFrame, floor: float) -> pd.DataFrame:
    """Fit powers of m to the means, at the sizes where something was bought in every draw."""
    table = []
    for (policy, fraction), rows in points.groupby(["policy", "fraction"], sort=False):
        full = rows[rows["empty"] == 0]
        quantities = {"loss": full.loss, "ratio - 1": full.ratio - 1.0}
        if floor > 0:
            quantities["loss above the floor"] = full.loss - floor
        if policy in KNOWING:
            quantities["regret"] = full.regret
        for quantity, means in quantities.items():
            fit = power_fit(full["size"], means)
            row = {"policy": policy, "fraction": fraction, "of": quantity}
            table.append(row | fit._asdict())
    return pd.DataFrame(table)
