r"""The papers' problem under one largest guarantee: every market's global minimum, proven.

With a bound e on every guarantee the optimal ones are ``clip(x - b*psi, 0, e)``. At a given total
S = eta the bound acts as a cap of e/S on the weights. Hence x and b follow from prefix sums, with j
sellers at the bound and q bought from. The objective is stationary in S where

.. math:: T(S) = \gamma\,(x/b)\,S^2 - \mu N = \sigma, \qquad N = \|\varepsilon\| .

As S grows, so do x, b and N (docs/theory.md, section 9.3). So on any interval of S the ends
bound T, hence the slope ``(T - sigma)/S^2`` of the objective. An interval is discarded where T
cannot be sigma, or the objective cannot be the least. Where j and q are constant, T is one formula
with a slope of one sign on short intervals, and its root is found. Totals at which T jumps, as all
who are bought from are at the bound there, are ends of intervals.

The search runs on many markets at once. Below S = e/u no bound binds before the cap u does, which
:mod:`convexmarket.allocation.path` solves. Units are those of that module, where S is
``r = gamma*eta/mu``, and totals are counted in bounds: ``S = n*e``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.costs import Arrays, Floats, Ints, Replaced

__all__ = ["BoundedPoint", "minimise_bounded"]

#: Steps towards the piece that a total is on, from a guess; a search follows where they fail.
_STEPS = 30
#: Parts of an interval in each round, and rounds; intervals narrower than this are let be.
_PARTS, _ROUNDS, _NARROW = 4, 80, 1e-11
#: Relative accuracy of objectives, and slack of the test that discards an interval.
_EXACT, _SLACK = 1e-15, 1e-13
#: Nodes in each round, unless more intervals are left.
_NODES = 64
#: Intervals of a single market, and of many, at first.
_FIRST, _FIRST_OF_MANY = 48, 4
#: Fewer markets share no bounds. Rounds for what they share.
_FEW, _SHARED_ROUNDS = 8, 2
_NEWTON, _POLISHES = 30, 6


@dataclass(frozen=True)
class BoundedPoint(Arrays):
    """Points of many markets, in the units of :class:`convexmarket.allocation.path.PathPoint`.

    Attributes
    ----------
    n : ndarray
        The total, counted in largest guarantees.
    capped, bought : ndarray of int
        How many sellers are at the bound, and bought from.
    beta : ndarray
        Path parameter.
    level, level_above : ndarray
        Cost (centred and scaled) from which on sellers are not bought from, just below this total
        and just above it.
    norm : ndarray
        Norm of the weights.
    value : ndarray
        Objective divided by mu.
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
class _Cells(Arrays):
    """Intervals of the totals of markets e."""

    e: Ints
    a: BoundedPoint
    b: BoundedPoint


