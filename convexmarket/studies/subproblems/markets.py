r"""Markets as instances of a solver study: at a fixed eta, under given guarantees, with a budget.

``unscaled`` is the declaration in the weights themselves, of order 1/m, that the others avoid by
taking ``m*a`` as their variable: how much that matters is one of the questions of a study.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import cvxpy as cp
import numpy as np

from convexmarket.allocation import (
    Allocation,
    ConvexProgram,
    allocate,
    declare,
    weights_for_guarantees,
)
from convexmarket.allocation.conic import LeastViolation
from convexmarket.allocation.formulations import FixedEtaProblem, optimal_weights, papers_form
from convexmarket.allocation.projections import ProjectableForm
from convexmarket.allocation.views import FixedEta, JointView, numbers
from convexmarket.checks import shown
from convexmarket.errors import NotSupportedError
from convexmarket.market import Market
from convexmarket.studies.subproblems.base import Floats, Instance

__all__ = [
    "BudgetInstance",
    "FixedEtaInstance",
    "GuaranteesInstance",
    "PapersInstance",
    "SearchInstance",
    "off_simplex",
]

#: The second value of a parameter, relative to the first.
CHANGE = 1.25
#: Relative gap that a whole search is run to.
GAP = 1e-6


def off_simplex(weights: Floats, limit: float | Floats) -> float:
    """Return by how much weights break ``sum a = 1, 0 <= a <= limit``, relative to their size."""
    size = float(np.abs(weights).max(initial=0.0)) or 1.0
    outside = np.maximum(weights - limit, -weights).max(initial=0.0)
    return max(abs(float(weights.sum()) - 1.0), float(outside) / size)


class PapersInstance(Instance):
    """The papers' market (A, Eq. 11) at an eta: ``min mu*||a|| + gamma*eta*psi'a + sigma/eta``.

    Parameters
    ----------
    market : Market
        Of the papers' form, with mu > 0.
    eta : float

    Raises
    ------
    NotSupportedError
        If the market's range of eta has no room for another value.
    """

    problem_class = "allocation"
    formulations: ClassVar[tuple[str, ...]] = ("primal", "dual", "projection", "unscaled")

    def __init__(self, market: Market, eta: float) -> None:
        self.market, self.eta = market, eta
        self.form, _ = papers_form(market)
        low, high = self.form.eta_low, self.form.eta_high
        possible = [other for other in (CHANGE * eta, eta / CHANGE) if low <= other <= high]
        if not possible:
            raise NotSupportedError(f"{shown(market)} leaves eta no room; a study changes it")
        self._second = possible[0]

    def declare(self, formulation: str) -> cp.Problem:
        """Return :func:`convexmarket.declare`'s problem, or the one in the weights themselves."""
        if formulation != "unscaled":
            return declare(self.market, self.eta, formulation)
        weights = cp.Variable(self.form.virtual_costs.size, name="a")
        t = cp.Parameter(nonneg=True, name="t", value=self.form.gamma * self.eta)
        objective = self.form.mu * cp.norm(weights, 2) + t * (self.form.virtual_costs @ weights)
        constraints = [cp.sum(weights) == 1, weights >= 0]
        if self.form.max_weight < 1:
            constraints.append(weights <= self.form.max_weight)
        return cp.Problem(cp.Minimize(objective), constraints)

    def change(self, problem: cp.Problem) -> None:
        """Buy more, or less where the market allows no more."""
        if isinstance(problem, FixedEtaProblem):
            problem.eta = self._second
        else:
            problem.param_dict["t"].value = self.form.gamma * self._second

    def answer(self, problem: cp.Problem) -> Floats:
        """Return the weights of the sellers with finite virtual costs."""
        if isinstance(problem, FixedEtaProblem):
            return problem.raw_weights
        return numbers(problem.var_dict["a"])

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the market's objective at these weights."""
        eta = self._second if changed else self.eta
        spread = self.form.mu * float(np.linalg.norm(answer))
        payments = self.form.gamma * eta * float(self.form.virtual_costs @ answer)
        return spread + payments + self.form.sigma / eta

    def violation(self, answer: Floats) -> float:
        """Return by how much the weights leave the capped simplex."""
        return off_simplex(answer, self.form.max_weight)

    def exact(self, changed: bool) -> Floats:
        """Return the weights by projection on the capped simplex."""
        eta = self._second if changed else self.eta
        return optimal_weights(self.form, self.form.gamma * eta)


