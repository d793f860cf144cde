"""CVXPY declarations of the buyer's problem: at a fixed total privacy eta, or as a whole.

The papers' problem has three at a fixed eta. With ``t = gamma*eta`` and the capped simplex
``S = {a : sum a = 1, 0 <= a <= cap}``:

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

from typing import Literal, overload

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.simplex import (
    ROUNDING,
    common_price,
    embed,
    feasible_limits,
    norm_minimiser,
    project_capped_simplex,
)
from convexmarket.allocation.views import (
    DeclaredMarket,
    FixedEta,
    MarketExpressions,
    inverse_of,
    numbers,
)
from convexmarket.checks import check_choice, check_instance, check_positive, shown
from convexmarket.errors import CurvatureError, NotSupportedError, ParameterError, SolverError
from convexmarket.market import Market, StandardForm

__all__ = [
    "ConvexProgram",
    "FixedEtaProblem",
    "Formulation",
    "declare",
    "marginal_price",
    "optimal_weights",
    "papers_form",
    "recover_weights",
]

Floats = NDArray[np.float64]
Formulation = Literal["primal", "dual", "projection"]


def optimal_weights(form: StandardForm, t: float) -> Floats:
    """Return the minimiser of ``mu*||a|| + t*psi'a`` over the capped simplex, for mu > 0."""
    limits = feasible_limits(np.full(form.virtual_costs.size, form.max_weight))
    return norm_minimiser(t * form.virtual_costs, form.mu, limits).weights


def marginal_price(form: StandardForm, weights: Floats, t: float) -> float:
    """Return tau, the multiplier of ``sum a = 1``, for weights at ``t = gamma*eta``.

    At the optimum it is ``mu*a_i/||a|| + t*psi_i`` for all sellers strictly between 0 and the cap.
    """
    prices = form.mu * weights / np.linalg.norm(weights) + t * form.virtual_costs
    return common_price(weights, prices, np.maximum(form.max_weight - weights, 0.0))


def recover_weights(form: StandardForm, raw: Floats, t: float) -> Floats:
    """Turn a solver's approximate weights into feasible ones, shape (m,).

    They are projected on the capped simplex. Traces of interior-point methods are removed from
    sellers with virtual costs above the marginal price, as the KKT conditions require.

    Raises
    ------
    SolverError
        If the weights are not finite numbers.
    """
    if not np.isfinite(raw).all():
        raise SolverError("the solver returned weights that are not finite numbers")
    weights = project_capped_simplex(raw, form.max_weight)
    if form.mu == 0:
        return weights
    expensive = t * form.virtual_costs >= marginal_price(form, weights, t)
    others = weights.size - np.count_nonzero(expensive)
    if others * form.max_weight < 1 or not np.any(weights[expensive]):
        return weights
    return project_capped_simplex(np.where(expensive, -np.inf, weights), form.max_weight)


