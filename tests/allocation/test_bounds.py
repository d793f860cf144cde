"""What any weights prove about the papers' problem."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.allocation.bounds import dual_bound, unconstrained_eta
from convexmarket.allocation.formulations import optimal_weights
from tests.allocation.builders import form, forms


@given(forms(), st.floats(-3, 3), st.integers(0, 1000))
def test_any_weights_prove_a_valid_bound(market, exponent, seed):
    rng = np.random.default_rng(seed)
    psi = market.virtual_costs
    t = 10**exponent / psi.mean()
    best = optimal_weights(market, t)
    value = market.mu * np.linalg.norm(best) + t * psi @ best
    assert dual_bound(market, t * psi, best) == pytest.approx(value, rel=1e-9)
    assert dual_bound(market, t * psi, rng.exponential(size=psi.size)) <= value * (1 + 1e-12)


def test_the_best_eta_for_given_weights_balances_noise_and_payments():
    market, weights = form([0.2, 0.6]), np.array([0.75, 0.25])
    best = unconstrained_eta(market, weights @ [0.2, 0.6])
    values = [market.objective(weights, best * factor) for factor in (0.99, 1.0, 1.01)]
    assert np.argmin(values) == 1
    assert unconstrained_eta(form([0.2, 0.6], sigma=0.0), 0.3) == 0.0
    assert unconstrained_eta(form([0.0, 0.6]), 0.0) == np.inf
