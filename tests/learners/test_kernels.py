"""Test that kernels agree with scikit-learn and that their bounds hold on the domain."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics.pairwise import linear_kernel, pairwise_kernels, polynomial_kernel

from convexmarket.data.datasets import scale_rows
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners.predictor import NAMES, Kernel, cholesky_features

RADIUS = 1.7
POLY = {"gamma": 0.6, "degree": 4, "coef0": 0.5, "data_norm": RADIUS}
KERNELS = {
    "linear": Kernel("linear", data_norm=RADIUS),
    "poly": Kernel("poly", **POLY),
    "rbf": Kernel("rbf", gamma=0.8, data_norm=RADIUS),
    "laplacian": Kernel("laplacian", gamma=0.8, data_norm=RADIUS),
    "cosine": Kernel("cosine", data_norm=RADIUS),
}


def rows(seed: int, n_rows: int, n_features: int) -> np.ndarray:
    """Draw rows in the ball of radius RADIUS, including a zero row and many rows on the sphere."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_rows, n_features)) * RADIUS
    X *= rng.choice([0.1, 1.0, 10.0], n_rows)[:, None]
    norms = np.linalg.norm(X, axis=1)[:, None]
    X = np.where(norms > RADIUS, X * RADIUS / norms, X)
    X[0] = 0.0
    return X


@given(
    seed=st.integers(0, 10**6), n_features=st.sampled_from([1, 2, 8]), name=st.sampled_from(NAMES)
)
def test_features_exist_and_satisfy_the_norm_bound(seed, n_features, name) -> None:
    X, kernel = rows(seed, 25, n_features), KERNELS[name]
    gram = kernel(X, X)
    options = {"gamma": kernel.gamma, "degree": kernel.degree, "coef0": kernel.coef0}
    expected = pairwise_kernels(X, metric=name, filter_params=True, **options)
    np.testing.assert_allclose(gram, expected, rtol=1e-12, atol=1e-13)
    values = np.linalg.eigvalsh(gram)
    assert values[0] >= -1e-13 * max(1.0, values[-1])
    kernel.check_domain(X, "X")
    longest = np.sqrt(kernel.diagonal(X).max())
    assert longest <= kernel.feature_bound * (1 + 1e-12)
    edge = np.eye(n_features)[:1] * RADIUS
    assert np.sqrt(kernel.diagonal(edge)) == pytest.approx(kernel.feature_bound, rel=1e-14)


def test_a_negative_coef0_gives_an_indefinite_kernel() -> None:
    """Check that a kernel matrix of three rows has a negative eigenvalue."""
    X = np.array([[0.0], [0.5], [1.0]])
    gram = polynomial_kernel(X, X, degree=3, gamma=1.0, coef0=-0.5)
    assert np.linalg.eigvalsh(gram)[0] < -0.01
    with pytest.raises(ParameterError, match=r"coef0 must be a finite number >= 0, got -0\.5"):
        Kernel("poly", coef0=-0.5, data_norm=1.0)


LIPSCHITZ = {
    "linear": KERNELS["linear"],
    "rbf": KERNELS["rbf"],
    "sharp rbf": Kernel("rbf", gamma=300.0),
    "poly": KERNELS["poly"],
    "even": Kernel("poly", gamma=3.0, degree=2, coef0=0.0, data_norm=RADIUS),
    "affine": Kernel("poly", gamma=2.0, degree=1, coef0=0.0, data_norm=RADIUS),
}


