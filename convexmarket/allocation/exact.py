"""The exact solver of the papers' problem (A, Eq. 11): any scale, no tolerance, edge cases said.

:mod:`convexmarket.allocation.path` finds the best point of the path of optimal weights from
prefix sums. This module wraps it: it leaves out sellers who are provably not bought from, treats
the cases without a path (mu = 0, sigma = 0, a seller who costs nothing), compares with the ends
of a range of eta, and computes the answer anew from the costs themselves, so that it is accurate
to rounding however close together or far apart the costs are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounded import BoundedPoint, minimise_bounded
from convexmarket.allocation.bounds import check_noise, dual_bound, unconstrained_eta
from convexmarket.allocation.costs import GroupedCosts, Replaced, SortedCosts
from convexmarket.allocation.passes import blocks_of, survey
from convexmarket.allocation.path import (
    beta_at,
    cheapest,
    minimise,
    point_at,
    squared_rates,
    stationary_beta,
    stationary_pieces,
)
from convexmarket.errors import (
    InfeasibleMarketError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import StandardForm

__all__ = [
    "ExactSolution",
    "Place",
    "best_place",
    "cheap_enough",
    "check_enough",
    "check_feasible",
    "check_sum",
    "highest_cost_bought",
    "priced",
    "ratio_of_scales",
    "solve_exact",
    "weigh",
]

Floats = NDArray[np.float64]

#: Markets below this size are sorted whole: passes over them cost more.
_WORTH_PASSES = 20_000
_SAMPLE = 4_096
_BLOCK = 1 << 15
_ONE = np.zeros(1, dtype=np.intp)
#: The ratio of scales is computed with as long as it keeps all digits.
_LEAST, _LARGEST = 1e-300, 1e300


@dataclass(frozen=True)
class ExactSolution:
    """The best weights, total privacy and multiplier, with the dual value at that eta."""

    weights: Floats
    eta: float
    objective: float
    lower_bound: float
    multiplier: float
    binding: tuple[str, ...] = ()


def solve_exact(form: StandardForm, costs: SortedCosts | None = None) -> ExactSolution:
    """Return the global minimiser of the papers' problem.

    Parameters
    ----------
    form : StandardForm
    costs : SortedCosts, optional
        Its costs, if they are sorted already, but for sellers who are not bought from.

    Raises
    ------
    InfeasibleMarketError
        If too few sellers have a finite virtual cost for the cap, or the range of eta is empty.
    UnattainedOptimumError
        If the objective only approaches its infimum, as eta goes to 0 or to infinity.
    """
    check_feasible(form)
    check_noise(form)
    if form.mu == 0:
        return _cheapest_sellers(form)
    if form.max_epsilon < np.inf:
        return _bounded(form)
    costs = costs or _costs_that_matter(form)
    found = best_place(form, costs)
    weights, norm, cost = _weights(form, found.piece)
    bought = priced(form, costs, found, norm, cost)
    dual = bought.lower_bound
    if (
        bought.objective - dual > 1e-12 * bought.objective
    ):  # digits were lost; the weights have them
        scaled = form.gamma * bought.eta * form.virtual_costs
        dual = max(dual, dual_bound(form, scaled, weights) + form.sigma / bought.eta)
    return replace(bought, weights=weights, lower_bound=min(bought.objective, dual))


def _bounded(form: StandardForm) -> ExactSolution:
    """Solve with a largest guarantee: without it first, which mostly decides."""
    e = form.max_epsilon
    free = replace(form, max_epsilon=np.inf)
    if form.sigma > 0:
        with suppress(UnattainedOptimumError):
            found = solve_exact(free)
            if found.eta * float(found.weights.max()) <= e:
                return found
    costs = SortedCosts(np.sort(form.virtual_costs))
    most = float(e * costs.psi.size)
    if form.eta_low > most * (1 + 1e-12):
        raise InfeasibleMarketError(
            f"{costs.psi.size} sellers at no more than epsilon = {e:g} sell {most:g} in all, but "
            f"the EtaRange starts at {form.eta_low:g}; raise one or lower the other"
        )
    border = e / form.max_weight
    # A seller who does not exist is replaced by one who does not.
    alone = Replaced(costs, np.array([costs.psi.size]), np.array([np.inf]))
    unit = form.gamma * costs.scale / form.mu
    ends = max(form.eta_low, border) / e, min(form.eta_high / e, float(costs.psi.size))
    below = replace(free, eta_high=min(border, form.eta_high))
    if ends[0] > ends[1]:
        return solve_exact(below, costs)
    rho = ratio_of_scales(form, costs)
    best, bound = minimise_bounded(alone, rho, e * unit, *ends)
    if form.eta_low <= border:
        less = np.inf
        if form.sigma > 0:
            rates = form.eta_low * unit, below.eta_high * unit
            less = float(minimise(costs, form.max_weight, rho, rates).value[0])
        if form.eta_low > 0 or less <= best.value[0]:
            found = solve_exact(below, costs)
            if found.objective <= form.mu * best.value[0]:
                return replace(found, lower_bound=min(found.lower_bound, form.mu * bound[0]))
    return _certified(form, costs, best, form.mu * float(bound[0]))


def _certified(
    form: StandardForm, costs: SortedCosts, point: BoundedPoint, bound: float
) -> ExactSolution:
    """Compute the weights at a point anew from the costs, and what their multipliers prove."""
    e, psi = form.max_epsilon, form.virtual_costs
    j, q, eta = int(point.capped[0]), int(point.bought[0]), e * float(point.n[0])
    binding: tuple[str, ...] = ()
    for name, end in (("eta_low", form.eta_low), ("eta_high", form.eta_high)):
        if 0 < end < np.inf and abs(eta - end) <= 1e-14 * end:
            eta, binding = end, (name,)
    t = form.gamma * eta
    if j == q:
        weights, cap = np.where(psi <= costs.psi[j - 1], 1.0 / j, 0.0), 1.0 / j
        norm, cost = 1.0 / np.sqrt(j), form.expected_cost(weights)
        level = costs.lowest + costs.scale * np.append(point.level, point.level_above)
        price = float(np.clip(form.mu * norm + form.sigma / eta, *(t * level)))
    else:
        cap = e / eta
        piece = _settle(replace(form, max_weight=cap), costs, j, q, eta)
        weights, norm, cost = _weights(replace(form, max_weight=cap), piece)
        price = float(t * (piece.origin + piece.mean) + form.mu * piece.share / norm)
    objective = form.mu * norm + form.sigma / eta + t * cost
    slope = t * psi + form.mu / norm * weights
    extra = np.where(weights >= cap * (1 - 1e-12), np.maximum(price - slope, 0.0), 0.0)
    dual = float((slope + extra).min()) - cap * float(extra.sum()) + form.sigma / eta
    if bound < objective * (1 - 1e-12):  # some interval of eta was left undecided
        dual = min(dual, bound)
    return ExactSolution(weights, eta, objective, min(objective, dual), price / eta, binding)


def best_place(form: StandardForm, costs: SortedCosts) -> Place:
    """Return the place of the optimum on the path, where mu > 0; the form's costs are not read."""
    unit = form.gamma * costs.scale / form.mu  # r per unit of eta
    rho = ratio_of_scales(form, costs)
    ends = [("eta_low", form.eta_low), ("eta_high", form.eta_high)]
    ends = [(name, eta) for name, eta in ends if 0 < eta < np.inf]
    if not ends and costs.lowest > 0:
        _, j, q = stationary_pieces(costs, form.max_weight, rho)
        if j.size == 1:  # as in most markets: nothing to compare
            return Place(_settle(form, costs, int(j[0]), int(q[0]), None))
    found = []
    if form.sigma > 0:
        rates = (form.eta_low * unit, form.eta_high * unit)
        found.append(minimise(costs, form.max_weight, rho, rates))
    found += [point_at(costs, form.max_weight, rho, eta * unit) for _, eta in ends]
    values = [float(point.value[0]) for point in found]
    best = int(np.argmin(values))
    if np.isinf(found[best].rate[0]):
        free = np.searchsorted(costs.psi, [0.0], side="right")
        _refuse_free_sellers(int(costs.number(_ONE, free)[0]))
    capped, bought = int(found[best].capped[0]), int(found[best].bought[0])
    end = best - (form.sigma > 0)
    if end < 0:
        return Place(_settle(form, costs, capped, bought, None))
    name, eta = ends[end]
    return Place(_settle(form, costs, capped, bought, eta), eta, (name,))


