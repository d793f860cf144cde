"""The path of optimal weights, against projections and norms minimised one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.allocation.costs import Replaced, SortedCosts
from convexmarket.allocation.path import (
    _Path,
    beta_at,
    cheapest,
    common_stretches,
    minimise,
    point_at,
    squared_rates,
    stationary_beta,
    stationary_pieces,
)
from convexmarket.allocation.simplex import norm_minimiser, project_capped_simplex

#: Costs up to 1 with the cheapest at 0 or above, tied and not, and caps that fit hardly or well.
PLAIN = np.array([0.05, 0.1, 0.3, 0.45, 0.8, 1.0])
TIED = np.array([0.1, 0.1, 0.1, 0.4, 0.4, 0.9, 1.0, 1.0])
FREE = np.array([0.0, 0.0, 0.3, 0.7, 0.7, 1.0])
MARKETS = [
    (psi, cap)
    for psi in (PLAIN, TIED, FREE, np.full(4, 1.0), np.array([1.0]))
    for cap in (1.0, 0.5, 0.3, 1 / psi.size)
    if cap * psi.size >= 1 - 1e-12 and (psi[0] < 1 or cap == 1)
]


def weights_at(psi, cap, beta):
    return project_capped_simplex(-beta * psi, max(cap, 1 / psi.size))


def least(psi, cap, rate):
    """Return the least of ``||a|| + rate*psi'a``, and where it is."""
    weights = norm_minimiser(rate * psi, 1.0, max(cap, 1 / psi.size))
    return float(np.linalg.norm(weights) + rate * (psi @ weights)), weights


def counts(psi, cap, beta):
    """Return how many sellers are at the cap, and how many are bought from."""
    weights = weights_at(psi, cap, beta)
    return int(np.sum(weights >= cap * (1 - 1e-9))), int(np.sum(weights > 1e-9))


# ------------------------------------------------------------------ sorted costs


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 4.0]), min_size=2, max_size=7))
def test_replaced_costs_are_the_costs_sorted_anew(values):
    ordered = np.sort(np.array(values))
    for limit in (np.inf, ordered[-1], max(ordered[0], 1.2)):
        check_replaced_costs(ordered, limit)


def check_replaced_costs(ordered, limit):
    base = SortedCosts(ordered, limit)
    within = ordered[ordered <= limit]
    np.testing.assert_array_equal(base.psi, within)
    others = {*within, 0.25, 2.0, 9.0, np.inf}
    ranks, psi = zip(*product(range(ordered.size), others), strict=True)
    costs = Replaced(base, np.array(ranks), np.array(psi))
    for e, (rank, new) in enumerate(zip(ranks, psi, strict=True)):
        kept = np.delete(ordered, rank)
        expected = np.sort(np.append(kept[kept <= limit], [new] if new < np.inf else []))
        scaled = (expected - base.lowest) / base.scale
        assert costs.size[e] == expected.size
        k = np.arange(expected.size)
        where = np.full_like(k, e)
        np.testing.assert_allclose(costs.value(where, k), scaled, atol=1e-14)
        ks = np.arange(expected.size + 1)
        where = np.full_like(ks, e)
        sums = np.append(0, np.cumsum(scaled)), np.append(0, np.cumsum(scaled**2))
        np.testing.assert_allclose(costs.sum1(where, ks), sums[0], atol=1e-12)
        np.testing.assert_allclose(costs.sums(where, ks), sums, atol=1e-12)
        below, upto = costs.ties(where[:-1], k)
        np.testing.assert_array_equal(below, [np.sum(expected < c) for c in expected])
        np.testing.assert_array_equal(upto, [np.sum(expected <= c) for c in expected])


# ------------------------------------------------------------ pieces of the path


