"""Call solvers through CVXPY, with tight tolerances."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.reductions.solvers.defines import INSTALLED_SOLVERS

from convexmarket.errors import NotSupportedError, SolverError

__all__ = ["SOLVED", "check_solver", "run_solver", "solver_version"]

#: CVXPY's statuses of problems with a solution.
SOLVED = (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)

_DISTRIBUTIONS = {"HIGHS": "highspy", "SCIPY": "scipy", "ECOS_BB": "ecos"}

#: Statuses after which a failed problem is not solved again.
_DECIDED = (*SOLVED, cp.INFEASIBLE, cp.UNBOUNDED)

# The default tolerances are too loose for a gap of 1e-6. CLARABEL is more reliable with shorter
# steps and without a warm start, which would keep the scaling of the first data.
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
#: Options of the second call after a failure: default tolerances and even shorter steps.
_AGAIN: dict[str, dict[str, Any]] = {"CLARABEL": {"max_step_fraction": 0.5}}


def check_solver(solver: str) -> str:
    """Return the name of an installed solver in CVXPY's spelling.

    Raises
    ------
    NotSupportedError
        If CVXPY does not find the solver; the message lists the installed solvers.
    """
    name = str(solver).upper()
    if name not in INSTALLED_SOLVERS:
        raise NotSupportedError(
            f"solver {solver!r} is not installed; use one of {', '.join(sorted(INSTALLED_SOLVERS))}"
        )
    return name


def solver_version(solver: str) -> str:
    """Return the version of the Python package that provides a CVXPY solver."""
    try:
        return metadata.version(_DISTRIBUTIONS.get(solver, solver.lower()))
    except metadata.PackageNotFoundError:
        return "unknown"


def run_solver(problem: cp.Problem, solver: str, options: Mapping[str, Any] | None = None) -> str:
    """Solve a problem; return CVXPY's status, or the text of the solver's exception.

    The first call uses tight tolerances, for a certificate. If it fails, a second call uses the
    solver's default tolerances. The user's options override the tolerances of both calls.
    """
    given = dict(options or {})
    status = _run(problem, solver, {**_TIGHT.get(solver, {}), **given})
    if status in _DECIDED or solver not in _TIGHT:
        return status
    return _run(problem, solver, {**_AGAIN.get(solver, {}), **given, "warm_start": False})


def _run(problem: cp.Problem, solver: str, options: Mapping[str, Any]) -> str:
    for variable in problem.variables():
        variable.value = None  # some atoms of CVXPY do not compile without this option
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # These warnings concern inaccuracy (also reported by the status), approximated powers
            # and compilation.
            for text in ("Solution may be", ".*is being approximated", ".*that is not DPP"):
                warnings.filterwarnings("ignore", text)
            problem.solve(solver=solver, **options)
        return str(problem.status)
    except BaseException as error:
        expected = cp.error.SolverError, SolverError, ValueError, ArithmeticError
        # Solvers in Rust raise a PanicException, which is not an Exception.
        if isinstance(error, expected) or type(error).__name__ == "PanicException":
            return f"{type(error).__name__}: {error}"
        raise