def check_feasible(form: StandardForm) -> None:
    """Raise InfeasibleMarketError where no weights or no eta satisfy the constraints."""
    check_range(form)
    m = form.virtual_costs.size
    check_enough(form, m - int(np.count_nonzero(np.isinf(form.virtual_costs))), m)


def check_range(form: StandardForm) -> None:
    """Raise InfeasibleMarketError where no eta satisfies the constraints."""
    if form.eta_low > form.eta_high:
        raise InfeasibleMarketError(
            f"the ranges of eta do not meet: at least {form.eta_low:g} and at most "
            f"{form.eta_high:g}; widen one of them"
        )


def check_enough(form: StandardForm, available: int, m: int) -> None:
    """Raise InfeasibleMarketError where those of m who are available cannot carry the weight."""
    if available * form.max_weight < 1 - 1e-12:
        raise InfeasibleMarketError(
            f"{available} of {m} sellers have a finite virtual cost (it is infinite where the "
            "prior's density vanishes, as at the top of some supports), and with the cap of "
            f"{form.max_weight * m:g} they carry at most {available * form.max_weight:.3g} of the "
            "weight; raise the cap"
        )


def ratio_of_scales(form: StandardForm, costs: SortedCosts) -> float:
    """Return rho = sigma*gamma*scale/mu^2, the one number that the path has to know."""
    rho = form.sigma * form.gamma * costs.scale / form.mu / form.mu
    if not (_LEAST < rho < _LARGEST or form.sigma == 0):
        raise SolverError(
            f"mu = {form.mu:g} beside sigma*gamma*psi = {form.sigma * form.gamma * costs.scale:g}: "
            "the ratio of scales exceeds double precision; bring the weights of the terms closer"
        )
    return rho


