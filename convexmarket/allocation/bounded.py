r"""The papers' problem under one largest guarantee: the proven global minimum of each market.

With a bound e on every guarantee the optimal ones are ``clip(x - b*psi, 0, e)``. At a given total
S = eta the bound acts as a cap of e/S on the weights. Hence x and b follow from prefix sums, with j
sellers at the bound and q bought from. The objective is stationary in S where

.. math:: T(S) = \gamma\,(x/b)\,S^2 - \mu N = \sigma, \qquad N = \|\varepsilon\| .

As S grows, so do x, b and N (docs/theory.md, section 9.3). So on any interval of S the ends
bound T, hence the slope ``(T - sigma)/S^2`` of the objective. An interval is discarded if T cannot
equal sigma there, or if it cannot contain the minimum. T jumps at totals where all sellers who sell
are at the bound; these totals are ends of intervals.

The search treats many markets together. Below S = e/u no bound binds before the cap u does, which
:mod:`convexmarket.allocation.path` solves. Units are as in that module, where S is
``r = gamma*eta/mu``, and totals are counted in bounds: ``S = n*e``.
"""

from __future__ import annotations

import numpy as np

from convexmarket.allocation.path import (
    Costs,
    Floats,
    Ints,
    Point,
    beta_at,
    joined,
    lowest,
    minimise,
    segment,
    take,
)

#: Steps from a guess to the piece that contains a total; a search follows if they fail.
_STEPS = 30
#: Parts of an interval in each round, rounds, and relative width of intervals that are not split.
_PARTS, _ROUNDS, _NARROW = 4, 80, 3e-8
#: Relative accuracy of objectives, and slack of the test that discards an interval.
_EXACT, _SLACK = 1e-15, 1e-13
#: Relative distance from the best point of the other end of the chord that gives the root of T.
_NEAR = 1e-6
#: Nodes in each round, unless more intervals are left.
_NODES = 64


