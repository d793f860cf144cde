"""The exact solver against brute force, the CVXPY declarations and the certified search."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import convexmarket as cm
from convexmarket.allocation import exact
from convexmarket.allocation.costs import Costs
from convexmarket.allocation.exact import (
    check_feasible,
    highest_cost_bought,
    ratio_of_scales,
    solve_exact,
)
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.errors import InfeasibleMarketError, SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm
from tests.allocation import builders
from tests.allocation.brute_force import brute_force, least_linear
from tests.allocation.builders import (
    FORMULATIONS,
    LARGE,
    assert_leaving_out_loses_nothing,
    assert_sound,
    caps,
    costs,
    forms,
    large_form,
    market_of,
    ranged_forms,
    three_roots,
    uniform_market,
    weight,
)

# Edge cases are answered in numbers or in words; never in NaN with a warning.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

PSI = np.array([0.3, 0.9, 0.1, 2.0, 0.3])


def form(psi=PSI, **changes) -> StandardForm:
    return builders.form(psi, **({"sigma": 0.5, "gamma": 1.0} | changes))


def assert_sound_without_spread(form, found):
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)
    assert 0 <= found.weights.min() <= found.weights.max() <= form.max_weight * (1 + 1e-15)
    assert found.objective == pytest.approx(form.objective(found.weights, found.eta), rel=1e-14)
    assert found.lower_bound == pytest.approx(found.objective, rel=1e-12)


# --------------------------------------------------------------- the best of all


@pytest.mark.parametrize("mu", [0.01, 1.0, 100.0])
@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_nothing_is_better_where_markets_are_degenerate(mu, unit):
    """Ties, clusters closer than any tolerance, equal sellers, and caps that just fit."""
    m = 6
    for psi in ([0.5, 0.5, 0.5, 1, 1, 9], 1 + 1e-9 * np.arange(m), np.ones(m), [0, 0, 0, 1, 1, 2]):
        for k in (1.0, 1 + 1e-9, 1.01, 1.9, 2.0, 3.0, m):
            psi, cap = np.array(psi, dtype=float), min(1.0, k / m)
            if np.count_nonzero(psi == 0) * cap >= 1 - 1e-12:
                continue  # free sellers are enough: there may be no optimum
            degenerate = form(psi * unit, mu=mu, gamma=1 / unit, max_weight=cap)
            found = solve_exact(degenerate)
            assert_sound(degenerate, found)
            assert found.objective == pytest.approx(brute_force(degenerate), rel=1e-11)


@example(three_roots(), 0)
@given(forms(), st.integers(0, 99))
def test_nothing_is_better_by_brute_force(form, seed):
    found = solve_exact(form)
    assert_sound(form, found, seed)
    assert found.objective == pytest.approx(brute_force(form), rel=1e-11)


@given(forms(infinite=True))
def test_sellers_without_a_price_are_left_out(form):
    finite = np.isfinite(form.virtual_costs)
    if np.count_nonzero(finite) * form.max_weight < 1 - 1e-9:
        with pytest.raises(InfeasibleMarketError, match="have a finite virtual cost"):
            solve_exact(form)
        return
    found = solve_exact(form)
    alone = solve_exact(replace(form, virtual_costs=form.virtual_costs[finite]))
    assert_sound(form, found)
    assert found.objective == pytest.approx(alone.objective, rel=1e-14)
    np.testing.assert_allclose(found.weights[finite], alone.weights, atol=1e-9)


def test_a_seller_at_the_top_of_a_prior_whose_density_ends_at_zero():
    sellers = cm.Sellers([0.2, 1.0, 0.4, 0.5], cm.Beta(2, 2))
    assert sellers.virtual_costs[1] == np.inf
    allocation = cm.allocate(cm.Market.standard(sellers, mu=9, sigma=1, gamma=0.5, cap=1.5))
    assert allocation.weights[1] == 0
    assert allocation.n_bought == 3
    with pytest.raises(InfeasibleMarketError, match=r"3 of 4 sellers .* raise the cap"):
        cm.allocate(cm.Market.standard(sellers, mu=9, sigma=1, gamma=0.5, cap=1.3))


@given(forms(zeros=True))
def test_free_sellers_are_worth_a_finite_eta_or_refused(form):
    expected = brute_force(form)  # its beta goes to where all weight rests on free sellers
    free = np.count_nonzero(form.virtual_costs == 0)
    enough = free * form.max_weight >= 1 - 1e-12  # a cap of 6/5 of 1/6 is a fifth up to rounding
    limit = form.mu / np.sqrt(free) if enough else np.inf
    try:
        found = solve_exact(form)
    except UnattainedOptimumError as error:
        assert expected >= limit * (1 - 1e-9)
        assert "virtual cost of 0" in str(error)  # noqa: PT017 - either answer may be right
    else:
        assert_sound(form, found)
        assert found.objective == pytest.approx(expected, rel=1e-11)
        assert found.objective <= limit


@given(forms(), st.floats(-1, 1))
def test_one_eta(form, exponent):
    eta = float(np.sqrt(form.sigma / form.gamma / form.virtual_costs.mean())) * 10**exponent
    found = solved_at(form, eta)
    assert found.eta == eta
    held = replace(form, eta_low=eta, eta_high=eta)
    assert_sound(held, found)
    assert found.objective == pytest.approx(brute_force(held), rel=1e-11)
    assert solve_exact(held).objective == pytest.approx(found.objective, rel=1e-14)


def test_eta_stays_in_its_range_to_the_last_digit():
    psi, eta = np.array([1e-6, 1e-6, 1e-6, 7e-6, 1e-6]), 674.1998624632421
    form = StandardForm(psi, 1.0, 1.0, 1.0, max_weight=0.2, eta_low=eta, eta_high=eta)
    assert solve_exact(form).eta == eta


# ----------------------------------------------------------------- ranges of eta


@given(ranged_forms(), st.integers(0, 99))
def test_a_range_for_eta(form, seed):
    found = solve_exact(form)
    if found.objective > 0:
        assert_sound(form, found, seed)
    assert found.objective == pytest.approx(brute_force(form), rel=1e-11)
    # What binds is at its bound, and a wider range there would be better.
    at = {"eta_low": form.eta_low, "eta_high": form.eta_high}
    assert all(found.eta == at[name] for name in found.binding)
    if not found.binding and form.mu > 0:
        slope = form.gamma * form.expected_cost(found.weights) - form.sigma / found.eta**2
        assert abs(slope) <= 1e-7 * form.sigma / found.eta**2


@pytest.mark.parametrize(
    ("eta_range", "binding"),
    [
        ((0.01, 100), ()),
        ((5, 100), ("eta_low",)),
        ((0.1, 1), ("eta_high",)),
        ((2, 2), None),
        # Only the local minimum at eta = 0.83 is inside, but the end beside the global one wins.
        ((0.01, 2.9), ("eta_high",)),
    ],
)
def test_a_range_on_either_side_of_the_optimum(eta_range, binding):
    form = replace(three_roots(), eta_low=eta_range[0], eta_high=eta_range[1])
    found = solve_exact(form)
    assert found.objective == pytest.approx(brute_force(form), rel=1e-12)
    if binding is not None:
        assert found.binding == binding


def solved_at(market: StandardForm, eta: float):
    return solve_exact(replace(market, eta_low=eta, eta_high=eta))


def value_at(market: StandardForm, eta: float) -> float:
    return market.objective(optimal_weights(market, market.gamma * eta), eta)


def searched(market: StandardForm) -> tuple[float, float]:
    """Return the best eta and its value from a grid, refined."""
    low, high = max(market.eta_low, 1e-6), min(market.eta_high, 1e6)
    grid = np.geomspace(low, high, 40)
    values = [value_at(market, eta) for eta in grid]
    k = int(np.argmin(values))
    if k in (0, 39):
        return float(grid[k]), values[k]
    ends = np.log(grid[k - 1]), np.log(grid[k + 1])
    best = minimize_scalar(
        lambda x: value_at(market, np.exp(x)), bounds=ends, method="bounded",
        options={"xatol": 1e-9},
    )  # fmt: skip
    return float(np.exp(best.x)), float(best.fun)


@pytest.mark.parametrize(
    ("mu", "gamma", "cap"), [(1.0, 1.0, 0.2), (1.0, 50.0, 1.0), (40.0, 1.0, 0.4), (3.0, 1e-3, 0.4)]
)
def test_a_range_binds_only_where_the_optimum_is_outside(mu, gamma, cap):
    market = form(mu=mu, gamma=gamma, max_weight=cap)
    free = solve_exact(market)
    eta, value = searched(market)
    assert free.eta == pytest.approx(eta, rel=1e-4)
    assert free.objective == pytest.approx(value, rel=1e-9)
    assert free.binding == ()
    for low, high, binding in [
        (0.8, 1.3, ()),
        (1e-4, 1.01, ()),
        (0.99, 1e5, ()),
        (1.0 + 1e-6, 7.0, ("eta_low",)),
        (1.5, 7.0, ("eta_low",)),
        (0.1, 1.0 - 1e-6, ("eta_high",)),
        (0.1, 0.6, ("eta_high",)),
    ]:
        ranged = replace(market, eta_low=low * free.eta, eta_high=high * free.eta)
        found = solve_exact(ranged)
        assert found.binding == binding
        if not binding:
            assert found.eta == pytest.approx(free.eta, rel=1e-12)
            assert found.objective == pytest.approx(free.objective, rel=1e-14)
        else:
            end = ranged.eta_low if binding == ("eta_low",) else ranged.eta_high
            assert found.eta == end
            assert found.objective == pytest.approx(value_at(market, end), rel=1e-12)
            same = solved_at(market, end)
            np.testing.assert_allclose(found.weights, same.weights, rtol=1e-14)
            assert found.lower_bound <= found.objective
            assert found.objective - found.lower_bound <= 1e-12 * found.objective


@pytest.mark.parametrize("ends", [{"eta_low": 2.0}, {"eta_high": 0.05}, {"eta_low": 1e-3}])
def test_a_range_with_one_end(ends):
    market = form(**ends)
    eta, value = searched(market)
    found = solve_exact(market)
    assert found.objective == pytest.approx(value, rel=1e-8)
    assert found.eta == pytest.approx(eta, rel=1e-4)
    assert found.binding == (() if ends == {"eta_low": 1e-3} else tuple(ends))


def test_without_noise_the_least_privacy_of_the_range_is_best():
    for mu in (0.0, 1.0):
        found = solve_exact(form(sigma=0.0, mu=mu, eta_low=0.7, eta_high=3.0))
        assert found.eta == 0.7
        assert found.binding == ("eta_low",)
        if mu:
            assert found.objective == pytest.approx(value_at(form(sigma=0.0), 0.7), rel=1e-12)
        else:
            assert found.objective == pytest.approx(0.7 * 0.1, rel=1e-14)


# ---------------------------------------------------------------- without spread


@given(forms(), weight)
def test_without_spread_the_cheapest_are_filled(form, eta):
    form = replace(form, mu=0.0)
    at_eta = solved_at(form, eta)
    assert at_eta.eta == eta
    assert_sound_without_spread(form, at_eta)
    found = solve_exact(form)
    np.testing.assert_array_equal(at_eta.weights, found.weights)
    assert_sound_without_spread(form, found)
    cost = least_linear(form.virtual_costs, form.max_weight)
    assert found.objective == pytest.approx(2 * np.sqrt(form.sigma * form.gamma * cost), rel=1e-12)
    # Those who tie share alike: it is the limit of the answers as mu -> 0.
    for tied in np.unique(form.virtual_costs):
        assert np.ptp(found.weights[form.virtual_costs == tied]) <= 1e-15


def test_a_little_spread_is_close_to_none():
    psi = np.array([0.3, 0.1, 0.1, 0.1, 2.0])
    without = solve_exact(StandardForm(psi, 0.0, 1.0, 1.0, max_weight=0.4))
    little = solve_exact(StandardForm(psi, 1e-9, 1.0, 1.0, max_weight=0.4))
    np.testing.assert_allclose(little.weights, without.weights, atol=1e-8)
    np.testing.assert_allclose(without.weights, [0, 1 / 3, 1 / 3, 1 / 3, 0])


@pytest.mark.parametrize(
    ("cap", "weights"),
    [
        (1.0, [0.0, 0.0, 1.0, 0.0, 0.0]),
        (0.5, [0.25, 0.0, 0.5, 0.0, 0.25]),
        (1 / 3, [1 / 3, 0.0, 1 / 3, 0.0, 1 / 3]),
        (0.3, [0.3, 0.1, 0.3, 0.0, 0.3]),
        (0.2, [0.2] * 5),
    ],
)
def test_without_spread_those_who_tie_share_alike(cap, weights):
    market = form(mu=0.0, max_weight=cap, gamma=2.0)
    found = solve_exact(market)
    np.testing.assert_allclose(found.weights, weights, rtol=1e-12)
    cost = float(PSI @ weights)
    assert found.eta == pytest.approx(np.sqrt(0.5 / (2.0 * cost)))
    assert found.objective == pytest.approx(2 * np.sqrt(0.5 * 2.0 * cost))
    assert found.lower_bound == found.objective
    marginal = PSI[np.array(weights) > 0].max()
    assert found.multiplier == pytest.approx(2.0 * marginal)
    assert found.binding == ()
    for eta, binding in ((found.eta * 2, "eta_low"), (found.eta / 2, "eta_high")):
        ends = {"eta_low": eta, "eta_high": np.inf} if binding == "eta_low" else {"eta_high": eta}
        held = solve_exact(replace(market, **ends))
        assert (held.eta, held.binding) == (eta, (binding,))
        assert held.objective == pytest.approx(0.5 / eta + 2.0 * eta * cost)
        assert solved_at(market, eta).objective == pytest.approx(held.objective)


# --------------------------------------------------- Eq. (13)-(14) and its roots


def eq14(form, multiplier):
    """Return the left side of A's Eq. (14), zero at its roots."""
    v = np.maximum(multiplier - form.gamma * form.virtual_costs, 0.0)
    square = v @ v
    return multiplier - form.sigma / form.mu**2 * square - square / v.sum()


