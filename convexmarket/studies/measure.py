"""Measurements of a run, which solves a problem for each of two parameter values."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import cvxpy as cp
import cvxpy.cvxcore.python.cvxcore  # once, instead of in the process of each run
import numpy as np

from convexmarket.errors import ConvexMarketError, NotSupportedError
from convexmarket.studies.residuals import kkt_residuals
from convexmarket.studies.subproblems.markets import GAP, Declared, Floats, Instance
from convexmarket.studies.subproblems.problem_classes import CLASSES, Make

Row = dict[str, Any]
#: Labels of exact methods and of reference runs in the tables of a study.
EXACT, REFERENCE = "exact", "reference"
RESIDUALS = ("primal_residual", "violation", "dual_residual", "gap")
#: Prefix of the measurements of the second solve, which uses the changed parameter.
AGAIN = "again_"

#: Statuses with which a solver returns a point.
_WITH_POINT = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT, EXACT)
#: Options of a solver with unattainable tolerances, so that it stops at its highest accuracy.
_TIGHT = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13, "max_iter": 500}
_PATIENCE = 3.0  # time limit of a reference run, relative to the time limit of other runs
_REFUSED = "cannot solve this problem"  # part of an error message of the certified search


def measure_run(
    make: Make,
    size: int,
    seed: tuple[int, int],
    formulation: str,
    solver: Any,
    options: Row,
    *,
    ready: Callable[[float], None],
) -> Row:
    """Build an instance and measure a run. The time limit applies after the call of ``ready``."""
    instance = make(size, np.random.default_rng(seed))
    if solver == REFERENCE:
        ready(_PATIENCE)
        return measure_reference(instance)
    if solver != EXACT:
        with suppress(Exception):  # errors recur in the measured run, which records them
            warm_up(solver)
    ready(1.0)
    return measure(instance, formulation, solver, options)


def warm_up(solver: Any, **options: Any) -> None:
    """Solve a problem with two variables to load the libraries of CVXPY and of the solver."""
    x = cp.Variable(2)
    with warnings.catch_warnings(action="ignore"):
        cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]).solve(solver=solver, **options)


def measure(instance: Instance, formulation: str, solver: Any, options: Row) -> Row:
    """Solve an instance for each value of its parameters. Return statuses and measurements.

    Keys of the second solve start with :data:`AGAIN`. The total time of the first solve includes
    ``declaration_s``. ``again_cold_s`` is the time of the second solve without a warm start.
    """
    start = time.perf_counter()
    solve = partial(_answered, instance, formulation, solver, options)
    if solver != EXACT and instance.declare is not None:
        solve = partial(_solved, instance, instance.declare(formulation), solver, options)
    row: Row = {"declaration_s": time.perf_counter() - start}
    for prefix, value in zip(("", AGAIN), instance.values, strict=False):
        try:
            with warnings.catch_warnings(action="ignore"):  # residuals identify inaccurate points
                solved = solve(value)
        except MemoryError:
            raise
        except Exception as error:  # a solver can raise any exception
            unable = isinstance(error, NotSupportedError) or _REFUSED in str(error)
            solved = {"status": "unsupported" if unable else "error"}
            solved["message"] = f"{type(error).__name__}: {error}"
        row |= {prefix + key: number for key, number in solved.items()}
        if solved["status"] not in _WITH_POINT:
            break
    if "total_s" in row:
        row["total_s"] += row["declaration_s"]
    return row


def _solved(instance: Instance, declared: Declared, solver: Any, options: Row, value: Any) -> Row:
    problem, given, marks = declared.problem, dict(options), [time.perf_counter()]
    declared.place(value)
    try:
        data, chain, inverse = problem.get_problem_data(solver, solver_opts=given)
    except cp.error.SolverError as error:
        raise NotSupportedError(str(error)) from error
    marks.append(time.perf_counter())
    raw = chain.solve_via_data(problem, data, True, False, given)
    marks.append(time.perf_counter())
    problem.unpack_results(raw, chain, inverse)
    marks.append(time.perf_counter())
    row: Row = {"status": str(problem.status), "message": "", "total_s": marks[-1] - marks[0]}
    row |= zip(("compilation_s", "solver_s", "recovery_s"), np.diff(marks).tolist(), strict=True)
    if row["status"] not in _WITH_POINT:
        return row
    row |= zip(RESIDUALS, kkt_residuals(problem, instance.scale(value)), strict=True)
    try:
        judged = _judged(instance, declared.answer(), value)
    except (ConvexMarketError, ArithmeticError, TypeError, ValueError) as error:
        row["message"] = f"no answer can be computed from the point: {error}"
        judged = _judged(instance, np.full(1, np.nan), value)
    row |= judged | {"violation": max(row["violation"], judged["violation"])}
    if value is not instance.values[0]:
        start = time.perf_counter()
        with suppress(Exception):
            chain.solve_via_data(problem, data, False, False, given)
            row["cold_s"] = time.perf_counter() - start
    return row


def _answered(instance: Instance, formulation: str, solver: Any, options: Row, value: Any) -> Row:
    """Measure an exact method or a certified search, whose answers have no multipliers."""
    start = time.perf_counter()
    row: Row = {"status": EXACT, "message": ""} | dict.fromkeys(RESIDUALS, 0.0)
    if solver == EXACT:
        answer = instance.exact(value)
    else:
        assert instance.search is not None
        bought = instance.search(formulation, solver, options)
        answer = np.append(bought.weights, bought.eta)
        row |= {"status": cp.OPTIMAL if bought.gap <= GAP else cp.OPTIMAL_INACCURATE}
        row |= {"gap": bought.gap, "solver_s": sum(each.seconds for each in bought.solves)}
    if answer is None:
        raise NotSupportedError("no exact method is known for this instance")
    row["total_s"] = time.perf_counter() - start
    row.setdefault("solver_s", row["total_s"])
    row |= {"compilation_s": row["total_s"] - row["solver_s"], "recovery_s": 0.0}
    return row | _judged(instance, answer, value)


def _judged(instance: Instance, answer: Floats, value: Any) -> Row:
    """Compute the objective and the violation of an answer, and the scale of objective errors."""
    objective, violation = np.nan, np.inf
    if np.isfinite(answer).all():
        with np.errstate(all="ignore"):
            objective, violation = instance.objective(answer, value), instance.violation(answer)
    return {"objective": objective, "scale": instance.scale(value), "violation": violation}


def measure_reference(instance: Instance) -> Row:
    """Measure the exact method or, if none exists, the formulation with the smallest residuals."""
    row = measure(instance, EXACT, EXACT, {})
    if row["status"] == EXACT:
        return row | {"certainty": EXACT, "doubt": 0.0}
    best, doubt = {"status": "error", "message": "no accurate solve", "certainty": "none"}, np.inf
    for formulation in CLASSES[instance.problem_class]:
        row = measure(instance, formulation, "CLARABEL", _TIGHT)
        residuals = [row.get(prefix + name) for prefix in ("", AGAIN) for name in RESIDUALS]
        largest = np.max(np.array(residuals, dtype=float))  # NaN if a solve is missing
        if largest < doubt:
            doubt = float(largest)
            best = row | {"certainty": f"gap {doubt:.0e}", "doubt": doubt}
    return best
