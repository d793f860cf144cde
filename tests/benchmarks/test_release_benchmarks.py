"""Releases of predictions."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.privacy import Simulation
from convexmarket.studies.subproblems.models import fit
from tests.benchmarks.timing import ratio, seconds
from tests.release.test_semi_interactive import fit_coefficients

N_ROWS = 20_000
TERMS = {"epsilon": 1.0, "delta": 1e-6}
SEED = Simulation(0)


@cache
def model() -> cm.KernelERM:
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (N_ROWS, 2))
    return cm.KernelERM(regularization=0.1, data_norm=1.0).fit(X, np.where(X[:, 0] > 0.1, 1, -1))


def questions(n_points: int) -> np.ndarray:
    return np.random.default_rng(1).uniform(-0.7, 0.7, (n_points, 2))


@pytest.mark.parametrize("threshold", ["usual", "zero"])
def test_a_thousand_sequential_queries_are_answered(benchmark, threshold) -> None:
    """Measure 1,000 sequential queries with the default threshold and 200 with threshold 0."""
    erm, X = model(), questions(1000)
    limits = {"max_queries": 1000, "max_updates": 200 if threshold == "zero" else 10}
    custom = 0.0 if threshold == "zero" else None
    X = X[: limits["max_updates"]] if threshold == "zero" else X

    def ask():
        release = cm.InteractiveRelease(erm, **TERMS, **limits, threshold=custom, random_state=SEED)
        for x in X:
            release.predict(x)
        return release

    release = benchmark.pedantic(ask, rounds=3, warmup_rounds=1)
    benchmark.extra_info["updates"] = release.spent.updates
    benchmark.extra_info["ms per question"] = 1e3 * seconds(ask) / len(X)
    assert release.spent.queries == len(X)


@pytest.mark.parametrize("n_points", [50, 500])
def test_the_exact_fit_attains_the_optimum_of_a_solver(benchmark, n_points) -> None:
    """Measure the fit of a function to noisy predictions."""
    X = questions(n_points)
    gram = model().kernel_(X, X)
    noisy = np.random.default_rng(2).laplace(size=n_points)
    benchmark.pedantic(lambda: fit_coefficients(gram, noisy, 1.0), rounds=5, warmup_rounds=1)

    def solve():
        problem, place, _ = fit(gram, np.array([noisy, noisy]), 1.0).declare("primal")
        place(noisy)
        problem.solve(solver="CLARABEL")
        return problem

    exact = ratio(solve, lambda: fit_coefficients(gram, noisy, 1.0), rounds=5)
    benchmark.extra_info["CLARABEL / exact"] = exact
    value = ((gram @ fit_coefficients(gram, noisy, 1.0) - noisy) ** 2).sum()
    assert value == pytest.approx(solve().value, rel=1e-6)


@pytest.mark.parametrize("noise", ["laplace", "process"])
def test_a_thousand_points_are_released(benchmark, noise) -> None:
    """Measure a release of predictions at 1,000 public points."""
    erm, X = model(), questions(1000)
    release = benchmark.pedantic(
        lambda: cm.TestSetRelease(erm, X, **TERMS, noise=noise, random_state=SEED), rounds=3
    )
    benchmark.extra_info["scale"] = release.scale
    assert release.noisy_predictions.shape == (1000,)


def test_fifty_rounds_on_a_net_are_released(benchmark) -> None:
    """Measure 50 rounds of a public release on a net."""
    erm = model()
    release = benchmark.pedantic(
        lambda: cm.release.PublicRelease(
            erm, **TERMS, rounds=50, net_radius=0.0057, random_state=SEED
        ),
        rounds=3,
    )
    benchmark.extra_info["net"] = release.net_size
    benchmark.extra_info["error bound"] = release.error_bound
    assert 40_000 < release.net_size < 60_000


@pytest.mark.parametrize("batch", [1, 1000])
def test_a_released_function_answers_batches_of_queries(benchmark, batch) -> None:
    """Measure 1,000 predictions of a released function in batches."""
    erm, X = model(), questions(1000)

    def ask():
        release = cm.release.FunctionRelease(erm, **TERMS, random_state=SEED)
        return np.concatenate([release.predict(part) for part in np.split(X, 1000 // batch)])

    assert benchmark.pedantic(ask, rounds=2).shape == (1000,)
