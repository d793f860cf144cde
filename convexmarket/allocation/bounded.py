r"""Proven global minimum of the papers' problem under one bound on all guarantees.

With a bound e on every guarantee, optimal guarantees are ``clip(x - b*psi, 0, e)``. At a given
total S = eta, the bound is a cap of e/S on the weights. The objective is stationary in S where

.. math:: T(S) = \gamma\,(x/b)\,S^2 - \mu N = \sigma, \qquad N = \|\varepsilon\| .

x, b and N increase with S (docs/theory.md, section 9.3). Their values at the ends of an interval
therefore bound T, and the slope ``(T - sigma)/S^2`` of the objective, on that interval. An interval
is discarded if T cannot equal sigma, or the lower bound exceeds the best objective. Intervals end
at totals where every seller who sells is at the bound, because T jumps there.

For S < e/u, only the cap u binds, as in :mod:`convexmarket.allocation.path`. The search solves many
markets together, in the units of that module; S is ``r = gamma*eta/mu`` and a multiple n of e. Each
row of the costs is one seller.
"""

from __future__ import annotations

import numpy as np

from convexmarket.allocation.path import Floats, Ints, Markets, Points, best_of, beta_at, candidates

#: Number of fixed-point iterations after which the piece of a total is computed by a search.
_STEPS = 30
#: Number of parts of a split interval, number of rounds, and smallest relative width for a split.
_PARTS, _ROUNDS, _NARROW = 4, 80, 3e-8
#: Relative accuracy of the objective, and tolerance of the test that discards an interval.
_EXACT, _SLACK = 1e-15, 1e-13
#: Relative distance between the two totals that define the secant for the root of T = rho.
_NEAR = 1e-6
#: Smallest total number of parts into which the intervals of a round are split.
_NODES = 64


