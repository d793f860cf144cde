"""The path of optimal weights: every stationary point in closed form, the best one chosen.

For a fixed eta the optimal weights are the projection of ``-beta*psi`` on the capped simplex. As
beta grows from 0 to infinity they trace one piecewise linear path, for all mu, sigma and gamma
are. On it

* the capped sellers are the j cheapest and the sellers bought from are the q cheapest;
* with f = q - j free sellers, M = 1 - j*u the weight left for them and W the sum of squared
  deviations of their costs from the mean, ||a||^2 = N0 + beta^2*W and psi'a = p0 - beta*W;
* eta follows from gamma*eta = t = mu*beta/||a||, and the objective is stationary in eta where
  t^2 * psi'a = sigma*gamma, which is a cubic in 1/beta with at most one local minimum.

As beta grows, t grows and psi'a falls. So the ends of a stretch of the path bound t^2*psi'a, and
stretches without a stationary point are discarded. The others are split into single pieces, whose
cubics are solved. This gives all local minima, hence the global one, in O(m log m), with no
tolerance. The search treats many markets together that differ from a base market in one seller's
cost (:meth:`Costs.replaced`), for payments and audits.

Sellers are numbered from the cheapest, and a cap of u is given as ``n = 1/u``. Costs are centred at
the smallest and divided by the largest, objectives divided by mu:
``F/mu = ||a|| + r*psi'a + rho/r`` with r = t/mu.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import SolverError
from convexmarket.market import StandardForm

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Arrays = TypeVar("Arrays", bound=tuple[Any, ...])
#: Relative slack of the test that discards a stretch, to allow for rounding errors.
_SLACK = 1e-9
#: Number of nodes of the paths in the first round, over all markets, and in later rounds.
_FIRST, _LATER = 1024, 128


def take(parts: Arrays, index: Any) -> Arrays:
    """Index every array of a named tuple."""
    return parts._make(part[index] for part in parts)  # type: ignore[attr-defined]


def joined(parts: Sequence[Arrays], axis: int = 0) -> Arrays:
    """Concatenate named tuples, array by array."""
    columns = zip(*parts, strict=True)
    return parts[0]._make(np.concatenate(some, axis) for some in columns)  # type: ignore[attr-defined]


class Costs:
    """The costs of markets in rows, each of one seller or of a group, centred and scaled.

    There is one market, or many made by :meth:`replaced`. In each of these, a row of the first
    market has one seller less, and one row is added for a new cost. Methods take ranks k of rows,
    one or more for each market.

    Parameters
    ----------
    psi : ndarray, shape (n,)
        Virtual costs >= 0 in ascending order; for a group, at most its smallest.
    numbers : ndarray of int, shape (n,), optional
        Number of sellers in each row, possibly 0; 1 by default.
    means, squares : ndarray, shape (n,), optional
        Mean cost of each group, and its sum of squares about the mean.
    stretches : ndarray of int, shape (s, 2), optional
        Ranges of ranks, one of which contains the optimum.
    """

    #: Number of rows; replaced sellers: row, old cost, rank and value of the new cost.
    size: Ints
    row: Ints
    old: Floats
    place: Ints
    y: Floats
    _is_replaced = False

    def __init__(
        self,
        psi: Floats,
        numbers: Ints | None = None,
        means: Floats | None = None,
        squares: Floats | float = 0.0,
        stretches: Ints | None = None,
    ) -> None:
        self.psi, self.stretches = psi, stretches
        self.scale = float(psi[-1]) if psi[-1] > 1e-300 else 1.0
        self.lowest = float(psi[0])
        self.offset, self.x = self.lowest / self.scale, self.scaled(psi)
        self._numbers = np.ones(psi.size, np.intp) if numbers is None else numbers
        self._means, self._squares = psi if means is None else means, squares
        x = self.x if means is None else self.scaled(means)
        first = self._numbers * x
        second = first * x + squares / self.scale / self.scale
        self._sums = []
        for part in (self._numbers, first, second):
            self._sums.append(np.zeros(psi.size + 1, part.dtype))
            np.cumsum(part, out=self._sums[-1][1:])
        # No seller is replaced.
        self.row = self.place = self.size = np.array([psi.size])
        self.old = self.y = np.zeros(1)

    @classmethod
    def sorted(cls, psi: Floats, limit: float = np.inf) -> Self:
        """Create costs with one seller in each row, without costs above a limit or infinite."""
        limit = min(limit, np.finfo(float).max)
        return cls(psi[: np.searchsorted(psi, limit, side="right")])

    def replaced(self, old: Floats, psi: Floats) -> Costs:
        """Build markets: in market k the cost ``old[k]`` of one seller becomes ``psi[k]``.

        An infinite ``psi`` removes the seller. An ``old`` beyond the last row adds a seller.
        """
        many, comes, last = copy(self), psi < np.inf, self.psi[-1]
        many._is_replaced, many.size = True, self.psi.size + comes
        there = (old < last) | ((old == last) & (self._numbers[-1] > 0))
        row = np.searchsorted(self.psi, old, side="right") - 1
        many.row = np.where(there, row, self.psi.size)
        many.old = np.where(there, self.scaled(old), 0.0)
        many.place, many.y = np.searchsorted(self.psi, psi), np.where(comes, self.scaled(psi), 0.0)
        return many

    @property
    def count(self) -> int:
        """Number of markets."""
        return self.size.size

    def __getitem__(self, e: Any) -> Costs:
        """Select markets, by an index of any shape."""
        some = copy(self)
        for name in ("row", "old", "place", "y", "size"):
            setattr(some, name, getattr(self, name)[e])
        return some

    def scaled(self, psi: Any) -> Any:
        """Centre and scale costs."""
        return (psi - self.lowest) / self.scale

    def _rows(self, k: Ints) -> tuple[Ints, Any, Any]:
        """Return rows of the first market, and whether the new and the old cost are in them."""
        if not self._is_replaced:
            return k, 0, 0
        come = k > self.place
        rows = k - come
        return rows, come, rows > self.row

    def sums(self, k: Ints) -> tuple[Ints, Floats, Floats]:
        """Return the number of sellers in the first k rows, their sum of costs and of squares."""
        rows, come, left = self._rows(k)
        number, first, second = (part[rows] for part in self._sums)
        if not self._is_replaced:
            return number, first, second
        old, new = left * self.old, come * self.y
        return number - left + come, first - old + new, second - old * old + new * new

    def number(self, k: Ints) -> Ints:
        """Return the number of sellers in the first k rows."""
        rows, come, left = self._rows(k)
        return self._sums[0][rows] - left + come

    def position(self, number: Ints) -> Ints:
        """Return the largest k with at most ``number`` sellers in the first k rows."""
        behind = self._without(number - 1) + 1
        upto = np.minimum(self._without(number), self.place)
        return np.where(behind > self.place, behind, upto)

    def _without(self, number: Ints) -> Ints:
        """Return the result of :meth:`position` for the first market without the old cost."""
        more, most = (
            np.searchsorted(self._sums[0], some, side="right") - 1 for some in (number + 1, number)
        )
        return np.where(more > self.row, more, most)

    def value(self, k: Ints) -> Floats:
        """Return the cost at a rank, centred and scaled."""
        rows = np.minimum(k - (k > self.place), self.psi.size - 1)
        return np.where(k == self.place, self.y, self.x[rows])

    def rows_below(self, level: Floats, side: Literal["left", "right"]) -> Ints:
        """Return the number of rows below a level, or up to it if ``side`` is "right"."""
        new = self.y < level if side == "left" else self.y <= level
        return np.searchsorted(self.x, level, side=side) + (new & (self.size > self.psi.size))

    def deviations(self, j: int, q: int, origin: float) -> tuple[float, float, float]:
        """Return the sum of the costs of the first j rows, and the deviations of rows j to q.

        These are the mean deviation from ``origin``, and the scaled variation.
        """
        numbers, deviation = self._numbers[j:q], (self._means[j:q] - origin) / self.scale
        mean = float((numbers * deviation).sum()) / int(numbers.sum())
        deviation -= mean
        squares = np.broadcast_to(self._squares, self.psi.shape)[j:q] / self.scale / self.scale
        variation = float((squares + numbers * deviation**2).sum())
        below = float((self._numbers[:j] * self._means[:j]).sum())
        return below, mean * self.scale, variation


def rates_of(form: StandardForm, costs: Costs) -> tuple[float, float, list[float]]:
    """Return rho, the rate at eta = 1, and the rates at the finite ends of the range of eta."""
    unit = form.gamma * costs.scale / form.mu
    rho = form.sigma / form.mu * unit
    if not (1e-300 < rho < 1e300 or form.sigma == 0):
        raise SolverError(
            f"mu = {form.mu:g} and sigma*gamma*psi = {form.sigma * form.gamma * costs.scale:g}: "
            "the ratio of scales exceeds double precision; bring the weights of the terms closer"
        )
    return rho, unit, [eta * unit for eta in form.eta_range if 0 < eta < np.inf]


class Point(NamedTuple):
    """Points of one or many markets, all arrays of shape (count,).

    ``value`` is the objective divided by mu, and ``rate`` is r = gamma*eta/mu in units of 1/scale
    of the costs, +inf where the infimum lies there. ``n`` is one over the largest weight, and
    ``beta`` is +inf if only the cheapest sellers sell. ``level`` is the cost (centred and scaled)
    above which no seller sells, and ``above`` the same at a slightly larger eta. ``capped`` and
    ``bought`` are j and q: numbers of rows at the largest weight, and with positive weight.
    """

    value: Floats
    rate: Floats
    n: Floats
    beta: Floats
    norm: Floats
    level: Floats
    above: Floats
    capped: Ints
    bought: Ints

    def weight_of(self, costs: Costs) -> Floats:
        """Return the weight of the replaced seller of each market, shape (count,)."""
        cap, place = 1.0 / self.n, costs.place
        piece = segment(costs, self.n, self.capped, self.bought)
        with np.errstate(divide="ignore", invalid="ignore"):  # unused entries without free sellers
            several = costs.value(self.capped) < costs.value(self.bought - 1)  # else equal shares
            tilt = np.where(several, self.beta * (piece.mean - costs.y), 0.0)
            weight = np.clip(piece.left / piece.free + tilt, 0.0, cap)
        return np.where(place < self.capped, cap, np.where(place < self.bought, weight, 0.0))


class Segment(NamedTuple):
    """A piece of the path: f, M, mean cost of the free, W, p0 and N0; arrays of one shape."""

    free: Floats
    left: Floats
    mean: Floats
    spread: Floats
    cost: Floats
    norm2: Floats


def segment(costs: Costs, n: Floats, j: Ints, q: Ints) -> Segment:
    """Return the piece (j, q) under a cap of 1/n."""
    number, total, squares = costs.sums(q)
    capped, below = np.zeros_like(j), np.zeros(1)
    if np.any(j):
        capped, below, squares_below = costs.sums(j)
        number, total, squares = number - capped, total - below, squares - squares_below
    left, several = np.maximum(n - capped, 0.0) / n, np.maximum(number, 1)
    mean = total / several
    norm2 = capped / (n * n) + left * left / several
    spread = np.maximum(squares - total * mean, 0.0)
    cost = costs.offset + below / n + left * mean
    return Segment(number.astype(float), left, mean, spread, cost, norm2)


class _Nodes(NamedTuple):
    """Nodes k of paths: r^2, psi'a, the number of capped rows and beta; arrays of one shape."""

    k: Ints
    rate2: Floats
    cost: Floats
    j: Ints
    beta: Floats


