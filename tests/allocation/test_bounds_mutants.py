"""Bounds, cuts, projections and sorted costs, each against a definition computed at length."""

from __future__ import annotations

import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from convexmarket.allocation.bounds import (
    OuterProblem,
    _aitken,
    best_eta,
    concave_envelope,
    lowest_bound,
    outer_problem,
    segment_bound,
    unconstrained_eta,
)
from convexmarket.allocation.costs import Replaced, SortedCosts
from convexmarket.allocation.cuts import KeptCostCut, KeptSpreadCut
from convexmarket.allocation.exact import _moments
from convexmarket.allocation.path import beta_at, squared_rates, stationary_beta
from convexmarket.allocation.simplex import (
    _settle_sum,
    feasible_cap,
    feasible_limits,
    norm_minimiser,
    projection_step,
)
from convexmarket.errors import InfeasibleMarketError
from convexmarket.market import StandardForm

GRID = np.geomspace(1e-3, 1e3, 4001)


# ------------------------------------------------------------------------ chords and envelopes


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-5, 5)), min_size=1, max_size=9))
def test_the_envelope_is_the_least_concave_function_above_the_points(points) -> None:
    corners = concave_envelope([(float(t), float(v)) for t, v in points])
    assert set(corners) <= {(float(t), float(v)) for t, v in points}
    ts, values = np.array(corners).T
    assert np.all(np.diff(ts) > 0)
    assert (ts[0], ts[-1]) == (min(t for t, _ in points), max(t for t, _ in points))
    slopes = np.diff(values) / np.diff(ts)
    assert np.all(np.diff(slopes) < 0)  # no corner lies on a line
    assert all(np.interp(t, ts, values) >= v - 1e-12 for t, v in points)


@settings(max_examples=60)
@given(
    point=st.tuples(st.floats(0, 3), st.floats(-2, 2)),
    slope=st.sampled_from([0.0, 0.3, 2.0]),
    noise=st.sampled_from([0.0, 0.2, 3.0]),
    low=st.sampled_from([0.0, 0.05, 1.0]),
    high=st.sampled_from([1.0, 4.0, np.inf]),
)
def test_the_least_of_a_line_and_noise(point, slope, noise, low, high) -> None:
    t, bound = segment_bound(point, slope, noise, low, high)
    assert low <= t <= high
    grid = np.array([t for t in GRID if low <= t <= high])
    if grid.size:
        values = point[1] + slope * (grid - point[0]) + noise / grid
        assert bound <= values.min() + 1e-12
        if t < np.inf and bound < np.inf:
            assert values.min() <= bound + 1e-4 + (noise > 0) * 1e-3 + slope * 2e-3
    if 0 < t < np.inf:
        assert bound == pytest.approx(point[1] + slope * (t - point[0]) + noise / t)


def test_the_least_of_a_line_at_its_ends() -> None:
    assert segment_bound((2.0, 5.0), 1.5, 0.0, 0.0, 9.0) == (0.0, 2.0)
    assert segment_bound((2.0, 5.0), 1.5, 0.1, 0.0, 0.0) == (0.0, np.inf)
    assert segment_bound((2.0, 5.0), 0.0, 1.0, 0.5, np.inf) == (np.inf, 5.0)
    assert segment_bound((2.0, 5.0), 0.0, 0.0, 0.5, np.inf) == (0.5, 5.0)


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1)), min_size=1, max_size=6),
    st.sampled_from([0.1, 1.0, 5.0]),
    st.sampled_from([0.0, 0.2]),
    st.sampled_from([(0.5, 20.0), (2.0, 3.0), (9.5, 30.0)]),
)
def test_the_lowest_bound_is_that_of_the_envelope(points, noise, slope, ends) -> None:
    """On a grid: the chords, and beyond the last point a line of the least slope."""
    outer = OuterProblem(noise, *ends, ((0.0, 0.3),), slope)
    found = lowest_bound(outer, points)
    corners = np.array(concave_envelope([(0.0, 0.3), *points]))
    grid = np.linspace(*ends, 3001)
    values = np.interp(grid, corners[:, 0], corners[:, 1])
    values = np.where(
        grid > corners[-1, 0], corners[-1, 1] + slope * (grid - corners[-1, 0]), values
    )
    rising = np.all(np.diff(corners[:, 1]) >= slope * np.diff(corners[:, 0]))
    objective = values + noise / grid
    assert ends[0] <= found.t <= ends[1]
    assert found.left <= found.t <= found.right
    if rising:
        assert found.bound <= objective.min() + 1e-12
        assert found.bound == pytest.approx(objective.min(), abs=2e-3)
    neighbours = [*corners[:, 0], np.inf]
    assert (found.left, found.right) in list(pairwise(neighbours))


