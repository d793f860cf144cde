"""Arithmetic of the capped simplex ``{a : sum a = 1, 0 <= a <= max_weight}``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.errors import InfeasibleMarketError, ParameterError

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Relative slack within which a bound given by the user counts as met.
ROUNDING = 1e-9
#: Steps towards the level of weights, and towards their norm, which is then the same.
_STEPS, _NORMS, _SAME, _NOISE = 200, 8, 4e-15, 1e-12

__all__ = [
    "cheapest_purchase",
    "common_price",
    "feasible_limits",
    "largest_eta",
    "norm_minimiser",
    "project_capped_simplex",
]


def project_capped_simplex(point: ArrayLike, max_weight: float | Floats = 1.0) -> Floats:
    """Return the nearest point of ``{a : sum a = 1, 0 <= a <= max_weight}``.

    The projection is ``clip(point - theta, 0, max_weight)``. Its sum is piecewise linear in theta,
    which Newton's method solves in a few steps, exactly up to rounding.

    Parameters
    ----------
    point : array_like, shape (m,)
        Finite numbers, or -inf for entries that must be zero.
    max_weight : float or ndarray, shape (m,)
        Upper bound of every entry, or of each; those of finite entries sum to 1 at least.

    Returns
    -------
    ndarray, shape (m,)
        Nonnegative and at most ``max_weight``, summing to one up to rounding.

    Raises
    ------
    InfeasibleMarketError
        If the finite entries cannot sum to one under the bound.
    ParameterError
        If an entry is NaN or +inf.
    """
    point = np.asarray(point, dtype=float)
    if np.isnan(point).any() or np.isposinf(point).any():
        raise ParameterError("point holds NaN or +inf; its entries must be finite or -inf")
    finite = np.isfinite(point)
    limits = feasible_limits(np.where(finite, max_weight, 0.0))
    if limits.sum() <= 1:  # one feasible point
        return limits
    shifted = _close_gaps(point - point.max(), float(limits.max()))
    threshold = _threshold(shifted[finite], limits[finite])
    weights = np.clip(shifted - threshold, 0.0, limits)
    return _settle_sum(weights, limits)


def norm_minimiser(
    costs: Floats,
    mu: float,
    max_weight: float | Floats,
    project: Callable[[Floats], tuple[Floats, Ints]] | None = None,
) -> Floats:
    """Return the minimiser of ``mu*||a|| + costs'a`` over the capped simplex, for mu > 0.

    It is the projection of ``-costs * ||a||/mu``, with ||a|| found as a root: exact up to rounding.
    ``project`` may replace the capped simplex by another set; it returns the projection, and for
    each entry the number of its block, whose free entries move together.
    """
    smallest = 1.0 / np.sqrt(costs.size)
    largest = max(np.sqrt(np.max(max_weight)), smallest)  # ||a||^2 <= max a
    norm, slopes, whole = smallest, costs / mu, np.zeros(costs.size, np.intp)

    def at(norm: float) -> tuple[Floats, Ints]:
        if project is None:
            return project_capped_simplex(slopes * -norm, max_weight), whole
        return project(slopes * -norm)

    low, high = smallest * (1 - ROUNDING), largest * (1 + ROUNDING)
    for _ in range(_NORMS):
        weights, block = at(norm)
        size = float(weights @ weights)
        low, high = (norm, high) if size > norm * norm else (low, norm)
        # Where the same sellers are free, their weights are affine in the norm: this is a root.
        free = np.flatnonzero((weights > 0) & (weights < max_weight))
        block, tilted = block[free], slopes[free]
        means = np.bincount(block, tilted) / np.maximum(np.bincount(block), 1)
        tilted = tilted - means[block]
        tilt = float(tilted @ tilted)
        following = np.sqrt(max(size - norm * norm * tilt, 0.0) / (1.0 - tilt)) if tilt < 1 else 0.0
        off, outside = abs(following - norm), not low < following < high
        if off <= (_NOISE if outside else _SAME) * norm:
            return weights
        norm = float(np.sqrt(low * high) if outside else following)

    def excess(norm: float) -> float:  # a seller is just at the border of the free ones
        return float(norm - np.linalg.norm(at(norm)[0]))

    if excess(low) >= 0 or excess(high) <= 0:  # by rounding
        return weights
    return at(float(brentq(excess, low, high, xtol=1e-300, rtol=1e-14)))[0]


def _close_gaps(shifted: Floats, max_weight: float) -> Floats:
    """Shorten gaps between neighbouring entries that are too wide to matter, to keep digits.

    Across a gap above ``max_weight`` the lower entries are positive only if all upper ones are at
    the bound, however wide it is.
    """
    finite = np.isfinite(shifted)
    if shifted[finite].min() > -1e4 * max_weight:
        return shifted
    values, place = np.unique(shifted[finite], return_inverse=True)
    gaps = np.minimum(np.diff(values), 2.0 * max_weight)
    closed = shifted.copy()
    closed[finite] = (np.cumsum(np.append(0.0, gaps)) - gaps.sum())[place]
    return closed


def feasible_limits(limits: Floats) -> Floats:
    """Return bounds that sum to 1 at least, so that rounding does not make them infeasible."""
    total = float(limits.sum())
    if total < 1 - ROUNDING:
        able = limits[limits > 0]
        raise InfeasibleMarketError(
            f"{able.size} weights of at most {able.max(initial=0.0):g} cannot sum to one, but to "
            f"{total:g} at most; raise the cap"
        )
    return limits / total if total < 1 else limits


def largest_eta(
    max_weight: float | Floats,
    max_epsilon: float | Floats,
    m: int,
    group: Ints | None = None,
    least: Floats | float = 0.0,
    most: Floats | float = 1.0,
) -> float:
    """Return the largest eta at which m weights, ``eta*a <= max_epsilon`` too, sum to one.

    In s = 1/eta what each group may weigh, the sum of ``min(max_weight, s*max_epsilon)``, is
    concave and piecewise linear, so that Newton's method ends at the least feasible s. The groups
    weigh from ``least`` to ``most``. No bound is zero.
    """
    caps, bounds = np.broadcast_to(max_weight, m), np.broadcast_to(max_epsilon, m)
    group = np.zeros(m, np.intp) if group is None else group
    if np.isinf(bounds).any():
        return np.inf
    s = 1.0 / float(bounds.sum())
    for _ in range(_STEPS):
        rising = s * bounds < caps
        mass = np.bincount(group, np.where(rising, s * bounds, caps))
        slope = np.bincount(group, np.where(rising, bounds, 0.0))
        gain = float(slope[mass < most].sum())
        steps = [(1.0 - float(np.minimum(mass, most).sum())) / gain if gain > 0 else 0.0]
        short = (mass < least) & (slope > 0)
        steps += list((np.broadcast_to(least, mass.shape) - mass)[short] / slope[short])
        if not max(steps) > 1e-16 * s:
            break
        s += max(steps)
    return 1.0 / s


def _threshold(points: Floats, limits: Floats) -> float:
    """Return theta at which ``clip(points - theta, 0, limits)`` sums to one.

    By Newton's method on a piecewise linear function, with bisection where that leaves the bracket.
    Entries that are at an end on the whole bracket are left out, so that steps get ever cheaper.
    """
    low, high = float((points - limits).min()), float(points.max())
    ends, full = points - limits, 0.0
    theta = min(max(float(points.mean() - 1.0 / points.size), low), high)
    for _ in range(_STEPS):
        weights = np.minimum(np.maximum(points - theta, 0.0), limits)
        excess = full + float(weights.sum()) - 1.0
        free = (points > theta) & (ends < theta)
        number = np.count_nonzero(free)
        low, high = (theta, high) if excess > 0 else (low, theta)
        following = theta + excess / number if number else 0.5 * (low + high)
        if excess == 0 or abs(following - theta) <= 4e-16 * abs(theta):
            break
        if not low < following < high:
            following = 0.5 * (low + high)
        if following in (low, high):
            break
        theta = following
        at_limit = ends >= high
        kept = (points > low) & ~at_limit
        if 2 * np.count_nonzero(kept) < points.size:
            full += float(limits[at_limit].sum())
            points, limits, ends = points[kept], limits[kept], ends[kept]
    else:
        free = (points > theta) & (ends < theta)
    if not free.any():
        return theta
    # Once more from deviations from theta, whose sums keep their digits.
    above = float((points[free] - theta).sum()) + float(limits[ends >= theta].sum())
    return theta + (full + above - 1.0) / np.count_nonzero(free)


def _settle_sum(weights: Floats, limits: Floats) -> Floats:
    """Spread what rounding left of ``1 - sum`` over the entries that have room for it."""
    missing = 1.0 - weights.sum()
    room = np.where(weights > 0, limits - weights, 0.0) if missing > 0 else weights
    total = room.sum()
    if total > abs(missing):
        weights = np.clip(weights + missing * (room / total), 0.0, limits)
    return weights


def cheapest_purchase(costs: Floats, max_weight: float) -> float:
    """Return ``min costs'a`` over the capped simplex: fill the cheapest sellers to the cap."""
    n_full = min(int(1.0 / max_weight), costs.size)
    rest = max(0.0, 1.0 - n_full * max_weight)
    if n_full == costs.size:  # every seller at 1/m, up to rounding
        return float(costs.mean())
    ordered = np.partition(costs, n_full)
    return float(max_weight * ordered[:n_full].sum() + rest * ordered[n_full])


def common_price(weights: Floats, prices: Floats, room: Floats) -> float:
    """Return the multiplier of ``sum a = 1``: the price that sellers with room to both sides share.

    Where none has, it is not unique, and the price of the dearest seller bought from is returned.
    """
    importance = weights * room
    if importance.sum() > 0:
        return float(prices @ importance / importance.sum())
    return float(prices[weights > 0].max())
