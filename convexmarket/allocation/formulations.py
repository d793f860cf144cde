"""Three CVXPY declarations of the buyer's problem at a fixed total privacy eta.

With ``t = gamma*eta`` and the capped simplex ``S = {a : sum a = 1, 0 <= a <= cap}``:

``primal``
    ``V(t) = min mu*||a|| + t*psi'a`` over S: a second-order cone program, written by the terms and
    constraints of the market, as for any market.
``dual``
    ``max tau - cap*sum(s)`` subject to ``||(tau - t*psi - s)_+|| <= mu``, ``s >= 0``: the
    Karush-Kuhn-Tucker system of the primal. Without a cap ``s = 0`` and this is A, Eq. (13)-(14)
    with ``tau = lambda*eta``.
``projection``
    ``a(beta) = argmin 0.5*||a||^2 + beta*psi'a`` over S, a quadratic program: the primal optimum
    is the Euclidean projection of ``-beta*psi`` on S, where ``t = beta*mu/||a(beta)||``. Of the
    three it is the best conditioned for solvers.

Each is compiled once and solved again for another eta by changing a parameter (CVXPY's
disciplined parametrised programming). Weights are of order 1/m, too small for the absolute
tolerances of conic solvers, so the variables are ``m*a``, which is of order one.
"""

from __future__ import annotations

