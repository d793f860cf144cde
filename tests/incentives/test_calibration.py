"""Gamma is calibrated to a budget for expected payments, independently of the reports."""

import numpy as np
import pytest
import scipy.stats

import convexmarket as cm
from convexmarket.errors import ParameterError
from convexmarket.incentives.calibration import calibrate_gamma

#: Priors, groups, constraints and budget of each market of ten sellers.
BUDGETS = {
    "uniform": (lambda: cm.Uniform(0.02, 0.1), None, (), 3.0),
    "capped": (lambda: cm.Uniform(0.02, 0.1), None, (cm.Cap(2),), 50.0),
    "endless": (lambda: cm.priors.Exponential(0.05), None, (), 1.0),
    "groups": (
        lambda: {"young": cm.Uniform(0.02, 0.1), "old": cm.Beta(2, 3, 0.05, 0.3)},
        ["young"] * 6 + ["old"] * 4,
        (),
        3.0,
    ),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_the_expected_payment_of_new_sellers_equals_the_budget(name):
    """Compare the budget with the virtual costs or payments of newly drawn sellers."""
    make, groups, constraints, budget = BUDGETS[name]
    prior, objective = make(), 1.0 * cm.Spread() + 10.0 * cm.Noise()
    options = {"groups": groups, "draws": 40, "random_state": np.random.default_rng(1)}
    result = cm.calibrate_gamma(budget, prior, 10, objective, constraints, **options)
    np.testing.assert_allclose(result.expected_payment, budget, rtol=1e-6)
    assert result.standard_error < 1.5 / np.sqrt(40) * budget
    rng, spent = np.random.default_rng(2), []
    for _ in range(20):
        sellers = cm.Sellers.draw(10, prior, rng, groups=groups)
        market = cm.Market(sellers, result.objective, constraints)
        allocation = cm.allocate(market)
        cost = market.privacy_cost(allocation.epsilon)
        paid = sellers.virtual_costs @ cost
        if name == "uniform":
            paid = cm.payments(market, allocation).sum()
        spent.append(float(paid))
    error = np.hypot(result.standard_error, scipy.stats.sem(spent))
    assert abs(np.mean(spent) - result.budget) < 4 * error


def test_gamma_for_one_seller_equals_its_formula():
    """With one seller, psi*eps = sqrt(sigma*psi/gamma) and gamma = sigma*(E sqrt(psi) / B)^2."""
    prior, rng = cm.EmpiricalPrior([0.04]), np.random.default_rng(0)
    result = calibrate_gamma(2.0, prior, 1, 10 * cm.Noise(), draws=2, random_state=rng)
    assert result.gamma == pytest.approx(10 * 0.04 / 4, rel=1e-7)
    assert result.standard_error == 0


def test_gamma_depends_on_the_prior_and_not_on_the_reports():
    objective, prior = cm.Spread() + 10.0 * cm.Noise(), cm.Uniform(0.02, 0.1)
    single, two = (
        calibrate_gamma(3.0, prior, 5, objective, draws=5, random_state=np.random.default_rng(4))
        for _ in range(2)
    )
    assert single == two
    sellers = cm.Sellers.draw(5, prior, np.random.default_rng(9))
    assert cm.Market(sellers, single.objective).incentives == "by construction"


ARGUMENTS = {
    "budget": 3.0,
    "prior": cm.Uniform(0.02, 0.1),
    "n_sellers": 4,
    "objective": cm.Spread() + 10 * cm.Noise(),
    "draws": 3,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"budget": 0}, "the budget must be a finite number > 0, got 0"),
        ({"draws": 1}, "draws must be a whole number >= 2, got 1"),
        ({"n_sellers": 0}, "n_sellers must .*, got 0"),
        ({"objective": 3}, "objective must be a sum of terms"),
        (
            {"objective": cm.Spread() + cm.Noise() + cm.Payments()},
            "must contain .* omit payments, whose weight is computed",
        ),
        ({"objective": cm.Spread()}, r"must contain Noise\(\), without which privacy has no value"),
        ({"constraints": [cm.Budget(1)]}, "no weight makes this market truthful"),
        ({"random_state": None}, "random_state must be .*a seed.*, got None"),
        (
            {"constraints": [cm.EtaRange(1e4, 1e5)]},
            "under the constraints the buyer spends .* even at gamma = .*raise the budget",
        ),
        (
            {"constraints": [cm.EtaRange(1e-3, 1e-2)]},
            "the budget is 3, but .* the buyer spends .*lower the budget",
        ),
    ],
)
def test_calibration_errors_state_the_reason(changes, words):
    arguments = {**ARGUMENTS, "random_state": 0, **changes}
    with pytest.raises(ParameterError, match=words):
        calibrate_gamma(**arguments)
