"""Incentives of large markets, and payments in expectation, with many draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.curve import OwnReportCurve
from tests.incentives.builders import (
    BUDGETS,
    PRIORS,
    assert_fresh_sellers_cost_the_budget,
    assert_identity_holds,
    assert_the_budget_is_met,
    assert_ties_are_broken_evenly,
    draw,
    prior_of,
)
from tests.incentives.test_audit import (
    check_gains_are_found,
    check_nobody_gains,
    markets,
)


@pytest.mark.filterwarnings("error:(invalid|divide|overflow):RuntimeWarning")
@markets(9)
def test_nobody_gains_by_lying_or_loses_by_taking_part_among_nine(
    name, m, seed, mu, cap, eta_range
):
    check_nobody_gains(name, m, seed, mu, cap, eta_range)


@given(
    st.sampled_from([name for name in PRIORS if "mixture" not in name]),
    st.integers(10, 60),
    st.integers(0, 10**6),
    st.floats(-1, 1.5),
    st.sampled_from([None, 2.0, 5.0]),
)
def test_nobody_gains_by_lying_in_a_large_market(name, m, seed, exponent, cap):
    sellers = draw(prior_of(name), m, seed)
    market = cm.Market.standard(sellers, mu=10**exponent, sigma=1, gamma=0.5, cap=cap)
    audit = cm.audit_incentives(market, misreports=15, max_sellers=5)
    assert audit.is_incentive_compatible, audit.to_frame()
    assert audit.is_individually_rational, audit.to_frame()


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_ties_of_an_ironed_mixture_are_broken_evenly_and_truthfully(mu):
    prior = cm.priors.Mixture([0.5, 0.5], [cm.Beta(4, 16, 0.1, 1.0), cm.Beta(16, 4, 0.1, 1.0)])
    assert_ties_are_broken_evenly(prior, [0.45, 0.5, 0.6, 0.95], mu)


@pytest.mark.parametrize(
    ("name", "cap", "mu", "draws"),
    [
        ("uniform", None, 1.0, 1000),
        ("uniform", 1.5, 1.0, 1000),
        ("power below one", 2.0, 1.0, 300),
        ("beta, infinite at the top", None, 3.0, 300),  # no closed form
        ("exponential", None, 1.0, 300),
        ("empirical", None, 1.0, 300),
        ("two humps, ironed", 1.5, 1.0, 300),
    ],
)
def test_expected_payments_are_expected_virtual_costs(name, cap, mu, draws):
    assert_identity_holds(prior_of(name), cap=cap, mu=mu, draws=draws)


def test_integrating_beyond_the_support_overpays():
    """Eq. (8) to infinity, with psi = 2c - c_lo continued past c_hi, breaks Eq. (9)."""
    prior, rng = cm.Uniform(0.1, 1.0), np.random.default_rng(7)
    wrong, right, virtual = [], [], []
    for _ in range(300):
        sellers = cm.Sellers(prior.sample(3, rng), prior)
        market = cm.Market.standard(sellers, mu=5, sigma=2, gamma=0.2)
        allocation = cm.allocate(market)
        paid = cm.payments(market, allocation)
        right.append(paid.sum())
        virtual.append(sellers.virtual_costs @ allocation.epsilon)
        # The rest of the integral: from the top, along the formula, to where nothing is sold.
        curve, who = OwnReportCurve(market.standard_form), np.arange(3)
        at_top = curve(who, np.full(3, float(prior.virtual_cost(1.0)))).value
        without = curve(who, np.full(3, np.inf)).value
        wrong.append(paid.sum() + ((without - at_top) / (0.2 * 2.0)).sum())

    def z_score(paid):
        difference = np.array(paid) - virtual
        return difference.mean() / (difference.std(ddof=1) / np.sqrt(difference.size))

    assert abs(z_score(right)) < 4
    assert z_score(wrong) > 10


@pytest.mark.parametrize("pay", [False, True])
@pytest.mark.parametrize("name", BUDGETS)
def test_the_budget_is_met_on_fresh_sellers(name, pay):
    assert_the_budget_is_met(name, draws=200, fresh=60 if pay else 300, pay=pay)


def test_the_budget_is_met_under_a_convex_privacy_cost():
    prior, rng = cm.Uniform(0.1, 1.0), np.random.default_rng(0)
    found = cm.calibrate_gamma(
        0.5,
        prior,
        3,
        cm.Spread() + cm.Noise(),
        privacy_cost=cm.PowerCost(2),
        draws=8,
        random_state=rng,
    )
    assert found.expected_payment == pytest.approx(0.5, rel=1e-3)
    assert_fresh_sellers_cost_the_budget(found, prior, 3, 12)


def test_gains_of_what_users_are_paid_are_found_by_building_again():
    check_gains_are_found("mild losses")
