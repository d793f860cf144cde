"""The three declarations agree, are DPP, and recover feasible weights."""

import pickle

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convexmarket.allocation import declare
from convexmarket.allocation.formulations import (
    FixedEtaProblem,
    embed,
    marginal_price,
    recover_weights,
    restrict_to_finite,
)
from convexmarket.allocation.simplex import project_capped_simplex
from convexmarket.errors import (
    AllocationError,
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, StandardForm
from convexmarket.sellers import Sellers
from convexmarket.terms import EtaRange, Noise, Payments, Spread

FORMULATIONS = ["primal", "dual", "projection"]


def uniform_market(m=30, cap=None, eta_range=None, mu=1.0):
    costs = 2 * np.random.default_rng(0).uniform(0.02, 0.10, m) - 0.02
    sellers = Sellers(virtual_costs=costs)
    return Market.standard(sellers, mu=mu, sigma=100, gamma=0.001, cap=cap, eta_range=eta_range)


def market_with_infinite_costs(costs, **numbers):
    """Priors whose density vanishes at the top give psi = +inf there."""
    sellers = Sellers(virtual_costs=np.where(np.isfinite(costs), costs, 0.0))
    object.__setattr__(sellers, "virtual_costs", np.asarray(costs, dtype=float))
    return Market.standard(sellers, **numbers)


# ----------------------------------------------------------------- the projection


points = st.lists(
    st.one_of(st.sampled_from([0.0, 1.0, -1.0, 0.5]), st.floats(-10, 10)), min_size=1, max_size=40
)


@settings(deadline=None)
@given(points, st.sampled_from([1.0, 1.001, 1.5, 2.0, 5.0]), st.integers(-6, 6))
def test_projection_is_feasible_and_satisfies_its_variational_inequality(values, k, exponent):
    point = np.array(values) * 10.0**exponent
    m = point.size
    cap = min(1.0, k / m)
    weights = project_capped_simplex(point, cap)
    assert weights.min() >= 0
    assert weights.max() <= cap * (1 + 1e-12)
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    # (point - a)'(b - a) <= 0 for all feasible b: the maximum over b fills the largest entries.
    direction = np.sort(point - weights)[::-1]
    filled = np.diff(np.minimum(cap * np.arange(m + 1), 1.0))
    scale = max(1.0, np.abs(point).max())
    rounding = 1e-12 * scale + 1e-15 * scale**2  # of the point itself, times the point
    assert direction @ filled <= (point - weights) @ weights + rounding


def test_projection_matches_cvxpy():
    rng = np.random.default_rng(1)
    point, cap = rng.normal(size=20), 0.08
    a = cp.Variable(20)
    problem = cp.Problem(cp.Minimize(cp.sum_squares(a - point)), [cp.sum(a) == 1, a >= 0, a <= cap])
    problem.solve(solver="CLARABEL")
    np.testing.assert_allclose(project_capped_simplex(point, cap), a.value, atol=1e-6)


@settings(deadline=None)
@given(points, st.integers(0, 10**6), st.integers(-6, 6))
def test_projection_under_a_bound_for_each(values, seed, exponent):
    rng = np.random.default_rng(seed)
    point = np.array(values) * 10.0**exponent
    limits = rng.exponential(size=point.size) * rng.choice([0, 1, 1], size=point.size)
    limits[0] += 1e-3
    limits *= rng.choice([1.0, 1.2, 10.0]) / limits.sum()  # 1: one feasible point
    weights = project_capped_simplex(point, limits)
    assert weights.min() >= 0
    assert np.all(weights <= limits * (1 + 1e-12))
    assert weights.sum() == pytest.approx(1, abs=1e-12)
    direction = point - weights  # the maximum over b fills the largest entries, each to its bound
    order = np.argsort(-direction)
    filled = np.diff(np.minimum(np.r_[0, np.cumsum(limits[order])], 1.0))
    scale = max(1.0, np.abs(point).max())
    rounding = 1e-12 * scale + 1e-15 * scale**2
    assert direction[order] @ filled <= direction @ weights + rounding


def test_projection_keeps_its_digits_far_from_the_origin():
    point = -1e16 * np.array([0.1, 1.0, 1.0, 929.0])
    weights = project_capped_simplex(point, 0.4)
    np.testing.assert_allclose(weights, [0.4, 0.3, 0.3, 0.0], rtol=1e-12)


def test_projection_leaves_out_minus_infinity():
    np.testing.assert_array_equal(
        project_capped_simplex([-np.inf, 3.0, 3.0]), np.array([0.0, 0.5, 0.5])
    )


@pytest.mark.parametrize("point", [[np.nan, 1.0], [np.inf, 1.0]])
def test_projection_refuses_what_is_not_a_number(point):
    with pytest.raises(ParameterError, match="NaN"):
        project_capped_simplex(point)


def test_projection_refuses_an_infeasible_cap():
    with pytest.raises(InfeasibleMarketError, match="cannot sum to one"):
        project_capped_simplex([1.0, 2.0], 0.4)
    with pytest.raises(InfeasibleMarketError, match=r"2 weights of at most 0.5 .* to 0.8 at most"):
        project_capped_simplex([1.0, 2.0, 3.0], np.array([0.5, 0.3, 0.0]))


# --------------------------------------------------------------- the declarations


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize("cap", [None, 2])
def test_is_a_cvxpy_problem_in_dpp_form(formulation, cap):
    problem = declare(uniform_market(cap=cap), 900.0, formulation)
    assert isinstance(problem, FixedEtaProblem)
    assert isinstance(problem, cp.Problem)
    assert problem.is_dcp(dpp=True)
    assert problem.formulation == formulation
    assert ("beta" if formulation == "projection" else "t") in problem.param_dict
    assert problem.eta == pytest.approx(900, rel=1e-9)


@pytest.mark.parametrize("cap", [None, 1.2, 3])
@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS"])
def test_formulations_agree_when_solved_again(cap, solver):
    market = uniform_market(cap=cap)
    problems = {name: declare(market, 500.0, name) for name in FORMULATIONS}
    for eta in (500.0, 1200.0, 5000.0):
        for problem in problems.values():
            problem.eta = eta
            problem.solve(solver=solver)
        primal, dual, projection = (problems[name] for name in FORMULATIONS)
        objective = market.standard_form.objective(primal.weights, eta)
        assert primal.value == pytest.approx(objective, rel=1e-6)
        assert dual.value == pytest.approx(objective, rel=1e-6)
        for problem in (dual, projection):
            np.testing.assert_allclose(problem.weights, primal.weights, atol=2e-4)
            assert problem.multiplier == pytest.approx(primal.multiplier, rel=1e-3)


def test_values_agree_with_the_terms_own_evaluation():
    market = uniform_market(cap=2)
    problem = declare(market, 1000.0)
    problem.solve(solver="CLARABEL")
    by_terms = market.objective.value(problem.weights, 1000.0, market.sellers.virtual_costs)
    assert problem.value == pytest.approx(by_terms, rel=1e-7)


def test_multiplier_satisfies_the_papers_equations():
    market = uniform_market()
    form = market.standard_form
    problem = declare(market, 1000.0)
    problem.solve(solver="CLARABEL")
    margin = np.maximum(problem.multiplier - form.gamma * form.virtual_costs, 0)
    # A, Eq. (13): eps_i = eta*a_i = (lambda - gamma*psi_i)_+ * eta^2 * ||a||/mu.
    scale = 1000.0 * np.linalg.norm(problem.weights) / form.mu
    np.testing.assert_allclose(problem.weights, margin * scale, atol=1e-5)


def test_noise_follows_when_the_parameter_is_set_by_hand():
    market = uniform_market()
    problem = declare(market, 100.0)
    problem.param_dict["t"].value = market.standard_form.gamma * 700.0
    problem.solve(solver="CLARABEL")
    assert problem.eta == pytest.approx(700)
    assert problem.value == pytest.approx(market.standard_form.objective(problem.weights, 700.0))


def test_projection_beta_may_be_set_by_hand():
    problem = declare(uniform_market(), 100.0, "projection")
    problem.param_dict["beta"].value = 0.0
    problem.solve(solver="CLARABEL")
    np.testing.assert_allclose(problem.weights, 1 / 30, atol=1e-8)
    assert problem.eta == 0


def test_infinite_virtual_costs_stay_out():
    numbers = {"mu": 1.0, "sigma": 1.0, "gamma": 1.0, "cap": 2.0}
    market = market_with_infinite_costs([0.5, np.inf, 1.0, np.inf], **numbers)
    for formulation in FORMULATIONS:
        problem = declare(market, 1.0, formulation)
        problem.solve(solver="CLARABEL")
        np.testing.assert_allclose(problem.weights, [0.5, 0, 0.5, 0], atol=1e-6)
    with pytest.raises(InfeasibleMarketError, match="raise the cap"):
        declare(market_with_infinite_costs([0.5, np.inf, np.inf], **numbers), 1.0)
    with pytest.raises(InfeasibleMarketError, match="nobody"):
        declare(market_with_infinite_costs([np.inf], **numbers), 1.0)


def test_restrict_and_embed_are_inverse():
    form = StandardForm(np.array([1.0, np.inf, 2.0]), 1, 1, 1)
    finite_form, finite = restrict_to_finite(form)
    np.testing.assert_array_equal(finite_form.virtual_costs, [1, 2])
    np.testing.assert_array_equal(embed(np.array([0.3, 0.7]), finite), [0.3, 0, 0.7])


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_one_seller(formulation):
    market = Market.standard(Sellers(virtual_costs=[2.0]), mu=1, sigma=1, gamma=1)
    problem = declare(market, 3.0, formulation)
    problem.solve(solver="CLARABEL")
    assert problem.weights == pytest.approx([1.0])
    assert problem.multiplier == pytest.approx((1 + 3 * 2) / 3)


def test_marginal_price_of_a_vertex_is_that_of_the_dearest_bought():
    form = StandardForm(np.array([1.0, 2.0, 3.0]), 0.0, 1, 1, max_weight=0.5)
    assert marginal_price(form, np.array([0.5, 0.5, 0.0]), 2.0) == 4.0


def test_recovery_removes_the_traces_of_interior_points():
    form = StandardForm(np.array([0.1, 0.1, 50.0]), 1.0, 1, 1)
    raw = np.array([0.5, 0.5, 1e-9])
    np.testing.assert_allclose(recover_weights(form, raw, 1.0), [0.5, 0.5, 0.0], rtol=1e-12)
    with pytest.raises(SolverError, match="not finite"):
        recover_weights(form, np.array([np.nan, 1, 0]), 1.0)


# ---------------------------------------------------------------------- refusals


def test_weights_before_solving():
    with pytest.raises(AllocationError, match=r"call solve\(\)"):
        _ = declare(uniform_market(), 1.0).weights


@pytest.mark.parametrize("formulation", ["dual", "projection"])
def test_without_spread_only_the_primal(formulation):
    market = uniform_market(mu=0.0)
    with pytest.raises(NotSupportedError, match="formulation='primal'"):
        declare(market, 1.0, formulation)
    problem = declare(market, 1.0)
    problem.solve(solver="CLARABEL")
    assert problem.weights.argmax() == market.sellers.virtual_costs.argmin()


def test_unknown_formulation():
    with pytest.raises(ParameterError, match="'primal', 'dual', 'projection'"):
        declare(uniform_market(), 1.0, "sideways")


@pytest.mark.parametrize("eta", [0.0, -1.0, np.inf, np.nan])
def test_bad_eta(eta):
    with pytest.raises(ParameterError, match="eta"):
        declare(uniform_market(), eta)


@pytest.mark.parametrize("formulation", FORMULATIONS)
def test_eta_range_is_checked_and_its_ends_belong_to_it(formulation):
    market = uniform_market(eta_range=(2.0, 5.0))
    problem = declare(market, 2.0, formulation)
    problem.solve(solver="CLARABEL")
    assert problem.status == "optimal"
    problem.eta = 5.0
    with pytest.raises(ParameterError, match="EtaRange"):
        problem.eta = 5.1


@pytest.mark.parametrize("formulation", ["dual", "projection"])
def test_markets_of_another_form_have_a_primal_only(formulation):
    sellers = Sellers(virtual_costs=[1.0, 2.0])
    market = Market(sellers, Spread(3) + Noise() + Payments(), [EtaRange(1, 2)])
    with pytest.raises(NotSupportedError, match=f"{formulation} formulation.*Payments.*primal"):
        declare(market, 1.0, formulation)
    assert declare(market, 1.0).solve() > 0
    with pytest.raises(ParameterError, match="eta is 3, outside what EtaRange"):
        declare(market, 3)


def test_problem_survives_pickling():
    problem = pickle.loads(pickle.dumps(declare(uniform_market(), 900.0)))
    problem.eta = 1000.0
    problem.solve(solver="CLARABEL")
    fresh = declare(uniform_market(), 1000.0)
    assert problem.value == pytest.approx(fresh.solve(solver="CLARABEL"), rel=1e-6)
