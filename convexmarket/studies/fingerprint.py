"""A digest of a market by its numbers, the same in every session and for a user's own pieces."""

from __future__ import annotations

import hashlib

import numpy as np

from convexmarket.market import Market

__all__ = ["market_digest"]


def market_digest(market: Market) -> str:
    """Return a digest of a market: its text, its sellers, and its objective at three points.

    A change of a piece's code shows in the values of the objective, a change of a number also in
    the text.
    """
    sellers = market.sellers
    digest = hashlib.sha256(repr(market).encode())
    digest.update(np.asarray(sellers.sensitivities, dtype=float).tobytes())
    digest.update(np.asarray(sellers.virtual_costs, dtype=float).tobytes())
    rng = np.random.default_rng(0)
    for eta in (0.5, 1.0, 7.0):
        weights = rng.dirichlet(np.ones(len(sellers)))
        costs = np.where(np.isfinite(sellers.virtual_costs), sellers.virtual_costs, 0.0)
        value = market.objective.value(weights, eta, costs)
        digest.update(f"{value:.9e}".encode())
    return digest.hexdigest()
