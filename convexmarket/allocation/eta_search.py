"""Search over eta by branch and bound, for any solver of the market at a given eta.

A solve gives a feasible point and a cut (:mod:`convexmarket.allocation.cuts`), which is a lower
bound at *every* eta, or proves that all smaller or all larger eta are infeasible. The search splits
the interval with the lowest bound, and solves the market at the split unless the cuts exclude a
better point. The proof that no optimum is attained is in docs/theory.md, section 9.2.
"""

from __future__ import annotations

import heapq
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.simplex import embed
from convexmarket.errors import InfeasibleMarketError, SolverError, UnattainedOptimumError
from convexmarket.market import Market
from convexmarket.terms import MarketNumbers

__all__ = ["FOR_TRACES", "Evaluated", "Excluded", "Runner", "allocation_of", "first_look"]
__all__ += ["search_eta"]

Floats = NDArray[np.float64]

#: Fraction of the gap that is reserved for the removal of tiny weights after the search.
FOR_TRACES = 0.1
#: Largest factors between an eta and the first eta: near enough for a given start, and for splits.
_NEAR, _FAR = 1e6, 1e12
#: Multiples of the first eta, in the order in which they are tried.
_TRIES = (1.0, 0.6, 1.7, 0.1, 10.0, 1e-2, 1e2, 1e-4, 1e4, 1e-8, 1e8)
#: Smallest and largest change of log(eta) from the last solve for a split next to an open end.
_REACH = float(np.log(1.1)), float(np.log(4))
#: Factors of the outermost eta in the proof that no optimum is attained: for the distant points,
#: for the interval with a certified bound, and for the test that the objective does not rise.
_OUT, _TWICE, _BEYOND = (1e6, 1e3, 30.0, 4.0), 2.0, 4.0
#: If terms nearly cancel, gaps are relative to this fraction of the sum of absolute terms.
_CANCELLED = 1e-3
#: Largest relative gap at a solved eta that is attributed to the accuracy of the solver.
_ACCURACY = 1e-6
#: Relative accuracy of solvers at extreme eta, and relative width of the smallest intervals.
_ROUGH, _NARROW = 1e-9, 1e-12
_MAX_SPLITS, _MAX_EXCLUDED = 40_000, 60


def first_look(form: MarketNumbers, start: float | None = None) -> float:
    """Choose the first eta of a search; a given start is clipped to a range around this eta.

    It minimises noise plus linear payments at equal weights or, without them, is the natural eta.
    """
    price = form.total_gamma * float(form.virtual_costs[form.active].mean())
    balanced = price > 0 and form.sigma > 0
    usual = float(np.sqrt(form.sigma / price)) if balanced else form.natural_eta
    usual = float(np.clip(usual, *form.eta_range))
    return usual if start is None else float(np.clip(start, usual / _NEAR, usual * _NEAR))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """A feasible point and a cut, from a solve at one eta.

    ``scale`` is the sum of the absolute values of the weighted terms.
    """

    weights: Floats
    eta: float
    objective: float
    cut: KeptSpreadCut
    scale: float

    @property
    def aim(self) -> float:
        """Value to which gaps are relative: |objective|, or a part of ``scale`` if larger."""
        return max(abs(self.objective), _CANCELLED * self.scale)


class Excluded(NamedTuple):
    """A proof that no eta with ``low < eta < high`` is feasible; low is 0 or high is inf."""

    low: float
    high: float
    pieces: tuple[str, ...]


class Runner(Protocol):
    """Solver of a market at a given eta, with the range of eta and the records of all solves."""

    ends: tuple[float, float]
    records: list[SolveRecord]

    def solve(self, eta: float) -> Evaluated | Excluded:
        """Compute a feasible point near eta and its cut, or prove that eta is infeasible."""


