"""A market at every point of a grid, and the points that no other one dominates."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation import allocate
from convexmarket.lab.grid import Grid, Streams
from convexmarket.lab.kinds.pareto.problem import ParetoProblem
from convexmarket.lab.measures import expected_payments, n_bought, without_payments
from convexmarket.lab.problem.sellers import Lists, market_of, read_lists
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.stages import Progress, Stages

__all__ = ["CRITERIA", "efficient", "run_pareto"]

#: What is to be small.
CRITERIA = ("error", "expected_payments", "epsilon_max")

_MORE = ("objective", "lower_bound", "gap", "eta", "n_bought", "method", "solves", "seconds")

CAVEATS = (
    "The sellers are one draw from the prior (or those of the problem file), the same at every "
    "point. Another draw gives other numbers.",
    "There is no learner here. The error is the objective without its payments, what spread and "
    "noise stand for; how well they do so is a matter of the learner, and of its data. Where a "
    "swept key is a weight of the error, errors of different values are in different units.",
    "A point is efficient among those that were computed. Between them there may be better ones.",
)


def run_pareto(problem: ParetoProblem, progress: Progress | None = None) -> Result[ParetoProblem]:
    """Solve the market at every point of the grid.

    Parameters
    ----------
    problem : ParetoProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        Its table ``points``, a row each: a column for each swept key, status, message; error (the
        objective without its payments), expected_payments (psi'u(eps)), epsilon_max, efficient
        (whether no point has less of one of these three and no more of another), objective,
        lower_bound, gap, eta, n_bought, method, solves, seconds.

    Raises
    ------
    DataError
        If the sellers' file cannot be read, or holds a bad row.
    """
    stages, seed = Stages(progress), problem.run.seed
    points = Grid(problem.axes, seed=seed).map(
        partial(_solved, problem, read_lists(problem, problem.markets.values())),
        stages,
        problem.run.workers,
    )
    points = points.reindex(columns=[*problem.axes, "status", "message", *CRITERIA, *_MORE])
    points = points.assign(efficient=efficient(points[list(CRITERIA)].to_numpy(dtype=float)))
    return Result(
        problem=problem,
        tables={"points": points},
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(problem),
    )


def _solved(
    problem: ParetoProblem, lists: Lists, place: dict[str, float], streams: Streams
) -> dict[str, Any]:
    table = problem.markets[tuple(place.values())]
    market = market_of(table, streams.seed, lists)
    found = allocate(market, solver=table.solve.solver, gap=table.solve.gap)
    return {
        "error": without_payments(market, found),
        "expected_payments": float(expected_payments(market, found).sum()),
        "epsilon_max": float(found.epsilon.max()),
        "objective": found.objective,
        "lower_bound": found.lower_bound,
        "gap": found.gap,
        "eta": found.eta,
        "n_bought": n_bought(found.weights),
        "method": found.method,
        "solves": len(found.solves),
        "seconds": found.seconds,
    }


def efficient(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Say of each row whether no other is as small everywhere and smaller somewhere.

    A row that is not known whole is none; rows that are equal are efficient together.

    Examples
    --------
    >>> efficient(np.array([[1.0, 3.0], [2.0, 2.0], [2.0, 3.0], [np.nan, 0.0]])).tolist()
    [True, True, False, False]
    """
    known = np.asarray(np.isfinite(values).all(axis=1))
    found = np.array(known)
    for row in np.flatnonzero(known):
        others = values[known]
        no_larger = (others <= values[row]).all(axis=1)
        found[row] = not (no_larger & (others < values[row]).any(axis=1)).any()
    return found