@pytest.mark.parametrize(("psi", "cap"), MARKETS)
def test_pieces_of_the_path_are_projections_between_their_ends(psi, cap):
    path, e = _Path.of(SortedCosts(psi), cap), np.zeros(1, dtype=int)
    seen = set()
    for beta in np.geomspace(3e-3, 3e2, 40):
        weights = weights_at(psi, cap, beta)
        j, q = counts(psi, cap, beta)
        if j == q:
            continue  # all weight at the cap: no seller is free
        one, other = np.array([j]), np.array([q])
        segment = path.segment(e, one, other)
        low, high = (float(end[0]) for end in path.limits(e, one, other, segment))
        assert low * (1 - 1e-9) <= beta <= high * (1 + 1e-9)
        _, _, _, spread, cost, norm2 = (float(np.broadcast_to(x, 1)[0]) for x in segment)
        assert norm2 + beta**2 * spread == pytest.approx(weights @ weights, rel=1e-12)
        assert cost - beta * spread == pytest.approx(psi @ weights, rel=1e-11, abs=1e-13)
        if (j, q) in seen:
            continue
        seen.add((j, q))
        outward, inward = (low * (1 - 1e-4), high * (1 + 1e-4)), (low * (1 + 1e-4), high * 0.9999)
        for end, out, within in zip((low, high), outward, inward, strict=True):
            if 0 < end < 1e9:
                assert counts(psi, cap, out) != (j, q)
                assert counts(psi, cap, within) == (j, q) or high < low * 1.001
            else:
                assert counts(psi, cap, 1e-6 if end == 0 else 1e6) == (j, q)


@pytest.mark.parametrize("rho", [1e-3, 0.1, 2.0])
def test_the_stationary_point_of_a_piece_is_its_local_minimum(rho):
    """F = ||a|| + r*psi'a + rho/r with ||a||^2 = N0 + beta^2 W, psi'a = p0 - beta W, on a grid."""
    norm2 = 0.3
    for spread, cost in product((0.01, 0.2, 1.0, 3.0), (0.05, 0.5, 2.0)):
        beta = np.geomspace(1e-3, min(cost / spread, 1e3) * (1 - 1e-9), 200_001)
        norm = np.sqrt(norm2 + beta**2 * spread)
        rate = beta / norm
        value = norm + rate * (cost - beta * spread) + rho / rate
        minima = np.flatnonzero((value[1:-1] < value[:-2]) & (value[1:-1] < value[2:])) + 1
        found = stationary_beta(*(np.array([x]) for x in (spread, cost, norm2)), rho)[0]
        assert minima.size <= 1
        if minima.size:
            assert found == pytest.approx(beta[minima[0]], rel=2e-4), (spread, cost)
        else:
            assert not beta[0] < found < beta[-1], (spread, cost)


def test_the_rate_of_a_point_of_the_path():
    spread, norm2 = np.array([0.2, 0.0, 0.5]), np.array([0.3, 0.4, 0.25])
    beta = beta_at(spread, norm2, 1.3)
    np.testing.assert_allclose(beta / np.sqrt(norm2 + beta**2 * spread), 1.3, rtol=1e-12)
    assert np.isinf(beta_at(np.array([0.7]), np.array([0.3]), 1.3))[0]


# ------------------------------------------------------------ points of the path


@pytest.mark.parametrize(("psi", "cap"), MARKETS)
def test_no_rate_in_the_range_is_better_than_the_best_point(psi, cap):
    for rho, rates in product((0.01, 0.3, 20.0), ((0.0, np.inf), (0.4, 3.0))):
        check_best_point(psi, cap, rho, rates)


def check_best_point(psi, cap, rho, rates):
    point = minimise(SortedCosts(psi), cap, rho, rates)
    value, rate = float(point.value[0]), float(point.rate[0])
    grid = np.geomspace(max(rates[0], 1e-2), min(rates[1], 1e3), 15)
    values = np.array([least(psi, cap, r)[0] + rho / r for r in grid])
    free = np.count_nonzero(psi == 0)
    if rate == np.inf and value < np.inf:  # all from those who cost nothing
        assert free * cap >= 1
        assert value == pytest.approx(1 / np.sqrt(free))
        assert value <= values.min()
        return
    if value == np.inf:  # the least of the range is at an end
        assert rates != (0.0, np.inf)
        assert np.argmin(values) in (0, grid.size - 1)
        return
    assert rates[0] <= rate <= rates[1]
    expected, weights = least(psi, cap, rate)
    assert value == pytest.approx(expected + rho / rate, rel=1e-12)
    assert value <= values.min() * (1 + 1e-12) or rates != (0.0, np.inf)
    if not point.moved[0]:
        assert rate**2 * (psi @ weights) == pytest.approx(rho, rel=1e-9)
    else:
        assert rates != (0.0, np.inf)
    j, q = int(point.capped[0]), int(point.bought[0])
    assert np.all(weights[:j] >= cap - 1e-9)
    assert np.all(weights[q:] <= 1e-9)
    level = float(point.level[0])  # from here on nobody is bought from
    assert np.all(psi[weights > 1e-9] < level + psi[0] + 1e-9)
    assert np.all(psi[weights < 1e-12] >= level + psi[0] - 1e-9)


