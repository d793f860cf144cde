"""Bounds of the papers' problem: on V by weak duality, on eta, and what no eta attains.

See :mod:`convexmarket.allocation.search` for why these are enough to certify a global optimum.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.simplex import cheapest_purchase, project_capped_simplex
from convexmarket.errors import UnattainedOptimumError
from convexmarket.market import StandardForm
from convexmarket.terms import Form

__all__ = [
    "best_eta",
    "best_lower_bound",
    "check_noise",
    "dual_bound",
    "eta_range",
    "unattained",
    "unattained_noise",
    "unconstrained_eta",
]

Floats = NDArray[np.float64]


def dual_bound(form: StandardForm, costs: Floats, weights: Floats) -> float:
    """Return a lower bound on the least ``mu*||a|| + costs'a`` proved by any weights.

    ``mu*||a|| >= y'a`` for ``y = mu*weights/||weights||``, hence it is at least the minimum of
    ``(y + costs)'a``, and equal to that where the weights are optimal.
    """
    direction = weights / np.linalg.norm(weights)
    return cheapest_purchase(form.mu * direction + costs, form.max_weight)


def best_lower_bound(form: StandardForm, costs: Floats, weights: Floats) -> float:
    """Return the better of the bounds proved by weights and by a refinement of them.

    The error of :func:`dual_bound` is of first order in the weights, so approximate weights prove
    little. The optimum is the fixed point of ``a -> projection of -(||a||/mu)*costs``, which
    depends on the weights only through their norm: two steps towards it and one extrapolation
    (Aitken) remove the solver's noise, and lead from the optimum for other costs to this one.
    """
    bound = dual_bound(form, costs, weights)
    if form.mu == 0:
        return bound

    def step(norm: float) -> Floats:
        return project_capped_simplex(-(norm / form.mu) * costs, form.max_weight)

    norm = float(np.linalg.norm(weights))
    once = float(np.linalg.norm(step(norm)))
    twice = float(np.linalg.norm(step(once)))
    return max(bound, dual_bound(form, costs, step(_aitken(norm, once, twice))))


def _aitken(first: float, second: float, third: float) -> float:
    """Extrapolate a linearly convergent sequence of three positive numbers to its limit."""
    bend = (third - second) - (second - first)
    if bend == 0:
        return third
    limit = third - (third - second) ** 2 / bend
    return limit if 0.5 * third < limit < 2 * third else third


def best_eta(form: StandardForm, cost: float) -> float:
    """Return the eta in the market's range that is best for weights of a cost; may be 0 or inf."""
    return float(min(max(unconstrained_eta(form, cost), form.eta_low), form.eta_high))


def unconstrained_eta(form: StandardForm, cost: float) -> float:
    """Return the stationary point of ``sigma/eta + gamma*eta*cost``, with ``cost = psi'a``."""
    if form.sigma == 0:
        return 0.0
    # Root by root, because the quotient leaves the range of floating point before its root does.
    root = np.sqrt(form.sigma) / np.sqrt(form.gamma)
    return float(root / np.sqrt(cost)) if cost > 0 else np.inf


def eta_range(form: StandardForm) -> tuple[float, float, float]:
    """Return a range of eta that holds every minimiser, and the infimum where none is attained.

    The slope psi'a of V falls from the mean of psi at eta = 0 (all weights equal) towards the cost
    of the cheapest purchase, so every stationary point lies between the best eta of these two. If
    the cheapest purchase is free, V is constant from some eta on, and what remains is whether
    anything is better than eta = infinity.

    Returns
    -------
    low, high : float
    limit : float
        Infimum of the objective over ``eta > high`` where that is not attained; inf if there is
        nothing to fear beyond ``high``.

    Raises
    ------
    UnattainedOptimumError
        If no noise pays for privacy and no range forces any, or if all data are free.
    """
    psi, m = form.virtual_costs, form.virtual_costs.size
    check_noise(form)
    low = best_eta(form, float(psi.mean()))
    high = max(best_eta(form, cheapest_purchase(psi, form.max_weight)), low)
    if high < np.inf:
        return low, high, np.inf
    n_free = int(np.count_nonzero(psi == 0))
    limit = form.mu / np.sqrt(n_free)
    if n_free == m or form.mu == 0:
        raise unattained(limit)
    # From here on nobody who costs is bought from.
    saturated = float(limit / (form.gamma * psi[psi > 0].min()))
    return min(low, saturated), saturated, limit


def check_noise(form: StandardForm | Form) -> None:
    """Raise UnattainedOptimumError where nothing keeps the buyer from buying ever less."""
    if form.sigma == 0 and form.eta_low == 0:
        raise unattained_noise()


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
