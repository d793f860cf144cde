"""The certified search for any market: branch and bound on eta, with a cut from every solve.

For a fixed eta the market is one convex program, compiled once. Each solve gives a feasible point,
hence an upper bound, and a cut (:mod:`convexmarket.allocation.cuts`), a lower bound on the optimal
value at *every* eta. The range of eta is split where the lower bound is lowest; the program is
solved there unless the cuts at hand already prove that nothing better lies there. The search ends
when no interval can hold a point that is better by more than the gap.
"""

from __future__ import annotations

import heapq
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Protocol

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from convexmarket.allocation.bounds import unattained_noise
from convexmarket.allocation.cuts import Cut, Linearizer, multiplier
from convexmarket.allocation.region import (
    Region,
    RegionFinder,
    mend,
    natural_eta,
    violations,
)
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.simplex import ROUNDING
from convexmarket.allocation.solvers import (
    check_solver,
    run_solver,
    solver_options,
    solver_version,
)
from convexmarket.allocation.views import FixedEta, JointView
from convexmarket.errors import (
    LooseCertificateWarning,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import Market
from convexmarket.terms import EtaRange, Noise, Payments

__all__ = ["Evaluated", "Runner", "branch_and_bound", "check_gap", "finish", "search_eta"]

Floats = NDArray[np.float64]

#: Further from where the search began than this factor, an optimum counts as running away.
_FAR = 1e24
#: A start that is given may be away from the usual one by this factor.
_NEAR = 1e6
_MAX_SPLITS = 2_000
#: Weights below this, relative to the average, may be what interior-point methods leave.
_TRACE = 1e-5
#: Cuts that fall short of their own points by less than this do so by the solver's accuracy.
_ACCURACY = 1e-6
#: Relative width of intervals of eta that are not split any more.
_NARROW = 1e-12
#: A bound this much above the objective, relatively, is not the work of rounding.
_CONTRADICTION = 1e-6
#: A descent in eta looks this factor up and down, with so many steps.
_STRIDE = 4.0
_STEPS = 40
#: Share of the gap that leaving them out may cost.
_FOR_TRACES = 0.1


def check_gap(gap: float, max_solves: int = 1) -> None:
    """Check the arguments that every numerical method has."""
    if not (isinstance(gap, Real) and 0 < gap < np.inf):
        raise ParameterError(f"gap is {gap!r}; give a number > 0, for example 1e-6")
    if not isinstance(max_solves, int | np.integer) or max_solves < 1:
        raise ParameterError(f"max_solves is {max_solves!r}; give a whole number >= 1")


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What a solve at one eta found: a feasible point and its cut."""

    weights: Floats
    eta: float
    objective: float
    cut: Cut


class Runner(Protocol):
    """Whatever can solve a market at one eta after the other."""

    @property
    def region(self) -> Region:
        """The feasible set."""

    @property
    def records(self) -> list[SolveRecord]:
        """What has been solved."""

    def solve(self, eta: float) -> Evaluated:
        """Return a feasible point near eta and the cut of its multipliers."""


class _Solver:
    """Solves the market at one eta after the other and certifies what comes back."""

    def __init__(
        self,
        view: JointView,
        region: Region,
        eta: float,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.view = view
        self.region = region
        self.solver = solver
        self.version = solver_version(solver)
        self.options = solver_options(solver, options)
        self.linearizer = Linearizer(view)
        start = view.active / np.count_nonzero(view.active)
        scale = abs(view.value(start, eta))
        self._scale = scale if 0 < scale < np.inf else 1.0
        self.problem = FixedEta(view.market, eta, self._scale)
        self.records: list[SolveRecord] = []

    def solve(self, eta: float) -> Evaluated:
        """Return a feasible point near eta and the cut of its multipliers."""
        start = time.perf_counter()
        self.problem.eta = eta
        status = run_solver(self.problem, self.solver, self.options)
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            raise SolverError(
                f"{self.solver} {self.version} failed at eta = {eta:.10g} (status {status}); try "
                "another solver, or bound eta with EtaRange(low, high)"
            )
        raw = self.problem.weights
        items = [item for _, group in self.problem.pieces for item in group]
        cut = self.linearizer.cut(raw, eta, [multiplier(item, self._scale) for item in items])
        weights, near = mend(self.view, raw, eta, self.region.inside)
        objective = self.view.value(weights, near)
        point = Evaluated(weights, near, objective, cut)
        self.records.append(
            SolveRecord(
                eta=near,
                upper=objective,
                lower=cut(near),
                status=status,
                seconds=time.perf_counter() - start,
            )
        )
        return point


def branch_and_bound(
    market: Market,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    max_solves: int = 200,
    solver_options: Mapping[str, Any] | None = None,
    start: float | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy in any market, with a certificate.

    Parameters
    ----------
    market : Market
    solver : str
        One of ``cvxpy.installed_solvers()`` that takes the market's cones.
    gap : float
        Relative distance between objective and lower bound to stop at.
    max_solves : int
        At most this many convex programs.
    solver_options : mapping, optional
        Passed on to the solver.
    start : float, optional
        Where to look first, for example the eta of a similar market.
    progress : callable, optional
        Called with the :class:`SolveRecord` of each solve.

    Returns
    -------
    Allocation
        Its ``gap`` may exceed the one asked for where ``max_solves`` or the accuracy of the
        solver does not allow it; the bound is valid all the same.

    Raises
    ------
    InfeasibleMarketError
        If the constraints clash; the message names them.
    UnattainedOptimumError
        If the infimum is at eta = 0 or eta = infinity.
    SolverError
        If the solver fails.
    """
    began = time.perf_counter()
    check_gap(gap, max_solves)
    if start is not None and not (isinstance(start, Real) and 0 < start < np.inf):
        raise ParameterError(f"start is {start!r}; give a finite eta > 0, where to look first")
    solver = check_solver(solver)
    view = JointView(market, 1.0 / natural_eta(market))
    finder = RegionFinder(view)
    region = finder.find()
    if not view.has_noise and region.low == 0:
        raise unattained_noise()
    usual = _first_eta(market, view)
    runner = _Solver(view, region, _inside(usual, region), solver, solver_options)
    first = usual if start is None else float(np.clip(start, usual / _NEAR, usual * _NEAR))
    best, bound = search_eta(runner, first, gap, max_solves, progress)
    return finish(
        view,
        finder,
        best.weights,
        best.eta,
        bound,
        best.cut.price,
        tuple(runner.records),
        gap,
        method="branch_and_bound",
        seconds=time.perf_counter() - began,
        formulation="primal",
        solver=solver,
        solver_version=runner.version,
    )


def search_eta(
    runner: Runner,
    first: float,
    gap: float,
    max_solves: int,
    progress: Callable[[SolveRecord], None] | None,
) -> tuple[Evaluated, float]:
    """Return the best point and a lower bound for all eta, looking at ``first`` first."""
    region = runner.region
    first = _inside(first, region)
    solved: dict[float, Cut] = {}
    cuts: list[Cut] = []

    def solve(eta: float) -> Evaluated:
        point = runner.solve(eta)
        solved[eta] = point.cut
        cuts.append(point.cut)
        if progress is not None:
            progress(runner.records[-1])
        return point

    def bounded(low: float, high: float) -> tuple[float, float, float, float, int]:
        """Return (bound, low, high, its place, cuts used) of an interval."""
        where, value = max((cut.minimum(low, high) for cut in cuts), key=lambda end: end[1])
        return value, low, high, where, len(cuts)

    best = solve(first)
    least, most = region.bounds
    heap = [bounded(*piece) for piece in _halves(least, first, most)]
    if not heap:  # the constraints leave one eta only
        return best, best.cut(first)
    heapq.heapify(heap)
    slack = 0.0  # how far below its own point the solver's accuracy, not a kink, leaves a cut
    for _ in range(_MAX_SPLITS):
        value, low, high, where, used = heapq.heappop(heap)
        if used < len(cuts):  # later cuts may have raised the bound
            heapq.heappush(heap, bounded(low, high))
            continue
        heapq.heappush(heap, (value, low, high, where, used))
        target = best.objective - max((1 - _FOR_TRACES) * gap * abs(best.objective), slack)
        if value >= target or len(solved) >= max_solves:
            break
        eta = float(np.clip(_split_at(low, high, where, cuts), region.low, region.high))
        _check_attained(eta, first, best.objective, value)
        if not low * (1 + _NARROW) < eta < high * (1 - _NARROW):
            break
        if max(cut(eta) for cut in cuts) < target:
            blended = _between(solved, eta)
            if blended is not None and blended(eta) >= target:
                cuts.append(blended)
            else:
                try:
                    point = solve(eta)
                except SolverError:
                    # Numbers too far apart for the solver, where all the objective does is fall.
                    falling = eta > best.eta == max(solved) and best.cut.flattens
                    if falling and region.high == np.inf:
                        raise _runs_away(best.objective, value) from None
                    raise
                best = min(best, point, key=lambda p: p.objective)
                short = 1.5 * (point.objective - point.cut(eta))
                if short <= max(10 * gap, _ACCURACY) * abs(best.objective):
                    slack = max(slack, short)
        heapq.heappop(heap)
        for piece in _halves(low, eta, high):
            heapq.heappush(heap, bounded(*piece))
    bound, _, high, *_ = heap[0]
    last = max(solved)
    falling = best.eta == last or solved[last](last) <= best.objective
    if high == np.inf and best.cut.flattens and falling:
        raise _runs_away(best.objective, bound)
    if best.objective - bound > max(10 * gap * abs(best.objective), slack):
        best = _descend(solve, best, region, max_solves - len(solved))
    return best, bound


def _descend(
    solve: Callable[[float], Evaluated], best: Evaluated, region: Region, max_solves: int
) -> Evaluated:
    """Return the best point of a descent in eta, which needs no cuts: where these do not touch."""
    while max_solves > 0:
        start = best
        low, high = max(start.eta / _STRIDE, region.low), min(start.eta * _STRIDE, region.high)

        def objective(log_eta: float) -> float:
            nonlocal best
            point = solve(float(np.exp(log_eta)))
            best = min(best, point, key=lambda p: p.objective)
            return point.objective

        steps = min(max_solves, _STEPS)
        minimize_scalar(
            objective,
            bounds=(float(np.log(low)), float(np.log(high))),
            method="bounded",
            options={"xatol": 1e-6, "maxiter": steps},
        )
        max_solves -= steps
        if low * 1.1 < best.eta < high / 1.1 or best is start:
            break
    return best


def _between(solved: Mapping[float, Cut], eta: float) -> Cut | None:
    """Return the blend of the cuts of the solves next to eta, if it has two neighbours."""
    below = max((known for known in solved if known < eta), default=None)
    above = min((known for known in solved if known > eta), default=None)
    if below is None or above is None:
        return None
    share = np.log(eta / below) / np.log(above / below)
    return solved[below].blend(solved[above], float(share))


def _halves(low: float, middle: float, high: float) -> list[tuple[float, float]]:
    """Return the two parts of an interval, without those of no length."""
    return [piece for piece in ((low, middle), (middle, high)) if piece[0] < piece[1]]


def _split_at(low: float, high: float, where: float, cuts: list[Cut]) -> float:
    """Return where to split: where the cuts are lowest together, but not next to an end."""
    if high == np.inf:
        return min(max(where, 1.5 * low), 4 * low)
    if low == 0:
        return max(min(where, high / 1.5), high / 4)
    left = max(cuts, key=lambda cut: cut(low))
    right = max(cuts, key=lambda cut: cut(high))
    width = np.log(high / low)

    def lead(x: float) -> float:
        return left(low * np.exp(x)) - right(low * np.exp(x))

    if lead(0) > 0 > lead(width):
        where = low * np.exp(brentq(lead, 0, width, xtol=1e-3 * width))
    place = np.log(max(where, low) / low)
    return float(low * np.exp(np.clip(place, 0.05 * width, 0.95 * width)))


def _check_attained(eta: float, first: float, objective: float, bound: float) -> None:
    """Raise an error once the search has left every reasonable scale."""
    if eta > first * _FAR:
        raise _runs_away(objective, bound)
    if eta < first / _FAR:
        raise UnattainedOptimumError(
            f"the optimum is not attained (eta -> 0; objective {objective:.10g}, lower bound "
            f"{bound:.10g}): buying ever less privacy keeps lowering the objective; give an "
            "EtaRange"
        )


def _runs_away(objective: float, bound: float) -> UnattainedOptimumError:
    return UnattainedOptimumError(
        f"the optimum is not attained (eta -> infinity; objective {objective:.10g}, lower bound "
        f"{bound:.10g}): buying ever more privacy keeps lowering the objective, because sellers "
        "with virtual cost 0 can carry the weight, or no payment limits what is bought; give an "
        "EtaRange, a MaxEpsilon, or a prior whose support starts above 0"
    )


def _first_eta(market: Market, view: JointView) -> float:
    """Return the eta at which noise and payments balance if all sellers weigh the same."""
    noise = market.objective.weight_of(Noise)
    paid = [
        (part.weight, part.term)
        for part in market.objective.parts
        if isinstance(part.term, Payments)
    ]
    costs = view.quantities.virtual_costs[view.active]
    m, mean = view.active.size, float(costs.mean())
    if not (noise > 0 and paid and mean > 0):
        return float(m)

    def excess(log_eta: float) -> float:
        share = np.exp(log_eta) / m
        with np.errstate(over="ignore", divide="ignore"):
            bill = sum(w * m * mean * float(t.privacy_cost(share)) for w, t in paid)
            return float(np.clip(np.log(bill) + log_eta - np.log(noise), -1e3, 1e3))

    return float(np.exp(brentq(excess, -60.0, 60.0, xtol=1e-2)))


def _inside(eta: float, region: Region) -> float:
    """Return eta moved well inside the region."""
    low, high = region.low, region.high
    if low == high:
        return low
    if low > 0 and high < np.inf:
        share = np.clip(np.log(eta / low) / np.log(high / low), 0.05, 0.95)
        return float(low * (high / low) ** share)
    return float(np.clip(eta, 1.5 * low if low > 0 else 0.0, high / 1.5 if high < np.inf else eta))


def _without_traces(
    view: JointView, finder: RegionFinder, weights: Floats, eta: float, tolerance: float
) -> tuple[Floats, float, float]:
    """Return the point without the traces of interior-point methods, unless that is worse.

    What it may cost, relative to the objective, is a small share of ``tolerance``.
    """
    objective = view.value(weights, eta)
    kept = np.where(weights * view.active.size < _TRACE, 0.0, weights)
    if np.array_equal(kept, weights):
        return weights, eta, objective
    try:
        cleaned, near = mend(view, kept, eta, finder.inside(kept > 0))
    except SolverError:
        return weights, eta, objective
    value = view.value(cleaned, near)
    if value <= objective + _FOR_TRACES * tolerance * abs(objective):
        return cleaned, near, value
    return weights, eta, objective


def finish(
    view: JointView,
    finder: RegionFinder,
    weights: Floats,
    eta: float,
    lower_bound: float,
    price: float,
    records: tuple[SolveRecord, ...],
    tolerance: float,
    **provenance: Any,
) -> Allocation:
    """Return the allocation that a point and a lower bound amount to."""
    weights, eta, objective = _without_traces(view, finder, weights, eta, tolerance)
    if lower_bound > objective + _CONTRADICTION * abs(objective):
        raise SolverError(
            f"the lower bound {lower_bound:.10g} lies above the objective {objective:.10g}, which "
            "cannot be: the solver's multipliers or a simplex_minimum or conjugate of your own is "
            "wrong; try another solver"
        )
    gap = (objective - lower_bound) / max(abs(objective), np.finfo(float).tiny)
    if gap > 10 * tolerance:
        warnings.warn(
            f"the certificate leaves a relative gap of {gap:.1e}, not the {tolerance:.1e} asked "
            "for: a term is not smooth at the optimum, or the solver is not accurate enough; try "
            "another solver, or more max_solves",
            LooseCertificateWarning,
            stacklevel=3,
        )
    ranges = [item for item in view.market.constraints if isinstance(item, EtaRange)]
    for end in {end for item in ranges for end in (item.low, item.high)}:
        feasible = np.max(violations(view, weights, end), initial=0.0) <= ROUNDING
        if feasible and view.value(weights, end) <= objective:
            eta, objective = end, view.value(weights, end)
    return Allocation(
        weights=weights,
        eta=eta,
        objective=objective,
        lower_bound=lower_bound,
        multiplier=price / eta,
        solves=records,
        tolerance=tolerance,
        binding=_binding(ranges, eta),
        **provenance,
    )


def _binding(ranges: list[EtaRange], eta: float) -> tuple[str, ...]:
    """Return which bounds the answer lies at."""
    lows, highs = {item.low for item in ranges}, {item.high for item in ranges}
    return tuple(name for name, ends in (("eta_low", lows), ("eta_high", highs)) if eta in ends)
