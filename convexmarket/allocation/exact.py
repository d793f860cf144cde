"""The exact solver of the papers' problem (A, Eq. 11): any scale, no tolerance, edge cases said.

:mod:`convexmarket.allocation.path` and :mod:`convexmarket.allocation.bounded` find the optimum from
prefix sums. This module wraps them: it leaves out sellers who are provably not bought from, treats
the cases without a path (mu = 0, sigma = 0, a seller who costs nothing), compares with the ends
of a range of eta, and computes the answer anew from the costs themselves, so that it is accurate
to rounding however close together or far apart the costs are.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounded import minimise_bounded
from convexmarket.allocation.bounds import check_noise, dual_bound, unconstrained_eta
from convexmarket.allocation.costs import Costs
from convexmarket.allocation.passes import blocks_of, survey
from convexmarket.allocation.path import (
    Path,
    Point,
    best_of,
    beta_at,
    minimise,
    point_at,
    stationary_beta,
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
    "check_enough",
    "check_feasible",
    "check_range",
    "check_sold",
    "check_sum",
    "costs_that_matter",
    "highest_cost_bought",
    "optimum",
    "priced",
    "ratio_of_scales",
    "solve_exact",
    "sums_of_weights",
    "unattained",
    "weigh",
]

Floats = NDArray[np.float64]

#: Markets below this size are sorted whole: passes over them cost more.
_WORTH_PASSES = 20_000
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


def solve_exact(form: StandardForm, costs: Costs | None = None) -> ExactSolution:
    """Return the global minimiser of the papers' problem.

    Parameters
    ----------
    form : StandardForm
    costs : Costs, optional
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
    if form.max_epsilon < np.inf:
        if form.sigma > 0:  # without the bound first, which mostly decides
            with suppress(UnattainedOptimumError):
                found = solve_exact(replace(form, max_epsilon=np.inf))
                if found.eta * float(found.weights.max()) <= form.max_epsilon:
                    return found
        check_sold(form)
    costs = costs or costs_that_matter(form)[0]
    place = best_place(form, costs)
    within = replace(form, max_weight=place.cap)
    weights = np.empty(form.virtual_costs.size)
    sums, begin = np.zeros(3), 0
    for psi in blocks_of(form.virtual_costs):
        sums += weigh(psi, place, weights[begin : begin + psi.size])
        begin += psi.size
    check_sum(sums[0])
    bought = priced(form, costs, place, float(np.sqrt(sums[1])), float(sums[2]))
    dual = bought.lower_bound
    if bought.objective - dual > 1e-12 * bought.objective:  # digits were lost; weights have them
        scaled = form.gamma * bought.eta * form.virtual_costs
        dual = max(dual, dual_bound(within, scaled, weights) + form.sigma / bought.eta)
    if place.bound < bought.objective * (1 - 1e-12):  # some interval of eta was left undecided
        dual = min(dual, place.bound)
    return replace(bought, weights=weights, lower_bound=min(bought.objective, dual))


# ---------------------------------------------------------------------------- conditions


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


def check_sold(form: StandardForm) -> None:
    """Raise InfeasibleMarketError where the largest guarantees do not add up to a range of eta."""
    e, m = form.max_epsilon, int(np.count_nonzero(np.isfinite(form.virtual_costs)))
    if form.eta_low > e * m * (1 + 1e-12):
        raise InfeasibleMarketError(
            f"{m} sellers at no more than epsilon = {e:g} sell {e * m:g} in all, but "
            f"the EtaRange starts at {form.eta_low:g}; raise one or lower the other"
        )


def ratio_of_scales(form: StandardForm, costs: Costs) -> float:
    """Return rho = sigma*gamma*scale/mu^2, the one number that the path has to know."""
    rho = form.sigma * form.gamma * costs.scale / form.mu / form.mu
    if not (_LEAST < rho < _LARGEST or form.sigma == 0):
        raise SolverError(
            f"mu = {form.mu:g} beside sigma*gamma*psi = {form.sigma * form.gamma * costs.scale:g}: "
            "the ratio of scales exceeds double precision; bring the weights of the terms closer"
        )
    return rho


