"""What a search over eta is made of, piece by piece, at the limits of each rule."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import branch, eta_search, search
from convexmarket.allocation.bounds import Candidate, OuterProblem
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.formulations import marginal_price, optimal_weights, recover_weights
from convexmarket.allocation.guarantees import allocate_guarantees, weights_for_guarantees
from convexmarket.allocation.projected_gradient import _grid, descend
from convexmarket.allocation.region import Region, RegionFinder, mend, natural_eta, violations
from convexmarket.allocation.result import SolveRecord
from convexmarket.allocation.views import JointView, active_sellers, bounds_of_sellers
from convexmarket.market import StandardForm

SELLERS = cm.Sellers(virtual_costs=[0.2, 0.4, 1.0])
OBJECTIVE = cm.Spread() + cm.Noise() + 0.5 * cm.Payments()


def market(*constraints, sellers=SELLERS, objective=OBJECTIVE):
    return cm.Market(sellers, objective, list(constraints))


def form(psi=(0.2, 0.4, 1.0), **changes) -> StandardForm:
    given_ = {"mu": 1.0, "sigma": 2.0, "gamma": 0.5, "max_weight": 1.0}
    return StandardForm(virtual_costs=np.array(psi, dtype=float), **(given_ | changes))


# -------------------------------------------------------------------------- intervals and cuts


def test_the_start_is_moved_well_inside() -> None:
    inside = eta_search.move_inside
    assert inside(5.0, Region(2.0, 2.0, None)) == 2.0
    assert inside(3.0, Region(1.0, 16.0, None)) == pytest.approx(3.0)
    assert inside(0.1, Region(1.0, 16.0, None)) == pytest.approx(16**0.05)
    assert inside(99.0, Region(1.0, 16.0, None)) == pytest.approx(16**0.95)
    assert inside(1.0, Region(2.0, np.inf, None)) == 3.0
    assert inside(7.0, Region(2.0, np.inf, None)) == 7.0
    assert inside(7.0, Region(0.0, 3.0, None)) == 2.0
    assert inside(1e-9, Region(0.0, 3.0, None)) == 1e-9
    assert inside(1e9, Region(0.0, np.inf, None)) == 1e9


class AtLeast(cm.Constraint):
    """A user's own piece: everybody sells at least this."""

    def __init__(self, epsilon) -> None:
        self.least = epsilon

    def constraints(self, quantities):
        return [quantities.weights >= self.least * quantities.inverse_eta]


@pytest.mark.parametrize("least", [2.0, 20.0])
def test_a_range_without_an_upper_end_is_entered_from_below(least) -> None:
    """At the eta where noise and payments balance, nothing is feasible."""
    objective = cm.Spread() + cm.Noise() + 5.0 * cm.Payments()
    found = cm.allocate(market(AtLeast(least), objective=objective))
    np.testing.assert_allclose(found.epsilon, least, rtol=1e-4)
    spent = 5.0 * least * (0.2 + 0.4 + 1.0) + 1 / (3 * least) + 1 / np.sqrt(3)
    assert found.objective == pytest.approx(spent, rel=1e-4)


def test_halves_have_a_length() -> None:
    assert eta_search._halves(1.0, 4.0, 2.0) == [(1.0, 2.0), (2.0, 4.0)]
    assert eta_search._halves(1.0, 4.0, 1.0) == [(1.0, 4.0)]
    assert eta_search._halves(1.0, 4.0, 4.0) == [(1.0, 4.0)]
    assert eta_search._halves(2.0, 2.0, 2.0) == []


def cut(place, value=1.0) -> KeptSpreadCut:
    """A bound that is highest at a place: value - |log(eta/place)|-like, here a line and noise."""
    costs, slopes = np.array([value - 2.0]), np.array([1.0 / place])
    return KeptSpreadCut(0.0, place, costs, slopes, lambda c: float(c.min()), 0.0)