def papers_form(market: Market) -> tuple[StandardForm, NDArray[np.bool_]]:
    """Return the market in numbers, without sellers with psi = +inf, and the mask of the others.

    Raises
    ------
    NotSupportedError
        If the market has other pieces than the papers' problem.
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

    The dual is scaled by the size of a price at the eta that it is declared for. The value of the
    projection, times m^2, is not the market's objective; its parameter is beta.

    Attributes
    ----------
    formulation : str
        "primal", "dual" or "projection".
    parameter : cvxpy.Parameter
        Eta, or beta for the projection.
    """

    def __init__(self, market: Market, eta: float, formulation: Formulation = "primal") -> None:
        self.formulation = formulation
        self._form, self._sellers = form, sellers = papers_form(market)
        if form.mu == 0 and formulation != "primal":
            raise NotSupportedError(
                f"the {formulation} formulation divides by mu, the weight of Spread, which is 0; "
                "use formulation='primal'"
            )
        m, psi = form.virtual_costs.size, form.virtual_costs
        self.parameter = cp.Parameter(nonneg=True, name="eta")
        objective: cp.Minimize | cp.Maximize
        self._prices: cp.Constraint | None = None
        if formulation == "primal":
            whole = FixedEta(market, min(max(eta, form.eta_low), form.eta_high))
            self.quantities, self.parameter = whole.quantities, whole.parameter
            self._weights = whole.scaled_weights / sellers.size
            objective, items = whole.objective, whole.constraints
        elif formulation == "dual":
            price = form.mu / np.sqrt(m) + form.gamma * eta * float(psi.mean())
            value: cp.Expression = cp.Variable(name="scaled_tau")
            scaled_tau, margin = value, cp.Variable(m, nonneg=True, name="scaled_margin")
            reach: cp.Expression = margin + self.parameter * (form.gamma / price * psi)
            if form.max_weight < 1:
                multipliers = cp.Variable(m, nonneg=True, name="scaled_cap_multipliers")
                reach += multipliers
                value -= form.max_weight * cp.sum(multipliers)
            self._prices = reach >= scaled_tau  # its multipliers are the weights
            objective = cp.Maximize(price * value + form.sigma * inverse_of(self.parameter))
            items = [self._prices, cp.norm(margin, 2) <= form.mu / price]
        else:
            largest = m * form.max_weight if form.max_weight < 1 else None
            scaled = cp.Variable(m, bounds=[0, largest], name="scaled_weights")
            self.parameter = cp.Parameter(nonneg=True, name="beta")
            self._weights = scaled / m
            payments = (m * psi) @ (self.parameter * scaled)
            objective = cp.Minimize(0.5 * cp.sum_squares(scaled) + payments)
            items = [cp.sum(scaled) == m]
        super().__init__(objective, items)
        self.eta = eta

    @property
    def eta(self) -> float:
        """Total privacy; setting it sets the parameter of the problem."""
        value, form = float(numbers(self.parameter)), self._form
        if self.formulation != "projection":
            return value
        weights = project_capped_simplex(-value * form.virtual_costs, form.max_weight)
        return value * form.mu / float(np.linalg.norm(weights)) / form.gamma

    @eta.setter
    def eta(self, eta: float) -> None:
        check_positive("eta", eta)
        form, t = self._form, self._form.gamma * eta
        if not form.eta_low * (1 - ROUNDING) <= eta <= form.eta_high * (1 + ROUNDING):
            raise ParameterError(
                f"eta is {eta!r}, outside the market's EtaRange ({form.eta_low:g}, "
                f"{form.eta_high:g})"
            )
        projected = self.formulation == "projection"
        beta = t * np.linalg.norm(optimal_weights(form, t)) / form.mu if projected else eta
        self.parameter.value = beta

    @property
    def raw_weights(self) -> Floats:
        """Raw weights of the last solve, without sellers at psi = +inf."""
        if self._prices is None:
            return super().raw_weights
        self.solution(self._prices.expr)  # raises an error without one
        weights = np.maximum(np.asarray(self._prices.dual_value, dtype=float), 0.0)
        total = float(weights.sum())
        return weights / total if total > 0 else np.full(weights.shape, np.nan)

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, made feasible, shape (m,).

        Raises
        ------
        AllocationError
            If the problem has not been solved.
        """
        weights = recover_weights(self._form, self.raw_weights, self._form.gamma * self.eta)
        return embed(weights, self._sellers)


class ConvexProgram(DeclaredMarket):
    """A whole market as one :class:`cvxpy.Problem` in the weights and 1/eta.

    Made by :func:`convexmarket.declare` without an eta. A ``cvxpy.Parameter`` inside a piece, such
    as the amount of a :class:`Budget`, can be changed between solves without compiling again.

    Attributes
    ----------
    formulation : str
        "joint".

    Raises
    ------
    NotSupportedError
        If a piece uses the guarantees.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.EtaRange(1, 5)])
    >>> program = cm.allocation.ConvexProgram(market)
    >>> round(float(program.solve(solver='CLARABEL')), 3), round(program.eta, 2)
    (0.777, 5.0)
    """

    formulation = "joint"

    def __init__(self, market: Market, eta_scale: float = 1.0) -> None:
        self.view = view = MarketExpressions(market, 1.0 / eta_scale, None)
        if not view.is_jointly_convex:
            raise NotSupportedError(
                f"{shown(market)} has a term or a bound in the guarantees eps = eta*a, which is "
                "not convex in the weights and 1/eta together; declare it at a fixed eta: "
                "declare(market, eta=...)"
            )
        self._weights = view.quantities.weights
        super().__init__(cp.Minimize(view.objective()), [*view.simplex, *view.flat_constraints()])

    @property
    def eta(self) -> float:
        """Total privacy of the last solve."""
        return 1.0 / float(self.solution(self.view.quantities.inverse_eta))


@overload
def declare(market: Market, eta: None = None, formulation: str = ...) -> ConvexProgram: ...
@overload
def declare(market: Market, eta: float, formulation: str = ...) -> FixedEtaProblem | FixedEta: ...
def declare(
    market: Market, eta: float | None = None, formulation: str = "primal"
) -> FixedEtaProblem | FixedEta | ConvexProgram:
    """Declare the buyer's problem as a CVXPY problem.

    Parameters
    ----------
    market : Market
    eta : float, optional
        Total privacy bought. It may be changed later through the attribute ``eta``, without
        compiling again. By default, the market is declared as one convex program in the weights
        and 1/eta, which excludes pieces that use the guarantees.
    formulation : {"primal", "dual", "projection"}
        At a fixed eta. Markets that are not of the papers' form (A, Eq. 11) have a primal only.

    Returns
    -------
    FixedEtaProblem, FixedEta or ConvexProgram
        A :class:`cvxpy.Problem` with the attributes ``weights`` and ``eta``. Its value is the
        market's objective, except for "projection". At a fixed eta a "primal" has ``quantities``,
        expressions for further constraints of any kind. ``copy.deepcopy`` and pickle make
        independent problems. A problem must not be solved in several threads at once.

    Raises
    ------
    NotSupportedError
        If the market has no such formulation, or eta is given and would be multiplied by a
        parameter of the market.
    ParameterError
        If eta or formulation is not one of the values allowed.
    CurvatureError
        If a term or constraint is not convex by CVXPY's rules.
    InfeasibleMarketError
        If the sellers with finite virtual costs cannot carry all the weight.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers(virtual_costs=[0.0, 1.0])
    >>> problem = cm.declare(cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.5), eta=1.0)
    >>> value = problem.solve(solver="CLARABEL")
    >>> problem.weights.round(3)
    array([0.689, 0.311])
    >>> problem.eta = 1.5  # compiled once
    >>> value = problem.solve(solver="CLARABEL")
    """
    check_instance("market", market, Market)
    check_choice("formulation", formulation, Formulation)
    if eta is not None:
        check_positive("eta", eta)
    problem: FixedEtaProblem | FixedEta | ConvexProgram
    if eta is not None and market.standard_form is not None:
        problem = FixedEtaProblem(market, eta, formulation)  # type: ignore[arg-type]
    elif formulation != "primal":
        raise NotSupportedError(
            f"the {formulation} formulation is known for sums of Spread, Noise and Payments with "
            f"Cap and EtaRange, at a fixed eta; this is {shown(market)}; use formulation='primal'"
        )
    else:
        problem = ConvexProgram(market) if eta is None else FixedEta(market, eta)
    if not problem.is_dcp(dpp=True):  # type: ignore[call-arg]
        if problem.is_dcp():
            raise NotSupportedError(
                "at a fixed eta 1/eta is a parameter, which cannot be multiplied by a "
                "cvxpy.Parameter of the market; give its number or, where no payments are "
                "weighed, declare the market without eta"
            )
        raise CurvatureError(f"the {formulation} formulation is not convex by CVXPY's rules")
    return problem