@given(forms(capped=False))
def test_kkt_conditions_of_paper_a(form):
    found = solve_exact(form)
    v = np.maximum(found.multiplier - form.gamma * form.virtual_costs, 0.0)
    slope = 1 + 2 * form.sigma / form.mu**2 * v.sum()  # what one rounding of the root does
    rounding = 4 * np.spacing(found.multiplier) * slope
    assert abs(eq14(form, found.multiplier)) <= 1e-9 * found.multiplier + rounding
    norm = np.linalg.norm(v)
    # Eq. (13): eps_i = mu*v_i/(||v|| sum v); eta is its sum.
    np.testing.assert_allclose(found.weights, v / v.sum(), atol=1e-7)
    assert found.eta == pytest.approx(form.mu / norm, rel=1e-7)


@pytest.mark.parametrize(
    ("multiplier", "objective"),
    [
        (0.0429264069, 3.0707106781),
        (0.2504113906, 3.2140948463),
        (0.3763006421, 1.9946349581),
    ],
)
def test_each_of_the_three_roots_is_a_root(multiplier, objective):
    form = three_roots()
    below, above = eq14(form, multiplier - 1e-9), eq14(form, multiplier + 1e-9)
    assert below * above < 0
    v = np.maximum(multiplier - form.gamma * form.virtual_costs, 0.0)
    value = form.objective(v / v.sum(), form.mu / np.linalg.norm(v))
    assert value == pytest.approx(objective, abs=1e-9)
    assert solve_exact(form).objective <= value + 1e-9