def test_cuts_are_kept_by_place_and_the_nearest_are_asked() -> None:
    cuts, places = eta_search._Cuts(), [4.0, 1.0, 8.0, 2.0, 16.0, 0.5]
    made = {place: cut(place) for place in places}
    for place in places:
        cuts.add(place, made[place])
    assert cuts.places == sorted(places)
    assert len(cuts) == 6
    assert cuts.near(2.0, 4.0) == [made[p] for p in (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)]
    assert cuts.near(0.5, 0.5) == [made[p] for p in (0.5, 1.0, 2.0)]
    assert cuts.near(9.0, 9.0) == [made[p] for p in (4.0, 8.0, 16.0)]
    assert cuts.near(99.0, 99.0) == [made[p] for p in (8.0, 16.0)]
    assert cuts.at(3.0) == max(one(3.0) for one in made.values() if one in cuts.near(3.0, 3.0))


@settings(max_examples=60)
@given(st.floats(-3, 3), st.floats(0.1, 4), st.floats(0, 1))
def test_an_interval_is_split_inside_and_not_next_to_an_end(low, width, share) -> None:
    low, high = 10**low, 10 ** (low + width)
    cuts = eta_search._Cuts()
    for place in (low, high):
        cuts.add(place, cut(place))
    interval = eta_search._Interval(0.0, low, high, low * (high / low) ** share, 2)
    eta = eta_search._split_at(interval, cuts)
    assert 0.05 - 1e-9 <= np.log(eta / low) / np.log(high / low) <= 0.95 + 1e-9


def test_an_open_interval_is_split_by_strides() -> None:
    cuts = eta_search._Cuts()
    for where, expected in ((1.0, 3.0), (5.0, 5.0), (99.0, 8.0), (np.inf, 8.0)):
        found = eta_search._split_at(eta_search._Interval(0.0, 2.0, np.inf, where, 0), cuts)
        assert found == expected
    for where, expected in ((0.0, 3.0), (5.0, 5.0), (11.9, 8.0)):
        found = eta_search._split_at(eta_search._Interval(0.0, 0.0, 12.0, where, 0), cuts)
        assert found == expected


def test_the_search_gives_up_far_from_where_it_began() -> None:
    eta_search._check_attained(0.9e24, 1.0, 1.0, 0.0)
    eta_search._check_attained(1.1e-24, 1.0, 1.0, 0.0)
    with pytest.raises(cm.UnattainedOptimumError, match="infinity"):
        eta_search._check_attained(1.1e24, 1.0, 1.0, 0.0)
    with pytest.raises(cm.UnattainedOptimumError, match="eta -> 0"):
        eta_search._check_attained(0.9e-24, 1.0, 1.0, 0.0)


def test_the_neighbours_of_an_eta_are_blended_by_its_logarithm() -> None:
    solved = {1.0: cut(1.0), 4.0: cut(4.0, 2.0), 16.0: cut(16.0, 5.0)}
    mixed = eta_search._between(solved, 8.0)
    assert mixed.noise == pytest.approx(10.0)
    assert mixed.costs[0] == pytest.approx(1.5)
    assert eta_search._between(solved, 2.0).noise == pytest.approx(2.5)
    assert eta_search._between(solved, 1.0) is None
    assert eta_search._between(solved, 16.0) is None


@pytest.mark.parametrize("gap", [0, -1e-6, np.inf, np.nan, "1e-6", True - 1])
def test_a_gap_is_a_positive_number(gap) -> None:
    with pytest.raises(cm.ParameterError, match="gap is"):
        eta_search.check_gap(gap)


@pytest.mark.parametrize("count", [0, -1, 1.5, "3"])
def test_solves_are_counted_from_one(count) -> None:
    eta_search.check_gap(1e-300, 1)
    eta_search.check_gap(0.5, np.int64(2))
    with pytest.raises(cm.ParameterError, match="max_solves is"):
        eta_search.check_gap(1e-6, count)


# -------------------------------------------------------------------------------- the region