class _Search:
    """State of a search: the solves in the order of eta, the feasible range and the best point."""

    best: Evaluated

    def __init__(self, runner: Runner, progress: Callable[[SolveRecord], None] | None) -> None:
        self.runner, self.progress = runner, progress
        self.low, self.high = runner.ends
        self.proofs: list[Excluded] = []
        self.places: list[float] = []
        self.cuts: list[KeptSpreadCut] = []
        self._bounds: dict[tuple[float, float], tuple[float, float]] = {}

    def solve(self, eta: float) -> Evaluated | None:
        """Solve the market at an eta. If it is infeasible, narrow the range and return None."""
        point = self.runner.solve(eta)
        if isinstance(point, Excluded):
            self.exclude(point)
            return None
        if self.progress is not None:
            self.progress(self.runner.records[-1])
        if not self.cuts or point.objective < self.best.objective:
            self.best = point
        place = bisect_left(self.places, eta)
        self.places.insert(place, eta)
        self.cuts.insert(place, point.cut)
        self._bounds.clear()
        return point

    def exclude(self, proof: Excluded) -> None:
        """Remove an infeasible interval from the range; raise an error if nothing remains."""
        self.proofs.append(proof)
        if proof.low == 0:
            self.low = max(self.low, proof.high)
        if proof.high == np.inf:
            self.high = min(self.high, proof.low)
        if self.low >= self.high * (1 + _NARROW):
            names = [name for each in self.proofs[-2:] for name in each.pieces]
            if self.runner.ends != (0.0, np.inf):
                names.append(f"EtaRange({self.runner.ends[0]:g}, {self.runner.ends[1]:g})")
            raise InfeasibleMarketError(
                f"no weights that sum to one satisfy {', '.join(dict.fromkeys(names))}; loosen one "
                "of them"
            )
        if len(self.proofs) > _MAX_EXCLUDED:
            raise SolverError(
                f"no feasible total privacy was found between {self.low:.6g} and {self.high:.6g}; "
                "bound it with EtaRange(low, high)"
            )

    def first(self, eta: float) -> None:
        """Try multiples of a given eta until one is feasible."""
        failure = None
        for factor in _TRIES:
            try:
                while not self.solve(float(np.clip(factor * eta, *_inside(self.low, self.high)))):
                    pass
                return
            except SolverError as error:  # for example, next to the end of a term's domain
                failure = failure or error
        assert failure is not None
        raise failure

    def near(self, low: float, high: float) -> list[KeptSpreadCut]:
        """Return the cuts of solves in an interval of eta and the nearest cut on either side."""
        first = max(bisect_left(self.places, low) - 1, 0)
        return self.cuts[first : bisect_right(self.places, high) + 1]

    def between(self, eta: float) -> KeptSpreadCut | None:
        """Return the cut of a solve at eta, or interpolate the neighbouring cuts."""
        above = bisect_left(self.places, eta)
        if eta in self.places[above : above + 1]:
            return self.cuts[above]
        if above in (0, len(self.places)):
            return None
        low, high = self.places[above - 1 : above + 1]
        return self.cuts[above - 1].blend(self.cuts[above], (eta - low) / (high - low))

    def at(self, eta: float) -> float:
        """Return the largest lower bound of neighbouring cuts at an eta."""
        return max(cut(eta) for cut in (*self.near(eta, eta), self.between(eta)) if cut)

    def bounded(self, low: float, high: float) -> tuple[float, float]:
        """Return a lower bound on the objective in an interval of eta, and its minimiser."""
        if (low, high) in self._bounds:  # no other cut since the last call
            return self._bounds[low, high]
        ends = [cut.minimum(low, high) for cut in self.near(low, high)]
        left, right = self.between(low), self.between(high)
        if left and right and low < high:
            ends.append(left.interval_bound(right, low, high))
        where, value = max(ends, key=lambda end: end[1])
        self._bounds[low, high] = value, where
        return value, where

    def split_at(self, low: float, high: float, where: float) -> float:
        """Choose the eta at which to split: where the highest cuts at both ends intersect.

        If one end is open, split at the minimiser of the highest cut at the other end.
        """
        end, step = (low, 1.0) if low > 0 else (high, -1.0)
        cuts, other = self.near(low, high), high if low > 0 and high < np.inf else end
        left, right = (max(cuts, key=lambda cut: cut(x)) for x in (end, other))

        def eta(x: float) -> float:
            return float(end * np.exp(step * x))

        def lead(x: float) -> float:
            return left(eta(x)) - right(eta(x))

        if end == other:
            how: Any = {"bounds": _REACH, "options": {"xatol": 0.02}}
            return eta(minimize_scalar(lambda x: left(eta(x)), **how).x)
        width, error = float(np.log(high / low)), _ROUGH * abs(left(low))
        if lead(0.0) > error and lead(width) < -error:  # two exact cuts differ only by rounding
            where = eta(brentq(lead, 0.0, width, xtol=1e-3 * width))
        return float(np.clip(where, *_inside(low, high)))

    def check_attained(self) -> None:
        """Raise an error if the best eta is the smallest or largest, and the infimum is lower."""
        best, at = self.best, self.best.eta
        for step, infinite, outermost in ((1, self.high == np.inf, -1), (-1, self.low == 0, 0)):
            place = at * _TWICE**step
            ends = sorted([self.low if step > 0 else self.high, *self.places, place])
            for factor in _OUT if infinite and at == self.places[outermost] else ():
                if self.at(at * factor**step) >= best.objective:
                    break
                try:
                    far, beyond = (self.solve(at * (factor * f) ** step) for f in (1.0, _BEYOND))
                except SolverError:
                    continue
                if far is None or far.objective >= best.objective:
                    break
                bound = min(self.bounded(*pair)[0] for pair in pairwise(ends))
                error = _ROUGH * far.scale
                if bound > far.objective and beyond and beyond.objective < far.objective + error:
                    raise _unattained(step > 0, far.objective, bound, place)


