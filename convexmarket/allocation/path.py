"""The path of optimal weights: every stationary point in closed form, the best one chosen.

For a fixed eta the optimal weights are the projection of ``-beta*psi`` on the capped simplex
(design of the "projection" formulation), so that as beta grows from 0 to infinity they trace one
piecewise linear path a(beta), whatever mu, sigma and gamma are. On it

* the capped sellers are the j cheapest and the sellers bought from are the q cheapest;
* with f = q - j free sellers, M = 1 - j*u the weight left for them and W the sum of squared
  deviations of their costs from the mean, ||a||^2 = N0 + beta^2*W and psi'a = p0 - beta*W;
* eta follows from gamma*eta = t = mu*beta/||a||, and the objective is stationary in eta where
  t^2 * psi'a = sigma*gamma, which is a cubic in 1/beta with at most one local minimum.

As beta grows, t grows and psi'a falls. So on any stretch of the path the product t^2*psi'a lies
between two numbers known from its ends, and a stretch that cannot hold a stationary point is
discarded whole. What remains after a few rounds of splitting are single pieces of the path, whose
cubics are solved: all local minima, hence the global one, in O(m log m), with no tolerance.

The same search runs on many markets at once that differ from a base market in one seller's cost
(:class:`convexmarket.allocation.costs.Replaced`), which is what payments and audits ask for.

Sellers are numbered from the cheapest here. Costs are centred at the smallest and divided by the
largest, objectives divided by mu: ``F/mu = ||a|| + r*psi'a + rho/r`` with r = t/mu.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.costs import (
    Arrays,
    Costs,
    Floats,
    GroupedCosts,
    Ints,
    Replaced,
    ReplacedInGroups,
    SortedCosts,
    of_market,
)

__all__ = [
    "Common",
    "PathPoint",
    "beta_at",
    "bounds_at_edges",
    "cheapest",
    "common_stretches",
    "may_hit",
    "minimise",
    "point_at",
    "squared_rates",
    "stationary_beta",
    "stationary_pieces",
]

Segment = tuple[Floats, Floats, Floats, Floats, Floats, Floats]

#: Relative slack of the test that discards a stretch; far above rounding, far below what matters.
_SLACK = 1e-9
#: Nodes of the path of a single market that are evaluated first.
_FIRST_NODES = 1024
#: Ends of stretches that many markets share, at most; more are taken for one.
_MOST_ENDS = 6
#: Nodes evaluated in one round of splitting while few stretches are left.
_NODES_PER_ROUND = 128


@dataclass(frozen=True)
class PathPoint(Arrays):
    """Points of the paths of one or many markets, all arrays of shape (n,).

    Attributes
    ----------
    value : ndarray
        Objective divided by mu.
    rate : ndarray
        r = gamma*eta/mu, in units of 1/scale of the costs; +inf where the infimum lies there.
    beta : ndarray
        Path parameter; +inf where all weight rests on the cheapest sellers.
    level : ndarray
        Cost (centred and scaled) from which on sellers are not bought from.
    capped, bought : ndarray of int
        j and q: how many sellers are at the cap, and bought from.
    moved : ndarray of bool
        The piece of the path holds no stationary point; this is its end next to one.
    """

    value: Floats
    rate: Floats
    beta: Floats
    level: Floats
    capped: Ints
    bought: Ints
    moved: NDArray[np.bool_]

    def weight_of(self, costs: Replaced | ReplacedInGroups, cap: float) -> Floats:
        """Return the weight of the replaced seller of each market, shape (n,)."""
        e = np.arange(costs.count)
        free, left, total, spread, _, _ = _Path.of(costs, cap).segment(e, self.capped, self.bought)
        with np.errstate(invalid="ignore"):
            tilt = np.where(spread > 0, self.beta * (total / free - costs.y), 0.0)
        free_weight = np.clip(left / free + tilt, 0.0, cap)
        weight = np.where(costs.place < self.capped, cap, free_weight)
        return np.where(costs.place < self.bought, weight, 0.0)


@dataclass(frozen=True)
class _Nodes(Arrays):
    """Nodes k of paths: r^2, psi'a and the number of capped sellers there; arrays of one shape."""

    k: Ints
    rate2: Floats
    cost: Floats
    j: Ints