def test_the_best_of_the_three_roots_is_found():
    allocation = cm.allocate(market_of(three_roots()))
    assert allocation.method == "exact"
    assert allocation.objective == pytest.approx(1.9946349581, abs=1e-9)
    assert allocation.eta == pytest.approx(3.2672302966, abs=1e-9)
    assert allocation.multiplier == pytest.approx(0.3763006421, abs=1e-9)
    assert allocation.lower_bound == pytest.approx(1.9946349581, abs=1e-9)


# ------------------------------------------------------------------ equivariance


@given(forms(), st.sampled_from([1e-100, 1e-6, 1e6, 1e100]))
def test_money_has_no_unit(form, scale):
    found = solve_exact(form)
    costs_scaled = solve_exact(
        replace(form, virtual_costs=form.virtual_costs * scale, gamma=form.gamma / scale)
    )
    assert costs_scaled.objective == pytest.approx(found.objective, rel=1e-12)
    all_scaled = solve_exact(
        replace(form, mu=form.mu * scale, sigma=form.sigma * scale, gamma=form.gamma * scale)
    )
    assert all_scaled.objective == pytest.approx(scale * found.objective, rel=1e-12)
    assert_sound(replace(form, mu=form.mu, gamma=form.gamma), found)


@given(forms(), st.sampled_from([1e-100, 1e-6, 1e6, 1e100]))
def test_privacy_has_no_unit(form, scale):
    """Twice as much of a unit half as large: sigma and eta double, gamma halves."""
    found = solve_exact(form)
    other = solve_exact(replace(form, sigma=form.sigma * scale, gamma=form.gamma / scale))
    assert other.objective == pytest.approx(found.objective, rel=1e-12)
    assert form.objective(other.weights, other.eta / scale) == pytest.approx(
        found.objective, rel=1e-12
    )


