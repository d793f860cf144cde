"""Test margins of separable rows, and error bounds for many sellers (A, IV.5; B, 3.4)."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaincinv

import convexmarket as cm
from tests.papers.risk import logistic_risk_constants
from tests.papers.separable import (
    loss_limit,
    separable_budget,
    separable_error_bound,
    separable_limit,
    separable_tail,
    separation_margin,
)

LN2 = np.log(2)


def rows(m, rng, margin=0.3):
    """Draw rows from the unit disc that have a minimum distance from the line through (1, -1)."""
    X = rng.normal(size=(4 * m + 100, 2))
    X *= (np.sqrt(rng.uniform(size=len(X))) / np.linalg.norm(X, axis=1))[:, None]
    X = X[np.abs(X @ [1, 1]) / np.sqrt(2) >= margin][:m]
    return X, np.sign(X @ [1, 1])


@pytest.mark.parametrize("m", [1, 2, 7, 60])
def test_the_margin_equals_that_of_the_best_direction(m):
    rng = np.random.default_rng(m)
    angles = np.linspace(0, 2 * np.pi, 20_001)
    directions = np.stack([np.cos(angles), np.sin(angles)])
    for flipped in (0, 1):
        X, y = rows(m, rng)
        y[: flipped * (m > 2)] *= -1
        best = (y[:, None] * (X @ directions)).min(axis=0).max()
        assert separation_margin(10 * X, y) == pytest.approx(10 * max(best, 0), abs=1e-3)


def test_inseparable_rows_have_margin_zero():
    assert separation_margin([[1.0, 0.0], [1.0, 0.0]], [1, -1]) == 0
    assert separation_margin([[0.0]], [1]) == 0


def trained(X, y, weights, noise, beta):
    """Minimise the perturbed loss over the ball of radius beta."""

    def objective(w):
        z = y * (X @ w)
        slope = -(weights * y / (1 + np.exp(z))) @ X
        return weights @ np.logaddexp(0, -z) + noise @ w, slope + noise

    ball = {"type": "ineq", "fun": lambda w: beta**2 - w @ w, "jac": lambda w: -2 * w}
    return minimize(objective, np.zeros(2), jac=True, method="SLSQP", constraints=[ball]).x


@pytest.mark.parametrize("online", [False, True])
def test_the_bound_holds_after_exact_and_online_purchases(online):
    rng = np.random.default_rng(8)
    m, beta, gamma, prior = 20_000, 8.0, 1e-5, cm.Uniform(0, 4)
    mu, sigma = logistic_risk_constants(0.05, 0.05, beta, 2)
    buyer = {"mu": mu, "sigma": 2 * sigma, "gamma": gamma}
    costs = rng.uniform(0, 4, m)
    if online:
        bought = cm.online.run_online(cm.OnlinePolicy(prior, m, **buyer), costs)
    else:
        bought = cm.allocate(cm.Market.standard(cm.Sellers(costs, prior=prior), **buyer))
    X, y = rows(m, rng)
    some = bought.weights > 0
    fresh, labels = rows(5_000, rng)
    bound = separable_error_bound(
        bought.weights, bought.eta, margin=separation_margin(X, y), n_features=2, max_norm=beta
    )
    assert bound.training > np.log2(1 + np.exp(-0.31 * beta))
    assert sum(bound) < 1
    cost = gamma * float(prior.virtual_cost(costs[some]) @ bought.weights[some]) * bought.eta
    limit = loss_limit(m, *buyer.values(), density=1 / 8).sum()
    assert sum(bound) + cost == pytest.approx(np.log2(1 + np.exp(-0.3 * beta)) + limit, rel=0.1)
    for _ in range(3):
        noise = cm.privacy.random_sources.gamma_sphere_noise(2, rng) * 2 / bought.eta
        w = trained(X[some], y[some], bought.weights[some], noise, beta)
        fit = bought.weights @ np.logaddexp(0, -y * (X @ w))
        best = np.logaddexp(0, -0.3 * beta) + 2 * beta * np.linalg.norm(noise)
        assert fit <= best + 1e-9  # the proof uses the noise twice here
        assert np.mean(np.sign(fresh @ w) != labels) <= sum(bound)


def test_the_theorem_is_false_with_natural_logarithms():
    """The best bounded model errs on 9 of 10 rows. With ln, the bound would be below 9/10."""
    X = np.array([[1e-3, -0.1]] * 9 + [[1e-3, 0.99]])
    y, weights, beta = np.ones(10), np.full(10, 0.1), 0.1
    margin = separation_margin(X, y)
    assert margin > 5e-4
    w = trained(X, y, weights, np.zeros(2), beta)
    wrong = np.mean(X @ w < 0)
    bound = separable_error_bound(weights, 1e12, margin=margin, n_features=2, max_norm=beta)
    assert np.logaddexp(0, -margin * beta) < 0.7 < 0.9 == wrong < bound.training


def test_the_tail_equals_the_tail_of_the_bound_and_is_below_the_printed_tail():
    market = {"density": 1 / 8, "n_features": 2, "max_norm": 5.0}
    sizes = np.array([10**6, 10**8, 10**10])
    logs = np.array([np.log(separable_tail(0.05, m, 1e-6, **market)) for m in sizes])
    printed = -0.05 * sizes**0.25 / 10
    assert np.all(np.diff(logs / printed) > 0)
    assert logs[-1] < printed[-1]
    chance = separable_tail(0.05, 10**8, 1e-6, **market) / 2
    mu, sigma = logistic_risk_constants(chance, chance, 5.0, 2)
    loss = loss_limit(10**8, mu, 2 * sigma, 1e-6, density=1 / 8)
    assert loss.sum() == pytest.approx(0.05)
    few = separable_tail(0.05, 10**8, 1e-6, share=0.5, **market)
    assert 2 * chance < few < 1
    assert separable_tail(1e-6, 100, 1.0, **market) == 1


def test_the_exponent_of_the_papers_tail_decreases_with_gamma():
    """The proof in A has delta = exp(-E_3 nu m^(1/4)), but the theorem has 1/(2 beta)."""
    beta, density = 5.0, 1 / 8
    e_2 = 4 * density**-0.25
    for gamma, follows in ((1e-6, True), (1.0, False)):
        e_3 = np.sqrt(2) / (np.sqrt(3) * e_2 * gamma**0.25 * np.logaddexp(0, beta))
        assert (e_3 >= 1 / (2 * beta)) == follows


def test_exact_allocations_converge_to_the_limit():
    margin, p, gamma, length = 0.3, 1.0, 1e-4, 3.0
    limit = separable_limit(margin, p, gamma, length)
    sigma = 4 * limit.max_norm * length / LN2
    fit = np.log2(1 + np.exp(-margin * limit.max_norm))
    prior, gaps = cm.Uniform(1, 5), []
    for m in (10**3, 10**4, 10**6):
        sellers = cm.Sellers(prior.quantile((np.arange(m) + 0.5) / m), prior=prior)
        result = cm.allocate(cm.Market.standard(sellers, mu=1e-2, sigma=sigma, gamma=gamma))
        gaps.append(fit + result.objective - limit.total)
        assert gaps[-1] > 0
    assert gaps[2] < gaps[1] / 2 < gaps[0] / 3, gaps
    assert result.eta * p == pytest.approx(limit.payments, rel=0.02), gaps
    assert limit.error + gamma * limit.payments == pytest.approx(limit.total)


def test_the_best_norm_gives_a_lower_bound_than_the_norm_of_the_paper():
    totals = []
    for p in 10.0 ** -np.arange(2, 13, 2):
        best = separable_limit(0.3, p, 0.1, 3.0)
        printed = separable_limit(0.3, p, 0.1, 3.0, max_norm=1 / np.sqrt(0.1 * p))
        assert best.total <= printed.total
        grid = [separable_limit(0.3, p, 0.1, 3.0, max_norm=b).total for b in np.logspace(-2, 6, 99)]
        assert best.total <= min(grid) + 1e-12
        totals.append([best.total, printed.total])
    rates = np.diff(np.log10(totals), axis=0)[-1] / -2
    assert rates[0] == pytest.approx(0.5, abs=0.03)
    assert rates[1] == pytest.approx(0.25, abs=0.01)
    assert totals[-1][0] < 1e-4


def test_a_bounded_budget_suffices_for_any_error():
    length = float(gammaincinv(2, 0.95))
    budgets = [separable_budget(e, 0.3, 1.0, length) for e in (0.3, 0.1, 0.01)]
    assert np.all(np.diff(budgets) > 0)
    assert np.isfinite(budgets).all()
    assert separable_budget(0.1, 0.3, 1e-3, length) == pytest.approx(budgets[1] / 1e3)
    # no limit attains its error with smaller payments
    for gamma in np.logspace(-6, 0, 13):
        limit = separable_limit(0.3, 1.0, gamma, length)
        if limit.error < 1:
            enough = separable_budget(limit.error, 0.3, 1.0, length)
            assert enough <= limit.payments * (1 + 1e-6)
