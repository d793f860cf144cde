"""Pairs who lie together: what they gain is what the public functions pay them."""

from itertools import product

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import ParameterError


def standard(reports, **numbers):
    ids = [f"s{k}" for k in range(len(reports))]
    sellers = cm.Sellers(reports, prior=cm.Uniform(0, 1), ids=ids)
    return cm.Market.standard(sellers, **({"mu": 2, "sigma": 1, "gamma": 0.5} | numbers))


def surplus(make, reports, truth, pair):
    """Return what a pair earns beyond its costs, by payments of the whole market."""
    market = make(reports)
    allocation = cm.allocate(market, gap=1e-9)
    paid = cm.payments(market, allocation)
    return sum(paid[k] - truth[k] * allocation.epsilon[k] for k in pair)


def test_two_who_gain_by_asking_for_more_together():
    """One asks for 10 per cent more, the other for more than twice as much: each gains by both."""
    audit = cm.audit_incentives(standard([0.1, 0.6]), coalitions=4)
    assert audit.is_incentive_compatible  # alone, lying does not pay
    found = audit.coalitions
    assert found.n_gaining == 4
    assert found.max_gain > 0.05
    truth = np.array([0.1, 0.6])
    for row in found.to_frame().reset_index().itertuples():
        lie = truth.copy()
        one, two = int(row.first[1:]), int(row.second[1:])
        assert one != two
        lie[[one, two]] = row.first_report, row.second_report
        gained, honest = (surplus(standard, z, truth, (0, 1)) for z in (lie, truth))
        assert row.surplus == pytest.approx(honest, rel=1e-9)
        assert row.max_gain == pytest.approx(gained - honest, rel=1e-7)
        assert row.share == pytest.approx(row.max_gain / honest)


def test_the_best_of_the_grid_is_found():
    truth = np.array([0.2, 0.5, 0.7])
    found = cm.audit_incentives(standard(truth), coalitions=3).coalitions
    row = found.to_frame().reset_index().iloc[0]
    pair = [int(name[1:]) for name in (row["first"], row["second"])]
    near, quarters = np.array([1, 0.9, 0.99, 1.01, 1.1]), np.array([0.25, 0.5, 0.75, 1.0])
    grids = [[*(own * near), *quarters] for own in truth[pair]]
    best = 0.0
    honest = surplus(standard, truth, truth, pair)
    for own, other in product(*grids):
        lie = truth.copy()
        lie[pair] = own, other
        best = max(best, surplus(standard, lie, truth, pair) - honest)
    assert row["max_gain"] == pytest.approx(best, rel=1e-6)


@pytest.mark.campaign
def test_pairs_are_the_same_again_and_the_seed_decides():
    market = standard(np.linspace(0.1, 0.9, 12))
    tables = [cm.audit_incentives(market, coalitions=3).coalitions.to_frame() for _ in range(2)]
    assert tables[0].equals(tables[1])
    rng = np.random.default_rng(7)
    other = cm.audit_incentives(market, coalitions=3, random_state=rng).coalitions
    assert not other.to_frame().equals(tables[0])
    assert "of 3 pairs gain together" in repr(other)
    assert cm.audit_incentives(market).coalitions is None


def test_other_markets_are_solved_again_and_a_gain_is_beyond_their_gaps():
    truth = np.array([0.3, 0.5])

    def build(reports):
        terms = 2 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments()
        return cm.Market(cm.Sellers(reports, prior=cm.Uniform(0, 1)), terms)

    market = build(truth)
    seen = cm.audit_incentives(market, coalitions=1, max_sellers=1, misreports=2).coalitions
    built = cm.audit_incentives(
        market, coalitions=1, max_sellers=1, misreports=2, build=build
    ).coalitions
    np.testing.assert_allclose(seen.to_frame(), built.to_frame(), rtol=1e-3)
    (row,) = seen.to_frame().reset_index().itertuples()
    lie = np.empty(2)
    lie[[row.first, row.second]] = row.first_report, row.second_report
    gained = surplus(build, lie, truth, (0, 1)) - surplus(build, truth, truth, (0, 1))
    assert seen.tolerance < row.max_gain <= gained


def test_a_rule_that_does_not_listen_leaves_nothing_to_gain():
    market = standard([0.4, 0.5, 0.6])
    audit = cm.audit_incentives(
        market, rule=lambda report, epsilon, rent, virtual: 0.5 * epsilon, coalitions=2
    )
    truth = market.sellers.sensitivities
    row = audit.coalitions.to_frame().reset_index().iloc[0]
    pair = [int(name[1:]) for name in (row["first"], row["second"])]
    sold = cm.allocate(market).epsilon
    assert row["surplus"] == pytest.approx(sum((0.5 - truth[k]) * sold[k] for k in pair))


@pytest.mark.campaign  # a statistic over many markets
def test_most_pairs_gain_a_little_and_some_a_lot():
    """Small markets of many kinds: a median of some tenths of a per cent, and a long tail."""
    rng, shares = np.random.default_rng(2), []
    for _ in range(8):
        m = int(rng.integers(2, 12))
        mu, sigma, gamma = np.exp(rng.uniform([-1, -1, -3], [2, 2, 0]))
        market = standard(rng.random(m), mu=mu, sigma=sigma, gamma=gamma)
        shares += cm.audit_incentives(market, coalitions=3).coalitions.to_frame()["share"].tolist()
    gains = np.array(shares)
    assert np.mean(gains > 1e-6) > 0.5
    assert 1e-4 < np.nanmedian(gains) < 0.05
    assert np.nanmax(gains) > 0.05


def test_what_cannot_collude_is_refused():
    with pytest.raises(ParameterError, match="coalitions is 2, and there is one seller"):
        cm.audit_incentives(standard([0.4]), coalitions=2)
    with pytest.raises(ParameterError, match=r"coalitions must .*, got -1"):
        cm.audit_incentives(standard([0.4, 0.5]), coalitions=-1)
