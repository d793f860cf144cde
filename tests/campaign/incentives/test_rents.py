"""Payments of markets that are solved again, at the accuracy they are asked for by default."""

import numpy as np
import pytest

import convexmarket as cm
from tests.incentives.builders import (
    assert_one_seller_is_paid_for_an_exponential_cost,
    assert_sums_enclose_the_payment,
    prior_of,
    quotas,
    quotas_without_a_budget,
    spread_market,
    spread_under_budget,
)
from tests.incentives.test_rents import check_rough_allocation


@pytest.mark.parametrize("name", ["truncated normal", "mixture, ironed", "empirical"])
def test_one_seller_with_an_exponential_cost(name):
    assert_one_seller_is_paid_for_an_exponential_cost(prior_of(name), accuracy=1e-4)


@pytest.mark.parametrize("seed", range(2, 6))
@pytest.mark.parametrize(
    ("name", "pieces"),
    [
        ("uniform", {"cost": cm.PowerCost(2)}),
        ("truncated normal", {"spread": 1.5 * cm.terms.SquaredSpread()}),
        ("mixture, ironed", {"cost": cm.terms.ExponentialCost(), "constraints": [cm.Cap(2)]}),
        ("exponential", {"spread": 1.5 * cm.Spread(p=3)}),
        ("uniform", {"constraints": [cm.GroupShare(list("aabb"), at_least={"b": 0.4})]}),
    ],
)
def test_sums_over_markets_solved_again_enclose_the_payment(name, pieces, seed):
    market = spread_market(prior_of(name), **pieces, m=4, seed=seed)
    seller = int(np.argmax(cm.allocate(market, gap=1e-8).weights))
    report = market.sellers.sensitivities[seller]
    z = np.linspace(report, min(prior_of(name).support[1], report + 2.0), 13)
    assert_sums_enclose_the_payment(market, seller, z, accuracy=1e-4)


@pytest.mark.parametrize(
    "market",
    [
        spread_under_budget(1.0 * cm.Spread(), [0.3, 0.5, 0.8]),
        spread_under_budget(1.0 * cm.terms.SquaredSpread(), [0.3, 0.5, 0.8], [cm.Cap(1.6)]),
        quotas_without_a_budget(),
    ],
    ids=["budget", "budget and cap", "quotas"],
)
def test_nobody_gains_by_lying(market):
    audit = cm.audit_incentives(market)
    assert audit.is_incentive_compatible, audit.to_frame()
    assert audit.max_rise == 0


def test_under_a_budget_and_quotas_the_first_gains_by_lying():
    audit = cm.audit_incentives(quotas(0.2), misreports=12)
    assert not audit.is_incentive_compatible
    assert len(audit.to_frame()) == 4
    first = audit.to_frame().reset_index().iloc[0]
    assert first.max_gain > 0.01
    assert 0.3 < first.best_misreport < 0.7
    assert first.max_rise > 0.05


def test_a_rough_allocation_of_six_is_not_paid_silently():
    check_rough_allocation(6)
