"""Bounds on the optimum over eta, each against a definition computed at length."""

from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from convexmarket.allocation.bounds import (
    OuterProblem,
    _aitken,
    best_eta,
    best_lower_bound,
    concave_envelope,
    dual_bound,
    lowest_bound,
    outer_problem,
    segment_bound,
    unconstrained_eta,
)
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.market import StandardForm
from tests.allocation.brute_force import brute_force
from tests.allocation.builders import form, forms

GRID = np.geomspace(1e-3, 1e3, 4001)


# ---------------------------------------------------------- chords and envelopes


@example([(0, 0), (1, 1), (2, 2), (2, -1), (5, 2), (7, 1)])  # on a line, one below another
@example([(3, -2)])
@given(st.lists(st.tuples(st.integers(0, 8), st.integers(-5, 5)), min_size=1, max_size=9))
def test_the_envelope_is_the_least_concave_function_above_the_points(points):
    corners = concave_envelope([(float(t), float(v)) for t, v in points])
    assert set(corners) <= {(float(t), float(v)) for t, v in points}
    ts, values = np.array(corners).T
    assert np.all(np.diff(ts) > 0)
    assert (ts[0], ts[-1]) == (min(t for t, _ in points), max(t for t, _ in points))
    slopes = np.diff(values) / np.diff(ts)
    assert np.all(np.diff(slopes) < 0)  # no corner lies on a line
    assert all(np.interp(t, ts, values) >= v - 1e-12 for t, v in points)


@given(st.tuples(st.floats(0, 3), st.floats(-2, 2)))
def test_the_least_of_a_line_and_noise(point):
    lines = product((0.0, 0.3, 2.0), (0.0, 0.2, 3.0))
    for (slope, noise), low, high in product(lines, (0.0, 0.05, 1.0), (1.0, 4.0, np.inf)):
        check_segment(point, slope, noise, low, high)


def check_segment(point, slope, noise, low, high):
    t, bound = segment_bound(point, slope, noise, low, high)
    assert low <= t <= high
    grid = GRID[(low <= GRID) & (high >= GRID)]
    if grid.size:
        values = point[1] + slope * (grid - point[0]) + noise / grid
        assert bound <= values.min() + 1e-12
        if t < np.inf and bound < np.inf:
            assert values.min() <= bound + 1e-4 + (noise > 0) * 1e-3 + slope * 2e-3
    if 0 < t < np.inf:
        assert bound == pytest.approx(point[1] + slope * (t - point[0]) + noise / t)


def test_the_least_of_a_line_at_its_ends():
    assert segment_bound((2.0, 5.0), 1.5, 0.0, 0.0, 9.0) == (0.0, 2.0)
    assert segment_bound((2.0, 5.0), 1.5, 0.1, 0.0, 0.0) == (0.0, np.inf)
    assert segment_bound((2.0, 5.0), 0.0, 1.0, 0.5, np.inf) == (np.inf, 5.0)
    assert segment_bound((2.0, 5.0), 0.0, 0.0, 0.5, np.inf) == (0.5, 5.0)


@given(st.lists(st.tuples(st.floats(0.1, 9), st.floats(0, 1)), min_size=1, max_size=6))
def test_the_lowest_bound_is_that_of_the_envelope(points):
    """On a grid: the chords, and beyond the last point a line of the least slope."""
    ranges = (0.5, 20.0), (2.0, 3.0), (9.5, 30.0)
    for noise, slope, ends in product((0.1, 1.0, 5.0), (0.0, 0.2), ranges):
        check_lowest_bound(points, noise, slope, ends)


def check_lowest_bound(points, noise, slope, ends):
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


def test_the_bound_covers_the_unbounded_tail():
    market = StandardForm(np.array([0.01, 1.0]), 1.0, 1.0, 1.0)
    outer = replace(outer_problem(market), high=np.inf)
    candidate = lowest_bound(outer, [])
    assert candidate.right == np.inf
    assert candidate.bound <= brute_force(market)


# ------------------------------------------------------------- the outer problem


def test_the_best_eta_for_given_weights_balances_noise_and_payments():
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
def test_every_minimiser_lies_in_the_range_of_the_outer_problem(cap):
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


def test_free_sellers_saturate_where_nobody_who_costs_is_bought():
    outer = outer_problem(form([0.0, 0.0, 0.4, 0.8], mu=3.0))
    limit = 3.0 / np.sqrt(2)
    assert outer.limit == pytest.approx(limit)
    assert outer.high == pytest.approx(limit / 0.4)
    assert outer.known == ((0.0, 1.5), (outer.high, outer.limit))
    assert outer.slope == 0
    assert outer.low == pytest.approx(min(np.sqrt(1.0 / 0.3), outer.high))


# -------------------------------------------------------- what any weights prove


@given(forms(), st.floats(-3, 3), st.integers(0, 1000))
def test_any_weights_prove_a_valid_bound(market, exponent, seed):
    rng = np.random.default_rng(seed)
    psi = market.virtual_costs
    t = 10**exponent / psi.mean()
    best = optimal_weights(market, t)
    value = market.mu * np.linalg.norm(best) + t * psi @ best
    assert dual_bound(market, t, best) == pytest.approx(value, rel=1e-9)
    anything = rng.exponential(size=psi.size)
    for bound in (dual_bound, best_lower_bound):
        assert bound(market, t, anything) <= value * (1 + 1e-12)


@pytest.mark.parametrize("ratio", [0.5, -0.3, 0.9])
def test_a_geometric_sequence_is_extrapolated_to_its_limit(ratio):
    first, second, third = (2.0 + 0.3 * ratio**k for k in range(3))
    assert _aitken(first, second, third) == pytest.approx(2.0, rel=1e-12)


def test_an_extrapolation_that_leads_far_away_is_not_believed():
    assert _aitken(1.0, 2.0, 3.0) == 3.0  # no bend
    assert _aitken(1.0, 2.0, 2.9) == 2.9  # to 11
    assert _aitken(1.0, 1.5, 1.9) == pytest.approx(3.5)  # just within twice
    assert _aitken(1.0, 1.5, 1.92) == 1.92  # to 4.125, just beyond
    assert _aitken(3.0, 2.0, 1.2) == 1.2  # to -2
    assert _aitken(3.0, 2.0, 1.5) == pytest.approx(1.0)  # above a half
