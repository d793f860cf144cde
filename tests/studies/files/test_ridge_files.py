"""Test markets for ridge regression without tuning, in which guarantees equal sold epsilons."""

import numpy as np
import pandas as pd
import pytest

from convexmarket.allocation import allocate
from convexmarket.learners.ridge_math import ridge_error_bound, ridge_risk_constants
from convexmarket.market import Market
from convexmarket.priors import Uniform
from convexmarket.privacy.sensitivity import ridge_sensitivity
from convexmarket.sellers import Sellers
from convexmarket.studies.files import parse_file

SMALL = """
kind = "market"
title = "Small"
[data]
source = "medical"
train_fraction = 0.06
[prior]
family = "uniform"
low = 1.0
high = 5.0
[sellers]
scenarios = ["independent", "correlated"]
correlated_with = 1
[objective]
gamma = [0.0003, 0.01]
[learner]
name = "PersonalizedRidge"
regularization = [0.3, 1.0]
label_noise = 0.1
coef_norm = 1.0
smallest_eigenvalue = 0.05
[run]
jobs = 1
"""

KEY = ["scenario", "gamma", "regularization"]


def run(*overrides: str):
    return parse_file(SMALL, overrides).perform(progress=False)


@pytest.fixture(scope="module")
def result():
    return run()


def test_the_guarantee_equals_the_privacy_sold(result):
    sellers = result.tables["sellers"]
    assert (sellers.guarantee <= sellers.epsilon).all()
    np.testing.assert_allclose(sellers.guarantee, sellers.epsilon, rtol=1e-12, atol=0)
    assert (sellers.epsilon == 0).any(), "the test needs a seller without sales"
    assert (sellers[sellers.epsilon == 0][["payment", "weight"]] == 0).all(axis=None)


def test_mu_and_sigma_equal_the_constants_of_the_theorem(result):
    for row in result.tables["curve"].itertuples():
        assert (row.mu, row.sigma) == ridge_risk_constants(row.regularization, 12, 0.1, 0.05)
        kappa = ridge_sensitivity(row.regularization, 12, sensitivity="tight")
        offers = result.tables["sellers"].merge(pd.DataFrame([row._asdict()])[KEY], on=KEY)
        facts = {"n_features": 12, "coef_norm": 1.0, "label_noise": 0.1}
        facts |= {"failure_probability": 0.05, "smallest_eigenvalue": 0.05}
        bound = ridge_error_bound(offers.weight, row.eta / kappa, row.regularization, **facts)
        assert row.bound == pytest.approx(bound.total, rel=1e-12)
        # The objective is the bound minus its bias plus gamma times the expected payments.
        cost = row.gamma * float(offers.epsilon @ offers.virtual_cost)
        assert row.objective == pytest.approx(row.bound - row.bias + cost, rel=1e-9)


def test_every_market_passes_its_audit(result):
    assert result.tables["audits"][["incentive_compatible", "individually_rational"]].all(axis=None)
    assert (result.tables["curve"].gap < 1e-9).all()


def test_a_uniform_price_buys_less_privacy_with_equal_payments(result):
    curve = result.tables["curve"]
    np.testing.assert_allclose(curve.uniform_epsilon * 80 * 5.0, curve.payments)
    assert (curve.uniform_epsilon <= curve.epsilon_mean).all()


def test_the_marked_point_depends_only_on_public_numbers(result):
    other = run("data.seed=7", "run.seed=5", "sellers.scenarios=['independent']")
    pd.testing.assert_frame_equal(result.tables["choices"], other.tables["choices"])
    paid, others = (each.tables["curve"].payments[0] for each in (result, other))
    assert paid != pytest.approx(others)
    choices = result.tables["choices"]
    best = choices.groupby("gamma").expected_objective.transform("min")
    assert (choices.marked == (choices.expected_objective == best)).all()
    typical = Sellers(1.0 + 4.0 * (np.arange(80) + 0.5) / 80, Uniform(1, 5))
    row = choices.iloc[0]
    market = Market.standard(typical, mu=row.mu, sigma=row.sigma, gamma=row.gamma)
    assert row.expected_objective == pytest.approx(row.bias + allocate(market).objective)


def test_a_cap_and_the_papers_sensitivity_are_applied():
    settings = ("objective.cap=2", 'learner.sensitivity="paper"', "learner.max_norm=0.8")
    answer = run(*settings, "sellers.scenarios=['independent']")
    sellers, curve = answer.tables["sellers"], answer.tables["curve"]
    assert sellers.weight.max() <= 2 / 80 + 1e-15
    assert (sellers.guarantee <= sellers.epsilon).all()
    expected = ridge_risk_constants(0.3, 12, 0.1, 0.05, 0.8, "paper")
    assert (curve.mu[0], curve.sigma[0]) == expected
