"""CVXPY declarations of the buyer's problem, and the line search for the papers' problem.

The papers' problem has three declarations at a fixed eta, with ``t = gamma*eta`` and the capped
simplex ``S = {a : sum a = 1, 0 <= a <= cap}``:

``primal``
    ``V(t) = min mu*||a|| + t*psi'a`` over S: a second-order cone program, as for any market.
``dual``
    ``max tau - cap*sum(s)`` subject to ``||(tau - t*psi - s)_+|| <= mu``, ``s >= 0``: the
    Karush-Kuhn-Tucker system of the primal. Without a cap ``s = 0`` and this is A, Eq. (13)-(14)
    with ``tau = lambda*eta``.
``projection``
    ``a(beta) = argmin 0.5*||a||^2 + beta*psi'a`` over S, a quadratic program: the primal optimum
    is the projection of ``-beta*psi`` on S, where ``t = beta*mu/||a(beta)||``. It is the best
    conditioned formulation of the three.

The variables are ``m*a``, because weights of order 1/m are too small for the absolute tolerances of
conic solvers. The line search projects a solver's weights on S, which gives an upper bound. Its
lower bounds are the cuts of :class:`Projections`, which are valid for any error of the solver.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, overload

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.eta_search import Evaluated, allocation_of, first_look, search_eta
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.simplex import (
    ROUNDING,
    check_feasible,
    feasible_limits,
    norm_minimiser,
    project_capped_simplex,
)
from convexmarket.allocation.solver_calls import SOLVED, check_solver, run_solver, solver_version
from convexmarket.allocation.views import (
    DeclaredMarket,
    FixedEta,
    MarketExpressions,
    inverse_of,
    numbers,
    spread_out,
)
from convexmarket.checks import check_choice, check_instance, check_positive, shown
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.market import Market, StandardForm

__all__ = ["ConvexProgram", "FixedEtaProblem", "Formulation", "declare", "line_search"]

Floats = NDArray[np.float64]
Formulation = Literal["primal", "dual", "projection"]

#: A problem is declared again if eta differs from its declared eta by more than this factor.
_SAME = 1e3


class FixedEtaProblem(DeclaredMarket):
    """The dual or the projection of the papers' problem at a fixed eta, made by :func:`declare`.

    The dual is scaled by a typical price at the declared eta. If ``unitless``, this price is also
    the unit of its value. The parameter of the projection is beta. The value of the projection is
    scaled by m^2 and differs from the market's objective.

    Attributes
    ----------
    formulation : str
        "dual" or "projection".
    parameter : cvxpy.Parameter
        Eta, or beta for the projection.
    """

    def __init__(
        self, market: Market, eta: float, formulation: Formulation, unitless: bool = False
    ) -> None:
        self.formulation, (restricted, sellers) = formulation, market.form.restricted()
        form = restricted.standard
        if form is None or form.mu == 0:
            raise NotSupportedError(
                f"the {formulation} formulation is known for sums of Spread (of weight mu > 0), "
                f"Noise and Payments with Cap and EtaRange, at a fixed eta; this is "
                f"{shown(market)}; use formulation='primal'"
            )
        self._form, m, psi = form, form.virtual_costs.size, form.virtual_costs
        dual, capped = formulation == "dual", form.max_weight < 1
        self.parameter = cp.Parameter(nonneg=True, name="eta" if dual else "beta")
        objective: cp.Minimize | cp.Maximize
        if dual:
            price = form.mu / np.sqrt(m) + form.gamma * eta * float(psi.mean())
            tau, margin = cp.Variable(name="scaled_tau"), cp.Variable(m, nonneg=True)
            caps = cp.Variable(m, nonneg=True) if capped else cp.Constant(np.zeros(m))
            payments = self.parameter * (form.gamma / price * psi)
            prices = margin + caps + payments >= tau  # multipliers proportional to the weights
            self._weights = spread_out(prices.dual_variables[0], sellers) / price
            value = (1.0 if unitless else price) * (tau - form.max_weight * cp.sum(caps))
            objective = cp.Maximize(value + form.sigma * inverse_of(self.parameter))
            items = [prices, cp.norm(margin, 2) <= form.mu / price]
        else:
            scaled = cp.Variable(m, bounds=[0, m * form.max_weight if capped else None])
            self._weights = spread_out(scaled, sellers) / m
            payments = (m * psi) @ (self.parameter * scaled)
            objective = cp.Minimize(0.5 * cp.sum_squares(scaled) + payments)
            items = [cp.sum(scaled) == m]
        super().__init__(objective, items)
        self.eta = eta

    @property
    def eta(self) -> float:
        """Total privacy. Setting this attribute changes the parameter without compiling again."""
        return self._eta

    @eta.setter
    def eta(self, eta: float) -> None:
        form, self._eta = self._form, check_positive("eta", eta)
        if not form.eta_low * (1 - ROUNDING) <= eta <= form.eta_high * (1 + ROUNDING):
            raise ParameterError(
                f"eta is {eta!r}, outside what EtaRange({form.eta_low:g}, {form.eta_high:g}) allows"
            )
        self.parameter.value = eta
        if self.formulation == "projection":
            t = form.gamma * eta
            self.parameter.value = t * np.linalg.norm(optimal_weights(form, t)) / form.mu


def optimal_weights(form: StandardForm, t: float) -> Floats:
    """Return the minimiser of ``mu*||a|| + t*psi'a`` over the capped simplex, for mu > 0."""
    limits = feasible_limits(np.full(form.virtual_costs.size, form.max_weight))
    return norm_minimiser(t * form.virtual_costs, form.mu, limits).weights


