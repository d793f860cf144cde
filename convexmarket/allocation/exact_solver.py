"""The exact solver of the papers' problem (A, Eq. 11), at any number of sellers.

:mod:`convexmarket.allocation.path` and :mod:`convexmarket.allocation.bounded` compute the optimum
from prefix sums. This module omits sellers who provably sell nothing, and polishes the optimum on
its piece of the path, from deviations of the costs themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.bounded import minimise_bounded
from convexmarket.allocation.passes import blocks_of, highest_cost_bought, screen_sellers
from convexmarket.allocation.path import (
    Costs,
    Floats,
    Point,
    beta_at,
    joined,
    lowest,
    minimise,
    rates_of,
    stationary_beta,
    take,
)
from convexmarket.allocation.simplex import cheapest_purchase, check_feasible, check_noise
from convexmarket.errors import SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm

__all__ = ["check_noise", "solve_exact"]

#: Markets below this size are sorted, which is faster than passes over them.
_WORTH_PASSES = 20_000
#: Largest number of pieces to solve if rounding errors select a neighbour of the right piece.
_MOVES = 4


def solve_exact(form: StandardForm, costs: Costs | None = None) -> Allocation:
    """Return the global minimiser of the papers' problem.

    ``costs`` are its sorted costs; sellers who sell nothing may be missing.
    """
    psi = form.virtual_costs
    check_feasible(form, psi.size - int(np.count_nonzero(np.isinf(psi))), psi.size)
    if form.max_epsilon < np.inf and form.sigma > 0:  # it may hold without the bound
        with suppress(UnattainedOptimumError):
            free = solve_exact(replace(form, max_epsilon=np.inf))
            if free.eta * float(free.weights.max()) <= form.max_epsilon:
                return free
    form = with_spread(form)
    segment, best, bound = best_segment(form, costs or costs_that_matter(form)[0])
    weights = np.concatenate([segment.weights(block) for block in blocks_of(psi)])
    if not abs((total := float(weights.sum())) - 1.0) <= 1e-10:
        raise SolverError(
            f"rounding errors of the exact solver are too large, its weights sum to {total!r}: "
            "costs, mu and cap differ by too many orders of magnitude; use method='line_search'"
        )
    dual = best.lower_bound
    if best.objective - dual > 1e-12 * best.objective:  # the weights give a more accurate bound
        within = replace(form, max_weight=segment.cap)
        accurate = dual_bound(within, form.gamma * best.eta * psi, weights)
        dual = max(dual, accurate + form.sigma / best.eta)
    if bound < best.objective * (1 - 1e-12):  # an interval of eta is undecided
        dual = min(dual, bound)
    return replace(best, weights=weights, lower_bound=min(best.objective, dual))


def with_spread(form: StandardForm) -> StandardForm:
    """Replace mu = 0 by a value too small to change a digit of the objective.

    The cheapest sellers are then filled to the cap. Ties at the margin have equal weights, which is
    the limit of the optima as mu -> 0.
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


def unattained(free: int = 0) -> UnattainedOptimumError:
    """Return the error for sellers with free privacy."""
    who = f"{free} sellers have" if free else "at some report a seller has"
    return UnattainedOptimumError(
        f"{who} a virtual cost of 0, so privacy bought only from them is free and "
        "the infimum, at eta = infinity, is not attained; leave them out, or bound eta with "
        "EtaRange(low, high)"
    )