class _Bounded:
    """Many markets under one largest guarantee."""

    def __init__(self, costs: Replaced, rho: float, largest: float) -> None:
        self.costs, self.rho, self.largest = costs, rho, largest
        self.y = costs.base.scaled(costs.base.psi)

    def _number_below(self, e: Ints, level: Floats, side: str) -> Ints:
        """Return how many cost less than a level, or at most that (``side`` is "right")."""
        old, new = self.costs.old[e], self.costs.y[e]
        found = np.searchsorted(self.y, level, side=side)  # type: ignore[call-overload]
        if side == "left":
            return found - (old < level) + (new < level)
        return found - (old <= level) + (new <= level)

    def _piece(self, e: Ints, j: Ints, q: Ints, n: Floats) -> tuple[Floats, ...]:
        """Return number, weight and mean cost of free sellers, W, p0 and N0 of pieces."""
        total, squares = self.costs.sums(e, q)
        below, squares_below = self.costs.sums(e, j)
        free = (q - j).astype(float)
        total, squares = total - below, squares - squares_below
        left = (n - j) / n
        mean = total / free
        spread = np.maximum(squares - total * mean, 0.0)
        cost = self.costs.offset + below / n + left * mean
        norm2 = j / (n * n) + left * left / free
        return free, left, mean, spread, cost, norm2

    def at(self, e: Ints, n: Floats, guess: tuple[Ints, Ints]) -> BoundedPoint:
        """Return the best point at each total."""
        size = self.costs.size[e]
        rate = n * self.largest
        whole = np.floor(n).astype(np.intp)
        full = self._full(e, np.minimum(whole, size), n == whole)
        j, q = np.minimum(guess[0], np.ceil(n).astype(np.intp) - 1), guess[1]
        q = np.clip(q, np.minimum(whole + 1, size), size)
        todo = np.flatnonzero(~full)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            for _ in range(_STEPS):
                if not todo.size:
                    break
                some, total = e[todo], n[todo]
                level, width = self._level(some, j[todo], q[todo], total, rate[todo])
                bought = self._number_below(some, level, "left")
                bought = np.clip(bought, np.minimum(whole[todo] + 1, size[todo]), size[todo])
                capped = self._number_below(some, level - width, "right")
                capped = np.clip(capped, 0, np.ceil(total).astype(np.intp) - 1)
                moved = (bought != q[todo]) | (capped != j[todo])
                j[todo], q[todo] = capped, bought
                todo = todo[moved]
        if todo.size:
            j[todo], q[todo] = self._search(e[todo], n[todo], rate[todo])
        j[full] = q[full] = whole[full]
        return self._points(e, n, j, q, full)

    def _full(self, e: Ints, whole: Ints, is_whole: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return where all who are bought from are at the bound."""
        found = np.zeros(e.size, dtype=bool)
        some = np.flatnonzero(is_whole)
        if some.size:
            e, k = e[some], whole[some]
            last = self.costs.value(e, k - 1)
            following = self._value_or_inf(e, k)
            # One over b, by which the last one's level exceeds its cost.
            width = 1.0 / (self.largest * k * np.sqrt(k))
            found[some] = following - last >= width
        return found

    def _value_or_inf(self, e: Ints, k: Ints) -> Floats:
        size = self.costs.size[e]
        return np.where(k < size, self.costs.value(e, np.minimum(k, size - 1)), np.inf)

    def _level(self, e: Ints, j: Ints, q: Ints, n: Floats, rate: Floats) -> tuple[Floats, Floats]:
        """Return the level, and how far below it those at the bound are, if a piece is right."""
        free, left, mean, spread, _, norm2 = self._piece(e, j, q, n)
        room = 1.0 - rate * rate * spread
        beta = rate * np.sqrt(norm2 / np.maximum(room, 0.0))
        return mean + left / (beta * free), 1.0 / (beta * n)

    def _points(
        self, e: Ints, n: Floats, j: Ints, q: Ints, full: NDArray[np.bool_]
    ) -> BoundedPoint:
        rate = n * self.largest
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            free, left, mean, spread, cost, norm2 = self._piece(e, j, q, n)
            norm = np.sqrt(norm2 / (1.0 - rate * rate * spread))
            beta = rate * norm
            level = mean + left / (beta * free)
            cost = cost - beta * spread
        above = level.copy()
        if np.any(full):
            some = np.flatnonzero(full)
            k, who = j[some], e[some]
            norm[some] = 1.0 / np.sqrt(k)
            beta[some] = rate[some] * norm[some]
            level[some] = self.costs.value(who, k - 1) + 1.0 / (beta[some] * k)
            above[some] = np.maximum(self._value_or_inf(who, k), level[some])
            cost[some] = self.costs.offset + self.costs.sum1(who, k) / k
        value = norm + rate * cost + self.rho / rate
        return BoundedPoint(n, j, q, beta, level, above, norm, value)

    def _search(self, e: Ints, n: Floats, rate: Floats) -> tuple[Ints, Ints]:
        """Return how many are at the bound, and bought from, at each total, by bisection."""
        value, sum1 = self.costs.value, self.costs.sum1

        def squares(j: Ints, q: Ints, level: Floats, width: Floats) -> Floats:
            """Return the sum of squares of the guarantees over b."""
            one, two = (
                high - low
                for high, low in zip(self.costs.sums(e, q), self.costs.sums(e, j), strict=True)
            )
            return j * width * width + (q - j) * level * level - 2.0 * level * one + two

        def capped(q: Ints, level: Floats) -> Ints:
            low, high = np.zeros_like(q), np.minimum(q, np.ceil(n).astype(np.intp)) - 1
            while np.any(low < high):
                middle = (low + high) // 2
                mass = (q - middle) * level - (sum1(e, q) - sum1(e, middle))
                is_capped = mass <= (n - middle) * (level - value(e, middle))
                is_capped &= low < high
                low = np.where(is_capped, middle + 1, low)
                high = np.where(is_capped, high, np.minimum(high, middle))
            return low

        size = self.costs.size[e]
        low, high = np.minimum(np.floor(n).astype(np.intp), size - 1), size
        with np.errstate(divide="ignore", invalid="ignore"):
            # Sellers below low are bought from; seller q ceases to be where the norm is met.
            low = low + 1
            while np.any(low < high):
                q = (low + high) // 2  # the level is at seller q's cost
                level = self._value_or_inf(e, q)
                level = np.where(np.isinf(level), value(e, size - 1), level)
                j = capped(q, level)
                width = ((q - j) * level - (sum1(e, q) - sum1(e, j))) / (n - j)
                short = squares(j, q, level, width) * rate * rate < 1.0
                short &= low < high
                low = np.where(short, q + 1, low)
                high = np.where(short, high, np.minimum(high, q))
            q = np.minimum(low, size)
            first, last = np.zeros_like(q), np.minimum(q, np.ceil(n).astype(np.intp)) - 1
            while np.any(first < last):
                j = (first + last) // 2  # seller j is just at the bound
                level = (sum1(e, q) - sum1(e, j) - (n - j) * value(e, j)) / (q - n)
                width = level - value(e, j)
                more = squares(j, q, level, width) * rate * rate <= 1.0
                more &= (first < last) & (q > n)
                first = np.where(more, j + 1, first)
                last = np.where(more, last, np.minimum(last, j))
        return first, q

    # ------------------------------------------------------------------ bounds on intervals

    def slopes(self, a: BoundedPoint, b: BoundedPoint) -> tuple[Floats, Floats]:
        """Bound T between two totals each, from below and above."""
        low, high = a.n * self.largest, b.n * self.largest
        first = (self.costs.offset + a.level_above) * (a.beta * low)  # x
        last = (self.costs.offset + b.level) * (b.beta * high)
        least = first / (b.beta * high) * low * low - b.norm * high
        most = last / (a.beta * low) * high * high - a.norm * low
        return least, most

    def excess(self, at: BoundedPoint, level: Floats) -> Floats:
        """Return by how much T exceeds rho at points."""
        rate = at.n * self.largest
        return (self.costs.offset + level) * rate * rate - at.norm * rate - self.rho

    def least(self, a: BoundedPoint, b: BoundedPoint, low: Floats, high: Floats) -> Floats:
        """Bound the objective between two totals from below, by bounds on T there."""
        start, width = a.n * self.largest, (b.n - a.n) * self.largest
        down = np.minimum(low - self.rho, 0.0) / start**2
        up = np.maximum(high - self.rho, 0.0) / start**2
        with np.errstate(divide="ignore", invalid="ignore"):
            meet = (a.value - b.value + up * width) / (up - down)
        meet = np.where(up > down, np.clip(meet, 0.0, width), 0.0)
        return a.value + down * meet

    def on_one_piece(self, cells: _Cells) -> NDArray[np.bool_]:
        """Return where the same sellers are at the bound, and bought from, all along."""
        e, a, b = cells.e, cells.a, cells.b
        j, q = a.capped, a.bought
        low, high = a.beta * a.n, b.beta * b.n  # b, in units of the bound
        x = self.costs.offset + a.level_above, self.costs.offset + b.level
        x_low, x_high = x[0] * low, x[1] * high
        y = lambda k: self.costs.offset + self.costs.value(e, np.clip(k, 0, None))  # noqa: E731
        size = self.costs.size[e]
        same = (j == b.capped) & (q == b.bought) & (j < q)
        same &= (j == 0) | (x_low - high * y(j - 1) >= 1.0)
        same &= x_high - low * y(j) <= 1.0
        same &= x_low - high * y(q - 1) >= 0.0
        return same & ((q == size) | (x_high - low * y(np.minimum(q, size - 1)) <= 0.0))

    def bend(self, cells: _Cells) -> tuple[Floats, Floats]:
        """Bound the slope of T over n on intervals of one piece."""
        a, b, g = cells.a, cells.b, self.largest
        free, _, mean, spread, _, _ = self._piece(cells.e, a.capped, a.bought, a.n)
        mean = mean + self.costs.offset
        j, low, high = a.capped, a.n, b.n
        # N and its slope, in units of the bound.
        n1, n2 = a.norm * low, b.norm * high
        d1, d2 = (1.0 - (g * n) ** 2 * spread for n in (low, high))
        with np.errstate(divide="ignore", invalid="ignore"):
            s1 = ((low - j) / free + g * g * low * spread * n1 * n1) / (n2 * d1)
            s2 = ((high - j) / free + g * g * high * spread * n2 * n2) / (n1 * d2)
        gap1, gap2 = 1.0 - (high - j) / free, 1.0 - (low - j) / free
        bent = spread * g * g
        least = 2.0 * g * mean * low - bent * (2.0 * high * n2 + high * high * s2)
        most = 2.0 * g * mean * high - bent * (2.0 * low * n1 + low * low * s1)
        least += j * (s1 / n2**2 * gap1 + 1.0 / (free * n2))
        most += j * (s2 / n1**2 * gap2 + 1.0 / (free * n1))
        return least, most

    def roots(self, cells: _Cells) -> BoundedPoint:
        """Return the point of each interval of one piece where T, which rises, is rho."""
        low, high, e = cells.a.n.copy(), cells.b.n.copy(), cells.e
        j, q = cells.a.capped, cells.a.bought
        no = np.zeros(e.size, dtype=bool)
        n = 0.5 * (low + high)
        for _ in range(_NEWTON):
            at = self._points(e, n, j, q, no)
            excess = self.excess(at, at.level)
            low, high = np.where(excess < 0, n, low), np.where(excess < 0, high, n)
            slope, _ = self.bend(_Cells(e, at, at))
            following = n - excess / (slope * self.largest)
            close = np.abs(following - n) <= 1e-12 * n  # rounding may put it outside
            inside = close | ((following >= low) & (following <= high))
            following = np.where(inside, following, 0.5 * (low + high))
            still = np.all(np.abs(following - n) <= 1e-15 * n)
            n = np.clip(following, cells.a.n, cells.b.n)
            if still:
                break
        return self._points(e, n, j, q, no)


def _middle(a: BoundedPoint, b: BoundedPoint, share: Floats) -> tuple[Ints, Ints]:
    """Return a guess of the piece between two points."""
    j = a.capped + np.rint(share * (b.capped - a.capped)).astype(np.intp)
    q = a.bought + np.rint(share * (b.bought - a.bought)).astype(np.intp)
    return j, q


def _split(markets: _Bounded, cells: _Cells, parts: int = _PARTS) -> _Cells:
    """Split every interval: at whole numbers where there are any, else evenly."""
    low, high = cells.a.n, cells.b.n
    share = np.arange(1, parts) / parts
    n = low[:, None] + (high - low)[:, None] * share
    whole = np.rint(n)
    inside = (whole > low[:, None]) & (whole < high[:, None])
    n = np.where(inside, whole, n)
    only = np.floor(low) + 1.0  # the one inside, where the interval is not wide
    single = (only < high) & (high - low <= 1.0)
    n[single] = only[single, None]
    n = np.sort(n, axis=1)
    keep = np.diff(n, axis=1, prepend=low[:, None]) > 0
    row, _ = np.nonzero(keep)
    inner = n[keep]
    guess = _middle(cells.a[row], cells.b[row], (inner - low[row]) / (high - low)[row])
    points = markets.at(cells.e[row], inner, guess)
    # The rows' points, each between its interval's ends.
    e = np.concatenate((cells.e, cells.e[row], cells.e))
    owner = np.concatenate((np.arange(low.size), row, np.arange(low.size)))
    every = BoundedPoint.joined([cells.a, points, cells.b])
    order = np.lexsort((every.n, owner))
    every, owner, e = every[order], owner[order], e[order]
    inner_cells = np.flatnonzero(owner[1:] == owner[:-1])
    return _Cells(e[inner_cells], every[inner_cells], every[inner_cells + 1])


def minimise_bounded(
    costs: Replaced, rho: float, largest: float, low: float, high: float
) -> tuple[BoundedPoint, Floats]:
    """Return the best point of every market with the total between two bounds, and a lower bound.

    Parameters
    ----------
    costs : Replaced
    rho : float
        As for :func:`convexmarket.allocation.path.minimise`.
    largest : float
        The bound on ``r*a_i``.
    low, high : float
        Least and largest total, counted in ``largest``; ``low >= 1`` and at least 1/u.

    Returns
    -------
    points : BoundedPoint, one per market
        NaN values where a market has no such total.
    bound : ndarray
        No objective is below.
    """
    markets = _Bounded(costs, rho, largest)
    cells = _first_cells(markets, low, high)
    e = np.concatenate((cells.e, cells.e))
    best = _least_of(costs.count, e, BoundedPoint.joined([cells.a, cells.b]))
    bound = best.value.copy()
    for round_ in range(_ROUNDS):
        least, most = markets.slopes(cells.a, cells.b)
        may = (least < rho * (1 + _SLACK)) & (most > rho * (1 - _SLACK))
        cells, least, most = cells[may], least[may], most[may]
        below = markets.least(cells.a, cells.b, least, most)
        aim = best.value[cells.e]
        open_ = below < aim - _EXACT * np.abs(aim)
        narrow = (cells.b.n - cells.a.n <= _NARROW * cells.b.n) | (round_ == _ROUNDS - 1)
        np.minimum.at(bound, cells.e[open_ & narrow], below[open_ & narrow])
        cells = cells[open_ & ~narrow]
        if not cells.e.size:
            break
        single = np.flatnonzero(markets.on_one_piece(cells))
        if single.size:
            rises, falls = markets.bend(cells[single])
            rising, falling = single[rises > 0], single[falls < 0]
            some = cells[rising]
            crossed = markets.excess(some.a, some.a.level_above) < 0
            some = some[crossed & (markets.excess(some.b, some.b.level) > 0)]
            if some.e.size:
                best = _better(best, some.e, markets.roots(some))
            keep = np.ones(cells.e.size, dtype=bool)
            keep[rising] = keep[falling] = False
            cells = cells[keep]
        if not cells.e.size:
            break
        new = _split(markets, cells, max(_PARTS, _NODES // cells.e.size))
        best = _better(best, new.e, new.a)
        cells = new
    return _polished(markets, best, low, high), np.minimum(bound, best.value)


def _polished(markets: _Bounded, best: BoundedPoint, low: float, high: float) -> BoundedPoint:
    """Return points at which T is closer to rho: the objective says half of their digits."""
    high_of = np.minimum(high, markets.costs.size)
    excess = markets.excess(best, best.level)
    todo = np.flatnonzero((best.capped < best.bought) & (low < best.n) & (best.n < high_of))
    for _ in range(_POLISHES):
        if not todo.size:
            break
        old = best[todo]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope, _ = markets.bend(_Cells(todo, old, old))
            n = old.n - excess[todo] / (slope * markets.largest)
        n = np.where((slope > 0) & (low < n) & (n < high_of[todo]), n, old.n)
        new = markets.at(todo, n, (old.capped, old.bought))
        off = markets.excess(new, new.level)
        better = np.abs(off) < np.abs(excess[todo])
        better &= new.value <= old.value + 2 * _EXACT * np.abs(old.value)
        todo = todo[better]
        excess[todo] = off[better]
        for name, part in vars(best).items():
            part[todo] = getattr(new, name)[better]
    return best


def _first_cells(markets: _Bounded, low: float, high: float) -> _Cells:
    """Return intervals that hold every optimum; few where many markets share bounds."""
    costs = markets.costs
    count, size = costs.count, costs.size
    spans = _shared(markets, low, high) if count >= _FEW else None
    parts = _FIRST if count < _FEW else _FIRST_OF_MANY
    if spans is None:
        top = np.minimum(high, size)
        e = np.flatnonzero(top >= low)
        low_, high_ = np.full(e.size, low), top[e].astype(float)
    else:
        e = np.repeat(np.arange(count), len(spans))
        low_, high_ = np.tile(spans.T, count)
        high_ = np.minimum(high_, size[e])
        some = low_ <= high_
        e, low_, high_ = e[some], low_[some], high_[some]
    share = np.linspace(0.0, 1.0, parts + 1)
    with np.errstate(divide="ignore"):
        n = low_[:, None] * (high_ / low_)[:, None] ** share
    n[:, 0], n[:, -1] = low_, high_
    wide = (high_ - low_) > 2 * parts
    inside = np.rint(n)
    inside = np.where((inside > low_[:, None]) & (inside < high_[:, None]), inside, n)
    n[wide, 1:-1] = inside[wide, 1:-1]
    rows = np.repeat(e, parts + 1)
    guess = np.zeros(rows.size, dtype=np.intp), size[rows]
    points = markets.at(rows, n.ravel(), guess)
    index = np.arange(rows.size).reshape(n.shape)
    return _Cells(np.repeat(e, parts), points[index[:, :-1].ravel()], points[index[:, 1:].ravel()])


def _shared(markets: _Bounded, low: float, high: float) -> Floats | None:
    """Return the totals between which the optimum of any of the markets may lie, shape (k, 2).

    A market with one seller more, at the least of the new costs, has no larger objective than any
    of them at any total. So where its objective exceeds all their best ones so far, none of them
    has its optimum.
    """
    costs, base = markets.costs, markets.costs.base
    dearer = bool(np.all(costs.psi >= costs.old_psi))
    extra = np.inf if dearer else min(float(costs.psi.min()), base.lowest)
    one = Replaced(base, np.array([base.psi.size]), np.array([extra]))
    if np.isfinite(extra) and extra < base.lowest:
        return None
    alone = _Bounded(one, markets.rho, markets.largest)
    top = min(high, int(one.size[0]))
    if top <= low:
        return None
    cells = _first_cells(alone, low, high)
    for round_ in range(_SHARED_ROUNDS):
        every = BoundedPoint.joined([cells.a, cells.b])
        at = int(np.argmin(every.value))
        n = np.minimum(every.n[at], costs.size)
        count = np.arange(costs.count)
        guess = (np.full(costs.count, every.capped[at]), np.full(costs.count, every.bought[at]))
        threshold = float(markets.at(count, n.astype(float), guess).value.max())
        below = alone.least(cells.a, cells.b, *alone.slopes(cells.a, cells.b))
        cells = cells[below <= threshold * (1 + _SLACK)]
        if round_ < _SHARED_ROUNDS - 1:
            cells = _split(alone, cells, max(_PARTS, _NODES // cells.e.size))
    starts, ends = cells.a.n, cells.b.n
    order = np.argsort(starts)
    starts, ends = starts[order], ends[order]
    apart = np.flatnonzero(starts[1:] > ends[:-1])
    return np.column_stack((starts[np.append(0, apart + 1)], ends[np.append(apart, ends.size - 1)]))


def _least_of(count: int, e: Ints, points: BoundedPoint) -> BoundedPoint:
    """Return the best of the points of every market."""
    order = np.lexsort((points.value, e))
    first = order[np.flatnonzero(np.diff(e[order], prepend=-1))]
    if first.size == count:
        return points[first]
    empty = {
        name: np.full(count, np.nan if part.dtype.kind == "f" else 0, part.dtype)
        for name, part in vars(points).items()
    }
    for name, part in vars(points).items():
        empty[name][e[first]] = part[first]
    empty["value"][np.isnan(empty["value"])] = np.inf
    return BoundedPoint(**empty)


def _better(best: BoundedPoint, e: Ints, points: BoundedPoint) -> BoundedPoint:
    count = best.n.size
    return _least_of(
        count, np.concatenate((np.arange(count), e)), BoundedPoint.joined([best, points])
    )