class Path:
    """The path of each market: the costs, the cap 1/n, and the end of the path.

    Node k is the point of the path at which the weight of row k becomes zero. The last node,
    k = size, is beta = 0. The first one, ``first - 1``, is beta = infinity. There the ``floor``
    rows below the marginal cost are capped, and the rows at that cost share the other weight.
    """

    def __init__(self, costs: Costs, n: float | Floats) -> None:
        self.costs, self.n = costs, np.full(costs.count, n)
        # Allow for rounding: m sellers at a cap of 1/m are feasible.
        filling = np.ceil(self.n * (1 - 1e-15)).astype(np.intp)
        marginal = np.minimum(filling, costs.number(costs.size)) - 1
        value = costs.value(costs.position(marginal))
        floor, self.first = (costs.rows_below(value, side) for side in ("left", "right"))
        self.floor = np.where(costs.number(floor) > 0, floor, 0)

    def __getitem__(self, e: Any) -> Path:
        """Select markets, by an index of any shape."""
        some = copy(self)
        some.costs, some.n = self.costs[e], self.n[e]
        some.floor, some.first = self.floor[e], self.first[e]
        return some

    def segment(self, j: Ints, q: Ints) -> Segment:
        """Return the piece (j, q)."""
        piece = segment(self.costs, self.n, j, q)
        # The spread of equal costs is exactly zero.
        at_end = (j == self.floor) & (q == self.first)
        return piece._replace(spread=np.where(at_end, 0.0, piece.spread))

    def node(self, k: Ints, capped: tuple[Ints, Ints] | None = None) -> _Nodes:
        """Evaluate the path at nodes k; ``capped`` bounds the number of capped rows."""
        first, size = self.first, self.costs.size
        at_end, at_start = k < first, k >= size
        q = np.minimum(np.maximum(k, first), size)
        tau = self.costs.value(np.minimum(q, size - 1))
        j = np.zeros_like(q)
        if np.any(self.floor):
            j = self._capped(q, tau, *(capped or (j, self.floor)))
            j = np.where(at_start, 0, np.where(at_end, self.floor, j))
        free, left, mean, spread, cost, norm2 = self.segment(j, q)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beta = np.where(at_start, 0.0, left / (free * (tau - mean)))
            bend = beta * spread
            # Rounding must not make costs negative, as the rate may be infinite.
            cost = np.maximum(np.where(at_end, cost, cost - bend), 0.0)
            rate2 = np.where(at_end, np.inf, beta * beta / (norm2 + beta * bend))
        beta = np.where(at_end, np.inf, beta)
        return _Nodes(*np.broadcast_arrays(k, rate2, cost, j, beta))

    def _capped(self, q: Ints, tau: Floats, low: Ints, high: Ints) -> Ints:
        """Return the number of rows at the cap at the point where the weight of row q is zero.

        Row j is at the cap if the weights that put it exactly there sum to at most one. This is
        monotone in j, so a binary search gives the first row below the cap.
        """
        bought, total, _ = self.costs.sums(q)
        while np.any(low < high):
            j = (low + high) // 2
            number, below, _ = self.costs.sums(j)
            mass = (bought - number) * tau - (total - below)
            capped = mass <= (self.n - number) * (tau - self.costs.value(j))
            capped &= low < high
            low, high = np.where(capped, j + 1, low), np.where(capped, high, np.minimum(high, j))
        return low

    def points(
        self, j: Ints, q: Ints, low: Floats, high: Floats, rho: float, rate: Floats | None
    ) -> tuple[Point, Floats]:
        """Return the best point of each piece (j, q), for any eta or for the given ``rate``.

        ``low`` and ``high`` are the values of beta between which q rows are bought from. The second
        value is the objective, with a penalty for points that were moved to an end of their piece.
        Neighbouring pieces share these points.
        """
        free, left, mean, spread, cost, norm2 = self.segment(j, q)
        if rate is None:
            beta = stationary_beta(spread, cost, norm2, rho)
        else:
            beta = beta_at(spread, norm2, rate)
        if np.any(self.floor):
            cost_of = self.costs.value
            excess = np.maximum(self.costs.number(q) - self.n, 0.0) / self.n
            cap_next = _ratio(excess, free * (mean - cost_of(j)), np.inf)
            cap_last = _ratio(excess, free * (mean - cost_of(np.maximum(j - 1, 0))), 0.0)
            high = np.where(j < self.floor, np.minimum(high, cap_next), high)
            low = np.where(j > 0, np.maximum(low, cap_last), low)
        moved = (beta < low * (1 - _SLACK)) | (beta > high * (1 + _SLACK))
        beta = np.minimum(np.maximum(beta, low), high)
        bent = np.where(spread > 0, beta, 0.0)  # beta may be infinite at zero spread
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            norm = np.sqrt(norm2 + bent * bent * spread)
            cost = cost - bent * spread
            rates = beta / norm if rate is None else rate
            value = norm + np.where(cost > 0, rates * cost, 0.0) + rho / rates
            level = mean + left / beta / free
        point = Point(value, rates, self.n, beta, norm, level, level, j, q)
        return point, value * (1 + _SLACK * moved)


