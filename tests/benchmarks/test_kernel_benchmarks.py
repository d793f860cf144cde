"""Models with kernels."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from convexmarket.data.datasets import scale_rows
from convexmarket.learners import KernelERM
from tests.benchmarks.timing import ratio
from tests.learners.builders import declared_kernel_erm

REGULARIZATION = 0.01


def problem(n_rows: int, n_features: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = scale_rows(rng.standard_normal((n_rows, n_features)) / np.sqrt(n_features))
    margins = np.sin(4 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(n_rows)
    return X, np.where(margins > 0, 1, -1)


def dense_newton(gram: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Minimise the logistic risk over the kernel coefficients of all rows, without a low rank.

    The gradient in the RKHS vanishes where ``beta = y * expit(-y * f) / (n * lambda)``.
    """
    n_rows = len(y)
    beta = np.zeros(n_rows)
    for _ in range(30):
        f = gram @ beta
        residual = beta - y * expit(-y * f) / (n_rows * REGULARIZATION)
        if np.linalg.norm(residual) < 1e-10:
            break
        root = np.sqrt(expit(f) * expit(-f) / (n_rows * REGULARIZATION))
        inner = root[:, None] * gram * root + np.eye(n_rows)
        right = root * (gram @ residual)
        beta = beta - residual + root * cho_solve(cho_factor(inner), right)
    return beta


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("gamma", [0.3, 3.0])
def test_a_kernel_fit_attains_the_optimum_of_its_declaration(benchmark, loss, gamma) -> None:
    """Measure a fit of 150 rows, relative to a solution with CVXPY."""
    X, y = problem(150)
    erm = KernelERM(loss, regularization=REGULARIZATION, gamma=gamma)
    benchmark.pedantic(lambda: erm.fit(X, y), rounds=5, warmup_rounds=1)

    def declared() -> float:
        return float(declared_kernel_erm(erm, X, y).solve(solver=cp.CLARABEL))

    times = ratio(lambda: erm.fit(X, y), declared, rounds=3)
    f = erm.decision_function(X)
    losses = np.logaddexp(0, -y * f) if loss == "logistic" else np.maximum(0, 1 - y * f)
    value = losses.mean() + REGULARIZATION / 2 * erm.norm_**2
    gap = REGULARIZATION / 2 * erm.prediction_error_**2
    benchmark.extra_info["/ CVXPY"] = times
    benchmark.extra_info["objective less CVXPY's"] = value - declared()
    benchmark.extra_info["rank"] = len(erm.pivots_)
    assert value <= declared() + gap + 1e-6


@pytest.mark.parametrize("gamma", [0.03, 0.3])
def test_a_low_rank_fit_equals_newtons_method_at_full_rank(benchmark, gamma) -> None:
    """Measure a fit of 1500 rows, relative to Newton's method with all kernel coefficients."""
    X, y = problem(1500)
    erm = KernelERM("logistic", regularization=REGULARIZATION, gamma=gamma)
    benchmark.pedantic(lambda: erm.fit(X, y), rounds=5, warmup_rounds=1)

    def dense() -> np.ndarray:
        gram = erm.kernel_(X, X)
        return gram @ dense_newton(gram, y)

    times = ratio(lambda: erm.fit(X, y), dense, rounds=3)
    off = np.abs(erm.decision_function(X) - dense()).max()
    benchmark.extra_info["/ Newton"] = times
    benchmark.extra_info["rank"] = len(erm.pivots_)
    benchmark.extra_info["off"] = off
    assert off <= erm.prediction_error_ + 1e-8


def test_a_linear_kernel_equals_newton_cholesky(benchmark) -> None:
    """Measure a linear-kernel fit to 50,000 rows, relative to scikit-learn's newton-cholesky."""
    X, y = problem(50_000, 20)
    erm = KernelERM("logistic", "linear", REGULARIZATION, data_norm=1.0)
    reference = LogisticRegression(
        C=1 / (REGULARIZATION * len(X)), fit_intercept=False, solver="newton-cholesky", tol=1e-10
    )
    benchmark.pedantic(lambda: erm.fit(X, y), rounds=5, warmup_rounds=1)
    times = ratio(lambda: erm.fit(X, y), lambda: reference.fit(X, y), rounds=5)
    off = np.abs(erm.decision_function(X) - reference.decision_function(X)).max()
    benchmark.extra_info["/ newton-cholesky"] = times
    benchmark.extra_info["off"] = off
    assert off <= erm.prediction_error_ + 1e-8
