"""
Predictions instead of a model
==============================

No line separates two circles. A model with a kernel does, but is made of the sellers' rows and
cannot be released. Its predictions can.
"""

import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm
from convexmarket.data import datasets

X, y = datasets.circles(5_000, random_state=1)
erm = cm.KernelERM(gamma=4.0, regularization=0.01, data_norm=1.0).fit(X, y)

# %%
# Predictions at 100 public points are released under epsilon = 4 for each row; a model that is
# fitted to them predicts anywhere, and costs no more.
account = cm.PrivacyAccountant(np.full(len(X), 5.0), delta=1e-5)
points, _ = datasets.circles(100, random_state=2)
release = cm.TestSetRelease(erm, points, epsilon=4.0, delta=1e-6, accountant=account)
print(release.guarantee)

# %%
# How often it is right on new rows:
X_test, y_test = datasets.circles(1_000, random_state=3)
found = release.predictor.classify(X_test)
print(f"{(found == y_test).mean():.1%}")

fig, ax = plt.subplots(figsize=(4, 4))
ax.scatter(*X_test[:, :2].T, c=found, s=8)
ax.set_aspect("equal")
