"""The path of optimal weights, with all its stationary points in closed form.

For a fixed eta the optimal weights are the projection of ``-beta*psi`` on the capped simplex. As
beta grows, the weights trace one piecewise linear path (docs/theory.md, section 3.3). At a point of
the path, the j cheapest sellers are at the cap, and the q cheapest sellers sell. Let f = q - j be
the number of free sellers, M = 1 - j*u their total weight, and W the sum of squared deviations of
their costs. Then ||a||^2 = N0 + beta^2*W, psi'a = p0 - beta*W and t = gamma*eta = mu*beta/||a||.
The objective is stationary in eta if t^2 * psi'a = sigma*gamma. The ends of a stretch of the path
bound this product, and a stretch without a stationary point is discarded. On other pieces, the
stationary points are roots of a cubic. Many markets that differ in one cost are solved together.

Sellers are numbered by increasing cost, and a cap of u is given as ``n = 1/u``. Costs are centred
at the smallest cost and divided by the largest. Objectives are divided by mu:
``F/mu = ||a|| + r*psi'a + rho/r`` with r = t/mu.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import SolverError
from convexmarket.market import StandardForm

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
#: Relative tolerance for rounding errors in the test that discards a stretch of the path.
SLACK = 1e-9
#: Approximate number of nodes, over all markets, in the first round and in later rounds.
_FIRST, _LATER = 1024, 128
#: Attributes of :class:`Markets` that are not indexed by market.
_SHARED = ("costs", "is_replaced")


class Columns:
    """Base class of dataclasses whose fields are arrays of equal shape, indexed together."""

    def __getitem__(self, index: Any) -> Self:
        return type(self)(*[part[index] for part in vars(self).values()])

    def __setitem__(self, index: Any, rows: Self) -> None:
        for part, new in zip(vars(self).values(), vars(rows).values(), strict=True):
            part[index] = new

    @classmethod
    def joined(cls, parts: Sequence[Self], axis: int = 0) -> Self:
        """Concatenate tables."""
        columns = zip(*map(dict.values, map(vars, parts)), strict=True)
        return parts[0] if len(parts) == 1 else cls(*map(np.concatenate, columns, repeat(axis)))


@dataclass
class Nodes(Columns):
    """Nodes of the paths of markets e, where k is the first row without weight."""

    e: Ints
    k: Ints
    rate2: Floats
    cost: Floats
    j: Ints
    beta: Floats


@dataclass
class Points(Columns):
    """Points of the paths of markets e; the best point has the smallest ``key``.

    ``value`` is the objective divided by mu. ``rate`` is r, or +inf if the infimum is not attained;
    ``beta`` is +inf if only the cheapest sellers sell. Sellers above the scaled ``level`` sell
    nothing; ``above`` is the level at a slightly larger eta. ``capped`` and ``bought`` are j and q.
    """

    e: Ints
    key: Floats
    value: Floats
    rate: Floats
    n: Floats
    beta: Floats
    norm: Floats
    level: Floats
    above: Floats
    capped: Ints
    bought: Ints


class Costs:
    """Sorted costs with prefix sums, centred and scaled; a row is one seller or a group.

    Parameters
    ----------
    psi : ndarray, shape (n,)
        Virtual costs >= 0 in ascending order; for a group, at most its smallest cost.
    numbers : ndarray of int, shape (n,), optional
        Number of sellers in each row, possibly 0; 1 by default.
    means, squares : ndarray, shape (n,), optional
        Mean cost of each group, and its sum of squares about the mean.
    stretches : ndarray of int, shape (s, 2), optional
        Intervals of ranks, one of which contains the optimum.
    """

    def __init__(
        self,
        psi: Floats,
        numbers: Ints | None = None,
        means: Floats | None = None,
        squares: Floats | None = None,
        stretches: Ints | None = None,
    ) -> None:
        self.psi, self.lowest = psi, float(psi[0])
        self.scale = float(psi[-1]) if psi[-1] > 1e-300 else 1.0
        self.offset, self.x = self.lowest / self.scale, self.scaled(psi)
        self.numbers = np.ones(psi.size, np.intp) if numbers is None else numbers
        self.means = psi if means is None else means
        self.squares = np.broadcast_to(0.0, psi.shape) if squares is None else squares
        self.stretches = np.array([[-1, psi.size]]) if stretches is None else stretches
        x = self.x if means is None else self.scaled(means)
        first = self.numbers * x
        second = first * x + self.squares / self.scale / self.scale
        self.sums = []
        for part in (self.numbers, first, second):
            self.sums.append(np.zeros(psi.size + 1, part.dtype))
            np.cumsum(part, out=self.sums[-1][1:])

    def scaled(self, psi: Any) -> Any:
        """Subtract the smallest cost from costs, and divide by the largest cost."""
        return (psi - self.lowest) / self.scale

    def units(self, form: StandardForm) -> tuple[float, float]:
        """Compute rho = sigma*gamma*scale/mu^2, and the rate at eta = 1."""
        unit = form.gamma * self.scale / form.mu
        rho = form.sigma / form.mu * unit
        if not (1e-300 < rho < 1e300 or form.sigma == 0):
            raise SolverError(
                f"mu = {form.mu:g} and sigma*gamma*psi = "
                f"{form.sigma * form.gamma * self.scale:g}: the ratio of scales exceeds double "
                "precision; scale the weights of the terms to similar magnitudes"
            )
        return rho, unit


class Piece(NamedTuple):
    """Pieces of the path, as arrays of f, M, the mean cost of free sellers, W, p0 and N0."""

    free: Floats
    left: Floats
    mean: Floats
    spread: Floats
    cost: Floats
    norm2: Floats


class Markets:
    """Markets with the given costs, except that each market replaces the cost of one seller.

    In market e the cost ``old[e]`` of a seller is replaced by ``new[e]``. An infinite ``new``
    removes the seller, and an ``old`` above all costs adds a seller. Hence a row can have one
    seller less, and the markets can have one additional row. Arguments k are ranks of rows.

    Node k of a path is the point at which the weight of row k becomes zero. The last node,
    k = size, is beta = 0. The first node, ``first - 1``, is beta = infinity. There, the ``floor``
    rows below the marginal cost are capped, and the rows at that cost share the remaining weight.
    """

    def __init__(self, costs: Costs, old: Any = (np.inf,), new: Any = (np.inf,)) -> None:
        self.costs, psi = costs, costs.psi
        old, new = np.asarray(old), np.asarray(new)
        there = (old < psi[-1]) | ((old == psi[-1]) & (costs.numbers[-1] > 0))
        self.row = np.where(there, np.searchsorted(psi, old, side="right") - 1, psi.size)
        self.old = np.where(there, costs.scaled(old), 0.0)
        single = there & (costs.numbers[np.minimum(self.row, psi.size - 1)] == 1)
        self.empty = np.where(single, self.row, psi.size)
        place, self.new = np.searchsorted(psi, new), costs.scaled(new)
        self.place, self.size = place - (place > self.empty), psi.size - single + (new < np.inf)
        self.is_replaced = bool(np.any(there | (new < np.inf)))
        self.n, self.floor, self.first = 1.0 * self.size, self.size, self.size  # set by `under`

    def __getitem__(self, e: Any) -> Self:
        """Select markets by an index array of any shape."""
        some = copy(self)
        arrays = {name: part[e] for name, part in vars(self).items() if name not in _SHARED}
        vars(some).update(arrays)
        return some

    def under(self, n: float | Floats) -> Self:
        """Return the markets under a cap of 1/n."""
        some = copy(self)
        some.n = n + 0.0 * self.size
        numbers, x = self.costs.sums[0], self.costs.x
        # The tolerance makes m sellers at a cap of 1/m feasible despite rounding.
        filling = np.ceil(some.n * (1 - 1e-15)).astype(np.intp)
        last = np.minimum(filling, self.sums(self.size)[0]) - 1
        # The marginal cost is the new cost, or the cost of a row without the replaced seller.
        gone = numbers[np.minimum(self.row + 1, x.size)] - (self.row < x.size)
        ranks = np.array([last - 1, last])
        low, high = numbers.searchsorted(ranks + (ranks >= gone), "right") - 1
        least = np.where(last > 0, x[low], -np.inf)
        most = np.where(high < x.size, x[np.minimum(high, x.size - 1)], np.inf)
        value = np.minimum(np.maximum(self.new, least), most)
        floor, some.first = self.rows(value), self.rows(value, "right")
        some.floor = np.where(self.sums(floor)[0] > 0, floor, 0)
        return some

    def sums(self, k: Ints) -> tuple[Ints, Floats, Floats]:
        """Return the number of sellers in the first k rows, and sums of their costs and squares."""
        number, first, second = self.costs.sums
        if not self.is_replaced:
            return number[k], first[k], second[k]
        come = k > self.place
        rows = k - come
        rows = rows + (rows > self.empty)
        gone = rows > self.row
        old, new = np.where(gone, self.old, 0.0), np.where(come, self.new, 0.0)
        costs = first[rows] - old + new
        return number[rows] - gone + come, costs, second[rows] - old * old + new * new

    def value(self, k: Ints) -> Floats:
        """Return the centred and scaled cost at a rank."""
        rows = k - (k > self.place)
        rows = np.minimum(rows + (rows >= self.empty), self.costs.x.size - 1)
        return np.where(k == self.place, self.new, self.costs.x[rows])

    def rows(self, level: Floats, side: Literal["left", "right"] = "left") -> Ints:
        """Return the number of rows below a level, or up to the level if ``side`` is "right"."""
        rows = self.costs.x.searchsorted(level, side)
        new = self.new < level if side == "left" else self.new <= level
        return rows - (rows > self.empty) + new

    def piece(self, j: Ints, q: Ints) -> Piece:
        """Compute the piece with j capped rows and q rows that sell."""
        capped, below, low = self.sums(j) if j.any() else (0 * j, 0.0, 0.0)
        number, total, squares = self.sums(q)
        number, total = number - capped, total - below
        left, several = np.maximum(self.n - capped, 0.0) / self.n, np.maximum(number, 1)
        mean = total / several
        # For equal costs, the spread is set to exactly zero.
        equal = (j == self.floor) & (q == self.first)
        spread = np.where(equal, 0.0, np.maximum(squares - low - total * mean, 0.0))
        cost = self.costs.offset + below / self.n + left * mean
        norm2 = capped / (self.n * self.n) + left * left / several
        return Piece(number.astype(float), left, mean, spread, cost, norm2)

    def nodes(self, e: Ints, k: Ints, least: Ints | int = 0, most: Ints | None = None) -> Nodes:
        """Compute the nodes k of the paths, given bounds on the number of capped rows."""
        some = self[e]
        first, size = some.first, some.size
        at_end, at_start = k < first, k >= size
        q = np.minimum(np.maximum(k, first), size)
        tau = some.value(np.minimum(q, size - 1))
        j = np.where(at_end & ~at_start, some.floor, 0)
        if some.floor.any():
            ends = at_start | at_end
            high = np.where(ends, j, some.floor if most is None else most)
            j = some._capped(q, tau, np.where(ends, j, least), high)
        free, left, mean, spread, cost, norm2 = some.piece(j, q)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beta = np.where(at_start, 0.0, left / (free * (tau - mean)))
            bend = beta * spread
            # Rounding must not make costs negative, because the rate can be infinite.
            cost = np.maximum(np.where(at_end, cost, cost - bend), 0.0)
            rate2 = np.where(at_end, np.inf, beta * beta / (norm2 + beta * bend))
        beta = np.where(at_end, np.inf, beta)
        return Nodes(e + 0 * k, k, rate2, cost, j, beta)

    def _capped(self, q: Ints, tau: Floats, low: Ints, high: Ints) -> Ints:
        """Search the number of capped rows at the point where the weight of row q becomes zero.

        Row j is at the cap if the weights at which it just reaches the cap sum to at most one.
        """
        bought, total, _ = self.sums(q)
        while (low < high).any():
            j = (low + high) // 2
            number, below, _ = self.sums(j)
            mass = (bought - number) * tau - (total - below)
            capped = mass <= (self.n - number) * (tau - self.value(j))
            capped &= low < high
            low, high = np.where(capped, j + 1, low), np.where(capped, high, np.minimum(high, j))
        return low

    def points(
        self, e: Ints, j: Ints, q: Ints, piece: Piece, beta: Floats, rate: Any, rho: float
    ) -> Points:
        """Compute the points of pieces (j, q) at beta; the rate is by default that of beta."""
        free, left, mean, spread, cost, norm2 = piece
        bent = np.where(spread > 0, beta, 0.0)  # beta can be infinite if the spread is zero
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            norm = np.sqrt(norm2 + bent * bent * spread)
            cost = cost - bent * spread
            rate = beta / norm if rate is None else rate
            value = norm + np.where(cost > 0, rate * cost, 0.0) + rho / rate
            level = mean + left / beta / free
        return Points(e, value, value, rate, self.n, beta, norm, level, level.copy(), j, q)

    def weights(self, points: Points, rank: Ints, cost: Floats) -> Floats:
        """Compute the weight of the seller with this rank and cost at the point of each market."""
        j, q, some = points.capped, points.bought, self[:]
        some.n, cap = points.n, 1.0 / points.n
        piece = some.piece(j, q)
        # Entries without free sellers are not used.
        with np.errstate(divide="ignore", invalid="ignore"):
            several = self.value(j) < self.value(q - 1)  # otherwise, weights are equal
            tilt = np.where(several, points.beta * (piece.mean - cost), 0.0)
            weight = np.clip(piece.left / piece.free + tilt, 0.0, cap)
        return np.where(rank < j, cap, np.where(rank < q, weight, 0.0))


def candidates(markets: Markets, rho: float, rates: Sequence[float | Floats] = ()) -> Points:
    """Return the local minima of every market if rho > 0, and its possible optima at all rates.

    ``rho`` is sigma*gamma*scale/mu^2. The rate of a point is +inf if the infimum is not attained.
    """
    targets = np.broadcast_arrays(*rates, markets.size)[:-1]
    e, j, q, low, high = _pieces(markets, rho, targets)
    some = markets[e]
    piece = some.piece(j, q)
    if some.floor.any():  # the next row reaches the cap, or the last capped row leaves the cap
        excess = np.maximum(some.sums(q)[0] - some.n, 0.0) / some.n
        with np.errstate(divide="ignore", invalid="ignore"):
            width = piece.mean - some.value(j), piece.mean - some.value(np.maximum(j - 1, 0))
            following, last = (excess / np.maximum(piece.free * part, 0.0) for part in width)
        high = np.where((j < some.floor) & (following < high), following, high)
        low = np.where((j > 0) & (last > low) & (last < np.inf), last, low)
    points = []
    for rate in [None, *targets] if rho > 0 else targets:
        rate = rate if rate is None else rate[e]
        beta = stationary_beta(piece, rho) if rate is None else beta_at(piece, rate)
        moved = (beta < low * (1 - SLACK)) | (beta > high * (1 + SLACK))
        beta = np.minimum(np.maximum(beta, low), high)
        nodes = some.points(e, j, q, piece, beta, rate, rho)
        # Neighbouring pieces share their ends, so points inside a piece are preferred.
        nodes.key = nodes.value * (1 + SLACK * moved)
        points.append(nodes)
    return Points.joined(points)


def best_of(points: Points) -> Points:
    """Return the best point of every market, in the order of the markets."""
    order = np.lexsort((points.key, points.e))
    return points[order[np.diff(points.e[order], prepend=-1) > 0]]


def beta_at(piece: Piece, rate: Any) -> Floats:
    """Solve beta/||a(beta)|| = r for beta on each piece, or return +inf if r is too large."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return rate * np.sqrt(piece.norm2 / np.maximum(1.0 - rate * rate * piece.spread, 0.0))