@given(forms(), st.randoms(use_true_random=False))
def test_the_order_of_sellers_does_not_matter(form, random):
    order = np.array(random.sample(range(form.virtual_costs.size), form.virtual_costs.size))
    found = solve_exact(form)
    shuffled = solve_exact(replace(form, virtual_costs=form.virtual_costs[order]))
    assert shuffled.objective == pytest.approx(found.objective, rel=1e-14)
    np.testing.assert_allclose(shuffled.weights, found.weights[order], atol=1e-13)
    for tied in np.unique(form.virtual_costs):  # equal sellers are treated equally
        assert np.ptp(found.weights[form.virtual_costs == tied]) == 0


@given(forms(), st.data())
def test_guarantees_fall_with_the_own_report(form, data):
    seller = data.draw(st.integers(0, form.virtual_costs.size - 1))
    reports = st.one_of(st.just(0.0), st.floats(1e-9, 3))
    factors = data.draw(st.lists(reports, min_size=2, max_size=6))
    epsilon = []
    for factor in np.sort(factors):
        psi = form.virtual_costs.copy()
        psi[seller] *= factor
        try:
            found = solve_exact(replace(form, virtual_costs=psi))
        except UnattainedOptimumError:  # a free seller: infinitely much
            epsilon.append(np.inf)
        else:
            epsilon.append(found.eta * found.weights[seller])
            assert_sound(replace(form, virtual_costs=psi), found)
    epsilon = np.minimum(epsilon, 1e300)
    # Where markets tie to rounding, either answer is right.
    assert np.all(np.diff(epsilon) <= 1e-7 * epsilon[:-1] + 1e-12 * epsilon.max())