class SearchInstance(PapersInstance):
    """The papers' market with eta to be found: the whole certified search, to a gap of 1e-6.

    An answer is the weights followed by eta. It is searched once: no search starts from another.

    Parameters
    ----------
    market : Market
    eta : float
        That of the optimum.
    """

    problem_class = "certified search"
    formulations = ("primal", "dual", "projection")

    def search(self, formulation: str, solver: str, options: Mapping[str, Any]) -> Allocation:
        """Run the search."""
        return allocate(
            self.market,
            "line_search",
            formulation=formulation,
            solver=solver,
            solver_options=options,
            gap=GAP,
        )

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the market's objective."""
        return self.form.objective(answer[:-1], float(answer[-1]))

    def violation(self, answer: Floats) -> float:
        """Return by how much the weights leave the capped simplex."""
        return super().violation(answer[:-1])

    def exact(self, changed: bool) -> Floats:
        """Return the closed form; there is no second value."""
        return self.answer_of(allocate(self.market, "exact"))

    def answer_of(self, found: Allocation) -> Floats:
        """Return the weights of the sellers with finite virtual costs, and eta."""
        return np.append(found.weights[np.isfinite(self.market.sellers.virtual_costs)], found.eta)


class GuaranteesInstance(Instance):
    """Weights under given guarantees: ``min mu*||a|| + sigma*s`` subject to ``a <= s*epsilon``.

    Here ``s = 1/eta``; an answer is the weights followed by s.

    Parameters
    ----------
    epsilon : ndarray, shape (m,)
        What the sellers granted, positive. The second value is the same in reverse order.
    mu, sigma : float
    """

    problem_class = "given guarantees"
    formulations = ("primal", "unscaled")

    def __init__(self, epsilon: Floats, mu: float, sigma: float) -> None:
        self.epsilon, self.mu, self.sigma = epsilon, mu, sigma
        self._total = float(epsilon.sum())

    def declare(self, formulation: str) -> cp.Problem:
        """Return the problem in ``m*a`` and ``s*sum(epsilon)``, or in a and s as they are."""
        m = self.epsilon.size
        scaled = formulation == "primal"
        size, unit = (m, self._total) if scaled else (1, 1.0)
        weights, s = cp.Variable(m, name="m*a" if scaled else "a"), cp.Variable(name="s")
        granted = cp.Parameter(m, nonneg=True, name="granted", value=self.epsilon * size / unit)
        objective = (self.mu / size) * cp.norm(weights, 2) + (self.sigma / unit) * s
        constraints = [cp.sum(weights) == size, weights >= 0, weights <= granted * s]
        return cp.Problem(cp.Minimize(objective), constraints)

    def change(self, problem: cp.Problem) -> None:
        """Let the same guarantees be granted by others."""
        granted = problem.param_dict["granted"]
        granted.value = granted.value[::-1].copy()

    def answer(self, problem: cp.Problem) -> Floats:
        """Return weights and s in their own units."""
        scaled = "m*a" in problem.var_dict
        size, unit = (self.epsilon.size, self._total) if scaled else (1, 1.0)
        weights = numbers(problem.var_dict["m*a" if scaled else "a"])
        return np.append(weights / size, numbers(problem.var_dict["s"]) / unit)

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return spread and noise."""
        del changed
        return self.mu * float(np.linalg.norm(answer[:-1])) + self.sigma * float(answer[-1])

    def violation(self, answer: Floats) -> float:
        """Return by how much the weights leave the simplex."""
        return off_simplex(answer[:-1], 1.0)

    def exact(self, changed: bool) -> Floats:
        """Return the closed form, from one sort."""
        granted = self.epsilon[::-1] if changed else self.epsilon
        weights, eta = weights_for_guarantees(granted, self.mu, self.sigma)
        return np.append(weights, 1.0 / eta)


class FixedEtaInstance(Instance):
    """Any market at a fixed eta: other norms, privacy costs, quotas, largest guarantees.

    Eta is of the order that the constraints speak of, inside what they allow.
    """

    problem_class = "variants"
    formulations = ("primal",)

    def __init__(self, market: Market) -> None:
        self.market = market
        natural = market.form.natural_eta
        low, high = LeastViolation(JointView(market), "CLARABEL").interval(natural)
        natural = float(np.clip(natural, low, high))
        self.eta, self._second = natural, CHANGE * natural
        if self._second > high:
            self.eta, self._second = high / CHANGE**2, high / CHANGE
        if self.eta < low:
            raise NotSupportedError(f"{shown(market)} leaves eta no room; a study changes it")
        self._view = JointView(market)

    def declare(self, formulation: str) -> cp.Problem:
        """Return :func:`convexmarket.declare`'s problem."""
        return declare(self.market, self.eta, formulation)

    def change(self, problem: cp.Problem) -> None:
        """Buy more."""
        assert isinstance(problem, FixedEta | FixedEtaProblem)
        problem.eta = self._second

    def answer(self, problem: cp.Problem) -> Floats:
        """Return the weights of all sellers."""
        assert isinstance(problem, FixedEta | FixedEtaProblem)
        return problem.raw_weights

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the market's objective at these weights."""
        return self._view.value(answer, self._second if changed else self.eta)

    def violation(self, answer: Floats) -> float:
        """Return by how much the weights leave the simplex; other constraints are the problem's."""
        return off_simplex(answer, 1.0)

    def exact(self, changed: bool) -> Floats | None:
        """Return the weights by projection, where the market is of that form."""
        found = ProjectableForm.of(self.market.form)
        if found is None:
            return None
        restricted, able = found
        weights = np.zeros(able.size)
        weights[able] = restricted.weights(self._second if changed else self.eta)
        return weights


