"""Arithmetic of the capped simplex ``{a : sum a = 1, 0 <= a <= max_weight}``."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.errors import InfeasibleMarketError, ParameterError
from convexmarket.market import StandardForm

#: Relative slack within which a bound given by the user counts as met.
ROUNDING = 1e-9

__all__ = ["cheapest_purchase", "feasible_cap", "project_capped_simplex", "projection_step"]


def project_capped_simplex(point: ArrayLike, max_weight: float = 1.0) -> NDArray[np.float64]:
    """Return the nearest point of ``{a : sum a = 1, 0 <= a <= max_weight}``.

    The projection is ``clip(point - theta, 0, max_weight)``. Its sum is piecewise linear in theta
    with 2m breakpoints, so theta is found by bisection over the sorted breakpoints and one
    division: O(m log m), no tolerance.

    Parameters
    ----------
    point : array_like, shape (m,)
        Finite numbers, or -inf for entries that must be zero.
    max_weight : float
        Upper bound of every entry; at least 1 over the number of finite entries.

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
    n_finite = int(np.count_nonzero(np.isfinite(point)))
    max_weight = feasible_cap(n_finite, max_weight)
    if n_finite * max_weight <= 1:  # one feasible point
        return np.where(np.isfinite(point), 1.0 / n_finite, 0.0)
    shifted = _close_gaps(point - point.max(), max_weight)
    left, right = _bracket_threshold(shifted, max_weight)
    free = (shifted >= right) & (shifted - max_weight <= left)
    full = (shifted - max_weight >= right) & ~free
    threshold = left
    if free.any():
        excess = (shifted[free] - left).sum() + max_weight * np.count_nonzero(full) - 1.0
        threshold = left + excess / np.count_nonzero(free)
    weights = np.clip(shifted - threshold, 0.0, max_weight)
    return _settle_sum(weights, max_weight)


def _close_gaps(shifted: NDArray[np.float64], max_weight: float) -> NDArray[np.float64]:
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


def feasible_cap(n_sellers: int, max_weight: float) -> float:
    """Return the bound, at least 1/n so that rounding does not make it infeasible."""
    if n_sellers * max_weight < 1 - ROUNDING:
        raise InfeasibleMarketError(
            f"{n_sellers} weights of at most {max_weight:g} cannot sum to one; raise the cap"
        )
    return max(max_weight, 1.0 / n_sellers)


def _bracket_threshold(shifted: NDArray[np.float64], max_weight: float) -> tuple[float, float]:
    """Return the neighbouring breakpoints of theta between which the clipped sum crosses one."""
    finite = shifted[np.isfinite(shifted)]
    breakpoints = np.sort(np.concatenate([finite, finite - max_weight]))
    low, high = 0, breakpoints.size - 1  # the sum is >= 1 at the lowest and 0 at the highest
    while high - low > 1:
        middle = (low + high) // 2
        if np.clip(finite - breakpoints[middle], 0.0, max_weight).sum() >= 1:
            low = middle
        else:
            high = middle
    return float(breakpoints[low]), float(breakpoints[high])


def _settle_sum(weights: NDArray[np.float64], max_weight: float) -> NDArray[np.float64]:
    """Spread what rounding left of ``1 - sum`` over the entries that have room for it."""
    missing = 1.0 - weights.sum()
    room = np.where(weights > 0, max_weight - weights, 0.0) if missing > 0 else weights
    total = room.sum()
    if total > abs(missing):
        weights = np.clip(weights + missing * (room / total), 0.0, max_weight)
    return weights


def cheapest_purchase(costs: NDArray[np.float64], max_weight: float) -> float:
    """Return ``min costs'a`` over the capped simplex: fill the cheapest sellers to the cap."""
    n_full = min(int(1.0 / max_weight), costs.size)
    rest = max(0.0, 1.0 - n_full * max_weight)
    if n_full == costs.size:  # every seller at 1/m, up to rounding
        return float(costs.mean())
    ordered = np.partition(costs, n_full)
    return float(max_weight * ordered[:n_full].sum() + rest * ordered[n_full])


def projection_step(form: StandardForm, beta: float) -> NDArray[np.float64]:
    """Return a(beta), the projection of ``-beta*psi`` on the capped simplex, shape (m,)."""
    return project_capped_simplex(-beta * form.virtual_costs, form.max_weight)
