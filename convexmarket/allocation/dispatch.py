"""``allocate``: one entry, every method."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal

import numpy as np

from convexmarket.allocation.branch import branch_and_bound
from convexmarket.allocation.convex import solve_convex
from convexmarket.allocation.exact import solve_exact
from convexmarket.allocation.guarantees import allocate_guarantees
from convexmarket.allocation.projected_gradient import projected_gradient
from convexmarket.allocation.projections import solve_projections
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.search import line_search
from convexmarket.allocation.views import JointView
from convexmarket.arguments import check_callable, check_choice, shown
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.market import Market, StandardForm

__all__ = ["allocate", "standard_form_of"]

Method = Literal[
    "auto",
    "exact",
    "projections",
    "convex_program",
    "branch_and_bound",
    "line_search",
    "projected_gradient",
]

_OPTIONS: dict[Method, set[str]] = {
    "exact": set(),
    "projections": {"max_solves"},
    "convex_program": {"solver_options"},
    "branch_and_bound": {"max_solves", "solver_options", "start"},
    "line_search": {"max_solves", "solver_options"},
    "projected_gradient": {"grid", "eta_max", "step", "max_iterations", "tolerance"},
}


def allocate(
    market: Market,
    method: Method = "auto",
    *,
    formulation: str = "primal",
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    progress: Callable[[SolveRecord], None] | None = None,
    **options: Any,
) -> Allocation:
    """Choose how much privacy to buy from whom.

    A market may be allocated from several threads at once. Parameters in its pieces have the values
    that they have when it is called.

    Parameters
    ----------
    market : Market
    method : str
        "auto" takes the best method that can serve the market, in this order:

        - "exact": closed forms, for the papers' problem (A, Eq. 11: ``Spread(2)``, ``Noise``,
          linear ``Payments``, ``Cap``, ``EtaRange``) and for given guarantees (``Spread(2)`` and
          ``Noise`` under ``GivenEpsilon`` or ``MaxEpsilon``);
        - "projections": the papers' problem and given guarantees, with ``SquaredSpread``,
          ``Losses``, ``MaxEpsilon`` or caps for each seller, by a certified search over eta with
          exact evaluations;
        - "convex_program": one conic solve, where no piece speaks of the guarantees;
        - "branch_and_bound": the certified search over eta, for any market, terms and constraints
          of your own included, smooth or not.

        For comparison, "line_search" is the certified search by chords with three formulations of
        the papers' problem, and "projected_gradient" the papers' own method (A, section IV).
    formulation : {"primal", "dual", "projection"}
        CVXPY declaration of the subproblem at a fixed eta; for the line search.
    solver : str
        Any solver that CVXPY has installed; for the methods that need one.
    gap : float
        Relative gap at which a search stops.
    progress : callable, optional
        Called with the :class:`SolveRecord` of each solve.
    **options
        Passed to the method: ``max_solves``, ``solver_options`` for the searches, ``start`` (an
        eta to look at first) for branch and bound; ``grid``, ``eta_max``, ``step``,
        ``max_iterations``, ``tolerance`` for projected gradient.

    Returns
    -------
    Allocation
        Where its gap is larger than the one asked for, a :class:`LooseCertificateWarning` says so
        at the line of the call; the lower bound is valid all the same.

    Raises
    ------
    InfeasibleMarketError, UnattainedOptimumError
        If there is no optimum; the message says which constraint or term is to blame.
    SolverError
        If a numerical solver fails.
    NotSupportedError
        If the method cannot serve this market.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> allocation = cm.allocate(market)
    >>> allocation.epsilon.round(4)
    array([1.3533, 0.6193])
    >>> allocation.gap < 1e-12
    True
    """
    if not isinstance(market, Market):
        raise ParameterError(f"market is {shown(market)}; give a Market")
    if not isinstance(gap, Real):
        raise ParameterError(f"gap is {gap!r}; give a number > 0, for example 1e-6")
    check_choice("method", method, Method)
    check_callable("progress", progress)
    if method == "auto":
        method = _best_method(market)
    unknown = sorted(set(options) - _OPTIONS[method])
    if unknown:
        allowed = ", ".join(sorted(_OPTIONS[method])) or "no options"
        raise ParameterError(f"the method {method!r} takes {allowed}; got {', '.join(unknown)}")
    numerical: dict[str, Any] = {"solver": solver, "gap": gap, "progress": progress}
    if method == "projections":
        return solve_projections(market, gap, progress=progress, **options)
    if method == "convex_program":
        return solve_convex(market, **numerical, **options)
    if method == "branch_and_bound":
        return branch_and_bound(market, **numerical, **options)
    if method == "line_search":
        return line_search(market, formulation=formulation, **numerical, **options)
    if method == "projected_gradient":
        return projected_gradient(market, **options)
    granted = market.form.granted
    if granted is not None:
        return allocate_guarantees(market.form, granted)
    return _exact(standard_form_of(market, "the exact solver"))


def _best_method(market: Market) -> Method:
    if market.form.standard is not None or market.form.granted is not None:
        return "exact"
    if market.form.is_projectable:
        return "projections"
    return "branch_and_bound" if JointView(market).uses_epsilon else "convex_program"


def standard_form_of(market: Market, who: str) -> StandardForm:
    """Return the market as A's Eq. (11), or say why ``who`` cannot serve it."""
    if market.standard_form is None:
        raise NotSupportedError(
            f"{who} takes sums of Spread, Noise and Payments (with gamma > 0), constrained by Cap "
            f"and EtaRange; this market is {shown(market)}"
        )
    return market.standard_form


def _exact(form: StandardForm) -> Allocation:
    start = time.perf_counter()
    found = solve_exact(form)
    if not (0 < found.eta < np.inf and np.isfinite(found.objective)):
        raise SolverError(
            f"eta = {found.eta:g} and the objective {found.objective:g} are beyond double "
            "precision; bring the weights of the terms and the virtual costs closer"
        )
    return Allocation(
        weights=found.weights,
        eta=found.eta,
        objective=found.objective,
        lower_bound=found.lower_bound,
        multiplier=found.multiplier,
        method="exact",
        seconds=time.perf_counter() - start,
        binding=found.binding,
    )
