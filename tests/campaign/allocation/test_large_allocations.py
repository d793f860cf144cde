"""Test large markets, and markets with local minima that only a fine grid of eta separates."""

import numpy as np
import pytest

import convexmarket as cm
from tests.allocation.brute_force import BruteForce
from tests.allocation.builders import LARGE, assert_omission_is_exact, large_form


@pytest.mark.parametrize("m", [200_000, 1_000_000])
@pytest.mark.parametrize("name", LARGE)
def test_omitting_expensive_sellers_keeps_the_solution(name, m, monkeypatch):
    assert_omission_is_exact(large_form(name, m), monkeypatch)


@pytest.mark.parametrize("p", [1.3, 2, 4, np.inf])
@pytest.mark.parametrize("power", [1.1, 1.5])
@pytest.mark.parametrize("others", [10, 30])
def test_the_global_minimum_is_found_with_a_convex_cost(p, power, others):
    """One seller is cheap, the other sellers are expensive, and the privacy cost is convex."""
    sellers = cm.Sellers(virtual_costs=np.append(0.01, np.ones(others)))
    payments = 0.25 * cm.Payments(cm.PowerCost(power))
    market = cm.Market(sellers, 3.0 * cm.Spread(p) + 2.5 * cm.Noise() + payments)
    result = cm.allocate(market)
    best = BruteForce(market).minimum(result.eta)
    assert result.gap <= 1e-6
    assert result.objective <= best * (1 + 1e-6)
    assert result.lower_bound <= best * (1 + 1e-8)
