"""The search over eta that ends with a certificate.

With ``t = gamma*eta`` and ``c = sigma*gamma`` the buyer minimises ``V(t) + c/t`` over ``t > 0``,
where ``V(t) = min mu*||a|| + t*psi'a`` over the capped simplex is concave and nondecreasing. The
sum is neither convex nor unimodal, so neither a grid nor a golden-section search can be trusted.
But a lower bound on V at a few points bounds it everywhere: between two points V lies above their
chord, and beyond the last one its slope is at least the cost of the cheapest purchase. Chord plus
``c/t`` has its minimum in closed form. Evaluating V where this bound is lowest raises the bound,
until it meets the best point found.

Nothing here believes a solver. Its weights are made feasible, which gives the upper bound, and
every vector y with ``||y|| <= mu`` gives ``V(t) >= min (y + t*psi)'a``, a linear program over the
capped simplex solved by sorting, which gives the lower one. A wrong answer of a solver widens the
gap; it cannot make the certificate wrong.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounds import (
    Candidate,
    OuterProblem,
    best_eta,
    best_lower_bound,
    lowest_bound,
    outer_problem,
    unattained,
    unconstrained_eta,
)
from convexmarket.allocation.eta_search import check_gap
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

__all__ = [
    "Evaluation",
    "Evaluator",
    "Outcome",
    "assemble",
    "certify_weights",
    "line_search",
    "minimise_certified",
    "to_record",
]


# ------------------------------------------------------------- all eta: chords of V


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one solve at a fixed t has proved.

    Attributes
    ----------
    t : float
        gamma*eta.
    upper, lower : float
        Bounds on V(t).
    weights : ndarray, shape (m,)
        Feasible weights that attain ``upper``.
    eta, objective : float
        The best total privacy for these weights, and the market's objective there.
    status : str
    seconds : float
    """

    t: float
    upper: float
    lower: float
    weights: NDArray[np.float64]
    eta: float
    objective: float
    status: str
    seconds: float


class Evaluator(Protocol):
    """Whatever can bound V at a point."""

    def evaluate(self, t: float) -> Evaluation:
        """Return bounds on V near t; the evaluation says where exactly."""
        ...


def certify_weights(
    form: StandardForm, t: float, weights: NDArray[np.float64], status: str, seconds: float
) -> Evaluation:
    """Return what feasible weights prove about V(t), whoever proposes them."""
    upper = form.mu * float(np.linalg.norm(weights)) + t * float(form.virtual_costs @ weights)
    eta = best_eta(form, weights)
    if not 0 < eta < np.inf:  # no privacy is too much: stay where we are
        eta = t / form.gamma
    return Evaluation(
        t=t,
        upper=upper,
        lower=best_lower_bound(form, t, weights),
        weights=weights,
        eta=eta,
        objective=form.objective(weights, eta),
        status=status,
        seconds=seconds,
    )


@dataclass(frozen=True)
class Outcome:
    """What a search found: its best evaluation, the bound it proved, and every solve."""

    best: Evaluation
    lower_bound: float
    records: tuple[SolveRecord, ...]