def costs_that_matter(form: StandardForm, spare: int = 0) -> tuple[Costs, float]:
    """Return the costs without sellers who provably sell nothing, and a limit.

    Sellers above the limit sell nothing. With ``spare = 1``, this also applies if the cost of one
    seller changes.
    """
    psi = form.virtual_costs
    if form.max_epsilon < np.inf:
        return Costs.sorted(np.sort(psi)), np.inf
    if psi.size < _WORTH_PASSES or (np.isfinite(psi).sum() - spare) * form.max_weight < 1:
        ordered = np.sort(psi)
        filling = int(np.ceil((1 - 1e-15) / form.max_weight)) + spare
        limit = highest_cost_bought(form, float(ordered[min(filling, ordered.size) - 1]))
        return Costs.sorted(ordered, limit), limit
    instead = (0.0, np.inf) if spare else None

    def one_part(work: Callable[[Any], Any]) -> list[Any]:
        return [work(blocks_of(psi))]

    return screen_sellers(one_part, form, psi.size, psi.size // 8, instead)


def optimum(form: StandardForm, costs: Costs) -> tuple[Point, Floats]:
    """Return the best point of every market, and a lower bound on objective/mu.

    The form's costs are not read, and mu > 0. Up to a total of ``max_epsilon/max_weight`` a largest
    guarantee does not bind; above, it replaces the cap.
    """
    n, e = 1.0 / form.max_weight, form.max_epsilon
    rho, unit, ends = rates_of(form, costs)
    border, points, bound = e * n, [], np.full(costs.count, np.inf)
    if form.sigma > 0 and form.eta_low <= border:
        rates = form.eta_low * unit, min(form.eta_high, border) * unit
        points.append(minimise(costs, n, rho, rates))
    points += [minimise(costs, n, rho, rate=rate) for rate in ends if rate < border * unit]
    if e < np.inf and form.eta_high >= border:
        low, high = max(form.eta_low / e, n), form.eta_high / e
        point, bound = minimise_bounded(costs, rho, e * unit, low, high)
        points.append(point)
    every, market = joined(points), np.tile(np.arange(costs.count), len(points))
    return take(every, lowest(market, every.value)), bound


class PathSegment(NamedTuple):
    """A piece of the path, in the units of the market.

    Of ``bought`` sellers ``capped`` are at the cap. The weights of free sellers are
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
        """Return the weights of sellers at virtual costs."""
        if self.beta == 0:
            share = np.where(psi == self.origin, self.share, 0.0)
            return np.where(psi < self.origin, self.cap, share)
        weights = psi - self.origin
        weights -= self.mean
        weights *= -self.beta
        weights += self.share
        return np.clip(weights, 0.0, self.cap, out=weights)


def best_segment(form: StandardForm, costs: Costs) -> tuple[PathSegment, Allocation, float]:
    """Return the optimum as a piece and as an allocation without weights, and a bound for all eta.

    The form's costs are not read.
    """
    point, bounds = optimum(form, costs)
    rate, unit = float(point.rate[0]), rates_of(form, costs)[1]
    if np.isinf(rate):
        raise unattained(int(costs.number(np.searchsorted(costs.psi, [0.0], side="right"))[0]))
    eta, cap = None, form.max_weight
    binding: tuple[str, ...] = ()
    if rate * cap >= form.max_epsilon * unit * (1 - 1e-14):  # the bound on guarantees is active
        eta = float(point.n[0]) * form.max_epsilon
    for name in ("eta_low", "eta_high"):
        end = getattr(form, name)
        if 0 < end < np.inf and abs(rate - end * unit) <= 1e-14 * rate:
            eta, binding = end, (name,)
    if eta is not None:
        cap = min(cap, form.max_epsilon / eta)
    first, last = costs.number(point.capped), costs.number(point.bought) - 1
    j, q = int(costs.position(first)[0]), int(costs.position(last)[0]) + 1
    is_full = j == q  # all sellers are at the bound; treat the most expensive ones as free
    if is_full:
        j = int(np.searchsorted(costs.psi, costs.psi[q - 1]))
    segment = _polished(replace(form, max_weight=cap), costs, j, q, eta)
    if eta is None:
        best = unconstrained_eta(form, segment.cost)
        eta = float(np.clip(best, *form.eta_range))
        binding = ("eta_low",) if eta > best else ("eta_high",) if eta < best else ()
    t, norm, noise = form.gamma * eta, segment.norm, form.sigma / eta
    # Free sellers satisfy tau = t*psi + mu*a/||a||; for others the difference is dual slack.
    tau = float(t * (segment.origin + segment.mean) + form.mu * segment.share / norm)
    at_cap = segment.capped * (tau - form.mu * cap / norm) - t * segment.filled
    objective = form.mu * norm + noise + t * segment.cost
    dual = min(objective, tau - cap * at_cap + noise)
    level = costs.lowest + costs.scale * float(point.level[0])
    price = form.gamma * level if is_full else tau / eta
    values = np.empty(0), eta, objective, dual, price
    found_at = Allocation(*values, method="exact", seconds=0.0, binding=binding)
    return segment, found_at, form.mu * float(bounds[0])


def _solve_piece(
    form: StandardForm, costs: Costs, j: int, q: int, eta: float | None
) -> PathSegment:
    """Solve a piece from deviations from one of its costs, without cancellation."""
    psi, u, scale = costs.psi, form.max_weight, costs.scale
    capped, bought = (int(part) for part in costs.number(np.array([j, q])))
    origin = float(psi[j + (q - j) // 2])
    filled, mean, spread = costs.deviations(j, q, origin)
    left = max(0.0, 1.0 - capped * u)
    share = min(left / (bought - capped), u)  # a full piece exceeds the cap by rounding
    norm2, cost, beta = capped * u**2 + left * share, u * filled + left * (origin + mean), 0.0
    if spread > 0:
        free, norms = np.array([spread]), np.array([norm2])
        rho, unit, _ = rates_of(form, costs)
        if eta is None:
            beta = float(stationary_beta(free, np.array([cost / scale]), norms, rho)[0])
        else:
            beta = float(beta_at(free, norms, unit * eta)[0])
    norm = float(np.sqrt(norm2 + beta * beta * spread)) if beta < np.inf else np.inf
    cost -= beta * spread * scale
    return PathSegment(capped, bought, origin, mean, share, beta / scale, u, norm, filled, cost)


def _polished(form: StandardForm, costs: Costs, j: int, q: int, eta: float | None) -> PathSegment:
    """Solve the piece (j, q), or a neighbouring one if rounding errors led to the wrong piece."""
    u, psi, every = form.max_weight, costs.psi, int(costs.number(costs.size)[0])
    for _ in range(_MOVES):
        segment = _solve_piece(form, costs, j, q, eta)
        if not 0 < segment.beta < np.inf:
            break
        top = segment.origin + segment.mean + segment.share / segment.beta
        capped = int(np.searchsorted(psi, top - u / segment.beta, side="right"))
        at_cap = costs.number(np.array([capped]))
        bought = max(int(np.searchsorted(psi, top)), int(costs.position(at_cap)[0]) + 1)
        if (capped, bought) == (j, q) or at_cap[0] >= every:
            break
        j, q = capped, bought
    return segment
