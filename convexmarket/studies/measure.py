"""One measured run: declare, compile, solve, recover; change a parameter and solve again.

Everything happens in the calling process. The solver's status is recorded, and the accuracy of the
returned point is computed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np

from convexmarket.allocation.solver_calls import solver_version
from convexmarket.errors import ConvexMarketError, NotSupportedError
from convexmarket.studies.residuals import ABSOLUTE, MatrixProblem, kkt_residuals, returned_point
from convexmarket.studies.subproblems.markets import GAP, Declared, Floats, Instance
from convexmarket.studies.subproblems.problem_classes import CLASSES, Make

Row = dict[str, Any]
#: The name of the methods without a conic solver, and of their formulation.
EXACT = "exact"
#: The name of the reference run.
REFERENCE = "reference"
RESIDUALS = ("primal_residual", "violation", "dual_residual", "gap")
#: Measurements of a solve: seconds, counts and relative residuals.
MEASURED: tuple[str, ...] = (
    "status",
    "message",
    "compilation_s",
    "solver_s",
    "recovery_s",
    "total_s",
)
MEASURED += ("iterations", "objective", "scale", *RESIDUALS, *ABSOLUTE)
#: Prefix of the measurements of the second solve, with a changed parameter.
AGAIN = "again_"

#: Statuses in which the solver returned a point.
_WITH_POINT = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT, EXACT)
#: Solvers of a reference, in this order, with unattainable tolerances: they end at their best
#: accuracy.
_REFERENCES: dict[str, dict[str, Any]] = {
    "CLARABEL": {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13, "max_iter": 500},
    "ECOS": {"abstol": 1e-13, "reltol": 1e-13, "feastol": 1e-13, "max_iters": 500},
}
#: Factor of the time limit for a reference.
_PATIENCE = 3.0
#: Residual at which a reference is accurate enough.
_CLOSE = 1e-8


def measure_run(
    make: Make,
    size: int,
    seed: tuple[int, int],
    formulation: str,
    solver: Any,
    options: Mapping[str, Any],
    *,
    ready: Callable[[float], None],
) -> Row:
    """Build an instance by a seed, and measure one run of it.

    ``ready`` starts the clock when the instance is built and the solver is loaded.
    """
    instance = make(size, np.random.default_rng(seed))
    name = ""
    if solver not in (EXACT, REFERENCE):
        with suppress(Exception):  # the run reports errors
            warm_up(solver)
        name = solver_version(solver) if isinstance(solver, str) else ""
    ready(_PATIENCE if solver == REFERENCE else 1.0)
    if solver == REFERENCE:
        row = measure_reference(instance)
    else:
        row = measure(instance, formulation, solver, options)
    return row | {"solver_version": name}


def warm_up(solver: Any, **options: Any) -> None:
    """Solve a problem of two variables, so that CVXPY and the solver load their libraries."""
    x = cp.Variable(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]).solve(solver=solver, **options)


def measure(instance: Instance, formulation: str, solver: Any, options: Mapping[str, Any]) -> Row:
    """Solve an instance twice; return the keys of :data:`MEASURED` for each solve.

    Keys of the second solve have the prefix :data:`AGAIN`; ``declaration_s`` counts in the first
    total, and ``again_cold_s`` are the solver's seconds for the second without a warm start.
    """
    start = time.perf_counter()
    solve: Callable[[Any], Row]
    if solver == EXACT:
        solve = partial(_exact, instance)
    elif instance.search is not None:
        return {"declaration_s": 0.0} | _search(instance, formulation, solver, options)
    else:
        solve = partial(_solve, instance, instance.declare(formulation), solver, options)
    row: Row = {"declaration_s": 0.0 if solver == EXACT else time.perf_counter() - start}
    for prefix, value in zip(("", AGAIN), instance.values, strict=True):
        solved = solve(value)
        row |= {prefix + key: number for key, number in solved.items()}
        if solved["status"] not in _WITH_POINT:
            break
    row["total_s"] += row["declaration_s"]
    return row


def _blank(status: str, message: str = "") -> Row:
    return dict.fromkeys(MEASURED, np.nan) | {"status": status, "message": message}


def _failed(error: Exception, unable: bool) -> Row:
    return _blank("unsupported" if unable else "error", f"{type(error).__name__}: {error}")


def _solve(
    instance: Instance, declared: Declared, solver: Any, options: Mapping[str, Any], value: Any
) -> Row:
    """Set the parameters, compile, solve and recover, with times; then examine the point."""
    problem, given, row = declared.problem, dict(options), _blank("error")
    marks = [time.perf_counter()]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the status shows the same
        try:
            declared.place(value)
            data, chain, inverse = problem.get_problem_data(solver, solver_opts=given)
            marks.append(time.perf_counter())
            raw = chain.solve_via_data(problem, data, True, False, given)
            marks.append(time.perf_counter())
            problem.unpack_results(raw, chain, inverse)
            row["status"] = str(problem.status)
        except MemoryError:
            raise
        except Exception as error:  # a solver may raise anything
            row = _failed(error, isinstance(error, cp.error.SolverError) and len(marks) == 1)
        marks.append(time.perf_counter())
        seconds = np.diff(marks).tolist()
        row |= dict(zip(("compilation_s", "solver_s", "recovery_s"), seconds, strict=False))
        row["total_s"] = marks[-1] - marks[0]
        if row["status"] not in _WITH_POINT:
            return row
        count = getattr(problem.solver_stats, "num_iters", None)
        row["iterations"] = float(count) if isinstance(count, int | float | np.integer) else np.nan
        row |= zip(RESIDUALS, kkt_residuals(problem, instance.scale(value)), strict=True)
        try:
            judged = _judged(instance, declared.answer(), value)
            row |= judged | {"violation": max(row["violation"], judged["violation"])}
        except (ConvexMarketError, ArithmeticError, TypeError, ValueError) as error:
            row |= {"message": f"the point gives no answer: {error}", "violation": np.inf}
        with suppress(Exception):  # of a solver of the user, for example
            matrices = MatrixProblem.of(data, getattr(chain.solver, "EXP_CONE_ORDER", None))
            residuals = matrices.residuals(*returned_point(chain.solver, raw, inverse[-1]))
            row |= zip(ABSOLUTE, residuals, strict=True)
        if value is not instance.values[0]:
            start = time.perf_counter()
            with suppress(Exception):
                chain.solve_via_data(problem, data, False, False, given)
                row["cold_s"] = time.perf_counter() - start
    return row


def _search(instance: Instance, formulation: str, solver: Any, options: Mapping[str, Any]) -> Row:
    """Run a complete certified search: its time to the gap, its solves, and its certified gap."""
    assert instance.search is not None
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the gap shows the same
            allocation = instance.search(formulation, solver, options)
    except Exception as error:  # a solver may raise anything
        unable = isinstance(error, NotSupportedError) or "cannot solve this problem" in str(error)
        return _failed(error, unable)
    seconds = time.perf_counter() - start
    status = cp.OPTIMAL if allocation.gap <= GAP else cp.OPTIMAL_INACCURATE
    answer = np.append(allocation.weights, allocation.eta)
    solver_s = sum(record.seconds for record in allocation.solves)
    return _timed(instance, status, answer, seconds, None) | {
        "solver_s": solver_s,
        "compilation_s": seconds - solver_s,
        "iterations": float(len(allocation.solves)),
        "gap": allocation.gap,
    }


def _exact(instance: Instance, value: Any) -> Row:
    """Measure the exact method: no compilation, and no multipliers."""
    start = time.perf_counter()
    answer = instance.exact(value)
    seconds = time.perf_counter() - start
    if answer is None:
        return _blank("unsupported", "no exact method is known for this instance")
    return _timed(instance, EXACT, answer, seconds, value)


def _timed(instance: Instance, status: str, answer: Floats, seconds: float, value: Any) -> Row:
    """Return the row of an answer without multipliers."""
    row = _blank(status) | dict.fromkeys(("compilation_s", "recovery_s", *RESIDUALS), 0.0)
    row |= {"solver_s": seconds, "total_s": seconds}
    return row | _judged(instance, answer, value)


def _judged(instance: Instance, answer: Floats, value: Any) -> Row:
    """Return the objective of an answer, its violation, and the scale of its errors."""
    objective, violation = np.nan, np.inf
    if np.isfinite(answer).all():
        with np.errstate(all="ignore"):
            objective, violation = instance.objective(answer, value), instance.violation(answer)
    return {"objective": objective, "scale": instance.scale(value), "violation": violation}


def measure_reference(instance: Instance) -> Row:
    """Measure the reference run of an instance.

    It is the exact method or, if none is known, the solve of any formulation with the smallest
    residuals. ``certainty`` is "exact" or describes the residuals; ``doubt`` is the largest one.
    """
    row = measure(instance, EXACT, EXACT, {})
    if row["status"] == EXACT:
        return row | {"certainty": EXACT, "doubt": 0.0}
    best, doubt = row, np.inf
    for solver, options in _REFERENCES.items():
        for formulation in CLASSES[instance.problem_class]:
            row = measure(instance, formulation, solver, options)
            residuals = [row.get(prefix + name) for prefix in ("", AGAIN) for name in RESIDUALS]
            largest = np.max(np.array(residuals, dtype=float))  # NaN where a solve is missing
            if largest < doubt:
                best, doubt = row, largest
        if doubt < _CLOSE:
            break
    if not np.isfinite(doubt):
        return row | {"status": "error", "certainty": "none", "message": "no solver is near"}
    return best | {"certainty": f"gap {doubt:.0e}", "doubt": float(doubt)}