def _free_sellers(costs: Costs) -> int:
    return int(costs.number(np.searchsorted(costs.psi, [0.0], side="right"))[0])


def unattained(free: int = 0) -> UnattainedOptimumError:
    """Return the error for sellers whose privacy is free."""
    who = f"{free} sellers have" if free else "at some report a seller has"
    return UnattainedOptimumError(
        f"{who} a virtual cost of 0, so privacy bought from them alone is free and "
        "the infimum, at eta = infinity, is not attained; leave them out, or bound eta with "
        "EtaRange(low, high)"
    )


# ------------------------------------------------------------------- sellers who matter


def costs_that_matter(form: StandardForm, instead: float | None = None) -> tuple[Costs, float]:
    """Return the costs, leaving out sellers who are provably not bought from, and a limit.

    Nobody is bought from above the limit, also if one seller leaves the market or costs at least
    ``instead``.
    """
    psi, spare = form.virtual_costs, int(instead is not None)
    if form.mu == 0 or form.max_epsilon < np.inf:
        return Costs.sorted(np.sort(psi)), np.inf
    if psi.size < _WORTH_PASSES or (np.isfinite(psi).sum() - spare) * form.max_weight < 1:
        ordered = np.sort(psi)
        limit = highest_cost_bought(form, ordered, spare)
        return Costs.sorted(ordered, limit), limit
    return survey(
        lambda work: [work(blocks_of(psi))],
        form,
        lambda g: highest_cost_bought(form, np.broadcast_to(g, psi.size)),
        psi.size // 8,
        instead=None if instead is None else (instead, np.inf),
    )


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


# --------------------------------------------------------------------------- the optimum


def optimum(form: StandardForm, costs: Costs) -> tuple[Point, Floats]:
    """Return the best point of every market, and a bound that no objective over mu is below.

    The form's costs are not read, and mu > 0. Up to a total of ``max_epsilon/max_weight`` a largest
    guarantee does not bind; from there on it takes the place of the cap.
    """
    n, unit = 1.0 / form.max_weight, form.gamma * costs.scale / form.mu  # r per unit of eta
    rho, e = ratio_of_scales(form, costs), form.max_epsilon
    border, found = e * n, []
    bound = np.full(costs.count, np.inf)
    if form.sigma > 0 and form.eta_low <= border:
        found.append(
            minimise(costs, n, rho, (form.eta_low * unit, min(form.eta_high, border) * unit))
        )
    ends = [eta for eta in (form.eta_low, form.eta_high) if 0 < eta < np.inf]
    found += [point_at(costs, n, rho, eta * unit) for eta in ends if eta < border]
    if e < np.inf and form.eta_high >= border:
        none = np.array([np.inf])
        many = costs if costs.has_replaced else costs.replaced(none, none)
        low, high = max(form.eta_low / e, n), form.eta_high / e
        point, bound = minimise_bounded(many, rho, e * unit, low, high)
        found.append(point)
    return best_of(found), bound


class Place(NamedTuple):
    """The optimum on the piece (j, q), in the units of the market.

    Free sellers weigh ``share - beta*((psi - origin) - mean)``; beta is NaN where they all cost
    the same. ``level`` is the multiplier over gamma*eta where no seller is free to say it; ``eta``
    and ``binding`` are of the end of the range of eta that binds, ``bound`` is proven for all eta.
    """

    j: int
    q: int
    capped: int
    origin: float
    mean: float
    share: float
    beta: float
    cap: float
    level: float | None = None
    eta: float | None = None
    binding: tuple[str, ...] = ()
    bound: float = np.inf


