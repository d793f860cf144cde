"""The exact solver of the papers' problem (A, Eq. 11), at any number of sellers.

:mod:`convexmarket.allocation.path` and :mod:`convexmarket.allocation.bounded` compute the optimum
from prefix sums. This module omits sellers who provably sell nothing. To avoid cancellation, the
optimum is recomputed on its piece of the path from differences between costs and a reference cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.bounded import minimise_bounded
from convexmarket.allocation.passes import blocks_of, highest_cost_bought, screen_sellers
from convexmarket.allocation.path import (
    Costs,
    Floats,
    Markets,
    Piece,
    Points,
    best_of,
    beta_at,
    candidates,
    stationary_beta,
)
from convexmarket.allocation.simplex import cheapest_purchase, check_feasible
from convexmarket.errors import SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm

#: Number of sellers below which sorting is faster than two passes over the sellers.
_WORTH_PASSES = 20_000
#: Largest number of pieces that are solved if rounding errors select a neighbouring piece.
_MOVES = 4
#: The bound on guarantees can be active if the relative distance to it is at most this number.
_BINDS = 1e-9
UNATTAINED = (
    "{} a virtual cost of 0. Privacy bought only from them is free, so the infimum, at eta = "
    "infinity, is not attained; remove them, or bound eta with EtaRange(low, high)"
)


def solve_exact(form: StandardForm, costs: Costs | None = None) -> Allocation:
    """Return the global minimiser of the papers' problem.

    ``costs`` are the sorted virtual costs of at least those sellers who sell.
    """
    form, psi = with_spread(form), form.virtual_costs
    segment, best, bound = best_segment(form, costs or costs_that_matter(form)[0])
    weights = np.concatenate(list(map(segment.weights, blocks_of(psi))))
    if not abs((total := float(weights.sum())) - 1.0) <= 1e-10:
        raise SolverError(
            f"rounding errors of the exact solver are too large: its weights sum to {total!r}, as "
            "costs, mu and cap differ by too many orders of magnitude; use method='line_search'"
        )
    dual = best.lower_bound
    if best.objective - dual > 1e-12 * best.objective:  # another bound is more accurate
        within = replace(form, max_weight=segment.cap)
        accurate = dual_bound(within, form.gamma * best.eta * psi, weights)
        dual = max(dual, accurate + form.sigma / best.eta)
    if bound < best.objective * (1 - 1e-12):  # an interval of eta can contain a better point
        dual = min(dual, bound)
    return replace(best, weights=weights, lower_bound=min(best.objective, dual))


def with_spread(form: StandardForm) -> StandardForm:
    """Replace mu = 0 by a value that is too small to change any digit of the objective.

    The cheapest sellers then have weights at the cap. Equal marginal costs have equal weights, as
    in the limit of the optima for mu -> 0.
    """
    if form.mu > 0:
        return form
    psi, gamma = form.virtual_costs, form.gamma
    top = float(psi.max(initial=0.0, where=np.isfinite(psi))) or 1.0
    cost = np.sqrt(form.sigma * gamma * top) if form.sigma > 0 else gamma * form.eta_low * top
    return replace(form, mu=1e-50 * float(cost))


def dual_bound(form: StandardForm, costs: Floats, weights: Floats) -> float:
    """Compute a lower bound on the minimum of ``mu*||a|| + costs'a`` from any weights.

    With ``y = mu*weights/||weights||``, it is the minimum of ``(y + costs)'a``.
    """
    direction = weights / np.linalg.norm(weights)
    return cheapest_purchase(form.mu * direction + costs, form.max_weight)


def unconstrained_eta(form: StandardForm, cost: float) -> float:
    """Return the stationary point of ``sigma/eta + gamma*eta*cost``, with ``cost = psi'a``."""
    if form.sigma == 0:
        return 0.0
    root = np.sqrt(form.sigma) / np.sqrt(form.gamma)  # the quotient may overflow
    return float(root / np.sqrt(cost)) if cost > 0 else np.inf