def _ratio(numerator: Floats, denominator: Floats, otherwise: float) -> Floats:
    """Divide where the denominator is positive; return ``otherwise`` elsewhere."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), otherwise)


def minimise(
    costs: Costs,
    n: float | Floats,
    rho: float,
    rates: tuple[float, float] = (0.0, np.inf),
    rate: float | Floats | None = None,
) -> Point:
    """Return the global minimiser over weights and eta, or for a given rate, of every market.

    ``n`` is one over the largest weight, and ``rho`` is sigma*gamma*scale/mu^2. Stationary points
    outside of the range of ``rates`` get the value +inf. The rate of a point is +inf if the infimum
    is not attained.
    """
    path, fixed = Path(costs, n), rate is not None
    given = np.broadcast_to(0.0 if rate is None else rate, costs.count)
    e, pieces = _pieces(path, given * given if fixed else np.full(costs.count, rho), fixed)
    points, key = path[e].points(*pieces, rho, given[e] if fixed else None)
    outside = (points.rate < rates[0]) | (points.rate > rates[1])
    points.value[outside] = key[outside] = np.inf
    return take(points, lowest(e, key))


def lowest(e: Ints, value: Floats) -> Ints:
    """Return the position of the lowest value of every market e, in the order of the markets."""
    order = np.lexsort((value, e))
    return order[np.flatnonzero(np.diff(e[order], prepend=-1))]


def beta_at(spread: Floats, norm2: Floats, rate: float | Floats) -> Floats:
    """Solve beta/||a(beta)|| = r for beta on each piece; +inf if the ratio is always below r."""
    with np.errstate(divide="ignore"):
        return rate * np.sqrt(norm2 / np.maximum(1.0 - rate * rate * spread, 0.0))


def stationary_beta(spread: Floats, cost: Floats, norm2: Floats, rho: float) -> Floats:
    """Return the beta of the local minimum on each piece; +inf if the objective is decreasing.

    r^2 * psi'a = rho is beta^2*(p0 - beta*W) = rho*(N0 + beta^2*W), in s = 1/beta the cubic
    s^3 - b*s + d = 0. Its roots sum to zero and have product -d <= 0: at most two are positive,
    and the larger one in s is the local minimum.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        b = (cost - rho * spread) / (rho * norm2)
        d = spread / (rho * norm2)
        cosine = -1.5 * d / b * np.sqrt(3.0 / b)
        s = 2.0 * np.sqrt(b / 3.0) * np.cos(np.arccos(cosine) / 3.0)
        return np.where((b > 0) & (cosine >= -1.0), 1.0 / s, np.inf)


