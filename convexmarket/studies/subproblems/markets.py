r"""Subproblems of markets: at a fixed eta, under given guarantees, with a budget, and the search.

The formulation ``unscaled`` is the declaration in the weights themselves, of order 1/m. The others
use ``m*a``; a study measures the difference.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import cvxpy as cp
import numpy as np

from convexmarket.allocation import (
    Allocation,
    ConvexProgram,
    allocate,
    declare,
    weights_for_guarantees,
)
from convexmarket.checks import shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.studies.subproblems.instances import Declared, Floats, Instance, numbers
from convexmarket.terms import EtaRange

__all__ = [
    "at_best_eta",
    "at_natural_eta",
    "budget",
    "certified_search",
    "guarantees",
    "off_simplex",
]

#: The second value of a parameter, relative to the first.
CHANGE = 1.25
#: Relative gap of a complete search.
GAP = 1e-6
#: Number of steps, each a factor of ``CHANGE``, in the search for a feasible eta.
_STEPS = 20
#: Largest violation of a satisfied constraint.
_EQUAL = 1e-9


def off_simplex(weights: Floats, limit: float | Floats) -> float:
    """Return the violation of ``sum a = 1, 0 <= a <= limit``, relative to the largest weight."""
    size = float(np.abs(weights).max(initial=0.0)) or 1.0
    outside = np.maximum(weights - limit, -weights).max(initial=0.0)
    return max(abs(float(weights.sum()) - 1.0), float(outside) / size)


def _at(market: Market, problem_class: str, method: Any, first: float, second: float) -> Instance:
    """Return the subproblem at a fixed eta (A, Section IV), and then at a second one.

    The answer is the weights of all sellers.
    """
    costs, active = market.sellers.virtual_costs, market.form.active

    def all_sellers(weights: Floats) -> Floats:
        if weights.size == active.size:
            return weights
        every = np.zeros(active.size)
        every[active] = weights
        return every

    def declared(formulation: str) -> Declared:
        if formulation == "unscaled":
            return _unscaled(market, first, second, all_sellers)
        problem = declare(market, first, formulation)

        def change() -> None:
            problem.eta = second

        return Declared(problem, change, lambda: all_sellers(problem.raw_weights))

    def exact(changed: bool) -> Floats | None:
        eta = second if changed else first
        constraints = [*market.constraints, EtaRange(eta, eta)]
        try:
            return allocate(Market(market.sellers, market.objective, constraints), method).weights
        except NotSupportedError:
            return None

    return Instance(
        problem_class,
        declared,
        lambda weights, changed: market.objective.value(
            weights, second if changed else first, costs
        ),
        lambda weights: off_simplex(weights, market.form.max_weight),
        exact,
    )


def _unscaled(market: Market, first: float, second: float, all_sellers: Any) -> Declared:
    """Declare the papers' problem (A, Eq. 11) at a fixed eta in the weights themselves."""
    form, active = market.form, market.form.active
    weights = cp.Variable(int(active.sum()), name="a")
    t = cp.Parameter(nonneg=True, name="t", value=form.gamma * first)
    objective = form.mu * cp.norm(weights, 2) + t * (form.virtual_costs[active] @ weights)
    constraints = [cp.sum(weights) == 1, weights >= 0]
    if form.max_weight < 1:
        constraints.append(weights <= form.max_weight)

    def change() -> None:
        t.value = form.gamma * second

    problem = cp.Problem(cp.Minimize(objective), constraints)
    return Declared(problem, change, lambda: all_sellers(numbers(weights)))


def at_best_eta(market: Market) -> Instance:
    """Return the papers' market, with mu > 0, at the eta of its optimum.

    Raises
    ------
    NotSupportedError
        If the market's range of eta contains a single value.
    """
    eta = allocate(market).eta
    low, high = market.form.eta_range
    possible = [other for other in (CHANGE * eta, eta / CHANGE) if low <= other <= high]
    if not possible:
        raise _single_eta(market)
    return _at(market, "allocation", "exact", eta, possible[0])


def at_natural_eta(market: Market) -> Instance:
    """Return any market at an eta of the order of magnitude of its constraints.

    Raises
    ------
    NotSupportedError
        If the feasible range of eta contains a single value.
    """
    low, high = market.form.eta_range
    natural = float(np.clip(market.form.natural_eta, low, high))
    steps = sorted(range(-_STEPS, _STEPS), key=abs)
    possible = [natural * CHANGE**step for step in steps]
    if high < np.inf:
        possible.append(high / CHANGE)
    feasible = cache(partial(_is_feasible, market))
    for eta in possible:
        if low <= eta and CHANGE * eta <= high and feasible(eta) and feasible(CHANGE * eta):
            return _at(market, "variants", "projections", eta, CHANGE * eta)
    raise _single_eta(market)


