"""Test the exponential method, and the blocks of the joint problem as CVXPY problems."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.allocation.solver_calls import run_solver
from convexmarket.errors import (
    CurvatureError,
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    UnattainedOptimumError,
)
from convexmarket.joint.alternating import PurchaseStep
from convexmarket.joint.exponential import ExponentialBlock, best_eta, solve_exponential
from tests import one_in
from tests.joint.builders import instance

SOLVERS = [name for name in ("CLARABEL", "ECOS", "SCS") if name in cp.installed_solvers()]
NOISES = {
    "expected": {},
    "worst-case": {"noise": "worst-case"},
    "realised": {"noise": "realised", "noise_vector": [1.0, -2.0, 0.5], "max_norm": 1.5},
}


def norm_terms(payments=None):
    return cm.Spread() + 10.0 * cm.Noise() + 0.01 * (payments or cm.Payments())


@given(seed=st.integers(0, 2**32), m=st.integers(4, 20))
def test_all_methods_agree_inside_the_convex_region(seed, m):
    """Check that both methods return the optimum of a convex problem."""
    joint = instance(m, seed=seed)
    best = cm.allocate_jointly(joint)
    assert best.status == "global"
    stepped = solve_exponential(joint, 50.0)
    stepped.measure()
    assert stepped.objective == pytest.approx(best.objective, rel=1e-5)
    assert stepped.objective >= best.lower_bound
    assert stepped.residual <= 1e-6
    assert stepped.weights.sum() == pytest.approx(1, abs=1e-12)


SMOOTH = {
    "norm": norm_terms(),
    "square": 2.0 * cm.terms.SquaredSpread() + 10.0 * cm.Noise() + 0.01 * cm.Payments(),
    "losses": norm_terms() + 0.3 * cm.Losses(np.linspace(0, 1, 40)),
    "power": norm_terms(cm.Payments(cm.PowerCost(1.5))),
    "exponential": norm_terms(cm.Payments(cm.terms.ExponentialCost())),
    "both": norm_terms() + 3.0 * cm.terms.SquaredSpread(),
}


def test_the_exponential_block_is_tight_at_the_optimum_and_an_upper_bound():
    joint = instance(terms=SMOOTH["norm"], constraints=[cm.Cap(4), cm.MaxEpsilon(30.0)])
    model, eta = np.array([1.0, -0.5, 2.0]), 60.0
    exact = PurchaseStep(joint).at(model, eta)
    best = joint.objective(model, exact.weights, eta)
    block = ExponentialBlock(joint, joint.losses(model), eta, exact.weights)
    assert block.is_dcp(dpp=True)
    assert run_solver(block, "CLARABEL").startswith("optimal")
    assert joint.objective(model, block.weights, eta) == pytest.approx(best, rel=1e-6)
    rest = joint.regularization / 2 * model @ model
    assert block.value + rest == pytest.approx(best, rel=1e-6)
    block.place(joint.losses(model), np.full(40, 1 / 40))
    assert run_solver(block, "CLARABEL").startswith("optimal")
    # a single step does not reach the optimum
    assert joint.objective(model, block.weights, eta) > best
    assert block.weights.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"terms": norm_terms() + cm.terms.NegativeEntropy()}, "NegativeEntropy"),
        ({"terms": norm_terms() + cm.Losses(np.linspace(-1, 1, 40))}, "Losses"),
        ({"constraints": [cm.GroupShare(["A", "B"] * 20, at_least={"A": 0.4})]}, "GroupShare"),
        ({"constraints": [cm.GroupShare(["A", "B"] * 20, equal=True)]}, "GroupShare"),
    ],
)
def test_the_exponential_block_refuses_terms_not_convex_in_z(options, words):
    joint = instance(**options)
    with pytest.raises(CurvatureError, match=words):
        ExponentialBlock(joint, np.ones(40), 10.0)


@pytest.mark.parametrize("noise", ["worst-case", "realised"])
def test_the_exponential_method_supports_noise_in_the_model(noise):
    joint = instance(**NOISES[noise])
    result = solve_exponential(joint, 50.0, solver="CLARABEL")
    assert result.objective == pytest.approx(cm.allocate_jointly(joint).objective, rel=1e-5)


@pytest.mark.parametrize("name", one_in(2, ["power", "exponential"]))
def test_the_exponential_method_supports_convex_privacy_costs(name):
    m = 10
    joint = instance(m, terms=SMOOTH[name], constraints=[cm.Cap(2)])
    result = solve_exponential(joint, 50.0, tol=1e-7)
    other = cm.allocate_jointly(joint, starts=1, tol=1e-6, max_iterations=20)
    assert result.objective == pytest.approx(other.objective, rel=1e-5)
    assert result.weights.max() <= 2 / m * (1 + 1e-8)
    nearby = [joint.objective(result.model, result.weights, result.eta * k) for k in (0.99, 1.01)]
    assert min(nearby) >= result.objective


@pytest.mark.parametrize("bound", one_in(3, ["largest", "given", "budget"]))
@pytest.mark.parametrize("paid", [True, False])
@pytest.mark.parametrize("m", one_in(2, [8, 40]))
def test_the_exponential_method_supports_bounds_on_epsilon_and_budgets(bound, paid, m):
    """Check binding bounds, at which alternating steps in the weights and eta can stall."""
    constraint = {
        "largest": cm.MaxEpsilon(60 / m),
        "given": cm.terms.GivenEpsilon(np.linspace(0.0, 120 / m, m)),
        "budget": cm.Budget(2.0),
    }[bound]
    terms = 2.0 * cm.terms.SquaredSpread() + 10.0 * cm.Noise()
    terms = terms + 0.01 * cm.Payments() if paid else terms
    joint = instance(m, terms=terms, constraints=[constraint])
    best = cm.allocate_jointly(joint, starts=1)
    result = solve_exponential(joint, 50.0, tol=1e-10)
    assert result.objective == pytest.approx(best.objective, rel=1e-6)
    quantities = result.eta * result.weights
    if bound == "budget":
        assert joint.market.sellers.virtual_costs @ quantities <= 2.0 * (1 + 1e-9)
    else:
        assert np.all(quantities <= constraint.epsilon * (1 + 1e-9))


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_exponential_block_chooses_eta(solver):
    joint = instance()
    best = cm.allocate_jointly(joint)
    losses = joint.losses(best.model)
    block = ExponentialBlock(joint, losses, 50.0, best.weights, choose_eta=True)
    assert block.eta == 50.0
    assert run_solver(block, solver).startswith("optimal")
    assert block.eta == pytest.approx(best.eta, rel=1e-2)
    assert joint.objective(best.model, block.weights, block.eta) == pytest.approx(
        best.objective, rel=1e-5
    )
    with pytest.raises(ParameterError, match=r"noise must .*, got -1"):
        block.place(losses, best.weights, -1.0)


def test_the_exponential_method_sets_weights_of_expensive_sellers_to_zero():
    m = 10
    sellers = cm.Sellers(virtual_costs=np.append(np.full(m - 1, 0.1), 1e4))
    joint = instance(m, sellers=sellers, terms=SMOOTH["square"])
    result = solve_exponential(joint, 50.0, tol=1e-7)
    assert result.weights[-1] == 0
    assert result.objective == pytest.approx(cm.allocate_jointly(joint).objective, rel=1e-5)


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        ([], np.sqrt(10 / (0.01 * 0.2))),
        ([cm.EtaRange(10, 20)], 20.0),
        ([cm.EtaRange(300, 400)], 300.0),
        ([cm.MaxEpsilon(1.0), cm.Cap(2)], 40.0),
        ([cm.terms.GivenEpsilon(np.linspace(0.5, 1, 40))], 20.0),
        ([cm.Budget(5.0)], 25.0),
        ([cm.GroupShare(["A", "B"] * 20, equal=True)], np.sqrt(10 / (0.01 * 0.2))),
    ],
)
def test_the_best_eta_equals_its_closed_form_within_the_constraints(constraints, expected):
    sellers = cm.Sellers(virtual_costs=np.full(40, 0.2))
    joint = instance(sellers=sellers, terms=norm_terms(), constraints=constraints)
    weights = np.full(40, 1 / 40)
    assert best_eta(joint, np.zeros(3), weights, 15.0) == pytest.approx(expected, rel=1e-4)


class Unknown(cm.terms.Constraint):
    def constraints(self, quantities):
        return [quantities.inverse_eta <= 10]


def test_the_exponential_method_refuses_unsupported_terms_and_constraints():
    with pytest.raises(NotSupportedError, match="Unknown"):
        solve_exponential(instance(constraints=[Unknown()]), 50.0)
    with pytest.raises(CurvatureError, match="NegativeEntropy"):
        solve_exponential(instance(terms=norm_terms() + cm.terms.NegativeEntropy()), 50.0)
    with pytest.raises(NotSupportedError, match="not installed"):
        solve_exponential(instance(), 50.0, solver="nobody")
    unbounded = instance(noise="realised", noise_vector=[1.0, 0.0, 0.0])
    with pytest.raises(UnattainedOptimumError, match="no minimum"):
        cm.allocate_jointly(unbounded, "exponential")
    with pytest.raises(InfeasibleMarketError, match=r"no weights within .* sum to one"):
        solve_exponential(instance(constraints=[cm.MaxEpsilon(0.1), cm.EtaRange(5, 9)]), 6.0)
    with pytest.raises(ParameterError, match="eta must"):
        solve_exponential(instance(), 0.0)
