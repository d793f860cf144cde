r"""
A user-defined learner
======================

A learner is any class with the methods ``risk`` and ``fit(X, y, *, epsilon, ...)`` and, after
fitting, the attribute ``guarantee_``. A base class is not required. This example implements noisy
gradient descent for a linear model or for a network with one hidden layer. In each step, the
gradient of every row is clipped, weighted by the epsilon of the row and rounded to integers. Exact
discrete Gaussian noise is added to the sum. docs/theory/noisy-descent.md bounds the privacy loss of
each row.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin

import convexmarket as cm
from convexmarket import privacy
from convexmarket.privacy.composition import gaussian_shift
from convexmarket.privacy.lattice import (
    LENGTH_ROUNDING,
    MOST_STEPS,
    clipped_steps,
    discrete_gaussian,
)

DEVIATION = 2**36  # standard deviation of the noise in steps; much larger than rounding errors


class NoisyDescent(ClassifierMixin, BaseEstimator):
    """Binary classifier that is trained by noisy gradient descent on a numeric array.

    ``hidden`` is the number of hidden units, or 0 for a linear model. ``max_norm`` is the largest
    distance of the parameters from their initial values. Gradients with a norm above ``clip`` are
    scaled to this norm.
    """

    def __init__(self, hidden=0, *, steps=50, max_norm=10.0, clip=1.0, delta=1e-6, classes=(-1, 1)):
        self.hidden, self.steps, self.max_norm = hidden, steps, max_norm
        self.clip, self.delta, self.classes = clip, delta, classes

    def risk(self, n_features, *, failure_probability=0.05):
        """Return mu and sigma, the weights of spread and noise in the linear model's error bound.

        If the noise in the gradients has variance v in each of d coordinates, the mean excess loss
        over the best model of norm D is at most ``D * sqrt((C**2 + d * v) / T)``.
        """
        reach = self.max_norm * self.clip
        loss, chances = cm.learners.LogisticLoss(), (failure_probability, 0.5)
        mu, _ = cm.learners.lipschitz_risk_constants(loss, *chances, reach, n_features)
        rate = float(gaussian_shift(10.0, self.delta)) / 10.0
        return mu, 2.0 * reach * np.sqrt(self.size(n_features)) / (rate * np.log(2.0))

    def fit(self, X, y, *, epsilon, rows=None, accountant=None, random_state=None):
        """Fit the model to rows with individual epsilons. Rows with epsilon 0 are not read."""
        epsilon = np.broadcast_to(np.asarray(epsilon, dtype=float), len(y))
        used = epsilon > 0
        if np.isinf(epsilon).any():  # only use rows without a privacy limit; noise is not added
            used = np.isinf(epsilon)
        noisy = bool(np.isfinite(epsilon[used]).all())
        radii = self.radii(epsilon[used], self.size(np.shape(X)[1]), noisy)
        self.guarantee_ = cm.Guarantee(
            np.where(used, epsilon, 0.0),
            self.delta,
            f"gradient descent in {self.steps} steps, exact Gaussian noise on a lattice",
            "Gaussian",
            (
                privacy.noise_assumption(random_state, any_noise=noisy),
                f"the label set {tuple(self.classes)} is public",
                "epsilon and all parameters were chosen without looking at the data",
                "the computed gradient of a row does not depend on other rows",
            ),
        )
        charge = privacy.reserve(
            self.guarantee_,
            accountant,
            rows,
            names=X,
            random_state=random_state,
        )
        clipped = np.clip(np.nan_to_num(np.asarray(X, dtype=float)[used]), -1e150, 1e150)
        clipped[np.abs(clipped) < 1e-150] = 0.0  # squares neither underflow nor overflow
        signs = np.where(np.asarray(y)[used] == self.classes[1], 1.0, -1.0)
        rng = privacy.resolve_generator(random_state)
        charge()
        self.coef_ = self.descend(clipped, signs, radii, noisy, rng)
        self.classes_ = np.asarray(self.classes)
        return self

    def decision_function(self, X):
        """Return the margin of each row."""
        return self.margins(np.asarray(X, dtype=float), self.coef_)[0]

    def predict(self, X):
        """Return the label of each row."""
        return self.classes_[(self.decision_function(X) > 0).astype(int)]

    def size(self, n_features):
        """Return the number of parameters."""
        return self.hidden * (n_features + 1) if self.hidden else n_features

    def radii(self, epsilon, size, noisy):
        """Compute the largest permitted norm of each row's integer vector in a step."""
        if not noisy:
            return np.full(epsilon.size, float(DEVIATION))
        deviation = np.sqrt(float(DEVIATION) ** 2 - 9.0)
        shift = gaussian_shift(epsilon, self.delta) * deviation / np.sqrt(self.steps)
        shortened = np.maximum(shift * (1.0 - LENGTH_ROUNDING) - np.sqrt(size), 0.0)
        radii = np.minimum(shortened / 2.0 / (1.0 + LENGTH_ROUNDING), MOST_STEPS / epsilon.size)
        if not radii.any():
            raise cm.errors.ParameterError(
                f"epsilon is at most {epsilon.max():g}, too little for {self.steps} steps of "
                f"{size} parameters; buy more privacy"
            )
        return radii

    def descend(self, X, signs, radii, noisy, rng):
        """Run noisy gradient descent and return the mean of the second half of the iterates."""
        size, total = self.size(X.shape[1]), radii.sum()
        start = rng.normal(size=size) * bool(self.hidden) / np.sqrt(max(self.hidden, 1))
        noise = size * (DEVIATION / total) ** 2 if noisy else 0.0
        pace = self.max_norm / np.sqrt(self.steps * (1.0 + noise))
        parameters, later = start, []
        for step in range(self.steps):
            gradients = self.gradients(X, signs, parameters)
            summed = clipped_steps(gradients, self.clip, radii).sum(axis=0)
            if noisy:
                summed = summed + discrete_gaussian(DEVIATION, size, rng)
            moved = parameters - pace * (summed / total).astype(float) - start
            length = max(float(np.linalg.norm(moved)), 1e-9)
            parameters = start + moved * min(1.0, self.max_norm / length)
            if step >= self.steps // 2:
                later.append(parameters)
        return np.mean(later, axis=0)

    def margins(self, X, parameters):
        """Return the margin of each row and the values of the hidden units."""
        if not self.hidden:
            return X @ parameters, X
        inner, outer = parameters[: -self.hidden], parameters[-self.hidden :]
        units = np.tanh(X @ inner.reshape(self.hidden, -1).T)
        return units @ outer, units

    def gradients(self, X, signs, parameters):
        """Return the gradient of the logistic loss of each row."""
        margins, units = self.margins(X, parameters)
        slopes = (-signs * expit(-signs * margins))[:, None]
        if not self.hidden:
            return slopes * X
        inward = slopes * parameters[-self.hidden :] * (1.0 - units**2)
        return np.hstack([(inward[:, :, None] * X[:, None, :]).reshape(len(X), -1), slopes * units])


