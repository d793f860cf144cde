"""Payments computed from allocations equal exact payments and closed forms.

If exact payments are unknown, lower and upper sums over separate allocations enclose the payments.
"""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import AllocationError, NotSupportedError
from convexmarket.incentives.rents import SolvedCurve
from tests import one_in
from tests.incentives.builders import (
    PRIORS,
    assert_sums_enclose_the_payment,
    draw,
    epsilon_at,
    prior_of,
    quotas,
    quotas_without_a_budget,
    single_seller_market,
    spread_market,
    spread_under_budget,
)


def rent_of(market, allocation, seller, tolerance, method="envelope", gap=1e-9):
    """Compute the rent of one truthful seller and the bound on its error."""
    sellers, who = market.sellers, np.array([seller])
    curve = SolvedCurve(market, allocation, gap, method, np.full(len(sellers), tolerance))
    result = curve.rents(sellers.prior_of(seller), who, sellers.sensitivities[who])
    return float(result[0][0]), float(result[1][0])


# ------------------------------------------------------- the papers' problem as oracle


@given(
    st.sampled_from(sorted(PRIORS)),
    st.integers(2, 9),
    st.integers(0, 10**6),
    st.floats(-1, 1).map(lambda exponent: 10.0**exponent),
    st.sampled_from([None, 1.5, 3.0]),
)
@example(name="empirical", m=5, seed=248, mu=1.0, cap=None)  # psi jumps
@example(name="two humps, ironed", m=2, seed=1000000, mu=1.0, cap=None)  # psi has a kink
def test_chords_give_the_exact_rent_within_the_stated_error(name, m, seed, mu, cap):
    prior = prior_of(name)
    sellers = draw(prior, m, seed)
    market = cm.Market.standard(sellers, mu=mu, sigma=1, gamma=0.6, cap=cap and min(cap, m))
    allocation = cm.allocate(market)
    if cap is not None and np.isinf(prior.support[1]) and cap * (m - 1) < m:
        return
    paid = cm.payments(market, allocation)
    for seller in np.flatnonzero(allocation.weights)[:2]:
        report = float(sellers.sensitivities[seller])
        value, error = rent_of(market, allocation, seller, 1e-4 * paid[seller])
        exact = paid[seller] - report * allocation.epsilon[seller]
        assert abs(value - exact) <= error + 1e-8 * paid[seller]
        assert error <= 1.01e-4 * paid[seller]


@pytest.mark.parametrize("name", ["uniform", "empirical", "mixture, ironed", "exponential"])
def test_quadrature_gives_the_exact_rent_within_the_stated_error(name):
    prior = prior_of(name)
    sellers = draw(prior, 5, 3)
    market = cm.Market.standard(sellers, mu=2.0, sigma=1, gamma=0.6)
    allocation = cm.allocate(market)
    seller = int(np.argmax(allocation.weights))
    report = float(sellers.sensitivities[seller])
    exact = cm.payments(market, allocation)[seller] - report * allocation.epsilon[seller]
    value, error = rent_of(market, allocation, seller, 1e-5, "quadrature")
    assert abs(value - exact) <= error + 1e-6
    value, error = rent_of(market, allocation, seller, 1e-3, "quadrature", gap=1e-3)
    assert abs(value - exact) <= error
    # Near an optimum, the error of the guarantees is of the order of the square root of the gap.
    assert error >= 0.04 * value


# ------------------------------------------------------------------------ convex costs


def test_payment_of_one_seller_with_a_quadratic_cost_equals_its_formula():
    """The optimum of sigma/eps + gamma*psi*eps^2 is eps^3 = sigma/(2*gamma*psi) = 2/psi = 1/z."""
    market = single_seller_market(0.4, cm.Uniform(0.0, 1.0), cm.PowerCost(2))
    allocation = cm.allocate(market, gap=1e-9)
    assert allocation.epsilon[0] == pytest.approx(0.4 ** (-1 / 3), rel=1e-3)
    # c*eps^2 + int_c^1 z^(-2/3) dz
    expected = 0.4 ** (1 / 3) + 3 * (1 - 0.4 ** (1 / 3))
    result = cm.incentives.estimate_payments(market, allocation)
    assert result.amounts[0] == pytest.approx(expected, rel=1e-3)  # the guarantee is inexact
    rent = result.amounts[0] - 0.4 * allocation.epsilon[0] ** 2
    assert abs(rent - 3 * (1 - 0.4 ** (1 / 3))) <= result.errors[0] + 1e-12
    assert result.errors[0] < 1e-4
    assert result.method == "envelope"
    assert cm.payments(market, allocation) == pytest.approx(result.amounts)


