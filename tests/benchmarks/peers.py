"""Compare private learners and accounts with diffprivlib and dp-accounting.

``python -m tests.benchmarks.peers`` prints the tables of docs/compare.md. It requires
``pip install diffprivlib "scikit-learn<1.7"``. The tests do not require these packages.
"""

from __future__ import annotations

import time
import warnings

import numpy as np
import pandas as pd
from sklearn.datasets import make_friedman1
from sklearn.tree import _tree

import convexmarket as cm
from tests.privacy.builders import SEQUENCES, admitted, most_admitted

# The forests of diffprivlib 0.6.6 import names that newer versions of scikit-learn do not have.
for _name in ("DOUBLE", "DTYPE"):
    setattr(_tree, _name, getattr(_tree, _name, np.float64))


def medians(samples: dict[str, list[float]]) -> dict[str, float]:
    """Compute the median of each list of measurements."""
    return {name: float(np.median(sample)) for name, sample in samples.items()}


def classification(draws: int = 20) -> pd.DataFrame:
    """Compute the median percentage of misclassified rows of wdbc with default settings."""
    from diffprivlib.models import LogisticRegression

    rows = []
    for epsilon in (0.3, 1.0, 3.0, 10.0):
        errors: dict[str, list[float]] = {"convexmarket": [], "diffprivlib": []}
        for draw in range(draws):
            data = cm.datasets.wdbc(random_state=draw)
            ours = cm.PrivateLogisticRegression(regularization="auto", data_norm=1.0)
            ours.fit(
                data.X_train,
                data.y_train,
                epsilon=epsilon,
                random_state=cm.privacy.Simulation(draw),
            )
            theirs = LogisticRegression(
                epsilon=epsilon, data_norm=1.0, fit_intercept=False, random_state=draw
            ).fit(data.X_train, data.y_train)
            for name, model in (("convexmarket", ours), ("diffprivlib", theirs)):
                errors[name].append(100 * (model.predict(data.X_test) != data.y_test).mean())
        rows.append(
            {"epsilon": epsilon, **{name: np.median(each) for name, each in errors.items()}}
        )
    return pd.DataFrame(rows).round(1)


def regression(draws: int = 10) -> pd.DataFrame:
    """Compute the median squared test error divided by the label variance on Friedman data."""
    from diffprivlib.models import LinearRegression

    X, y = make_friedman1(12_500, 10, noise=1.0, random_state=0)
    train, test = (X[:10_000], y[:10_000]), (X[10_000:], y[10_000:])
    low, high = float(y.min()), float(y.max())
    rows = []
    for epsilon in (0.3, 1.0, 3.0, 10.0):
        errors: dict[str, list[float]] = {"convexmarket": [], "diffprivlib": []}
        for draw in range(draws):
            ours = cm.PersonalizedRidge(feature_range=(0.0, 1.0), target_range=(low, high))
            ours.fit(*train, epsilon=epsilon, random_state=cm.privacy.Simulation(draw))
            theirs = LinearRegression(
                epsilon=epsilon, bounds_X=(0.0, 1.0), bounds_y=(low, high), random_state=draw
            ).fit(*train)
            for name, model in (("convexmarket", ours), ("diffprivlib", theirs)):
                errors[name].append(
                    np.mean((model.predict(test[0]) - test[1]) ** 2) / test[1].var()
                )
        rows.append(
            {"epsilon": epsilon, **{name: np.median(each) for name, each in errors.items()}}
        )
    return pd.DataFrame(rows).round(2)


def seconds(repeats: int = 7) -> pd.DataFrame:
    """Measure the median time in milliseconds of a logistic fit to 10^4 rows with 10 features."""
    from diffprivlib.models import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 10))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    y = np.where(X[:, 0] + 0.1 * rng.normal(size=len(X)) > 0, 1, -1)
    fits = {
        "convexmarket": lambda: cm.PrivateLogisticRegression(0.01).fit(
            X, y, epsilon=1.0, random_state=cm.privacy.Simulation(0)
        ),
        "diffprivlib": lambda: LogisticRegression(
            epsilon=1.0, data_norm=1.0, C=0.01, fit_intercept=False
        ).fit(X, y),
    }
    times: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(repeats):
        for name, fit in fits.items():
            start = time.perf_counter()
            fit()
            times[name].append(1e3 * (time.perf_counter() - start))
    return pd.DataFrame([medians(times)]).round(1)


def releases() -> pd.DataFrame:
    """Count the releases that an account and the PLD accountant of dp-accounting admit."""
    rows = []
    for name, (epsilon, delta, _, sequence) in SEQUENCES.items():
        count = admitted(sequence, epsilon, delta)
        largest = most_admitted(sequence, epsilon, delta, count)
        rows.append({"releases": name, "convexmarket": count, "dp-accounting": largest})
    return pd.DataFrame(rows)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for table in (classification, regression, seconds, releases):
        print(f"{(table.__doc__ or '').removeprefix('Return ')}\n")
        print(table().to_string(index=False), "\n", flush=True)