def search_eta(
    runner: Runner,
    first: float,
    gap: float,
    max_solves: int = 200,
    progress: Callable[[SolveRecord], None] | None = None,
    time_limit: float = np.inf,
) -> tuple[Evaluated, float]:
    """Compute the best point and a lower bound for all eta, starting at ``first``.

    The search also ends if the gap is due to the accuracy of the solver.
    """
    until = time.perf_counter() + time_limit
    search = _Search(runner, progress)
    search.first(first)
    first, slack, failure = search.best.eta, 0.0, None
    # Intervals whose lower bounds are known and that can be split.
    heap: list[tuple[float, float, float]] = [
        (-np.inf, *half) for half in ((search.low, first), (first, search.high))
    ]
    aside = [(-np.inf, first, first)]

    def used_up() -> bool:
        return len(search.cuts) >= max_solves or time.perf_counter() > until

    for _ in range(_MAX_SPLITS):
        if not heap:
            break
        known, low, high = heapq.heappop(heap)
        low, high = max(low, search.low), min(high, search.high)
        if low >= high:  # the interval is empty or infeasible
            continue
        bound, where = search.bounded(low, high)
        if bound > known:
            heapq.heappush(heap, (bound, low, high))
            continue
        target = search.best.objective - max((1 - FOR_TRACES) * gap, slack) * search.best.aim
        eta = search.split_at(low, high, where)
        narrow = not low < eta * (1 - _NARROW) < high * (1 - _NARROW)
        if known >= target or narrow or used_up():  # no other bound is lower
            aside.append((known, low, high))
            break
        if not first / _FAR < eta < first * _FAR:
            aside.append((known, low, high))
            continue
        halves = [(known, low, eta), (known, eta, high)]
        if search.at(eta) < target:
            try:
                if search.solve(eta) is None:
                    halves = [(known, low, high)]
                else:
                    best = search.best
                    slack = 1.1 * (best.objective - best.cut(best.eta)) / best.aim
                    slack = slack if slack <= max(10 * gap, _ACCURACY) else 0.0
            except SolverError as error:
                failure = error if first / _NEAR < eta < first * _NEAR else failure
                aside.append((known, low, high))
                continue
        for half in halves:
            heapq.heappush(heap, half)
    for end, outermost in zip(runner.ends, (0, -1), strict=True):  # splits are inside an interval
        next_to_it = search.best.eta == search.places[outermost] and 0 < end < np.inf
        if next_to_it and search.low <= end <= search.high and not used_up():
            with suppress(SolverError):
                search.solve(end)
    left = [max(known, search.bounded(low, high)[0]) for known, low, high in aside]
    bound = min([*left, *(each[0] for each in heap[:1])])
    if not used_up():
        search.check_attained()
        best = search.best
        if failure is not None and best.objective - bound > max(10 * gap, slack) * best.aim:
            raise failure
    return search.best, bound


def allocation_of(
    best: Evaluated, bound: float, runner: Runner, market: Market, method: str, gap: float
) -> Allocation:
    """Build the allocation from the best point. Issue a warning if its gap is too large."""
    ends = zip(("eta_low", "eta_high"), market.form.eta_range, strict=True)
    full = best.weights.size == market.form.active.size
    allocation = Allocation(
        weights=best.weights if full else embed(best.weights, market.form.active),
        eta=best.eta,
        objective=best.objective,
        lower_bound=min(bound, best.objective),  # exclude rounding errors
        multiplier=best.cut.price / best.eta,
        method=method,
        scale=best.scale,
        tolerance=gap,
        solves=tuple(runner.records),
        binding=tuple(name for name, end in ends if best.eta == end),
    )
    allocation.warn_if_loose(
        gap,
        "the infimum may be at eta = 0 or infinity, which an EtaRange excludes; or max_solves or "
        "time_limit is reached, or the solver is not accurate enough",
    )
    return allocation


def _unattained(more: bool, objective: float, bound: float, place: float) -> UnattainedOptimumError:
    """Return the error for a market whose infimum is at eta = infinity or 0."""
    end = "infinity" if more else "0"
    remedy = "less privacy lowers the objective further; add sigma * Noise() with sigma > 0"
    if more:
        remedy = (
            "more privacy lowers the objective further: sellers with virtual cost 0 can have all "
            "weight, or no payment or constraint limits the privacy bought; add gamma * "
            "Payments(), a Budget or a MaxEpsilon, give a prior whose support starts above 0"
        )
    return UnattainedOptimumError(
        f"the optimum is not attained (eta tends to {end}, objective {objective:.10g}; up to eta = "
        f"{place:.4g} it is at least {bound:.10g}): buying ever {remedy}, or an EtaRange"
    )


def _inside(low: float, high: float) -> tuple[float, float]:
    """Return the ends of the inner 90 % of an interval of log(eta). Infinite ends do not move."""
    factor = (high / low) ** 0.05 if low > 0 and high < np.inf else 1.5
    return low * factor, high / factor