def highest_cost_bought(form: StandardForm, ordered: Floats, spare: int = 0) -> float:
    """Return a virtual cost above which nobody is bought from at the optimum.

    Among the sellers that would fill the cap, one is below it; let g be the dearest cost among
    them. Were a seller with cost psi bought from, moving weight to that one would not pay, so
    that t*(psi - g) <= mu. A stationary point has t^2*psi'a = sigma*gamma, so that the objective
    there exceeds 2*sigma*gamma/t, and is no more than what the sellers at g achieve. The end of a
    range of eta bounds t directly. ``spare`` sellers may leave the market, whose virtual costs are
    given in ascending order, without invalidating the bound.
    """
    gamma = np.float64(form.gamma)  # which divides by zero, to infinity: the bound says nothing
    c = form.sigma * gamma
    filling = min(int(np.ceil((1 - 1e-15) / form.max_weight)) + spare, ordered.size)
    g = float(ordered[filling - 1])
    if g == np.inf:
        return g
    ends = [eta for eta in (form.eta_low, form.eta_high) if 0 < eta < np.inf]
    with np.errstate(all="ignore"):
        one_over_t = [1.0 / (gamma * eta) for eta in ends]
        if form.sigma > 0 and form.eta_low == 0:
            t = min(np.sqrt(c / g) if g > 0 else np.inf, gamma * form.eta_high)
            achieved = form.mu + (c / t + t * g if t < np.inf else 0.0)
            one_over_t.append(achieved / (2.0 * c))
        bound = float(g + form.mu * np.max(one_over_t))
    return np.inf if np.isnan(bound) else bound


