"""One joint problem along a sweep, averaged over paired draws (A, section X; B, appendix B).

A draw is the sellers' sensitivities, their guarantees where these are given, and the noise vector.
Every point of the sweep sees the same draws: sellers keep their ranks when the prior changes, and
the noise stays what it is, so that two points differ by what was swept alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.allocation import allocate
from convexmarket.data.datasets import MarketData
from convexmarket.errors import ConvexMarketError
from convexmarket.joint import JointAllocation, JointMarket, allocate_jointly
from convexmarket.joint.model_step import best_model
from convexmarket.joint.problem import NoiseModel
from convexmarket.lab.claims import Claim, check_shape
from convexmarket.lab.grid import Grid, Streams
from convexmarket.lab.kinds.joint_sweep.problem import JointPoint, JointSweepProblem, Measure
from convexmarket.lab.problem.rows import load_rows
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages
from convexmarket.market import Market
from convexmarket.privacy import gamma_sphere_noise

__all__ = ["MEASURES", "run_joint_sweep"]

Floats = NDArray[np.float64]

#: What is measured at every point, for every draw.
MEASURES: tuple[str, ...] = get_args(Measure)

#: Relative to their mean: weights that are this close are equal.
_ROUNDING = 1e-12

# Purposes of random numbers: each has a branch of the seed to itself.
_SENSITIVITIES, _GUARANTEES, _NOISE, _STARTS = 0, 1, 2, 3

CAVEATS = (
    "The rows are the same in every draw. Averages and intervals are over sensitivities, given "
    "guarantees and noise; another data set would give other numbers.",
    "An interval of 95% misses the truth once in twenty times, and the page has many of them. The "
    "lowest point of a curve was chosen on the draws that it is then tested on.",
    "Where the status is not “global”, another start might have found a smaller objective. The "
    "residual only says that neither the model alone nor the purchase alone can be improved.",
)


def run_joint_sweep(
    problem: JointSweepProblem, progress: Progress | None = None
) -> Result[JointSweepProblem]:
    """Solve the joint problem at every point of the sweep, for every draw.

    Parameters
    ----------
    problem : JointSweepProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; seconds apart. A solve without
        an answer is a row with its status and message. Its tables:

        points
            One row per point of the sweep: point (its position), x (where it stands on the axis),
            one column for each swept key, draws, solved (draws with an answer), eta_decided (draws
            in which the range of eta decided the answer), eta_fixed (whether the range has one
            value), and of every measure its mean over the solved draws and, as ``<measure>_se``,
            its standard error.
        draws
            One row per point and draw: point, x, draw, status (of the joint allocation, or how it
            failed), message (why it failed), binding (ends of the range of eta that decided), the
            measures, two_step_message (why the mechanism that does not look at the data has no
            answer) and seconds. The measures: objective; eta and weight_variance (of the a_i), and
            the same of that mechanism (two_step_...); n_bought; expected_payments (psi'u(eps));
            misclassification of the released model (train_error, test_error) and of the model for
            the same weights without noise (noiseless_...); empirical_loss (sum of a_i times the
            logistic loss of the released model), mean_loss (the same, unweighted); residual.
    """
    stages, sweep = Stages(progress), problem.sweep
    rows = {point.data: load_rows(point.data) for point in sweep.points}
    solves = [(point, rows[point.data]) for point in sweep.points]
    grid = Grid({"point": range(len(solves))}, draws=sweep.draws, seed=problem.run.seed)
    found = grid.map(partial(_solve, solves), stages, problem.run.workers)
    found["x"] = np.asarray(sweep.axis_values)[found.point]
    draws = found.reindex(columns=["point", "x", "draw", *_COLUMNS])
    return Result(
        problem=problem,
        tables={
            "points": _points(problem, draws),
            "draws": draws,
        },
        claims=tuple(_claims(problem, draws)),
        certificates=_certificates(found),
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(problem),
    )


# -------------------------------------------------------------------------- one point, one draw

_COLUMNS = ("status", "message", "binding", *MEASURES, "two_step_message", "seconds")


def _solve(
    solves: Sequence[tuple[JointPoint, MarketData]], place: dict[str, int], streams: Streams
) -> dict[str, Any]:
    """Return what is measured at one point for one draw, and the allocation's certificate."""
    point, rows = solves[place["point"]]
    m, n = len(rows.y_train), rows.X_train.shape[1]
    noise = gamma_sphere_noise(n, streams(_NOISE))
    market = point.market(streams(_SENSITIVITIES).random(m), streams(_GUARANTEES).random(m))
    joint = _joint(point, rows, market, point.joint.noise, noise)
    found = allocate_jointly(joint, starts=point.joint.starts, random_state=streams(_STARTS))
    return (
        _measured(point, rows, joint, found, noise)
        | _two_step(market)
        | {"certificate": found.certificate()}
    )


def _joint(
    point: JointPoint, rows: MarketData, market: Market, noise: NoiseModel, vector: Floats
) -> JointMarket:
    return JointMarket(
        market,
        rows.X_train,
        rows.y_train,
        regularization=point.learner.regularization,
        noise=noise,
        noise_vector=vector if noise == "realised" else None,
        failure_probability=point.joint.failure_probability,
        max_norm=point.joint.max_norm,
    )


def _measured(
    point: JointPoint,
    rows: MarketData,
    joint: JointMarket,
    found: JointAllocation,
    noise: Floats,
) -> dict[str, Any]:
    """Measure the purchase, the model that is released with noise, and the one without."""
    market = joint.market
    expected = _joint(point, rows, market, "expected", noise)
    noiseless = best_model(expected, found.weights, found.eta)
    released = found.model
    if point.joint.noise != "realised":
        realised = _joint(point, rows, market, "realised", noise)
        released = best_model(realised, found.weights, found.eta)
    losses = joint.losses(released)
    bought = found.weights > 0
    paid = market.sellers.virtual_costs * market.privacy_cost(found.epsilon)
    return {
        "status": found.status,
        "binding": ", ".join(found.binding),
        "objective": found.objective,
        "eta": found.eta,
        "n_bought": found.n_bought,
        "weight_variance": _variance(found.weights),
        "expected_payments": float(paid[bought].sum()),
        "train_error": _error(released, rows.X_train, rows.y_train),
        "test_error": _error(released, rows.X_test, rows.y_test),
        "noiseless_train_error": _error(noiseless, rows.X_train, rows.y_train),
        "noiseless_test_error": _error(noiseless, rows.X_test, rows.y_test),
        "empirical_loss": float(found.weights @ losses),
        "mean_loss": float(losses.mean()),
        "residual": found.residual,
        "seconds": found.seconds,
    }


def _error(model: Floats, X: Floats, y: Floats) -> float:
    """Return the share of rows that a model misclassifies."""
    return float(np.mean(np.where(X @ model > 0, 1.0, -1.0) != y))


def _two_step(market: Market) -> dict[str, Any]:
    """Measure the mechanism that chooses weights and eta without looking at the data."""
    try:
        found = allocate(market)
    except ConvexMarketError as error:
        return {"two_step_message": str(error)}
    return {
        "two_step_eta": found.eta,
        "two_step_weight_variance": _variance(found.weights),
        "two_step_message": "",
    }


def _variance(weights: Floats) -> float:
    """Return the variance of the weights; none if they differ by rounding alone."""
    off = np.abs(weights - weights.mean()).max()
    return 0.0 if off <= _ROUNDING * weights.mean() else float(weights.var())


# ---------------------------------------------------------------------------------- what is found


def _certificates(found: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the certificate of every allocation, with its point and draw."""
    columns = ["point", "x", "draw", "certificate"]
    rows = found.reindex(columns=columns).dropna(subset="certificate").itertuples(index=False)
    return [dict(zip(columns[:-1], row[:-1], strict=True)) | row[-1] for row in rows]


def _points(problem: JointSweepProblem, draws: pd.DataFrame) -> pd.DataFrame:
    """Average every point over its draws."""
    table = []
    for number, (settings, point) in enumerate(
        zip(problem.sweep.settings, problem.sweep.points, strict=True)
    ):
        here = draws[draws.point == number]
        solved = here[here.message == ""]
        values = solved[list(MEASURES)].astype(float)
        table.append(
            {"point": number, "x": here.x.iloc[0]}
            | settings
            | {
                "draws": len(here),
                "solved": len(values),
                "eta_decided": int((solved.binding != "").sum()),
                "eta_fixed": point.eta_fixed,
            }
            | values.mean().to_dict()
            | values.sem().add_suffix("_se").to_dict()
        )
    return pd.DataFrame(table)


def _claims(problem: JointSweepProblem, draws: pd.DataFrame) -> list[Claim]:
    """Check every claim on the draws that have an answer at all points."""
    claims = []
    for table in problem.claims:
        wide = draws.pivot_table(
            index="draw", columns="point", values=table.measure, dropna=False
        ).astype(float)
        curves = wide.dropna().to_numpy()
        if len(curves):
            verdict, found = check_shape(curves, table.shape)
        else:
            verdict, found = "not reproduced", "no draw has an answer at every point"
        if 0 < len(curves) < problem.sweep.draws:
            found += f" ({len(curves)} of {problem.sweep.draws} draws, the others have gaps)"
        claims.append(Claim(table.source, table.says, verdict, found, table.remark))
    return claims
