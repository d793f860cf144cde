"""Three CVXPY declarations of the buyer's problem at a fixed total privacy eta.

With ``t = gamma*eta`` and the capped simplex ``S = {a : sum a = 1, 0 <= a <= cap}``:

``primal``
    ``V(t) = min mu*||a|| + t*psi'a`` over S: a second-order cone program, written by the market's
    own terms and constraints.
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
from convexmarket.allocation.views import DeclaredMarket, inverse_of, spread_out
from convexmarket.checks import check_positive, shown
from convexmarket.errors import (
    NotSupportedError,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, StandardForm
from convexmarket.terms import Quantities

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
    return norm_minimiser(t * form.virtual_costs, form.mu, form.max_weight)


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
    problem: FixedEtaProblem
    if formulation == "primal":
        problem = PrimalProblem(market, form, finite)
    elif formulation == "dual":
        problem = DualProblem(form, finite, eta)
    else:
        problem = ProjectionProblem(form, finite)
    problem.eta = eta
    return problem


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
    """The buyer's problem at a fixed eta: a :class:`cvxpy.Problem` that knows what it is about.

    Made by :func:`declare`. Everything a CVXPY problem offers works as usual, for example
    ``problem.solve(solver="ECOS")``.

    Attributes
    ----------
    formulation : str
        "primal", "dual" or "projection".
    """

    formulation: Formulation

    def __init__(
        self,
        objective: cp.Minimize | cp.Maximize,
        constraints: list[cp.Constraint],
        form: StandardForm,
        sellers: NDArray[np.bool_],
    ) -> None:
        super().__init__(objective, constraints)
        self._form = form
        self._sellers = sellers

    @property
    def eta(self) -> float:
        """Total privacy; setting it sets the parameters of the problem."""
        return self._t() / self._form.gamma

    @eta.setter
    def eta(self, eta: float) -> None:
        check_positive("eta", eta)
        low, high = self._form.eta_low, self._form.eta_high
        if not low * (1 - ROUNDING) <= eta <= high * (1 + ROUNDING):
            raise ParameterError(
                f"eta is {eta!r}, outside the market's EtaRange ({low:g}, {high:g})"
            )
        self._set_t(self._form.gamma * eta)

    @property
    def weights(self) -> NDArray[np.float64]:
        """Weights a of the last solve, made feasible, shape (m,).

        Raises
        ------
        AllocationError
            If the problem has not been solved.
        """
        weights = recover_weights(self._form, self.raw_weights, self._t())
        return embed(weights, self._sellers)

    @property
    def multiplier(self) -> float:
        """Lambda of A, Eq. (13)-(14): the multiplier of ``sum a = 1``, divided by eta."""
        t = self._t()
        return marginal_price(self._form, self.weights[self._sellers], t) * self._form.gamma / t

    def _t(self) -> float:
        return float(self.param_dict["t"].value)

    def _set_t(self, t: float) -> None:
        self.param_dict["t"].value = t


class PrimalProblem(FixedEtaProblem):
    """``min mu*||a|| + t*psi'a + sigma/eta`` over the capped simplex, for the variable m*a."""

    formulation = "primal"

    def __init__(self, market: Market, form: StandardForm, sellers: NDArray[np.bool_]) -> None:
        n_finite = form.virtual_costs.size
        scaled_weights = cp.Variable(n_finite, name="scaled_weights")
        t = cp.Parameter(nonneg=True, name="t")
        weights = spread_out(scaled_weights, sellers) / sellers.size
        quantities = Quantities(
            weights=weights,
            epsilon=(t / form.gamma) * weights,
            inverse_eta=inverse_of(t, 1.0 / form.gamma),
            virtual_costs=embed(form.virtual_costs, sellers),
        )
        constraints = [cp.sum(scaled_weights) == sellers.size, scaled_weights >= 0]
        for piece in market.constraints:
            # A bound on eta alone is checked when eta is set: to a solver it would be an
            # inequality between numbers, without an interior where it is met exactly.
            constraints += [c for c in piece.constraints(quantities) if c.variables()]
        objective = cp.Minimize(market.objective.expression(quantities))
        super().__init__(objective, constraints, form, sellers)
        self.quantities = quantities
        self._weights = scaled_weights / sellers.size


class DualProblem(FixedEtaProblem):
    """The Karush-Kuhn-Tucker system as a maximisation over tau and the cap's multipliers.

    Scaled by the size of a price at the eta it is declared for, so that all variables are of
    order one.
    """

    formulation = "dual"

    def __init__(self, form: StandardForm, sellers: NDArray[np.bool_], eta: float) -> None:
        m = form.virtual_costs.size
        price = form.mu / np.sqrt(m) + form.gamma * eta * float(form.virtual_costs.mean())
        t = cp.Parameter(nonneg=True, name="t")
        scaled_tau = cp.Variable(name="scaled_tau")
        margin = cp.Variable(m, nonneg=True, name="scaled_margin")
        reach: cp.Expression = margin + t * (form.virtual_costs / price)
        value: cp.Expression = scaled_tau
        if form.max_weight < 1:
            multipliers = cp.Variable(m, nonneg=True, name="scaled_cap_multipliers")
            reach += multipliers
            value -= form.max_weight * cp.sum(multipliers)
        self._prices = reach >= scaled_tau  # its own multipliers are the weights
        noise = form.sigma * inverse_of(t, 1.0 / form.gamma)
        objective = cp.Maximize(price * value + noise)
        super().__init__(
            objective, [self._prices, cp.norm(margin, 2) <= form.mu / price], form, sellers
        )

    @property
    def raw_weights(self) -> NDArray[np.float64]:
        """Weights of the last solve as the solver left them: the multipliers of the prices."""
        self.solution(self._prices.expr)  # there is one
        weights = np.maximum(np.asarray(self._prices.dual_value, dtype=float), 0.0)
        total = float(weights.sum())
        return weights / total if total > 0 else np.full(weights.shape, np.nan)


class ProjectionProblem(FixedEtaProblem):
    """``min 0.5*||a||^2 + beta*psi'a`` over the capped simplex, times m^2, for the variable m*a.

    Its value is not the market's objective. The beta that belongs to an eta is found by exact
    projections in numpy.
    """

    formulation = "projection"

    def __init__(self, form: StandardForm, sellers: NDArray[np.bool_]) -> None:
        m = form.virtual_costs.size
        scaled_weights = cp.Variable(m, name="scaled_weights")
        beta = cp.Parameter(nonneg=True, name="beta")
        payments = (m * form.virtual_costs) @ (beta * scaled_weights)
        constraints = [cp.sum(scaled_weights) == m, scaled_weights >= 0]
        if form.max_weight < 1:
            constraints.append(scaled_weights <= m * form.max_weight)
        objective = cp.Minimize(0.5 * cp.sum_squares(scaled_weights) + payments)
        super().__init__(objective, constraints, form, sellers)
        self._weights = scaled_weights / m

    def _t(self) -> float:
        beta = float(self.param_dict["beta"].value)
        form = self._form
        weights = project_capped_simplex(-beta * form.virtual_costs, form.max_weight)
        return beta * form.mu / float(np.linalg.norm(weights))

    def _set_t(self, t: float) -> None:
        norm = np.linalg.norm(optimal_weights(self._form, t))
        self.param_dict["beta"].value = t * norm / self._form.mu
