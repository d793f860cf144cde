"""Exact evaluations at every eta: against CVXPY, and against branch and bound over it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convexmarket as cm


def random_market(seed, squared, losses, largest, cap):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 40))
    sellers = cm.Sellers(virtual_costs=rng.exponential(size=m) * rng.choice([0, 1, 1, 1], size=m))
    mu, sigma, gamma = np.exp(rng.normal(size=3) * 2)
    spread = cm.SquaredSpread() if squared else cm.Spread()
    objective = mu * spread + sigma * cm.Noise() + gamma * cm.Payments()
    if losses:
        objective += float(np.exp(rng.normal())) * cm.Losses(rng.choice([0.1, 0.5, 2], size=m))
    constraints = [cm.Cap(rng.uniform(1, 4))] if cap else []
    constraints += [cm.MaxEpsilon(float(np.exp(rng.normal())))] if largest else []
    if rng.random() < 0.3:
        constraints += [cm.EtaRange(0.1, 3.0)]
    return cm.Market(sellers, objective, constraints)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    squared=st.booleans(),
    losses=st.booleans(),
    largest=st.booleans(),
    cap=st.booleans(),
)
def test_branch_and_bound_agrees(seed, squared, losses, largest, cap):
    try:
        market = random_market(seed, squared, losses, largest, cap)
        exact = cm.allocate(market, "projections")
    except (cm.InfeasibleMarketError, cm.UnattainedOptimumError) as error:
        with pytest.raises(type(error)):
            cm.allocate(market, "branch_and_bound")
        return
    solved = cm.allocate(market, "branch_and_bound", gap=1e-7)
    slack = 1e-9 * abs(exact.objective)
    assert exact.gap <= 1e-10
    assert exact.lower_bound <= solved.objective + slack
    assert solved.lower_bound <= exact.objective + slack
    assert solved.gap <= 1e-6
    assert exact.objective == pytest.approx(
        market.objective.value(exact.weights, exact.eta, market.sellers.virtual_costs)
    )


def test_losses_alone_decide_between_equal_sellers():
    sellers = cm.Sellers(virtual_costs=[1.0, 1.0, 1.0])
    objective = cm.SquaredSpread() + cm.Noise() + cm.Payments() + cm.Losses([0.0, 1.0, 9.0])
    found = cm.allocate(cm.Market(sellers, objective))
    assert found.method == "projections"
    # 2*a_i + loss_i equal for the first two: a = (3/4, 1/4); then eta = sqrt(sigma/(gamma*psi)).
    np.testing.assert_allclose(found.weights, [0.75, 0.25, 0.0], atol=1e-9)
    assert found.eta == pytest.approx(1.0, rel=1e-4)


@pytest.mark.parametrize(
    "values", [[1.0, np.nan], [[1.0, 2.0]], "losses", [], [np.inf, 0.0], ["a", "b"]]
)
def test_losses_that_are_not_numbers(values):
    with pytest.raises(cm.ParameterError, match="losses must be finite numbers, one for each"):
        cm.Losses(values)


def test_losses_of_other_sellers():
    with pytest.raises(cm.ParameterError, match="there are 3 losses for 2 sellers"):
        cm.Market(cm.Sellers(virtual_costs=[1, 2]), cm.Noise() + cm.Losses([1, 2, 3]))
