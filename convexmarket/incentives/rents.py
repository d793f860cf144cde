r"""Rents of truthful sellers: the integrals of u(eps(z)) over all higher reports z (A, Eq. 8).

A *curve* computes the guarantees and rents of sellers at other reports. :class:`ExactCurve` is the
curve of the papers' problem, and :class:`SolvedCurve` the curve of any other market.

Let F(y) be the buyer's optimal objective if the seller's virtual cost is y. F is concave, and its
slope is gamma*u(eps(y)), where gamma is the weight of the payments. Where psi is affine with slope
k, the rent is the difference of two optimal objectives divided by gamma*k. Elsewhere, the curve of
the papers' problem is integrated by adaptive quadrature, to 11 digits. Other markets require a
solve at each report, so psi is replaced by its chord between two reports. Let o(y) be the
difference between the inverses of psi and of the chord. The remainder of the rent is the integral
of -o(y)*u'(y). For an affine u, the remainder is the decrease of u times the mean of o. In general,
the error is at most the decrease of u times the largest deviation of o from its mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation, CertifiedPurchase
from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.errors import AllocationError, InfeasibleMarketError, NotSupportedError
from convexmarket.incentives.quadrature import NODES, adaptive, cut, first_root
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = ["Curve", "ExactCurve", "SolvedCurve"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

ACCURACY = 1e-11  # relative accuracy of integrals
ACCURACY_BOUNDED = 1e-8  # relative accuracy under a bound on guarantees, which causes many kinks
_ACCURACY_BETWEEN = 3e-11  # relative accuracy of interpolation between integrals
_MANY, _MANY_AFFINE = 256, 10_000  # numbers of sellers above which rents are interpolated
_FEWEST = 16  # largest number of nodes for which an interpolation is not accepted
_LOST = 1e-15  # ratio of mu to noise and payments below which double precision is insufficient
_TABLE, _FEW = 16385, 8  # size of a grid of reports, and largest number of initial cuts at kinks
_MOST_SOLVES, _MOST_PIECES = 100, 12  # largest numbers of solves for a rent, and of intervals


class ExactCurve:
    """Exact guarantees and rents in the papers' problem, vectorised over reports."""

    def __init__(self, curve: OwnReportCurve) -> None:
        self.curve = curve
        self.accuracy = ACCURACY_BOUNDED if curve.form.max_epsilon < np.inf else ACCURACY

    def answers(self, seller: Ints, virtual_cost: Floats) -> tuple[Floats, Floats, Floats]:
        """Return guarantees at other virtual costs, their costs u, and error bounds for u."""
        epsilon = self.curve(seller, virtual_cost).epsilon
        return epsilon, epsilon, np.zeros(epsilon.size)

    def rents(
        self, prior: Prior, seller: Ints, reports: Floats, coarse: bool = False
    ) -> tuple[Floats, Floats]:
        """Return rents and bounds on their errors. Coarse rents are exact as well."""
        curve, form, top = self.curve, self.curve.form, prior.support[1]
        least = np.min(form.virtual_costs, initial=np.inf, where=form.virtual_costs > 0)
        if 0 < form.mu < _LOST * np.sqrt(form.sigma) * np.sqrt(form.gamma * least) < np.inf:
            raise AllocationError(
                f"mu = {form.mu:g} is too small for double precision; use 0 or a larger number"
            )
        if np.isinf(top) and curve.needs_each:
            raise _endless(prior, "under this cap (or with one seller) every seller is needed")
        truth = np.asarray(prior.ironed_virtual_cost(reports))
        slope = prior.virtual_cost_slope if np.isfinite(top) else None
        many = _MANY if slope is None else _MANY_AFFINE
        if seller.size >= many and np.all(truth == form.virtual_costs[seller]):
            return self._of_many(prior, seller, reports), np.zeros(seller.size)
        if slope is None:
            return self._integrals(prior, seller, reports)
        honest, highest_cost = curve(seller, truth), prior.ironed_virtual_cost(top)
        who, place = np.unique(seller, return_inverse=True)
        highest = curve(who, np.full(who.size, highest_cost)).value[place]
        rents = np.maximum(highest - honest.value, 0.0) / (form.gamma * slope)
        errors = np.finfo(float).eps * highest / (form.gamma * slope)
        lost = errors > 10.0 * ACCURACY * (rents + reports * honest.epsilon)
        if np.any(lost):
            rents[lost], errors[lost] = self._integrals(prior, seller[lost], reports[lost])
        return rents, errors

    def last_sale(self, prior: Prior, seller: Ints, reports: Floats) -> Floats:
        """Approximate the smallest report at which each seller sells nothing."""
        curve, top, psi = self.curve, prior.support[1], prior.ironed_virtual_cost
        if curve.needs_each:
            return np.full(seller.size, top)
        level = curve(seller, np.full(seller.size, np.inf)).level  # usually psi at the highest sale

        def unsold(z: Floats, who: Ints) -> Floats:
            return np.where(self._sold(prior, seller[who], z) == 0, 1.0, -1.0)

        end = first_root(lambda z, level: psi(z) - level, level, reports, top, prior.mean)
        end = np.minimum(end * (1 + 1e-10), top)  # slightly larger, because of rounding
        still = np.flatnonzero(unsold(end, np.arange(seller.size)) < 0)
        end[still] = first_root(unsold, still, end[still], top, prior.mean)
        return end

    def _sold(self, prior: Prior, seller: Ints, z: Floats) -> Floats:
        return self.curve(seller, np.asarray(prior.ironed_virtual_cost(z))).epsilon

    def _integrals(self, prior: Prior, seller: Ints, reports: Floats) -> tuple[Floats, Floats]:
        """Integrate the guarantees from the reports to the last sale, separately between kinks."""
        order = np.lexsort((reports, seller))
        seller, low = seller[order], reports[order]
        who, first, count = np.unique(seller, return_index=True, return_counts=True)
        end = np.repeat(self.last_sale(prior, who, low[first]), count)
        low = np.minimum(low, end)
        high = np.roll(low, -1)  # a seller's common parts are integrated once
        high[first + count - 1] = end[first]
        if prior.is_step:  # the guarantee is constant on each piece
            owner, left, right = cut(low, high, prior.breakpoints)
            pieces = (right - left) * self._sold(prior, seller[owner], 0.5 * (left + right))
            parts = 1.0 * np.bincount(owner, pieces, seller.size), np.zeros(seller.size)
        else:
            least = self._least_payment(prior, seller, low, end) / np.repeat(count, count)
            limits = low, high, self.accuracy * least, prior.breakpoints
            parts = adaptive(lambda k, z: self._sold(prior, seller[k], z), *limits)
        sums = np.empty((2, seller.size))
        for some in np.split(np.arange(seller.size)[::-1], seller.size - first[:0:-1]):
            sums[:, order[some]] = np.cumsum(np.array(parts)[:, some], axis=1)
        return sums[0], sums[1]

    def _least_payment(self, prior: Prior, seller: Ints, reports: Floats, end: Floats) -> Floats:
        """Compute lower bounds on payments; the rent is at least eps(z)*(z - c) for any z."""
        reach = np.outer(end - reports, 0.5 ** np.array([1, 2, 4, 8, 16, 32]))
        z = (reports[:, None] + reach).ravel()
        further = self._sold(prior, np.repeat(seller, reach.shape[1]), z).reshape(reach.shape)
        return reports * self._sold(prior, seller, reports) + np.max(reach * further, axis=1)

    def _of_many(self, prior: Prior, seller: Ints, reports: Floats) -> Floats:
        """Compute the rents of truthful sellers by integration at some reports and interpolation.

        Between kinks, a polynomial through every second integral is tested at the other integrals.
        """
        places, first, place = np.unique(reports, return_index=True, return_inverse=True)
        sold, rents = self.curve.truth[seller[first]], np.full(places.size, np.nan)

        def polynomial(nodes: Ints) -> Chebyshev:
            # "full" suppresses a warning about nearly equal points; such fits are rejected.
            return Chebyshev.fit(places[nodes], rents[nodes], nodes.size - 1, full=True)[0]

        capped = np.isclose(sold, sold.max(), rtol=1e-12, atol=0.0)
        kinks = np.searchsorted(places, prior.breakpoints, side="right")
        cuts = np.unique([*kinks, np.count_nonzero(capped), np.count_nonzero(sold)])
        stretches = [some for some in np.split(np.arange(places.size), cuts) if some.size]
        while stretches:
            through = [_nodes_among(places, some) for some in stretches]
            new = np.unique(np.concatenate(through))
            new = new[np.isnan(rents[new])]
            rents[new] = self._integrals(prior, seller[first[new]], reports[first[new]])[0]
            pairs, stretches = zip(stretches, through, strict=True), []
            for some, nodes in pairs:
                rest, others = some[np.isnan(rents[some])], nodes[1::2]
                off = np.abs(polynomial(nodes[::2])(places[others]) - rents[others])
                paid = (places * sold + rents)[others]
                if nodes.size > _FEWEST and np.all(off <= _ACCURACY_BETWEEN * paid):
                    rents[rest] = polynomial(nodes)(places[rest])
                elif rest.size:
                    stretches += np.array_split(some, 2)
        return rents[place]