@pytest.mark.parametrize(
    ("name", "pieces"),
    one_in(
        2,
        [
            ("truncated normal", {"spread": 1.5 * cm.terms.SquaredSpread()}),
            ("two humps, ironed", {"cost": cm.terms.ExponentialCost(), "constraints": [cm.Cap(2)]}),
            ("exponential", {"spread": 1.5 * cm.Spread(p=3)}),
            ("uniform", {"constraints": [cm.GroupShare(list("aab"), at_least={"b": 0.4})]}),
        ],
    ),
)
def test_sums_over_separate_allocations_enclose_the_payment(name, pieces):
    market = spread_market(prior_of(name), **pieces, m=3)
    report = market.sellers.sensitivities[0]
    top = min(prior_of(name).support[1], report + 2.0)
    assert_sums_enclose_the_payment(market, 0, np.linspace(report, top, 6), accuracy=1e-2)


# ------------------------------------------------------------- objectives without reports


def test_payments_use_the_top_of_the_prior_if_the_objective_has_no_reports():
    priors = {"a": cm.Uniform(0.1, 1.0), "b": cm.Uniform(0.1, 2.0)}
    sellers = cm.Sellers([0.2, 0.5, 0.7], priors, groups=["a", "b", "a"])
    market = cm.Market(sellers, cm.Spread() + cm.Noise(), [cm.MaxEpsilon([0.5, 1.0, 0.0])])
    allocation = cm.allocate(market)
    result = cm.incentives.estimate_payments(market, allocation)
    np.testing.assert_allclose(result.amounts, np.array([1.0, 2.0, 1.0]) * allocation.epsilon)
    assert result.method == "constant"
    assert result.amounts[2] == 0
    assert not result.errors.any()


def test_an_indispensable_seller_under_an_unbounded_prior_is_refused():
    market = spread_market(prior_of("exponential"), cm.PowerCost(2), [cm.Cap(1)])
    with pytest.raises(NotSupportedError, match=r"no largest sensitivity.*no finite payment"):
        cm.payments(market, cm.allocate(market, gap=1e-8))


# --------------------------------------------------------------- markets without truthful payments


def budget_market():
    sellers = cm.Sellers([0.2, 0.5, 0.7], cm.Uniform(0.1, 1.0))
    limits = [cm.Budget(0.5), cm.MaxEpsilon(10.0)]
    return cm.Market(sellers, 1.0 * cm.Spread() + 1.0 * cm.Noise(), limits)


class CostMaximum(cm.Term):
    """User-defined term that depends on the reports through the virtual costs."""

    def expression(self, quantities):
        return cp.max(cp.multiply(quantities.virtual_costs, quantities.weights))


def test_payments_in_markets_without_truthful_payments_are_refused():
    limited = budget_market()
    custom = cm.Market(limited.sellers, cm.Spread() + cm.Noise() + 1.0 * CostMaximum())
    allocation = cm.allocate(limited)
    for market, words in (
        (limited, "not guaranteed in this market: a budget.*calibrate_gamma"),
        (custom, "unknown in this market: .*CostMaximum.*reads the virtual costs"),
    ):
        for pay in (cm.payments, cm.incentives.estimate_payments):
            with pytest.raises(NotSupportedError, match=words + ".*assume_monotone=True"):
                pay(market, allocation)


# ----------------------------------------------------------------------- budgets and quotas


def test_a_higher_report_can_sell_more_under_a_budget_and_quotas():
    """No payment rule makes this market truthful (docs/theory.md, section 9.4)."""
    market = quotas(0.2)
    assert market.incentives == "not guaranteed"
    cheap, costly = epsilon_at(market, 0, [0.2, 0.5], gap=1e-9)
    assert costly > 1.2 * cheap


# ----------------------------------------------------------------------------- contracts


