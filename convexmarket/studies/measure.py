"""One measured run: declare, compile, solve, recover; change a parameter and solve again.

Everything happens in the calling process. What a solver says is noted, and what is true of the
point that it returned is computed beside it.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
import psutil

from convexmarket.allocation.solvers import solver_version
from convexmarket.errors import ConvexMarketError, NotSupportedError
from convexmarket.studies.kkt import kkt_residuals
from convexmarket.studies.matrices import ABSOLUTE, MatrixProblem, returned_point
from convexmarket.studies.subproblems.base import Floats, Instance
from convexmarket.studies.subproblems.markets import GAP, SearchInstance

__all__ = [
    "AGAIN",
    "EXACT",
    "MEASURED",
    "MEGABYTE",
    "REFERENCE",
    "maxrss_unit",
    "measure",
    "measure_reference",
    "measure_run",
    "warm_up",
]

MEGABYTE = 1e6

#: The name of the methods without a conic solver, and of their formulation.
EXACT = "exact"

#: The name of the run that others are measured against.
REFERENCE = "reference"

#: What is measured of a solve, in seconds, counts and relative residuals.
MEASURED = (
    "status",
    "message",
    "compilation_s",
    "solver_s",
    "recovery_s",
    "total_s",
    "iterations",
    "objective",
    "scale",
    "primal_residual",
    "violation",
    "dual_residual",
    "gap",
    *ABSOLUTE,
)
#: Prefix of the same for the second solve, with a changed parameter.
AGAIN = "again_"

#: Statuses in which the solver returned a point.
_WITH_POINT = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE, cp.USER_LIMIT)


def measure_run(
    make: Callable[[int, np.random.Generator], Instance],
    size: int,
    seed: tuple[int, int],
    formulation: str,
    solver: Any,
    options: Mapping[str, Any],
    *,
    ready: Callable[[], None],
) -> dict[str, Any]:
    """Build an instance and measure one run of it, in the calling process.

    Parameters
    ----------
    make : callable
        From a size and a generator to an instance.
    size : int
    seed : pair of int
        Of the study and of the instance.
    formulation : str
    solver : str or CVXPY solver
        "exact" and "reference" included.
    options : mapping
        Of the solver.
    ready : callable
        Called when the instance is built and the solver is loaded.

    Returns
    -------
    dict
        Of :func:`measure`, or :func:`measure_reference`; ``solver_version`` and
        ``added_memory_mb``.
    """
    instance = make(size, np.random.default_rng(seed))
    ours = solver in (EXACT, REFERENCE)
    if not ours:
        warm_up(solver)
    ready()
    before = psutil.Process().memory_info().rss
    if solver == REFERENCE:
        row = measure_reference(instance)
    else:
        row = measure(instance, formulation, solver, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * maxrss_unit()
    row["solver_version"] = "" if ours or not isinstance(solver, str) else solver_version(solver)
    row["added_memory_mb"] = max(0.0, peak - before) / MEGABYTE
    return row


def maxrss_unit() -> int:
    """Return the bytes in the unit of ``ru_maxrss``."""
    return 1 if sys.platform == "darwin" else 1024


def warm_up(solver: Any) -> None:
    """Let a solver, and CVXPY, load what they load when they are first used."""
    x = cp.Variable(2)
    with contextlib.suppress(Exception), warnings.catch_warnings():  # a run says what is wrong
        warnings.simplefilter("ignore")
        cp.Problem(cp.Minimize(cp.sum(x)), [x >= 1]).solve(solver=solver)


def measure(
    instance: Instance, formulation: str, solver: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Solve an instance twice and return what was measured.

    Parameters
    ----------
    instance : Instance
    formulation : str
        One of the instance's, or "exact".
    solver : str or cvxpy solver
        As CVXPY takes it, or "exact".
    options : mapping
        Of the solver.

    Returns
    -------
    dict
        The keys of :data:`MEASURED` for the first solve and, with the prefix :data:`AGAIN`, for
        the second; ``declaration_s`` besides, which counts in the first total, and
        ``again_cold_s``, the solver's seconds for the second without a warm start. ``status`` is
        the solver's own word, "unsupported" where it takes no such problem, or "error".
    """
    if solver == EXACT:
        return _exactly(instance)
    if isinstance(instance, SearchInstance):
        return _searched(instance, formulation, solver, options)
    start = time.perf_counter()
    problem = instance.declare(formulation)
    declared = time.perf_counter() - start
    first = _solve(instance, problem, solver, options, changed=False)
    first["total_s"] += declared
    row = {"declaration_s": declared, **first}
    if first["status"] in _WITH_POINT:
        start = time.perf_counter()
        instance.change(problem)
        seconds = time.perf_counter() - start
        second = _solve(instance, problem, solver, options, changed=True)
        second["compilation_s"] += seconds
        second["total_s"] += seconds
        row |= {AGAIN + key: value for key, value in second.items()}
    return row