class _Bounded:
    """Solver of many markets under one bound on all guarantees."""

    def __init__(self, markets: Markets, rho: float, largest: float) -> None:
        self.markets, self.rho, self.largest = markets, rho, largest

    def at(self, e: Ints, n: Floats, j: Ints, q: Ints) -> Points:
        """Compute the best point at each total, by a fixed-point iteration for its piece (j, q)."""
        markets = self.markets[e]
        markets.n = n
        whole = np.minimum(np.floor(n).astype(np.intp), markets.size)
        most, least = np.ceil(n).astype(np.intp) - 1, np.minimum(whole + 1, markets.size)
        # If the next seller costs 1/b more, no guarantee is strictly between 0 and the bound.
        with np.errstate(divide="ignore", invalid="ignore"):
            width = 1.0 / (self.largest * whole * np.sqrt(whole))
        apart = markets.value(least - 1) - markets.value(np.maximum(whole, 1) - 1) >= width
        full = (n == whole) & (apart | (whole == markets.size))
        j, q = np.minimum(j, most), np.clip(q, least, markets.size)
        j[full] = q[full] = whole[full]
        todo = np.flatnonzero(~full)
        for _ in range(_STEPS):
            if not todo.size:
                break
            some, total = markets[todo], self._points(markets[todo], e[todo], j[todo], q[todo])
            bought = np.clip(some.rows(total.level), least[todo], some.size)
            capped = some.rows(total.level - 1.0 / (total.beta * total.n), "right")
            capped = np.clip(capped, 0, most[todo])
            moved = (bought != q[todo]) | (capped != j[todo])
            j[todo], q[todo] = capped, bought
            todo = todo[moved]
        if todo.size:
            some = markets[todo].under(n[todo])
            point = best_of(candidates(some, 0.0, [n[todo] * self.largest]))
            j[todo], q[todo] = point.capped, point.bought
        return self._points(markets, e, j, q)

    def _points(self, markets: Markets, e: Ints, j: Ints, q: Ints) -> Points:
        """Compute the point of each piece at its total; j = q if all sellers are at the bound."""
        piece, rate = markets.piece(j, q), markets.n * self.largest
        beta = beta_at(piece, rate)
        points = markets.points(e, j, q, piece, beta, rate, self.rho)
        if (full := np.flatnonzero(j == q)).size:
            some, k = markets[full], j[full]
            points.level[full] = some.value(k - 1) + 1.0 / (beta[full] * some.n)
            following = np.where(k < some.size, some.value(np.minimum(k, some.size - 1)), np.inf)
            points.above[full] = np.maximum(following, points.level[full])
        return points

    def bound(self, a: Points, b: Points) -> Floats:
        """Compute a lower bound on the objective between two totals, or inf if no T equals rho."""
        low, high, rho, offset = a.rate, b.rate, self.rho, self.markets.costs.offset
        first, last = (offset + a.above) * (a.beta * low), (offset + b.level) * (b.beta * high)  # x
        least = first / (b.beta * high) * low * low - b.norm * high
        most = last / (a.beta * low) * high * high - a.norm * low
        may = (least < rho * (1 + _SLACK)) & (most > rho * (1 - _SLACK))
        down, up = np.minimum(least - rho, 0.0) / low**2, np.maximum(most - rho, 0.0) / low**2
        bent, width = up > down, high - low
        meet = (a.value - b.value + up * width) / np.where(bent, up - down, 1.0)
        below = a.value + down * np.where(bent, np.clip(meet, 0.0, width), 0.0)
        return np.where(may, below, np.inf)

    def polished(self, near: Points, low: float, high: Floats) -> Points:
        """Move each point by a secant step towards a root of T = rho."""
        e, n, guess = near.e, near.n, (near.capped, near.bought)

        def excess(at: Points) -> Floats:
            cost = self.markets.costs.offset + at.level
            return cost * at.rate**2 - at.norm * at.rate - self.rho

        first = excess(near)
        second = self.at(e, np.clip(n * (1 - np.sign(first) * _NEAR), low, high), *guess)
        rise = excess(second) - first
        step = -first * (second.n - n) / np.where(rise == 0, np.inf, rise)
        step = np.where(np.abs(step) <= 10 * _NEAR * n, step, 0.0)
        return self.at(e, np.clip(n + step, low, high), *guess)

    def split(self, a: Points, b: Points) -> tuple[Points, Points]:
        """Split intervals of totals by equal factors, rounded to whole numbers inside."""
        parts = max(_PARTS, _NODES // a.e.size)
        a, b = a[:, None], b[:, None]
        n = a.n * (b.n / a.n) ** (np.arange(1, parts) / parts)
        whole = np.rint(n)
        n = np.where((whole > a.n) & (whole < b.n), whole, n)
        share = (n - a.n) / (b.n - a.n)
        j = a.capped + np.rint(share * (b.capped - a.capped)).astype(np.intp)
        q = a.bought + np.rint(share * (b.bought - a.bought)).astype(np.intp)
        points = self.at((a.e + 0 * j).ravel(), n.ravel(), j.ravel(), q.ravel())
        nodes = Points.joined([a, points[np.arange(n.size).reshape(n.shape)], b], axis=1)
        inner = np.diff(nodes.n, axis=1) > 0
        return nodes[:, :-1][inner], nodes[:, 1:][inner]


def minimise_bounded(
    markets: Markets, rho: float, largest: float, low: float, high: float
) -> tuple[Points, Floats]:
    """Compute the best point of each market in a range of totals, and a lower bound.

    ``largest`` is the bound on ``r*a_i``, and the unit of ``low`` and ``high``, the ends of the
    range. ``low`` must be at least ``max(1, 1/u)``. If no total is feasible, the value is infinite.
    """
    bounded, e = _Bounded(markets, rho, largest), np.arange(markets.size.size)
    top = np.minimum(high, markets.size).astype(float)
    able = top >= low
    a, b = (bounded.at(e, n, 0 * e, 0 * e + markets.size) for n in (np.minimum(low, top), top))
    best = a[e]
    best.value[~able] = best.key[~able] = np.inf
    a, b = a[able], b[able]
    _improve(best, b)
    bound = best.value.copy()
    for round_ in range(_ROUNDS):
        below, aim = bounded.bound(a, b), best.value[a.e]
        undecided = below < aim - _EXACT * np.abs(aim)
        narrow = (b.n - a.n <= _NARROW * b.n) | (round_ == _ROUNDS - 1)
        np.minimum.at(bound, a.e[undecided & narrow], below[undecided & narrow])
        wide = undecided & ~narrow
        if not wide.any():
            break
        a, b = bounded.split(a[wide], b[wide])
        _improve(best, a)
    free = np.flatnonzero(able & (best.capped < best.bought))
    for _ in range(2 * bool(free.size)):  # improve the accuracy of the totals
        _improve(best, bounded.polished(best[free], low, top[free]), 4 * _EXACT)
    # At this level, a further seller would not change the objective.
    price = (best.norm * best.rate + rho) / best.rate**2 - markets.costs.offset
    full = best.capped == best.bought
    best.level[full] = np.clip(price, best.level, best.above)[full]
    return best, np.minimum(bound, best.value)


def _improve(best: Points, points: Points, slack: float = 0.0) -> None:
    """Replace the best point of each market if one of the given points is better.

    A point is better if its objective is less than ``1 + slack`` times the objective of the best
    point. The objective determines only half of the digits of the total near a minimum.
    """
    first = best_of(points)
    first = first[first.value < best.value[first.e] * (1 + slack)]
    best[first.e] = first
