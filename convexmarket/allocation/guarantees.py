r"""Markets without payments that have exact solutions: given guarantees, or a budget.

.. math:: \min_{a,s}\; \mu\|a\| + \ell^\top a + \sigma s \quad\text{s.t.}\quad
          \mathbf 1^\top a = 1,\; a \ge 0

with s = 1/eta and either ``a <= s*epsilon`` (step 1 of Algorithm 1 of Anjarlekar, Etesami and
Srikant) or ``psi'a <= B*s``. Both are convex. For a given s the best weights under guarantees are
as equal as the bounds allow, ``min(level, s*epsilon)``, so that one path in s holds the optimum.
Under a budget the best s is ``psi'a/B``: the spread and the losses have the price ``sigma/B`` for
each unit of ``psi'a``, one projection.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.projections import ProjectableForm
from convexmarket.allocation.simplex import embed
from convexmarket.checks import as_float, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.terms import MarketNumbers

__all__ = ["allocate_budget", "allocate_guarantees", "weights_for_guarantees"]

Floats = NDArray[np.float64]


def allocate_budget(form: MarketNumbers) -> Allocation:
    """Return the exact allocation of a market with ``is_budgeted``.

    The lower bound is the minimum of the spread, the losses and ``y*psi'a``, with y = sigma/B.
    """
    start, budget = time.perf_counter(), form.budget
    projectable = ProjectableForm.of(replace(form, gamma=1.0, budgets=(), sigma=0.0))
    assert projectable is not None  # as the market is budgeted
    rescaled, active = projectable
    price = form.sigma / budget
    (weights, prices, _), _ = rescaled.optimum(price)
    cost = float(rescaled.virtual_costs @ weights)
    objective = rescaled.objective(weights, 1.0) + (price - 1.0) * cost
    bound = min(rescaled.minimum(rescaled.weight, rescaled.prices(price)), objective)
    eta = budget / cost
    return Allocation(
        weights=embed(weights, active),
        eta=eta,
        objective=objective,
        lower_bound=bound,
        multiplier=float(prices[0]) / eta,
        method="exact",
        seconds=time.perf_counter() - start,
        scale=rescaled.size(weights, price) or None,
    )


def allocate_guarantees(form: MarketNumbers, caps: Floats) -> Allocation:
    """Return the exact allocation under given guarantees, with its dual bound."""
    start = time.perf_counter()
    mu, sigma = form.mu, form.sigma
    weights, eta = weights_for_guarantees(caps, mu, sigma)
    norm = float(np.linalg.norm(weights))
    price, bound = _dual(caps, mu, sigma, weights, norm)
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
    caps: Floats, mu: float, sigma: float, weights: Floats, norm: float
) -> tuple[float, float]:
    """Return the multiplier of ``sum a = 1`` and the lower bound that it proves.

    With y = mu*a/||a|| and multipliers z >= 0 of ``a <= s*epsilon`` the objective is at least
    ``min(y + z)``, provided that ``z'epsilon <= sigma``.
    """
    able = caps > 0
    slope = mu * weights[able] / norm
    level = float(slope.max(initial=0.0))
    spare = sigma - float(np.maximum(level - slope, 0.0) @ caps[able])
    if spare > 0:  # all guarantees are at their bounds
        level += spare / float(caps[able].sum())
    extra = np.maximum(level - slope, 0.0)
    cost = float(extra @ caps[able])
    return level, float(np.min(slope + extra * min(1.0, sigma / cost if cost > 0 else 1.0)))


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
    # In units of the largest guarantee, to avoid overflow.
    unit = float(array.max())
    level, s = _best_on_path(np.sort(array[array > 0]) / unit, mu, sigma / unit)
    weights = np.minimum(level, array / unit * s)
    weights /= weights.sum()
    used = weights > 0
    return weights, float(np.min(array[used] / weights[used]))


def _best_on_path(caps: Floats, mu: float, sigma: float) -> tuple[float, float]:
    """Return (level, s) of the best point of the path; ``caps`` is sorted and positive.

    On piece k the k smallest are at their bound, the others at the level (1 - s E) / (m - k). The
    objective is convex in s, and so its minimum is where its slope changes its sign.
    """
    free = caps.size - np.arange(caps.size)
    total = np.concatenate([[0.0], np.cumsum(caps)[:-1]])
    square = np.concatenate([[0.0], np.cumsum(caps**2)[:-1]])
    ends = 1.0 / (total + free * caps)  # s at which the next seller reaches its bound

    def slope(s: Any, k: Any) -> Any:
        level = (1.0 - s * total[k]) / free[k]
        norm = np.hypot(s * np.sqrt(square[k]), np.sqrt(free[k]) * level)
        return sigma - mu * (level * total[k] - s * square[k]) / norm

    falling = np.flatnonzero(slope(ends, np.arange(caps.size)) < 0)
    if not falling.size:  # all sellers are at their bounds
        return float(caps[-1] * ends[-1]), float(ends[-1])
    k = int(falling[0])
    s = float(ends[k - 1])  # the slope is nonnegative there, up to rounding
    if slope(s, k) > 0:
        s = brentq(slope, ends[k], s, args=(k,), xtol=1e-300, rtol=1e-15)
    return float((1.0 - s * total[k]) / free[k]), s
