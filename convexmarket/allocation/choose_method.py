"""Define ``allocate``, which chooses and runs a method."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.allocation.formulations import Formulation, line_search
from convexmarket.allocation.guarantees import allocate_guarantees
from convexmarket.allocation.partitioned_sellers import allocate_parts
from convexmarket.allocation.prices import binding_constraints, pricing_of
from convexmarket.allocation.projections import allocate_budget, is_projectable, solve_projections
from convexmarket.allocation.solver_calls import check_solver
from convexmarket.checks import (
    check_choice,
    check_count,
    check_instance,
    check_positive,
    is_iterable,
    shown,
)
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.market import Market

__all__ = ["allocate", "best_method"]

Method = Literal["auto", "exact", "projections", "branch_and_bound", "line_search"]


def allocate(
    market: Market,
    method: Method = "auto",
    *,
    formulation: Formulation = "projection",
    solver: str | Sequence[str] | None = None,
    gap: float = 1e-6,
    start: float | Allocation | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
    max_solves: int | None = None,
    time_limit: float | None = None,
    solver_options: Mapping[str, Any] | None = None,
) -> Allocation:
    """Choose how much privacy to buy from each seller.

    Several threads can allocate the same market concurrently. The values of parameters in its
    pieces are read when the call starts.

    Parameters
    ----------
    market : Market
    method : str
        "auto" takes the first of these methods that supports the market:

        - "exact": closed forms, for the papers' problem (A, Eq. 11: ``Spread(2)``, ``Noise``,
          linear ``Payments``, ``Cap``, ``EtaRange``), with at most one common ``MaxEpsilon``; for
          given guarantees (``Spread(2)`` and ``Noise`` under ``GivenEpsilon`` or ``MaxEpsilon``);
          and for a ``Budget`` (with ``Spread(2)`` or ``SquaredSpread``, ``Noise``, ``Losses`` and
          ``Cap``);
        - "projections": a certified search over eta with exact evaluations, also for
          ``SquaredSpread``, ``Losses``, ``MaxEpsilon`` or caps for each seller, or ``GroupShare``;
        - "branch_and_bound": a certified search over eta with a conic solver, for any market.

        "line_search" is a certified search with one of three formulations of the papers' problem.
    formulation : {"primal", "dual", "projection"}
        CVXPY declaration at a fixed eta, for the line search.
    solver : str or sequence of str, optional
        A solver of CVXPY, or several solvers, which are tried in order until one succeeds. The
        default is CLARABEL, or PIQP followed by CLARABEL for the projection.
    gap : float
        Relative gap at which a search stops.
    start : float or Allocation, optional
        The first eta of a search, or the allocation of a similar market, which saves solves.
    progress : callable, optional
        Called with the :class:`SolveRecord` of each solve.
    max_solves : int, optional
        Largest number of solves: 200, or 500 projections, by default. The search then returns its
        best point and the remaining gap.
    time_limit : float, optional
        Seconds after which "branch_and_bound" or "line_search" stops with its best point.
    solver_options : mapping, optional
        Options of the solver. A method ignores options that do not apply to it.

    Returns
    -------
    Allocation
        If its gap is larger than ``gap``, a :class:`LooseCertificateWarning` is issued at the line
        of the call; the lower bound remains valid. For sellers in partitions, a
        :class:`PartedAllocation`.

    Raises
    ------
    InfeasibleMarketError, UnattainedOptimumError
        If the market has no optimum; the message names the constraint or term that is responsible.
    ParameterError, NotSupportedError
        If an argument is out of its range, or the method does not support this market.
    SolverError
        If a numerical solver fails.

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
    began = time.perf_counter()
    check_instance("market", market, Market)
    check_choice("method", method, Method)
    check_choice("formulation", formulation, Formulation)
    check_positive("gap", gap)
    first = start.eta if isinstance(start, Allocation) else start
    if first is not None:
        first = check_positive("start, an eta or the allocation of a similar market,", first)
    if time_limit is not None:
        check_positive("time_limit", time_limit)
    if max_solves is not None:
        check_count("max_solves", max_solves)
    check_instance("progress", progress, Callable | None, "a function, or None")
    if solver_options is not None:
        check_instance("solver_options", solver_options, Mapping, "a dictionary")
    if isinstance(solver, str):
        check_solver(solver)
    if (parts := market.sellers.parts) is not None and method in ("auto", "exact"):
        return allocate_parts(parts, market)  # type: ignore[return-value]
    method = best_method(market) if method == "auto" else method
    limits = gap, first, max_solves or 200, progress, time_limit or np.inf
    if method == "exact":
        best = _closed_form(market)
    elif method == "projections":
        best = solve_projections(market, gap, max_solves or 500, first, progress)
    else:

        def search(name: str) -> Allocation:
            if method == "branch_and_bound":
                return Conic(market, name, solver_options).search(*limits)
            return line_search(market, formulation, name, solver_options, *limits)

        quadratic = method == "line_search" and formulation == "projection"
        best = _tried(search, solver or (["PIQP", "CLARABEL"] if quadratic else "CLARABEL"))
    return replace(
        best,
        seconds=time.perf_counter() - began,
        ids=market.sellers.ids,
        binding=binding_constraints(market, best) + best.binding,
        pricing=best.pricing or pricing_of(market, best),
    )


def _tried(search: Callable[[str], Allocation], solvers: str | Sequence[str]) -> Allocation:
    """Search with each solver, in the given order, until a search succeeds."""
    if not is_iterable(solvers):
        raise ParameterError(f"solver must be a name such as CLARABEL, got {shown(solvers)}")
    *names, last = [solvers] if isinstance(solvers, str) else solvers
    for name in names:
        with suppress(SolverError):
            return search(name)
    return search(last)


def best_method(market: Market) -> Method:
    """Choose the best method that supports a market."""
    form = market.form
    if form.exact or form.epsilon_caps is not None or form.is_budgeted:
        return "exact"
    # In a market with shares but without payments, multipliers are unbounded near the largest eta.
    shared = form.other_constraints and not form.gamma
    return "projections" if is_projectable(form) and not shared else "branch_and_bound"


def _closed_form(market: Market) -> Allocation:
    """Solve a market with given guarantees, with a budget, or of the papers' form."""
    form = market.form
    if (standard := form.exact) is not None:
        best = solve_exact(standard)
    elif (caps := form.epsilon_caps) is not None:
        best = allocate_guarantees(form, caps)
    elif form.is_budgeted:
        best = allocate_budget(form)
    else:
        raise NotSupportedError(
            "the exact solver supports sums of Spread, Noise and Payments (with gamma > 0) under "
            f"Cap and EtaRange; this market is {shown(market)}"
        )
    if not (0 < best.eta < np.inf and np.isfinite(best.objective)):
        raise SolverError(
            f"eta = {best.eta:g} and the objective {best.objective:g} are outside the range of "
            "double precision; scale the weights of the terms and the virtual costs to similar "
            "magnitudes"
        )
    return best
