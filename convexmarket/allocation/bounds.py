"""Lower bounds: on V at one eta by weak duality, on the whole problem by chords of V.

See :mod:`convexmarket.allocation.search` for why these are enough to certify a global optimum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.simplex import cheapest_purchase, projection_step
from convexmarket.errors import UnattainedOptimumError
from convexmarket.market import StandardForm

__all__ = [
    "Candidate",
    "OuterProblem",
    "best_eta",
    "best_lower_bound",
    "concave_envelope",
    "dual_bound",
    "lowest_bound",
    "outer_problem",
    "segment_bound",
    "unattained",
    "unattained_noise",
    "unconstrained_eta",
]


def dual_bound(form: StandardForm, t: float, weights: NDArray[np.float64]) -> float:
    """Return a lower bound on V(t) proved by any weights, feasible or not.

    ``mu*||a|| >= y'a`` for ``y = mu*weights/||weights||``, hence V(t) is at least the minimum of
    ``(y + t*psi)'a``. The bound is V(t) itself when the weights are optimal.
    """
    direction = weights / np.linalg.norm(weights)
    return cheapest_purchase(form.mu * direction + t * form.virtual_costs, form.max_weight)


def best_lower_bound(form: StandardForm, t: float, weights: NDArray[np.float64]) -> float:
    """Return the better of the bounds proved by weights and by a refinement of them.

    The error of :func:`dual_bound` is of first order in the weights, so approximate weights prove
    little. The optimum is the fixed point of ``a -> projection of -(t*||a||/mu)*psi``, which
    depends on the weights only through their norm: two steps towards it and one extrapolation
    (Aitken) remove the solver's noise.
    """
    bound = dual_bound(form, t, weights)
    if form.mu == 0:
        return bound
    norm = float(np.linalg.norm(weights))
    once = float(np.linalg.norm(projection_step(form, t * norm / form.mu)))
    twice = float(np.linalg.norm(projection_step(form, t * once / form.mu)))
    limit = _aitken(norm, once, twice)
    return max(bound, dual_bound(form, t, projection_step(form, t * limit / form.mu)))


def _aitken(first: float, second: float, third: float) -> float:
    """Extrapolate a linearly convergent sequence of three positive numbers to its limit."""
    bend = (third - second) - (second - first)
    if bend == 0:
        return third
    limit = third - (third - second) ** 2 / bend
    return limit if 0.5 * third < limit < 2 * third else third


def best_eta(form: StandardForm, weights: NDArray[np.float64]) -> float:
    """Return the eta in the market's range that is best for given weights; may be 0 or inf."""
    unconstrained = unconstrained_eta(form, weights)
    return float(min(max(unconstrained, form.eta_low), form.eta_high))


def unconstrained_eta(form: StandardForm, weights: NDArray[np.float64]) -> float:
    """Return the stationary point of ``sigma/eta + gamma*eta*psi'a``."""
    if form.sigma == 0:
        return 0.0
    cost = form.gamma * float(form.virtual_costs @ weights)
    return float(np.sqrt(form.sigma / cost)) if cost > 0 else np.inf


@dataclass(frozen=True)
class OuterProblem:
    """Minimise ``V(t) + noise/t`` over ``low <= t <= high``, with V concave and nondecreasing.

    Attributes
    ----------
    noise : float
        c = sigma*gamma.
    low, high : float
        A range of t that holds every minimiser.
    known : tuple of (t, lower bound on V(t))
        Points that need no solver; the first has t = 0.
    slope : float
        V never grows more slowly than this.
    limit : float
        Infimum of the objective over ``t > high`` where that is not attained; inf if there is
        nothing to fear beyond ``high``.
    """

    noise: float
    low: float
    high: float
    known: tuple[tuple[float, float], ...]
    slope: float
    limit: float = np.inf


