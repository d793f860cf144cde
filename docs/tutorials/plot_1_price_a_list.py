"""
Price a list of sellers
=======================

Three people report their cost per unit of epsilon. This tutorial computes how much privacy a buyer
should purchase from each person, and at what price.
"""

import pandas as pd

import convexmarket as cm

asks = pd.DataFrame({"name": ["ada", "ben", "cleo"], "ask": [0.031, 0.047, 0.090]})

# %%
# The prior is the public distribution of these costs. The objective has three terms: the sampling
# error from few sellers (``Spread``), the error from noise (``Noise``), and ``gamma`` times the
# payments.
deal = cm.price(
    asks,
    id="name",
    ask="ask",
    prior=cm.Uniform(0.02, 0.10),
    objective=cm.Spread() + 0.5 * cm.Noise(),
    gamma=1,
)
deal.offers.round(3)

# %%
# Ada reports the lowest cost, so she sells the most privacy: the buyer may use her row under
# 1.01-differential privacy. Her cost is 0.031 * 1.01 = 0.031, and she receives 0.082. The surplus
# of 0.051 is necessary for truthful reports. Without this surplus, a higher report would be
# profitable.
#
# ``gap`` bounds the relative difference between the objective and its optimal value. The gap is 0
# up to rounding errors, because the solver enumerates all stationary points:
deal.certificate["gap"]

# %%
# The audit solves the market again for many false reports of each seller. The largest gain from a
# false report is 0, so no seller profits from misreporting:
deal.audit().max_gain

# %%
# The plot shows that sellers with higher asks sell less, and that each payment exceeds the seller's
# cost:
deal.plot()
