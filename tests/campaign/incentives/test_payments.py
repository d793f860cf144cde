"""Payments against the independent quadrature: every prior, every place, markets drawn anew."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from tests.incentives.builders import (
    PRIORS,
    accuracy_under,
    assert_paid_exactly,
    draw,
    prior_of,
    with_report,
)

pytestmark = [
    pytest.mark.filterwarnings("error:(invalid|divide|overflow):RuntimeWarning"),
    pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning"),
]


@pytest.mark.parametrize("eta_range", [None, (0.1, 1.0), (0.5, 50.0), (2.0, 2.0), (6.0, 9.0)])
@pytest.mark.parametrize("cap", [None, 2.0])
@pytest.mark.parametrize("name", PRIORS)
def test_payments_meet_quadrature(name, cap, eta_range):
    sellers = draw(prior_of(name), 6, seed=3)
    market = cm.Market.standard(sellers, mu=1.5, sigma=1.0, gamma=0.6, cap=cap, eta_range=eta_range)
    bought = np.flatnonzero(cm.allocate(market).weights)
    assert_paid_exactly(market, bought[[0, -1]], accuracy_under(name))


@given(
    st.sampled_from([name for name in PRIORS if "mixture" not in name]),
    st.integers(3, 9),
    st.integers(0, 10**6),
    st.floats(-1, 1),
    st.sampled_from([None, 1.6, 3.0]),
)
def test_payments_of_drawn_markets_meet_quadrature(name, m, seed, exponent, cap):
    market = cm.Market.standard(
        draw(prior_of(name), m, seed), mu=10**exponent, sigma=1.0, gamma=0.6, cap=cap
    )
    bought = np.flatnonzero(cm.allocate(market).weights)
    assert_paid_exactly(market, bought[[seed % bought.size]])


@pytest.mark.parametrize("n_cheap", [1, 2])
def test_payments_by_a_long_sample_where_the_optimum_jumps(n_cheap):
    prior = cm.EmpiricalPrior(np.linspace(0.004, 1, 100))
    sellers = cm.Sellers([0.005] * n_cheap + [0.5] * 44, prior)
    market = cm.Market.standard(
        sellers,
        mu=1.5 * n_cheap**0.4,
        sigma=2.5,
        gamma=0.25 / sellers.virtual_costs[-1],
        cap=None if n_cheap == 1 else 23,
    )
    assert_paid_exactly(market, [0, n_cheap])


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_fine_sums_enclose_the_payment_on_an_ironed_interval(mu):
    prior = prior_of("mixture, ironed")
    low, high = prior.breakpoints[:2]
    reports = [low + 0.1 * (high - low), 0.95, high - 0.1 * (high - low), 0.5 * (low + high)]
    market = cm.Market.standard(
        cm.Sellers(reports, prior), mu=mu, sigma=1, gamma=0.6, cap=4 / 2.5, eta_range=(0.5, 9)
    )
    allocation = cm.allocate(market)
    z = np.linspace(reports[0], prior.support[1], 1500)
    sold = np.array([cm.allocate(with_report(market, 0, report)).epsilon[0] for report in z])
    upper, lower = np.diff(z) @ sold[:-1], np.diff(z) @ sold[1:]
    rent = cm.payments(market, allocation)[0] - reports[0] * allocation.epsilon[0]
    assert lower - 1e-12 <= rent <= upper + 1e-12
    assert upper - lower < 0.02 * rent