# ------------------------------------------------------ conic solvers as oracles


@st.composite
def conic_forms(draw):
    """Forms within the few decades that conic solvers manage in the market's own units."""
    psi = draw(costs())
    assume(psi.max() <= 30 * psi.min() and psi.min() >= 0.01)
    moderate = st.floats(-0.7, 0.7).map(lambda exponent: 10.0**exponent)
    mu, sigma, gamma, cap = (draw(part) for part in (moderate, moderate, moderate, caps(psi.size)))
    return StandardForm(psi, mu, sigma, gamma, cap)


@given(conic_forms())
def test_conic_declarations_of_one_eta_agree(form):
    market = market_of(form)
    allocation = cm.allocate(market)
    for formulation in FORMULATIONS:
        problem = cm.declare(market, eta=allocation.eta, formulation=formulation)
        problem.solve(solver="CLARABEL")
        value = problem.value
        if formulation == "projection":  # its value is another, its weights are the market's
            value = form.objective(problem.weights, allocation.eta)
        assert value == pytest.approx(allocation.objective, rel=1e-6)
        np.testing.assert_allclose(problem.weights, allocation.weights, atol=2e-3)


@given(conic_forms())
def test_certified_searches_agree(form):
    market = market_of(form)
    allocation = cm.allocate(market)
    for formulation in FORMULATIONS:
        searched = cm.allocate(market, method="line_search", formulation=formulation, gap=1e-8)
        assert searched.lower_bound <= allocation.objective * (1 + 1e-12)
        assert allocation.lower_bound <= searched.objective * (1 + 1e-12)
        assert searched.objective == pytest.approx(allocation.objective, rel=1e-6)


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("cap", [None, 1.0, 1.05, 2.5, 4.0])
def test_certified_searches_agree_to_their_gap(formulation, cap):
    market = uniform_market(40, cap=cap)
    allocation = cm.allocate(market)
    searched = cm.allocate(market, method="line_search", formulation=formulation, gap=1e-8)
    assert searched.gap <= 1e-8
    assert searched.objective == pytest.approx(allocation.objective, rel=2e-8)
    np.testing.assert_allclose(searched.weights, allocation.weights, atol=2e-5)


