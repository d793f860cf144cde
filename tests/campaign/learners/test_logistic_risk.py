"""Test the risk bound of logistic regression for worst-case models in higher dimensions."""

import numpy as np
import pytest
from scipy.optimize import minimize

from tests.papers.risk import logistic_risk_constants


@pytest.mark.parametrize("beta", [0.3, 3.0])
@pytest.mark.parametrize("eta", [3.0, 100.0, np.inf])
@pytest.mark.parametrize("n", [1, 4])
def test_the_worst_model_of_every_draw_satisfies_the_bound(beta, eta, n):
    """The rows are unit vectors with random labels, and a search maximises the overfitting."""
    rng = np.random.default_rng(0)
    mu, sigma = logistic_risk_constants(0.05, 0.05, beta, n)
    weights = rng.dirichlet(np.full(80, 2.0))
    bound = mu * np.linalg.norm(weights) + sigma / eta
    excess = []
    for _ in range(400):
        rows = np.eye(n)[rng.integers(n, size=80)] * rng.choice([-1.0, 1.0], (80, 1))
        shift = rng.normal(size=n)
        shift *= 2.0 / eta * rng.gamma(n) / np.linalg.norm(shift)

        def short(u):
            length = np.linalg.norm(u)
            return u * (beta * np.tanh(length) / max(length, 1e-300))

        def lost(u, rows=rows, shift=shift):
            w = short(u)
            true = np.mean([np.logaddexp(0, -w), np.logaddexp(0, w)])
            return weights @ np.logaddexp(0, -rows @ w) + shift @ w - true

        lucky = weights @ rows - 2.0 * shift
        starts = [
            lucky / np.linalg.norm(lucky) * 4.0,
            -4.0 * shift / np.linalg.norm(shift + 1e-300),
        ]
        excess.append(-min(minimize(lost, start).fun for start in starts) / np.log(2))
    assert np.mean(np.array(excess) > bound) <= 0.1
    print(f"beta {beta}, eta {eta}, n {n}: 90 % quantile / bound", np.quantile(excess, 0.9) / bound)
    assert np.quantile(excess, 0.9) > 0.25 * bound
