"""Sweeps over a parameter of a market that is compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.eta_search import check_gap
from convexmarket.checks import check_callable, check_instance, shown
from convexmarket.errors import ParameterError
from convexmarket.market import Market

__all__ = ["sweep"]

Floats = NDArray[np.float64]


def sweep(
    market: Market,
    parameter: cp.Parameter,
    values: Iterable[ArrayLike],
    *,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    max_solves: int = 200,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> list[Allocation]:
    """Allocate a market for many values of a parameter, compiling it once.

    Each search over eta begins at the last optimum. Budgets with an exact solution need no search.
    Several threads may sweep one market at once.

    Parameters
    ----------
    market : Market
    parameter : cvxpy.Parameter
        Part of one of the market's pieces, as in ``Budget(parameter)``, ``Cap(parameter)`` or
        ``Payments() * parameter``, or of a user-defined piece. Its value does not change.
    values : iterable of float or array_like
        Values of the parameter's shape.
    solver, gap, max_solves, solver_options, progress
        As in :func:`allocate`.

    Returns
    -------
    list of Allocation
        One for each value, in their order.

    Raises
    ------
    ParameterError
        If the parameter is not part of the market, or cannot have one of the values.
    InfeasibleMarketError, UnattainedOptimumError, SolverError
        If the market has no optimum for one of the values, or a solver fails.

    Examples
    --------
    >>> import cvxpy as cp
    >>> import convexmarket as cm
    >>> budget = cp.Parameter(nonneg=True)
    >>> market = cm.Market(
    ...     cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1)),
    ...     2.0 * cm.Spread() + 1.0 * cm.Noise(),
    ...     [cm.Budget(budget)],
    ... )
    >>> [round(a.objective, 4) for a in cm.sweep(market, budget, [0.5, 1.0, 2.0])]
    [2.1565, 1.7458, 1.4696]
    """
    check_gap(gap, max_solves)
    check_instance("market", market, Market)
    check_callable("progress", progress)
    if solver_options is not None:
        check_instance("solver_options", solver_options, Mapping, "a dictionary")
    check_instance("parameter", parameter, cp.Parameter, "the cvxpy.Parameter of a piece")
    signs: dict[str, Any] = {name: on for name, on in parameter.attributes.items() if on}
    copy = cp.Parameter(parameter.shape, **signs)
    checked: list[Floats] = []
    try:
        for value in values:
            copy.value = np.asarray(value, dtype=float)
            checked.append(copy.value)
        if not all(np.isfinite(value).all() for value in checked):
            raise ValueError("one of them is not finite")
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(
            "the values to sweep over must be a list of finite numbers that the parameter can "
            f"have: {error}"
        ) from None
    results: list[Allocation] = []
    if not checked:
        return results
    copy.value = checked[0]
    parts = (market.sellers, *market.terms, *market.constraints)
    others = [part for part in parts if all(v is not parameter for v in vars(part).values())]
    copies: dict[int, Any] = {id(part): part for part in others} | {id(parameter): copy}
    market_of_copy = deepcopy(market, copies)
    replacements = {id(parameter): copy, id(copy): copy}
    compiled = Conic(market_of_copy, solver, solver_options, replacements)
    view = compiled.view
    expressions = [*(e for _, _, e in view.terms), *(c.expr for c in view.flat_constraints())]
    if not any(each is copy for e in expressions for each in e.parameters()):
        raise ParameterError(
            f"the parameter {parameter.name()!r} is not part of {shown(market)}; use it in a "
            "piece, as in Budget(parameter)"
        )
    for copy.value in checked:
        if market_of_copy.form.is_budgeted:
            results.append(allocate(market_of_copy, "exact"))
        else:
            start = results[-1].eta if results else None
            results.append(compiled.search(gap, max_solves, start, progress))
    return results
