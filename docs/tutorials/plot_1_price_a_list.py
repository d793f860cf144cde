"""
Price a list of sellers
=======================

Three people state their cost of one unit of epsilon. How much privacy should a buyer purchase from
each person, and for what payment?
"""

import pandas as pd

import convexmarket as cm

asks = pd.DataFrame({"name": ["ada", "ben", "cleo"], "ask": [0.031, 0.047, 0.090]})

# %%
# The prior is the public distribution of such costs. The objective contains the errors of the
# model from few sellers (``Spread``) and from noise (``Noise``), and ``gamma`` times the payments.
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
# Ada reports the lowest cost, so she sells the most: her row may be used under 1.01-differential
# privacy. Her cost is 0.031 * 1.01 = 0.031, and she receives 0.082. The surplus of 0.051 is
# necessary for truthful reports. Without it, a higher report would be profitable.
#
# ``gap`` is the relative distance from the best purchase. It is 0 up to rounding errors, because
# all stationary points were enumerated:
deal.certificate["gap"]

# %%
# The audit solves the market again at many false reports per seller. None of them is profitable:
deal.audit().max_gain

# %%
# The plot shows that a seller with a higher ask sells less, and that each payment exceeds the cost:
deal.plot()