@given(forms())
def test_the_declared_objective_says_the_same(form):
    market = market_of(form)
    allocation = cm.allocate(market)
    declared = market.objective.value(allocation.weights, allocation.eta, form.virtual_costs)
    assert declared == pytest.approx(allocation.objective, rel=1e-12)
    assert allocation.gap <= 1e-12
    assert allocation.n_bought == np.count_nonzero(allocation.epsilon)
    np.testing.assert_allclose(allocation.epsilon.sum(), allocation.eta, rtol=1e-12)


# ------------------------------------------------------ sellers who are left out


@pytest.mark.parametrize("name", LARGE)
def test_leaving_out_sellers_loses_nothing(name, monkeypatch):
    assert_leaving_out_loses_nothing(large_form(name, 40_000), monkeypatch)


def test_a_large_market_in_which_everybody_is_bought_from():
    """Looking for sellers to leave out once ran past the end of its sample."""
    psi = np.sort(cm.Beta(0.5, 0.5).sample(30_000, np.random.default_rng(0))) + 1.0
    form = StandardForm(psi, 10.0, 2.0, 0.5, 1.05 / psi.size)
    solution = solve_exact(form)
    assert np.count_nonzero(solution.weights) > 0.95 * psi.size
    assert solution.objective - solution.lower_bound <= 1e-12 * solution.objective


def test_leaving_out_sellers_of_a_large_market_with_few_costs(monkeypatch):
    """Half of them tie at the least cost: whoever is left out, those stay."""
    monkeypatch.setattr(exact, "_WORTH_PASSES", 100)
    for few in ([0.2, 0.2, 0.5, 9.0], [0.2], [0.2, 0.4], [0.2, 0.3, 40.0, 41.0]):
        psi = np.resize(few, 200)
        for sigma in (0.01, 1.0, 100.0):
            market = form(psi, sigma=sigma)
            found = solve_exact(market)
            assert found.objective == pytest.approx(value_at(market, found.eta), rel=1e-12)
            with monkeypatch.context() as patch:
                patch.setattr(exact, "_WORTH_PASSES", np.inf)
                whole = solve_exact(market)
            np.testing.assert_allclose(found.weights, whole.weights, rtol=1e-9, atol=1e-15)
            assert found.objective == pytest.approx(whole.objective, rel=1e-14)
            assert found.objective - found.lower_bound <= 1e-12 * found.objective


@pytest.mark.parametrize("ends", [{}, {"eta_low": 0.3, "eta_high": 4.0}, {"eta_high": 0.2}])
def test_the_highest_cost_bought_is_above_all_that_are_bought(ends):
    sellers = PSI, np.array([0.0, 0.4, 0.4, 3.0]), np.append(PSI, np.inf)
    for cap, sigma, psi in product((1.0, 0.5, 0.3), (1e-3, 0.5, 30.0), sellers):
        market = form(psi, max_weight=cap, sigma=sigma, **ends)
        ceiling = highest_cost_bought(market, np.sort(psi))
        found = solve_exact(market) if psi[0] or ends or cap < 1 else None
        if found is not None:
            assert psi[found.weights > 0].max() <= ceiling
        spared = highest_cost_bought(market, np.sort(psi), spare=1)
        assert spared >= ceiling


def test_the_highest_cost_bought_by_hand():
    ordered = np.array([0.1, 0.3, 0.9, 2.0])
    by_hand = {
        1.0: 0.1 + (1.0 + 2 * np.sqrt(0.5 * 0.1)) / (2 * 0.5),
        0.5: 0.3 + (1.0 + 2 * np.sqrt(0.5 * 0.3)) / (2 * 0.5),
        0.3: 2.0 + (1.0 + 2 * np.sqrt(0.5 * 2.0)) / (2 * 0.5),
    }
    for cap, expected in by_hand.items():
        assert highest_cost_bought(form(max_weight=cap), ordered) == pytest.approx(expected)
    assert highest_cost_bought(form(max_weight=0.5), ordered, spare=1) == pytest.approx(
        0.9 + 1.0 + 2 * np.sqrt(0.5 * 0.9)
    )
    # A free seller fills the cap at an objective of mu in the end: t*psi <= mu, 2*c/t < mu.
    free = np.array([0.0, 0.3, 0.9])
    assert highest_cost_bought(form(mu=3.0), free) == pytest.approx(9.0)
    held = form(eta_low=0.25, eta_high=0.5, mu=3.0, gamma=2.0)
    assert highest_cost_bought(held, ordered) == pytest.approx(0.1 + 3.0 / 0.5)
    assert highest_cost_bought(form(sigma=0.0, eta_low=2.0), ordered) == pytest.approx(0.6)
    assert highest_cost_bought(form(), np.array([np.inf, np.inf])) == np.inf


