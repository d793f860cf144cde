"""What a seller gets as a function of its own report, the others' reports fixed.

Each point of the curve is a market of its own, with one cost replaced; all of them are solved at
once, exactly, from the prefix sums of one sorted list (:mod:`convexmarket.allocation.path`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounded import minimise_bounded
from convexmarket.allocation.bounds import check_noise
from convexmarket.allocation.costs import (
    Arrays,
    Replaced,
    ReplacedInGroups,
    SortedCosts,
)
from convexmarket.allocation.exact import (
    cheap_enough,
    check_feasible,
    highest_cost_bought,
    ratio_of_scales,
    solve_exact,
)
from convexmarket.allocation.path import (
    Common,
    PathPoint,
    cheapest,
    common_stretches,
    minimise,
    point_at,
)
from convexmarket.errors import UnattainedOptimumError
from convexmarket.market import StandardForm

__all__ = ["CurvePoints", "OwnReportCurve"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Markets solved at once: enough to vectorise, few enough for the cache.
_CHUNK = 1 << 13
#: Fewer markets do not share bounds.
_FEW = 8


@dataclass(frozen=True)
class CurvePoints(Arrays):
    """Points of the curve, arrays of one shape.

    Attributes
    ----------
    epsilon : ndarray
        Guarantee that the seller sells.
    value : ndarray
        Optimal objective of the buyer. Its derivative in the seller's virtual cost is
        gamma*epsilon (the envelope theorem), wherever it exists.
    level : ndarray
        Virtual cost from which on sellers are not bought from.
    cap_level : ndarray
        Virtual cost up to which sellers are at the cap.
    """

    epsilon: Floats
    value: Floats
    level: Floats
    cap_level: Floats


class OwnReportCurve:
    """The exact answer of a market as one seller's virtual cost varies."""

    def __init__(self, form: StandardForm) -> None:
        check_feasible(form)
        check_noise(form)
        self.form = form
        psi = form.virtual_costs
        # One seller may leave, so that the next dearer ones must be there.
        whole = form.mu == 0 or form.max_epsilon < np.inf
        self._limit = np.inf if whole else cheap_enough(form, spare=1)
        kept = np.flatnonzero(psi <= self._limit)
        order = kept[np.argsort(psi[kept])]
        ordered = psi[order]
        if not whole:
            self._limit = min(self._limit, highest_cost_bought(form, ordered, spare=1))
        self._base = SortedCosts(ordered, self._limit)
        self._rank = np.full(psi.size, order.size)
        self._rank[order] = np.arange(order.size)

    def __call__(self, seller: Ints, psi: Floats) -> CurvePoints:
        """Solve the market with ``psi[k]`` in place of the cost of ``seller[k]``, for all k.

        Parameters
        ----------
        seller : ndarray of int, shape (n,)
            Positions in the market; sellers at infinite cost cannot be asked about.
        psi : ndarray, shape (n,)
            Virtual costs >= 0; +inf takes the seller out of the market. Where the others cannot
            carry the whole weight, the answer is the limit: as little of the seller as possible.
        """
        truthful = psi == self.form.virtual_costs[seller]
        if np.count_nonzero(truthful) < 2:
            return self._batch(seller, psi)
        # At the truth all sellers are in one and the same market, which is solved once.
        ask = np.concatenate((np.flatnonzero(truthful)[:1], np.flatnonzero(~truthful)))
        found = self._batch(seller[ask], psi[ask])
        source = np.zeros(seller.size, dtype=np.intp)
        source[ask] = np.arange(ask.size)
        points = found[source]
        points.epsilon[truthful] = self.truth[seller[truthful]]
        return points

    @cached_property
    def truth(self) -> Floats:
        """The guarantees of all sellers at the costs that the market has of them, shape (m,)."""
        found = solve_exact(self.form, self._base)
        return found.eta * found.weights

    @cached_property
    def _common(self) -> Common | None:
        """Where the paths may be stationary, for any reports; None where that is unknown."""
        if not self.can_do_without() or self._limit == np.inf:
            return None
        rho = ratio_of_scales(self.form, self._base)
        return common_stretches(self._base, self.form.max_weight, rho, self._limit)

    def _batch(self, seller: Ints, psi: Floats) -> CurvePoints:
        found = [self._solve(seller[some], psi[some]) for some in _chunks(np.arange(seller.size))]
        return CurvePoints.joined(found or [CurvePoints(*np.empty((4, 0)))])

    def can_do_without(self) -> bool:
        """Whether the others can carry the whole weight, and sell the least total."""
        return self._least_weight <= 1e-12 and self._least_sold <= 1e-12 * self.form.eta_low

    @cached_property
    def _others(self) -> int:
        return int(np.count_nonzero(self.form.virtual_costs < np.inf)) - 1

    @property
    def _least_weight(self) -> float:
        """The weight that the others leave for one seller under the cap."""
        return max(0.0, 1.0 - self._others * self.form.max_weight)

    @property
    def _least_sold(self) -> float:
        """What one seller sells however dear it is."""
        low, sold = self.form.eta_low, self._others * self.form.max_epsilon
        return max(low * self._least_weight, low - sold if self._others else low)

    def _solve(self, seller: Ints, psi: Floats) -> CurvePoints:
        solve = self._vertices if self.form.mu == 0 else self._interior
        base, rank = self._base, self._rank[seller]
        if self.can_do_without():
            return solve(Replaced(base, rank, np.where(psi > self._limit, np.inf, psi)))
        endless = np.isinf(psi)
        found = solve(Replaced(base, rank, np.where(endless, base.scale, psi)))
        return CurvePoints(
            epsilon=np.where(endless, self._least_sold, found.epsilon),
            value=np.where(endless, np.inf, found.value),
            level=np.where(endless, np.inf, found.level),
            cap_level=np.where(endless, np.inf, found.cap_level),
        )

    def _optimum(self, costs: Replaced | ReplacedInGroups) -> PathPoint:
        form, base = self.form, self._base
        u, unit = form.max_weight, form.gamma * base.scale / form.mu
        rho = ratio_of_scales(form, base)
        found = []
        if form.sigma > 0:
            rates = form.eta_low * unit, form.eta_high * unit
            within = self._common if np.all(costs.psi >= base.lowest) else None
            found.append(minimise(costs, u, rho, rates, within))
        ends = [eta * unit for eta in (form.eta_low, form.eta_high) if 0 < eta < np.inf]
        found += [point_at(costs, u, rho, rate) for rate in ends]
        point = _best_of(found)
        if np.any(np.isinf(point.rate)):
            raise _free()
        return point

    def _interior(self, costs: Replaced | ReplacedInGroups) -> CurvePoints:
        if self.form.max_epsilon < np.inf:
            return self._bounded(costs)  # type: ignore[arg-type]
        return self._unbounded(costs, self._optimum(costs))

    def _unbounded(self, costs: Replaced | ReplacedInGroups, point: PathPoint) -> CurvePoints:
        form, base = self.form, self._base
        with np.errstate(divide="ignore"):
            width = form.max_weight / point.beta
        eta = point.rate * form.mu / (form.gamma * base.scale)
        return CurvePoints(
            epsilon=point.weight_of(costs, form.max_weight) * eta,
            value=form.mu * point.value,
            level=base.lowest + base.scale * point.level,
            cap_level=base.lowest + base.scale * (point.level - width),
        )

    def _bounded(self, costs: Replaced) -> CurvePoints:
        """Solve under a largest guarantee, which binds only where more than ``e/u`` is sold."""
        form, base, e = self.form, self._base, self.form.max_epsilon
        u, unit = form.max_weight, form.gamma * base.scale / form.mu
        rho, border = ratio_of_scales(form, base), e / form.max_weight
        found = []
        if form.sigma > 0 and form.eta_low <= border:
            within = self._common_to(costs, rho)
            rates = form.eta_low * unit, min(form.eta_high, border) * unit
            found.append(minimise(costs, u, rho, rates, within))
        ends = [eta for eta in (form.eta_low, form.eta_high) if 0 < eta < border]
        found += [point_at(costs, u, rho, eta * unit) for eta in ends]
        low, high = max(form.eta_low, border) / e, form.eta_high / e
        if low > high:
            return self._unbounded(costs, _best_of(found))
        solved = self._at_bounds(costs, rho, e * unit, low, high)
        if not found:
            return solved
        point = _best_of(found)
        better = np.flatnonzero(form.mu * point.value < solved.value)
        if better.size:
            below = self._unbounded(costs.some(better), point[better])
            for name, values in vars(solved).items():
                values[better] = getattr(below, name)
        return solved

    def _common_to(self, costs: Replaced, rho: float) -> Common | None:
        base, finite = self._base, costs.psi[np.isfinite(costs.psi)]
        if costs.count < _FEW or self._least_weight > 0 or np.any(finite < base.lowest):
            return None
        dearest = float(max(base.psi[-1], finite.max(initial=0.0)))
        return common_stretches(base, self.form.max_weight, rho, dearest)

    def _at_bounds(
        self, costs: Replaced, rho: float, largest: float, low: float, high: float
    ) -> CurvePoints:
        form, base, e = self.form, self._base, self.form.max_epsilon
        bounded, _ = minimise_bounded(costs, rho, largest, low, high)
        level, beta, rate = bounded.level, bounded.beta, bounded.n * largest
        kink = bounded.capped == bounded.bought
        if np.any(kink):  # where the market would just not buy from one more
            price = (bounded.norm * rate + rho) / rate**2 - base.offset
            level = np.where(kink, np.clip(price, level, bounded.level_above), level)
        y = np.where(np.isinf(costs.psi), np.inf, costs.y)
        weight = np.clip(beta * (level - y), 0.0, 1.0 / bounded.n)
        return CurvePoints(
            epsilon=np.where(kink & (weight > 0), 1.0 / bounded.n, weight) * bounded.n * e,
            value=form.mu * bounded.value,
            level=base.lowest + base.scale * level,
            cap_level=base.lowest + base.scale * (level - 1.0 / (bounded.n * beta)),
        )

    def _vertices(self, costs: Replaced) -> CurvePoints:
        """Solve with mu = 0, where the cheapest sellers are filled to the cap."""
        form, base = self.form, self._base
        cost, share, below, upto = cheapest(costs, form.max_weight)
        cost = cost * base.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            best = np.where(cost > 0, np.sqrt(form.sigma / form.gamma / cost), np.inf)
        eta = np.clip(best, form.eta_low, form.eta_high)
        if np.any(np.isinf(eta)):
            raise _free()
        own = np.where(costs.place < below, form.max_weight, share)
        own = np.where(costs.place < upto, own, 0.0)
        marginal = costs.value(np.arange(below.size), upto - 1)
        return CurvePoints(
            epsilon=own * eta,
            value=form.sigma / eta + form.gamma * eta * cost,
            level=base.lowest + base.scale * marginal,
            cap_level=base.lowest + base.scale * marginal,
        )


def _best_of(points: list[PathPoint]) -> PathPoint:
    """Return the best of several points of every market."""
    best = np.argmin([point.value for point in points], axis=0)
    return PathPoint.joined(points)[best * best.size + np.arange(best.size)]


def _chunks(index: Ints) -> list[Ints]:
    return [index[start : start + _CHUNK] for start in range(0, index.size, _CHUNK)]


def _free() -> UnattainedOptimumError:
    return UnattainedOptimumError(
        "at some report a seller's privacy is free, and the buyer would want infinitely "
        "much of it; bound eta with EtaRange(low, high)"
    )