@dataclass(frozen=True)
class _Path:
    """The path of each market: its costs, the cap, and where it ends.

    A node k is the point of the path at which seller k (the k + 1 cheapest are 0..k) ceases to be
    bought from: the last one, k = size, is beta = 0, and the first one, ``first - 1``, stands for
    beta = infinity, where the ``floor`` sellers strictly below the marginal cost are capped and
    those at it share the rest.
    """

    costs: Costs
    cap: float
    n_caps: float  # 1/cap: how many capped sellers carry the whole weight
    floor: Ints
    first: Ints

    @classmethod
    def of(cls, costs: Costs, cap: float) -> _Path:
        n_caps = 1.0 / cap
        entry = np.arange(costs.size.size)
        # m sellers at k/m with k = 1 must fit in spite of rounding.
        everyone = costs.number(entry, costs.size)
        marginal = np.minimum(int(np.ceil(n_caps * (1 - 1e-15))) - 1, everyone - 1)
        floor, first = costs.ties(entry, costs.position(entry, marginal))
        return cls(costs, cap, n_caps, floor, first)

    def segment(self, e: Ints, j: Ints, q: Ints) -> Segment:
        """Return f, M, sum of free costs, W, p0 and N0 of the piece (j, q)."""
        costs, u = self.costs, self.cap
        capped = costs.number(e, j)
        free = (costs.number(e, q) - capped).astype(float)
        left = np.maximum(1.0 - capped * u, 0.0)
        total, squares = costs.sums(e, q)
        below: Floats | float = 0.0
        if np.any(j):
            below, squares_below = costs.sums(e, j)
            total = total - below
            squares = squares - squares_below
        mean = total / free
        spread = np.maximum(squares - total * mean, 0.0)
        # Equal costs: their spread is zero, and must not be the rounding of a difference.
        at_end = (j == of_market(self.floor, e)) & (q == of_market(self.first, e))
        spread = np.where(at_end, 0.0, spread)
        cost = costs.offset + u * below + left * mean
        norm2 = capped * u * u + left * left / free
        return free, left, total, spread, cost, norm2

    def node(self, e: Ints, k: Ints, capped: tuple[Ints, Ints] | None = None) -> _Nodes:
        """Evaluate the path at nodes k, given bounds of the number of capped sellers if known."""
        return self.node_and_beta(e, k, capped)[0]

    def node_and_beta(
        self, e: Ints, k: Ints, capped: tuple[Ints, Ints] | None = None
    ) -> tuple[_Nodes, Floats]:
        """Return nodes k, and beta at those that do not stand for infinity."""
        first, size = of_market(self.first, e), of_market(self.costs.size, e)
        at_end, at_start = k < first, k >= size
        tau = self.costs.value(e, np.minimum(np.maximum(k, first), size - 1))
        q = np.minimum(np.maximum(k, first), size)
        j = self._capped(e, q, tau, capped)
        if np.any(self.floor):
            j = np.where(at_start, 0, np.where(at_end, of_market(self.floor, e), j))
        free, left, total, spread, cost, norm2 = self.segment(e, j, q)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            beta = np.where(at_start, 0.0, left / (free * tau - total))
            bend = beta * spread
            # Free sellers' costs must not be rounded below zero: the rate may be infinite.
            cost = np.maximum(np.where(at_end, cost, cost - bend), 0.0)
            rate2 = np.where(at_end, np.inf, beta * beta / (norm2 + beta * bend))
        return _Nodes(*np.broadcast_arrays(k, rate2, cost, j)), beta

    def _capped(self, e: Ints, q: Ints, tau: Floats, bounds: tuple[Ints, Ints] | None) -> Ints:
        """Return how many sellers are at the cap when seller q ceases to be bought from.

        Seller j is at the cap if the weights that put it exactly there sum to at most one; that
        is monotone in j, so a binary search over j < floor finds the first who is not.
        """
        low = np.zeros_like(q)
        if not np.any(self.floor):
            return low
        low, high = (low, of_market(self.floor, e)) if bounds is None else bounds
        total, bought = self.costs.sum1(e, q), self.costs.number(e, q)
        while np.any(low < high):
            j = (low + high) // 2
            number = self.costs.number(e, j)
            mass = (bought - number) * tau - (total - self.costs.sum1(e, j))
            capped = mass <= (self.n_caps - number) * (tau - self.costs.value(e, j))
            capped &= low < high
            low = np.where(capped, j + 1, low)
            high = np.where(capped, high, np.minimum(high, j))
        return low

    def limits(self, e: Ints, j: Ints, q: Ints, segment: Segment) -> tuple[Floats, Floats]:
        """Return the ends of the piece (j, q) in beta."""
        value = self.costs.value
        free, left, total, _, _, _ = segment
        last = of_market(self.costs.size, e) - 1
        leave = _ratio(left, free * value(e, q - 1) - total, np.inf)
        enter = _ratio(left, free * value(e, np.minimum(q, last)) - total, 0.0)
        enter = np.where(q > last, 0.0, enter)
        if not np.any(self.floor):
            return enter, leave
        excess = self.cap * np.maximum(self.costs.number(e, q) - self.n_caps, 0.0)
        cap_next = _ratio(excess, total - free * value(e, j), np.inf)
        cap_last = _ratio(excess, total - free * value(e, np.maximum(j - 1, 0)), 0.0)
        high = np.where(j < of_market(self.floor, e), np.minimum(leave, cap_next), leave)
        low = np.where(j > 0, np.maximum(enter, cap_last), enter)
        return low, high

    def points(self, e: Ints, j: Ints, q: Ints, rho: float, rate: float | None = None) -> PathPoint:
        """Return the best point of each piece (j, q): for any eta, or for that of ``rate``."""
        segment = self.segment(e, j, q)
        free, left, total, spread, cost, norm2 = segment
        if rate is None:
            beta = stationary_beta(spread, cost, norm2, rho)
        else:
            beta = beta_at(spread, norm2, rate)
        low, high = self.limits(e, j, q, segment)
        # The optimum lies inside some piece; a point that had to be moved is a second choice.
        moved = (beta < low * (1 - _SLACK)) | (beta > high * (1 + _SLACK))
        beta = np.minimum(np.maximum(beta, low), high)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            bent = spread > 0  # elsewhere beta may be infinite
            norm = np.sqrt(norm2 + np.where(bent, beta * beta * spread, 0.0))
            cost = cost - np.where(bent, beta * spread, 0.0)
            rates = beta / norm if rate is None else np.full_like(norm, rate)
            value = norm + np.where(cost > 0, rates * cost, 0.0) + rho / rates
            level = (left / beta + total) / free
        return PathPoint(value, rates, beta, level, j, q, moved)


