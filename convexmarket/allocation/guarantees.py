r"""Weights under given guarantees: how to use what the sellers have already granted.

.. math:: \min_{a,\eta}\; \mu\|a\| + \sigma/\eta \quad\text{s.t.}\quad
          a_i\,\eta \le \varepsilon_i,\; \mathbf 1^\top a = 1,\; a \ge 0

(step 1 of Algorithm 1 of Anjarlekar, Etesami and Srikant). With s = 1/eta it is convex. For a given
s the best weights are as equal as the bounds allow, ``min(level, s * epsilon)``: those who granted
least give all they have. So the optimum lies on one path in s, and on each of its pieces the
objective is linear plus the root of a quadratic.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.result import Allocation
from convexmarket.checks import as_float, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.terms import Form

__all__ = ["allocate_guarantees", "weights_for_guarantees"]

Floats = NDArray[np.float64]


def allocate_guarantees(form: Form, granted: Floats) -> Allocation:
    """Return the exact allocation under given guarantees, with its dual bound."""
    start = time.perf_counter()
    mu, sigma = form.mu, form.sigma
    weights, eta = weights_for_guarantees(granted, mu, sigma)
    norm = float(np.linalg.norm(weights))
    price, bound = _dual(granted, mu, sigma, weights, norm)
    return Allocation(
        weights=weights,
        eta=eta,
        objective=mu * norm + sigma / eta,
        lower_bound=bound,
        multiplier=price / eta,
        method="exact",
        seconds=time.perf_counter() - start,
    )


def _dual(
    granted: Floats, mu: float, sigma: float, weights: Floats, norm: float
) -> tuple[float, float]:
    """Return the multiplier of ``sum a = 1`` and the lower bound that it proves.

    With y = mu*a/||a|| and multipliers z >= 0 of ``a <= s*epsilon`` the objective is at least
    ``min(y + z)``, provided that ``z'epsilon <= sigma``.
    """
    able = granted > 0
    slope = mu * weights[able] / norm
    level = float(slope.max(initial=0.0))
    spare = sigma - float(np.maximum(level - slope, 0.0) @ granted[able])
    if spare > 0:  # everybody gives everything, and more would be welcome from all
        level += spare / float(granted[able].sum())
    extra = np.maximum(level - slope, 0.0)
    cost = float(extra @ granted[able])
    if cost > sigma:
        extra *= sigma / cost
    return level, float(np.min(slope + extra))


def weights_for_guarantees(epsilon: ArrayLike, mu: float, sigma: float) -> tuple[Floats, float]:
    """Return the weights and the eta that use the given guarantees best, exactly.

    Parameters
    ----------
    epsilon : array_like of shape (n_sellers,)
        Largest guarantee of each seller, nonnegative and finite, one of them positive.
    mu, sigma : float
        Weights of the spread and of the noise: nonnegative and finite, not both zero.

    Returns
    -------
    weights : ndarray of shape (n_sellers,)
        Nonnegative, summing to one; zero where epsilon is.
    eta : float
        Largest total with ``weights * eta <= epsilon``; at most the sum of epsilon.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    O(m log m), from one sort. With ``mu = 0`` the weights are proportional to epsilon, and
    ``sigma = 0`` gives equal weights.

    Examples
    --------
    >>> weights, eta = weights_for_guarantees([0.1, 1.0, 1.0], mu=1.0, sigma=0.05)
    >>> weights.round(4), round(eta, 4)
    (array([0.1225, 0.4387, 0.4387]), 0.8162)
    """
    array = checked_numbers("epsilon", epsilon)
    if array.ndim != 1 or not array.size:
        raise ParameterError(f"epsilon must be a nonempty vector, not of shape {array.shape}")
    if not (np.all(np.isfinite(array)) and np.all(array >= 0) and np.any(array > 0)):
        raise ParameterError("epsilon must be nonnegative and finite, with a positive entry")
    for name, value in (("mu", mu), ("sigma", sigma)):
        if not 0 <= as_float(value) < np.inf:
            raise ParameterError(f"{name} must be nonnegative and finite, got {value!r}")
    if mu == 0 and sigma == 0:
        raise ParameterError("mu and sigma are both zero, so every choice is optimal; give one")
    # In units of the largest guarantee, so that nothing overflows.
    unit = float(array.max())
    granted = np.sort(array[array > 0]) / unit
    level, s = _best_on_path(granted, mu, sigma / unit)
    weights = np.minimum(level, array / unit * s)
    weights /= weights.sum()
    used = weights > 0
    return weights, float(np.min(array[used] / weights[used]))


def _best_on_path(granted: Floats, mu: float, sigma: float) -> tuple[float, float]:
    """Return (level, s) of the best point of the path; ``granted`` is sorted and positive."""
    # On piece k the k smallest are at their bound, the others at the level (1 - s E) / (m - k).
    free = granted.size - np.arange(granted.size)
    total = np.concatenate([[0.0], np.cumsum(granted)[:-1]])
    square = np.concatenate([[0.0], np.cumsum(granted**2)[:-1]])
    low = 1.0 / (total + free * granted)  # where the next one reaches its bound
    high = np.concatenate([[low[0]], low[:-1]])  # the first piece is all alike: equal weights
    s = np.clip(_stationary(total, square, free, mu, sigma), low, high)
    level = (1.0 - s * total) / free
    objective = sigma * s + mu * np.hypot(s * np.sqrt(square), np.sqrt(free) * level)
    best = int(np.argmin(objective))
    return float(level[best]), float(s[best])


def _stationary(
    total: Floats, square: Floats, free: NDArray[np.int_], mu: float, sigma: float
) -> Floats:
    """Return where ``sigma s + mu ||a(s)||`` is stationary on each piece, or 0 if it increases."""
    # ||a||^2 = curvature * s^2 - 2 * slope * s + 1 / free, at least ``floor``.
    curvature, slope = square + total**2 / free, total / free
    floor = np.divide(square, free * curvature, out=np.zeros_like(square), where=curvature > 0)
    with np.errstate(over="ignore"):
        room = mu**2 - np.divide(
            sigma**2, curvature, out=np.full_like(square, np.inf), where=curvature > 0
        )
    squared = np.divide(sigma**2 * floor, room, out=np.full_like(square, np.inf), where=room > 0)
    distance = np.sqrt(squared)
    return np.divide(
        slope - distance, curvature, out=np.full_like(square, -np.inf), where=curvature > 0
    )