def _nodes_among(places: Floats, some: Ints) -> Ints:
    """Return the points closest to Chebyshev nodes, or all points if there are few points."""
    if some.size < _MANY:
        return some
    low, high = places[some[0]], places[some[-1]]
    at = np.searchsorted(places[some], low + 0.5 * (high - low) * (1.0 + NODES))
    return np.unique(some[np.minimum(at, some.size - 1)])


def _endless(prior: Prior, why: str) -> NotSupportedError:
    return NotSupportedError(
        f"{prior!r} has no largest sensitivity, and {why}, so no finite payment is truthful; use a "
        "prior with bounded support, or change the market"
    )


class _Point(NamedTuple):
    """Bounds on the optimal objective, and the seller's guarantee, at one virtual cost."""

    upper: float
    lower: float
    epsilon: float
    sold: float


class _Cell(NamedTuple):
    """Integral of u(eps) over a cell, and its errors due to certificates and to curvature."""

    value: float
    gap: float
    bend: float  # error due to curvature, which more solves would reduce


class SolvedCurve:
    """Curve of any market. The market is solved at each requested report; the results are stored.

    Rents follow from objectives ("envelope"), the top report ("constant") or u ("quadrature").
    """

    def __init__(
        self, market: Market, allocation: Allocation, gap: float, method: str, tolerances: Floats
    ) -> None:
        self.market, self.method, self._gap, self.n_solves = market, method, gap, 0
        self._tolerances = tolerances  # tolerated error of the rent of each seller, shape (m,)
        self._truth: CertifiedPurchase = allocation
        self._nearest = self._truth
        self._points: dict[tuple[int, float], _Point] = {}

    def answers(self, seller: Ints, virtual_cost: Floats) -> tuple[Floats, Floats, Floats]:
        """Return guarantees at other virtual costs, their costs u, and error bounds for u."""
        points = [self._at(int(i), float(y)) for i, y in zip(seller, virtual_cost, strict=True)]
        doubts = [self._doubt(point, y) for point, y in zip(points, virtual_cost, strict=True)]
        epsilon, sold = np.array([point[2:] for point in points]).reshape(-1, 2).T
        return epsilon, sold, np.array(doubts)

    def rents(
        self, prior: Prior, seller: Ints, reports: Floats, coarse: bool = False
    ) -> tuple[Floats, Floats]:
        """Return rents and error bounds. A seller's coarse rents are parts of one integral."""
        rents, errors = np.zeros((2, reports.size))
        for i in np.unique(seller).tolist():
            some, goal = seller == i, np.inf if coarse else float(self._tolerances[i])
            rents[some], errors[some] = self._rents_of(prior, i, reports[some], goal)
        return rents, errors

    def _rents_of(
        self, prior: Prior, seller: int, reports: Floats, tolerance: float
    ) -> tuple[Floats, Floats]:
        end, n = self._end_of_sales(prior, seller, float(reports.min())), reports.size
        if self.method == "constant":
            return (end - reports) * self._sold(prior, seller, reports), np.zeros(n)
        if self.method == "envelope" or np.isinf(tolerance):
            return self._by_chords(prior, seller, reports, end, tolerance)
        first = int(np.searchsorted(prior.breakpoints, reports.min(), side="right"))
        kinks = prior.breakpoints[first : first + _FEW]
        limits = reports, np.full(n, end), np.full(n, tolerance), kinks, _MOST_PIECES
        rents, errors = adaptive(lambda _, z: self._sold(prior, seller, z), *limits)
        # The relative error of guarantees has the order of the square root of the gap.
        return rents, errors + rents * np.sqrt(2.0 * self._gap)

    def last_sale(self, prior: Prior, seller: Ints, reports: Floats) -> Floats:
        """Return a report at which each seller usually sells nothing: four times the truth."""
        return np.clip(np.maximum(4.0 * reports, prior.mean), *prior.support)

    def _sold(self, prior: Prior, seller: int, reports: Floats) -> Floats:
        costs = np.atleast_1d(prior.ironed_virtual_cost(reports))
        return np.array([self._at(seller, float(y)).sold for y in costs])

    def _at(self, seller: int, virtual_cost: float) -> _Point:
        """Solve the market at a virtual cost (+inf excludes the seller), and store the point."""
        key = seller, virtual_cost
        if key not in self._points:
            try:
                answer = self._solve(seller, virtual_cost)
                epsilon = float(answer.epsilon[seller])
                sold = float(self.market.privacy_cost(epsilon))
                self._points[key] = _Point(answer.objective, answer.lower_bound, epsilon, sold)
            except InfeasibleMarketError:
                if np.isfinite(virtual_cost):
                    raise
                self._points[key] = _Point(np.inf, np.inf, 0.0, 0.0)
        return self._points[key]

    def _solve(self, seller: int, virtual_cost: float) -> CertifiedPurchase:
        """Solve the market at a different virtual cost, starting from the previous allocation."""
        market = self.market
        if virtual_cost == market.sellers.virtual_costs[seller]:
            return self._truth
        self.n_solves += 1
        sellers, start = market.sellers.with_virtual_cost(seller, virtual_cost), self._nearest
        changed = Market(sellers, market.objective, market.constraints)
        self._nearest = allocate(changed, gap=self._gap, start=start)
        return self._nearest

    def _doubt(self, point: _Point, virtual_cost: float) -> float:
        """Estimate the error of ``sold`` from the gap, if u(eps) has a cost elasticity of one."""
        gamma = self.market.form.total_gamma
        spent = virtual_cost * point.sold * gamma if gamma > 0 else abs(point.upper)
        if point.sold == 0 or not 0 < spent < np.inf:
            return 0.0
        return point.sold * float(np.sqrt(2.0 * max(point.upper - point.lower, 0.0) / spent))

    def _end_of_sales(self, prior: Prior, seller: int, report: float) -> float:
        """Return the upper end of a finite support, or a report at which nothing is sold."""
        top = prior.support[1]
        if np.isfinite(top):
            return top
        if self.method == "constant":
            raise _endless(prior, "the purchases do not depend on the reports")
        if np.isfinite(self._at(seller, np.inf).upper):
            nothing = 1e-9 * self._sold(prior, seller, np.array([report]))
            for further in report + prior.mean * 2.0 ** np.arange(60):
                if np.all(self._sold(prior, seller, further) <= nothing):
                    return float(further)
        raise _endless(prior, "the market is infeasible without this seller")

    def _by_chords(
        self, prior: Prior, seller: int, reports: Floats, end: float, tolerance: float
    ) -> tuple[Floats, Floats]:
        """Compute the integrals of u(eps) from each report to the end, and error bounds."""
        z, y, cuts = _table(prior, reports, end)
        cell = cache(partial(self._cell, seller, z, y))
        nodes = np.unique([*np.searchsorted(z, cuts), z.size - 1]).tolist()
        while True:
            cells = [cell(a, b) for a, b in pairwise(nodes)]
            bends = np.array([each.bend for each in cells])
            error = bends.sum() + sum(each.gap for each in cells)
            divisible = np.diff(nodes) > 1
            good = error <= tolerance or bends.sum() < 0.1 * tolerance
            if good or len(cells) >= _MOST_SOLVES or not divisible.any():
                break
            k = int(np.argmax(np.where(divisible, bends, -1.0)))
            a, b = nodes[k : k + 2]
            middle = (a + b) // 2
            if y[a] < y[b] < np.inf:  # the report at which psi is farthest from its chord
                middle = a + 1 + int(np.argmax(np.abs(_off_chord(z, y, a, b)[1:-1])))
            nodes.insert(k + 1, middle)
        sums = np.array([[c.value, c.gap + c.bend] for c in cells] + [[0.0, 0.0]])
        behind = np.cumsum(sums[::-1], axis=0)[::-1]
        if np.isinf(prior.support[1]):  # F/f does not decrease there, so psi' >= 1
            last, out = self._at(seller, float(y[-1])), self._at(seller, np.inf)
            rest = max(0.0, out.upper - last.lower) / self.market.form.total_gamma
            behind[:, 1] += rest
        values, errors = behind[np.searchsorted(nodes, np.searchsorted(z, reports))].T
        return values, errors

    def _cell(self, seller: int, z: Floats, y: Floats, a: int, b: int) -> _Cell:
        """Integrate u(eps) over a cell by the method with the smaller error bound."""
        left, right = self._at(seller, float(y[a])), self._at(seller, float(y[b]))
        width, drop = float(z[b] - z[a]), max(0.0, left.sold - right.sold)
        doubt = width * self._doubt(left, float(y[a]))
        ends = _Cell(0.5 * width * (left.sold + right.sold), doubt, 0.5 * width * drop)
        if self.method != "envelope" or not y[a] < y[b] < np.inf:
            return ends
        rise, gamma = float(y[b] - y[a]), self.market.form.total_gamma
        per_objective = width / (rise * gamma)
        gap = max(left.upper - left.lower, right.upper - right.lower) * per_objective
        off = _off_chord(z, y, a, b)
        centre = float(0.5 * (off[1:] + off[:-1]) @ np.diff(y[a : b + 1]) / rise)
        value = (right.upper - left.upper) * per_objective + drop * centre
        bend = drop * max(centre - float(off.min()), float(off.max()) - centre)
        return min(_Cell(max(value, 0.0), gap, bend), ends, key=lambda cell: cell.gap + cell.bend)