def _ratio(numerator: Floats, denominator: Floats, otherwise: float) -> Floats:
    """Divide where the denominator is positive; elsewhere the event never comes."""
    positive = denominator > 0
    return np.where(positive, numerator / np.where(positive, denominator, 1.0), otherwise)


def stationary_pieces(costs: Costs, cap: float, rho: float) -> tuple[Ints, Ints, Ints]:
    """Return (market, j, q) of every piece of the paths that may hold a stationary point."""
    return _pieces(_Path.of(costs, cap), _product, rho)


def minimise(
    costs: Costs,
    cap: float,
    rho: float,
    rates: tuple[float, float] = (0.0, np.inf),
    within: Common | None = None,
) -> PathPoint:
    """Return the global minimiser over eta and weights, of every market in ``costs``.

    Parameters
    ----------
    costs : SortedCosts or Replaced
    cap : float
        u, the largest weight; 1 where there is no cap.
    rho : float
        sigma*gamma*scale/mu^2 > 0.
    rates : (float, float), optional
        Range of r = gamma*eta*scale/mu; stationary points outside get the value +inf.
    within : Common, optional
        Where on their paths the stationary points of all these markets are known to be.

    Returns
    -------
    PathPoint
        One point per market; ``rate`` is +inf where the infimum is not attained.
    """
    path = _Path.of(costs, cap)
    e, j, q = _pieces(path, _product, rho, within)
    points = path.points(e, j, q, rho)
    outside = (points.rate < rates[0]) | (points.rate > rates[1])
    return _best(e, replace(points, value=np.where(outside, np.inf, points.value)))


