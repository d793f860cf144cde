r"""Exact solution of markets without payments, under given guarantees.

.. math:: \min_{a,s}\; \mu\|a\| + \sigma s \quad\text{s.t.}\quad
          \mathbf 1^\top a = 1,\; 0 \le a \le s\,\varepsilon

with s = 1/eta (step 1 of Algorithm 1 of Anjarlekar, Etesami and Srikant). For a given s, the
optimal weights ``min(level, s*epsilon)`` are as equal as the bounds allow. Hence the optimum is the
best point of a path with the parameter s.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import brentq

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.simplex import Floats
from convexmarket.checks import check_nonnegative, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.terms import MarketNumbers


def allocate_guarantees(form: MarketNumbers, caps: Floats) -> Allocation:
    """Compute the exact allocation under given guarantees, and its dual bound.

    With y = mu*a/||a|| and multipliers z >= 0 of ``a <= s*epsilon`` the objective is at least
    ``min(y + z)``, provided that ``z'epsilon <= sigma``. The optimal y + z is the multiplier of
    ``sum a = 1``.
    """
    able = caps > 0
    weights, eta = weights_for_guarantees(caps, form.mu, form.sigma)
    norm = float(np.linalg.norm(weights))
    slope = form.mu * weights[able] / norm
    price = float(slope.max())
    spare = form.sigma - float((price - slope) @ caps[able])
    price += max(spare, 0.0) / float(caps.sum())  # every guarantee is at its bound
    extra = price - slope
    objective = form.mu * norm + form.sigma / eta
    share = min(1.0, form.sigma / max(float(extra @ caps[able]), np.finfo(float).tiny))
    bound = min(objective, float(np.min(slope + share * extra)))
    return Allocation(weights, eta, objective, bound, price / eta)


def weights_for_guarantees(epsilon: ArrayLike, mu: float, sigma: float) -> tuple[Floats, float]:
    """Compute the optimal weights and eta under given guarantees, exactly.

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
        Largest eta with ``weights * eta <= epsilon``; at most the sum of epsilon.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    The function sorts once, in O(m log m). If ``mu = 0``, the weights are proportional to epsilon;
    if ``sigma = 0``, they are equal.

    Examples
    --------
    >>> weights, eta = weights_for_guarantees([0.1, 1.0, 1.0], mu=1.0, sigma=0.05)
    >>> weights.round(4), round(eta, 4)
    (array([0.1225, 0.4387, 0.4387]), 0.8162)
    """
    array = checked_numbers("epsilon", epsilon)
    if array.ndim != 1 or not (np.all((array >= 0) & (array < np.inf)) and np.any(array > 0)):
        raise ParameterError(
            "epsilon must be a vector of nonnegative and finite numbers, one of them positive"
        )
    mu, sigma = check_nonnegative("mu", mu), check_nonnegative("sigma", sigma)
    if mu == sigma == 0:
        raise ParameterError("mu and sigma are zero, so every choice is optimal; give one > 0")
    # The largest guarantee is the unit, to avoid overflow.
    unit = float(array.max())
    caps = np.sort(array[array > 0]) / unit
    # On piece k of the path, the k smallest bounds are active, and other weights equal the level.
    free = caps.size - np.arange(caps.size)
    total = np.concatenate([[0.0], np.cumsum(caps)[:-1]])
    square = np.concatenate([[0.0], np.cumsum(caps**2)[:-1]])
    ends = 1.0 / (total + free * caps)  # values of s at which the next seller reaches its bound

    def slope(s: Any, k: Any) -> Any:
        level = (1.0 - s * total[k]) / free[k]
        norm = np.hypot(s * np.sqrt(square[k]), np.sqrt(free[k]) * level)
        return sigma / unit - mu * (level * total[k] - s * square[k]) / norm

    # The objective is convex in s, so its slope changes sign at the minimum.
    falling = np.flatnonzero(slope(ends, np.arange(caps.size)) < 0)
    k = int(falling[0]) if falling.size else caps.size - 1
    s = float(ends[k - 1] if falling.size else ends[k])  # otherwise, the last piece
    if falling.size and slope(s, k) > 0:  # exactly, it is nonnegative
        s = brentq(slope, ends[k], s, args=(k,), xtol=1e-300, rtol=1e-15)
    weights = np.minimum((1.0 - s * total[k]) / free[k], array / unit * s)
    weights /= weights.sum()
    used = weights > 0
    return weights, float(np.min(array[used] / weights[used]))