def outer_problem(form: StandardForm) -> OuterProblem:
    """Reduce a market to one dimension.

    The slope psi'a of V falls from the mean of psi at t = 0 (all weights equal) towards the cost
    of the cheapest purchase, so ``c/t^2 = psi'a`` puts every stationary point between
    ``sqrt(c/mean)`` and ``sqrt(c/cheapest)``. If the cheapest purchase is free, V is constant
    from some t on, and what remains is whether anything is better than t = infinity.

    Raises
    ------
    UnattainedOptimumError
        If no noise pays for privacy and no range forces any, or if all data are free.
    """
    psi, m = form.virtual_costs, form.virtual_costs.size
    noise = form.sigma * form.gamma
    first, last = form.gamma * form.eta_low, form.gamma * form.eta_high
    if noise == 0 and first == 0:
        raise unattained_noise()
    mean, cheapest = float(psi.mean()), cheapest_purchase(psi, form.max_weight)
    low = np.sqrt(noise / mean) if mean > 0 else (np.inf if noise > 0 else 0.0)
    high = np.sqrt(noise / cheapest) if cheapest > 0 else (np.inf if noise > 0 else 0.0)
    low, high = min(max(low, first), last), min(max(high, low, first), last)
    known = ((0.0, form.mu / np.sqrt(m)),)
    if high < np.inf:
        return OuterProblem(noise, float(low), float(high), known, cheapest)
    n_free = int(np.count_nonzero(psi == 0))
    limit = form.mu / np.sqrt(n_free)
    if n_free == m or form.mu == 0:
        raise unattained(limit)
    saturated = float(limit / psi[psi > 0].min())  # from here on nobody who costs is bought from
    low = min(float(low), saturated)
    return OuterProblem(noise, low, saturated, (*known, (saturated, limit)), 0.0, limit)


def unattained_noise() -> UnattainedOptimumError:
    """Return the error for a market in which nothing pays for privacy."""
    return UnattainedOptimumError(
        "sigma, the weight of Noise, is 0, so less privacy is always cheaper and eta tends "
        "to 0; give sigma > 0 or an EtaRange"
    )


def unattained(limit: float) -> UnattainedOptimumError:
    """Return the error for a market in which free sellers make eta run away."""
    return UnattainedOptimumError(
        f"sellers with virtual cost 0 can carry all the weight, and buying ever more privacy from "
        f"them lowers the objective towards {limit:.10g} without reaching it (eta -> infinity); "
        "give an EtaRange, a tighter Cap, or a prior whose support starts above 0"
    )


def concave_envelope(
    points: Sequence[tuple[float, float]],
) -> list[tuple[float, float]]:
    """Return the corners of the smallest concave function above points (t, value), by t.

    Where every value is a lower bound on a concave V, so is the envelope: a badly solved point
    between two good ones does no harm.
    """
    corners: list[tuple[float, float]] = []
    for t, value in sorted(points):
        if corners and corners[-1][0] == t:
            corners.pop()  # sorted by value as well: the later one is higher
        while len(corners) > 1 and not _turns_right(corners[-2], corners[-1], (t, value)):
            corners.pop()
        corners.append((t, value))
    return corners


def _turns_right(
    first: tuple[float, float], second: tuple[float, float], third: tuple[float, float]
) -> bool:
    rise = (second[1] - first[1]) * (third[0] - second[0])
    return rise > (third[1] - second[1]) * (second[0] - first[0])


def segment_bound(
    point: tuple[float, float], slope: float, noise: float, low: float, high: float
) -> tuple[float, float]:
    """Minimise ``value + slope*(t - t0) + noise/t`` over ``low <= t <= high``, in closed form.

    Parameters
    ----------
    point : (t0, value)
        A point of the line.
    slope : float
        At least 0.
    noise : float
    low, high : float
        ``0 <= low <= high``, high possibly inf.

    Returns
    -------
    t, bound : float
        The minimiser and the minimum.
    """
    stationary = np.sqrt(noise / slope) if slope > 0 else (np.inf if noise > 0 else low)
    t = float(min(max(stationary, low), high))
    if t == 0:
        return t, (np.inf if noise > 0 else point[1] - slope * point[0])
    rise = slope * (t - point[0]) if slope > 0 else 0.0
    return t, float(point[1] + rise + noise / t)


@dataclass(frozen=True)
class Candidate:
    """Where the lower bound on the objective is lowest.

    Attributes
    ----------
    t, bound : float
    left, right : float
        The corners of the envelope around t; right is inf beyond the last one.
    """

    t: float
    bound: float
    left: float
    right: float


def lowest_bound(outer: OuterProblem, points: Sequence[tuple[float, float]]) -> Candidate:
    """Return the minimum over ``low <= t <= high`` of the envelope of points plus ``noise/t``."""
    corners = concave_envelope([*outer.known, *points])
    candidates = []
    for i, (left, value) in enumerate(corners):
        right, slope = np.inf, outer.slope
        if i + 1 < len(corners):
            right = corners[i + 1][0]
            slope = max((corners[i + 1][1] - value) / (right - left), outer.slope)
        low, high = max(left, outer.low), min(right, outer.high)
        if low <= high:
            t, bound = segment_bound((left, value), slope, outer.noise, low, high)
            candidates.append(Candidate(t, bound, left, right))
    return min(candidates, key=lambda candidate: candidate.bound)