def point_at(costs: Costs, cap: float, rho: float, rate: float) -> PathPoint:
    """Return the best weights of every market for a given eta, as r = gamma*eta*scale/mu."""
    path = _Path.of(costs, cap)
    e, j, q = _pieces(path, lambda rate2, _: rate2, rate * rate)
    return _best(e, path.points(e, j, q, rho, rate))


def squared_rates(costs: SortedCosts, cap: float, count: int) -> tuple[Ints, Floats]:
    """Return ``count`` nodes of a path, evenly spaced up to the last before beta = 0, and r^2.

    r^2 falls along the nodes; there is none where all sellers cost the same.
    """
    path = _Path.of(costs, cap)
    first, last = path.first[0], costs.size[0] - 1
    nodes = last - (last - first) * np.arange(count)[::-1] // max(count - 1, 1)
    nodes = nodes[nodes >= first]
    return nodes, path.node(np.zeros_like(nodes), nodes).rate2


def cheapest(costs: Costs, cap: float) -> tuple[Floats, Floats, Ints, Ints]:
    """Return the ends of the paths, at beta = infinity, where the cheapest are filled to the cap.

    Returns
    -------
    cost : ndarray, shape (n,)
        psi'a, scaled.
    share : ndarray, shape (n,)
        Weight of each seller at the marginal cost.
    below, upto : ndarray of int, shape (n,)
        How many sellers are below, and at or below, the marginal cost.
    """
    path = _Path.of(costs, cap)
    free, left, _, _, cost, _ = path.segment(np.arange(costs.size.size), path.floor, path.first)
    return cost, left / free, path.floor, path.first


def beta_at(spread: Floats, norm2: Floats, rate: float) -> Floats:
    """Return the beta on each piece at which beta/||a(beta)|| = r; +inf where it stays below."""
    with np.errstate(divide="ignore"):
        return rate * np.sqrt(norm2 / np.maximum(1.0 - rate * rate * spread, 0.0))


def stationary_beta(spread: Floats, cost: Floats, norm2: Floats, rho: float) -> Floats:
    """Return the beta of the local minimum on each piece; +inf where the objective only falls.

    r^2 * psi'a = rho is beta^2*(p0 - beta*W) = rho*(N0 + beta^2*W), in s = 1/beta the cubic
    s^3 - b*s + d = 0. Its roots sum to zero and have product -d <= 0: at most two are positive,
    and the larger one in s is where the objective turns from falling to rising.
    """
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        b = (cost - rho * spread) / (rho * norm2)
        d = spread / (rho * norm2)
        cosine = -1.5 * d / b * np.sqrt(3.0 / b)
        s = 2.0 * np.sqrt(b / 3.0) * np.cos(np.arccos(cosine) / 3.0)
        return np.where((b > 0) & (cosine >= -1.0), 1.0 / s, np.inf)


def _product(rate2: Floats, cost: Floats) -> Floats:
    """Return r^2 * psi'a, which is rho where the objective is stationary."""
    return rate2 * cost


