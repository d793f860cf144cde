"""Any market, certified: one convex program for a fixed eta, compiled once, and a search over eta.

The search is branch and bound (:mod:`convexmarket.allocation.eta_search`); a cut of every solve
bounds the optimal value at every eta (:mod:`convexmarket.allocation.cuts`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.bounds import unattained_noise
from convexmarket.allocation.cuts import Linearizer
from convexmarket.allocation.eta_search import (
    FOR_TRACES,
    Evaluated,
    check_gap,
    first_look,
    move_inside,
    search_eta,
)
from convexmarket.allocation.region import (
    RegionFinder,
    imbalance,
    mend,
    violations,
)
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.simplex import ROUNDING
from convexmarket.allocation.solvers import (
    check_solver,
    run_solver,
    solver_version,
)
from convexmarket.allocation.views import JointView, Subproblem
from convexmarket.errors import SolverError
from convexmarket.market import Market

__all__ = ["Compiled", "branch_and_bound"]

Floats = NDArray[np.float64]

#: Weights below this, relative to the average, may be what interior-point methods leave.
_TRACE = 1e-5
#: Factor by which parameters may change what is natural for eta before it is scaled anew.
_SAME_SCALE = 1e3
#: A bound this much above the objective, relatively, is not the work of rounding.
_CONTRADICTION = 1e-6


class Compiled:
    """A market compiled for a solver, and solved as often as its parameters change.

    Parameters
    ----------
    market : Market
    solver : str
    options : mapping, optional
        Of the solver.
    parameters : mapping from id to cvxpy.Parameter
        What stands in place of a parameter in the market's pieces; others keep their value now.
    """

    def __init__(
        self,
        market: Market,
        solver: str = "CLARABEL",
        options: Mapping[str, Any] | None = None,
        parameters: Mapping[int, cp.Parameter] | None = None,
    ) -> None:
        self.market = market
        self.solver = check_solver(solver)
        self.version = solver_version(self.solver)
        self.options = options
        self._parameters = parameters or {}
        self._compile()

    def _compile(self) -> None:
        self._natural = self.market.form.natural_eta
        self.view = JointView(self.market, 1.0 / self._natural, self._parameters)
        self.finder = RegionFinder(self.view, self.solver)
        self.linearizer = Linearizer(self.view)
        self.problem: Subproblem | None = None

    def refresh(self) -> None:
        """Find the region anew, in other units where parameters have changed them far."""
        form = self.market.form
        same_scale = 1 / _SAME_SCALE < form.natural_eta / self._natural < _SAME_SCALE
        if not (same_scale and np.array_equal(form.active, self.view.active)):
            self._compile()
        self.records: list[SolveRecord] = []
        self.region = self.finder.find()

    def declare(self, eta: float, joint: bool = False) -> Subproblem:
        """Return the problem at an eta, or over all eta, in units of its objective there."""
        if self.problem is None:
            even = self.view.active / np.count_nonzero(self.view.active)
            scale = abs(self.view.value(even, eta))
            scale = scale if 0 < scale < np.inf else 1.0
            fixed = None if joint else eta
            self.problem = Subproblem(self.view, self.linearizer.kept, scale, fixed)
        return self.problem

    def run(self, problem: Subproblem, where: str) -> str:
        """Solve a problem, or say who failed; return the status."""
        status = run_solver(problem, self.solver, self.options)
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            raise SolverError(
                f"{self.solver} {self.version} failed {where} (status {status}); try "
                "another solver, or bound eta with EtaRange(low, high)"
            )
        return status

    def solve(self, eta: float) -> Evaluated:
        """Return a feasible point near eta and the cut of its multipliers."""
        start = time.perf_counter()
        problem = self.declare(eta)
        problem.eta = eta
        status = self.run(problem, f"at eta = {eta:.10g}")
        raw = problem.weights
        cut = self.linearizer.cut(raw, eta, *problem.proof(), polish=True)
        weights, near = mend(self.view, raw, eta, self.region.inside)
        objective = self.view.value(weights, near)
        seconds = time.perf_counter() - start
        self.records.append(SolveRecord(near, objective, cut(near), status, seconds))
        return Evaluated(weights, near, objective, cut)

    def search(
        self,
        gap: float,
        max_solves: int,
        start: float | None,
        progress: Callable[[SolveRecord], None] | None,
    ) -> Allocation:
        """Search over eta; see :func:`branch_and_bound`."""
        began = time.perf_counter()
        self.refresh()
        if not self.view.has_noise and self.region.low == 0:
            raise unattained_noise()
        usual = _first_eta(self.market, self.view)
        self.declare(move_inside(usual, self.region))
        best, bound = search_eta(self, first_look(usual, start), gap, max_solves, progress)
        return self.finish(best, bound, gap, began, "branch_and_bound", "primal")

    def finish(
        self, best: Evaluated, bound: float, gap: float, began: float, method: str, formulation: str
    ) -> Allocation:
        """Return the allocation that the best point and a lower bound amount to."""
        weights, eta, objective = self._without_traces(best, gap)
        if np.isnan(bound):  # the numbers of the market are too far apart for a bound
            bound = -np.inf
        if bound > objective + _CONTRADICTION * abs(objective):
            raise SolverError(
                f"the lower bound {bound:.10g} lies above the objective {objective:.10g}, which "
                "cannot be: the solver's multipliers or a simplex_minimum or conjugate of your own "
                "is wrong; try another solver"
            )
        ends = {"eta_low": self.market.form.eta_low, "eta_high": self.market.form.eta_high}
        for end in ends.values():
            if not 0 < end < np.inf:
                continue
            feasible = np.max(violations(self.view, weights, end), initial=0.0) <= ROUNDING
            if feasible and self.view.value(weights, end) <= objective:
                eta, objective = end, self.view.value(weights, end)
        found = Allocation(
            weights=weights,
            eta=eta,
            objective=objective,
            lower_bound=min(bound, objective),  # the point may be a solver's error outside
            multiplier=best.cut.price / eta,
            method=method,
            seconds=time.perf_counter() - began,
            formulation=formulation,
            solver=self.solver,
            solver_version=self.version,
            tolerance=gap,
            solves=tuple(self.records),
            binding=tuple(name for name, end in ends.items() if eta == end),
        )
        found.warn_if_loose(
            gap, "max_solves are used up, or the solver is not accurate enough; try another one"
        )
        return found

    def _without_traces(self, best: Evaluated, tolerance: float) -> tuple[Floats, float, float]:
        """Return the point without the traces of interior-point methods, unless that is worse.

        What it may cost, relative to the objective, is a small share of ``tolerance``.
        """
        view, weights, eta = self.view, best.weights, best.eta
        objective = view.value(weights, eta)
        kept = np.where(weights * view.active.size < _TRACE, 0.0, weights)
        if np.array_equal(kept, weights):
            return weights, eta, objective
        try:
            cleaned, near = mend(view, kept, eta, self.finder.inside(kept > 0))
        except SolverError:
            return weights, eta, objective
        value = view.value(cleaned, near)
        dearer = value > objective + FOR_TRACES * tolerance * abs(objective)
        outside = [
            max(np.max(violations(view, *point), initial=0.0), imbalance(view, *point))
            for point in ((cleaned, near), (weights, eta))
        ]
        if dearer or outside[0] > max(outside[1], ROUNDING):
            return weights, eta, objective
        return cleaned, near, value


def branch_and_bound(
    market: Market,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    max_solves: int = 200,
    solver_options: Mapping[str, Any] | None = None,
    start: float | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy in any market, with a certificate; see :func:`allocate`.

    The gap may exceed the one asked for where ``max_solves`` or the accuracy of the solver does not
    allow it; the bound is valid all the same.
    """
    check_gap(gap, max_solves)
    return Compiled(market, solver, solver_options).search(gap, max_solves, start, progress)


def _first_eta(market: Market, view: JointView) -> float:
    """Return the eta at which noise and payments balance if all sellers weigh the same."""
    noise, bills = market.form.sigma, market.form.bills
    costs = market.form.virtual_costs[view.active]
    m, mean = view.active.size, float(costs.mean())
    if not (noise > 0 and bills and mean > 0):
        return float(m)

    def excess(log_eta: float) -> float:
        share = np.exp(log_eta) / m
        with np.errstate(over="ignore", divide="ignore"):
            bill = sum(weight * m * mean * float(cost(share)) for weight, cost in bills)
            return float(np.clip(np.log(bill) + log_eta - np.log(noise), -1e3, 1e3))

    return float(np.exp(brentq(excess, -60.0, 60.0, xtol=1e-2)))