@given(forms())
def test_nobody_above_the_highest_cost_is_bought_from(form):
    found = solve_exact(form)
    ceiling = highest_cost_bought(form, np.sort(form.virtual_costs))
    assert not found.weights[form.virtual_costs > ceiling * (1 + 1e-12)].any()


# ------------------------------------------------- special markets, and refusals


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_free_sellers_are_bounded_by_a_range_or_refused(mu):
    psi = [0.0, 0.6, 0.0, 0.8]
    for cap in (1.0, 0.5):
        market = form(psi, mu=mu, max_weight=cap)
        with pytest.raises(UnattainedOptimumError, match=r"^2 sellers have .* cost of 0.*EtaRange"):
            solve_exact(market)
        found = solve_exact(replace(market, eta_high=30.0))
        assert (found.eta, found.binding) == (30.0, ("eta_high",))
        np.testing.assert_allclose(found.weights, [0.5, 0.0, 0.5, 0.0], atol=1e-12)
        # Only from below: still without end.
        with pytest.raises(UnattainedOptimumError, match="eta = infinity"):
            solve_exact(replace(market, eta_low=1.0))
    capped = form(psi, mu=mu, max_weight=0.3)
    found = solve_exact(capped)
    assert found.weights.sum() == pytest.approx(1.0)
    if mu:
        assert found.objective == pytest.approx(searched(capped)[1], rel=1e-9)
    else:
        assert found.objective == pytest.approx(2 * np.sqrt(0.5 * (0.3 * 0.6 + 0.1 * 0.8)))


@pytest.mark.parametrize("solve", [solve_exact, lambda form: solved_at(form, 1.0)])
def test_too_tight_a_cap_is_said_to_be_infeasible(solve):
    form = StandardForm(np.array([1.0, np.inf, 2.0]), 1.0, 1.0, 1.0, max_weight=0.4)
    with pytest.raises(InfeasibleMarketError, match=r"2 of 3 sellers .* cap of 1\.2"):
        solve(form)


def test_ranges_that_do_not_meet_are_infeasible():
    sellers = cm.Sellers(virtual_costs=[1.0, 2.0])
    objective = 1 * cm.Spread() + 1 * cm.Noise() + 1 * cm.Payments()
    market = cm.Market(sellers, objective, [cm.EtaRange(1, 2), cm.EtaRange(3, 4)])
    with pytest.raises(InfeasibleMarketError, match="ranges of eta do not meet"):
        cm.allocate(market)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_an_optimum_at_no_privacy_is_refused(mu):
    market = cm.Market.standard(cm.Sellers(virtual_costs=[1.0, 2.0]), mu=mu, sigma=0, gamma=1)
    with pytest.raises(UnattainedOptimumError, match=r"sigma.* is 0.*EtaRange"):
        cm.allocate(market)


@pytest.mark.parametrize("cap", [None, 1.0])
def test_one_seller_carries_everything(cap):
    sellers = cm.Sellers(virtual_costs=[0.25])
    allocation = cm.allocate(cm.Market.standard(sellers, mu=3, sigma=2, gamma=0.5, cap=cap))
    assert allocation.weights.tolist() == [1.0]
    assert allocation.eta == pytest.approx(4.0, rel=1e-15)
    assert allocation.objective == pytest.approx(4.0, rel=1e-15)  # 3 + 2/4 + 0.5*4*0.25


def test_the_more_spread_weighs_the_more_equal_are_weights():
    """B, section 3.3: their distance from 1/m falls with mu, to nothing."""
    markets = [form(mu=mu) for mu in (1.0, 10.0, 1e2, 1e4)]
    spread = [np.ptp(solve_exact(market).weights) for market in markets]
    assert all(np.diff(spread) < 0)
    assert spread[-1] < 1e-3 / len(PSI)


def test_k_of_one_makes_all_weights_equal():
    psi = np.random.default_rng(2).uniform(0, 9, 37)
    form = StandardForm(psi, 1.0, 1.0, 1.0, max_weight=1 / 37)
    found = solve_exact(form)
    np.testing.assert_allclose(found.weights, 1 / 37, rtol=1e-14)
    assert found.eta == pytest.approx(1 / np.sqrt(psi.mean()), rel=1e-14)