def _may_hit(most: Floats, least: Floats, target: Any) -> NDArray[np.bool_]:
    # Negated, so that NaN (infinity times zero, at zero cost) does not discard the stretch.
    return ~(most < target * (1 - _SLACK)) & ~(least > target * (1 + _SLACK))


def sandwich(
    fewer: Path, more: Path, rho: float, rates: Sequence[float], highest: float
) -> tuple[NDArray[np.bool_], Floats, Floats]:
    """Bound the levels at which a path enclosed by two others may be stationary.

    Let tau be the cost above which no seller sells. At equal tau, more and cheaper sellers
    increase 1/r^2, 1/beta and ``(tau - psi'a)/beta``. So ``fewer``, with the fewest and most
    expensive sellers, and ``more``, with the most and cheapest, bound r^2 and psi'a. Their nodes
    are at the same levels; the last node is beta = 0. The ``rates`` count as stationary, too.
    ``highest`` is the largest cost over scale of an additional seller. Return the mask of the
    intervals between levels, and the largest and least beta at each level.
    """
    costs, filled = fewer.costs, more.segment(more.floor, more.first).cost[0]
    nodes = np.arange(costs.psi.size + 1)
    low, high = fewer.node(nodes), more.node(nodes)
    beyond = low.cost[-1] + highest / max(int(costs.number(costs.size)[0]), 1)
    tau = costs.offset + costs.value(np.minimum(nodes, costs.size - 1))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = low.beta / high.beta
        least = tau - (tau - high.cost) * ratio
        most = np.fmin(tau - (tau - low.cost) / ratio, tau)
        endless = np.isinf(low.beta)
        least = np.fmax(np.where(endless, filled, least), filled)[:-1]
        most = np.append(np.where(endless, tau, most)[1:-1], beyond)
        rate2_low, rate2_high = high.rate2[1:], low.rate2[:-1]
        hit = _may_hit(rate2_high * most, rate2_low * least, rho) & (rho > 0)
    for rate in rates:
        hit |= _may_hit(rate2_high, rate2_low, rate * rate)
    return hit, low.beta, high.beta


