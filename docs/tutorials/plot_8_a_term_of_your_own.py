"""
A term of your own
==================

A term is a class with one method, which returns a convex CVXPY expression.
"""

from dataclasses import dataclass

import cvxpy as cp
import numpy as np

import convexmarket as cm


@dataclass(frozen=True)
class WorstImbalance(cm.Term):
    """The largest distance of a weighted average from that of all data."""

    features: np.ndarray

    def expression(self, quantities):
        """Return the term in CVXPY."""
        off = self.features.T @ quantities.weights - self.features.mean(axis=0)
        return cp.max(cp.abs(off))


# %%
# It adds up with the others, and the answer is certified although it has kinks:
rng = np.random.default_rng(0)
sellers = cm.Sellers(rng.uniform(1, 5, 60), prior=cm.Uniform(1, 5))
features = rng.normal(size=(60, 3))
base = cm.Spread() + 10 * cm.Noise() + 0.01 * cm.Payments()
for weight in (0, 2):
    market = cm.Market(sellers, base + weight * WorstImbalance(features))
    bought = cm.allocate(market)
    off = np.abs(features.T @ bought.weights - features.mean(axis=0)).max()
    print(f"weight {weight}: worst imbalance {off:.4f}, gap {bought.gap:.0e}, {market.incentives}")

# %%
# "by construction": it does not read the reports, so that truthful prices exist. ``objective=`` of
# ``cm.price`` and ``cm.buy`` takes it too. A constraint of your own is a
# :class:`convexmarket.terms.Constraint` with a method that returns CVXPY constraints.
