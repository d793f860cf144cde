"""Exact evaluations at every eta: against CVXPY, and against branch and bound over it."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.projections import projectable_form
from convexmarket.allocation.simplex import largest_eta


def one_or_each(rng, m, bounds, low=0.0):
    """Return one bound for all, or one for each seller; some may be at the lower end."""
    if bounds == "one":
        return float(np.exp(rng.normal())) + low
    each = np.exp(rng.normal(size=m)) + low
    return each * rng.choice([0, 1, 1, 1], size=m) if rng.random() < 0.5 and m > 1 else each


def random_market(seed, squared, losses, largest, cap, paid):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 40))
    sellers = cm.Sellers(virtual_costs=rng.exponential(size=m) * rng.choice([0, 1, 1, 1], size=m))
    mu, sigma, gamma = np.exp(rng.normal(size=3) * 2)
    spread = cm.SquaredSpread() if squared else cm.Spread()
    objective = mu * spread + sigma * cm.Noise()
    if paid:
        objective += gamma * cm.Payments()
    if losses:
        objective += float(np.exp(rng.normal())) * cm.Losses(rng.choice([0.1, 0.5, 2], size=m))
    constraints = [cm.Cap(one_or_each(rng, m, cap, low=1.0))] if cap else []
    constraints += [cm.MaxEpsilon(one_or_each(rng, m, largest))] if largest else []
    if rng.random() < 0.3:
        constraints += [cm.EtaRange(0.1, 3.0)]
    return cm.Market(sellers, objective, constraints)


def worth_of_violations(market, found):
    """Return what a solver's point may gain by being beyond its bounds by its own accuracy."""
    form, able = projectable_form(market).restricted()
    weights = found.weights[able]
    beyond = np.maximum(weights - form.limit(found.eta), 0.0).sum()
    assert beyond <= 1e-8
    marginal = form.slope(weights) + form.prices(found.eta)
    return beyond * np.ptp(marginal)


BOUNDS = st.sampled_from([None, "one", "each"])


@settings(max_examples=100, deadline=None)
@example(seed=103, squared=False, losses=True, largest="each", cap="each", paid=True)
@example(seed=158, squared=False, losses=False, largest="each", cap="each", paid=True)
@given(
    seed=st.integers(0, 10**6),
    squared=st.booleans(),
    losses=st.booleans(),
    largest=BOUNDS,
    cap=BOUNDS,
    paid=st.booleans(),
)
def test_branch_and_bound_agrees(seed, squared, losses, largest, cap, paid):
    if not (paid or largest):
        paid = True
    try:
        market = random_market(seed, squared, losses, largest, cap, paid)
        exact = cm.allocate(market, "projections")
    except cm.ParameterError:  # caps of less than 1 on average, or nobody who may sell
        return
    except (cm.InfeasibleMarketError, cm.UnattainedOptimumError) as error:
        with pytest.raises(type(error)):
            cm.allocate(market, "branch_and_bound")
        return
    solved = cm.allocate(market, "branch_and_bound", gap=1e-7)
    slack = 1e-9 * abs(exact.objective)
    assert exact.gap <= 1e-10
    assert exact.lower_bound <= solved.objective + slack + worth_of_violations(market, solved)
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


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 10**6), capped=st.booleans())
def test_the_largest_eta_is_where_bounds_just_let_weights_sum_to_one(seed, capped):
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 30))
    granted = rng.exponential(size=m) * rng.choice([0, 1, 1, 1], size=m)
    granted[0] += 0.1
    caps = rng.uniform(1, 3, size=m) if capped else np.full(m, float(m))
    market = cm.Market(
        cm.Sellers(virtual_costs=np.ones(m)),
        cm.Spread() + cm.Noise(),
        [cm.GivenEpsilon(granted), cm.Cap(caps)],
    )
    form = projectable_form(market)
    if np.minimum(form.max_weight, np.where(granted > 0, 1.0, 0.0)).sum() < 1:
        with pytest.raises(cm.InfeasibleMarketError, match="cannot sum to one"):
            form.restricted()
        return
    form, able = form.restricted()
    np.testing.assert_array_equal(able, granted > 0)
    eta = largest_eta(form.max_weight, form.max_epsilon, able.sum())
    assert form.limit(eta).sum() == pytest.approx(1, rel=1e-9)
    assert form.limit(eta * (1 + 1e-6)).sum() < 1


def test_a_bound_for_each_and_a_range_above_what_they_sell():
    market = cm.Market(
        cm.Sellers(virtual_costs=[1.0, 2.0, 3.0]),
        cm.Spread() + cm.Noise() + cm.Losses([0.1, 0.2, 0.3]),
        [cm.GivenEpsilon([0.5, 0.0, 1.0]), cm.EtaRange(2.0, 3.0)],
    )
    with pytest.raises(cm.InfeasibleMarketError, match=r"no more than epsilon = 1 sell 1.5 in all"):
        cm.allocate(market)


@pytest.mark.parametrize("spread", [cm.Spread(), cm.SquaredSpread()], ids=repr)
@pytest.mark.parametrize("cap", [1, 1.5, np.array([0.5, 2.0, 1.0, 0.5, 1.0]), 2.2])
@pytest.mark.parametrize("mu", [1e-7, 1e-3])
def test_caps_where_the_spread_is_next_to_nothing(spread, cap, mu):
    """The multipliers of caps change fast with eta, so that cuts keep the caps."""
    sellers = cm.Sellers(virtual_costs=[0.0, 0.2956, 0.5597, 0.813, 0.1206])
    objective = mu * spread + 0.26 * cm.Payments() + 1.57 * cm.Noise()
    found = cm.allocate(cm.Market(sellers, objective, [cm.Cap(cap)]), "projections")
    assert found.gap <= 1e-10
    assert len(found.solves) <= 10