class _Bounded:
    """Many markets under one largest guarantee."""

    def __init__(self, costs: Costs, rho: float, largest: float) -> None:
        self.costs, self.rho, self.largest = costs, rho, largest
        self.sellers = costs.number(costs.size)

    def at(self, e: Ints, n: Floats, j: Ints, q: Ints) -> Point:
        """Compute the best point at each total, by a fixed point of j, q and the level."""
        costs, sellers = self.costs[e], self.sellers[e]
        whole = np.minimum(np.floor(n).astype(np.intp), sellers)
        least = costs.position(np.minimum(whole, sellers - 1)) + 1
        most = costs.position(np.ceil(n).astype(np.intp) - 1)
        # No seller is strictly between 0 and the bound where the next one costs 1/b more.
        last = costs.position(np.maximum(whole, 1) - 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            width = 1.0 / (self.largest * whole * np.sqrt(whole))
        following = np.where(whole < sellers, costs.value(least - 1), np.inf)
        full = (n == whole) & (following - costs.value(last) >= width)
        j, q = np.minimum(j, most), np.clip(q, least, costs.size)
        j[full] = q[full] = last[full] + 1
        todo = np.flatnonzero(~full)
        for _ in range(_STEPS):
            if not todo.size:
                break
            some, total = costs[todo], self._points(e[todo], n[todo], j[todo], q[todo])
            bought = some.rows_below(total.level, "left")
            bought = np.clip(bought, least[todo], some.size)
            capped = some.rows_below(total.level - 1.0 / (total.beta * total.n), "right")
            capped = np.clip(capped, 0, most[todo])
            moved = (bought != q[todo]) | (capped != j[todo])
            j[todo], q[todo] = capped, bought
            todo = todo[moved]
        if todo.size:
            rate = n[todo] * self.largest
            point = minimise(costs[todo], n[todo], self.rho, rate=rate)
            j[todo], q[todo] = point.capped, point.bought
        return self._points(e, n, j, q)

    def _points(self, e: Ints, n: Floats, j: Ints, q: Ints) -> Point:
        """Compute the points of pieces; without free sellers, all sellers are at the bound."""
        costs, rate, full = self.costs[e], n * self.largest, np.flatnonzero(j == q)
        free, left, mean, spread, cost, norm2 = segment(costs, n, j, q)
        with np.errstate(divide="ignore", invalid="ignore"):  # a piece without such a total
            beta = beta_at(spread, norm2, rate)
            norm, level = beta / rate, mean + left / (beta * free)
            value = norm + rate * (cost - beta * spread) + self.rho / rate
        above = level.copy()
        if full.size:
            some, k = costs[full], j[full]
            level[full] = some.value(k - 1) + 1.0 / (beta[full] * n[full])
            number = some.number(k)
            next_cost = some.value(np.minimum(some.position(number), some.size - 1))
            next_cost = np.where(number < self.sellers[e[full]], next_cost, np.inf)
            above[full] = np.maximum(next_cost, level[full])
        return Point(value, rate, n, beta, norm, level, above, j, q)

    def bound(self, a: Point, b: Point) -> Floats:
        """Bound the objective between two totals from below; inf where T cannot equal rho."""
        low, high, rho = a.rate, b.rate, self.rho
        first = (self.costs.offset + a.above) * (a.beta * low)  # x
        last = (self.costs.offset + b.level) * (b.beta * high)
        least = first / (b.beta * high) * low * low - b.norm * high
        most = last / (a.beta * low) * high * high - a.norm * low
        may = (least < rho * (1 + _SLACK)) & (most > rho * (1 - _SLACK))
        down, up = np.minimum(least - rho, 0.0) / low**2, np.maximum(most - rho, 0.0) / low**2
        bent, width = up > down, high - low
        meet = (a.value - b.value + up * width) / np.where(bent, up - down, 1.0)
        below = a.value + down * np.where(bent, np.clip(meet, 0.0, width), 0.0)
        return np.where(may, below, np.inf)

    def polished(self, e: Ints, near: Point, low: float, high: Floats) -> Point:
        """Return points near the given ones at which T equals rho, by a secant step."""
        n, guess = near.n, (near.capped, near.bought)

        def excess(at: Point) -> Floats:
            return (self.costs.offset + at.level) * at.rate**2 - at.norm * at.rate - self.rho

        first = excess(near)
        second = self.at(e, np.clip(n * (1 - np.sign(first) * _NEAR), low, high), *guess)
        rise = excess(second) - first
        step = -first * (second.n - n) / np.where(rise == 0, np.inf, rise)
        step = np.where(np.abs(step) <= 10 * _NEAR * n, step, 0.0)
        return self.at(e, np.clip(n + step, low, high), *guess)

    def split(self, e: Ints, a: Point, b: Point, parts: int) -> tuple[Ints, Point, Point]:
        """Split every interval: at whole numbers where there are any, else by equal factors."""
        a, b = take(a, np.s_[:, None]), take(b, np.s_[:, None])
        n = a.n * (b.n / a.n) ** (np.arange(1, parts) / parts)
        whole, only = np.rint(n), np.floor(a.n) + 1.0
        n = np.where((whole > a.n) & (whole < b.n), whole, n)
        # A narrow interval contains only one whole number.
        n = np.where((only < b.n) & (b.n - a.n <= 1.0), only, n)
        share = (n - a.n) / (b.n - a.n)
        j = a.capped + np.rint(share * (b.capped - a.capped)).astype(np.intp)
        q = a.bought + np.rint(share * (b.bought - a.bought)).astype(np.intp)
        points = self.at(np.repeat(e, parts - 1), n.ravel(), j.ravel(), q.ravel())
        nodes = joined([a, take(points, np.arange(n.size).reshape(n.shape)), b], axis=1)
        inner = np.nonzero(np.diff(nodes.n, axis=1) > 0)
        low, high = take(nodes, np.s_[:, :-1]), take(nodes, np.s_[:, 1:])
        return e[inner[0]], take(low, inner), take(high, inner)


def minimise_bounded(
    costs: Costs, rho: float, largest: float, low: float, high: float
) -> tuple[Point, Floats]:
    """Compute the best point of each market with the total in a range, and a lower bound.

    ``largest`` is the bound on ``r*a_i``. The least and the largest total, ``low`` and ``high``,
    are counted in it; ``low`` is at least 1 and 1/u. The value is infinite if a market has no such
    total.
    """
    markets = _Bounded(costs, rho, largest)
    e, none = np.arange(costs.count), np.zeros(costs.count, dtype=np.intp)
    top = np.minimum(high, markets.sellers).astype(float)
    able = top >= low
    a, b = (markets.at(e, n, none, none + costs.size) for n in (np.minimum(low, top), top))
    best = take(a, e)
    best.value[~able] = np.inf
    e, a, b = e[able], take(a, able), take(b, able)
    _improve(best, e, b)
    bound = best.value.copy()
    for round_ in range(_ROUNDS):
        below, aim = markets.bound(a, b), best.value[e]
        undecided = below < aim - _EXACT * np.abs(aim)
        narrow = (b.n - a.n <= _NARROW * b.n) | (round_ == _ROUNDS - 1)
        np.minimum.at(bound, e[undecided & narrow], below[undecided & narrow])
        wide = undecided & ~narrow
        if not wide.any():
            break
        parts = max(_PARTS, _NODES // int(np.count_nonzero(wide)))
        e, a, b = markets.split(e[wide], take(a, wide), take(b, wide), parts)
        _improve(best, e, a)
    free = np.flatnonzero(able & (best.capped < best.bought))
    for _ in range(2 * bool(free.size)):  # values give half of the digits of the total
        _improve(best, free, markets.polished(free, take(best, free), low, top[free]), 4 * _EXACT)
    # The level at which the market is indifferent to one more seller.
    price = (best.norm * best.rate + rho) / best.rate**2 - costs.offset
    kink = np.clip(price, best.level, best.above)
    level = np.where(best.capped == best.bought, kink, best.level)
    return best._replace(level=level), np.minimum(bound, best.value)


def _improve(best: Point, e: Ints, points: Point, slack: float = 0.0) -> None:
    """Update the best point of each market by further points of markets e.

    Roots have a slack, because objectives near a minimum determine half of the digits of the total.
    """
    first = lowest(e, points.value)
    first = first[points.value[first] < best.value[e[first]] * (1 + slack)]
    for part, new in zip(best, points, strict=True):
        part[e[first]] = new[first]