def _may_hit(most: Floats, least: Floats, target: float) -> NDArray[np.bool_]:
    # Negated, so that infinity times zero (a seller who costs nothing) keeps the stretch.
    return ~(most < target * (1 - _SLACK)) & ~(least > target * (1 + _SLACK))


class EdgeBounds(NamedTuple):
    """Bounds of the path between the edges of cells, beyond the last one too; shape (n + 1,).

    Attributes
    ----------
    rate2, cost : (ndarray, ndarray)
        The least and the most that r^2 and psi'a may be there, in units of ``scale``.
    cap_low, cap_high : ndarray
        Costs between which the dearest seller at the cap is.
    scale : float
    """

    rate2: tuple[Floats, Floats]
    cost: tuple[Floats, Floats]
    cap_low: Floats
    cap_high: Floats
    scale: float


def bounds_at_edges(
    edges: Floats, numbers: Ints, cap: float, dearest: float | None = None
) -> EdgeBounds:
    """Bound the path of a market of which only the numbers of sellers in cells are known.

    With all at the lower edges, and all at the upper ones, are two markets between which it lies;
    at the same tau they bound it, as in :func:`common_stretches`.

    Parameters
    ----------
    edges : ndarray, shape (n + 1,)
    numbers : ndarray of int, shape (n,)
    cap : float
    dearest : float, optional
        Bound also all markets in which one seller has left, or costs at most this instead, and no
        less than the first edge.
    """
    spare = int(dearest is not None)
    fewer, more = np.append(0, numbers), np.append(numbers, 0)
    fewer[np.flatnonzero(fewer)[0]] -= spare
    more[0] += spare
    scale = float(edges[-1]) or 1.0
    s, none = np.arange(edges.size), np.zeros(edges.size)
    nodes, betas, ends = [], [], []
    for some in (fewer, more):
        path = _Path.of(GroupedCosts(edges, some, edges, none), cap)
        e = np.zeros_like(s)
        # Node k = n + 1 is the beginning of the path, where all are bought from.
        node, beta = path.node_and_beta(e, s)
        nodes.append(node)
        betas.append(np.where(np.isinf(node.rate2), np.inf, beta))
        ends.append(path.node(e[:1], s[-1:] + 1).cost[0])
    beyond = ends[0] + (dearest or 0.0) / scale / max(int(fewer.sum()), 1)
    low, high = nodes  # of fewer and of more sellers
    tau = edges / scale
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = betas[0] / betas[1]
        least_cost = tau - (tau - high.cost) * ratio
        most_cost = tau - (tau - low.cost) / ratio
        least_cost = np.where(np.isinf(betas[0]), high.cost[0], least_cost)
        most_cost = np.where(np.isinf(betas[0]), tau, most_cost)
        width = [cap / beta * scale for beta in betas]
    return EdgeBounds(
        (np.append(high.rate2[1:], 0.0), low.rate2),
        (np.fmax(least_cost, high.cost[0]), np.append(np.fmin(most_cost, tau)[1:], beyond)),
        np.append(edges[1:] - width[1][1:], -np.inf),
        np.where(np.isinf(betas[0]), np.append(edges[1:], edges[-1]), edges - width[0]),
        scale,
    )


def may_hit(bounds: EdgeBounds, rho: float, rates: Sequence[float]) -> NDArray[np.bool_]:
    """Return between which edges a path may be stationary, or at one of the rates; shape (n + 1,).

    ``rho`` is 0 where no stationary point is looked for.
    """
    (rate2_low, rate2_high), (cost_low, cost_high) = bounds.rate2, bounds.cost
    with np.errstate(invalid="ignore", over="ignore"):
        found = _may_hit(rate2_high * cost_high, rate2_low * cost_low, rho)
        found &= rho > 0
        for rate in rates:
            found |= _may_hit(rate2_high, rate2_low, rate * rate)
    return found


