"""
Budgets, quotas, fairness
=========================

This tutorial adds a quota, a fairness term and a budget to a market.
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
# Sellers in the country have higher asks, so few of these sellers sell privacy. A quota
# (``GroupShare``) reserves 40 % of the weight for sellers in the country. ``Fairness`` penalises
# the larger of the two groups' mean epsilons.
markets = {
    "free": cm.Market(sellers, base),
    "quota": cm.Market(sellers, base, [cm.GroupShare(site, at_least={"country": 0.4})]),
    "fair": cm.Market(sellers, base + cm.terms.Fairness("minimax", site)),
}
fig, ax = plt.subplots()
for k, (name, market) in enumerate(markets.items()):
    allocation = cm.allocate(market)
    country = allocation.weights[site == "country"].sum()
    print(f"{name}: country {country:.0%}, gap below 1e-6: {allocation.gap < 1e-6}")
    means = [allocation.epsilon[site == group].mean() for group in ("town", "country")]
    ax.bar(np.arange(2) + 0.27 * k, means, width=0.25, label=name)
ax.set_xticks(np.arange(2) + 0.27, ["town", "country"])
ax.set(ylabel="mean epsilon of a seller")
ax.legend()
fig.tight_layout()

# %%
# Payments in all three markets are truthful, because neither the quota nor the fairness term
# depends on the reports:
print([str(market.incentives) for market in markets.values()])

# %%
# A budget can replace the payments term. If the budget is a CVXPY parameter, each allocation uses
# its current value. If the budget increases by a factor of 20, spread and noise decrease to about a
# quarter:
budget = cp.Parameter(nonneg=True, name="budget")
market = cm.Market(sellers, cm.Spread() + 10 * cm.Noise(), [cm.Budget(budget)])
budgets = [1, 2, 5, 10, 20]
frontier = [cm.allocate(market) for budget.value in budgets]

fig, ax = plt.subplots()
ax.plot(budgets, [allocation.objective for allocation in frontier], marker="o")
ax.set(xscale="log", yscale="log", xlabel="budget", ylabel="spread and noise")
fig.tight_layout()
