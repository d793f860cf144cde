"""The audited gain of two sellers equals the gain from ``allocate`` and ``payments``."""

from itertools import product

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import ParameterError
from tests.incentives.builders import spread_under_budget


def standard(reports, **numbers):
    ids = [f"s{k}" for k in range(len(reports))]
    sellers = cm.Sellers(reports, prior=cm.Uniform(0, 1), ids=ids)
    return cm.Market.standard(sellers, **({"mu": 2, "sigma": 1, "gamma": 0.5} | numbers))


def surplus(make, reports, truth, pair):
    """Compute the total surplus of two sellers: their payments minus their true costs."""
    market = make(reports)
    allocation = cm.allocate(market, gap=1e-9)
    paid = cm.payments(market, allocation)
    return sum(paid[k] - truth[k] * allocation.epsilon[k] for k in pair)


def test_the_gain_of_a_coalition_is_the_maximum_over_the_grid():
    truth = np.array([0.2, 0.5, 0.7])
    result = cm.audit_incentives(standard(truth), coalitions=3).coalitions
    row = result.reset_index().iloc[0]
    pair = [int(name[1:]) for name in (row["first"], row["second"])]
    factors, quarters = np.array([1, 0.9, 0.99, 1.01, 1.1]), np.array([0.25, 0.5, 0.75, 1.0])
    grids = [[*(report * factors), *quarters] for report in truth[pair]]
    best = 0.0
    truthful = surplus(standard, truth, truth, pair)
    for report, other in product(*grids):
        misreports = truth.copy()
        misreports[pair] = report, other
        best = max(best, surplus(standard, misreports, truth, pair) - truthful)
    assert row["max_gain"] == pytest.approx(best, rel=1e-6)


def test_coalition_gains_in_conic_markets_exceed_the_tolerance():
    truth = np.array([0.3, 0.5])

    def build(reports):
        terms = 2 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
        return cm.Market(cm.Sellers(reports, prior=cm.Uniform(0, 1)), terms)

    market = build(truth)
    audit = cm.audit_incentives(market, coalitions=1, max_sellers=1, misreports=2)
    built = cm.audit_incentives(
        market, coalitions=1, max_sellers=1, misreports=2, build=build
    ).coalitions
    np.testing.assert_allclose(audit.coalitions, built, rtol=1e-3)
    (row,) = audit.coalitions.reset_index().itertuples()
    misreports = np.empty(2)
    misreports[[row.first, row.second]] = row.first_report, row.second_report
    gained = surplus(build, misreports, truth, (0, 1)) - surplus(build, truth, truth, (0, 1))
    assert audit.tolerance < row.max_gain <= gained


def test_the_surplus_of_a_pair_in_a_conic_market_is_accurate():
    market = spread_under_budget(cm.Spread(), [0.2, 0.4, 0.7])
    audit = cm.audit_incentives(market, misreports=2, coalitions=1)
    ((pair, row),) = audit.coalitions.iterrows()
    assert row.surplus == pytest.approx(audit.to_frame().surplus[list(pair)].sum())


def test_a_rule_independent_of_reports_has_a_fixed_coalition_surplus():
    market = standard([0.4, 0.5, 0.6])
    audit = cm.audit_incentives(
        market, rule=lambda report, epsilon, rent, virtual: 0.5 * epsilon, coalitions=2
    )
    truth = market.sellers.sensitivities
    row = audit.coalitions.reset_index().iloc[0]
    pair = [int(name[1:]) for name in (row["first"], row["second"])]
    sold = cm.allocate(market).epsilon
    assert row["surplus"] == pytest.approx(sum((0.5 - truth[k]) * sold[k] for k in pair))


def test_invalid_numbers_of_coalitions_are_refused():
    with pytest.raises(ParameterError, match="coalitions is 2, but the market has one seller"):
        cm.audit_incentives(standard([0.4]), coalitions=2)
    with pytest.raises(ParameterError, match=r"coalitions must .*, got -1"):
        cm.audit_incentives(standard([0.4, 0.5]), coalitions=-1)
