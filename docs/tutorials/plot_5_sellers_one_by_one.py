"""
Sellers who arrive one by one
=============================

Sellers arrive one by one, and each seller receives a quote immediately. Because later sellers are
unknown, the quote depends only on the seller's report and on the prior.
"""

import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm

prior = cm.Uniform(1, 5)
policy = cm.OnlinePolicy(prior, expected_sellers=2_000, mu=1, sigma=1, gamma=1)
epsilon, payment = policy.quote(1.05)
print(f"a seller who reports 1.05 sells epsilon = {epsilon:.3f} for {payment:.3f}")

# %%
# A seller with a higher report sells less, and a seller with a report of 1.12 or more sells
# nothing. The payment exceeds the report times epsilon, so no seller loses by accepting the quote:
reports = np.linspace(1, 1.2, 200)
sold, paid = policy.quote(reports)
fig, ax = plt.subplots()
ax.plot(reports, sold, label="epsilon")
ax.plot(reports, paid, "--", label="payment")
ax.plot(reports, reports * sold, ":", label="cost of the seller")
ax.set(xlabel="report")
ax.legend()
fig.tight_layout()

# %%
# The quotes for all reports are fixed before a seller reports. Therefore a truthful report is the
# best reply:
cm.online.audit_quotes(policy).is_incentive_compatible

# %%
# The last example measures how much the buyer loses because later sellers are unknown. The baseline
# is the optimum for a buyer who knows all 2,000 reports. The adaptive policy computes new plans
# while sellers arrive:
arrivals = prior.sample(2_000, np.random.default_rng(0))
fixed = cm.run_online(policy, arrivals)
adaptive = cm.run_online(cm.online.AdaptivePolicy(policy), arrivals)
market = cm.Market.standard(cm.Sellers(arrivals, prior=prior), mu=1, sigma=1, gamma=1)
best = cm.allocate(market).objective
print(f"fixed policy: {100 * (fixed.loss(prior) / best - 1):.2f} % above the best loss")
print(f"adaptive policy: {100 * (adaptive.loss(prior) / best - 1):.2f} % above")
