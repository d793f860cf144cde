"""The search over eta: branch and bound with cuts, for any solver of the market at one eta.

Each solve gives a feasible point, hence an upper bound, and a cut
(:mod:`convexmarket.allocation.cuts`), a lower bound on the optimal value at *every* eta. The range
of eta is split where the lower bound is lowest; the market is solved there unless the cuts at hand
already prove that nothing better lies there. The search ends when no interval can hold a point that
is better by more than the gap.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize_scalar

from convexmarket.allocation.cuts import Cut
from convexmarket.allocation.region import Region
from convexmarket.allocation.result import SolveRecord
from convexmarket.arguments import check_count, check_positive
from convexmarket.errors import SolverError, UnattainedOptimumError

__all__ = [
    "FOR_TRACES",
    "Cuts",
    "Evaluated",
    "Runner",
    "check_gap",
    "first_look",
    "move_inside",
    "search_eta",
]

Floats = NDArray[np.float64]

#: Share of the gap that is left for what is done to the best point afterwards.
FOR_TRACES = 0.1
#: A start that is given may be away from the usual one by this factor.
_NEAR = 1e6
#: Further from where the search began than this factor, an optimum counts as running away.
_FAR = 1e24
_MAX_SPLITS = 40_000
#: Cuts that fall short of their own points by less than this do so by the solver's accuracy.
_ACCURACY = 1e-6
#: Relative width of intervals of eta that are not split any more.
_NARROW = 1e-12
#: Cuts on either side of an interval that are asked for its bound.
_REACH = 2
#: A descent in eta looks this factor up and down, with so many steps.
_STRIDE = 4.0
_STEPS = 40


def check_gap(gap: float, max_solves: int = 1) -> None:
    """Check the arguments that every numerical method has."""
    check_positive("gap", gap)
    check_count("max_solves", max_solves)


def first_look(usual: float, start: float | None) -> float:
    """Return where a search begins: at the usual eta, or at one that is given and not far off."""
    return usual if start is None else float(np.clip(start, usual / _NEAR, usual * _NEAR))


@dataclass(frozen=True, eq=False)
class Evaluated:
    """What a solve at one eta found: a feasible point and its cut."""

    weights: Floats
    eta: float
    objective: float
    cut: Cut


class Runner(Protocol):
    """A solver of a market at one eta after the other."""

    @property
    def region(self) -> Region:
        """The feasible set."""

    @property
    def records(self) -> list[SolveRecord]:
        """What has been solved."""

    def solve(self, eta: float) -> Evaluated:
        """Return a feasible point near eta and the cut of its multipliers."""


class Cuts:
    """Cuts, in the order of the eta at which they come closest to the optimal value."""

    def __init__(self) -> None:
        self.places: list[float] = []
        self._cuts: list[Cut] = []

    def __len__(self) -> int:
        return len(self.places)

    def add(self, place: float, cut: Cut) -> None:
        """Add a cut."""
        i = bisect_left(self.places, place)
        self.places.insert(i, place)
        self._cuts.insert(i, cut)

    def near(self, low: float, high: float) -> list[Cut]:
        """Return the cuts in an interval and next to it; others are hardly ever higher there."""
        first = max(bisect_left(self.places, low) - _REACH, 0)
        return self._cuts[first : bisect_right(self.places, high) + _REACH]

    def at(self, eta: float) -> float:
        """Return the lower bound at one eta."""
        return max(cut(eta) for cut in self.near(eta, eta))

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        """Return (eta, value) of the highest lower bound over an interval."""
        found = [cut.minimum(low, high) for cut in self.near(low, high)]
        below, above = bisect_right(self.places, low) - 1, bisect_left(self.places, high)
        if 0 <= below < above < len(self) and low < high:
            found.append(self._cuts[below].bridge(self._cuts[above], low, high))
        return max(found, key=lambda end: end[1])


@dataclass(frozen=True, order=True)
class _Interval:
    """A range of eta, its lower bound, where that lies, and how many cuts it knows of."""

    bound: float
    low: float
    high: float
    where: float
    known: int


def search_eta(
    runner: Runner,
    first: float,
    gap: float,
    max_solves: int,
    progress: Callable[[SolveRecord], None] | None,
    patience: int | None = None,
) -> tuple[Evaluated, float]:
    """Return the best point and a lower bound for all eta, looking at ``first`` first.

    Cuts that fall short of their points a little do so by the solver's accuracy, which ends the
    search; with ``patience``, so many solves do that bring the two closer by less than a tenth.
    """
    region = runner.region
    first = move_inside(first, region)
    solved: dict[float, Cut] = {}
    cuts = Cuts()

    def solve(eta: float) -> Evaluated:
        point = runner.solve(eta)
        solved[eta] = point.cut
        cuts.add(eta, point.cut)
        if progress is not None:
            progress(runner.records[-1])
        return point

    def bounded(low: float, high: float, known: float = -np.inf) -> _Interval:
        where, value = cuts.minimum(low, high)
        return _Interval(max(value, known), low, high, where, len(cuts))

    best = solve(first)
    heap = [bounded(*piece) for piece in _halves(*region.bounds, first)]
    if not heap:  # the constraints leave one eta only
        return best, best.cut(first)
    heapq.heapify(heap)
    # How far below the best point the solver's accuracy leaves its own cut, relatively.
    slack = 0.0
    distances: list[float] = []
    for _ in range(_MAX_SPLITS):
        least = heap[0]
        if least.known < len(cuts):  # later cuts may have raised the bound
            heapq.heapreplace(heap, bounded(least.low, least.high, least.bound))
            continue
        target = best.objective - max((1 - FOR_TRACES) * gap, slack) * abs(best.objective)
        if least.bound >= target or len(solved) >= max_solves:
            break
        eta = float(np.clip(_split_at(least, cuts), region.low, region.high))
        _check_attained(eta, first, best.objective, least.bound)
        if not least.low * (1 + _NARROW) < eta < least.high * (1 - _NARROW):
            break
        if cuts.at(eta) < target:
            blended = _between(solved, eta)
            if blended is not None and blended(eta) >= target:
                cuts.add(eta, blended)
            else:
                try:
                    point = solve(eta)
                except SolverError:
                    # Numbers too far apart for the solver, where all the objective does is fall.
                    falling = eta > best.eta == max(solved) and best.cut.flattens
                    if falling and region.high == np.inf:
                        raise _runs_away(best.objective, least.bound) from None
                    raise
                best = min(best, point, key=lambda p: p.objective)
                distances.append(best.objective - least.bound)
                if patience is None:
                    short = 1.5 * (best.objective - best.cut(best.eta)) / abs(best.objective)
                    slack = short if short <= max(10 * gap, _ACCURACY) else 0.0
                elif len(distances) > patience and distances[-1] > 0.9 * distances[-1 - patience]:
                    slack = np.inf
        heapq.heappop(heap)
        for piece in _halves(least.low, least.high, eta):
            heapq.heappush(heap, bounded(*piece, least.bound))
    bound, last = heap[0].bound, max(solved)
    falling = best.eta == last or solved[last](last) <= best.objective
    stopped = len(solved) >= max_solves  # which proves nothing of how it would have gone on
    if not stopped and heap[0].high == np.inf and best.cut.flattens and falling:
        raise _runs_away(best.objective, bound)
    if best.objective - bound > max(10 * gap, slack) * abs(best.objective):
        best = _descend(solve, best, region, max_solves - len(solved))
    return best, bound


def _between(solved: Mapping[float, Cut], eta: float) -> Cut | None:
    """Return the blend of the cuts of the solves next to eta, if it has two neighbours."""
    below = max((known for known in solved if known < eta), default=None)
    above = min((known for known in solved if known > eta), default=None)
    if below is None or above is None:
        return None
    share = np.log(eta / below) / np.log(above / below)
    return solved[below].blend(solved[above], float(share))


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


def _halves(low: float, high: float, middle: float) -> list[tuple[float, float]]:
    """Return the two parts of an interval, without those of no length."""
    return [piece for piece in ((low, middle), (middle, high)) if piece[0] < piece[1]]


def _split_at(interval: _Interval, cuts: Cuts) -> float:
    """Return where to split: where the cuts are lowest together, but not next to an end."""
    low, high, where = interval.low, interval.high, interval.where
    if high == np.inf:
        return min(max(where, 1.5 * low), 4 * low)
    if low == 0:
        return max(min(where, high / 1.5), high / 4)
    near = cuts.near(low, high)
    left = max(near, key=lambda cut: cut(low))
    right = max(near, key=lambda cut: cut(high))
    width = float(np.log(high / low))

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


def move_inside(eta: float, region: Region) -> float:
    """Return eta moved well inside the region."""
    low, high = region.low, region.high
    if low == high:
        return low
    if low > 0 and high < np.inf:
        share = np.clip(np.log(eta / low) / np.log(high / low), 0.05, 0.95)
        return float(low * (high / low) ** share)
    return float(min(max(eta, 1.5 * low), high / 1.5))
