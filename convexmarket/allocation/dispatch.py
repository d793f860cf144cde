"""``allocate``: one entry, every method."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from convexmarket.allocation.exact import solve_exact
from convexmarket.allocation.projected_gradient import projected_gradient
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.search import line_search
from convexmarket.errors import NotSupportedError, ParameterError
from convexmarket.market import Market, StandardForm

__all__ = ["allocate", "standard_form_of"]

Method = Literal["auto", "exact", "line_search", "projected_gradient"]


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

    Parameters
    ----------
    market : Market
    method : {"auto", "exact", "line_search", "projected_gradient"}
        "auto" takes the best method for the market; for the papers' problem that is "exact".
        "line_search" is the certified search over eta with a conic solver, "projected_gradient"
        the papers' own method (A, section IV), a baseline.
    formulation : {"primal", "dual", "projection"}
        CVXPY declaration of the subproblem at a fixed eta; for the search.
    solver : str
        Any solver that CVXPY has installed; for the search.
    gap : float
        Relative gap at which the search stops.
    progress : callable, optional
        Called with the :class:`SolveRecord` of each solve of the search.
    **options
        Passed to the method: ``max_solves``, ``solver_options`` for the search; ``grid``,
        ``eta_max``, ``max_iterations``, ``tolerance`` for projected gradient.

    Returns
    -------
    Allocation

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
    if method in ("auto", "exact"):
        if options:
            raise ParameterError(f"the exact solver takes no options, got {sorted(options)}")
        return _exact(standard_form_of(market, "the exact solver"))
    if method == "line_search":
        return line_search(
            market, formulation=formulation, solver=solver, gap=gap, progress=progress, **options
        )
    if method == "projected_gradient":
        return projected_gradient(market, **options)
    raise ParameterError(
        f"method is {method!r}; choose 'auto', 'exact', 'line_search' or 'projected_gradient'"
    )


def standard_form_of(market: Market, who: str) -> StandardForm:
    """Return the market as A's Eq. (11), or say why ``who`` cannot serve it."""
    if market.standard_form is None:
        raise NotSupportedError(
            f"{who} takes sums of Spread, Noise and Payments (with gamma > 0), constrained by Cap "
            f"and EtaRange; this market is {market!r}"
        )
    return market.standard_form


def _exact(form: StandardForm) -> Allocation:
    start = time.perf_counter()
    found = solve_exact(form)
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
