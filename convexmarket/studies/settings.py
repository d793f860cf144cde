"""The options of each solver in the settings of a study.

The settings "low", "mid" and "high" have the tolerances of qpbenchmark: an absolute one on the
residuals of the primal and the dual and on the gap between them, and no relative ones.
"""

from __future__ import annotations

from typing import Any

#: Absolute tolerances of settings.
ACCURACIES = {"low": 1e-3, "mid": 1e-6, "high": 1e-9}

#: Settings without a table in a file, with the largest error of a solved run.
SETTINGS = {"default": 1e-3, "solver-default": 1e-3, **ACCURACIES}

#: Options that take the tolerance, and the options that it needs: no relative tolerance, and
#: enough steps.
_ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "CLARABEL": ("tol_feas tol_gap_abs", {"tol_gap_rel": 0.0}),
    "CUOPT": ("optimality", {}),
    "DAQP": ("primal_tol dual_tol", {}),
    "ECOS": ("feastol abstol", {"reltol": 1e-16}),
    "GUROBI": ("FeasibilityTol OptimalityTol BarConvTol BarQCPConvTol", {}),
    "HIGHS": ("primal_feasibility_tolerance dual_feasibility_tolerance", {}),
    "MOSEK": ("eps", {}),
    "MPAX": ("eps_abs", {"eps_rel": 0.0}),
    "OSQP": ("eps_abs", {"eps_rel": 0.0, "max_iter": 1_000_000}),
    "PIQP": ("eps_abs eps_duality_gap_abs", {"eps_rel": 0.0, "eps_duality_gap_rel": 0.0}),
    "PROXQP": ("eps_abs", {"eps_rel": 0.0, "max_iter": 1_000_000}),
    "QOCO": ("abstol", {"reltol": 0.0}),
    "QPALM": ("eps_abs", {"eps_rel": 0.0, "max_iter": 1_000_000}),
    "SCS": ("eps_abs", {"eps_rel": 0.0, "max_iters": 1_000_000}),
}

#: Defaults of solvers that CVXPY overrides.
_OWN: dict[str, dict[str, Any]] = {
    "DAQP": {"eps_prox": 0.0},
    "OSQP": {"eps_abs": 1e-3, "eps_rel": 1e-3, "max_iter": 4_000, "polishing": False},
    "PROXQP": {"eps_abs": 1e-5, "eps_rel": 0.0},
    "QPALM": {"eps_abs": 1e-4, "eps_rel": 1e-4, "eps_prim_inf": 1e-5, "eps_dual_inf": 1e-5},
    "SCS": {"eps_abs": 1e-4, "eps_rel": 1e-4},
}


def options_of(setting: str, solver: str) -> dict[str, Any] | None:
    """Return the options of a setting for a solver in CVXPY's spelling; None if not known.

    Examples
    --------
    >>> options_of("mid", "QOCO")
    {'abstol': 1e-06, 'reltol': 0.0}
    >>> options_of("default", "NONESUCH"), options_of("high", "NONESUCH")
    ({}, None)
    """
    if setting == "default":
        return {}
    if solver not in _ASKED:
        return None
    if setting == "solver-default":
        return _OWN.get(solver, {})
    names, further = _ASKED[solver]
    return {**dict.fromkeys(names.split(), ACCURACIES[setting]), **further}