def _is_feasible(market: Market, eta: float) -> bool:
    """Test whether a market has feasible weights at an eta; equal weights are tried first."""
    try:
        problem = declare(market, eta)
        for variable in problem.variables():
            variable.value = np.ones(variable.shape)
        if all(item.value(_EQUAL) for item in problem.constraints):
            return True
        value = cp.Problem(cp.Minimize(0), problem.constraints).solve(solver="CLARABEL")
    except (ParameterError, InfeasibleMarketError, cp.error.SolverError):
        return False
    return bool(np.isfinite(value))


def _single_eta(market: Market) -> NotSupportedError:
    return NotSupportedError(
        f"{shown(market)} has one feasible eta, and a study changes eta; widen the range of eta"
    )


def certified_search(market: Market) -> Instance:
    """Return the papers' market with a search over eta, to a certified gap of 1e-6.

    The answer is the weights followed by eta. Its parameters have one value.
    """

    def search(formulation: str, solver: Any, options: Mapping[str, Any]) -> Allocation:
        return allocate(
            market,
            "line_search",
            formulation=formulation,
            solver=solver,
            solver_options=options,
            gap=GAP,
        )

    def exact(_changed: bool) -> Floats:
        allocation = allocate(market, "exact")
        return np.append(allocation.weights, allocation.eta)

    def declared(_formulation: str) -> Declared:
        raise NotSupportedError("a search solves several programs; declare one at a fixed eta")

    return Instance(
        "certified search",
        declared,
        lambda answer, _changed: market.objective.value(
            answer[:-1], float(answer[-1]), market.sellers.virtual_costs
        ),
        lambda answer: off_simplex(answer[:-1], market.form.max_weight),
        exact,
        search=search,
    )


def guarantees(epsilon: Floats, mu: float, sigma: float) -> Instance:
    """Return the weights under given guarantees: ``min mu*||a|| + sigma*s``, ``a <= s*epsilon``.

    Here ``s = 1/eta``, and the answer is the weights followed by s. The second value of epsilon is
    the same in reverse order.
    """
    total, m = float(epsilon.sum()), epsilon.size

    def declared(formulation: str) -> Declared:
        size, unit = (m, total) if formulation == "primal" else (1, 1.0)
        weights, s = cp.Variable(m, name="a"), cp.Variable(name="s")
        granted = cp.Parameter(m, nonneg=True, name="granted", value=epsilon * size / unit)
        objective = (mu / size) * cp.norm(weights, 2) + (sigma / unit) * s
        constraints = [cp.sum(weights) == size, weights >= 0, weights <= granted * s]

        def change() -> None:
            granted.value = epsilon[::-1] * size / unit

        return Declared(
            cp.Problem(cp.Minimize(objective), constraints),
            change,
            lambda: np.append(numbers(weights) / size, numbers(s) / unit),
        )

    def exact(changed: bool) -> Floats:
        weights, eta = weights_for_guarantees(epsilon[::-1] if changed else epsilon, mu, sigma)
        return np.append(weights, 1.0 / eta)

    return Instance(
        "given guarantees",
        declared,
        lambda answer, _: mu * float(np.linalg.norm(answer[:-1])) + sigma * float(answer[-1]),
        lambda answer: off_simplex(answer[:-1], 1.0),
        exact,
    )


def budget(market: Market) -> Instance:
    """Return a market with a :class:`Budget` instead of a price: one program in a and 1/eta.

    The answer is the weights followed by 1/eta. The second value of the budget is larger.
    ``joint-scaled`` measures 1/eta in units of the eta natural to the budget.
    """
    first = market.form.budget

    def declared(formulation: str) -> Declared:
        amount = cp.Parameter(nonneg=True, name="budget", value=first)
        unit = market.form.natural_eta if formulation == "joint-scaled" else 1.0
        problem = ConvexProgram(market.with_budget(amount), unit)

        def change() -> None:
            amount.value = CHANGE * first

        answer = lambda: np.append(problem.raw_weights, 1.0 / problem.eta)  # noqa: E731
        return Declared(problem, change, answer)

    return Instance(
        "budget",
        declared,
        lambda answer, _: market.objective.value(
            answer[:-1], 1.0 / float(answer[-1]), market.sellers.virtual_costs
        ),
        lambda answer: off_simplex(answer[:-1], 1.0),
    )
