"""Arithmetic of the capped simplex ``{a : sum a = 1, 0 <= a <= max_weight}``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.errors import (
    InfeasibleMarketError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.market import StandardForm

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Relative violation up to which a bound that the user gives is treated as satisfied.
ROUNDING = 1e-9
#: Numbers of iterations for the level and for the norm, and relative accuracy of the norm.
_STEPS, _NORMS, _SAME = 200, 8, 4e-15
#: Ratio of the level to the bounds above which the weights are computed from deviations.
_FAR = 1e4


def embed(weights: Floats, sellers: NDArray[np.bool_]) -> Floats:
    """Extend the weights of the sellers in a mask to all sellers, with zeros for other sellers."""
    everyone = np.zeros(sellers.size)
    everyone[sellers] = weights
    return everyone


class Projection(NamedTuple):
    """A projected point: ``clip(point - levels[block], 0, limits)``, shape (m,)."""

    weights: Floats
    levels: Floats
    block: Ints


def project_capped_simplex(point: ArrayLike, max_weight: float | Floats = 1.0) -> Floats:
    """Return the nearest point of ``{a : sum a = 1, 0 <= a <= max_weight}``.

    Entries of ``point`` that must be zero are -inf.

    Raises
    ------
    InfeasibleMarketError
        If the finite entries cannot sum to one under the bound.
    ParameterError
        If an entry is NaN or +inf.
    """
    point = np.asarray(point, dtype=float)
    if not (top := float(point.max())) < np.inf:
        raise ParameterError("point contains NaN or +inf; its entries must be finite or -inf")
    limits = feasible_limits(np.where(point > -np.inf, max_weight, 0.0))
    return project(point - top, limits)[0]


def project(point: Floats, limits: Floats, total: float = 1.0) -> tuple[Floats, float]:
    """Return ``clip(point - level, 0, limits)`` and the level at which its sum is the total."""
    able = limits > 0
    points, caps = (point, limits) if able.all() else (point[able], limits[able])
    if caps.sum() <= total:
        return limits.copy(), float((points - caps).min())
    points, caps, rest, level = _level(points, caps, total)
    origin = 0.0
    if abs(level) > _FAR * limits.max():  # cancellation occurs if the level is large
        origin = float(points[np.argmin(np.abs(points - level))])
        points, caps, rest, level = _level(points - origin, caps, rest)
    # The last step uses deviations from the level, which avoids cancellation.
    deviations = points - level
    free = (deviations > 0) & (deviations < caps)
    mass = float(deviations[free].sum()) + float(caps[deviations >= caps].sum())
    shift = (mass - rest) / max(int(np.count_nonzero(free)), 1)
    weights = _clipped((point - origin if origin else point) - level - shift, limits)
    missing = total - float(weights.sum())  # a rounding error, which is divided among the entries
    slack = np.where(weights > 0, limits - weights, 0.0) if missing > 0 else weights
    if (space := float(slack.sum())) > abs(missing):
        weights = _clipped(weights + missing * (slack / space), limits)
    return weights, origin + level + shift


def _clipped(values: Floats, limits: Floats) -> Floats:
    """Clip an array in place between zero and limits, faster than ``numpy.clip``."""
    return np.minimum(np.maximum(values, 0.0, out=values), limits, out=values)


def _level(points: Floats, caps: Floats, total: float) -> tuple[Floats, Floats, float, float]:
    """Solve ``sum clip(points - level, 0, caps) = total`` for the level.

    Because the sum is piecewise linear in the level, use Newton's method, safeguarded by bisection.
    Omit entries that are at a bound for all possible levels. Return the points and caps of the
    remaining entries, their total, and the level.
    """
    low, high = float((points - caps).min()), float(points.max())
    level = min(max(float(points.mean() - total / points.size), low), high)
    for _ in range(_STEPS):
        deviations = points - level
        above, below = deviations > 0, deviations < caps
        excess = float(_clipped(deviations, caps).sum()) - total
        number = np.count_nonzero(above & below)
        low, high = (level, high) if excess > 0 else (low, level)
        following = level + excess / number if number else 0.5 * (low + high)
        if excess == 0 or abs(following - level) <= 4e-16 * abs(level):
            break
        if not low < following < high:
            following = 0.5 * (low + high)
        if following in (low, high):
            break
        level, side = following, above if excess > 0 else below
        if 0 < 2 * np.count_nonzero(side) < points.size:
            total -= 0.0 if excess > 0 else float(caps[~side].sum())
            points, caps = points[side], caps[side]
    return points, caps, total, level


class Groups(NamedTuple):
    """Disjoint groups of sellers, and the smallest and largest total weight of each group."""

    of: Ints
    least: Floats
    most: Floats

    def sums(self, values: Floats) -> Floats:
        """Sum the values of each group."""
        return np.bincount(self.of, values, self.least.size).astype(float)


def nearest(point: Floats, limits: Floats, groups: Groups | None = None) -> Projection:
    """Project on the weights that sum to one within limits and bounds on the shares of groups.

    Each group with an active bound is a block that is projected on its own capped simplex. All
    other groups form block 0, whose total is the remaining weight.
    """
    block = np.zeros(point.size, np.intp)
    if groups is None:
        weights, level = project(point, limits)
        return Projection(weights, np.array([level]), block)

    def excess(level: float) -> float:
        masses = groups.sums(np.clip(point - level, 0.0, limits))
        return float(np.clip(masses, groups.least, groups.most).sum()) - 1.0

    low, high = float(np.min(point - limits)), float(np.max(point))
    level = high if excess(high) >= 0 else low
    if excess(low) > 0 > excess(high):
        level = brentq(excess, low, high, xtol=1e-300, rtol=1e-15)
    masses = groups.sums(np.clip(point - level, 0.0, limits))
    totals = np.clip(masses, groups.least, groups.most)
    active = (masses <= groups.least) | (masses >= groups.most)
    totals = np.append(max(0.0, 1.0 - float(totals[active].sum())), totals)
    block = np.where(active[groups.of], groups.of + 1, 0)
    weights, levels = np.zeros(point.size), np.full(totals.size, level)
    for k in np.unique(block):
        some = block == k
        caps, total = limits[some], float(totals[k])
        caps = np.where(caps < total, caps, 2 * total or caps)  # a cap >= total is never active
        weights[some], levels[k] = project(point[some], caps, total)
    return Projection(weights, levels, block)


def norm_minimiser(
    costs: Floats, mu: float, limits: Floats, groups: Groups | None = None
) -> Projection:
    """Return the minimiser of ``mu*||a|| + costs'a`` for mu > 0; its levels are the prices.

    The minimiser is the projection of ``-costs * ||a||/mu``, where ||a|| solves a scalar equation.
    All free entries of a block have the same price ``mu*a_i/||a|| + costs_i``.
    """
    slopes, smallest = costs / mu, float(1.0 / np.sqrt(costs.size))
    norm = largest = max(float(np.sqrt(np.max(limits))), smallest)  # ||a||^2 <= max a

    def excess(norm: float) -> float:
        return norm - float(np.linalg.norm(nearest(slopes * -norm, limits, groups).weights))

    for _ in range(_NORMS):  # Newton's method, which decreases the norm under a common cap
        point, before = nearest(slopes * -norm, limits, groups), norm
        weights, size = point.weights, float(point.weights @ point.weights)
        # The weights are affine in the norm as long as the same sellers are free.
        free = np.flatnonzero((weights > 0) & (weights < limits))
        block, tilted = point.block[free], slopes[free]
        means = np.bincount(block, tilted) / np.maximum(np.bincount(block), 1)
        tilted = tilted - means[block]
        tilt = float(tilted @ tilted)
        norm = float(np.sqrt(max(size - norm * norm * tilt, 0.0) / (1.0 - tilt))) if tilt < 1 else 0
        if abs(norm - before) <= _SAME * before:
            break
        norm = max(norm, smallest)
    else:  # no convergence: a seller is at the border of the free sellers
        low, high = smallest * (1 - ROUNDING), largest * (1 + ROUNDING)
        if excess(low) < 0 < excess(high):
            norm = float(brentq(excess, low, high, xtol=1e-300, rtol=1e-14))
        point = nearest(slopes * -norm, limits, groups)
    return point._replace(levels=-point.levels * (mu / norm))


def feasible_limits(limits: Floats) -> Floats:
    """Check that the limits sum to at least 1; rescale them if the sum is below 1 by rounding."""
    total = float(limits.sum())
    if total < 1 - ROUNDING:
        able = limits[limits > 0]
        raise InfeasibleMarketError(
            f"{able.size} weights of at most {able.max(initial=0.0):g} cannot sum to one, because "
            f"their sum is at most {total:g}; raise the cap"
        )
    return limits / total if total < 1 else limits


def largest_eta(
    max_weight: float | Floats, max_epsilon: float | Floats, m: int, groups: Groups | None = None
) -> float:
    """Compute the largest eta at which m weights with ``eta*a <= max_epsilon`` can sum to one.

    The largest weight of a group, the sum of ``min(max_weight, s*max_epsilon)``, is concave and
    piecewise linear in s = 1/eta. Newton's method therefore ends at the smallest feasible s. All
    bounds must be positive.
    """
    caps, bounds = np.broadcast_to(max_weight, m), np.broadcast_to(max_epsilon, m)
    groups = groups or Groups(np.zeros(m, np.intp), np.zeros(1), np.ones(1))
    if np.isinf(bounds).any():
        return np.inf
    s = 1.0 / float(bounds.sum())
    for _ in range(_STEPS):
        rising = s * bounds < caps
        mass = groups.sums(np.where(rising, s * bounds, caps))
        slope = groups.sums(np.where(rising, bounds, 0.0))
        gain = float(slope[mass < groups.most].sum())
        missing = 1.0 - float(np.minimum(mass, groups.most).sum())
        short = (mass < groups.least) & (slope > 0)
        short_by = np.max((groups.least - mass)[short] / slope[short], initial=0.0)
        step = max(float(short_by), missing / gain if gain > 0 else 0.0)
        if not step > 1e-16 * s:
            break
        s += step
    return 1.0 / s


def check_feasible(form: StandardForm, available: int, m: int) -> None:
    """Check that the papers' problem has an optimum if ``available`` of m sellers can sell."""
    low, high, u = *form.eta_range, form.max_weight
    if low > high:
        raise InfeasibleMarketError(
            f"the ranges of eta do not meet: at least {low:g} and at most {high:g}; widen one of "
            "them"
        )
    if available * u < 1 - 1e-12:
        raise InfeasibleMarketError(
            f"{available} of {m} sellers have a finite virtual cost (it is infinite where the "
            f"prior's density vanishes), and with the cap of {u * m:g} they have at most "
            f"{available * u:.3g} of the weight; raise the cap"
        )
    if form.sigma == 0 and low == 0:
        raise UnattainedOptimumError(
            "sigma, the weight of Noise, is 0, so less privacy is always cheaper and eta tends "
            "to 0; give sigma > 0 or an EtaRange"
        )
    factors = np.array([form.sigma or 1.0, low or 1.0, high])
    if not np.all(form.gamma * factors > 0):
        raise SolverError(
            f"gamma = {form.gamma:g} is too small for double precision; use another unit of money"
        )
    check_sold(low, form.max_epsilon * available, form.max_epsilon, available)


def check_sold(eta: float, largest: float, max_epsilon: float, m: int) -> None:
    """Check that m sellers, whose total guarantee is at most ``largest``, can sell eta."""
    if eta > largest * (1 + 1e-12):
        raise InfeasibleMarketError(
            f"{m} sellers at no more than epsilon = {max_epsilon:g} sell {largest:g} in total, "
            f"but the EtaRange starts at {eta:g}; raise the bound or lower the range"
        )


def cheapest_purchase(costs: Floats, max_weight: float) -> float:
    """Compute the minimum of ``costs'a`` over the capped simplex from the cheapest sellers."""
    n_full = min(int(1.0 / max_weight), costs.size)
    rest = max(0.0, 1.0 - n_full * max_weight)
    if n_full == costs.size:  # all weights are 1/m, up to rounding
        return float(costs.mean())
    ordered = np.partition(costs, n_full)
    return float(max_weight * ordered[:n_full].sum() + rest * ordered[n_full])