@pytest.mark.parametrize("ratio", [0.5, -0.3, 0.9])
def test_a_geometric_sequence_is_extrapolated_to_its_limit(ratio) -> None:
    first, second, third = (2.0 + 0.3 * ratio**k for k in range(3))
    assert _aitken(first, second, third) == pytest.approx(2.0, rel=1e-12)


def test_an_extrapolation_that_leads_far_away_is_not_believed() -> None:
    assert _aitken(1.0, 2.0, 3.0) == 3.0  # no bend
    assert _aitken(1.0, 2.0, 2.9) == 2.9  # to 11
    assert _aitken(1.0, 1.5, 1.9) == pytest.approx(3.5)  # just within twice
    assert _aitken(1.0, 1.5, 1.92) == 1.92  # to 4.125, just beyond
    assert _aitken(3.0, 2.0, 1.2) == 1.2  # to -2
    assert _aitken(3.0, 2.0, 1.5) == pytest.approx(1.0)  # above a half


def form(psi, **changes) -> StandardForm:
    given_ = {"mu": 1.0, "sigma": 2.0, "gamma": 0.5, "max_weight": 1.0}
    return StandardForm(virtual_costs=np.array(psi, dtype=float), **(given_ | changes))


def test_the_best_eta_for_given_weights_balances_noise_and_payments() -> None:
    market = form([0.2, 0.6])
    weights = np.array([0.75, 0.25])
    exact = minimize_scalar(
        lambda x: market.objective(weights, np.exp(x)), bounds=(-5, 5), method="bounded",
        options={"xatol": 1e-10},
    )  # fmt: skip
    assert unconstrained_eta(market, weights) == pytest.approx(np.exp(exact.x), rel=1e-6)
    assert best_eta(form([0.2, 0.6], eta_low=9.0), weights) == 9.0
    assert best_eta(form([0.2, 0.6], eta_high=1.5), weights) == 1.5
    assert unconstrained_eta(form([0.2, 0.6], sigma=0.0), weights) == 0.0
    assert unconstrained_eta(form([0.0, 0.6]), np.array([1.0, 0.0])) == np.inf


@pytest.mark.parametrize("cap", [1.0, 0.5, 0.4])
def test_every_minimiser_lies_in_the_range_of_the_outer_problem(cap) -> None:
    psi = [0.1, 0.3, 0.9]
    for mu in (1e-4, 1.0, 1e4):
        market = form(psi, max_weight=cap, mu=mu)
        outer = outer_problem(market)
        order, rest = np.sort(psi), 1.0
        cheapest = 0.0
        for cost in order:
            cheapest, rest = cheapest + min(cap, rest) * cost, rest - min(cap, rest)
        ends = [np.sqrt(outer.noise / cost) for cost in (np.mean(psi), cheapest)]
        assert (outer.low, outer.high) == pytest.approx(ends, rel=1e-9)
        assert outer.noise == 1.0
        assert outer.slope == pytest.approx(cheapest, rel=1e-9)
        assert outer.known == ((0.0, mu / np.sqrt(3)),)
        assert outer.limit == np.inf


def test_free_sellers_saturate_where_nobody_who_costs_is_bought() -> None:
    outer = outer_problem(form([0.0, 0.0, 0.4, 0.8], mu=3.0))
    limit = 3.0 / np.sqrt(2)
    assert outer.limit == pytest.approx(limit)
    assert outer.high == pytest.approx(limit / 0.4)
    assert outer.known == ((0.0, 1.5), (outer.high, outer.limit))
    assert outer.slope == 0
    assert outer.low == pytest.approx(min(np.sqrt(1.0 / 0.3), outer.high))


# ----------------------------------------------------------------------------------- cuts