# %%
# The audit fits the learner many times on neighbouring data sets and compares the published
# numbers, which are all numbers in attributes with names that end in ``_``:
rng = np.random.default_rng(0)
X, y = np.full((4, 1), 0.5), np.array([1, -1, 1, -1])
corners = ([[1.0], [1.0]], [-1, 1])  # corners of the domain of a row
learner = NoisyDescent(steps=2, delta=1e-3)
print(cm.audit_privacy(learner, X, y, epsilon=2.0, rows=[0], replacements=corners, draws=300))

# %%
# The market uses the mu and sigma that ``risk`` returns. Each class occupies two opposite
# quadrants, so a linear model cannot separate the classes:
prior = cm.Uniform(0.02, 0.10)
people = pd.DataFrame(rng.uniform(-1, 1, (400, 2)), columns=["east", "north"])
people["ask"], people["one"] = prior.sample(400, rng), 1.0
people["inside"] = np.where(people["east"] * people["north"] > 0, 1, -1)
sale = {"ask": "ask", "target": "inside", "prior": prior, "budget": 300}
deal = cm.buy(people, learner=NoisyDescent(8, steps=100, max_norm=30.0), **sale)
accuracy = (deal.model.predict(people[["east", "north", "one"]]) == people["inside"]).mean()
print(f"payments {deal.offers['payment'].sum():.0f}, accuracy {accuracy:.2f}")

# %%
# The plot shows the predicted classes:
fig, ax = plt.subplots(figsize=(4, 4))
predicted = deal.model.predict(people[["east", "north", "one"]])
for label, marker in ((-1, "o"), (1, "x")):
    chosen = people[predicted == label]
    ax.scatter(chosen["east"], chosen["north"], marker=marker, s=10, label=f"class {label}")
ax.set(xlabel="east", ylabel="north")
ax.legend(loc="upper right")
fig.tight_layout()
