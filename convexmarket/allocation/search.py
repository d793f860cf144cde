"""The papers' problem with a CVXPY solver for each eta, and a certificate that believes no solver.

With ``t = gamma*eta`` the buyer minimises ``V(t) + sigma/eta``, where ``V(t) = min mu*||a|| +
t*psi'a`` over the capped simplex is concave and nondecreasing. The sum is neither convex nor
unimodal, so neither a grid nor a golden-section search can be trusted. But a lower bound on V at a
few points bounds it everywhere, as V lies above its chords, and that is what the search over eta
(:mod:`convexmarket.allocation.eta_search`) needs.

Nothing here believes a solver. Its weights are made feasible, which gives the upper bound, and
every vector y with ``||y|| <= mu`` gives ``V(t) >= min (y + t*psi)'a``, a linear program over the
capped simplex solved by sorting, which gives the lower one, at every t. A wrong answer of a solver
widens the gap; it cannot make the certificate wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounds import (
    best_eta,
    best_lower_bound,
    eta_range,
    unattained,
    unconstrained_eta,
)
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, check_gap, search_eta
from convexmarket.allocation.formulations import (
    FixedEtaProblem,
    declare_papers,
    embed,
    marginal_price,
    papers_form,
)
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.solvers import (
    check_solver,
    run_solver,
    solver_version,
)
from convexmarket.errors import SolverError
from convexmarket.market import Market, StandardForm
from convexmarket.sellers import Sellers

__all__ = ["assemble", "certify_weights", "line_search"]

#: Solves that get no closer after which the accuracy of the solver is the limit.
_PATIENCE = 12


def certify_weights(
    form: StandardForm, eta: float, weights: NDArray[np.float64], status: str, seconds: float
) -> tuple[Evaluated, SolveRecord]:
    """Return what feasible weights found at an eta prove, however they were found.

    They are judged at their own best eta; no privacy, or all of it, is none: then at this one.
    """
    best = best_eta(form, float(form.virtual_costs @ weights))
    best = best if 0 < best < np.inf else eta
    cut = KeptSpreadCut(
        const=0.0,
        noise=form.sigma,
        costs=np.zeros(weights.size),
        slopes=form.gamma * form.virtual_costs,
        spread=lambda costs: best_lower_bound(form, costs, weights),
        price=marginal_price(form, weights, form.gamma * best),
    )
    record = SolveRecord(eta, form.objective(weights, eta), cut(eta), status, seconds)
    objective = form.objective(weights, best)
    return Evaluated(weights, best, objective, cut, objective or 1.0), record


class _Runner:
    """Solves one of the declared formulations, compiled once, at one eta after the other.

    The problem given to the solver is the market in dimensionless units: virtual costs relative
    to their mean, money relative to the size of V. A market's currency does not change its
    answer, but it would change what a solver's absolute tolerance means.
    """

    def __init__(
        self,
        form: StandardForm,
        ends: tuple[float, float],
        formulation: str,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.form, self.ends = form, ends
        self.solver, self.version, self.options = solver, solver_version(solver), options
        lowest = form.gamma * ends[0]
        market, self.unit = _dimensionless(form, lowest)
        self.problem = declare_papers(market, lowest * self.unit, formulation)
        self.records: list[SolveRecord] = []

    def solve(self, eta: float) -> Evaluated:
        """Solve at eta and certify what came back."""
        start = time.perf_counter()
        self.problem.eta = self.form.gamma * eta * self.unit
        weights = _solve(self.problem, self.solver, self.version, eta, self.options)
        seconds = time.perf_counter() - start
        found = certify_weights(self.form, eta, weights, self.problem.status, seconds)
        self.records.append(found[1])
        return found[0]


def _dimensionless(form: StandardForm, lowest_t: float) -> tuple[Market, float]:
    """Return the market without units and noise, and its eta per t of the given market."""
    m = form.virtual_costs.size
    costs = _relevant_costs(form, lowest_t)
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


def _relevant_costs(form: StandardForm, lowest_t: float) -> NDArray[np.float64]:
    """Return virtual costs, lowered where a seller is too dear to be bought from anyway.

    It takes ``n = ceil(1/cap)`` sellers to carry all the weight, and a seller's share of ``||a||``
    adds at most ``mu*min(1, cap*sqrt(m))`` to its price. So the marginal price at t is at most
    that plus t times the n-th lowest cost, and a seller whose cost alone exceeds it gets nothing;
    how far it exceeds it does not matter, except to the conditioning of a solver's matrices.
    Twice as much keeps such sellers clear of a tie.
    """
    psi, m = form.virtual_costs, form.virtual_costs.size
    n = min(int(np.ceil(1.0 / form.max_weight)), m)
    dearest = np.partition(psi, n - 1)[n - 1]
    share = form.mu * min(1.0, form.max_weight * np.sqrt(m))
    ceiling = 2 * (dearest + share / lowest_t)
    return np.minimum(psi, ceiling) if ceiling > 0 else psi


def _solve(
    problem: FixedEtaProblem,
    solver: str,
    version: str,
    eta: float,
    options: Mapping[str, Any] | None,
) -> NDArray[np.float64]:
    """Return the solver's weights made feasible, or say who failed, how, and what else to try."""
    status = run_solver(problem, solver, options)
    if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
        try:
            return problem.weights
        except SolverError as error:
            status = f"{status}, but {error}"
    remedy = (
        "another solver"
        if problem.formulation == "projection"
        else "formulation='projection', the best conditioned one, or another solver"
    )
    raise SolverError(
        f"{solver} {version} failed on the {problem.formulation} formulation at "
        f"eta = {eta:.10g} (status {status}); try {remedy}"
    )


def line_search(
    market: Market,
    formulation: str = "primal",
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    max_solves: int = 200,
    solver_options: Mapping[str, Any] | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
    time_limit: float = np.inf,
) -> Allocation:
    """Allocate privacy in the papers' problem, with a CVXPY solver for each eta.

    See :func:`allocate`, and for the formulations :mod:`convexmarket.allocation.formulations`. A
    solver's status of "optimal_inaccurate" is used and recorded.
    """
    start = time.perf_counter()
    check_gap(gap, max_solves)
    solver = check_solver(solver)
    form, sellers = papers_form(market)
    low, high, limit = eta_range(form)
    runner = _Runner(form, (low, high), formulation, solver, solver_options)
    best, bound = search_eta(runner, low, gap, max_solves, progress, _PATIENCE, time_limit)
    if best.objective >= limit:
        raise unattained(limit)
    return assemble(
        form,
        sellers,
        best,
        min(bound, limit),
        tuple(runner.records),
        method="line_search",
        seconds=time.perf_counter() - start,
        formulation=formulation,
        solver=solver,
        solver_version=runner.version,
        tolerance=gap,
    )


def assemble(
    form: StandardForm,
    sellers: NDArray[np.bool_],
    best: Evaluated,
    lower_bound: float,
    records: tuple[SolveRecord, ...],
    **provenance: Any,
) -> Allocation:
    """Return the allocation that the best point and a lower bound amount to."""
    unconstrained = unconstrained_eta(form, float(form.virtual_costs @ best.weights))
    beyond = {
        "eta_low": unconstrained < form.eta_low,
        "eta_high": unconstrained > form.eta_high,
    }
    return Allocation(
        weights=embed(best.weights, sellers),
        eta=best.eta,
        objective=best.objective,
        lower_bound=lower_bound,
        multiplier=best.cut.price / best.eta,
        solves=records,
        binding=tuple(end for end, binds in beyond.items() if binds),
        **provenance,
    )