def _solve(
    instance: Instance,
    problem: cp.Problem,
    solver: Any,
    options: Mapping[str, Any],
    *,
    changed: bool,
) -> dict[str, Any]:
    """Compile, solve and recover, each with its time; then look at the point."""
    row: dict[str, Any] = dict.fromkeys(MEASURED, np.nan) | {"status": "error", "message": ""}
    marks = [time.perf_counter()]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the status says what they say
            data, chain, inverse = problem.get_problem_data(solver, solver_opts=dict(options))
            marks.append(time.perf_counter())
            raw = chain.solve_via_data(
                problem, data, warm_start=True, verbose=False, solver_opts=dict(options)
            )
            marks.append(time.perf_counter())
            problem.unpack_results(raw, chain, inverse)
            row["status"] = str(problem.status)
    except MemoryError:
        raise
    except Exception as error:  # a solver may raise anything; what it was is the result
        unable = isinstance(error, cp.error.SolverError) and len(marks) == 1
        row["status"] = "unsupported" if unable else "error"
        row["message"] = f"{type(error).__name__}: {error}"
    marks.append(time.perf_counter())
    seconds = np.diff(marks)
    row |= dict(zip(("compilation_s", "solver_s", "recovery_s"), seconds.tolist(), strict=False))
    row["total_s"] = marks[-1] - marks[0]
    if row["status"] in _WITH_POINT:
        row["iterations"] = _iterations(problem)
        row |= _look_at(instance, problem, changed)
        with contextlib.suppress(Exception):  # of a solver of a user's own, say
            matrices = MatrixProblem.of(data, getattr(chain.solver, "EXP_CONE_ORDER", None))
            found = matrices.residuals(*returned_point(chain.solver, raw, inverse[-1]))
            row |= dict(zip(ABSOLUTE, found, strict=True))
    if changed and row["status"] in _WITH_POINT:
        start = time.perf_counter()
        with contextlib.suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            chain.solve_via_data(problem, data, warm_start=False, solver_opts=dict(options))
            row["cold_s"] = time.perf_counter() - start
    return row