@pytest.mark.parametrize(("psi", "cap"), MARKETS)
def test_the_best_weights_at_one_rate(psi, cap):
    for rate in (0.05, 1.0, 6.0, 200.0):
        point = point_at(SortedCosts(psi), cap, 0.7, rate)
        expected, weights = least(psi, cap, rate)
        assert point.value[0] == pytest.approx(expected + 0.7 / rate, rel=1e-12)
        assert point.rate[0] == rate
        if point.beta[0] < np.inf:
            again = weights_at(psi, cap, point.beta[0])
            np.testing.assert_allclose(again, weights, atol=1e-9)


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.3])
def test_a_rate_that_is_just_that_of_a_node(cap):
    costs = SortedCosts(PLAIN)
    _, rate2 = squared_rates(costs, cap, 9)
    for rate in np.sqrt(rate2):
        value = point_at(costs, cap, 0.7, float(rate)).value[0]
        assert value == pytest.approx(least(PLAIN, cap, rate)[0] + 0.7 / rate, rel=1e-12)


@pytest.mark.parametrize("psi", [PLAIN, TIED, np.full(4, 1.0)])
@pytest.mark.parametrize("count", [1, 2, 5, 50])
def test_nodes_are_spread_evenly_up_to_the_last(psi, count):
    nodes, rate2 = squared_rates(SortedCosts(psi), 1.0, count)
    first = np.count_nonzero(psi == psi[0])  # the cheapest are bought from everywhere
    last = psi.size - 1
    assert np.all((nodes >= first) & (nodes <= max(last, first)))
    assert np.all(np.diff(nodes) >= 0)
    assert np.all(np.diff(rate2) <= 1e-12)
    if first <= last:
        assert nodes.size == count
        assert nodes[-1] == last
        assert count == 1 or nodes[0] == first
        assert np.ptp(np.diff(nodes)) <= 1 if count > 2 else True


@pytest.mark.parametrize("cap", [1.0, 0.3])
def test_nodes_of_a_path_are_projections(cap):
    """At node k seller k is just not bought from; r = beta/||a|| there."""
    psi = np.array([0.1, 0.15, 0.3, 0.5, 0.55, 0.9, 1.4])
    nodes, rate2 = squared_rates(SortedCosts(psi), cap, 4)
    assert nodes[-1] == psi.size - 1
    assert np.all(np.diff(nodes) >= 0)
    assert nodes.size == 4
    for k, squared in zip(nodes, rate2, strict=True):
        low, high = 1e-3, 1e3
        for _ in range(100):  # the largest beta at which seller k is bought from
            middle = np.sqrt(low * high)
            bought = weights_at(psi, cap, middle)[k] > 0
            low, high = (middle, high) if bought else (low, middle)
        weights = weights_at(psi, cap, low)
        beta = low * (psi[-1] - 0.0)  # costs are divided by the largest
        assert np.sqrt(squared) == pytest.approx(beta / np.linalg.norm(weights), rel=1e-6)


@pytest.mark.parametrize(("psi", "cap"), MARKETS)
def test_the_cheapest_purchase_is_the_end_of_the_path(psi, cap):
    cost, share, below, upto = (float(x[0]) for x in cheapest(SortedCosts(psi), cap))
    weights = weights_at(psi, cap, 1e9)
    marginal = psi[weights > 1e-9].max()
    assert cost == pytest.approx(psi @ weights, rel=1e-12, abs=1e-15)
    assert share == pytest.approx(weights[psi == marginal][0], rel=1e-9)
    assert (below, upto) == (np.sum(psi < marginal), np.sum(psi <= marginal))


def test_free_sellers_share_the_weight_where_the_rate_has_no_end():
    base = SortedCosts(np.array([0.0, 0.3, 0.6, 1.0]))
    for cap, psi, expected in [(1.0, 0.0, 0.5), (0.5, 0.0, 0.5), (1.0, 0.7, 0.0)]:
        costs = Replaced(base, np.array([2]), np.array([psi]))
        point = minimise(costs, cap, 1e3)
        assert point.rate[0] == np.inf
        assert point.weight_of(costs, cap)[0] == expected


