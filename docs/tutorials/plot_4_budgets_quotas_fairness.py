"""
Budgets, quotas, fairness
=========================

Variants are written as the formula is: terms add up, constraints are a list.
"""

import cvxpy as cp
import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm

rng = np.random.default_rng(0)
site = rng.choice(["town", "country"], 100, p=[0.7, 0.3])
asks = np.where(site == "town", rng.uniform(0.02, 0.07, 100), rng.uniform(0.05, 0.10, 100))
sellers = cm.Sellers(asks, prior=cm.Uniform(0.02, 0.10))
base = cm.Spread() + 10 * cm.Noise() + 0.1 * cm.Payments()

# %%
# Where the country is dear, it has little say. A quota gives it a share of the weight; ``Fairness``
# holds down the larger of the groups' mean losses of privacy.
markets = {
    "free": cm.Market(sellers, base),
    "quota": cm.Market(sellers, base, [cm.GroupShare(site, at_least={"country": 0.4})]),
    "fair": cm.Market(sellers, base + cm.terms.Fairness("minimax", site)),
}
for name, market in markets.items():
    bought = cm.allocate(market)
    country = bought.weights[site == "country"].sum()
    print(f"{name}: country {country:.0%}, gap {bought.gap:.0e}, truthful: {market.incentives}")

# %%
# A budget instead of a price of money. It is a parameter, so that the market is compiled once.
budget = cp.Parameter(nonneg=True, name="budget")
market = cm.Market(sellers, cm.Spread() + 10 * cm.Noise(), [cm.Budget(budget)])
budgets = [1, 2, 5, 10, 20]
frontier = cm.sweep(market, budget, budgets)

fig, ax = plt.subplots()
ax.plot(budgets, [allocation.objective for allocation in frontier], marker="o")
ax.set(xscale="log", xlabel="budget", ylabel="spread and noise")
fig.tight_layout()