class ConvexProgram(DeclaredMarket):
    """A whole market as one :class:`cvxpy.Problem` in the weights and 1/eta.

    Made by :func:`convexmarket.declare` without an eta. A ``cvxpy.Parameter`` inside a piece, such
    as the amount of a :class:`Budget`, can be changed between solves without compiling again.

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
        view = MarketExpressions(market, 1.0 / eta_scale, parametric=True)
        if (program := view.program()) is None:
            raise NotSupportedError(
                f"{shown(market)} has a term or a bound in the guarantees eps = eta*a, which is "
                "not convex in the weights and 1/eta together; declare it at a fixed eta: "
                "declare(market, eta=...)"
            )
        self._weights, self._inverse = view.quantities.weights, view.quantities.inverse_eta
        super().__init__(*program)

    @property
    def eta(self) -> float:
        """Total privacy of the last solve."""
        return 1.0 / float(numbers(self._inverse, self.status))


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
        compiling again. By default, the market is declared as one convex program in the weights and
        1/eta; its pieces must not use the guarantees.
    formulation : {"primal", "dual", "projection"}
        Formulation at a fixed eta. Only markets of the papers' form (A, Eq. 11) have all three.

    Returns
    -------
    FixedEtaProblem, FixedEta or ConvexProgram
        A :class:`cvxpy.Problem` with the attributes ``weights`` and ``eta``. Its value is the
        market's objective, except for "projection". ``copy.deepcopy`` and pickle make independent
        problems. A problem must not be solved in several threads concurrently.

    Raises
    ------
    NotSupportedError
        If the market has no such formulation, or eta is given and would be multiplied by a
        parameter of the market.
    ParameterError, InfeasibleMarketError
        If an argument is out of its range, or no weights are feasible.

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
    feasible_limits(np.where(market.form.active, market.form.max_weight, 0.0))
    problem: FixedEtaProblem | FixedEta | ConvexProgram
    if formulation != "primal":
        problem = FixedEtaProblem(market, eta, formulation)  # type: ignore[arg-type]
    elif eta is not None:
        problem = FixedEta(MarketExpressions(market, parametric=True), eta)
        problem.eta = eta  # the setter checks the bounds on eta
    else:
        problem = ConvexProgram(market)
    if not problem.is_dcp(dpp=True):  # type: ignore[call-arg]
        raise NotSupportedError(
            "at a fixed eta 1/eta is a parameter, which cannot be multiplied by a cvxpy.Parameter "
            "of the market; give a number or, without weighted payments, declare the market "
            "without eta"
        )
    return problem


class _Solved(Projections):
    """Solver of a formulation at a given eta, whose lower bounds are those of projections."""

    def __init__(self, market: Market, formulation: Formulation, solver: str, options: Any) -> None:
        projectable = ProjectableForm.of(market.form)
        standard = market.standard_form and projectable and projectable[0].standard
        if projectable is None or standard is None:
            raise NotSupportedError(
                "the line search supports mu*Spread() + sigma*Noise() + gamma*Payments() with mu "
                "> 0 "
                f"and gamma > 0, under Cap and EtaRange; this market is {shown(market)}"
            )
        super().__init__(projectable[0])
        check_feasible(standard, standard.virtual_costs.size, standard.virtual_costs.size)
        self.standard, self.formulation = standard, formulation
        self.solver, self.options = check_solver(solver), options
        costs = Market(market.sellers, market.objective.without_noise, market.constraints)
        self.conic, self.active = Conic(costs, solver), projectable[1]
        self.problem: FixedEtaProblem | None = None

    def _declared(self, eta: float) -> FixedEtaProblem | FixedEta:
        """Return the problem without noise at eta, scaled to order one for absolute tolerances."""
        if self.formulation == "primal":
            return self.conic.declare(eta)
        if self.problem is None or not 1 / _SAME <= eta / self.problem.eta <= _SAME:
            self.problem = FixedEtaProblem(self.conic.market, eta, self.formulation, unitless=True)
        self.problem.eta = eta
        return self.problem

    def solve(self, eta: float) -> Evaluated:
        """Solve at eta, and compute a lower bound by the projection."""
        start, form, problem = time.perf_counter(), self.standard, self._declared(eta)
        status = run_solver(problem, self.solver, self.options)
        if status not in SOLVED:
            raise SolverError(
                f"{self.solver} {solver_version(self.solver)} failed on the {self.formulation} "
                f"formulation at eta = {eta:.10g} (status {status}); try "
                "formulation='projection' or another solver"
            )
        cut, raw = super().solve(eta).cut, problem.weights[self.active]
        # Remove the tiny weights of interior-point methods, unless all sellers are needed.
        cheap = eta * cut.slopes < cut.price
        if np.count_nonzero(cheap) * form.max_weight >= 1:
            raw = np.where(cheap, raw, -np.inf)
        weights = project_capped_simplex(raw, form.max_weight)
        objective, seconds = form.objective(weights, eta), time.perf_counter() - start
        self.records[-1] = SolveRecord(eta, objective, cut(eta), status, seconds)
        return Evaluated(weights, eta, objective, cut, objective)


def line_search(
    market: Market,
    formulation: Formulation = "primal",
    solver: str = "CLARABEL",
    solver_options: Mapping[str, Any] | None = None,
    gap: float = 1e-6,
    start: float | None = None,
    *limits: Any,
) -> Allocation:
    """Allocate privacy by a formulation of the papers' problem; see :func:`search_eta`."""
    runner = _Solved(market, formulation, solver, solver_options)
    first = first_look(runner.form, start)
    best = search_eta(runner, first, gap, *limits)
    allocation = allocation_of(*best, runner, market, "line_search", gap)
    how: Any = {"solver": runner.solver, "solver_version": solver_version(runner.solver)}
    return replace(allocation, formulation=formulation, **how)