# -------------------------------------------------- many markets, and long paths


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("rho", [0.02, 1.0])
def test_many_markets_at_once_are_each_as_if_alone(cap, rho):
    """Among them sellers who tie, who leave, who cost less than all or more than all."""
    base = SortedCosts(TIED)
    ranks = np.array([0, 0, 3, 3, 4, 5, 6, 7, 2, 7])
    psi = np.array([0.1, 0.5, 0.02, np.inf, 0.4, 1.0, 3.0, 0.1, 0.95, np.inf])
    costs = Replaced(base, ranks, psi)
    best, held = minimise(costs, cap, rho), point_at(costs, cap, rho, 2.0)
    markets = stationary_pieces(costs, cap, rho)[0]
    assert set(markets.tolist()) == set(range(ranks.size))
    for e, (rank, new) in enumerate(zip(ranks, psi, strict=True)):
        alone = np.append(np.delete(TIED, rank), new)
        finite = np.sort(alone[np.isfinite(alone)])
        for point in (best, held):
            rate = float(point.rate[e])
            expected, weights = least(finite, cap, rate)
            assert point.value[e] == pytest.approx(expected + rho / rate, rel=1e-12)
            own = 0.0 if new == np.inf else weights[np.searchsorted(finite, new)]
            assert point.weight_of(costs, cap)[e] == pytest.approx(own, abs=1e-9)
        one = minimise(SortedCosts(finite), cap, rho * finite[-1])
        assert best.value[e] == pytest.approx(one.value[0], rel=1e-12)
        taken = best[np.array([e])]
        assert (taken.value[0], taken.bought[0]) == (best.value[e], best.bought[e])


@st.composite
def long_markets(draw):
    """Costs of a market, tied and not, a cap that any but one fit, and a cost of the optimum."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    m = draw(st.sampled_from([2, 3, 9, 40, 400, 3000]))
    psi = np.sort(draw(st.sampled_from([rng.random, rng.exponential]))(size=m))
    if draw(st.booleans()):
        psi = np.ceil(psi * draw(st.sampled_from([3, 30]))) / 3
    if draw(st.booleans()):
        psi[0] *= 1e-3
    cap = min(1.0, draw(st.sampled_from([1.0, 1.001, 1.5, 5.0, np.inf])) / (m - 1))
    return psi, cap, rng


@given(long_markets(), st.floats(-6, 3))
def test_markets_that_differ_in_a_seller_are_stationary_on_common_stretches(market, decade):
    psi, cap, rng = market
    base, rho, dearest = SortedCosts(psi), 10**decade, 2.0 * psi[-1]
    ranks = np.concatenate(([0, psi.size - 1], rng.integers(psi.size, size=30)))
    other = psi[0] + (dearest - psi[0]) * rng.random(32)
    new = np.where(rng.random(32) < 0.4, np.inf, other)
    new[:6] = np.inf, np.inf, psi[0], dearest, psi[-1], psi[psi.size // 2]
    costs = Replaced(base, ranks, new)
    common = common_stretches(base, cap, rho, dearest)
    starts, ends = common.k[:-1], common.k[1:]
    path = _Path.of(costs, cap)
    e, j, q = stationary_pieces(costs, cap, rho)
    points = path.points(e, j, q, rho)
    still = ~points.moved & np.isfinite(points.beta)
    inside = (starts < q[still, None]) & (q[still, None] <= ends)
    assert np.all(inside.any(axis=1))
    alone, within = minimise(costs, cap, rho), minimise(costs, cap, rho, within=common)
    np.testing.assert_allclose(within.value, alone.value, rtol=1e-12)


@pytest.mark.parametrize("m", [1500, 3000])
def test_pieces_that_may_be_stationary_hold_the_point_that_is(m):
    """Of paths longer than the first cut, whose stretches are of several lengths then."""
    psi = np.sort(np.random.default_rng(5).exponential(size=m))
    psi /= psi[-1]
    costs = SortedCosts(psi)
    for cap, rate in [(1.0, 15.0), (1.0, 40.0), (1.0, 150.0), (5 / m, 20.0), (5 / m, 200.0)]:
        _, weights = least(psi, cap, rate)
        rho = rate**2 * float(psi @ weights)
        value = np.linalg.norm(weights) + 2 * rate * float(psi @ weights)
        assert minimise(costs, cap, rho).value[0] <= value * (1 + 1e-13)
        assert point_at(costs, cap, rho, rate).value[0] == pytest.approx(value, rel=1e-13)
        _, j, q = stationary_pieces(costs, cap, rho)
        pieces = set(zip(j.tolist(), q.tolist(), strict=True))
        assert (np.sum(weights >= cap * (1 - 1e-9)), np.sum(weights > 0)) in pieces
        assert len(pieces) < 40
        assert all(0 <= j < q <= m for j, q in pieces)
