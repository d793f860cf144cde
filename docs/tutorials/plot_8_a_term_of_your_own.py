"""
A user-defined term
===================

A user-defined term is a class with a method that returns a convex CVXPY expression.
"""

from dataclasses import dataclass

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm


@dataclass(frozen=True)
class WorstImbalance(cm.Term):
    """Largest difference between the weighted and the unweighted average of a feature."""

    features: np.ndarray

    def expression(self, quantities):
        """Return the term as a CVXPY expression."""
        distance = self.features.T @ quantities.weights - self.features.mean(axis=0)
        return cp.max(cp.abs(distance))


# %%
# The term is added to the objective like any other term. The solution is certified although the
# term has kinks. If the weight of the term increases, the purchased rows become more
# representative, and the other terms increase:
rng = np.random.default_rng(0)
sellers = cm.Sellers(rng.uniform(1, 5, 60), prior=cm.Uniform(1, 5))
features = rng.normal(size=(60, 3))
base = cm.Spread() + 10 * cm.Noise() + 0.01 * cm.Payments()
weights, imbalances = (0, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1), []
for weight in weights:
    market = cm.Market(sellers, base + weight * WorstImbalance(features))
    allocation = cm.allocate(market)
    distance = features.T @ allocation.weights - features.mean(axis=0)
    imbalances.append(np.abs(distance).max())
    print(f"weight {weight}: imbalance {imbalances[-1]:.4f}, certified: {allocation.gap < 1e-6}")

fig, ax = plt.subplots()
ax.plot(weights, imbalances, marker="o")
ax.set(xlabel="weight of the term", ylabel="largest imbalance")
fig.tight_layout()

# %%
# Payments remain truthful, because the term does not depend on the reports:
print(market.incentives)

# %%
# The parameter ``objective`` of ``cm.price`` and ``cm.buy`` also accepts user-defined terms. To
# define a constraint, derive a class from :class:`convexmarket.terms.Constraint` with a method that
# returns CVXPY constraints.