def test_the_bounds_of_a_region_are_the_outer_ones_where_there_are_any() -> None:
    assert Region(1.0, 2.0, None).bounds == (1.0, 2.0)
    assert Region(1.0, 2.0, None, (0.9, 2.1)).bounds == (0.9, 2.1)


def test_a_natural_eta_is_of_the_order_of_the_constraints() -> None:
    assert natural_eta(market()) == 3.0
    assert natural_eta(market(cm.EtaRange(2.0, 8.0))) == pytest.approx(4.0)
    assert natural_eta(market(cm.MaxEpsilon([0.1, 0.2, 0.6]))) == pytest.approx(0.9)
    mean = (0.2 + 0.4 + 1.0) / 3
    assert natural_eta(market(cm.Budget(0.4))) == pytest.approx(0.4 / mean)
    assert natural_eta(market(cm.Budget(0.4), cm.MaxEpsilon(0.1))) == pytest.approx(0.3)
    some = cm.Sellers(virtual_costs=[0.0, 0.5, 1.0]).with_virtual_cost(2, np.inf)
    assert natural_eta(market(cm.Budget(0.4), sellers=some)) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("constraints", "low", "high"),
    [
        ([], 0.0, np.inf),
        ([cm.MaxEpsilon(0.5)], 0.0, 1.5),
        ([cm.Budget(0.6)], 0.0, 3.0),
        ([cm.Budget(0.6), cm.Cap(1.5)], 0.0, 2.0),
        ([cm.EtaRange(0.3, 7.0)], 0.3, 7.0),
        ([cm.EtaRange(0.3, 7.0), cm.MaxEpsilon(0.5)], 0.3, 1.5),
    ],
)
def test_the_range_of_eta_that_constraints_leave(constraints, low, high) -> None:
    declared = market(*constraints)
    view = JointView(declared, 1.0 / natural_eta(declared))
    region = RegionFinder(view).find()
    assert region.low == pytest.approx(low, rel=1e-6, abs=1e-12)
    assert region.high == pytest.approx(high, rel=1e-6)
    assert region.bounds[0] <= region.low <= region.high <= region.bounds[1]
    assert region.bounds[1] == pytest.approx(high, rel=1e-6)
    if region.inside is not None:
        weights, eta = region.inside
        assert weights.sum() == pytest.approx(1.0)
        assert np.all(violations(view, weights, eta) < 0)


def test_a_point_slightly_outside_is_pulled_to_the_border() -> None:
    view = JointView(market(cm.Cap([1.2, 3.0, 3.0])))
    inside = (np.array([0.2, 0.4, 0.4]), 2.0)
    outside = np.array([0.4 + 2e-5, 0.3, 0.3 - 2e-5])
    weights, eta = mend(view, outside, 2.0, inside)
    assert weights[0] == pytest.approx(0.4, abs=1e-12)
    assert weights.sum() == pytest.approx(1.0)
    assert eta == pytest.approx(2.0)
    assert violations(view, weights, eta).max() <= 1e-12
    kept, same = mend(view, np.array([0.3, 0.3, 0.4]), 5.0, inside)
    np.testing.assert_allclose(kept, [0.3, 0.3, 0.4])
    assert same == 5.0
    with pytest.raises(cm.SolverError, match="violates a constraint by"):
        mend(view, np.array([0.45, 0.3, 0.25]), 2.0, inside)
    with pytest.raises(cm.SolverError, match="violates a constraint by"):
        mend(view, np.array([0.4 + 1e-5, 0.3, 0.3 - 1e-5]), 2.0, None)
    mend(view, np.array([0.4 + 1e-8, 0.3, 0.3 - 1e-8]), 2.0, None)


def test_one_over_eta_is_mended_too() -> None:
    view = JointView(market(cm.MaxEpsilon(1.0)))
    inside = (np.full(3, 1 / 3), 1.5)
    weights, eta = mend(view, np.full(3, 1 / 3), 3.0 + 1e-4, inside)
    assert eta == pytest.approx(3.0, rel=1e-9)
    np.testing.assert_allclose(weights, 1 / 3)


