"""If one upper bound applies to all guarantees, the exact method agrees with the projections."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import InfeasibleMarketError
from tests.allocation.builders import market

SEEDS = st.integers(0, 2**32 - 1)


def random_problem(seed, most=7):
    """Draw costs with ties, zeros or clusters, weights of terms, and a bound on guarantees."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, most))
    psi = [
        rng.uniform(0.1, 2, m),
        rng.choice([0.1, 1.0, 1.5], m),
        rng.choice([0, 0.3, 1.0], m),
        np.where(rng.random(m) < 0.5, 0.1, 1) + 1e-3 * rng.random(m),
    ][rng.integers(4)]
    return rng, psi, 10 ** rng.uniform(-1, 1, 3), 10 ** rng.uniform(-1.5, 0.7)


def declared(psi, weights, *constraints):
    mu, sigma, gamma = weights
    objective = mu * cm.Spread() + sigma * cm.Noise() + gamma * cm.Payments()
    return market(*constraints, costs=psi, objective=objective)


@given(SEEDS)
@example(532047)  # the optimum is at a kink, where an earlier lower bound was wrong
def test_projections_confirm_the_optimum_under_caps_and_ranges(seed):
    rng, psi, weights, bound = random_problem(seed, most=40)
    constraints = [cm.MaxEpsilon(bound)]
    if rng.random() < 0.6:
        constraints.append(cm.Cap(rng.uniform(1, 6)))
    if rng.random() < 0.4:
        low = 10 ** rng.uniform(-1, 0.5)
        constraints.append(cm.EtaRange(low, low * 10 ** rng.uniform(0, 1)))
    problem = declared(psi, weights, *constraints)
    try:
        result = cm.allocate(problem)
    except InfeasibleMarketError:
        with pytest.raises(InfeasibleMarketError):
            cm.allocate(problem, "projections")
        return
    other = cm.allocate(problem, "projections", gap=1e-4)
    assert result.method == "exact"
    assert result.gap < 1e-11
    assert result.epsilon.max() <= bound * (1 + 1e-12)
    assert result.objective <= other.objective * (1 + 1e-11)
    assert result.objective >= other.lower_bound * (1 - 1e-11)


def test_the_minimum_is_found_on_a_segment_that_also_has_a_saddle_point():
    psi = np.r_[0.0, np.full(3, 0.1203215958), np.ones(445)]
    weights = (1.0, 0.39732205145880545, 0.1355)
    result = cm.allocate(declared(psi, weights, cm.MaxEpsilon(1.0)))
    other = cm.allocate(declared(psi, weights, cm.MaxEpsilon(1.0)), "projections")
    assert result.objective <= other.objective * (1 + 1e-12)
    assert result.gap < 1e-12


def test_an_inactive_bound_does_not_change_an_optimum_without_a_noise_term():
    sellers = cm.Sellers([0.1, 0.4, 0.5, 0.9], prior=cm.Uniform(0, 1))
    limits = [cm.Cap(1.5), cm.EtaRange(1.0, 5.0)]
    objective = cm.Spread() + 0.5 * cm.Payments()
    free = cm.allocate(cm.Market(sellers, objective, limits))
    bounded = cm.allocate(cm.Market(sellers, objective, [*limits, cm.MaxEpsilon(1.0)]))
    assert bounded.weights.max() == pytest.approx(1.5 / 4)  # the cap binds
    np.testing.assert_allclose(bounded.weights, free.weights, rtol=1e-12)
    assert bounded.eta == free.eta == 1.0