def _pieces(
    path: Path, target: Floats, at_rate: bool
) -> tuple[Ints, tuple[Ints, Ints, Floats, Floats]]:
    """Return the market, and j, q and ends in beta, of every piece that may be stationary.

    With ``at_rate``, return every piece on which r^2 may equal the target. With beta, r^2 increases
    and psi'a decreases, so the ends of a stretch bound both.
    """
    (e, nodes), done = _first_nodes(path), []
    while True:
        a, b = take(nodes, np.s_[:, :-1]), take(nodes, np.s_[:, 1:])
        with np.errstate(invalid="ignore"):
            most = a.rate2 if at_rate else a.rate2 * b.cost
            least = b.rate2 if at_rate else b.rate2 * a.cost
        keep = np.nonzero(_may_hit(most, least, target[e][:, None]) & (a.k < b.k))
        e, a, b = e[keep[0]], take(a, keep), take(b, keep)
        single = b.k - a.k <= 1
        done.append((e[single], take(a, single), take(b, single)))
        if single.all():
            break
        e, a, b = e[~single], take(a, ~single), take(b, ~single)
        # A row of evenly spaced nodes for each stretch, including its ends.
        parts, a, b = max(2, _LATER // e.size), take(a, np.s_[:, None]), take(b, np.s_[:, None])
        k = a.k + (b.k - a.k) * np.arange(1, parts) // parts
        inner = path[e[:, None]].node(k, (b.j + 0 * k, a.j + 0 * k))
        nodes = joined([a, inner, b], axis=1)
    e = np.concatenate([part[0] for part in done])
    a, b = joined([part[1] for part in done]), joined([part[2] for part in done])
    # One piece for each number of capped rows between neighbouring nodes.
    counts = np.maximum(a.j - b.j, 0) + 1
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    of = np.repeat(np.arange(counts.size), counts)
    j = b.j[of] + np.arange(starts.size) - starts
    return e[of], (j, b.k[of], b.beta[of], a.beta[of])


def _first_nodes(path: Path) -> tuple[Ints, _Nodes]:
    """Return markets and a row of nodes for each, including the ends of their paths."""
    costs = path.costs
    e, first, last = np.arange(costs.count), path.first - 1, costs.size
    if costs.stretches is not None:
        ranks = costs.stretches.T[:, None]
        ranks = ranks + (costs.place[:, None] <= ranks)
        first, last = np.clip(ranks, first[:, None], last[:, None])
        e = np.repeat(e, first.shape[1])
    first, length = first.reshape(-1, 1), (last - first).reshape(-1, 1)
    parts = int(np.clip(length.max(), 1, max(_FIRST // e.size, 1)))
    return e, path[e[:, None]].node(first + length * np.arange(parts + 1) // parts)