from typing import Literal

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.simplex import (
    ROUNDING,
    common_price,
    feasible_limits,
    norm_minimiser,
    project_capped_simplex,
)
from convexmarket.allocation.views import DeclaredMarket, FixedEta, inverse_of, numbers
from convexmarket.checks import check_positive, shown
from convexmarket.errors import (
    NotSupportedError,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, StandardForm

__all__ = [
    "FixedEtaProblem",
    "Formulation",
    "declare_papers",
    "embed",
    "marginal_price",
    "optimal_weights",
    "papers_form",
    "recover_weights",
]

Formulation = Literal["primal", "dual", "projection"]


def optimal_weights(form: StandardForm, t: float) -> NDArray[np.float64]:
    """Return the minimiser of ``mu*||a|| + t*psi'a`` over the capped simplex, for mu > 0."""
    limits = feasible_limits(np.full(form.virtual_costs.size, form.max_weight))
    return norm_minimiser(t * form.virtual_costs, form.mu, limits).weights


def marginal_price(form: StandardForm, weights: NDArray[np.float64], t: float) -> float:
    """Return tau, the multiplier of ``sum a = 1``, that belongs to weights at ``t = gamma*eta``.

    At the optimum it is the price ``mu*a_i/||a|| + t*psi_i`` of all strictly between 0 and the cap.
    """
    prices = form.mu * weights / np.linalg.norm(weights) + t * form.virtual_costs
    return common_price(weights, prices, np.maximum(form.max_weight - weights, 0.0))


def recover_weights(form: StandardForm, raw: NDArray[np.float64], t: float) -> NDArray[np.float64]:
    """Turn a solver's approximate weights into feasible ones, shape (m,).

    They are projected on the capped simplex; then sellers whose virtual cost alone exceeds the
    marginal price lose the traces that interior-point methods leave on them, because the KKT
    conditions give them nothing.

    Raises
    ------
    SolverError
        If the solver returned something that is not a finite number.
    """
    if not np.isfinite(raw).all():
        raise SolverError("the solver returned weights that are not finite numbers")
    weights = project_capped_simplex(raw, form.max_weight)
    if form.mu == 0:
        return weights
    dear = t * form.virtual_costs >= marginal_price(form, weights, t)
    kept = weights.size - np.count_nonzero(dear)
    if kept * form.max_weight < 1 or not np.any(weights[dear]):
        return weights
    return project_capped_simplex(np.where(dear, -np.inf, weights), form.max_weight)


def embed(weights: NDArray[np.float64], sellers: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return weights for all sellers from those of some: zero for the others."""
    everyone = np.zeros(sellers.size)
    everyone[sellers] = weights
    return everyone


def declare_papers(market: Market, eta: float, formulation: str = "primal") -> FixedEtaProblem:
    """Declare a market of the papers' form at a fixed eta; see :func:`convexmarket.declare`."""
    form, finite = papers_form(market)
    if form.mu == 0 and formulation != "primal":
        raise NotSupportedError(
            f"the {formulation} formulation divides by mu, the weight of Spread, which is 0; "
            "use formulation='primal'"
        )
    if formulation == "primal":
        return PrimalProblem(market, form, finite, eta)
    kind = DualProblem if formulation == "dual" else ProjectionProblem
    return kind(form, finite, eta)


def papers_form(market: Market) -> tuple[StandardForm, NDArray[np.bool_]]:
    """Return the market in numbers, sellers with psi = +inf left out, and who remains.

    Raises
    ------
    NotSupportedError
        If the market has pieces that the papers' problem does not have.
    InfeasibleMarketError
        If the remaining sellers cannot carry all the weight.
    """
    if market.form.standard is None:
        raise NotSupportedError(
            f"{shown(market)} is not of the form mu*Spread() + sigma*Noise() + gamma*Payments() "
            "with gamma > 0 and constraints Cap, EtaRange; no fixed-eta formulation is known for it"
        )
    form, sellers = market.form.restricted()
    standard = form.standard
    assert standard is not None  # as for all sellers
    feasible_limits(np.full(sellers.sum(), standard.max_weight))
    return standard, sellers


class FixedEtaProblem(DeclaredMarket):
    """The papers' problem at a fixed eta: a :class:`cvxpy.Problem`, made by :func:`declare`.

    Attributes
    ----------
    formulation : str
        "primal", "dual" or "projection".
    """

    formulation: Formulation
    #: The parameter that follows eta.
    parameter: cp.Parameter

    def __init__(
        self,
        objective: cp.Minimize | cp.Maximize,
        constraints: list[cp.Constraint],
        form: StandardForm,
        sellers: NDArray[np.bool_],
        eta: float,
    ) -> None:
        super().__init__(objective, constraints)
        self._form, self._sellers, self.eta = form, sellers, eta

    @property
    def eta(self) -> float:
        """Total privacy; setting it sets the parameter of the problem."""
        return self._get_eta()

    @eta.setter
    def eta(self, eta: float) -> None:
        check_positive("eta", eta)
        low, high = self._form.eta_low, self._form.eta_high
        if not low * (1 - ROUNDING) <= eta <= high * (1 + ROUNDING):
            raise ParameterError(
                f"eta is {eta!r}, outside the market's EtaRange ({low:g}, {high:g})"
            )
        self._set_eta(eta)

    def _get_eta(self) -> float:
        return float(numbers(self.parameter))

    def _set_eta(self, eta: float) -> None:
        self.parameter.value = eta

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights a of the last solve, made feasible, shape (m,).

        Raises
        ------
        AllocationError
            If the problem has not been solved.
        """
        weights = recover_weights(self._form, self.raw_weights, self._form.gamma * self.eta)
        return embed(weights, self._sellers)

    @property
    def multiplier(self) -> float:
        """Lambda of A, Eq. (13)-(14): the multiplier of ``sum a = 1``, divided by eta."""
        eta, weights = self.eta, self.weights[self._sellers]
        return marginal_price(self._form, weights, self._form.gamma * eta) / eta


class PrimalProblem(FixedEtaProblem):
    """``min mu*||a|| + t*psi'a + sigma/eta`` over the capped simplex, for the variable m*a."""

    formulation = "primal"

    def __init__(
        self, market: Market, form: StandardForm, sellers: NDArray[np.bool_], eta: float
    ) -> None:
        whole = FixedEta(market, min(max(eta, form.eta_low), form.eta_high))
        self.quantities, self.parameter = whole.quantities, whole.parameter
        self._weights = whole.scaled_weights / sellers.size
        super().__init__(whole.objective, whole.constraints, form, sellers, eta)


class DualProblem(FixedEtaProblem):
    """The Karush-Kuhn-Tucker system as a maximisation over tau and the cap's multipliers.

    Scaled by the size of a price at the eta it is declared for, so that all variables are of
    order one.
    """

    formulation = "dual"

    def __init__(self, form: StandardForm, sellers: NDArray[np.bool_], eta: float) -> None:
        m = form.virtual_costs.size
        price = form.mu / np.sqrt(m) + form.gamma * eta * float(form.virtual_costs.mean())
        self.parameter = cp.Parameter(nonneg=True, name="eta")
        scaled_tau = cp.Variable(name="scaled_tau")
        margin = cp.Variable(m, nonneg=True, name="scaled_margin")
        unit_costs = form.gamma / price * form.virtual_costs
        reach: cp.Expression = margin + self.parameter * unit_costs
        value: cp.Expression = scaled_tau
        if form.max_weight < 1:
            multipliers = cp.Variable(m, nonneg=True, name="scaled_cap_multipliers")
            reach += multipliers
            value -= form.max_weight * cp.sum(multipliers)
        self._prices = reach >= scaled_tau  # its multipliers are the weights
        objective = cp.Maximize(price * value + form.sigma * inverse_of(self.parameter))
        items = [self._prices, cp.norm(margin, 2) <= form.mu / price]
        super().__init__(objective, items, form, sellers, eta)

    @property
    def raw_weights(self) -> NDArray[np.float64]:
        """Weights of the last solve as the solver left them: the multipliers of the prices."""
        self.solution(self._prices.expr)  # raises an error without one
        weights = np.maximum(np.asarray(self._prices.dual_value, dtype=float), 0.0)
        total = float(weights.sum())
        return weights / total if total > 0 else np.full(weights.shape, np.nan)


class ProjectionProblem(FixedEtaProblem):
    """``min 0.5*||a||^2 + beta*psi'a`` over the capped simplex, times m^2, for the variable m*a.

    Its value is not the market's objective. The beta that belongs to an eta is found by exact
    projections in numpy.
    """

    formulation = "projection"

    def __init__(self, form: StandardForm, sellers: NDArray[np.bool_], eta: float) -> None:
        m = form.virtual_costs.size
        largest = m * form.max_weight if form.max_weight < 1 else None
        scaled_weights = cp.Variable(m, bounds=[0, largest], name="scaled_weights")
        self.parameter = cp.Parameter(nonneg=True, name="beta")
        self._weights = scaled_weights / m
        payments = (m * form.virtual_costs) @ (self.parameter * scaled_weights)
        objective = cp.Minimize(0.5 * cp.sum_squares(scaled_weights) + payments)
        super().__init__(objective, [cp.sum(scaled_weights) == m], form, sellers, eta)

    def _get_eta(self) -> float:
        beta, form = float(numbers(self.parameter)), self._form
        weights = project_capped_simplex(-beta * form.virtual_costs, form.max_weight)
        return beta * form.mu / float(np.linalg.norm(weights)) / form.gamma

    def _set_eta(self, eta: float) -> None:
        t = self._form.gamma * eta
        self.parameter.value = t * np.linalg.norm(optimal_weights(self._form, t)) / self._form.mu
