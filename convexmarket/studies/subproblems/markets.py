"""Subproblems of markets. The variables are the weights a (``unscaled``), or otherwise ``m*a``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation import ConvexProgram, allocate, declare, weights_for_guarantees
from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.views import spread_out
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, ParameterError
from convexmarket.market import Market
from convexmarket.terms import Budget, EtaRange

Floats = NDArray[np.float64]

CHANGE = 1.25  # second value of a parameter, relative to its first value
GAP = 1e-6  # largest relative gap of a successful certified search
_STEPS = sorted(range(-20, 20), key=abs)  # exponents of CHANGE in the search for a feasible eta


class Declared(NamedTuple):
    """A DPP problem. ``place`` sets its parameters, and ``answer`` returns its weights or model."""

    problem: cp.Problem
    place: Callable[[Any], None]
    answer: Callable[[], Floats]


@dataclass(frozen=True, eq=False)
class Instance:
    """A problem with several formulations, and with one or two ``values`` of its parameters.

    ``exact`` returns the optimum, or None if no exact method is known. Errors of the objective are
    relative to its size, or to ``scale`` if the scale is larger. A problem that requires several
    programs has ``search``, a function of formulation, solver and options, instead of ``declare``.
    """

    problem_class: str
    values: tuple[Any, ...]
    declare: Callable[[str], Declared] | None
    objective: Callable[[Floats, Any], float]
    exact: Callable[[Any], Floats | None] = lambda _: None
    violation: Callable[[Floats], float] = lambda _: 0.0
    scale: Callable[[Any], float] = lambda _: 0.0
    search: Callable[[str, Any, Mapping[str, Any]], Allocation] | None = None


def values_of(*expressions: cp.Expression) -> Callable[[], Floats]:
    """Return a function that concatenates the values of expressions. Missing values are NaN."""
    return lambda: np.hstack([np.asarray(each.value, dtype=float) for each in expressions])


def off_simplex(weights: Floats, limit: float | Floats = 1.0) -> float:
    """Compute the largest relative violation of ``sum a = 1`` and of ``0 <= a <= limit``."""
    size = float(np.abs(weights).max(initial=0.0)) or 1.0
    outside = np.maximum(weights - limit, -weights).max(initial=0.0)
    return max(abs(float(weights.sum()) - 1.0), float(outside) / size)


def _value(market: Market, weights: Floats, eta: float) -> float:
    return market.objective.value(weights, eta, market.sellers.virtual_costs)


def at_eta(market: Market) -> Instance:
    """Return the subproblem in the weights of a market, at two fixed values of eta.

    The first eta is optimal for the papers' market (A, Section IV), and feasible for other markets.
    """
    form, active = market.form, market.form.active
    low, high = form.eta_range
    is_papers = form.standard is not None and form.mu > 0
    start = allocate(market).eta if is_papers else float(np.clip(form.natural_eta, low, high))

    def is_feasible(eta: float) -> bool:
        if is_papers or not low <= eta <= high:
            return bool(low <= eta <= high)
        try:
            problem = cp.Problem(cp.Minimize(0), declare(market, eta).constraints)
            return bool(np.isfinite(problem.solve(solver="CLARABEL")))
        except (ParameterError, InfeasibleMarketError, cp.error.SolverError):
            return False

    firsts = [start * CHANGE**step for step in ([0] if is_papers else _STEPS)]
    pairs = [(first, first * change) for first in firsts for change in (CHANGE, 1 / CHANGE)]
    etas = next((pair for pair in pairs if all(map(is_feasible, pair))), None)
    if etas is None:
        raise NotSupportedError("fewer than two values of eta are feasible; loosen a constraint")

    def declared(formulation: str) -> Declared:
        if formulation != "unscaled":
            problem: Any = declare(market, etas[0], formulation)
            return Declared(problem, partial(setattr, problem, "eta"), lambda: problem.raw_weights)
        # The papers' problem (A, Eq. 11), declared in the weights.
        weights, eta = cp.Variable(int(active.sum()), name="a"), cp.Parameter(nonneg=True)
        payments = form.gamma * form.virtual_costs[active] @ weights
        constraints = [cp.sum(weights) == 1, weights >= 0]
        constraints += [weights <= form.max_weight] if form.max_weight < 1 else []
        objective = cp.Minimize(form.mu * cp.norm(weights, 2) + eta * payments)
        answer = values_of(spread_out(weights, active))
        return Declared(cp.Problem(objective, constraints), partial(setattr, eta, "value"), answer)

    def exact(eta: float) -> Floats | None:
        fixed = Market(market.sellers, market.objective, [*market.constraints, EtaRange(eta, eta)])
        try:
            return allocate(fixed, "exact" if is_papers else "projections").weights
        except NotSupportedError:
            return None

    name = "allocation" if is_papers else "variants"
    violation = partial(off_simplex, limit=form.max_weight)
    return Instance(name, etas, declared, partial(_value, market), exact, violation)


def certified_search(market: Market) -> Instance:
    """Return the search over eta in the papers' market. The answer contains weights and eta."""

    def search(formulation: Any, solver: Any, options: Mapping[str, Any]) -> Allocation:
        given = {"formulation": formulation, "solver": solver, "solver_options": options}
        return allocate(market, "line_search", gap=GAP, **given)

    def exact(_: None) -> Floats:
        allocation = allocate(market, "exact")
        return np.append(allocation.weights, allocation.eta)

    return Instance(
        "certified search",
        (None,),
        None,
        lambda answer, _: _value(market, answer[:-1], float(answer[-1])),
        exact,
        lambda answer: off_simplex(answer[:-1], market.form.max_weight),
        search=search,
    )


