"""
Predictions instead of a model
==============================

No line separates two concentric circles. A kernel model separates them, but consists of the
sellers' rows and cannot be released. Its predictions can be released.
"""

import matplotlib.pyplot as plt
import numpy as np

import convexmarket as cm
from convexmarket.data import datasets

X, y = datasets.circles(5_000, random_state=1)
erm = cm.KernelERM(gamma=4.0, regularization=0.01, data_norm=1.0).fit(X, y)
print(f"one row changes a prediction by at most {erm.sensitivity_}")

# %%
# Noise hides this change at 100 public points, with epsilon = 4 for each row. A second model is
# fitted to the 100 noisy answers. It predicts at any point without additional privacy loss.
account = cm.PrivacyAccountant(np.full(len(X), 5.0), delta=1e-5)
points, _ = datasets.circles(100, random_state=2)
release = cm.TestSetRelease(erm, points, epsilon=4.0, delta=1e-6, accountant=account)
print(f"epsilon {release.guarantee.epsilon.max():.2f}, delta {release.guarantee.delta}")

# %%
# Finally, measure the accuracy on new rows and plot the predicted classes:
X_test, y_test = datasets.circles(1_000, random_state=3)
predicted = release.predictor.classify(X_test)
print(f"accuracy: {(predicted == y_test).mean():.1%}")

fig, ax = plt.subplots(figsize=(4, 4))
for label, marker in ((-1, "o"), (1, "x")):
    ax.scatter(*X_test[predicted == label, :2].T, marker=marker, s=10, label=f"class {label}")
ax.set_aspect("equal")
ax.legend(loc="upper right")
fig.tight_layout()