def _searched(
    instance: SearchInstance, formulation: str, solver: Any, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Run a whole certified search: its time to the gap, its solves, and the gap it proves."""
    row: dict[str, Any] = dict.fromkeys(MEASURED, np.nan) | {"declaration_s": 0.0, "message": ""}
    start = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the gap says it
            found = instance.search(formulation, solver, options)
    except Exception as error:  # a solver may raise anything
        unable = isinstance(error, NotSupportedError) or "cannot solve this problem" in str(error)
        status = "unsupported" if unable else "error"
        return row | {"status": status, "message": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - start
    solver_s = sum(record.seconds for record in found.solves)
    objective, violation = _value(instance, instance.answer_of(found), False)
    return row | {
        "status": cp.OPTIMAL if found.gap <= GAP else cp.OPTIMAL_INACCURATE,
        "compilation_s": seconds - solver_s,
        "solver_s": solver_s,
        "recovery_s": 0.0,
        "total_s": seconds,
        "iterations": float(len(found.solves)),
        "objective": objective,
        "scale": instance.scale(False),
        "primal_residual": 0.0,
        "violation": violation,
        "dual_residual": 0.0,
        "gap": found.gap,
    }


def _iterations(problem: cp.Problem) -> float:
    count = problem.solver_stats.num_iters if problem.solver_stats is not None else None
    return float(count) if isinstance(count, int | float | np.integer) else float("nan")


def _look_at(instance: Instance, problem: cp.Problem, changed: bool) -> dict[str, Any]:
    """Return objective and residuals of the point that was returned, by our own arithmetic."""
    with np.errstate(all="ignore"):
        found = kkt_residuals(problem, instance.scale(changed))
        try:
            answer = instance.answer(problem)
            objective, violation = _value(instance, answer, changed)
        except (ConvexMarketError, ArithmeticError, TypeError, ValueError) as error:
            return {
                "message": f"the point gives no answer: {error}",
                "objective": np.nan,
                "primal_residual": found.primal,
                "violation": np.inf,
                "dual_residual": found.dual,
                "gap": found.gap,
            }
    return {
        "objective": objective,
        "scale": instance.scale(changed),
        "primal_residual": found.primal,
        "violation": max(found.violation, violation),
        "dual_residual": found.dual,
        "gap": found.gap,
    }


def _value(instance: Instance, answer: Floats, changed: bool) -> tuple[float, float]:
    if not np.isfinite(answer).all():
        return np.nan, np.inf
    return instance.objective(answer, changed), instance.violation(answer)


def _exactly(instance: Instance) -> dict[str, Any]:
    """Return the same of the exact method: no declaration, no compilation, no multipliers."""
    row: dict[str, Any] = {"declaration_s": 0.0}
    for prefix, changed in (("", False), (AGAIN, True)):
        start = time.perf_counter()
        answer = instance.exact(changed)
        seconds = time.perf_counter() - start
        if answer is None:
            return (
                row
                | dict.fromkeys(MEASURED, np.nan)
                | {
                    "status": "unsupported",
                    "message": "no exact method is known for this instance",
                }
            )
        objective, violation = _value(instance, answer, changed)
        found = dict.fromkeys(ABSOLUTE, np.nan) | {
            "status": EXACT,
            "message": "",
            "compilation_s": 0.0,
            "solver_s": seconds,
            "recovery_s": 0.0,
            "total_s": seconds,
            "iterations": np.nan,
            "objective": objective,
            "scale": instance.scale(changed),
            "primal_residual": 0.0,
            "violation": violation,
            "dual_residual": 0.0,
            "gap": 0.0,
        }
        row |= {prefix + key: value for key, value in found.items()}
    return row


#: Tried in this order where there is no exact method; their tolerances are out of reach, so that
#: they end where they cannot get any closer.
_REFERENCES: dict[str, dict[str, Any]] = {
    "CLARABEL": {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13, "max_iter": 500},
    "ECOS": {"abstol": 1e-13, "reltol": 1e-13, "feastol": 1e-13, "max_iters": 500},
}
#: Residuals at which a reference is good enough not to try another solver.
_CLOSE = 1e-8


def measure_reference(instance: Instance) -> dict[str, Any]:
    """Return what other runs of an instance are measured against.

    Returns
    -------
    dict
        As of :func:`measure`: of the exact method; where none is known, of the tightest solve of
        any formulation, by its own residuals. ``certainty`` says "exact", or what the residuals
        leave open; ``doubt`` is that as a number.
    """
    row = _exactly(instance)
    if row["status"] == EXACT:
        return row | {"certainty": EXACT, "doubt": 0.0}
    best: dict[str, Any] = {}
    for solver, options in _REFERENCES.items():
        for formulation in instance.formulations:
            row = measure(instance, formulation, solver, options)
            if _doubt(row) < _doubt(best):
                best = row
        if _doubt(best) < _CLOSE:
            break
    if not np.isfinite(_doubt(best)):
        return row | {"status": "error", "certainty": "none", "message": "no solver is near"}
    return best | {"certainty": f"gap {_doubt(best):.0e}", "doubt": _doubt(best)}


def _doubt(row: Mapping[str, Any]) -> float:
    """Return the largest residual of both solves; inf where one is missing."""
    names = ("primal_residual", "violation", "dual_residual", "gap")
    found = [row.get(prefix + name, np.inf) for prefix in ("", AGAIN) for name in names]
    return float("inf") if np.isnan(found).any() else max(found)
