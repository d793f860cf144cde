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

from convexmarket.allocation.bounds import check_noise, unconstrained_eta
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, check_gap, search_eta
from convexmarket.allocation.formulations import (
    FixedEtaProblem,
    Formulation,
    embed,
    marginal_price,
    papers_form,
)
from convexmarket.allocation.projections import ProjectableForm
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.simplex import cheapest_purchase
from convexmarket.allocation.solvers import SOLVED, check_solver, run_solver, solver_version
from convexmarket.errors import SolverError
from convexmarket.market import Market, StandardForm
from convexmarket.sellers import Sellers

__all__ = ["line_search"]

Floats = NDArray[np.float64]


class _Runner:
    """Solver of one of the declared formulations, compiled once, at given eta.

    The solver gets the market in dimensionless units: virtual costs relative to their mean, money
    relative to the size of V.
    """

    def __init__(
        self,
        market: Market,
        formulation: Formulation,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.form, self.sellers = papers_form(market)
        form = self.form
        check_noise(form)
        self.ends = form.eta_low, form.eta_high
        best = self._best_eta(float(form.virtual_costs.mean()))
        self.first = best if 0 < best < np.inf else max(1.0, self.ends[0])
        self.solver, self.options = check_solver(solver), options
        self.version = solver_version(self.solver)
        lowest = form.gamma * self.first
        dimensionless, self.unit = _dimensionless(form, lowest)
        self.problem = FixedEtaProblem(dimensionless, lowest * self.unit, formulation)
        self.projectable = ProjectableForm.of(market.form) if form.mu else None
        self.records: list[SolveRecord] = []

    def _best_eta(self, cost: float) -> float:
        return float(np.clip(unconstrained_eta(self.form, cost), *self.ends))

    def _least(self, costs: Floats) -> float:
        if self.projectable is None:
            return cheapest_purchase(costs, self.form.max_weight)
        return self.projectable[0].minimum(self.form.mu, costs)

    def solve(self, eta: float) -> Evaluated:
        """Solve at eta, and bound the optimal value at every eta."""
        start, form = time.perf_counter(), self.form
        self.problem.eta = form.gamma * eta * self.unit
        weights = self._weights(eta)
        best = self._best_eta(float(form.virtual_costs @ weights))
        best = best if 0 < best < np.inf else eta
        cut = KeptSpreadCut(
            const=0.0,
            noise=form.sigma,
            costs=np.zeros(weights.size),
            slopes=form.gamma * form.virtual_costs,
            spread=self._least,
            price=marginal_price(form, weights, form.gamma * best),
        )
        seconds, here = time.perf_counter() - start, form.objective(weights, eta)
        self.records.append(SolveRecord(eta, here, cut(eta), str(self.problem.status), seconds))
        objective = form.objective(weights, best)
        return Evaluated(weights, best, objective, cut, objective or 1.0)

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
            f"{self.solver} {self.version} failed on the {formulation} formulation at "
            f"eta = {eta:.10g} (status {status}); try {remedy}"
        )


def _dimensionless(form: StandardForm, lowest_t: float) -> tuple[Market, float]:
    """Return the market without units and noise, and its eta per t of the given market.

    Virtual costs of sellers who are too expensive to sell are lowered to improve conditioning. It
    takes ``n = ceil(1/cap)`` sellers to carry all the weight, and a seller's share of ``||a||``
    adds at most ``mu*min(1, cap*sqrt(m))`` to its price. So the marginal price at t is at most that
    plus t times the n-th lowest cost. Costs are limited to twice as much, to avoid ties.
    """
    psi, m = form.virtual_costs, form.virtual_costs.size
    n = min(int(np.ceil(1.0 / form.max_weight)), m)
    steepest = form.mu * min(1.0, form.max_weight * np.sqrt(m))
    costs = np.minimum(psi, 2.0 * (np.partition(psi, n - 1)[n - 1] + steepest / lowest_t))
    cost = float(costs.mean()) or 1.0
    money = form.mu / np.sqrt(m) + lowest_t * cost
    market = Market.standard(
        Sellers(virtual_costs=costs / cost),
        mu=form.mu / money,
        sigma=0.0,
        gamma=1.0,
        cap=max(1.0, form.max_weight * m) if form.max_weight < 1 else None,
    )
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
    """Allocate privacy in the papers' problem, with a CVXPY solver for each eta.

    See :func:`allocate`, and for the formulations :mod:`convexmarket.allocation.formulations`.
    Inaccurate solutions are used and recorded.
    """
    start = time.perf_counter()
    check_gap(gap, max_solves)
    runner = _Runner(market, formulation, solver, solver_options)
    best, bound = search_eta(runner, runner.first, gap, max_solves, progress, time_limit)
    ends = zip(("eta_low", "eta_high"), runner.ends, strict=True)
    return Allocation(
        weights=embed(best.weights, runner.sellers),
        eta=best.eta,
        objective=best.objective,
        lower_bound=bound,
        multiplier=best.cut.price / best.eta,
        method="line_search",
        seconds=time.perf_counter() - start,
        formulation=formulation,
        solver=runner.solver,
        solver_version=runner.version,
        tolerance=gap,
        solves=tuple(runner.records),
        binding=tuple(name for name, end in ends if best.eta == end),
    )
