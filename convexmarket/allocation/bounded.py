r"""The papers' problem under one largest guarantee: every market's global minimum, proven.

With a bound e on every guarantee the optimal ones are ``clip(x - b*psi, 0, e)``. At a given total
S = eta the bound acts as a cap of e/S on the weights. Hence x and b follow from prefix sums, with j
sellers at the bound and q bought from. The objective is stationary in S where

.. math:: T(S) = \gamma\,(x/b)\,S^2 - \mu N = \sigma, \qquad N = \|\varepsilon\| .

As S grows, so do x, b and N (docs/theory.md, section 9.3). So on any interval of S the ends
bound T, hence the slope ``(T - sigma)/S^2`` of the objective. An interval is discarded if T cannot
equal sigma there, or if it cannot contain the minimum. Where j and q are constant, T is one formula
with a slope of one sign on short intervals, and its root is computed. T jumps at totals where all
buying is at the bound; these totals are ends of intervals.

The search runs on many markets at once. Below S = e/u no bound binds before the cap u does, which
:mod:`convexmarket.allocation.path` solves. Units are those of that module, where S is
``r = gamma*eta/mu``, and totals are counted in bounds: ``S = n*e``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.path import Point, beta_at, point_at, segment
from convexmarket.allocation.sorted_costs import Costs, Floats, Ints, StructOfArrays

__all__ = ["minimise_bounded"]

#: Steps towards the piece that a total is on, from a guess; a search follows where they fail.
_STEPS = 30
#: Parts of an interval in each round, rounds, and relative width of intervals that are not split.
_PARTS, _ROUNDS, _NARROW = 4, 80, 3e-8
#: Relative accuracy of objectives, and slack of the test that discards an interval.
_EXACT, _SLACK = 1e-15, 1e-13
#: Relative distance from the best point of the other end of the chord that gives the root of T.
_NEAR = 1e-6
#: Ratio of the ends of an interval that is split around a crossing, and where, in widths.
_CLOSE, _AROUND = 2.0, np.array([-0.03, 0.0, 0.03])
#: Nodes in each round, unless more intervals are left.
_NODES = 64


@dataclass(frozen=True)
class _Total(StructOfArrays):
    """Best points at given totals, as in :class:`convexmarket.allocation.path.Point`.

    ``n`` is the total, counted in largest guarantees. ``level`` and ``level_above`` are the levels
    just below and just above this total. ``norm`` is the norm of the weights.
    """

    n: Floats
    capped: Ints
    bought: Ints
    beta: Floats
    level: Floats
    level_above: Floats
    norm: Floats
    value: Floats


@dataclass(frozen=True)
class _Cells(StructOfArrays):
    """Intervals of the totals of markets e."""

    e: Ints
    a: _Total
    b: _Total


class _Bounded:
    """Many markets under one largest guarantee."""

    def __init__(self, costs: Costs, rho: float, largest: float) -> None:
        self.costs, self.rho, self.largest = costs, rho, largest
        self.sellers = costs.number(costs.size)

    def at(self, e: Ints, n: Floats, guess: tuple[Ints, Ints]) -> _Total:
        """Compute the best point at each total, by a fixed point of j, q and the level."""
        costs, rate = self.costs[e], n * self.largest
        whole = np.minimum(np.floor(n).astype(np.intp), self.sellers[e])
        least = costs.position(np.minimum(whole, self.sellers[e] - 1)) + 1
        most = costs.position(np.ceil(n).astype(np.intp) - 1)
        full = (n == whole) & self._is_full(costs, whole, least)
        j, q = np.minimum(guess[0], most), np.clip(guess[1], least, costs.size)
        todo = np.flatnonzero(~full)
        for _ in range(_STEPS):
            if not todo.size:
                break
            some = costs[todo]
            level, width = self._level(some, n[todo], j[todo], q[todo])
            bought = np.clip(some.rows_below(level, "left"), least[todo], some.size)
            capped = np.clip(some.rows_below(level - width, "right"), 0, most[todo])
            moved = (bought != q[todo]) | (capped != j[todo])
            j[todo], q[todo] = capped, bought
            todo = todo[moved]
        if todo.size:
            point = point_at(costs[todo], n[todo], self.rho, rate[todo])
            j[todo], q[todo] = point.capped, point.bought
        if np.any(full):
            j[full] = q[full] = costs[full].position(whole[full] - 1) + 1
        return self._points(e, n, j, q)

    def _is_full(self, costs: Costs, whole: Ints, following: Ints) -> NDArray[np.bool_]:
        """Return the mask of totals at which no seller is strictly between 0 and the bound."""
        last = costs.value(costs.position(np.maximum(whole, 1) - 1))
        with np.errstate(divide="ignore", invalid="ignore"):
            # One over b: the level minus the cost of the last seller.
            width = 1.0 / (self.largest * whole * np.sqrt(whole))
        return _value_or_inf(costs, following - 1, whole) - last >= width

    def _level(self, costs: Costs, n: Floats, j: Ints, q: Ints) -> tuple[Floats, Floats]:
        """Return the level of a piece, and its distance to the highest cost at the bound."""
        piece = segment(costs, n, j, q)
        with np.errstate(divide="ignore", invalid="ignore"):
            beta = beta_at(piece.spread, piece.norm2, n * self.largest)
            return piece.mean + piece.left / (beta * piece.free), 1.0 / (beta * n)

    def _points(self, e: Ints, n: Floats, j: Ints, q: Ints) -> _Total:
        costs, rate = self.costs[e], n * self.largest
        free, left, mean, spread, cost, norm2 = segment(costs, n, j, q)
        full = np.flatnonzero(j == q)
        with np.errstate(divide="ignore", invalid="ignore"):
            norm2 = norm2 / (1.0 - rate * rate * spread)
            norm2[full] = 1.0 / n[full]
            norm = np.sqrt(norm2)
            beta = rate * norm
            level = mean + left / (beta * free)
            cost = cost - beta * spread
        above = level.copy()
        if full.size:
            some, k = costs[full], j[full]
            level[full] = some.value(k - 1) + 1.0 / (beta[full] * n[full])
            number, total, _ = some.sums(k)
            following = _value_or_inf(some, some.position(number), number)
            above[full] = np.maximum(following, level[full])
            cost[full] = some.offset + total / number
        return _Total(n, j, q, beta, level, above, norm, norm + rate * cost + self.rho / rate)

    # ------------------------------------------------------------------ bounds on intervals

    def slopes(self, a: _Total, b: _Total) -> tuple[Floats, Floats]:
        """Bound T between two totals each, from below and above."""
        low, high = a.n * self.largest, b.n * self.largest
        first = (self.costs.offset + a.level_above) * (a.beta * low)  # x
        last = (self.costs.offset + b.level) * (b.beta * high)
        least = first / (b.beta * high) * low * low - b.norm * high
        most = last / (a.beta * low) * high * high - a.norm * low
        return least, most

    def excess(self, at: _Total, level: Floats) -> Floats:
        """Compute T - rho at points."""
        rate = at.n * self.largest
        return (self.costs.offset + level) * rate * rate - at.norm * rate - self.rho

    def least(self, a: _Total, b: _Total, low: Floats, high: Floats) -> Floats:
        """Bound the objective between two totals from below, by bounds on T there."""
        start, width = a.n * self.largest, (b.n - a.n) * self.largest
        down = np.minimum(low - self.rho, 0.0) / start**2
        up = np.maximum(high - self.rho, 0.0) / start**2
        bent = up > down
        meet = (a.value - b.value + up * width) / np.where(bent, up - down, 1.0)
        return a.value + down * np.where(bent, np.clip(meet, 0.0, width), 0.0)

    def polished(self, e: Ints, near: _Total, low: Floats, high: Floats) -> _Total:
        """Return points near the given ones at which T equals rho, by one secant step."""
        n, first, guess = near.n, self.excess(near, near.level), (near.capped, near.bought)
        second = self.at(e, np.clip(n * (1 - np.sign(first) * _NEAR), low, high), guess)
        rise = self.excess(second, second.level) - first
        step = -first * (second.n - n) / np.where(rise == 0, np.inf, rise)
        step = np.where(np.abs(step) <= 10 * _NEAR * n, step, 0.0)
        return self.at(e, np.clip(n + step, low, high), guess)


def _value_or_inf(costs: Costs, k: Ints, number: Ints) -> Floats:
    """Return the cost at a rank; infinity beyond the last seller."""
    value = costs.value(np.minimum(k, costs.size - 1))
    return np.where(number < costs.number(costs.size), value, np.inf)


def _split(markets: _Bounded, cells: _Cells, parts: int) -> _Cells:
    """Split every interval: at whole numbers where there are any, else by equal factors."""
    low, high = cells.a.n, cells.b.n
    n = low[:, None] * (high / low)[:, None] ** (np.arange(1, parts) / parts)
    first, last = (
        markets.excess(cells.a, cells.a.level_above),
        markets.excess(cells.b, cells.b.level),
    )
    near = (first < 0) & (last > 0) & (high < _CLOSE * low)
    if parts == _PARTS and np.any(near):  # around where a chord crosses
        share = np.clip((first / (first - last))[near, None] + _AROUND, 0.01, 0.99)
        n[near] = low[near, None] + (high - low)[near, None] * share
    whole = np.rint(n)
    inside = (whole > low[:, None]) & (whole < high[:, None])
    n = np.where(inside, whole, n)
    only = np.floor(low) + 1.0  # the only whole number inside a narrow interval
    single = (only < high) & (high - low <= 1.0)
    n[single] = only[single, None]
    n = np.sort(n, axis=1)
    keep = np.diff(n, axis=1, prepend=low[:, None]) > 0
    row, _ = np.nonzero(keep)
    share, a, b = (n[keep] - low[row]) / (high - low)[row], cells.a[row], cells.b[row]
    j = a.capped + np.rint(share * (b.capped - a.capped)).astype(np.intp)
    q = a.bought + np.rint(share * (b.bought - a.bought)).astype(np.intp)
    points = markets.at(cells.e[row], n[keep], (j, q))
    # Insert the points between the ends of their intervals.
    e = np.concatenate((cells.e, cells.e[row], cells.e))
    owner = np.concatenate((np.arange(low.size), row, np.arange(low.size)))
    every = _Total.joined([cells.a, points, cells.b])
    order = np.lexsort((every.n, owner))
    every, owner, e = every[order], owner[order], e[order]
    inner = np.flatnonzero(owner[1:] == owner[:-1])
    return _Cells(e[inner], every[inner], every[inner + 1])


def minimise_bounded(
    costs: Costs, rho: float, largest: float, low: float, high: float
) -> tuple[Point, Floats]:
    """Compute the best point of each market with the total in a range, and a lower bound.

    Parameters
    ----------
    costs : Costs
        Markets with a replaced seller each.
    rho : float
        As for :func:`convexmarket.allocation.path.minimise`.
    largest : float
        The bound on ``r*a_i``.
    low, high : float
        Least and largest total, counted in ``largest``; ``low >= 1`` and at least 1/u.

    Returns
    -------
    points : Point, one per market
        The value is infinite if a market has no such total.
    bound : ndarray
        Lower bound on the objective.
    """
    markets = _Bounded(costs, rho, largest)
    e, none = np.arange(costs.count), np.zeros(costs.count, dtype=np.intp)
    top = np.minimum(high, markets.sellers).astype(float)
    able = top >= low
    ends = [markets.at(e, n, (none, costs.size)) for n in (np.minimum(low, top), top)]
    cells = _Cells(e, *ends)[able]
    best = ends[0][e]
    best.value[~able] = np.inf
    best = _better(best, cells.e, cells.b)
    bound = best.value.copy()
    for round_ in range(_ROUNDS):
        least, most = markets.slopes(cells.a, cells.b)
        may = (least < rho * (1 + _SLACK)) & (most > rho * (1 - _SLACK))
        cells, least, most = cells[may], least[may], most[may]
        below = markets.least(cells.a, cells.b, least, most)
        aim = best.value[cells.e]
        undecided = below < aim - _EXACT * np.abs(aim)
        narrow = (cells.b.n - cells.a.n <= _NARROW * cells.b.n) | (round_ == _ROUNDS - 1)
        np.minimum.at(bound, cells.e[undecided & narrow], below[undecided & narrow])
        cells = cells[undecided & ~narrow]
        if not cells.e.size:
            break
        cells = _split(markets, cells, max(_PARTS, _NODES // cells.e.size))
        best = _better(best, cells.e, cells.a)
    free = np.flatnonzero(able & (best.capped < best.bought))
    if free.size:  # values give half of the digits of the total
        at_least = np.full(free.size, low)
        root = markets.polished(free, best[free], at_least, top[free])
        best = _better(best, free, root, 4 * _EXACT)
    kink, rate = best.capped == best.bought, best.n * largest
    # The level at which the market is indifferent to one more seller.
    price = (best.norm * rate + rho) / rate**2 - costs.offset
    level = np.where(kink, np.clip(price, best.level, best.level_above), best.level)
    point = Point(best.value, rate, best.n, best.beta, level, best.capped, best.bought)
    return point, np.minimum(bound, best.value)


def _better(best: _Total, e: Ints, points: _Total, slack: float = 0.0) -> _Total:
    """Update the best point of each market by further points of markets e.

    Roots have a slack, because objectives near a minimum determine half of the digits of the total.
    """
    order = np.lexsort((points.value, e))
    first = order[np.flatnonzero(np.diff(e[order], prepend=-1))]
    first = first[points.value[first] < best.value[e[first]] * (1 + slack)]
    better = _Total(*(part.copy() for part in vars(best).values()))
    for name, part in vars(better).items():
        part[e[first]] = getattr(points, name)[first]
    return better