def stationary_beta(piece: Piece, rho: float) -> Floats:
    """Return the beta of the local minimum on each piece, or +inf if the objective is decreasing.

    The equation r^2 * psi'a = rho is the cubic s^3 - b*s + d = 0 in s = 1/beta. The larger of at
    most two positive roots is the local minimum.
    """
    spread, cost, norm2 = piece.spread, piece.cost, piece.norm2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        b = (cost - rho * spread) / (rho * norm2)
        d = spread / (rho * norm2)
        cosine = -1.5 * d / b * np.sqrt(3.0 / b)
        s = 2.0 * np.sqrt(b / 3.0) * np.cos(np.arccos(cosine) / 3.0)
        return np.where((b > 0) & (cosine >= -1.0), 1.0 / s, np.inf)


def may_matter(
    rates2: tuple[Floats, Floats], costs: tuple[Floats, Floats], rho: float, rates: Sequence[Any]
) -> NDArray[np.bool_]:
    """Whether stretches can contain a stationary point (if rho > 0) or one of the given rates.

    The pairs are the smallest and largest r^2 and psi'a of the stretches.
    """
    hit = np.zeros(rates2[0].shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        tests = [(*rates2, rate * rate) for rate in rates]
        if rho > 0:
            tests.append((rates2[0] * costs[0], rates2[1] * costs[1], rho))
        for least, most, target in tests:
            # The comparisons are negated, so that NaN (infinity times zero) keeps the stretch.
            hit |= ~(most < target * (1 - SLACK)) & ~(least > target * (1 + SLACK))
    return hit


def _pieces(
    markets: Markets, rho: float, rates: Sequence[Floats]
) -> tuple[Ints, Ints, Ints, Any, Any]:
    """Return the market, j, q and both ends in beta of every piece that may contain an optimum.

    As beta grows, r^2 increases and psi'a decreases, so the ends of a stretch bound both numbers.
    """
    ranks = markets.costs.stretches.T[:, None]
    ranks = ranks - (ranks > markets.empty[:, None])
    ranks = ranks + (markets.place[:, None] <= ranks)
    ranks = np.minimum(np.maximum(ranks, markets.first[:, None] - 1), markets.size[:, None])
    e = np.arange(markets.size.size).repeat(ranks.shape[2])[:, None]
    rows, done = markets.nodes(e, _between(_FIRST, *ranks.reshape(2, -1, 1))), []
    while True:
        a, b = rows[:, :-1], rows[:, 1:]
        targets = [rate[a.e] for rate in rates]
        keep = may_matter((b.rate2, a.rate2), (a.cost, b.cost), rho, targets) & (a.k < b.k)
        place = keep.nonzero()
        a, b = a[place], b[place]
        wide = b.k - a.k > 1
        if not wide.any():
            break
        done.append((a[~wide], b[~wide]))
        a, b = a[wide][:, None], b[wide][:, None]
        inner = _between(_LATER, a.k, b.k)[:, 1:-1]
        rows = Nodes.joined([a, markets.nodes(a.e, inner, b.j, a.j), b], axis=1)
    a, b = map(Nodes.joined, zip(*done, (a, b), strict=True))
    # Divide the path between neighbouring nodes into a piece for each number of capped rows.
    counts = np.maximum(a.j - b.j, 0) + 1
    of = np.arange(counts.size).repeat(counts)
    j = b.j[of] + np.arange(of.size) - (counts.cumsum() - counts)[of]
    return a.e[of], j, b.k[of], b.beta[of], a.beta[of]


def _between(most: int, low: Ints, high: Ints) -> Ints:
    """Return evenly spaced ranks in each interval, about ``most`` ranks in total."""
    parts = min(int((high - low).max(initial=1)), max(2, most // low.size))
    return low + (high - low) * np.arange(parts + 1) // parts
