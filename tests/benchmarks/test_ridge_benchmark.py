"""Private ridge regression."""

import tracemalloc

import numpy as np
import pytest
from sklearn.linear_model import Ridge

import convexmarket as cm
from convexmarket.privacy import Simulation

N_ROWS, N_FEATURES = 1_000_000, 50


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.random((N_ROWS, N_FEATURES))
    y = np.clip(X @ rng.normal(size=N_FEATURES) / N_FEATURES, -1.0, 1.0)
    return X, y, rng.uniform(0.1, 1.0, N_ROWS)


def fit_private(X, y, epsilon):
    return cm.PersonalizedRidge(1.0).fit(X, y, epsilon=epsilon, random_state=Simulation(0))


def fit_sklearn(X, y, epsilon):
    return Ridge(alpha=1.0, fit_intercept=False, solver="cholesky").fit(
        X, y, sample_weight=epsilon / epsilon.sum()
    )


FITS = {"private": fit_private, "scikit-learn": fit_sklearn}


@pytest.mark.parametrize("fit", FITS)
def test_a_private_fit_of_a_million_rows_is_timed(benchmark, rows, fit):
    """Measure a fit of 10^6 rows with 50 features, relative to scikit-learn's weighted Ridge."""
    (X, y, epsilon), fit = rows, FITS[fit]
    tracemalloc.start()
    fit(X, y, epsilon)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    benchmark.extra_info["peak memory / data"] = round(peak / X.nbytes, 3)
    benchmark.pedantic(fit, args=(X, y, epsilon), rounds=5, warmup_rounds=1)
