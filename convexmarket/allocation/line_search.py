"""The papers' problem with a CVXPY solver for each eta, and a certificate independent of solvers.

With ``t = gamma*eta`` the buyer minimises ``V(t) + sigma/eta``, where ``V(t) = min mu*||a|| +
t*psi'a`` over the capped simplex is concave and nondecreasing. The sum is neither convex nor
unimodal. The weights of a solver are made feasible, which gives the upper bound at their best eta.
The lower bound is V at the eta of each solve by its dual, which bounds V everywhere by chords. An
error of a solver widens the gap, but the certificate remains valid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, allocation_of, search_eta
from convexmarket.allocation.exact_solver import check_noise, unconstrained_eta
from convexmarket.allocation.formulations import FixedEtaProblem, Formulation, marginal_price
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.solver_calls import SOLVED, check_solver, run_solver, solver_version
from convexmarket.checks import shown
from convexmarket.errors import NotSupportedError, SolverError
from convexmarket.market import Market, StandardForm
from convexmarket.sellers import Sellers

__all__ = ["line_search"]

Floats = NDArray[np.float64]


class _Runner(Projections):
    """Solver of one of the declared formulations, compiled once, at given eta."""

    def __init__(
        self,
        market: Market,
        formulation: Formulation,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        numbers, self.sellers = market.form.restricted()
        projectable = ProjectableForm.of(market.form)
        if numbers.standard is None or projectable is None:
            raise NotSupportedError(
                "the line search takes mu*Spread() + sigma*Noise() + gamma*Payments() with mu > 0 "
                f"and gamma > 0, under Cap and EtaRange; this market is {shown(market)}"
            )
        super().__init__(projectable[0])
        self.standard = numbers.standard
        check_noise(self.standard)
        self.solver, self.options = check_solver(solver), options
        lowest = self.standard.gamma * float(np.clip(self.first(), *self.ends))
        dimensionless, self.unit = _dimensionless(self.standard, lowest)
        self.problem = FixedEtaProblem(dimensionless, lowest * self.unit, formulation)

    def solve(self, eta: float) -> Evaluated:
        """Solve at eta, and bound the optimal value at every eta."""
        start, form = time.perf_counter(), self.standard
        self.problem.eta = form.gamma * eta * self.unit
        weights = self._weights(eta)
        best = unconstrained_eta(form, float(form.virtual_costs @ weights))
        best = float(np.clip(best, *self.ends))
        best = best if 0 < best < np.inf else eta
        cut = KeptSpreadCut(
            const=0.0,
            noise=form.sigma,
            costs=np.zeros(weights.size),
            slopes=form.gamma * form.virtual_costs,
            spread=lambda costs: self.form.minimum(form.mu, costs),
            price=marginal_price(form, weights, form.gamma * best),
        )
        status, seconds = str(self.problem.status), time.perf_counter() - start
        here = form.objective(weights, eta)
        self.records.append(SolveRecord(eta, here, cut(eta), status, seconds))
        objective = form.objective(weights, best)
        return Evaluated(weights, best, objective, cut, objective)

    def _weights(self, eta: float) -> Floats:
        """Run the solver, and return its weights made feasible."""
        status = run_solver(self.problem, self.solver, self.options)
        if status in SOLVED:
            try:
                return self.problem.weights
            except SolverError as error:
                status = f"{status}, but {error}"
        formulation, remedy = self.problem.formulation, "another solver"
        if formulation != "projection":
            remedy = f"formulation='projection', the best conditioned one, or {remedy}"
        raise SolverError(
            f"{self.solver} {solver_version(self.solver)} failed on the {formulation} formulation "
            f"at eta = {eta:.10g} (status {status}); try {remedy}"
        )


def _dimensionless(form: StandardForm, lowest_t: float) -> tuple[Market, float]:
    """Return the market without units and noise, and its eta per t of the given market.

    Virtual costs of sellers who are too expensive to sell are lowered to improve conditioning: to
    twice the bound on the marginal price, which is t times the cost of the ``ceil(1/cap)``-th
    cheapest seller, plus a seller's largest share of the slope of the spread.
    """
    psi, m = form.virtual_costs, form.virtual_costs.size
    n = min(int(np.ceil(1.0 / form.max_weight)), m)
    steepest = form.mu * min(1.0, form.max_weight * np.sqrt(m))
    costs = np.minimum(psi, 2.0 * (np.partition(psi, n - 1)[n - 1] + steepest / lowest_t))
    cost = float(costs.mean()) or 1.0
    money = form.mu / np.sqrt(m) + lowest_t * cost
    sellers = Sellers(virtual_costs=costs / cost)
    cap = max(1.0, form.max_weight * m) if form.max_weight < 1 else None
    market = Market.standard(sellers, mu=form.mu / money, sigma=0.0, gamma=1.0, cap=cap)
    return market, cost / money


def line_search(
    market: Market,
    formulation: Formulation = "primal",
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    max_solves: int = 200,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
    time_limit: float = np.inf,
) -> Allocation:
    """Allocate privacy in the papers' problem with a solver; see :func:`allocate`."""
    start, runner = time.perf_counter(), _Runner(market, formulation, solver, solver_options)
    result = search_eta(runner, runner.first(), gap, max_solves, progress, time_limit)
    settings = {"formulation": formulation, "solver": runner.solver}
    settings["solver_version"] = solver_version(runner.solver)
    return allocation_of(result, runner, market, "line_search", gap, start, **settings)
