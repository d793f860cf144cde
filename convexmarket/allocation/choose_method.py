"""``allocate`` chooses and runs a method; ``sweep`` does so for many values of a parameter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any, Literal

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.conic import Conic, branch_and_bound
from convexmarket.allocation.eta_search import check_gap
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.allocation.formulations import line_search
from convexmarket.allocation.guarantees import allocate_budget, allocate_guarantees
from convexmarket.allocation.partitioned_sellers import allocate_parts
from convexmarket.allocation.prices import binding_constraints, pricing_of
from convexmarket.allocation.projections import is_projectable, solve_projections
from convexmarket.checks import (
    as_float,
    check_callable,
    check_choice,
    check_instance,
    check_positive,
    is_iterable,
    shown,
)
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.market import Market

__all__ = ["allocate", "best_method", "sweep"]

Method = Literal["auto", "exact", "projections", "branch_and_bound", "line_search"]


def allocate(
    market: Market,
    method: Method = "auto",
    *,
    formulation: str | None = None,
    solver: str | Sequence[str] | None = None,
    gap: float = 1e-6,
    start: float | Allocation | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
    max_solves: int | None = None,
    time_limit: float | None = None,
    solver_options: Mapping[str, Any] | None = None,
) -> Allocation:
    """Choose how much privacy to buy from each seller.

    A market may be allocated from several threads at once. Parameters in its pieces keep the values
    that they have when the call starts.

    Parameters
    ----------
    market : Market
    method : str
        "auto" takes the first of these that supports the market:

        - "exact": closed forms, for the papers' problem (A, Eq. 11: ``Spread(2)``, ``Noise``,
          linear ``Payments``, ``Cap``, ``EtaRange``), also with one ``MaxEpsilon`` for all; for
          given guarantees (``Spread(2)`` and ``Noise`` under ``GivenEpsilon`` or ``MaxEpsilon``);
          and for a ``Budget`` (with ``Spread(2)`` or ``SquaredSpread``, ``Noise``, ``Losses`` and
          ``Cap``);
        - "projections": the papers' problem and given guarantees, with ``SquaredSpread``,
          ``Losses``, ``MaxEpsilon`` or caps for each seller, or one ``GroupShare``, by a certified
          search over eta with exact evaluations;
        - "branch_and_bound": the certified search over eta, for any market, including user-defined
          terms and constraints, smooth or not.

        For comparison, "line_search" is the certified search over eta with three formulations of
        the papers' problem.
    formulation : {"primal", "dual", "projection"}
        CVXPY declaration of the subproblem at a fixed eta, for the line search. The default is
        "projection", the best conditioned one.
    solver : str or sequence of str, optional
        Any solver that CVXPY has installed, for the methods that need one. Of several, each is
        tried if those before it fail. The default is CLARABEL, and PIQP before it for the
        projection.
    gap : float
        Relative gap at which a search stops.
    start : float or Allocation, optional
        The first eta of a search, or the allocation of a similar market, which saves solves.
    progress : callable, optional
        Called with the :class:`SolveRecord` of each solve.
    max_solves : int, optional
        Largest number of solves: 200, or 500 projections, by default. The search then returns its
        best point with the gap so far.
    time_limit : float, optional
        Seconds after which "branch_and_bound" or "line_search" stops in the same way.
    solver_options : mapping, optional
        Passed on to the solver. For "branch_and_bound" and "line_search".

    Returns
    -------
    Allocation
        If its gap is larger than ``gap``, a :class:`LooseCertificateWarning` is issued at the line
        of the call; the lower bound is valid in any case. For sellers in partitions, a
        :class:`PartedAllocation` with weights in partitions.

    Raises
    ------
    InfeasibleMarketError, UnattainedOptimumError
        If the market has no optimum; the message names the constraint or term that causes it.
    ParameterError
        If an argument is out of its range, or the method has no such option.
    SolverError
        If a numerical solver fails.
    NotSupportedError
        If the method does not support this market.

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
    check_instance("market", market, Market)
    check_choice("method", method, Method)
    check_gap(gap, 1 if max_solves is None else max_solves)
    check_callable("progress", progress)
    if solver_options is not None:
        check_instance("solver_options", solver_options, Mapping, "a dictionary")
    if time_limit is not None:
        check_positive("time_limit", time_limit)
    if (parts := market.sellers.parts) is not None and method in ("auto", "exact"):
        return allocate_parts(parts, market)  # type: ignore[return-value]
    method = best_method(market) if method == "auto" else method
    solve = _METHODS[method]
    takes = signature(solve).parameters
    limits = {"max_solves": max_solves, "solver_options": solver_options, "time_limit": time_limit}
    options: dict[str, Any] = {name: each for name, each in limits.items() if each is not None}
    if unknown := sorted(options.keys() - takes):
        takers = (
            name for name, other in _METHODS.items() if unknown[0] in signature(other).parameters
        )
        raise ParameterError(
            f"the method {method!r} takes no {unknown[0]}; leave it out, or choose method="
            + " or ".join(map(repr, takers))
        )
    options |= {"gap": gap, "start": _eta_of(start), "progress": progress}
    options["formulation"] = formulation or "projection"
    options = {name: value for name, value in options.items() if name in takes}
    runs: list[dict[str, str]] = [{}]
    if "solver" in takes:
        fast = ["PIQP"] * (options.get("formulation") == "projection")
        solvers = [*fast, "CLARABEL"] if solver is None else solver
        if not is_iterable(solvers):
            raise ParameterError(f"solver must be a name such as CLARABEL, got {shown(solver)}")
        runs = [{"solver": x} for x in ([solvers] if isinstance(solvers, str) else solvers)]
    failure: Exception = ParameterError("solver is an empty list; name a solver, such as CLARABEL")
    for run in runs:
        try:
            return _completed(market, solve(market, **options, **run))
        except SolverError as error:
            failure = error
    raise failure