def best_place(form: StandardForm, costs: Costs) -> Place:
    """Return the place of the optimum; the form's costs are not read.

    With mu = 0 nothing rewards spread, so the cheapest sellers are filled to the cap. Those who tie
    at the margin share alike, which is the limit of the answers as mu -> 0.
    """
    if form.mu == 0:
        _, below, upto = Path(costs, 1.0 / form.max_weight).end()
        return _settle(form, costs, int(below[0]), int(upto[0]), None)
    point, bound = optimum(form, costs)
    rate, n = float(point.rate[0]), float(point.n[0])
    if np.isinf(rate):
        raise unattained(_free_sellers(costs))
    unit = form.gamma * costs.scale / form.mu
    limited = rate * form.max_weight >= form.max_epsilon * unit * (1 - 1e-14)
    eta: float | None = n * form.max_epsilon if limited else None
    binding: tuple[str, ...] = ()
    for name, end in (("eta_low", form.eta_low), ("eta_high", form.eta_high)):
        if 0 < end < np.inf and abs(rate - end * unit) <= 1e-14 * rate:
            eta, binding = end, (name,)
    first, last = costs.number(point.capped), costs.number(point.bought) - 1
    j, q, level = int(costs.position(first)[0]), int(costs.position(last)[0]) + 1, None
    cap = form.max_epsilon / eta if limited and eta else form.max_weight
    if j == q:  # all are at the bound; the dearest of them count as free
        j = int(np.searchsorted(costs.psi, costs.psi[q - 1]))
        level = costs.lowest + costs.scale * float(point.level[0])
    place = _settle(replace(form, max_weight=cap), costs, j, q, eta)
    return place._replace(level=level, eta=eta, binding=binding, bound=form.mu * float(bound[0]))


