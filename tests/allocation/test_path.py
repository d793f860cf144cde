"""The path of optimal weights, against projections and norms minimised one by one."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.allocation.costs import Costs
from convexmarket.allocation.path import common_stretches, minimise, point_at, stationary_beta
from convexmarket.allocation.simplex import norm_minimiser

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


def least(psi, cap, rate):
    """Return the least of ``||a|| + rate*psi'a``, and where it is."""
    limits = np.full(psi.size, max(cap, (1 + 1e-15) / psi.size))
    weights = norm_minimiser(rate * psi, 1.0, limits).weights
    return float(np.linalg.norm(weights) + rate * (psi @ weights)), weights


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 4.0]), min_size=2, max_size=7))
def test_replaced_costs_are_the_costs_sorted_anew(values):
    """Sums below every cost, and the costs and ranks of the sellers one by one."""
    ordered = np.sort(np.array(values))
    for limit in (np.inf, ordered[-1], max(ordered[0], 1.2)):
        base = Costs.sorted(ordered, limit)
        others = {*ordered[ordered <= limit], 0.25, 2.0, 9.0, np.inf}
        pairs = list(product(range(ordered.size), others))
        costs = base.replaced(ordered[[rank for rank, _ in pairs]], np.array([y for _, y in pairs]))
        for e, (rank, new) in enumerate(pairs):
            kept = np.delete(ordered, rank)
            expected = np.sort(np.append(kept[kept <= limit], [new] if new < np.inf else []))
            scaled = (expected - base.lowest) / base.scale
            own, ends = costs[np.array([e])], np.arange(expected.size + 1)
            assert own.number(own.size)[0] == expected.size
            rows = own.position(ends)
            sums = own.sums(rows)
            np.testing.assert_array_equal(sums[0], ends)
            np.testing.assert_allclose(sums[1], np.append(0, np.cumsum(scaled)), atol=1e-12)
            np.testing.assert_allclose(sums[2], np.append(0, np.cumsum(scaled**2)), atol=1e-12)
            np.testing.assert_allclose(own.value(rows[:-1]), scaled, atol=1e-14)
            below, upto = (own.number(rank) for rank in own.ties(rows[:-1]))
            np.testing.assert_array_equal(below, [np.sum(expected < c) for c in expected])
            np.testing.assert_array_equal(upto, [np.sum(expected <= c) for c in expected])


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


@pytest.mark.parametrize(("psi", "cap"), MARKETS)
def test_no_rate_in_the_range_is_better_than_the_best_point(psi, cap):
    for rho, rates in product((0.01, 0.3, 20.0), ((0.0, np.inf), (0.4, 3.0))):
        point = minimise(Costs(psi), 1 / cap, rho, rates)
        value, rate = float(point.value[0]), float(point.rate[0])
        grid = np.geomspace(max(rates[0], 1e-2), min(rates[1], 1e3), 15)
        values = np.array([least(psi, cap, r)[0] + rho / r for r in grid])
        free = np.count_nonzero(psi == 0)
        if rate == np.inf and value < np.inf:  # all from those who cost nothing
            assert free * cap >= 1
            assert value == pytest.approx(1 / np.sqrt(free))
            assert value <= values.min()
        elif value == np.inf:  # the least of the range is at an end
            assert rates != (0.0, np.inf)
            assert np.argmin(values) in (0, grid.size - 1)
        else:
            assert rates[0] <= rate <= rates[1]
            expected, weights = least(psi, cap, rate)
            assert value == pytest.approx(expected + rho / rate, rel=1e-12)
            assert value <= values.min() * (1 + 1e-12) or rates != (0.0, np.inf)
            j, q = int(point.capped[0]), int(point.bought[0])
            assert np.all(weights[:j] >= cap - 1e-9)
            assert np.all(weights[q:] <= 1e-9)
            level = float(point.level[0])  # from here on nobody is bought from
            assert np.all(psi[weights > 1e-9] < level + psi[0] + 1e-9)
            assert np.all(psi[weights < 1e-12] >= level + psi[0] - 1e-9)