def speeds(kernel: Kernel, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Compute the ratio of feature distance to row distance for each pair of distinct rows."""
    apart = np.linalg.norm(X - Y, axis=1) > 1e-9
    X, Y = X[apart], Y[apart]
    squares = kernel.diagonal(X) + kernel.diagonal(Y) - 2 * np.diag(kernel(X, Y))
    return np.sqrt(np.maximum(squares, 0.0)) / np.linalg.norm(X - Y, axis=1)


@pytest.mark.parametrize("name", LIPSCHITZ)
@pytest.mark.parametrize("n_features", [1, 3])
def test_features_satisfy_the_stated_lipschitz_constant(name, n_features) -> None:
    kernel, rng = LIPSCHITZ[name], np.random.default_rng(0)
    X, Y = rows(0, 400, n_features)[1:], rows(1, 400, n_features)[1:]
    nudge = rng.standard_normal(X.shape)
    nudge *= 2e-4 / np.linalg.norm(nudge, axis=1)[:, None]
    near = scale_rows(X + nudge, RADIUS)
    edge = X * RADIUS / np.linalg.norm(X, axis=1)[:, None]
    result = np.concatenate(
        [speeds(kernel, X, Y), speeds(kernel, X, near), speeds(kernel, edge, edge * (1 - 1e-4))]
    )
    # a squared distance of 1e-8 has a rounding error of 1e-16
    assert result.max() <= kernel.feature_lipschitz * (1 + 1e-5)
    assert result.max() >= 0.998 * kernel.feature_lipschitz


@pytest.mark.parametrize("name", ["laplacian", "cosine"])
def test_kernels_without_a_lipschitz_constant_raise_an_error(name) -> None:
    with pytest.raises(NotSupportedError, match=f"kernel '{name}' have no known Lipschitz"):
        _ = KERNELS[name].feature_lipschitz
    at, near = np.full((1, 1), 1e-8), np.full((1, 1), 4e-8 if name != "cosine" else -1e-8)
    assert speeds(KERNELS[name], at, near)[0] > 1e3


@given(
    seed=st.integers(0, 10**6),
    n_rows=st.sampled_from([1, 2, 15, 40]),
    name=st.sampled_from(NAMES),
    repeated=st.sampled_from([1, 3]),
    log_tolerance=st.floats(-18, 1),
)
def test_the_factor_and_its_residuals_reproduce_the_kernel_matrix(
    seed, n_rows, name, repeated, log_tolerance
) -> None:
    X, kernel = np.repeat(rows(seed, n_rows, 3), repeated, axis=0), KERNELS[name]
    rng, tolerance = np.random.default_rng(seed), 10.0**log_tolerance
    X = X[rng.permutation(len(X))]
    weights = rng.dirichlet(np.ones(len(X)))
    pivots, G, residuals = cholesky_features(kernel, X, weights, tolerance)
    scale = kernel.feature_bound**2
    rest = kernel(X, X) - G @ G.T
    assert G.shape == (len(X), len(pivots))
    assert len(set(pivots)) == len(pivots)
    if tolerance >= 1e-5:  # rounding errors can separate duplicates at small tolerances
        assert len(pivots) <= n_rows
    assert np.abs(np.diag(rest) - residuals).max() <= 1e-13 * scale
    assert np.linalg.eigvalsh(rest)[0] >= -1e-11 * scale
    assert np.all(residuals >= 0)
    assert np.all(residuals[pivots] == 0)
    if len(pivots):
        triangle = G[pivots]
        assert np.array_equal(triangle, np.tril(triangle))
        assert np.all(np.diag(triangle) > 0)
    check_stop(kernel, X, weights, tolerance, G, residuals)


def check_stop(kernel, X, weights, tolerance, G, residuals) -> None:
    """Check that the factorisation stopped as soon as its error satisfied the tolerance."""
    floor = 4 * np.finfo(float).eps * kernel.diagonal(X).max()
    assert weights @ np.sqrt(residuals) <= tolerance or residuals.max() <= floor
    if G.shape[1]:
        before = kernel.diagonal(X) - np.einsum("ij,ij->i", G[:, :-1], G[:, :-1])
        before = np.maximum(before, 0.0)
        assert weights @ np.sqrt(before) > tolerance * (1 - 1e-6) - 1e-7
        assert before.max() > 0


@pytest.mark.parametrize("name", NAMES)
def test_the_error_counts_rows_outside_the_ball(name) -> None:
    X = rows(0, 10, 3)
    X[2:4] = [[RADIUS, RADIUS, 0.0], [0.0, 0.0, RADIUS * (1 + 1e-9)]]
    with pytest.raises(
        DataError, match=r"2 of 10 rows of the questions are longer than data_norm = 1\.7"
    ):
        KERNELS[name].check_domain(X, "the questions")
    X[3, 2] = RADIUS * (1 + 1e-13)
    X[2] = 0.0
    KERNELS[name].check_domain(X, "X")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "gauss"}, "kernel must be one of .*got 'gauss'"),
        ({"name": "sigmoid"}, "kernel must be one of"),
        ({"name": linear_kernel}, "kernel must be one of"),
        ({"gamma": 0.0}, "gamma must be a finite number > 0, got 0.0"),
        ({"gamma": np.nan}, "gamma"),
        ({"degree": 0}, "degree must be a whole number >= 1, got 0"),
        ({"coef0": -1e-9}, "coef0 must be a finite number >= 0"),
        ({"coef0": np.inf}, "coef0"),
        ({"data_norm": 0.0}, "data_norm must be a finite number > 0, got 0.0"),
    ],
)
def test_errors_name_invalid_parameters(arguments, words) -> None:
    with pytest.raises(ParameterError, match=words):
        Kernel(**({"name": "rbf"} | arguments))
