"""Private logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from convexmarket.data.datasets import scale_rows
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.privacy import Simulation
from tests.benchmarks.timing import ratio

N_ROWS, N_FEATURES = 100_000, 50


def problem(design: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N_ROWS, N_FEATURES))
    if design == "correlated":
        X = X @ (rng.standard_normal((N_FEATURES, N_FEATURES)) * np.logspace(0, -2, N_FEATURES))
    X = scale_rows(X / np.median(np.linalg.norm(X, axis=1)))
    return X, np.where(rng.random(N_ROWS) < expit(8 * X @ rng.standard_normal(N_FEATURES)), 1, -1)


@pytest.mark.parametrize("design", ["independent", "correlated"])
@pytest.mark.parametrize("regularization", [1e-1, 1e-2, 1e-3, 1e-4])
def test_a_private_logistic_fit_has_a_tiny_gradient(benchmark, design, regularization) -> None:
    """Measure a fit of 10^5 rows with 50 features, relative to lbfgs of scikit-learn."""
    X, y = problem(design)
    reference = LogisticRegression(
        solver="lbfgs",
        tol=1e-9,
        max_iter=10_000,
        fit_intercept=False,
        C=1 / (regularization * N_ROWS),
    )
    private = PrivateLogisticRegression(regularization)
    benchmark.pedantic(
        lambda: private.fit(X, y, epsilon=1e4 / len(X), random_state=Simulation(0)),
        rounds=5,
        warmup_rounds=1,
    )
    times = ratio(
        lambda: private.fit(X, y, epsilon=1e4 / len(X), random_state=Simulation(0)),
        lambda: reference.fit(X, y),
        rounds=9,
    )
    w = reference.coef_[0]
    gradient = regularization * w - X.T @ (y * expit(-y * (X @ w))) / N_ROWS
    benchmark.extra_info["/ lbfgs"] = times
    benchmark.extra_info["gradient norm"] = private.gradient_norm_
    benchmark.extra_info["lbfgs' gradient norm"] = float(np.linalg.norm(gradient))
    assert private.gradient_norm_ <= 1e-9