class Common(NamedTuple):
    """Stretches of the paths of all markets that differ from one in a single seller.

    Attributes
    ----------
    k : ndarray of int
        Nodes at their ends, in ascending order.
    fewest, most : ndarray of int
        How many sellers may be at the cap there.
    """

    k: Ints
    fewest: Ints
    most: Ints


def common_stretches(base: SortedCosts, cap: float, rho: float, dearest: float) -> Common:
    """Return the stretches that may hold a stationary point with one seller gone or replaced.

    The market without its cheapest seller, and the one with another at that cost, are the
    extremes: node k of any other lies between node k - 2 of the first and node k + 2 of the
    second. Let tau be the cost from which on sellers are not bought from. At the same tau, the
    more and the cheaper the sellers, the larger are 1/r^2, 1/beta and ``(tau - psi'a)/beta``, which
    is the sum of ``(tau - psi)*min(tau - psi, u/beta)``. So the extremes bound r^2 and psi'a of
    all others, as closely as one seller matters.

    Parameters
    ----------
    base : SortedCosts
        Of whom any but one can carry the whole weight.
    cap, rho : float
        As for :func:`minimise`.
    dearest : float
        What the replaced seller costs at most, if it is not gone; no less than the cheapest.
    """
    m = base.psi.size
    path = _Path.of(Replaced(base, np.array([0, m]), np.array([np.inf, base.lowest])), cap)
    first = path.first[0]
    filled = path.node(np.array([1]), path.first[1:] - 1).cost
    other = (dearest - base.lowest) / base.scale
    mean = base.offset + (base.s1[-1] + other) / (m - 1)

    low, high = 0, m + 1
    while True:
        k = np.unique(low + (high - low) * np.arange(_NODES_PER_ROUND + 1) // _NODES_PER_ROUND)
        at = np.array([np.minimum(k, m) - 2, np.maximum(k, first)])  # bound from below and above
        tau = base.offset + path.costs.value(np.array([0]), np.clip(at, 0, m - 2))
        both = np.arange(2)[:, None, None]
        nodes, beta = path.node_and_beta(both, at + 2 * both)
        less, more = nodes[0], nodes[1]
        with np.errstate(divide="ignore", invalid="ignore"):  # at the ends of the paths
            ratio = beta[0] / beta[1]
            least_cost = tau[0] - (tau[0] - more.cost[0]) * ratio[0]
            most_cost = tau[1] - (tau[1] - less.cost[1]) / ratio[1]
            least_cost = np.where(at[0] < first, filled, least_cost)
            most_cost = np.where(at[1] >= m - 1, mean, most_cost)
            most = _product(less.rate2[0, :-1], most_cost[1:])
            least = _product(more.rate2[1, 1:], least_cost[:-1])
        ends = np.flatnonzero(np.diff(_may_hit(most, least, rho), prepend=False, append=False))
        if not 0 < ends.size <= _MOST_ENDS:
            ends = np.array([0, k.size - 1])
        if 2 * (k[ends[-1]] - k[ends[0]]) >= high - low:
            return Common(k[ends], np.maximum(more.j[1, ends] - 2, 0), less.j[0, ends] + 2)
        low, high = k[ends[0]], k[ends[-1]]


def _pieces(
    path: _Path,
    quantity: Callable[[Floats, Floats], Floats],
    target: float,
    within: Common | None = None,
) -> tuple[Ints, Ints, Ints]:
    """Return (market, j, q) of every piece of the paths on which ``quantity`` may hit ``target``.

    ``quantity(r^2, psi'a)`` is nondecreasing in both arguments; along a path the first rises and
    the second falls with beta, so a stretch is bounded by mixing its ends.
    """
    e, nodes = _first_cut(path) if within is None else _cut_at(path, within)
    done: list[_Stretches] = []
    while e.size:
        a, b = nodes[:, :-1], nodes[:, 1:]
        with np.errstate(invalid="ignore"):
            most, least = quantity(a.rate2, b.cost), quantity(b.rate2, a.cost)
        keep = np.nonzero(_may_hit(most, least, target) & (a.k < b.k))
        work = _Stretches(e[keep[0]], a[keep], b[keep])
        single = work.b.k - work.a.k <= 1
        if single.all():
            done.append(work)
            break
        done.append(work[single])
        work = work[~single]
        e, nodes = work.e, _split(path, work)
    return _expand(done)


@dataclass(frozen=True)
class _Stretches(Arrays):
    """Stretches of the paths of markets e, from node a to node b > a; arrays of shape (n,)."""

    e: Ints
    a: _Nodes
    b: _Nodes


def _first_cut(path: _Path) -> tuple[Ints, _Nodes]:
    """Return markets and a row of nodes for each, the ends of their paths among them.

    A single path is cut finely at once; many paths begin as one stretch each.
    """
    first, last = path.first - 1, path.costs.size
    e, parts = np.arange(first.size), 1
    if path.costs.stretches is not None:
        e, *ends = path.costs.stretches
        first, last = (np.clip(k, of_market(first, e), of_market(last, e)) for k in ends)
    if path.first.size == 1:
        parts = int(np.clip((last - first).max(), 1, _FIRST_NODES))
    k = first[:, None] + (last - first)[:, None] * np.arange(parts + 1) // parts
    return e, path.node(np.repeat(e, parts + 1).reshape(k.shape), k)


def _cut_at(path: _Path, common: Common) -> tuple[Ints, _Nodes]:
    """Return all markets and their rows of nodes at the ends of stretches that they share."""
    everyone: Any = np.s_[:, None]
    k = np.clip(common.k, path.first[everyone] - 1, path.costs.size[everyone])
    fewest, most = (np.minimum(j, path.floor[everyone]) for j in common[1:])
    return np.arange(path.costs.count), path.node(everyone, k, (fewest, most))


def _split(path: _Path, work: _Stretches) -> _Nodes:
    """Return a row of evenly spaced nodes for each stretch, its ends among them."""
    parts = max(2, _NODES_PER_ROUND // work.e.size)
    length = work.b.k - work.a.k
    k = work.a.k[:, None] + length[:, None] * np.arange(1, parts) // parts
    fewest, most = (np.repeat(end.j, parts - 1).reshape(k.shape) for end in (work.b, work.a))
    inner = path.node(np.repeat(work.e, parts - 1).reshape(k.shape), k, (fewest, most))
    return _Nodes(
        *(
            np.hstack((getattr(work.a, name)[:, None], middle, getattr(work.b, name)[:, None]))
            for name, middle in vars(inner).items()
        )
    )


def _expand(done: list[_Stretches]) -> tuple[Ints, Ints, Ints]:
    """Return the pieces between neighbouring nodes: one per number of capped sellers."""
    pieces = done[0] if len(done) == 1 else _Stretches.joined(done)
    e, q, fewest = pieces.e, pieces.b.k, pieces.b.j
    counts = np.maximum(pieces.a.j - fewest, 0) + 1
    if (counts == 1).all():
        return e, fewest, q
    starts = np.repeat(np.cumsum(counts) - counts, counts)
    j = np.repeat(fewest, counts) + np.arange(starts.size) - starts
    return np.repeat(e, counts), j, np.repeat(q, counts)


def _best(e: Ints, points: PathPoint) -> PathPoint:
    """Return the best point of every market, in the order of the markets."""
    # Neighbouring pieces share their ends, so that ties must go to the piece of the optimum.
    key = np.where(points.moved, points.value * (1 + _SLACK), points.value)
    if not np.any(e):  # one market
        return points[np.array([np.argmin(key)])]
    key[np.isnan(key)] = np.inf  # costs beyond double precision
    least = np.full(e.max() + 1, np.inf)
    np.minimum.at(least, e, key)
    first = np.flatnonzero(key == least[e])
    best = np.empty(least.size, dtype=np.intp)
    best[e[first]] = first
    return points[best]
