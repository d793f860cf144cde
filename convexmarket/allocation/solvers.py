"""Running a solver that CVXPY has installed: names, versions, tolerances, failures in words."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import cvxpy as cp
import numpy as np

from convexmarket.errors import NotSupportedError, SolverError

__all__ = ["SOLVED", "check_solver", "run_solver", "solver_version"]

#: Statuses with a solution.
SOLVED = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)

_DISTRIBUTIONS = {"HIGHS": "highspy", "SCIPY": "scipy", "ECOS_BB": "ecos"}

#: Statuses after which trying again would change nothing.
_DECIDED = (*SOLVED, cp.INFEASIBLE, cp.UNBOUNDED)

# Their own tolerances are too loose for a gap of 1e-6; a status says where these are not reached.
# CLARABEL gets there more surely by shorter steps, and from scratch: an update in place keeps the
# scaling of the first data.
_TIGHT: dict[str, dict[str, Any]] = {
    "CLARABEL": {
        "tol_gap_abs": 1e-10,
        "tol_gap_rel": 1e-10,
        "tol_feas": 1e-9,
        "max_step_fraction": 0.9,
        "warm_start": False,
    },
    "SCS": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iters": 50_000},
    "OSQP": {"eps_abs": 1e-8, "eps_rel": 1e-8, "max_iter": 50_000},
}
#: Where these fail: the solver's own tolerances, reached by still shorter steps.
_AGAIN: dict[str, dict[str, Any]] = {"CLARABEL": {"max_step_fraction": 0.5}}


def check_solver(solver: str) -> str:
    """Return the solver's name in CVXPY's spelling.

    Raises
    ------
    NotSupportedError
        If CVXPY does not find it; the message lists those it finds.
    """
    installed = cp.installed_solvers()
    name = str(solver).upper()
    if name not in installed:
        raise NotSupportedError(
            f"solver {solver!r} is not installed; CVXPY finds {', '.join(sorted(installed))}"
        )
    return name


def solver_version(solver: str) -> str:
    """Return the version of the Python package that provides a CVXPY solver."""
    try:
        return metadata.version(_DISTRIBUTIONS.get(solver, solver.lower()))
    except metadata.PackageNotFoundError:
        return "unknown"


def run_solver(problem: cp.Problem, solver: str, options: Mapping[str, Any] | None = None) -> str:
    """Solve a problem; return CVXPY's status, or what the solver raised.

    Tolerances are tight enough for a certificate; where a solver fails at these, its own are tried.
    The user's options come first.
    """
    own = dict(options or {})
    status = _run(problem, solver, {**_TIGHT.get(solver, {}), **own})
    if status in _DECIDED or solver not in _TIGHT:
        return status
    return _run(problem, solver, {**_AGAIN.get(solver, {}), **own, "warm_start": False})


def _run(problem: cp.Problem, solver: str, options: Mapping[str, Any]) -> str:
    for variable in problem.variables():
        variable.value = None  # some atoms of CVXPY do not compile where it has one
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.filterwarnings("ignore", "Solution may be inaccurate")  # the status says so
            warnings.filterwarnings("ignore", ".*is being approximated")  # by an equal fraction
            warnings.filterwarnings("ignore", ".*that is not DPP")  # compiled anew for each eta
            problem.solve(solver=solver, **options)
        return str(problem.status)
    except (cp.error.SolverError, SolverError, ValueError, ArithmeticError) as error:
        return f"{type(error).__name__}: {error}"
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what a solver written in Rust raises
            raise
        return f"{type(error).__name__}: {error}"