def costs_that_matter(form: StandardForm, spare: int = 0) -> tuple[Costs, float]:
    """Return the costs of all sellers that can sell, and a cost above which no seller sells.

    With ``spare = 1``, both results remain valid if the cost of one seller changes.
    """
    psi, limit = form.virtual_costs, np.inf
    available = int(np.count_nonzero(psi < np.inf))
    check_feasible(form, available, psi.size)
    small = psi.size < _WORTH_PASSES or (available - spare) * form.max_weight < 1
    if form.max_epsilon == np.inf and not small:
        low, high = float(psi.min()), float(psi.max(initial=0.0, where=psi < np.inf))
        low, high = (0.0, np.inf) if spare else (low, high)
        return screen_sellers(lambda work: [work(blocks_of(psi))], form, psi.size, low, high, spare)
    ordered = np.sort(psi)
    if form.max_epsilon == np.inf:
        filling = int(np.ceil((1 - 1e-15) / form.max_weight)) + spare
        limit = highest_cost_bought(form, float(ordered[min(filling, psi.size) - 1]))
    sold = np.searchsorted(ordered, min(limit, np.finfo(float).max), side="right")
    return Costs(ordered[:sold]), limit


def optimum(form: StandardForm, markets: Markets) -> tuple[Points, Floats]:
    """Return the best point of every market, and a lower bound on objective/mu.

    The virtual costs are those of ``markets``, and mu > 0. Up to an eta of
    ``max_epsilon/max_weight``, the bound on guarantees does not bind; above, it replaces the cap.
    """
    rho, unit = markets.costs.units(form)
    n, largest, (low, high) = 1.0 / form.max_weight, form.max_epsilon, form.eta_range
    rates, border = unit * np.array([low, high]), unit * largest * n
    points = candidates(markets.under(n), rho, list(rates[(rates > 0) & (rates < np.inf)]))
    points = points[(points.rate >= rates[0]) & (points.rate <= rates[1])]
    best, bound = best_of(points), np.full(markets.size.size, np.inf)
    if largest == np.inf or np.all(_largest(markets, best) <= largest * unit * (1 - _BINDS)):
        return best, bound
    minima = [points[points.rate <= border]]
    if high >= largest * n:
        totals = max(low / largest, n), high / largest
        point, bound = minimise_bounded(markets, rho, largest * unit, *totals)
        minima.append(point)
    return best_of(Points.joined(minima)), bound


def _largest(markets: Markets, points: Points) -> Floats:
    """Compute the largest guarantee at each point, in the unit of the rates."""
    first = 0 * points.e
    return points.rate * markets.weights(points, first, markets.value(first))


class PathSegment(NamedTuple):
    """A piece of the path of optimal weights, in the units of the market.

    ``bought`` sellers sell, and ``capped`` of these are at the cap. The weights of free sellers are
    ``share - beta*((psi - origin) - mean)``; beta is 0 if all their costs are equal. ``norm`` is
    ||a||, and ``filled`` and ``cost`` are the costs of capped sellers and psi'a.
    """

    capped: int
    bought: int
    origin: float
    mean: float
    share: float
    beta: float
    cap: float
    norm: float
    filled: float
    cost: float

    def weights(self, psi: Floats) -> Floats:
        """Compute the weights of sellers with given virtual costs."""
        if self.beta == 0:
            share = np.where(psi == self.origin, self.share, 0.0)
            return np.where(psi < self.origin, self.cap, share)
        weights = psi - self.origin
        weights -= self.mean
        weights *= -self.beta
        weights += self.share
        return np.clip(weights, 0.0, self.cap, out=weights)