def test_payments_of_selected_sellers_keep_their_order():
    market = spread_market(cm.Uniform(0.1, 1.0), spread=3.0 * cm.terms.SquaredSpread())
    allocation = cm.allocate(market, gap=1e-8)
    all_sellers = cm.incentives.estimate_payments(market, allocation)
    assert all_sellers.n_solves >= allocation.n_bought
    selected = cm.incentives.estimate_payments(market, allocation, sellers=[3, 1])
    assert selected.sellers.tolist() == [3, 1]
    np.testing.assert_allclose(selected.amounts, all_sellers.amounts[[3, 1]], rtol=1e-4)
    assert np.all(all_sellers.amounts >= market.sellers.sensitivities * allocation.epsilon - 1e-12)
    assert "total=" in repr(all_sellers)


def test_an_inaccurate_allocation_increases_payment_errors_or_is_refused():
    """A gap increases the error bounds of the payments, and a large gap raises an error."""
    market = spread_market(cm.Uniform(0.1, 1.0), cm.PowerCost(2), m=3)
    optimal = cm.allocate(market, gap=1e-8)
    rough = dataclasses.replace(optimal, lower_bound=optimal.objective * (1 - 9e-4))
    result = cm.incentives.estimate_payments(market, rough)
    assert result.errors.max() < 1e-5

    def value(factor):
        eta = factor * optimal.eta
        return market.objective.value(optimal.weights, eta, market.sellers.virtual_costs)

    poor = dataclasses.replace(optimal, eta=1.02 * optimal.eta, objective=value(1.02))
    assert 1e-5 < poor.gap < 1e-3
    assert cm.incentives.estimate_payments(market, poor).errors.max() > 1e-4
    poor = dataclasses.replace(optimal, eta=1.04 * optimal.eta, objective=value(1.04))
    with pytest.raises(AllocationError, match=r"has an error of .*allocate with a smaller"):
        cm.payments(market, poor)


def test_an_allocation_that_is_suboptimal_in_this_market_is_refused():
    """The objective of the allocation is correct, but eta is twice the optimum."""
    market = spread_market(cm.Uniform(0.1, 1.0), spread=1.0 * cm.terms.SquaredSpread())
    optimal = cm.allocate(market, gap=1e-8)
    eta = 2 * optimal.eta
    objective = market.objective.value(optimal.weights, eta, market.sellers.virtual_costs)
    wrong = dataclasses.replace(optimal, eta=eta, objective=objective, lower_bound=objective)
    with pytest.raises(
        AllocationError, match="not the optimum of this market, which has the objective"
    ):
        cm.payments(market, wrong)


# ------------------------------------------------------------------- markets that are solved


def test_rents_are_accurate_if_the_virtual_cost_becomes_infinite():
    """The density of a narrow truncated normal underflows far below the end of its support."""
    prior = cm.priors.TruncatedNormal(0.1, 0.002, 0.0, 1.0)
    assert np.isinf(prior.virtual_cost(0.5))
    market = cm.Market.standard(cm.Sellers([0.1, 0.101], prior), mu=2, sigma=1, gamma=0.6)
    allocation = cm.allocate(market)
    value, error = rent_of(market, allocation, 0, 1e-5)
    exact = cm.payments(market, allocation)[0] - 0.1 * allocation.epsilon[0]
    assert abs(value - exact) <= error + 1e-8
    assert error <= 1e-5


@pytest.mark.campaign
@pytest.mark.parametrize(
    "market",
    [
        spread_under_budget(1.0 * cm.Spread(), [0.3, 0.5, 0.8]),
        spread_under_budget(1.0 * cm.terms.SquaredSpread(), [0.3, 0.5, 0.8], [cm.Cap(1.6)]),
        quotas_without_a_budget(),
    ],
    ids=["budget", "budget and cap", "quotas"],
)
def test_no_seller_gains_by_a_misreport(market):
    audit = cm.audit_incentives(market)
    assert audit.is_incentive_compatible, audit.to_frame()
    assert audit.max_rise == 0


@pytest.mark.campaign
def test_a_seller_gains_by_a_misreport_under_a_budget_and_quotas():
    audit = cm.audit_incentives(quotas(0.2), misreports=12)
    assert not audit.is_incentive_compatible
    assert len(audit.to_frame()) == 4
    first = audit.to_frame().reset_index().iloc[0]
    assert first.max_gain > 0.01
    assert 0.3 < first.best_misreport < 0.7
    assert first.max_rise > 0.05