def spread_cut(noise, slopes, const=0.5) -> KeptSpreadCut:
    costs = np.array([0.4, -0.1, 1.0])
    return KeptSpreadCut(const, noise, costs, np.array(slopes), lambda c: c.min() - 0.3, 0.7)


@pytest.mark.parametrize("noise", [-0.5, 0.0, 0.8])
@pytest.mark.parametrize("slopes", [[0.2, 0.5, 0.1], [-0.4, -0.1, -0.5], [0.3, -0.2, 0.1]])
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.9), (0.5, 20.0), (3.0, 3.0), (0.4, np.inf)])
def test_a_kept_spread_is_bounded_on_every_interval(noise, slopes, low, high) -> None:
    cut = spread_cut(noise, slopes)
    assert cut(2.0) == pytest.approx(0.5 + (cut.costs + 2.0 * cut.slopes).min() - 0.3 + noise / 2.0)
    where, value = cut.minimum(low, high)
    assert low <= where <= high
    if high == np.inf and min(slopes) < 0:
        assert (where, value) == (np.inf, -np.inf)
        return
    grid = np.clip(np.geomspace(low, min(high, 1e4), 400), low, high)
    assert value <= min(cut(eta) for eta in grid) + 1e-12
    if high < np.inf:  # the chord meets the cut at the ends
        start, end = cut(low) - noise / low, cut(high) - noise / high
        share = (grid - low) / (high - low) if high > low else np.zeros_like(grid)
        chord = start + share * (end - start) + noise / grid
        if not end < start or noise <= 0:  # where both fall the right end of each is taken
            assert value == pytest.approx(chord.min(), abs=2e-3)
    else:
        assert value >= cut(low) - noise / low - 1e-12 + min(noise / low, 0.0)
    assert cut.flattens == (min(slopes) <= 0)


def test_a_falling_chord_with_noise_takes_the_far_end_of_both() -> None:
    cut = spread_cut(0.8, [-0.4, -0.1, -0.5])
    where, value = cut.minimum(0.5, 4.0)
    assert where == 4.0
    assert value == pytest.approx(cut(4.0))
    assert spread_cut(0.0, [0.0, 1.0, 1.0]).flattens
    assert spread_cut(-0.1, [0.1, 1.0, 1.0]).minimum(0.0, 2.0) == (0.0, -np.inf)


def cost_cut(noise=0.3, slopes=(0.1, -0.2, 0.4), weights=(0.5, 1.0, 2.0)) -> KeptCostCut:
    """For u(eps) = eps^2, whose conjugate is a quarter of a square."""
    return KeptCostCut(
        0.2, noise, np.array([0.3, 0.9, 0.5]), np.array(slopes), np.array(weights),
        lambda y: y**2 / 4, 1.1,
    )  # fmt: skip


def test_a_kept_cost_is_its_conjugate_at_every_eta() -> None:
    cut = cost_cut()
    for eta in (0.2, 1.0, 30.0):
        s = 1 / eta
        reach = np.maximum(s * (1.1 - np.array([0.3, 0.9, 0.5])) - [0.1, -0.2, 0.4], 0)
        lost = np.sum(reach**2 / np.array([0.5, 1.0, 2.0])) / 4
        assert cut(eta) == pytest.approx(0.2 + 1.1 + 0.3 * s - lost)


@pytest.mark.parametrize("noise", [-0.4, 0.3])
@pytest.mark.parametrize(("low", "high"), [(0.2, 0.9), (0.5, 20.0), (0.4, np.inf), (0.0, 2.0)])
@pytest.mark.parametrize("slopes", [(0.1, -0.2, 0.4), (0.1, 0.2, 0.4)])
def test_a_kept_cost_is_bounded_on_every_interval(noise, low, high, slopes) -> None:
    cut = cost_cut(noise, slopes)
    where, value = cut.minimum(low, high)
    assert where in (low, high)
    grid = np.geomspace(max(low, 1e-2), min(high, 1e4), 300)
    if low > 0:
        assert value <= min(cut(eta) for eta in grid) + 1e-12
        ends = [cut(low), cut(high) if high < np.inf else cut(1e12)]
        assert value == pytest.approx(min(ends), abs=1e-9)
    elif noise < 0:
        assert (where, value) == (0.0, -np.inf)
    else:
        assert value == pytest.approx(0.2 + 0.3 + 2.0 * min(min(slopes), 0) + noise / 2.0)


