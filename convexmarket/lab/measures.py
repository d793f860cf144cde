"""What an allocation of any market comes to."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation import Allocation
from convexmarket.errors import ConvexMarketError
from convexmarket.market import Market

__all__ = ["DUST", "expected_payments", "n_bought"]

Floats = NDArray[np.float64]

#: Weights below this share of the average are a solver's rounding.
DUST = 1e-6


def n_bought(weights: ArrayLike, n_sellers: int | None = None) -> int:
    """Count who is bought from, without the weights that a solver leaves where none belongs."""
    array = np.asarray(weights)
    return int(np.count_nonzero(array * (n_sellers or array.size) > DUST))


def expected_payments(market: Market, found: Allocation) -> Floats:
    """Return psi_i u(eps_i); not a number where the payment terms disagree about u."""
    try:
        return market.sellers.virtual_costs * market.privacy_cost(found.epsilon)
    except ConvexMarketError:
        return np.full(found.weights.size, np.nan)
