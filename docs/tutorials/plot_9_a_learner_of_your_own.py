"""
A learner of your own
=====================

A learner is any class that has ``risk``, ``fit(X, y, *, epsilon, ...)`` and, once fitted,
``guarantee_``. Nothing has to be inherited. Here is the private mean of labels between -1 and 1.
"""

import numpy as np
import pandas as pd

import convexmarket as cm
from convexmarket import privacy


class PrivateMean:
    """A weighted mean with exact noise."""

    def risk(self, n_features):
        """Return how much spread and noise hurt: mu and sigma of the market."""
        return 1.0, 2.0

    def fit(self, X, y, *, epsilon, rows=None, accountant=None, random_state=None):
        """Learn from rows that sold epsilon each."""
        epsilon = np.broadcast_to(np.asarray(epsilon, dtype=float), len(y))
        weights = epsilon / epsilon.sum()
        step = privacy.lattice_step(1e-6 / len(y))
        change = np.where(epsilon > 0, 2 * weights + 1e-12, 0)  # of the mean, by one row
        moves = privacy.lattice_moves(change, step, 1)
        scale = privacy.lattice_scale(moves, epsilon)
        kept = privacy.lattice_epsilon(moves, scale)
        self.guarantee_ = cm.Guarantee(kept, 0.0, "a mean", "exact", ("labels are clipped",))
        names = privacy.names_of(X)
        charge = privacy.admit(
            self.guarantee_, accountant, rows, names=names, random_state=random_state
        )
        used = epsilon > 0
        mean = weights[used] @ np.clip(np.asarray(y)[used], -1, 1)
        rng = privacy.resolve_generator(random_state)
        charge()
        self.mean_ = float(privacy.lattice_release([mean], step, scale, rng)[0])
        return self


# %%
# The audit knows nothing of it. It fits it many times on neighbouring data, and compares what is
# published: every number in an attribute whose name ends in ``_``.
rng = np.random.default_rng(0)
X, y, sold = np.zeros((20, 1)), rng.uniform(-1, 1, 20), rng.uniform(0.5, 1.0, 20)
corners = (np.zeros((2, 1)), [-1.0, 1.0])  # what an audited row may be
print(cm.audit_privacy(PrivateMean(), X, y, epsilon=sold, replacements=corners, draws=2000))

# %%
# And so it enters a market. mu and sigma are those of its ``risk``:
prior = cm.Uniform(0.02, 0.10)
people = pd.DataFrame({"opinion": y, "age": rng.integers(18, 90, 20), "ask": prior.sample(20, rng)})
sale = {"ask": "ask", "target": "opinion", "prior": prior, "budget": 5}
deal = cm.buy(people, learner=PrivateMean(), **sale)
print(deal)
print(f"{deal.model.mean_:.3f}, and {y.mean():.3f} without privacy")