@pytest.mark.parametrize(("psi", "cap"), MARKETS)
def test_the_best_weights_at_one_rate(psi, cap):
    for rate in (0.05, 1.0, 6.0, 200.0):
        point = point_at(Costs(psi), 1 / cap, 0.7, rate)
        assert point.value[0] == pytest.approx(least(psi, cap, rate)[0] + 0.7 / rate, rel=1e-12)
        assert point.rate[0] == rate


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("rho", [0.02, 1.0])
def test_many_markets_at_once_are_each_as_if_alone(cap, rho):
    """Among them sellers who tie, who leave, who cost less than all or more than all."""
    ranks = np.array([0, 0, 3, 3, 4, 5, 6, 7, 2, 7])
    psi = np.array([0.1, 0.5, 0.02, np.inf, 0.4, 1.0, 3.0, 0.1, 0.95, np.inf])
    costs = Costs(TIED).replaced(TIED[ranks], psi)
    best, held = minimise(costs, 1 / cap, rho), point_at(costs, 1 / cap, rho, 2.0)
    for e, (rank, new) in enumerate(zip(ranks, psi, strict=True)):
        alone = np.append(np.delete(TIED, rank), new)
        finite = np.sort(alone[np.isfinite(alone)])
        for point in (best, held):
            rate = float(point.rate[e])
            expected, weights = least(finite, cap, rate)
            assert point.value[e] == pytest.approx(expected + rho / rate, rel=1e-12)
            own = 0.0 if new == np.inf else weights[np.searchsorted(finite, new)]
            assert point.weight_of(costs)[e] == pytest.approx(own, abs=1e-9)
        one = minimise(Costs(finite), 1 / cap, rho * finite[-1])
        assert best.value[e] == pytest.approx(one.value[0], rel=1e-12)


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
def test_common_stretches_hold_the_optimum_of_every_market_with_a_seller_replaced(market, decade):
    psi, cap, rng = market
    base, rho, dearest = Costs(psi), 10**decade, 2.0 * psi[-1]
    ranks = np.concatenate(([0, psi.size - 1], rng.integers(psi.size, size=30)))
    other = psi[0] + (dearest - psi[0]) * rng.random(32)
    new = np.where(rng.random(32) < 0.4, np.inf, other)
    new[:6] = np.inf, np.inf, psi[0], dearest, psi[-1], psi[psi.size // 2]
    rate = float(minimise(base, 1 / cap, rho).rate[0]) * 10 ** rng.uniform(-1, 1)
    stretches = common_stretches(base, 1 / cap, rho, [rate], dearest)
    alone, within = base.replaced(psi[ranks], new), base.replaced(psi[ranks], new, stretches)
    for best in (lambda costs: minimise(costs, 1 / cap, rho),
                 lambda costs: point_at(costs, 1 / cap, rho, rate)):  # fmt: skip
        np.testing.assert_allclose(best(within).value, best(alone).value, rtol=1e-12)


@pytest.mark.parametrize("m", [1500, 3000])
def test_long_paths_hold_no_better_point(m):
    """Of paths longer than the first cut, whose stretches are of several lengths then."""
    psi = np.sort(np.random.default_rng(5).exponential(size=m))
    psi /= psi[-1]
    costs = Costs(psi)
    for cap, rate in [(1.0, 15.0), (1.0, 40.0), (1.0, 150.0), (5 / m, 20.0), (5 / m, 200.0)]:
        _, weights = least(psi, cap, rate)
        rho = rate**2 * float(psi @ weights)
        value = np.linalg.norm(weights) + 2 * rate * float(psi @ weights)
        assert minimise(costs, 1 / cap, rho).value[0] <= value * (1 + 1e-13)
        assert point_at(costs, 1 / cap, rho, rate).value[0] == pytest.approx(value, rel=1e-13)