Curve = ExactCurve | SolvedCurve


def _off_chord(z: Floats, y: Floats, a: int, b: int) -> Floats:
    return z[a : b + 1] - (z[a] + (z[b] - z[a]) / (y[b] - y[a]) * (y[a : b + 1] - y[a]))


def _table(prior: Prior, reports: Floats, end: float) -> tuple[Floats, Floats, Sequence[float]]:
    """Return a grid of reports up to the end, their virtual costs, and the initial cell borders."""
    start = float(reports.min())
    end = max(start, end)
    cuts = [*reports, end]
    z = np.unique(cuts)
    if prior.virtual_cost_slope is None and start < end:
        # The virtual cost of a sample also jumps at the lower end of the support.
        kinks = np.append(prior.breakpoints, [prior.support[0]] * prior.is_step)
        kinks = kinks[(kinks >= start) & (kinks < end)]
        kinks = np.concatenate((kinks, np.nextafter(kinks, np.inf)))  # psi can jump there
        closer = start + (end - start) * np.geomspace(1e-6, 1.0, _TABLE)
        inside = np.concatenate((np.linspace(start, end, _TABLE), closer, kinks, cuts))
        z = np.unique(inside[(inside >= start) & (inside <= end)])
        cuts = [*cuts, *kinks] if kinks.size <= 2 * _FEW else cuts
    y = np.maximum.accumulate(np.asarray(prior.ironed_virtual_cost(z), dtype=float))
    return z, y, cuts
