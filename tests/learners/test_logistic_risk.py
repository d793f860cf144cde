"""Test that the bounds on errors and norms hold and are nearly attained."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import expit

import convexmarket as cm
from convexmarket.errors import ParameterError
from convexmarket.privacy import Simulation
from tests.learners.builders import algorithm_1
from tests.learners.test_logistic import drawn_shift
from tests.papers.risk import logistic_norm_bound, logistic_risk_constants, printed_risk_constants

CHANCES = st.floats(1e-6, 0.999)


def test_constants_paper_equal_the_printed_formulas():
    delta, delta_prime, beta, n_features = 0.02, 0.1, 1.7, 6
    mu, sigma = printed_risk_constants(delta, delta_prime, beta, n_features)
    log_term = 3 * np.log(1 / delta) / np.sqrt(2)
    assert mu == pytest.approx(log_term * np.log(1 + np.exp(beta)) + beta / np.log(2))
    t = sigma / ((2 * log_term + 1) * 2 * beta)
    terms = [(t / 2) ** i / np.prod(np.arange(1, i + 1)) for i in range(n_features)]
    assert sum(terms) * np.exp(-t / 2) == pytest.approx(delta_prime, rel=1e-10)


def test_the_noise_quantile_equals_a_simulation():
    """Check that the norm of eta * b' exceeds the quantile with probability delta'."""
    _, sigma = logistic_risk_constants(0.5, 0.2, 1.0, 4)
    norms = [np.linalg.norm(drawn_shift(seed, 4, 3.0)) * 3.0 for seed in range(2000)]
    assert np.mean(np.array(norms) > sigma * np.log(2)) == pytest.approx(0.2, abs=0.03)


@given(CHANCES, CHANCES, st.floats(1e-3, 1e3), st.integers(1, 50))
def test_the_proven_constants_are_below_those_of_a_contraction(delta, other, beta, n):
    mu, sigma = logistic_risk_constants(delta, other, beta, n)
    assert mu <= beta * (2 + np.sqrt(np.log(1 / delta) / 2)) / np.log(2)
    printed = printed_risk_constants(delta, other, beta, n)
    assert sigma < printed[1]
    if delta <= 0.43 and beta <= 1:
        assert mu < printed[0]


@pytest.mark.parametrize("beta", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_deviation_of_fair_coins_nearly_attains_the_bound(beta, seed):
    """For coin flips as rows, the largest deviation over w is beta * |1/2 - rate of heads|."""
    rng = np.random.default_rng(seed)
    weights = rng.dirichlet(np.full(60, 2.0))
    heads = (rng.random((20_000, 60)) < 0.5) @ weights
    excess = beta * np.abs(heads - 0.5) / np.log(2)
    mu, _ = logistic_risk_constants(0.05, 0.05, beta, 1)
    bound = mu * np.linalg.norm(weights)
    assert np.mean(excess > bound) <= 0.05
    reached = np.quantile(excess, 0.95) / bound
    assert reached > (0.5 if beta < 1 else 0.35)


@pytest.mark.parametrize(("eta", "least"), [(0.3, 0.045), (30.0, 0.0)])
def test_the_deviation_with_noise_exceeds_the_bound_as_rarely_as_stated(eta, least):
    """Check that the bound fails with a probability just below delta' if noise dominates."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.full(60, 2.0))
    heads = (rng.random((20_000, 60)) < 0.5) @ weights
    noise = rng.gamma(1.0, 2.0 / eta, 20_000) * rng.choice([-1.0, 1.0], 20_000)
    mu, sigma = logistic_risk_constants(0.05, 0.05, 1.0, 1)
    over = np.abs(heads - 0.5 + noise) / np.log(2) > mu * np.linalg.norm(weights) + sigma / eta
    assert least <= np.mean(over) <= 0.1


def test_the_error_bound_exceeds_the_true_error_of_released_models():
    """Compute the true errors of 60 fits with unequal weights by a sum over four kinds of rows."""
    kinds = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    heads = expit(8.0 * kinds[:, 0])
    missed, message = 0, []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        drawn = rng.integers(4, size=3000)
        y = np.where(rng.random(3000) < heads[drawn], 1, -1)
        granted = rng.gamma(2.0, size=3000)
        learner = algorithm_1(regularization=0.05)
        learner.fit(kinds[drawn], y, epsilon=granted, random_state=Simulation(seed))
        w, weights, eta = learner.coef_, granted / granted.sum(), learner.eta_
        losses = np.logaddexp(0.0, -y * (kinds[drawn] @ w))
        objective = weights @ losses + drawn_shift(seed, 2, eta) @ w
        beta = logistic_norm_bound(0.05, eta, 2)
        mu, sigma = logistic_risk_constants(0.05, 0.05, beta, 2)
        bound = objective / np.log(2) + mu * np.linalg.norm(weights) + sigma / eta
        scores = kinds @ w
        wrong = np.where(scores > 0, 1 - heads, heads).mean()
        missed += wrong > bound
        message.append(bound >= 1.0)
    assert missed <= stats.binom.isf(1e-6, 60, 0.1)
    assert not any(message)


def test_the_worst_rows_attain_the_norm_bound():
    """Check that identical rows attain the bound at the maximum of z / (1 + e^z)."""
    z = 1.2784645427610738
    regularization = expit(-z) / z
    learner = cm.PrivateLogisticRegression(regularization, solver_epsilon=None)
    learner.fit([[1.0]] * 3, [1] * 3, epsilon=np.inf, random_state=Simulation(0))
    bound = logistic_norm_bound(regularization, np.inf, 1)
    assert abs(learner.coef_[0]) == pytest.approx(bound, rel=1e-6)


@given(st.floats(1e-3, 10), st.floats(1, 1e4), st.integers(0, 10**6))
def test_norms_exceed_their_bound_as_rarely_as_stated(regularization, eta, seed):
    """Check that the model satisfies the bound if the noise does not exceed its quantile."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(4, 3))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True) * (1 + 1e-12)
    learner = algorithm_1(regularization=regularization)
    learner.fit(rows, [1, 1, -1, 1], epsilon=eta / 4, random_state=Simulation(seed))
    length = np.linalg.norm(drawn_shift(seed, 3, learner.eta_))
    chance = stats.gamma.sf(length * learner.eta_ / 2, 3)
    bound = logistic_norm_bound(regularization, learner.eta_, 3, float(chance))
    assert np.linalg.norm(learner.coef_) <= bound * (1 + 1e-6)


@pytest.mark.parametrize("wrong", [(0, 0.5, 1, 1), (0.5, 1.5, 1, 1), (0.5, 0.5, 0, 1)])
def test_arguments_out_of_range_are_refused(wrong):
    with pytest.raises(ParameterError):
        logistic_risk_constants(*wrong)
