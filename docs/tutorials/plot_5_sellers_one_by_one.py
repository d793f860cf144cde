"""
Sellers one by one
==================

A seller who walks in wants an answer now: the quote may depend on its report and the prior alone.
"""

import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm

prior = cm.Uniform(1, 5)
policy = cm.OnlinePolicy(prior, expected_sellers=2_000, mu=1, sigma=1, gamma=1)
epsilon, payment = policy.quote(1.05)
print(f"asks 1.05 and sells {epsilon:.3f} for {payment:.3f}")

# %%
# The dearer the report, the less is bought, and from some report on nothing:
reports = np.linspace(1, 1.5, 200)
sold, paid = policy.quote(reports)
fig, ax = plt.subplots()
ax.plot(reports, sold, label="epsilon")
ax.plot(reports, paid, label="payment")
ax.set(xlabel="report")
ax.legend()
fig.tight_layout()

# %%
# Nobody gains by lying:
cm.online.audit_quotes(policy).is_incentive_compatible

# %%
# Against a buyer who knows all reports beforehand; the second policy plans anew as sellers come.
arrivals = prior.sample(2_000, np.random.default_rng(0))
fixed = cm.run_online(policy, arrivals)
anew = cm.run_online(cm.online.AdaptivePolicy(policy), arrivals)
market = cm.Market.standard(cm.Sellers(arrivals, prior=prior), mu=1, sigma=1, gamma=1)
best = cm.allocate(market).objective
print(f"{fixed.loss(prior) / best:.4f} and {anew.loss(prior) / best:.4f} of the best loss")