def best_segment(form: StandardForm, costs: Costs) -> tuple[PathSegment, Allocation, float]:
    """Return the optimal piece, the optimum (except weights), and a lower bound for all eta.

    The virtual costs are ``costs``, not those of ``form``.
    """
    markets = Markets(costs)
    points, (bound,) = optimum(form, markets)
    point = points[0]
    unit, numbers = costs.units(form)[1], costs.sums[0]
    if np.isinf(point.rate):
        free = numbers[np.searchsorted(costs.psi, 0.0, side="right")]
        raise UnattainedOptimumError(UNATTAINED.format(f"{free} sellers have"))
    ends = {form.eta_low: ("eta_low",), form.eta_high: ("eta_high",)}
    fixed = [end for end in ends if end > 0 and abs(point.rate - end * unit) <= 1e-14 * point.rate]
    most, cap = form.max_epsilon * unit, form.max_weight
    if point.rate * cap >= most * (1 - 1e-14) and _largest(markets, points) >= most * (1 - _BINDS):
        fixed.append(float(point.n) * form.max_epsilon)
    if fixed:
        cap = min(cap, form.max_epsilon / fixed[0])
    # Rows at the ends can be empty. If all are at the bound, treat the most expensive as free.
    capped, bought = numbers[point.capped], numbers[point.bought]
    j, q = np.searchsorted(numbers, [capped, bought - 1], side="right") - [1, 0]
    if capped == bought:
        j = np.searchsorted(costs.psi, costs.psi[q - 1])
    segment = _polished(replace(form, max_weight=cap), costs, int(j), int(q), *fixed[:1])
    best = unconstrained_eta(form, segment.cost)
    eta = fixed[0] if fixed else min(max(best, form.eta_low), form.eta_high)
    t, norm, noise = form.gamma * eta, segment.norm, form.sigma / eta
    # Free sellers satisfy tau = t*psi + mu*a/||a||. For others, the difference is the dual slack.
    tau = float(t * (segment.origin + segment.mean) + form.mu * segment.share / norm)
    at_cap = segment.capped * (tau - form.mu * cap / norm) - t * segment.filled
    objective = form.mu * norm + noise + t * segment.cost
    dual = min(objective, tau - cap * at_cap + noise)
    level = costs.lowest + costs.scale * float(point.level)
    price = form.gamma * level if capped == bought else tau / eta
    values = np.empty(0), eta, objective, dual, price
    return segment, Allocation(*values, binding=ends.get(eta, ())), form.mu * float(bound)


def _polished(
    form: StandardForm, costs: Costs, j: int, q: int, eta: float | None = None
) -> PathSegment:
    """Recompute the optimum on a piece from cost differences, to avoid cancellation.

    If rounding errors led to a piece next to the correct piece, solve the correct piece.
    """
    u, psi, scale, numbers = form.max_weight, costs.psi, costs.scale, costs.sums[0]
    rho, unit = costs.units(form)
    for _ in range(_MOVES):
        capped, bought = int(numbers[j]), int(numbers[q])
        origin, rows = float(psi[j + (q - j) // 2]), costs.numbers[j:q]
        deviation = (costs.means[j:q] - origin) / scale
        mean = float((rows * deviation).sum()) / (bought - capped)
        deviation -= mean
        spread = float((costs.squares[j:q] / scale / scale + rows * deviation**2).sum())
        mean, filled = mean * scale, float((costs.numbers[:j] * costs.means[:j]).sum())
        left = max(0.0, 1.0 - capped * u)
        share = min(left / (bought - capped), u)  # rounding errors can make a weight exceed the cap
        norm2, cost, beta = capped * u**2 + left * share, u * filled + left * (origin + mean), 0.0
        if spread > 0:
            part = Piece(*np.array([[0.0], [left], [mean], [spread], [cost / scale], [norm2]]))
            free = stationary_beta(part, rho) if eta is None else beta_at(part, unit * eta)
            beta = float(free[0])
        norm = float(np.sqrt(norm2 + beta * beta * spread)) if beta < np.inf else np.inf
        cost -= beta * spread * scale
        beta /= scale
        segment = PathSegment(capped, bought, origin, mean, share, beta, u, norm, filled, cost)
        if beta == np.inf and (np.sqrt(rho) if eta is None else unit * eta) > 1e20:
            # As mu is negligible, the cheapest sellers are at the cap, and the next share the rest.
            last = min(int(np.searchsorted(numbers, 1 / u, side="right")), psi.size)
            first, last = (
                int(np.searchsorted(psi, psi[last - 1], side=x)) for x in ("left", "right")
            )
        elif not 0 < beta < np.inf:
            break
        else:
            top = origin + mean + share / beta
            first = int(np.searchsorted(psi, top - u / beta, side="right"))
            last = int(np.searchsorted(numbers, numbers[first], side="right"))
            last = max(int(np.searchsorted(psi, top)), last)
        if (first, last) == (j, q) or numbers[first] >= numbers[-1]:
            break
        j, q = first, last
    return segment