# ------------------------------------------------------------------------- views of a market


def test_who_can_be_bought_from_and_how_much() -> None:
    sellers = SELLERS.with_virtual_cost(1, np.inf)
    declared = market(cm.Cap([0.0, 2.0, 3.0]), cm.MaxEpsilon([1.0, 2.0, 0.4]), sellers=sellers)
    assert active_sellers(declared).tolist() == [False, False, True]
    caps, limits = bounds_of_sellers(declared)
    np.testing.assert_allclose(caps, [0, 2 / 3, 1.0])
    np.testing.assert_allclose(limits, [1.0, 2.0, 0.4])
    assert bounds_of_sellers(market()) == (1.0, np.inf)
    both = bounds_of_sellers(market(cm.Cap(1.5), cm.Cap(1.2), cm.MaxEpsilon(4), cm.MaxEpsilon(3)))
    assert both == (pytest.approx(0.4), 3.0)


def test_a_view_holds_a_point_in_its_units() -> None:
    view = JointView(market(), inverse_scale=0.25)
    weights, eta = np.array([0.5, 0.3, 0.2]), 2.0
    value = view.value(weights, eta)
    expected = np.linalg.norm(weights) + 1 / eta + 0.5 * eta * weights @ [0.2, 0.4, 1.0]
    assert value == pytest.approx(expected)
    np.testing.assert_allclose(view.scaled_weights.value, 3 * weights)
    assert view.scaled_inverse.value == pytest.approx(2.0)
    np.testing.assert_allclose(view.epsilon.value, eta * weights)
    assert view.uses_epsilon
    assert view.has_noise
    plain = JointView(market(objective=1.0 * cm.Spread()))
    assert not plain.uses_epsilon
    assert not plain.has_noise


# -------------------------------------------------------------------- the search by chords of V


def test_a_search_is_stalled_after_so_many_solves_without_a_tenth() -> None:
    assert not search._stalled([1.0] * 12)
    assert search._stalled([1.0] * 13)
    assert not search._stalled([1.0] * 12 + [0.89])
    assert search._stalled([1.0] * 12 + [0.91])
    assert not search._stalled([5.0, 1.0], patience=1)
    assert search._stalled([5.0, 1.0, 1.0], patience=1)


def next_point(points, candidate, best=10.0, low=0.5, high=20.0, noise=1.0):
    outer = OuterProblem(noise, low, high, ((0.0, 0.0),), 0.1)
    return search._next_point(outer, points, Candidate(*candidate), best)


def test_where_to_look_next() -> None:
    points = [(1.0, 2.0), (4.0, 3.0)]
    assert next_point(points, (2.0, 1.0, 1.0, 4.0)) == 2.0  # away from both ends
    assert next_point(points, (1.0 + 2e-3, 1.0, 1.0, 4.0)) == 2.0  # next to one: halve
    assert next_point(points, (1.0 + 4e-3, 1.0, 1.0, 4.0)) == 1.0 + 4e-3
    # the evaluation at 1 proves 2 + 1/1 there: more would not raise a bound of 2.9 ...
    assert next_point(points, (1.0, 2.95, 1.0, 4.0), best=3.5) is None
    assert next_point(points, (1.0, 2.9, 1.0, 4.0), best=3.5) == 2.0
    # ... beyond the last point, steps grow with the distance from the first
    assert next_point(points, (9.0, 1.0, 4.0, np.inf)) == 9.0
    assert next_point(points, (99.0, 1.0, 4.0, np.inf)) == 32.0
    assert next_point([(0.6, 1.0)], (99.0, 1.0, 0.6, np.inf)) == 2.4
    assert next_point([(0.0, 1.0)], (99.0, 1.0, 0.0, np.inf)) is None
    # an end that nobody has evaluated is no reason to halve
    assert next_point([(4.0, 3.0)], (0.5, 1.0, 0.0, 4.0)) == 0.5