def test_a_seller_without_virtual_cost_lowers_the_price_it_is_asked_at() -> None:
    free = cost_cut(weights=(0.5, 0.0, 2.0))
    assert free.price == 0.9
    assert free.flattens
    assert not cost_cut().flattens
    assert cost_cut().price == 1.1
    assert free(1.0) == -np.inf  # its slope is negative: sold without limit
    assert np.isfinite(cost_cut(slopes=(0.1, 0.2, 0.4), weights=(0.5, 0.0, 2.0))(1.0))


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_a_blend_mixes_the_tangents(share) -> None:
    one, other = cost_cut(), dataclasses.replace(cost_cut(0.9, (0.3, 0.1, 0.2)), const=2.0)
    mixed = one.blend(other, share)
    for name in ("const", "noise", "price", "costs", "slopes"):
        expected = (1 - share) * getattr(one, name) + share * getattr(other, name)
        np.testing.assert_allclose(getattr(mixed, name), expected)


# -------------------------------------------------------------------------- the capped simplex


def test_bounds_are_met_up_to_a_billionth() -> None:
    assert feasible_cap(4, 0.25 * (1 - 0.9e-9)) == 0.25
    assert feasible_cap(4, 0.3) == 0.3
    with pytest.raises(InfeasibleMarketError, match=r"4 weights of at most 0\.25 cannot"):
        feasible_cap(4, 0.25 * (1 - 1.1e-9))
    near = np.array([0.5, 0.5, 0.0]) * (1 - 0.9e-9)
    assert feasible_limits(near).sum() == pytest.approx(1.0, abs=1e-15)
    roomy = np.array([0.5, 0.6])
    assert feasible_limits(roomy) is roomy
    with pytest.raises(InfeasibleMarketError, match=r"2 weights of at most 0\.5 .* to 1 at most"):
        feasible_limits(np.array([0.5, 0.5, 0.0]) * (1 - 1.1e-9))


@pytest.mark.parametrize("missing", [1e-9, -1e-9, 0.0])
def test_what_rounding_leaves_is_spread_where_there_is_room(missing) -> None:
    limits = np.array([0.5, 0.4, 0.3, 0.3])
    weights = np.array([0.5, 0.3, 0.2, 0.0])
    weights[1] -= missing
    settled = _settle_sum(weights, limits)
    assert settled.sum() == pytest.approx(1.0, abs=2e-16)
    assert np.all((settled >= 0) & (settled <= limits))
    assert settled[3] == 0
    if missing > 0:
        assert settled[0] == 0.5  # no room
        assert np.all(settled[1:3] > weights[1:3])
    if missing < 0:
        assert np.all(settled[:3] < weights[:3])


@settings(max_examples=40)
@given(
    st.lists(st.floats(-2, 2), min_size=1, max_size=6),
    st.sampled_from([0.05, 1.0, 20.0]),
    st.sampled_from([1.0, 1.3, 2.5, None]),
)
def test_the_norm_is_minimised_up_to_the_conditions_of_optimality(costs, mu, k) -> None:
    costs = np.array(costs)
    cap = 1.0 if k is None else min(1.0, k / costs.size)
    weights = norm_minimiser(costs, mu, cap)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all((weights >= 0) & (weights <= cap + 1e-15))
    slope = mu * weights / np.linalg.norm(weights) + costs
    least, most = slope[weights < cap - 1e-9], slope[weights > 1e-9]
    if least.size and most.size:  # moving weight from one to another gains nothing
        assert most.max() <= least.min() + 1e-7 * (mu + 4)


def test_a_step_projects_minus_beta_times_the_costs() -> None:
    for cap, expected in ((1.0, [0.6, 0.4]), (0.55, [0.55, 0.45])):
        market = form([0.0, 0.2], max_weight=cap)
        np.testing.assert_allclose(projection_step(market, 1.0), expected)


# ------------------------------------------------------------------------------ sorted costs