def _costs_that_matter(form: StandardForm) -> SortedCosts:
    """Return the costs, leaving out sellers who are provably not bought from."""
    psi = form.virtual_costs
    if psi.size >= _WORTH_PASSES:
        ceiling = lambda g: highest_cost_bought(form, np.broadcast_to(g, psi.size))  # noqa: E731
        return survey(lambda work: [work(blocks_of(psi))], form, ceiling, psi.size // 8)
    ordered = np.sort(psi)
    return SortedCosts(ordered, highest_cost_bought(form, ordered))


def cheap_enough(form: StandardForm, spare: int) -> float:
    """Return a cost below which all are who are bought from; +inf where none is found quickly.

    At a stationary point t^2*psi'a = sigma*gamma, and psi'a is at most the mean of all costs. So
    there is none on the part of the path where t^2*mean < sigma*gamma, which is where sellers above
    some cost are bought from. A sample suggests that cost; then it is checked. ``spare`` sellers
    may leave the market or have other costs: t is largest without the cheapest, who are left out,
    and the mean with the dearest that is bought from.
    """
    psi, u = form.virtual_costs, form.max_weight
    if psi.size < _WORTH_PASSES or form.sigma == 0 or (form.eta_low, form.eta_high) != (0, np.inf):
        return np.inf
    stride = psi.size // _SAMPLE
    sample = SortedCosts(np.sort(psi[::stride]))
    nodes, rates2 = squared_rates(sample, u * stride, 512)
    enough = rates2 / stride * psi.mean() < 0.5 * ratio_of_scales(form, sample) * sample.scale
    first_enough = int(nodes[np.argmax(enough)])
    if not np.any(enough) or first_enough == sample.psi.size:
        return np.inf
    limit = float(sample.psi[first_enough])
    ordered = np.sort(psi[psi <= limit])
    if (ordered.size - spare) * u < 1:
        return np.inf
    total = float(psi.sum()) + spare * highest_cost_bought(form, ordered, spare)
    costs = SortedCosts(ordered[spare:])
    _, rate2 = squared_rates(costs, u, 1)
    bound = ratio_of_scales(form, costs) * costs.scale
    proven = np.any(rate2 * (total / (psi.size - spare)) < bound)
    return limit if proven else np.inf


def _cheapest_sellers(form: StandardForm) -> ExactSolution:
    """Solve with mu = 0: nothing rewards spread, so the cheapest sellers are filled to the cap.

    Sellers who tie at the margin share alike, which is the limit of the answers as mu -> 0.
    """
    psi, u = form.virtual_costs, form.max_weight
    ordered = np.sort(psi)
    _, share, below, _ = cheapest(SortedCosts(ordered), u)
    marginal = ordered[below[0]]
    at_margin = np.where(psi == marginal, min(share[0], u), 0.0)
    weights = np.where(psi < marginal, u, at_margin)
    cost = form.expected_cost(weights)
    best = np.inf if cost == 0 else _stationary_eta(form, cost)
    eta = float(np.clip(best, form.eta_low, form.eta_high))
    if eta == np.inf:
        _refuse_free_sellers(int(np.count_nonzero(psi == 0)))
    binding = ("eta_low",) if eta > best else ("eta_high",) if eta < best else ()
    objective = form.objective(weights, eta)
    multiplier = form.gamma * float(marginal)
    return ExactSolution(weights, eta, objective, objective, multiplier, binding)


def _stationary_eta(form: StandardForm, cost: float) -> float:
    """Return the eta at which noise and payments balance."""
    eta = unconstrained_eta(form, cost)
    if eta == np.inf or (eta == 0 and form.sigma > 0):
        raise SolverError(
            f"sigma = {form.sigma:g} beside gamma*psi = {form.gamma:g}*{cost:g}: the ratio of "
            "scales exceeds double precision; bring the weights of the terms closer"
        )
    return eta


def _refuse_free_sellers(free: int) -> None:
    raise UnattainedOptimumError(
        f"{free} sellers have a virtual cost of 0, so privacy bought from them alone is free and "
        "the infimum, at eta = infinity, is not attained; leave them out, or bound eta with "
        "EtaRange(low, high)"
    )


@dataclass(frozen=True)
class _Piece:
    """The point of the path on the piece (j, q), in the units of the market.

    Free sellers weigh ``share - beta*((psi - origin) - mean)``; beta is NaN where they all cost
    the same.
    """

    j: int
    q: int
    capped: int
    origin: float
    mean: float
    share: float
    beta: float


@dataclass(frozen=True)
class Place:
    """A place on the path: a piece, and the end of the range of eta where that binds."""

    piece: _Piece
    eta: float | None = None
    binding: tuple[str, ...] = ()


def _solve_piece(
    form: StandardForm, costs: SortedCosts, j: int, q: int, eta: float | None
) -> _Piece:
    """Solve a piece from deviations from one of its costs: their digits are never lost."""
    psi, u = costs.psi, form.max_weight
    capped, bought = (int(costs.number(_ONE, np.array([k]))[0]) for k in (j, q))
    origin = float(psi[j + (q - j) // 2])
    unit = float(psi[q - 1] - psi[j])  # so that the cubic does not overflow at any scale
    left = max(0.0, 1.0 - capped * u)
    share = min(left / (bought - capped), u)  # a full piece exceeds the cap by rounding
    if unit == 0:
        return _Piece(j, q, capped, origin, 0.0, share, np.nan)
    two = float(np.ldexp(0.5, np.frexp(unit)[1]))
    mean, squares = costs.deviations(j, q, origin, two)
    mean *= two
    spread = np.array([squares / (unit / two) ** 2])
    norm2 = np.array([capped * u**2 + left * share])
    if eta is None:
        cost = np.array([u * costs.total(j, unit) + left * ((origin + mean) / unit)])
        rho = form.sigma * form.gamma * unit / form.mu / form.mu
        beta = stationary_beta(spread, cost, norm2, rho)
    else:
        beta = beta_at(spread, norm2, form.gamma * eta * unit / form.mu)
    return _Piece(j, q, capped, origin, mean, share, float(beta[0]) / unit)


def _settle(form: StandardForm, costs: SortedCosts, j: int, q: int, eta: float | None) -> _Piece:
    """Solve the piece (j, q); should rounding have put the point next to it, its neighbour."""
    u, psi = form.max_weight, costs.psi
    for _ in range(8):
        piece = _solve_piece(form, costs, j, q, eta)
        centre = piece.origin + piece.mean
        if np.isnan(piece.beta):
            return piece
        if piece.beta == 0 or psi[j] == centre == psi[q - 1]:  # all between is rounded away
            raise ParameterError(
                f"the virtual costs {psi[j]:g} and {psi[q - 1]:g} are too close together, or too "
                f"far apart beside mu = {form.mu:g}, for double precision; give the sensitivities "
                "in another unit of money, make close ones equal, or leave the dearest out"
            )
        if np.isinf(piece.beta):  # the optimum lies further along the path
            above, below = psi[q - 1] - centre, centre - psi[j]
            leaves = piece.share / above if above > 0 else np.inf
            caps = (u - piece.share) / below if below > 0 else np.inf
            if caps <= leaves:
                j = int(np.searchsorted(psi, psi[j], side="right"))
            else:
                q = int(np.searchsorted(psi, psi[q - 1]))
            continue
        top = centre + piece.share / piece.beta
        capped = int(np.searchsorted(psi, top - u / piece.beta, side="right"))
        at_cap = costs.number(_ONE, np.array([capped]))
        bought = max(int(np.searchsorted(psi, top)), int(costs.position(_ONE, at_cap)[0]) + 1)
        if (capped, bought) == (j, q) or at_cap[0] >= costs.number(_ONE, costs.size)[0]:
            return piece
        j, q = capped, bought
    return piece


def _weights(form: StandardForm, piece: _Piece) -> tuple[Floats, float, float]:
    """Return the weights of all sellers, in their own order, their norm and psi'a."""
    psi = form.virtual_costs
    weights = np.empty(psi.size)
    sums = np.zeros(3)
    for start in range(0, psi.size, _BLOCK):
        some = slice(start, start + _BLOCK)
        sums += weigh(psi[some], piece, form.max_weight, weights[some])
    check_sum(sums[0])
    return weights, float(np.sqrt(sums[1])), float(sums[2])


def check_sum(total: float) -> None:
    """Refuse weights that do not sum to one."""
    if not abs(total - 1.0) <= 1e-10:
        raise SolverError(
            f"the exact solver lost the optimum to rounding, its weights sum to {total!r}: "
            "costs, mu and cap differ by too many orders of magnitude; use method='line_search'"
        )


def weigh(psi: Floats, piece: _Piece, cap: float, out: Floats) -> tuple[float, float, float]:
    """Write the weights of some sellers; return their sum, that of their squares, and psi'a.

    The sums are numpy's: those of BLAS start threads, which takes longer than this.
    """
    if np.isnan(piece.beta):
        out[:] = np.where(psi == piece.origin, piece.share, 0.0)
        out[psi < piece.origin] = cap
    else:
        np.subtract(psi, piece.origin, out=out)
        out -= piece.mean
        out *= -piece.beta
        out += piece.share
        np.maximum(out, 0.0, out=out)
        np.minimum(out, cap, out=out)
    with np.errstate(invalid="ignore"):
        cost = float((psi * out).sum())
    if np.isnan(cost):  # 0 * inf: a seller at psi = +inf, who is not bought from
        cost = float((psi[out > 0] * out[out > 0]).sum())
    return float(out.sum()), float((out * out).sum()), cost


def sums_of_weights(
    costs: GroupedCosts, place: Place, cap: float
) -> tuple[float, float, float, int]:
    """Return the weights' sum, their norm and psi'a, and how many are bought from, by groups.

    Weights are affine on the rows of the piece, so that each group's mean and squares say them.
    """
    piece = place.piece
    beta = 0.0 if np.isnan(piece.beta) else piece.beta
    numbers, means, squares = costs.groups(piece.q)
    weights = piece.share - beta * ((means - piece.origin) - piece.mean)
    weights = np.clip(weights, 0.0, cap)
    weights[: piece.j] = cap
    bent = beta * float(squares[piece.j :].sum())
    total = float((numbers * weights).sum())
    norm = float(np.sqrt((numbers * weights**2).sum() + beta * bent))
    cost = float((numbers * weights * means).sum()) - bent
    return total, norm, cost, int(numbers[weights > 0].sum())


def priced(
    form: StandardForm, costs: SortedCosts, place: Place, norm: float, cost: float
) -> ExactSolution:
    """Return eta, objective and dual value of weights of this norm and psi'a, but no weights."""
    piece, eta = place.piece, place.eta
    if eta is None:
        eta = float(np.clip(_stationary_eta(form, cost), form.eta_low, form.eta_high))
    t = form.gamma * eta
    # Free sellers satisfy tau = t*psi + mu*a/||a||; for the others this is the dual's slack.
    tau = float(t * (piece.origin + piece.mean) + form.mu * piece.share / norm)
    at_cap = piece.capped * (tau - form.mu * form.max_weight / norm)
    at_cap -= t * costs.total(piece.j, 1.0)
    objective = form.mu * norm + form.sigma / eta + form.gamma * eta * cost
    dual = tau - form.max_weight * at_cap + form.sigma / eta
    dual = min(objective, dual)
    return ExactSolution(np.empty(0), eta, objective, dual, tau / eta, place.binding)