def test_a_record_is_of_the_whole_objective() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    found = search.certify_weights(form(), 0.8, weights, "optimal", 0.25)
    record = search.to_record(found, form())
    upper = np.linalg.norm(weights) + 0.8 * weights @ [0.2, 0.4, 1.0]
    assert found.upper == pytest.approx(upper)
    assert record == SolveRecord(
        pytest.approx(1.6), pytest.approx(upper + 2 / 1.6),
        pytest.approx(found.lower + 2 / 1.6), "optimal", 0.25,
    )  # fmt: skip
    best = np.linalg.norm(optimal_weights(form(), 0.8))
    best += 0.8 * optimal_weights(form(), 0.8) @ [0.2, 0.4, 1.0]
    assert best * (1 - 2e-5) <= found.lower <= best
    assert found.eta == pytest.approx(np.sqrt(2.0 / (0.5 * weights @ [0.2, 0.4, 1.0])))
    stays = search.certify_weights(form((0.0, 1.0)), 0.8, np.array([1.0, 0.0]), "", 0.0)
    assert stays.eta == 1.6


def test_the_range_that_keeps_weights_from_a_better_eta() -> None:
    weights = np.array([0.5, 0.3, 0.2])
    best = np.sqrt(2.0 / (0.5 * weights @ [0.2, 0.4, 1.0]))
    assert search._binding(form(eta_low=best * 1.1), weights) == ("eta_low",)
    assert search._binding(form(eta_high=best * 0.9), weights) == ("eta_high",)
    assert search._binding(form(eta_low=best * 0.9, eta_high=best * 1.1), weights) == ()


@pytest.mark.parametrize("cap", [1.0, 0.45])
@pytest.mark.parametrize("t", [0.3, 3.0])
def test_costs_are_lowered_only_where_nobody_buys(cap, t) -> None:
    psi = np.array([0.1, 0.2, 0.3, 5.0, 80.0, 1e6])
    market_ = form(psi, max_weight=cap)
    lowered = search._relevant_costs(market_, t)
    n = int(np.ceil(1 / cap))
    ceiling = 2 * (psi[n - 1] + min(1.0, cap * np.sqrt(6)) / t)
    np.testing.assert_allclose(lowered, np.minimum(psi, ceiling), rtol=1e-12)
    for later in (t, 2 * t, 10 * t):
        np.testing.assert_allclose(
            optimal_weights(market_, later),
            optimal_weights(form(lowered, max_weight=cap), later),
            atol=1e-12,
        )


# ------------------------------------------------------------------------------ formulations


def test_the_marginal_price_is_common_to_all_between_the_bounds() -> None:
    for cap in (1.0, 0.5):
        market_ = form(max_weight=cap)
        weights = optimal_weights(market_, 0.6)
        prices = weights / np.linalg.norm(weights) + 0.6 * market_.virtual_costs
        free = (weights > 1e-9) & (weights < cap - 1e-9)
        assert marginal_price(market_, weights, 0.6) == pytest.approx(prices[free].mean())


def test_recovered_weights_lose_traces_of_the_dear_only() -> None:
    market_ = form((0.1, 0.2, 9.0))
    raw = np.array([0.55, 0.45, 1e-7])
    recovered = recover_weights(market_, raw, 1.0)
    assert recovered[2] == 0
    assert recovered.sum() == pytest.approx(1.0)
    linear = recover_weights(form((0.1, 0.2, 9.0), mu=0.0), raw, 1.0)
    assert linear[2] > 0
    tight = recover_weights(form((0.1, 0.2, 9.0), max_weight=0.4), np.array([0.4, 0.4, 0.2]), 1.0)
    np.testing.assert_allclose(tight, [0.4, 0.4, 0.2])
    with pytest.raises(cm.SolverError, match="not finite"):
        recover_weights(market_, np.array([0.5, np.nan, 0.5]), 1.0)