@pytest.mark.parametrize(
    ("psi", "mu", "sigma", "gamma", "cap", "eta_range"),
    [
        (np.r_[1.0, 1000 * np.ones(7)], 5e-7, 3.0, 1.0, 8 - 1e-5, (1.0, 1.0)),
        (np.r_[4.2e-5, np.ones(14)], 11.22, 5.9e-7, 3.9e7, 14.999999999, (0.0493, 11.8)),
        (np.r_[1e-6 * np.ones(5), 1000 * np.ones(3)], 0.00216, 3.0, 1.0, 1.5999999999921413, None),
    ],
)
def test_caps_a_hair_off_an_integer(psi, mu, sigma, gamma, cap, eta_range):
    market = cm.Market.standard(
        cm.Sellers(virtual_costs=psi),
        mu=mu,
        sigma=sigma,
        gamma=gamma,
        cap=cap,
        eta_range=eta_range,
    )
    found = cm.allocate(market)
    searched = cm.allocate(market, "line_search", formulation="projection", gap=1e-9)
    assert found.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.objective >= searched.lower_bound * (1 - 1e-12)
    # Costs of 1000 magnify the rounding with which the search's weights sum to one.
    assert found.objective <= searched.objective * (1 + 1e-7)
    assert found.gap <= 1e-12


def test_caps_are_met_up_to_rounding():
    for m in (3, 7, 49):
        market = form(np.full(m, 0.5), max_weight=np.nextafter(1 / m, 0))
        check_feasible(market)
        np.testing.assert_allclose(solve_exact(market).weights, 1 / m, rtol=1e-14)
    with pytest.raises(InfeasibleMarketError, match=r"^5 of 5 sellers .* cap of 0\.95.* 0\.95 of"):
        check_feasible(form(max_weight=0.19))
    with pytest.raises(InfeasibleMarketError, match=r"^4 of 5 .* cap of 1 they .* 0\.8 of"):
        check_feasible(form([1.0, np.inf, 1.0, 1.0, 1.0], max_weight=0.2))
    check_feasible(form([1.0, np.inf, 1.0, 1.0, 1.0], max_weight=0.25))
    check_feasible(form(eta_low=2.0, eta_high=2.0))
    with pytest.raises(InfeasibleMarketError, match=r"at least 2 and at most 1\.9;"):
        check_feasible(form(eta_low=2.0, eta_high=1.9))


@pytest.mark.parametrize("mu", [1e300, 1e-300])
def test_what_double_precision_cannot_weigh_is_refused(mu):
    market = cm.Market.standard(cm.Sellers(virtual_costs=[0.2, 1.2]), mu=mu, sigma=1, gamma=1)
    with pytest.raises(SolverError, match="closer"):
        cm.allocate(market)


def test_scales_that_double_precision_cannot_weigh():
    costs = Costs(np.sort(PSI))
    assert ratio_of_scales(form(mu=2.0, gamma=3.0), costs) == pytest.approx(0.5 * 3.0 * 2.0 / 4.0)
    assert ratio_of_scales(form(sigma=0.0), costs) == 0.0
    for mu in (1e-200, 1e200):
        with pytest.raises(SolverError, match="exceeds double precision"):
            ratio_of_scales(form(mu=mu, sigma=1e-3), costs)
    for sigma, gamma in ((1e-300, 1e300), (1e300, 1e-300)):
        found = solve_exact(form(mu=0.0, sigma=sigma, gamma=gamma))
        assert found.eta == pytest.approx(np.sqrt(sigma) / np.sqrt(gamma) / np.sqrt(0.1))
    for sigma, gamma, psi in ((1e-320, 1e308, 1e100), (1e308, 1e-308, 1e-300)):
        with (
            np.errstate(over="ignore"),
            pytest.raises(SolverError, match=r"exceeds double precision; .* closer$"),
        ):
            solve_exact(form([psi, psi], mu=0.0, sigma=sigma, gamma=gamma))


def test_costs_that_vanish_are_said_to():
    """Half of the smallest number there is, twice, is nothing."""
    with pytest.raises(SolverError, match="exceeds double precision"):
        solve_exact(form([5e-324, 5e-324], mu=1e-3, sigma=2.0))