def guarantees(epsilon: Floats, mu: float, sigma: float) -> Instance:
    """Return the problem ``min mu*||a|| + sigma*s`` with ``sum a = 1, 0 <= a <= s*epsilon``.

    Here ``s = 1/eta``, and the answer contains a and s. The second value is ``epsilon[::-1]``.
    """

    def declared(formulation: str) -> Declared:
        scaled = formulation == "primal"
        size, unit = (epsilon.size, float(epsilon.sum())) if scaled else (1, 1.0)
        weights, s = cp.Variable(epsilon.size, name="a"), cp.Variable(name="s")
        granted = cp.Parameter(epsilon.size, nonneg=True, name="granted")
        objective = (mu / size) * cp.norm(weights, 2) + (sigma / unit) * s
        constraints = [cp.sum(weights) == size, weights >= 0, weights <= granted * s]
        return Declared(
            cp.Problem(cp.Minimize(objective), constraints),
            lambda epsilon: setattr(granted, "value", epsilon * size / unit),
            values_of(weights / size, s / unit),
        )

    def exact(epsilon: Floats) -> Floats:
        weights, eta = weights_for_guarantees(epsilon, mu, sigma)
        return np.append(weights, 1.0 / eta)

    return Instance(
        "given guarantees",
        (epsilon, epsilon[::-1]),
        declared,
        lambda answer, _: mu * float(np.linalg.norm(answer[:-1])) + sigma * float(answer[-1]),
        exact,
        lambda answer: off_simplex(answer[:-1]),
    )


def budget(market: Market) -> Instance:
    """Return the program of a market with a :class:`Budget`. The answer contains a and 1/eta.

    The formulation ``joint-scaled`` divides 1/eta by its typical size under the budget.
    """
    form = market.form

    def declared(formulation: str) -> Declared:
        amount = cp.Parameter(nonneg=True, name="budget", value=form.budget)
        others = [piece for piece in market.constraints if piece.reports != "budget"]
        changed = Market(market.sellers, market.objective, [*others, Budget(amount)])
        problem = ConvexProgram(changed, form.natural_eta if formulation == "joint-scaled" else 1.0)
        return Declared(
            problem,
            partial(setattr, amount, "value"),
            lambda: np.append(problem.raw_weights, 1.0 / problem.eta),
        )

    return Instance(
        "budget",
        (form.budget, CHANGE * form.budget),
        declared,
        lambda answer, _: _value(market, answer[:-1], 1.0 / float(answer[-1])),
        violation=lambda answer: off_simplex(answer[:-1]),
    )
