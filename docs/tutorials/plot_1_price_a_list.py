"""
Price a list
============

People say what a unit of privacy costs them. How much is bought from whom, and at which price?
"""

import pandas as pd

import convexmarket as cm

asks = pd.DataFrame({"name": ["ada", "ben", "cleo"], "ask": [0.031, 0.047, 0.090]})

# %%
# The prior is what everybody knows about such people. The objective weighs three wishes: that the
# purchase rests on many (``Spread``), that little noise is needed (``Noise``), and, at the price of
# money ``gamma``, that little is paid.
deal = cm.price(
    asks,
    id="name",
    ask="ask",
    prior=cm.Uniform(0.02, 0.10),
    objective=cm.Spread() + 0.5 * cm.Noise(),
    gamma=1,
)
deal.offers

# %%
# No other purchase is better by more than the gap:
deal.certificate["gap"]

# %%
# Nobody gains by lying: the market is solved again at each lie.
deal.audit().max_gain

# %%
# The dearer a seller is, the less it sells:
deal.plot()