def _completed(market: Market, allocation: Allocation) -> Allocation:
    """Return the allocation with ids, binding constraints and shadow prices added."""
    weights, eta, pricing = allocation.weights, allocation.eta, allocation.pricing
    binding = binding_constraints(market.constraints, weights, eta, market.sellers.virtual_costs)
    if pricing is None:
        unknown = partial(tuple, [np.nan] * len(market.constraints))
        pricing = unknown if market.form.rest else pricing_of(market, weights, eta)
    binding = (*binding, *allocation.binding)
    return replace(allocation, ids=market.sellers.ids, binding=binding, pricing=pricing)


def best_method(market: Market) -> Method:
    """Choose the best method that supports a market."""
    form = market.form
    if form.exact or form.epsilon_caps is not None or form.is_budgeted:
        return "exact"
    # With shares and without payments, multipliers are unbounded near the largest eta.
    shared = form.other_constraints and not form.gamma
    return "projections" if is_projectable(market) and not shared else "branch_and_bound"


def _eta_of(start: float | Allocation | None) -> float | None:
    """Return the first eta of the search."""
    if start is None:
        return None
    eta = as_float(start.eta if isinstance(start, Allocation) else start)
    if not 0 < eta < np.inf:
        raise ParameterError(
            "start must be a finite eta > 0 or the allocation of a similar market, got "
            f"{shown(start)}"
        )
    return eta


def _closed_form(market: Market) -> Allocation:
    """Solve given guarantees, a budget, or the papers' problem."""
    form, start = market.form, time.perf_counter()
    if (caps := form.epsilon_caps) is not None:
        exact = allocate_guarantees(form, caps)
    elif form.is_budgeted:
        exact = allocate_budget(form)
    elif (standard := form.exact) is not None:
        exact = solve_exact(standard)
    else:
        raise NotSupportedError(
            "the exact solver takes sums of Spread, Noise and Payments (with gamma > 0), "
            f"constrained by Cap and EtaRange; this market is {shown(market)}"
        )
    if not (0 < exact.eta < np.inf and np.isfinite(exact.objective)):
        raise SolverError(
            f"eta = {exact.eta:g} and the objective {exact.objective:g} are beyond double "
            "precision; bring the weights of the terms and the virtual costs closer"
        )
    return replace(exact, seconds=time.perf_counter() - start)


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
    copy, checked = cp.Parameter(parameter.shape, **signs), []
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
    if not checked:
        return []
    copy.value = checked[0]
    parts = (market.sellers, *market.terms, *market.constraints)
    others = [part for part in parts if all(v is not parameter for v in vars(part).values())]
    copies: dict[int, Any] = {id(part): part for part in others} | {id(parameter): copy}
    market = deepcopy(market, copies)
    replacements = {id(parameter): copy, id(copy): copy}
    compiled = Conic(market, solver, solver_options, replacements)
    view = compiled.view
    expressions = [*(e for _, _, e in view.terms), *(c.expr for c in view.flat_constraints())]
    if not any(each is copy for e in expressions for each in e.parameters()):
        raise ParameterError(
            f"the parameter {parameter.name()!r} is not part of {shown(market)}; use it in a "
            "piece, as in Budget(parameter)"
        )
    results: list[Allocation] = []
    for copy.value in checked:
        if market.form.is_budgeted:
            results.append(allocate(market, "exact"))
        else:
            start = results[-1].eta if results else None
            results.append(compiled.search(gap, max_solves, start, progress))
    return results


_METHODS: dict[str, Callable[..., Allocation]] = {
    "exact": _closed_form,
    "projections": solve_projections,
    "branch_and_bound": branch_and_bound,
    "line_search": line_search,
}