@pytest.mark.parametrize("formulation", ["primal", "dual", "projection"])
def test_a_declaration_allows_the_ends_of_the_range_up_to_a_billionth(formulation) -> None:
    ranged = cm.Market.standard(SELLERS, mu=1, sigma=1, gamma=0.5, eta_range=(1.0, 2.0))
    problem = cm.declare(ranged, 1.5, formulation)
    for eta in (1.0, 2.0, 1 - 0.9e-9, 2 * (1 + 0.9e-9)):
        problem.eta = eta
        assert problem.eta == pytest.approx(eta, rel=1e-7)
    for eta in (1 - 1e-8, 2 * (1 + 1e-8), 0.0, np.inf):
        with pytest.raises(cm.ParameterError, match="eta is"):
            problem.eta = eta


# ------------------------------------------------------------------------- given guarantees


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.05, 3), min_size=1, max_size=6),
    st.sampled_from([0.0, 0.3, 5.0]),
    st.sampled_from([0.0, 0.2, 2.0]),
)
def test_given_guarantees_by_a_search_over_one_over_eta(granted, mu, sigma) -> None:
    """For a given s the weights are min(level, s*eps); s is searched on a grid and refined."""
    if mu == sigma == 0:
        return
    granted = np.array(granted)

    def value(s):
        low, high = 0.0, 1.0
        for _ in range(45):
            level = 0.5 * (low + high)
            total = np.minimum(level, s * granted).sum()
            low, high = (level, high) if total < 1 else (low, level)
        return sigma * s + mu * np.linalg.norm(np.minimum(high, s * granted))

    least = 1.0 / granted.sum()
    top = max(1.0 / (granted.size * granted.min()), least * (1 + 1e-9))
    grid = np.linspace(least * (1 + 1e-12), top, 60)
    values = [value(s) for s in grid]
    weights, eta = weights_for_guarantees(granted, mu, sigma)
    found = mu * np.linalg.norm(weights) + sigma / eta
    assert found <= min(values) * (1 + 1e-9) + 1e-12
    assert np.all(weights * eta <= granted * (1 + 1e-12))
    assert weights.sum() == pytest.approx(1.0)
    declared = cm.Market(
        cm.Sellers(virtual_costs=np.ones(granted.size)),
        max(mu, 0.1) * cm.Spread() + max(sigma, 0.1) * cm.Noise(),
        [cm.GivenEpsilon(granted)],
    )
    allocation = allocate_guarantees(declared, granted)
    assert allocation.gap <= 1e-9
    assert allocation.lower_bound <= allocation.objective * (1 + 1e-12)


# ------------------------------------------------------------------------- projected gradient


@pytest.mark.parametrize(
    ("grid", "eta_max", "ends", "expected"),
    [
        (4, None, {}, [1.0, 2.0, 3.0, 4.0]),
        (1, None, {}, [4.0]),
        (4, 2.0, {}, [0.5, 1.0, 1.5, 2.0]),
        (3, None, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 1.5, 2.0]),
        (3, 1.5, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 1.25, 1.5]),
        (3, 9.0, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 1.5, 2.0]),
        ([3.0, 1.0], None, {}, [1.0, 3.0]),
        ([1 - 1e-10, 2 + 1e-10], None, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 2.0]),
    ],
)
def test_the_grid_of_the_papers_method(grid, eta_max, ends, expected) -> None:
    outer = OuterProblem(1.0, 0.1, 2.0, ((0.0, 0.0),), 0.1)
    np.testing.assert_allclose(_grid(form(**ends), outer, grid, eta_max), expected)