@settings(max_examples=60)
@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 4.0]), min_size=2, max_size=7),
    st.data(),
)
def test_replaced_costs_are_the_costs_sorted_anew(values, data) -> None:
    ordered = np.sort(np.array(values))
    limit = data.draw(st.sampled_from([np.inf, ordered[-1], max(ordered[0], 1.2)]))
    base = SortedCosts(ordered, limit)
    within = ordered[ordered <= limit]
    np.testing.assert_array_equal(base.psi, within)
    ranks = data.draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=4))
    others = [*within, 0.25, 2.0, 9.0, np.inf]
    psi = np.array(data.draw(st.lists(st.sampled_from(others), min_size=len(ranks),
                                      max_size=len(ranks))))  # fmt: skip
    costs = Replaced(base, np.array(ranks), psi)
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
        np.testing.assert_allclose(costs.sum2(where, ks), sums[1], atol=1e-12)
        below, upto = costs.ties(where[:-1], k)
        np.testing.assert_array_equal(below, [np.sum(expected < c) for c in expected])
        np.testing.assert_array_equal(upto, [np.sum(expected <= c) for c in expected])


def test_moments_keep_their_digits_in_every_block(monkeypatch) -> None:
    monkeypatch.setattr("convexmarket.allocation.exact._BLOCK", 4)
    values = 1e6 + np.random.default_rng(0).random(11)
    mean, squares = _moments(values, 1e6, 1.0)
    assert mean == pytest.approx((values - 1e6).mean(), rel=1e-13)
    assert squares == pytest.approx(((values - values.mean()) ** 2).sum(), rel=1e-8)


# -------------------------------------------------------------------------- pieces of the path


@pytest.mark.parametrize("spread", [0.01, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("cost", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("rho", [1e-3, 0.1, 2.0])
def test_the_stationary_point_of_a_piece_is_its_local_minimum(spread, cost, rho) -> None:
    """F = ||a|| + r*psi'a + rho/r with ||a||^2 = N0 + beta^2 W, psi'a = p0 - beta W, on a grid."""
    norm2 = 0.3
    beta = np.geomspace(1e-3, min(cost / spread, 1e3) * (1 - 1e-9), 200_001)
    norm = np.sqrt(norm2 + beta**2 * spread)
    rate = beta / norm
    value = norm + rate * (cost - beta * spread) + rho / rate
    minima = np.flatnonzero((value[1:-1] < value[:-2]) & (value[1:-1] < value[2:])) + 1
    found = stationary_beta(*(np.array([x]) for x in (spread, cost, norm2)), rho)[0]
    assert minima.size <= 1
    if minima.size:
        assert found == pytest.approx(beta[minima[0]], rel=2e-4)
    else:
        assert not beta[0] < found < beta[-1]


def test_the_rate_of_a_point_of_the_path() -> None:
    spread, norm2 = np.array([0.2, 0.0, 0.5]), np.array([0.3, 0.4, 0.25])
    beta = beta_at(spread, norm2, 1.3)
    np.testing.assert_allclose(beta / np.sqrt(norm2 + beta**2 * spread), 1.3, rtol=1e-12)
    assert np.isinf(beta_at(np.array([0.7]), np.array([0.3]), 1.3))[0]


@pytest.mark.parametrize("cap", [1.0, 0.3])
def test_nodes_of_a_path_are_projections(cap) -> None:
    """At node k seller k is just not bought from; r = beta/||a|| there."""
    psi = np.array([0.1, 0.15, 0.3, 0.5, 0.55, 0.9, 1.4])
    nodes, rate2 = squared_rates(SortedCosts(psi), cap, 4)
    market = form(psi, max_weight=cap)
    assert nodes[-1] == psi.size - 1
    assert np.all(np.diff(nodes) >= 0)
    assert nodes.size == 4
    for k, squared in zip(nodes, rate2, strict=True):
        low, high = 1e-3, 1e3
        for _ in range(100):  # the largest beta at which seller k is bought from
            middle = np.sqrt(low * high)
            bought = projection_step(market, middle)[k] > 0
            low, high = (middle, high) if bought else (low, middle)
        weights = projection_step(market, low)
        beta = low * (psi[-1] - 0.0)  # costs are divided by the largest
        assert np.sqrt(squared) == pytest.approx(beta / np.linalg.norm(weights), rel=1e-6)