class BudgetInstance(Instance):
    """A market with a budget in place of a price of money: one convex program in a and 1/eta.

    An answer is the weights followed by 1/eta.

    Parameters
    ----------
    market : Market
        With a :class:`Budget`, and no term in the guarantees.
    """

    problem_class = "budget"
    formulations = ("joint", "joint-scaled")

    def __init__(self, market: Market) -> None:
        self._amount = market.form.budget
        self.market = market
        self._view = JointView(market)

    def declare(self, formulation: str) -> cp.Problem:
        """Return the program with 1/eta as it is, or in units of the eta natural to the budget."""
        budget = cp.Parameter(nonneg=True, name="budget", value=self._amount)
        market = self.market.with_budget(budget)
        if formulation == "joint":
            return declare(market)
        return ConvexProgram(market, market.form.natural_eta)

    def change(self, problem: cp.Problem) -> None:
        """Spend more."""
        problem.param_dict["budget"].value = CHANGE * self._amount

    def answer(self, problem: cp.Problem) -> Floats:
        """Return the weights of all sellers, and 1/eta."""
        assert isinstance(problem, ConvexProgram)
        return np.append(problem.raw_weights, 1.0 / problem.eta)

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the market's objective."""
        del changed
        return self._view.value(answer[:-1], 1.0 / float(answer[-1]))

    def violation(self, answer: Floats) -> float:
        """Return by how much the weights leave the simplex; other constraints are the problem's."""
        return off_simplex(answer[:-1], 1.0)
