"""The joint problem."""

from functools import partial

import numpy as np
import pytest

import convexmarket as cm
from tests.benchmarks.timing import ratio


def problem(m, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, n))
    X /= np.linalg.norm(X, axis=1).max()
    y = np.where(X @ rng.normal(size=n) + 0.1 * rng.normal(size=m) > 0, 1.0, -1.0)
    prior = cm.Uniform(0.02, 0.1)
    sellers = cm.Sellers(prior.sample(m, rng), prior)
    objective = 1.0 * cm.Spread() + 100 * cm.Noise() + 0.001 * cm.Payments()
    return cm.JointMarket(cm.Market(sellers, objective), X, y, regularization=0.01)


def test_a_start_with_many_sellers_is_stationary(benchmark):
    """Measure one start of the joint problem with 10^5 sellers and 50 features."""
    joint = problem(100_000, 50)
    result = benchmark.pedantic(cm.allocate_jointly, (joint,), {"starts": 1}, rounds=1)
    benchmark.extra_info["solves"] = len(result.solves)
    assert result.residual <= 1e-9


@pytest.mark.parametrize("m", [500, 5000])
def test_exact_and_conic_purchases_lead_to_the_same_objective(benchmark, m):
    """Measure four rounds of exact steps for weights and model, relative to a conic solver."""
    exact = partial(cm.allocate_jointly, problem(m, 10), starts=1, max_iterations=4)
    conic = partial(exact, solver="CLARABEL")
    result = benchmark(exact)
    benchmark.extra_info["conic / exact"] = ratio(conic, exact, rounds=3)
    assert result.objective == pytest.approx(conic().objective, rel=1e-6)
