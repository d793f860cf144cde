"""
Predictions instead of a model
==============================

A linear model cannot separate two concentric circles, but a kernel model can. A kernel model
contains the sellers' rows, so the model itself cannot be released. This tutorial releases noisy
predictions of the model instead.
"""

import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm
from convexmarket.data import datasets

X, y = datasets.circles(5_000, random_state=1)
erm = cm.KernelERM(gamma=4.0, regularization=0.01, data_norm=1.0).fit(X, y)
print(f"one row changes a prediction by at most {erm.sensitivity_}")

# %%
# The release adds noise to the predictions at 100 public points. The noise is calibrated to epsilon
# = 4 for each row. A second model is fitted to the 100 noisy predictions. This model can be
# evaluated at any point without additional privacy loss.
account = cm.PrivacyAccountant(np.full(len(X), 5.0), delta=1e-5)
points, _ = datasets.circles(100, random_state=2)
release = cm.TestSetRelease(erm, points, epsilon=4.0, delta=1e-6, accountant=account)
print(f"epsilon {release.guarantee.epsilon.max():.2f}, delta {release.guarantee.delta}")

# %%
# The accuracy is measured on new rows, and the plot shows the predicted classes:
X_test, y_test = datasets.circles(1_000, random_state=3)
predicted = release.predictor.classify(X_test)
print(f"accuracy: {(predicted == y_test).mean():.1%}")

fig, ax = plt.subplots(figsize=(4, 4))
for label, marker in ((-1, "o"), (1, "x")):
    ax.scatter(*X_test[predicted == label, :2].T, marker=marker, s=10, label=f"class {label}")
ax.set_aspect("equal")
ax.legend(loc="upper right")
fig.tight_layout()
