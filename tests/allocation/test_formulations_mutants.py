"""What a solver's answer at one eta is made into: feasible weights, and prices."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.bounds import best_lower_bound, dual_bound
from convexmarket.allocation.formulations import (
    declare_papers,
    marginal_price,
    optimal_weights,
    recover_weights,
    restrict_to_finite,
)
from convexmarket.market import StandardForm

PSI = np.array([0.1, 0.2, 0.2, 9.0])


def form(psi=PSI, **changes) -> StandardForm:
    given = {"mu": 1.0, "sigma": 2.0, "gamma": 0.5, "max_weight": 1.0}
    return StandardForm(virtual_costs=np.array(psi, dtype=float), **(given | changes))


def test_recovered_weights_stay_under_the_cap() -> None:
    """What the dear seller loses goes to the others, of whom one is at the cap already."""
    market = form(max_weight=0.4)
    found = recover_weights(market, np.array([0.4, 0.3, 0.24, 0.06]), 1.0)
    np.testing.assert_allclose(found, [0.4, 0.33, 0.27, 0.0], atol=1e-15)
    assert found.sum() == pytest.approx(1.0, abs=1e-15)
    # Where the others cannot carry everything, the dear one stays.
    for cap, stays in ((1 / 3, False), (0.3, True)):
        raw = np.array([0.3, 0.3, 0.3, 0.1])
        found = recover_weights(form(max_weight=cap), raw, 1.0)
        assert (found[3] > 0) == stays
        assert np.all(found <= cap * (1 + 1e-15))


def test_recovery_leaves_what_is_optimal_alone() -> None:
    for cap in (1.0, 0.4, 0.25):
        for t in (0.01, 1.0, 30.0):
            market = form(max_weight=cap)
            best = optimal_weights(market, t)
            np.testing.assert_allclose(recover_weights(market, best, t), best, atol=1e-15)


@pytest.mark.parametrize("cap", [1.0, 0.4, 0.25])
@pytest.mark.parametrize("t", [0.05, 1.0, 8.0])
def test_optimal_weights_prices_and_bounds_are_those_of_the_declaration(cap, t) -> None:
    market = form(max_weight=cap)
    a = cp.Variable(4, nonneg=True)
    sums = cp.sum(a) == 1
    problem = cp.Problem(cp.Minimize(cp.norm(a) + t * PSI @ a), [sums, a <= cap])
    problem.solve(solver="CLARABEL")
    weights = optimal_weights(market, t)
    np.testing.assert_allclose(weights, a.value, atol=1e-4)
    if np.any((weights > 1e-6) & (weights < cap - 1e-6)):
        assert marginal_price(market, weights, t) == pytest.approx(-sums.dual_value, rel=1e-4)
    assert dual_bound(market, t, weights) == pytest.approx(problem.value, rel=1e-7)
    rough = np.array([0.5, 0.2, 0.2, 0.1])
    bounds = dual_bound(market, t, rough), best_lower_bound(market, t, rough)
    assert bounds[0] <= bounds[1] <= problem.value * (1 + 1e-7)
    assert bounds[1] >= problem.value * (1 - 0.05)


def test_the_marginal_price_by_hand() -> None:
    market = form([0.1, 0.3, 0.5, 0.7], mu=2.0, max_weight=0.5)
    weights = np.array([0.5, 0.3, 0.2, 0.0])
    prices = 2.0 * weights / np.sqrt(0.38) + 3.0 * np.array([0.1, 0.3, 0.5, 0.7])
    expected = (prices[1] * 0.3 * 0.2 + prices[2] * 0.2 * 0.3) / 0.12
    assert marginal_price(market, weights, 3.0) == pytest.approx(expected)
    full = np.array([0.5, 0.5, 0.0, 0.0])
    assert marginal_price(market, full, 3.0) == pytest.approx(2.0 * 0.5 / np.sqrt(0.5) + 0.9)


def test_those_who_remain_may_just_carry_everything() -> None:
    psi = [0.2, np.inf, 0.4, np.inf]
    restricted, finite = restrict_to_finite(form(psi, max_weight=0.5))
    assert finite.tolist() == [True, False, True, False]
    assert restricted.virtual_costs.tolist() == [0.2, 0.4]
    assert restricted.max_weight == 0.5
    with pytest.raises(cm.InfeasibleMarketError, match=r"2 weights of at most 0\.49 cannot"):
        restrict_to_finite(form(psi, max_weight=0.49))
    with pytest.raises(cm.InfeasibleMarketError, match="nobody can sell"):
        restrict_to_finite(form([np.inf, np.inf]))


@pytest.mark.parametrize("formulation", ["primal", "dual", "projection"])
def test_declarations_agree_with_norms_minimised_directly(formulation) -> None:
    sellers = cm.Sellers(virtual_costs=[0.1, 0.5, 0.9, 1.4]).with_virtual_cost(1, np.inf)
    market = cm.Market.standard(sellers, mu=2.0, sigma=1.0, gamma=0.5, cap=1.8)
    problem = declare_papers(market, 3.0, formulation)
    for eta in (3.0, 0.4):
        problem.eta = eta
        problem.solve(solver="CLARABEL")
        rest = form([0.1, 0.9, 1.4], mu=2.0, sigma=1.0, max_weight=0.45)
        best = optimal_weights(rest, 0.5 * eta)
        np.testing.assert_allclose(problem.weights, np.insert(best, 1, 0.0), atol=1e-4)
        assert problem.eta == pytest.approx(eta, rel=1e-9)
        if np.any((best > 1e-3) & (best < 0.449)):
            price = marginal_price(rest, best, 0.5 * eta)
            assert problem.multiplier == pytest.approx(price / eta, rel=1e-3)
        if formulation != "projection":
            assert problem.value == pytest.approx(rest.objective(best, eta), rel=1e-6)