def minimise_certified(
    outer: OuterProblem,
    form: StandardForm,
    evaluator: Evaluator,
    gap: float,
    max_solves: int,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Outcome:
    """Evaluate V where its bound is lowest until the bound meets the best point found.

    Ends early, with the gap reached so far, when the solver's accuracy rather than the distance
    between points limits the bound.
    """
    points: list[tuple[float, float]] = []
    records: list[SolveRecord] = []
    distances: list[float] = []
    best: Evaluation | None = None
    t: float | None = outer.low
    while t is not None:
        evaluation = evaluator.evaluate(t)
        points.append((evaluation.t, evaluation.lower))
        records.append(to_record(evaluation, form))
        if progress is not None:
            progress(records[-1])
        if best is None or evaluation.objective < best.objective:
            best = evaluation
        candidate = lowest_bound(outer, points)
        distances.append(best.objective - candidate.bound)
        settled = distances[-1] <= gap * abs(best.objective)
        hopeless = candidate.bound >= outer.limit
        if settled or hopeless or _stalled(distances) or len(records) >= max_solves:
            break
        t = _next_point(outer, points, candidate, best.objective)
    assert best is not None
    if best.objective >= outer.limit:
        raise unattained(outer.limit)
    return Outcome(best, min(candidate.bound, outer.limit), tuple(records))


def _stalled(distances: Sequence[float], patience: int = 12) -> bool:
    """Return whether the distance to the bound has hardly shrunk over the last solves."""
    return len(distances) > patience and distances[-1] > 0.9 * distances[-1 - patience]


def to_record(evaluation: Evaluation, form: StandardForm) -> SolveRecord:
    """Return an evaluation as bounds on the whole objective at its eta, without the weights."""
    eta = evaluation.t / form.gamma
    return SolveRecord(
        eta=eta,
        upper=evaluation.upper + form.sigma / eta,
        lower=evaluation.lower + form.sigma / eta,
        status=evaluation.status,
        seconds=evaluation.seconds,
    )


def _next_point(
    outer: OuterProblem,
    points: Sequence[tuple[float, float]],
    candidate: Candidate,
    best: float,
) -> float | None:
    """Return where to evaluate V next; None if no evaluation would raise the bound.

    The candidate itself, unless it nearly coincides with a point that has been evaluated: then
    the bound there is limited by that evaluation, or the interval is better halved.
    """
    evaluated = [t for t, _ in points]
    if candidate.right == np.inf:  # beyond the last point: do not leap into the unknown
        last = max(evaluated)
        return min(candidate.t, max(4 * last, last * (last / outer.low))) if last > 0 else None
    left, right = max(candidate.left, outer.low), min(candidate.right, outer.high)
    margin = 1e-3 * (right - left)
    near = [t for t in (left, right) if abs(candidate.t - t) <= margin and t in evaluated]
    if not near:
        return candidate.t
    value = max(lower for t, lower in points if t == near[0])
    floor = value + outer.noise / near[0]  # the bound there, however finely we look
    if floor - candidate.bound <= 0.1 * (best - candidate.bound):
        return None
    middle = float(np.sqrt(left * right)) if left > 0 else right / 2
    return middle if left < middle < right else None


class _SolverEvaluator:
    """Evaluates V by solving one of the declared formulations, compiled once.

    The problem given to the solver is the market in dimensionless units: virtual costs relative
    to their mean, money relative to the size of V. A market's currency does not change its
    answer, but it would change what a solver's absolute tolerance means.
    """

    def __init__(
        self,
        form: StandardForm,
        outer: OuterProblem,
        formulation: str,
        solver: str,
        options: Mapping[str, Any],
    ) -> None:
        self.form = form
        self.solver = solver
        self.version = solver_version(solver)
        self.options = options
        market, self.unit = _dimensionless(form, outer.low)
        self.problem = declare_papers(market, outer.low * self.unit, formulation)

    def evaluate(self, t: float) -> Evaluation:
        """Solve at t and certify what came back."""
        start = time.perf_counter()
        self.problem.eta = t * self.unit
        eta = t / self.form.gamma
        weights = _solve(self.problem, self.solver, self.version, eta, self.options)
        seconds = time.perf_counter() - start
        return certify_weights(self.form, t, weights, self.problem.status, seconds)


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
) -> Allocation:
    """Allocate privacy by a certified search over eta, with a CVXPY solver for each eta.

    Parameters
    ----------
    market : Market
        Of the papers' form (A, Eq. 11).
    formulation : {"primal", "dual", "projection"}
        Which declaration of the fixed-eta problem to solve; see
        :mod:`convexmarket.allocation.formulations`.
    solver : str
        One of ``cvxpy.installed_solvers()`` that can solve it.
    gap : float
        Relative distance between objective and lower bound to stop at.
    max_solves : int
        At most this many solves.
    solver_options : mapping, optional
        Passed on to the solver. Where left out, SCS and OSQP get tolerances of 1e-8 in place of
        their own.
    progress : callable, optional
        Called with each :class:`SolveRecord` as it is made.

    Returns
    -------
    Allocation
        Its ``gap`` may exceed the one asked for where ``max_solves`` or the accuracy of the
        solver does not allow it; the bound is valid all the same.

    Raises
    ------
    NotSupportedError
        If the market, the formulation or the solver does not fit.
    UnattainedOptimumError
        If the infimum is at eta = 0 or eta = infinity.
    SolverError
        If the solver fails; a status of "optimal_inaccurate" is used and recorded.
    """
    start = time.perf_counter()
    check_gap(gap, max_solves)
    solver = check_solver(solver)
    form, sellers = papers_form(market)
    outer = outer_problem(form)
    evaluator = _SolverEvaluator(form, outer, formulation, solver, solver_options or {})
    outcome = minimise_certified(outer, form, evaluator, gap, max_solves, progress)
    return assemble(
        form,
        sellers,
        outcome.best,
        outcome.lower_bound,
        outcome.records,
        method="line_search",
        seconds=time.perf_counter() - start,
        formulation=formulation,
        solver=solver,
        solver_version=evaluator.version,
        tolerance=gap,
    )


def assemble(
    form: StandardForm,
    sellers: NDArray[np.bool_],
    best: Evaluation,
    lower_bound: float,
    records: tuple[SolveRecord, ...],
    **provenance: Any,
) -> Allocation:
    """Return the allocation that the best evaluation and a lower bound amount to."""
    t = form.gamma * best.eta
    return Allocation(
        weights=embed(best.weights, sellers),
        eta=best.eta,
        objective=best.objective,
        lower_bound=lower_bound,
        multiplier=marginal_price(form, best.weights, t) / best.eta,
        solves=records,
        binding=_binding(form, best.weights),
        **provenance,
    )


def _binding(form: StandardForm, weights: NDArray[np.float64]) -> tuple[str, ...]:
    """Return which bound on eta, if any, keeps these weights from a better eta."""
    unconstrained = unconstrained_eta(form, weights)
    if unconstrained < form.eta_low:
        return ("eta_low",)
    if unconstrained > form.eta_high:
        return ("eta_high",)
    return ()