def test_descent_counts_its_steps_and_stops_when_nothing_changes() -> None:
    start = np.full(3, 1 / 3)
    one = descend(form(), 0.8, start, 0.1, 1, 1e-12)
    assert (one.iterations, one.converged) == (1, False)
    gradient = start / np.linalg.norm(start) + 0.8 * np.array([0.2, 0.4, 1.0])
    moved = start - 0.1 * gradient
    np.testing.assert_allclose(one.weights, moved - moved.mean() + 1 / 3)
    many = descend(form(), 0.8, start, 0.5, 2000, 1e-12)
    assert many.converged
    assert many.iterations < 2000
    np.testing.assert_allclose(many.weights, optimal_weights(form(), 0.8), atol=1e-9)
    assert descend(form(), 0.8, many.weights, 0.5, 5, 1e-9).iterations == 1


# ------------------------------------------------------------------------------- results


def test_an_allocation_says_everything_that_proves_it() -> None:
    records = (SolveRecord(1.0, 3.0, 2.0, "optimal", 0.5),)
    found = cm.Allocation(
        np.array([0.25, 0.0, 0.75]), 2.0, -4.0, -5.0, 0.3, "line_search", 1.5, "dual", "ECOS",
        "2.0", 1e-6, records, ("eta_low",),
    )  # fmt: skip
    np.testing.assert_allclose(found.epsilon, [0.5, 0.0, 1.5])
    assert not found.epsilon.flags.writeable
    assert not found.weights.flags.writeable
    assert found.gap == 0.25
    assert found.n_bought == 2
    assert found.certificate() == {
        "objective": -4.0, "lower_bound": -5.0, "gap": 0.25, "eta": 2.0, "multiplier": 0.3,
        "n_sellers": 3, "n_bought": 2, "method": "line_search", "formulation": "dual",
        "solver": "ECOS", "solver_version": "2.0", "tolerance": 1e-6, "binding": ["eta_low"],
        "seconds": 1.5, "solves": [vars(records[0])],
    }  # fmt: skip
    frame = found.to_frame()
    assert frame["id"].tolist() == [0, 1, 2]
    assert found.to_frame(["x", "y", "z"])["id"].tolist() == ["x", "y", "z"]
    assert frame["epsilon"].tolist() == [0.5, 0.0, 1.5]
    above = cm.Allocation(np.array([1.0]), 1.0, 2.0, 2.5, 0.0, "exact", 0.0)
    assert above.gap == 0.0


def test_a_loose_certificate_is_warned_of_beyond_ten_times_the_gap() -> None:
    """From the declared markets: the warning comes from the caller's line."""
    declared = market(objective=cm.Spread() + 2.0 * cm.SquaredSpread() + OBJECTIVE)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        loose = cm.allocate(declared, "branch_and_bound", gap=1e-6, max_solves=1)
    assert loose.gap > 1e-5
    assert any(issubclass(one.category, cm.LooseCertificateWarning) for one in caught)


@pytest.mark.parametrize("cost", [cm.LinearCost(), cm.PowerCost(2)])
def test_the_first_eta_balances_noise_and_payments(cost) -> None:
    declared = market(objective=cm.Spread() + 3.0 * cm.Noise() + 0.5 * cm.Payments(cost))
    eta = branch._first_eta(declared, JointView(declared))
    mean = np.mean([0.2, 0.4, 1.0])
    bill = 0.5 * 3 * mean * float(cost(eta / 3))
    assert bill == pytest.approx(3.0 / eta, rel=0.05)
    unpaid = market(cm.MaxEpsilon(1.0), objective=cm.Spread() + cm.Noise())
    assert branch._first_eta(unpaid, JointView(unpaid)) == 3.0


def test_a_cone_without_an_unknown_has_no_multiplier() -> None:
    unknown = cp.Variable(2)
    item = unknown >= 1
    problem = cp.Problem(cp.Minimize(cp.sum(unknown)), [item])
    from convexmarket.allocation.cuts import multiplier

    assert multiplier(item, 2.0) is None
    problem.solve(solver="CLARABEL")
    np.testing.assert_allclose(multiplier(item, 2.0), [2.0, 2.0], rtol=1e-6)
    assert multiplier(cp.SOC(unknown[0], unknown), 1.0) is None