def _solve_piece(form: StandardForm, costs: Costs, j: int, q: int, eta: float | None) -> Place:
    """Solve a piece from deviations from one of its costs: their digits are never lost."""
    psi, u = costs.psi, form.max_weight
    capped, bought = (int(part) for part in costs.number(np.array([j, q])))
    origin = float(psi[j + (q - j) // 2])
    unit = float(psi[q - 1] - psi[j])  # so that the cubic does not overflow at any scale
    left = max(0.0, 1.0 - capped * u)
    share = min(left / (bought - capped), u)  # a full piece exceeds the cap by rounding
    if unit == 0:
        return Place(j, q, capped, origin, 0.0, share, np.nan, u)
    two = float(np.ldexp(0.5, np.frexp(unit)[1]))
    mean, squares = costs.deviations(j, q, origin, two)
    mean *= two
    spread = np.array([squares / (unit / two) ** 2])
    norm2 = np.array([capped * u**2 + left * share])
    if eta is None:
        cost = np.array([(u * costs.total(j) + left * (origin + mean)) / unit])
        rho = form.sigma * form.gamma * unit / form.mu / form.mu
        beta = stationary_beta(spread, cost, norm2, rho)
    else:
        beta = beta_at(spread, norm2, form.gamma * eta * unit / form.mu)
    return Place(j, q, capped, origin, mean, share, float(beta[0]) / unit, u)


def _settle(form: StandardForm, costs: Costs, j: int, q: int, eta: float | None) -> Place:
    """Solve the piece (j, q); should rounding have put the point next to it, its neighbour."""
    u, psi = form.max_weight, costs.psi
    for _ in range(8):
        place = _solve_piece(form, costs, j, q, eta)
        centre = place.origin + place.mean
        if np.isnan(place.beta):
            return place
        if place.beta == 0 or psi[j] == centre == psi[q - 1]:  # all between is rounded away
            raise ParameterError(
                f"the virtual costs {psi[j]:g} and {psi[q - 1]:g} are too close together, or too "
                f"far apart beside mu = {form.mu:g}, for double precision; give the sensitivities "
                "in another unit of money, make close ones equal, or leave the dearest out"
            )
        if np.isinf(place.beta):  # the optimum lies further along the path
            above, below = psi[q - 1] - centre, centre - psi[j]
            leaves = place.share / above if above > 0 else np.inf
            caps = (u - place.share) / below if below > 0 else np.inf
            if caps <= leaves:
                j = int(np.searchsorted(psi, psi[j], side="right"))
            else:
                q = int(np.searchsorted(psi, psi[q - 1]))
            continue
        top = centre + place.share / place.beta
        capped = int(np.searchsorted(psi, top - u / place.beta, side="right"))
        at_cap = costs.number(np.array([capped]))
        bought = max(int(np.searchsorted(psi, top)), int(costs.position(at_cap)[0]) + 1)
        if (capped, bought) == (j, q) or at_cap[0] >= costs.number(costs.size)[0]:
            return place
        j, q = capped, bought
    return place


def weigh(psi: Floats, place: Place, out: Floats) -> tuple[float, float, float]:
    """Write the weights of some sellers; return their sum, that of their squares, and psi'a.

    The sums are numpy's: those of BLAS start threads, which takes longer than this.
    """
    if np.isnan(place.beta):
        out[:] = np.where(psi == place.origin, place.share, 0.0)
        out[psi < place.origin] = place.cap
    else:
        np.subtract(psi, place.origin, out=out)
        out -= place.mean
        out *= -place.beta
        out += place.share
        np.clip(out, 0.0, place.cap, out=out)
    with np.errstate(invalid="ignore"):
        cost = float((psi * out).sum())
    if np.isnan(cost):  # 0 * inf: a seller at psi = +inf, who is not bought from
        cost = float((psi[out > 0] * out[out > 0]).sum())
    return float(out.sum()), float((out * out).sum()), cost


def sums_of_weights(costs: Costs, place: Place) -> tuple[float, float, float, int]:
    """Return the weights' sum, their norm and psi'a, and how many are bought from, by groups.

    Weights are affine on the rows of the piece, so that each group's mean and squares say them.
    """
    beta = 0.0 if np.isnan(place.beta) else place.beta
    numbers, means, squares = costs.groups(place.q)
    weights = place.share - beta * ((means - place.origin) - place.mean)
    weights = np.clip(weights, 0.0, place.cap)
    weights[: place.j] = place.cap
    bent = beta * float(squares[place.j :].sum())
    total = float((numbers * weights).sum())
    norm = float(np.sqrt((numbers * weights**2).sum() + beta * bent))
    cost = float((numbers * weights * means).sum()) - bent
    return total, norm, cost, int(numbers[weights > 0].sum())


def check_sum(total: float) -> None:
    """Refuse weights that do not sum to one."""
    if not abs(total - 1.0) <= 1e-10:
        raise SolverError(
            f"the exact solver lost the optimum to rounding, its weights sum to {total!r}: "
            "costs, mu and cap differ by too many orders of magnitude; use method='line_search'"
        )


def priced(
    form: StandardForm, costs: Costs, place: Place, norm: float, cost: float
) -> ExactSolution:
    """Return eta, objective and dual value of weights of this norm and psi'a, but no weights."""
    eta, binding = place.eta, place.binding
    if eta is None:
        best = _stationary_eta(form, cost) if cost > 0 else np.inf
        eta = float(np.clip(best, form.eta_low, form.eta_high))
        binding = ("eta_low",) if eta > best else ("eta_high",) if eta < best else ()
        if eta == np.inf:
            raise unattained(_free_sellers(costs))
    t = form.gamma * eta
    # Free sellers satisfy tau = t*psi + mu*a/||a||; for the others this is the dual's slack.
    tau = float(t * (place.origin + place.mean) + form.mu * place.share / norm)
    at_cap = place.capped * (tau - form.mu * place.cap / norm) - t * costs.total(place.j)
    objective = form.mu * norm + form.sigma / eta + form.gamma * eta * cost
    dual = min(objective, tau - place.cap * at_cap + form.sigma / eta)
    multiplier = tau / eta if place.level is None else form.gamma * place.level
    return ExactSolution(np.empty(0), eta, objective, dual, multiplier, binding)


def _stationary_eta(form: StandardForm, cost: float) -> float:
    """Return the eta at which noise and payments balance."""
    eta = unconstrained_eta(form, cost)
    if eta == np.inf or (eta == 0 and form.sigma > 0):
        raise SolverError(
            f"sigma = {form.sigma:g} beside gamma*psi = {form.gamma:g}*{cost:g}: the ratio of "
            "scales exceeds double precision; bring the weights of the terms closer"
        )
    return eta
