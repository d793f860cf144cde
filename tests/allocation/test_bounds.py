"""Bounds on the optimum over eta, each against a definition computed at length."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from convexmarket.allocation.bounds import (
    _aitken,
    best_eta,
    best_lower_bound,
    dual_bound,
    eta_range,
    unconstrained_eta,
)
from convexmarket.allocation.cuts import segment_bound
from convexmarket.allocation.formulations import optimal_weights
from tests.allocation.builders import form, forms

GRID = np.geomspace(1e-3, 1e3, 4001)


# ------------------------------------------------------------------------ chords


@given(st.floats(-2, 2))
def test_the_least_of_a_line_and_noise(start):
    lines = product((0.0, 0.3, 2.0), (0.0, 0.2, 3.0))
    for (slope, noise), low, high in product(lines, (0.0, 0.05, 1.0), (1.0, 4.0, np.inf)):
        check_segment(start, slope, noise, low, high)


def check_segment(start, slope, noise, low, high):
    t, bound = segment_bound(start, slope, noise, low, high)
    assert low <= t <= high
    grid = GRID[(low <= GRID) & (high >= GRID)]
    if grid.size:
        values = start + slope * (grid - low) + noise / grid
        assert bound <= values.min() + 1e-12
        if t < np.inf and bound < np.inf:
            assert values.min() <= bound + 1e-4 + (noise > 0) * 1e-3 + slope * 2e-3
    if 0 < t < np.inf:
        assert bound == pytest.approx(start + slope * (t - low) + noise / t)


def test_the_least_of_a_line_at_its_ends():
    assert segment_bound(2.0, 1.5, 0.0, 0.0, 9.0) == (0.0, 2.0)
    assert segment_bound(2.0, 1.5, 0.1, 0.0, 0.0) == (0.0, np.inf)
    assert segment_bound(5.0, 0.0, 1.0, 0.5, np.inf) == (np.inf, 5.0)
    assert segment_bound(5.0, 0.0, 0.0, 0.5, np.inf) == (0.5, 5.0)


# ------------------------------------------------------------- the range of eta


def test_the_best_eta_for_given_weights_balances_noise_and_payments():
    market = form([0.2, 0.6])
    weights = np.array([0.75, 0.25])
    exact = minimize_scalar(
        lambda x: market.objective(weights, np.exp(x)), bounds=(-5, 5), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    cost = weights @ [0.2, 0.6]
    assert unconstrained_eta(market, cost) == pytest.approx(np.exp(exact.x), rel=1e-6)
    assert best_eta(form([0.2, 0.6], eta_low=9.0), cost) == 9.0
    assert best_eta(form([0.2, 0.6], eta_high=1.5), cost) == 1.5
    assert unconstrained_eta(form([0.2, 0.6], sigma=0.0), cost) == 0.0
    assert unconstrained_eta(form([0.0, 0.6]), 0.0) == np.inf


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.4])
def test_every_minimiser_lies_in_the_range_of_eta(cap):
    psi = [0.1, 0.3, 0.9]
    for mu in (1e-4, 1.0, 1e4):
        market = form(psi, max_weight=cap, mu=mu)
        low, high, limit = eta_range(market)
        order, rest = np.sort(psi), 1.0
        cheapest = 0.0
        for cost in order:
            cheapest, rest = cheapest + min(cap, rest) * cost, rest - min(cap, rest)
        ends = [np.sqrt(2.0 / (0.5 * cost)) for cost in (np.mean(psi), cheapest)]
        assert (low, high) == pytest.approx(ends, rel=1e-9)
        assert limit == np.inf
        inside = form(psi, max_weight=cap, mu=mu, eta_low=low * 1.01, eta_high=high * 0.99)
        assert eta_range(inside) == (low * 1.01, high * 0.99, np.inf)


def test_free_sellers_saturate_where_nobody_who_costs_is_bought():
    low, high, limit = eta_range(form([0.0, 0.0, 0.4, 0.8], mu=3.0))
    assert limit == pytest.approx(3.0 / np.sqrt(2))
    assert high == pytest.approx(limit / 0.4 / 0.5)
    assert low == pytest.approx(min(np.sqrt(1.0 / 0.3) / 0.5, high))


# -------------------------------------------------------- what any weights prove


@given(forms(), st.floats(-3, 3), st.integers(0, 1000))
def test_any_weights_prove_a_valid_bound(market, exponent, seed):
    rng = np.random.default_rng(seed)
    psi = market.virtual_costs
    t = 10**exponent / psi.mean()
    best = optimal_weights(market, t)
    value = market.mu * np.linalg.norm(best) + t * psi @ best
    assert dual_bound(market, t * psi, best) == pytest.approx(value, rel=1e-9)
    anything = rng.exponential(size=psi.size)
    for bound in (dual_bound, best_lower_bound):
        assert bound(market, t * psi, anything) <= value * (1 + 1e-12)


@pytest.mark.parametrize("ratio", [0.5, -0.3, 0.9])
def test_a_geometric_sequence_is_extrapolated_to_its_limit(ratio):
    first, second, third = (2.0 + 0.3 * ratio**k for k in range(3))
    assert _aitken(first, second, third) == pytest.approx(2.0, rel=1e-12)


def test_an_extrapolation_that_leads_far_away_is_not_believed():
    assert _aitken(1.0, 2.0, 3.0) == 3.0  # no bend
    assert _aitken(1.0, 2.0, 2.9) == 2.9  # to 11
    assert _aitken(1.0, 1.5, 1.9) == pytest.approx(3.5)  # just within twice
    assert _aitken(1.0, 1.5, 1.92) == 1.92  # to 4.125, just beyond
    assert _aitken(3.0, 2.0, 1.2) == 1.2  # to -2
    assert _aitken(3.0, 2.0, 1.5) == pytest.approx(1.0)  # above a half
