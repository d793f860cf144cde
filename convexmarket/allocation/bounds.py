"""Bounds of the papers' problem in closed form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.costs import Costs
from convexmarket.allocation.simplex import cheapest_purchase
from convexmarket.errors import SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm
from convexmarket.terms import MarketNumbers

__all__ = ["check_noise", "dual_bound", "rates_of", "unconstrained_eta"]

Floats = NDArray[np.float64]

#: Range of the ratio of scales within which no digits are lost.
_LEAST, _LARGEST = 1e-300, 1e300


def dual_bound(form: StandardForm, costs: Floats, weights: Floats) -> float:
    """Compute a lower bound on the minimum of ``mu*||a|| + costs'a`` from any weights.

    With ``y = mu*weights/||weights||``, ``mu*||a|| >= y'a``. The bound is the minimum of
    ``(y + costs)'a``, which is tight at optimal weights.
    """
    direction = weights / np.linalg.norm(weights)
    return cheapest_purchase(form.mu * direction + costs, form.max_weight)


def unconstrained_eta(form: StandardForm, cost: float) -> float:
    """Return the stationary point of ``sigma/eta + gamma*eta*cost``, with ``cost = psi'a``."""
    if form.sigma == 0:
        return 0.0
    # The quotient may overflow although its root does not.
    root = np.sqrt(form.sigma) / np.sqrt(form.gamma)
    return float(root / np.sqrt(cost)) if cost > 0 else np.inf


def check_noise(form: StandardForm | MarketNumbers) -> None:
    """Check that buying less privacy is not always cheaper.

    Raises
    ------
    UnattainedOptimumError
        If the market has no noise term and no lower bound on eta.
    """
    if form.sigma == 0 and form.eta_low == 0:
        raise UnattainedOptimumError(
            "sigma, the weight of Noise, is 0, so less privacy is always cheaper and eta tends "
            "to 0; give sigma > 0 or an EtaRange"
        )


def rates_of(form: StandardForm, costs: Costs) -> tuple[float, float, list[float]]:
    """Return rho, the rate at eta = 1, and the rates at the finite ends of the range of eta."""
    unit = form.gamma * costs.scale / form.mu
    rho = form.sigma / form.mu * unit
    if not (_LEAST < rho < _LARGEST or form.sigma == 0):
        raise SolverError(
            f"mu = {form.mu:g} and sigma*gamma*psi = {form.sigma * form.gamma * costs.scale:g}: "
            "the ratio of scales exceeds double precision; bring the weights of the terms closer"
        )
    return rho, unit, [eta * unit for eta in (form.eta_low, form.eta_high) if 0 < eta < np.inf]
