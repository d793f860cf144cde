"""The exact solver agrees with brute force, CVXPY declarations and the certified search."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation import exact_solver
from convexmarket.allocation.exact_solver import dual_bound, solve_exact, unconstrained_eta
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.errors import InfeasibleMarketError, SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm
from tests.allocation import builders
from tests.allocation.brute_force import brute_force, least_linear
from tests.allocation.builders import (
    LARGE,
    assert_omission_is_exact,
    assert_sound,
    forms,
    large_form,
    market_of,
    ranged_forms,
    three_roots,
    weight,
)

# Turn a RuntimeWarning into an error, because edge cases must not give NaN.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

PSI = np.array([0.3, 0.9, 0.1, 2.0, 0.3])


def form(psi=PSI, **changes) -> StandardForm:
    return builders.form(psi, **({"sigma": 0.5, "gamma": 1.0} | changes))


@example(three_roots(), 0)
@given(forms() | forms(infinite=True), st.integers(0, 99))
def test_brute_force_finds_no_better_allocation(form, seed):
    available = np.count_nonzero(np.isfinite(form.virtual_costs))
    if available * form.max_weight < 1 - 1e-9:
        with pytest.raises(InfeasibleMarketError, match="have a finite virtual cost"):
            solve_exact(form)
        return
    result = solve_exact(form)
    assert_sound(form, result, seed)
    assert result.objective == pytest.approx(brute_force(form), rel=1e-11)


@given(forms(zeros=True))
def test_free_sellers_give_a_finite_eta_or_an_error(form):
    expected = brute_force(form)  # the grid of beta includes purchases from free sellers only
    free = np.count_nonzero(form.virtual_costs == 0)
    enough = free * form.max_weight >= 1 - 1e-12  # up to rounding
    limit = form.mu / np.sqrt(free) if enough else np.inf
    try:
        result = solve_exact(form)
    except UnattainedOptimumError as error:
        assert expected >= limit * (1 - 1e-9)
        assert "virtual cost of 0" in str(error)  # noqa: PT017 - both outcomes are valid
    else:
        assert_sound(form, result)
        assert result.objective == pytest.approx(expected, rel=1e-11)
        assert result.objective <= limit


def test_eta_is_exactly_within_its_range():
    psi, eta = np.array([1e-6, 1e-6, 1e-6, 7e-6, 1e-6]), 674.1998624632421
    form = StandardForm(psi, 1.0, 1.0, 1.0, max_weight=0.2, eta_low=eta, eta_high=eta)
    assert solve_exact(form).eta == eta


@given(ranged_forms(), st.integers(0, 99))
def test_the_optimum_under_a_range_of_eta_equals_brute_force(form, seed):
    result = solve_exact(form)
    if result.objective > 0:
        assert_sound(form, result, seed)
    assert result.objective == pytest.approx(brute_force(form), rel=1e-11)
    # Eta equals a binding end of the range. Without a binding end, the slope at eta is zero.
    ends = {"eta_low": form.eta_low, "eta_high": form.eta_high}
    assert all(result.eta == ends[name] for name in result.binding)
    if not result.binding and form.mu > 0:
        slope = form.gamma * form.expected_cost(result.weights) - form.sigma / result.eta**2
        assert abs(slope) <= 1e-7 * form.sigma / result.eta**2


@example(StandardForm(np.array([1.0, 2.0, 2 + 2e-10, 2 + 4e-10, 2 + 4e-10]), 1, 1, 1, 0.202), 1.0)
@given(forms(), weight)
def test_the_cheapest_sellers_are_filled_first_without_a_spread(form, eta):
    form = replace(form, mu=0.0)
    at_eta = solve_exact(replace(form, eta_low=eta, eta_high=eta))
    assert at_eta.eta == eta
    result = solve_exact(form)
    np.testing.assert_array_equal(at_eta.weights, result.weights)
    for point in (at_eta, result):
        assert point.weights.sum() == pytest.approx(1, abs=1e-12)
        assert 0 <= point.weights.min() <= point.weights.max() <= form.max_weight * (1 + 1e-15)
        assert point.objective == pytest.approx(form.objective(point.weights, point.eta), rel=1e-14)
        assert point.lower_bound == pytest.approx(point.objective, rel=1e-12)
    cost = least_linear(form.virtual_costs, form.max_weight)
    assert result.objective == pytest.approx(2 * np.sqrt(form.sigma * form.gamma * cost), rel=1e-12)
    # Sellers with equal costs get equal weights, as in the limit mu -> 0.
    for tied in np.unique(form.virtual_costs):
        assert np.ptp(result.weights[form.virtual_costs == tied]) <= 1e-15


@given(forms(capped=False))
def test_solutions_satisfy_the_kkt_conditions_of_paper_a(form):
    result = solve_exact(form)
    v = np.maximum(result.multiplier - form.gamma * form.virtual_costs, 0.0)
    slope = 1 + 2 * form.sigma / form.mu**2 * v.sum()
    rounding = 4 * np.spacing(result.multiplier) * slope
    eq14 = result.multiplier - form.sigma / form.mu**2 * (v @ v) - v @ v / v.sum()
    assert abs(eq14) <= 1e-9 * result.multiplier + rounding
    norm = np.linalg.norm(v)
    # Eq. (13): eps_i = mu*v_i/(||v|| sum v). Eta is the sum of all eps_i.
    np.testing.assert_allclose(result.weights, v / v.sum(), atol=1e-7)
    assert result.eta == pytest.approx(form.mu / norm, rel=1e-7)


def test_the_best_of_the_three_roots_is_found():
    allocation = cm.allocate(market_of(three_roots()))
    assert allocation.method == "exact"
    assert allocation.objective == pytest.approx(1.9946349581, abs=1e-9)
    assert allocation.eta == pytest.approx(3.2672302966, abs=1e-9)
    assert allocation.multiplier == pytest.approx(0.3763006421, abs=1e-9)
    assert allocation.lower_bound == pytest.approx(1.9946349581, abs=1e-9)


@given(forms(), st.sampled_from([1e-100, 1e-6, 1e6, 1e100]))
def test_the_objective_is_equivariant_to_the_unit_of_money(form, scale):
    result = solve_exact(form)
    costs_scaled = solve_exact(
        replace(form, virtual_costs=form.virtual_costs * scale, gamma=form.gamma / scale)
    )
    assert costs_scaled.objective == pytest.approx(result.objective, rel=1e-12)
    all_scaled = solve_exact(
        replace(form, mu=form.mu * scale, sigma=form.sigma * scale, gamma=form.gamma * scale)
    )
    assert all_scaled.objective == pytest.approx(scale * result.objective, rel=1e-12)
    assert_sound(replace(form, mu=form.mu, gamma=form.gamma), result)


@pytest.mark.parametrize("name", LARGE)
def test_omitting_expensive_sellers_keeps_the_solution(name, monkeypatch):
    assert_omission_is_exact(large_form(name, 40_000), monkeypatch)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_free_sellers_need_an_upper_end_of_eta(mu):
    psi = [0.0, 0.6, 0.0, 0.8]
    for cap in (1.0, 0.5):
        market = form(psi, mu=mu, max_weight=cap)
        with pytest.raises(UnattainedOptimumError, match=r"^2 sellers have .* cost of 0.*EtaRange"):
            solve_exact(market)
        result = solve_exact(replace(market, eta_high=30.0))
        assert (result.eta, result.binding) == (30.0, ("eta_high",))
        np.testing.assert_allclose(result.weights, [0.5, 0.0, 0.5, 0.0], atol=1e-12)
        # A range with only a lower end does not bound eta from above.
        with pytest.raises(UnattainedOptimumError, match="eta = infinity"):
            solve_exact(replace(market, eta_low=1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_weight": 0.4}, r"2 of 3 sellers .* cap of 1\.2"),
        ({"max_weight": 0.4, "eta_low": 1.0, "eta_high": 1.0}, r"2 of 3 sellers .* cap of 1\.2"),
        ({"eta_low": 3.0, "eta_high": 2.0}, "ranges of eta do not meet"),
        ({"sigma": 0.0}, r"sigma.* is 0.*EtaRange"),
        ({"sigma": 0.0, "mu": 0.0}, r"sigma.* is 0.*EtaRange"),
        ({"mu": 1e300}, "similar magnitudes"),
        ({"mu": 1e-300}, "similar magnitudes"),
    ],
)
def test_markets_without_an_optimum_in_double_precision_are_refused(changes, message):
    errors = InfeasibleMarketError, UnattainedOptimumError, SolverError
    with pytest.raises(errors, match=message):
        solve_exact(form([1.0, np.inf, 2.0], **changes))


@pytest.mark.parametrize(
    ("psi", "mu", "sigma", "gamma", "cap", "eta_range"),
    [
        (np.r_[1.0, 1000 * np.ones(7)], 5e-7, 3.0, 1.0, 8 - 1e-5, (1.0, 1.0)),
        (np.r_[4.2e-5, np.ones(14)], 11.22, 5.9e-7, 3.9e7, 14.999999999, (0.0493, 11.8)),
        (np.r_[1e-6 * np.ones(5), 1000 * np.ones(3)], 0.00216, 3.0, 1.0, 1.5999999999921413, None),
    ],
)
def test_caps_near_an_integer_are_solved_exactly(psi, mu, sigma, gamma, cap, eta_range):
    numbers = {"mu": mu, "sigma": sigma, "gamma": gamma, "cap": cap, "eta_range": eta_range}
    market = cm.Market.standard(cm.Sellers(virtual_costs=psi), **numbers)
    result = cm.allocate(market)
    searched = cm.allocate(market, "line_search", formulation="projection", gap=1e-9)
    assert result.weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert result.objective >= searched.lower_bound * (1 - 1e-12)
    # Costs of 1000 magnify the rounding error in the sum of the weights.
    assert result.objective <= searched.objective * (1 + 1e-7)
    assert result.gap <= 1e-12


@given(forms())
def test_guarantees_are_shares_of_eta_within_the_cap(form):
    market = market_of(form)
    bought = cm.allocate(market)
    np.testing.assert_allclose(bought.epsilon, bought.eta * bought.weights, rtol=1e-15)
    assert bought.epsilon.sum() == pytest.approx(bought.eta, rel=1e-12)
    cap = form.max_weight * form.virtual_costs.size
    assert bought.epsilon.max() <= cap * bought.epsilon.mean() * (1 + 1e-12)


def test_weights_become_equal_as_mu_grows():
    """Check a limit that section 3.3 of paper B states."""
    ranges = [np.ptp(solve_exact(form(mu=mu)).weights) for mu in (1.0, 10.0, 1e2, 1e4)]
    assert all(np.diff(ranges) < 0)
    assert ranges[-1] < 1e-3 / len(PSI)


@given(forms(), st.floats(-3, 3), st.integers(0, 1000))
def test_any_weights_give_a_valid_bound(market, exponent, seed):
    rng = np.random.default_rng(seed)
    psi = market.virtual_costs
    t = 10**exponent / psi.mean()
    best = optimal_weights(market, t)
    value = market.mu * np.linalg.norm(best) + t * psi @ best
    assert dual_bound(market, t * psi, best) == pytest.approx(value, rel=1e-9)
    assert dual_bound(market, t * psi, rng.exponential(size=psi.size)) <= value * (1 + 1e-12)


def test_the_best_eta_for_given_weights_balances_noise_and_payments():
    market, weights = form([0.2, 0.6]), np.array([0.75, 0.25])
    best = unconstrained_eta(market, weights @ [0.2, 0.6])
    values = [market.objective(weights, best * factor) for factor in (0.99, 1.0, 1.01)]
    assert np.argmin(values) == 1
    assert unconstrained_eta(form([0.2, 0.6], sigma=0.0), 0.3) == 0.0
    assert unconstrained_eta(form([0.0, 0.6]), 0.0) == np.inf


def test_an_undecided_interval_of_eta_lowers_the_bound(monkeypatch):
    """If the search cannot exclude an interval of eta, the lower bound is below the optimum."""
    segment, best, _ = exact_solver.best_segment(form(), exact_solver.costs_that_matter(form())[0])
    undecided = 0.9 * best.objective
    monkeypatch.setattr(exact_solver, "best_segment", lambda *_: (segment, best, undecided))
    assert solve_exact(form()).lower_bound <= undecided
