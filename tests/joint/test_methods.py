"""The other methods of the joint problem: blocks, projected gradient, exponential, nonlinear."""

from types import SimpleNamespace

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import convexmarket as cm
from convexmarket.allocation.solvers import run_solver
from convexmarket.errors import (
    AllocationError,
    CurvatureError,
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from convexmarket.joint.blocks import ExponentialBlock, ModelBlock, purchase_block, remaining_gain
from convexmarket.joint.exponential import best_eta, solve_exponential
from convexmarket.joint.gradient import descend_jointly, gradient_form, project_logarithms
from convexmarket.joint.model_step import best_model
from convexmarket.joint.nonlinear import NonlinearProblem, solve_nonlinear
from convexmarket.joint.purchase_step import PurchaseStep
from tests import one_in
from tests.joint.builders import (
    beginning,
    check_bounds_are_kept,
    check_methods_agree,
    convex_joint,
    data,
    instance,
    monotone,
)

SOLVERS = ["CLARABEL", "ECOS", "SCS"]
NOISES = {
    "expected": {},
    "worst-case": {"noise": "worst-case"},
    "realised": {"noise": "realised", "noise_vector": [1.0, -2.0, 0.5], "max_norm": 1.5},
}


def norm_terms(payments=None):
    return cm.Spread() + 10.0 * cm.Noise() + 0.01 * (payments or cm.Payments())


@given(seed=st.integers(0, 2**32), m=st.integers(4, 20))
def test_all_methods_agree_inside_the_convex_region(seed, m):
    check_methods_agree(m, seed)


# -------------------------------------------------------------------- projected gradient

SMOOTH = {
    "norm": norm_terms(),
    "square": 2.0 * cm.terms.SquaredSpread() + 10.0 * cm.Noise() + 0.01 * cm.Payments(),
    "losses": norm_terms() + 0.3 * cm.Losses(np.linspace(0, 1, 40)),
    "power": norm_terms(cm.Payments(cm.PowerCost(1.5))),
    "exponential": norm_terms(cm.Payments(cm.terms.ExponentialCost())),
    "both": norm_terms() + 3.0 * cm.terms.SquaredSpread(),
}


@pytest.mark.parametrize("noise", ["expected", "realised"])
@pytest.mark.parametrize("name", SMOOTH)
def test_gradients_are_those_of_the_objective(name, noise):
    joint = instance(terms=SMOOTH[name], **NOISES[noise])
    form, rng = gradient_form(joint), np.random.default_rng(1)
    model, weights, eta = rng.normal(size=3), rng.dirichlet(np.ones(40)), 30.0
    value, by_model, by_weights = form.smooth(model, weights, eta)
    assert value + joint.sigma / eta == pytest.approx(
        joint.objective(model, weights, eta), rel=1e-12
    )
    step = 1e-6
    for gradient, at in (
        (by_model, lambda d: form.smooth(model + d, weights, eta)[0]),
        (by_weights, lambda d: form.smooth(model, weights + d, eta)[0]),
    ):
        direction = rng.normal(size=gradient.size) * (0.1 if gradient.size == 40 else 1)
        slope = (at(step * direction) - at(-step * direction)) / (2 * step)
        assert slope == pytest.approx(float(gradient @ direction), rel=1e-5)


def test_projected_gradient_comes_near_the_optimum_but_not_below():
    check_projected_gradient_comes_near(12, 0)


def check_projected_gradient_comes_near(m, seed):
    joint = instance(m, seed=seed)
    best = cm.allocate_jointly(joint)
    found, trace = descend_jointly(joint, grid=4, eps_max=1.3 * best.eta / m, max_iterations=1500)
    assert best.objective <= found.objective * (1 + 1e-12)
    assert found.objective <= best.objective * (1 + 1e-2)
    assert len(trace) == 4
    assert monotone(trace)
    assert found.residual <= 1e-2
    assert found.weights.sum() == pytest.approx(1, abs=1e-12)


# ------------------------------------------------------- descent in logarithms (B, 4.2)


@given(
    v=arrays(float, 4, elements=st.floats(-3, 1)),
    limit=arrays(float, 4, elements=st.floats(0.26, 1)),
)
@example(v=np.array([-1.5, -2.0, 0.0, 0.0]), limit=np.full(4, 0.265625))
def test_the_nearest_logarithms_of_weights(v, limit):
    """Feasible, and where they exist nothing nearby is nearer; a surface has no other minimum."""
    z = project_logarithms(v, limit)
    if np.isnan(z).all():
        assert np.minimum(np.exp(v), limit).sum() < 1  # too far inside
        return
    assert np.exp(z).sum() == pytest.approx(1, abs=1e-12)
    assert np.all(np.exp(z) <= limit * (1 + 1e-15))
    rng = np.random.default_rng(0)
    for scale in (1e-3, 1e-2, 0.1):
        near = z + scale * rng.normal(size=(200, 4))
        near -= np.log(np.exp(near).sum(axis=1, keepdims=True))
        near = near[np.all(np.exp(near) <= limit, axis=1)]
        assert np.all(((near - v) ** 2).sum(axis=1) >= ((z - v) ** 2).sum() - 1e-12)


def test_gradients_in_logarithms_are_those_of_the_objective():
    form = gradient_form(instance(), "logarithms")
    rng = np.random.default_rng(1)
    model, z = rng.normal(size=3), np.log(rng.dirichlet(np.ones(40)))
    _, _, by_z = form.slope(model, z, 30.0)
    step = 1e-6 * rng.normal(size=40)
    change = form.slope(model, z + step, 30.0)[0] - form.slope(model, z - step, 30.0)[0]
    assert change == pytest.approx(2 * float(by_z @ step), rel=1e-5)


def test_inside_the_convex_region_descent_in_logarithms_converges_exponentially():
    """As B, Theorem 4.1 says, although its set is not convex: here everybody is bought from."""
    joint = convex_joint(0, 12, 3)
    best = cm.allocate_jointly(joint)
    assert best.status == "global"
    assert best.weights.min() > 0.01
    path = cm.joint.descent_path(joint, best.eta, variables="logarithms", tol=1e-12)
    above = path / best.objective - 1
    assert abs(above[-1]) <= 1e-12
    assert np.all(np.diff(path) <= 1e-12 * path[0])
    late = np.log(above[(above < 1e-3) & (above > 1e-10)])
    assert np.exp(np.polyfit(np.arange(late.size), late, 1)[0]) <= 0.8


def outside(seed):
    """A market that buys from one of ten, far outside the convex region."""
    rng = np.random.default_rng(seed)
    X, y = data(10, 3, rng)
    sellers = cm.Sellers(rng.uniform(0.02, 1, 10), prior=cm.Uniform(0, 1))
    terms = 0.05 * cm.Spread() + 0.3 * cm.Noise() + 0.05 * cm.Payments()
    return cm.JointMarket(cm.Market(sellers, terms), X, y, regularization=0.002)


@pytest.mark.campaign
def test_outside_it_where_a_descent_ends_depends_on_its_start():
    """In the weights as in their logarithms; there zero is infinitely far away, so it stays above.

    "The same stationary point for different initializations" (B, section 4.1) is no rule.
    """
    joint = outside(4)
    best = cm.allocate_jointly(joint, starts=12)
    for variables, reached in (("weights", True), ("logarithms", False)):
        ends = [
            cm.joint.descent_path(
                joint,
                best.eta,
                variables=variables,
                max_iterations=500,
                rng=np.random.default_rng(seed),
            )[-1]
            for seed in (0, 4, 5)
        ]
        above = np.array(ends) / best.objective - 1
        assert above.max() >= 0.1
        assert (above.min() <= 1e-9) == reached


@pytest.mark.campaign
def test_the_whole_method_in_logarithms():
    joint = convex_joint(1, 12, 3)
    best = cm.allocate_jointly(joint)
    options = {"grid": 3, "eps_max": 1.5 * best.eta / 12}
    found = cm.allocate_jointly(joint, "projected_gradient", variables="logarithms", **options)
    assert found.objective == pytest.approx(
        cm.allocate_jointly(joint, "projected_gradient", **options).objective, rel=1e-6
    )
    with pytest.raises(ParameterError, match="variables"):
        cm.allocate_jointly(joint, "projected_gradient", variables="z")


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", one_in(2, ["norm", "power"]))
def test_projected_gradient_finds_the_best_point_of_an_eta(name, noise):
    joint = instance(terms=SMOOTH[name], constraints=[cm.EtaRange(30, 30)], **NOISES[noise])
    rng = np.random.default_rng(3)
    found, _ = descend_jointly(joint, grid=1, max_iterations=3000, rng=rng)
    assert found.eta == 30
    bought = PurchaseStep(joint).at(found.model, 30.0).weights
    best = joint.objective(best_model(joint, bought, 30.0), bought, 30.0)
    assert found.objective == pytest.approx(best, rel=1e-6)
    if joint.max_norm is not None:
        assert np.linalg.norm(found.model) <= joint.max_norm * (1 + 1e-12)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", SMOOTH)
def test_beyond_the_grid_more_privacy_costs_more_than_its_noise(name, noise):
    joint = instance(terms=SMOOTH[name], **NOISES[noise])
    eta, rng = gradient_form(joint).largest_eta(), np.random.default_rng(2)
    objective = joint.market.objective
    costs = joint.market.sellers.virtual_costs
    for concentration in (0.01, 0.1, 1.0, 1e3):
        weights = rng.dirichlet(np.full(40, concentration))
        model = best_model(joint, weights, eta)
        values = [joint.objective(model, weights, eta * k) for k in (0.9999, 1.0, 1.0001)]
        assert np.isfinite(objective.value(weights, eta, costs)) or concentration < 1
        assert values[2] >= values[1] >= values[0] or np.isinf(values[2])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"terms": norm_terms() + cm.terms.NegativeEntropy()},
            NotSupportedError,
            "NegativeEntropy",
        ),
        ({"terms": cm.Spread(3) + cm.Noise() + cm.Payments()}, NotSupportedError, "p=3"),
        ({"constraints": [cm.Budget(3.0)]}, NotSupportedError, "Budget"),
        (
            {"constraints": [cm.GroupShare(["A", "B"] * 20, equal=True)]},
            NotSupportedError,
            "G",
        ),
        (
            {"sellers": cm.Sellers(virtual_costs=np.append(0.0, np.ones(39)))},
            ParameterError,
            "eps_max",
        ),
        (
            {"constraints": [cm.MaxEpsilon(0.1), cm.EtaRange(5, 9)]},
            InfeasibleMarketError,
            "EtaRange",
        ),
    ],
)
def test_projected_gradient_refuses(options, error, words):
    with pytest.raises(error, match=words):
        descend_jointly(instance(**options), max_iterations=1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"grid": 0},
        {"max_iterations": 0},
        {"step": 0.0},
        {"tol": -1.0},
        {"eps_max": np.inf},
    ],
)
def test_projected_gradient_checks_its_arguments(wrong):
    with pytest.raises(ParameterError, match=next(iter(wrong))):
        descend_jointly(instance(), **wrong)


def test_projected_gradient_refuses_an_unbounded_problem():
    joint = instance(noise="realised", noise_vector=[1.0, 0.0, 0.0])
    with pytest.raises(UnattainedOptimumError, match="no minimum"):
        descend_jointly(joint)


def test_projected_gradient_refuses_a_grid_below_the_range():
    joint = instance(constraints=[cm.EtaRange(40, 80)])
    with pytest.raises(ParameterError, match="EtaRange"):
        descend_jointly(joint, eps_max=0.5)
    etas = [point.eta for point in descend_jointly(joint, grid=3, max_iterations=2)[1]]
    assert set(etas) <= {40.0, 60.0, 80.0}


# --------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("noise", NOISES)
def test_the_model_block_is_the_model_step(noise, solver):
    joint = instance(**NOISES[noise])
    block = ModelBlock(joint)
    assert block.is_dcp(dpp=True)
    rng = np.random.default_rng(5)
    for eta in (100.0, 150.0):
        weights = rng.dirichlet(np.full(40, 0.5))
        block.weights, block.eta = weights, eta
        assert block.eta == pytest.approx(eta)
        assert run_solver(block, solver).startswith("optimal")
        exact = best_model(joint, weights, eta)
        np.testing.assert_allclose(block.weights, weights, rtol=1e-12)
        best = joint.objective(exact, weights, eta)
        here = joint.objective(block.model, weights, eta)
        assert here == pytest.approx(best, rel=1e-6)
        assert here - block.value == pytest.approx(
            joint.objective(0 * exact, weights, eta) - np.log(2), rel=1e-6
        )


@pytest.mark.parametrize("solver", ["CLARABEL", "ECOS"])  # at a kink SCS errs by 1e-4 in w
def test_the_model_block_finds_that_no_model_is_best(solver):
    joint, weights = instance(**NOISES["worst-case"]), np.full(40, 1 / 40)
    assert not best_model(joint, weights, 40.0).any()
    block = ModelBlock(joint, weights, 40.0)
    assert run_solver(block, solver) == "optimal"
    np.testing.assert_allclose(block.model, 0, atol=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("name", ["norm", "square", "losses"])
def test_the_purchase_block_is_the_purchase_step(name, solver):
    joint = instance(terms=SMOOTH[name], constraints=[cm.Cap(4)])
    model = np.array([1.0, -0.5, 2.0])
    block = purchase_block(joint, model, eta=50.0)
    for eta in (50.0, 90.0):
        block.eta = eta
        assert run_solver(block, solver).startswith("optimal")
        exact = PurchaseStep(joint).at(model, eta)
        best = joint.objective(model, exact.weights, eta)
        assert joint.objective(model, block.weights, eta) == pytest.approx(best, rel=1e-6)
        rest = joint.regularization / 2 * model @ model
        assert block.value + rest == pytest.approx(best, rel=1e-6)


def test_the_exponential_block_stays_at_the_optimum_and_bounds_the_purchase():
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
    block.around = np.full(40, 1 / 40)
    assert run_solver(block, "CLARABEL").startswith("optimal")
    assert joint.objective(model, block.weights, eta) > best  # one step is not the whole way
    assert block.weights.sum() == pytest.approx(1)
    np.testing.assert_allclose(block.losses, joint.losses(model))
    np.testing.assert_allclose(block.around, 1 / 40)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"terms": norm_terms() + cm.terms.NegativeEntropy()}, "NegativeEntropy"),
        ({"terms": norm_terms() + cm.Losses(np.linspace(-1, 1, 40))}, "Losses"),
        ({"constraints": [cm.GroupShare(["A", "B"] * 20, at_least={"A": 0.4})]}, "GroupShare"),
        ({"constraints": [cm.GroupShare(["A", "B"] * 20, equal=True)]}, "GroupShare"),
    ],
)
def test_the_exponential_block_refuses_what_is_not_convex_in_z(options, words):
    joint = instance(**options)
    with pytest.raises(CurvatureError, match=words):
        ExponentialBlock(joint, np.ones(40), 10.0)


def test_blocks_check_what_they_are_given():
    joint = instance(constraints=[cm.EtaRange(10, 20)])
    block, exponential = ModelBlock(joint), ExponentialBlock(joint, np.ones(40), 15.0)
    for wrong in (0.0, -1.0, np.inf, np.nan):
        with pytest.raises(ParameterError, match="eta"):
            block.eta = wrong
    with pytest.raises(ParameterError, match="weights"):
        block.weights = np.ones(3)
    with pytest.raises(ParameterError, match="losses"):
        exponential.losses = -np.ones(40)
    with pytest.raises(ParameterError, match="EtaRange"):
        exponential.eta = 30.0
    for unsolved, name in ((block, "model"), (exponential, "weights")):
        with pytest.raises(AllocationError, match="solve"):
            getattr(unsolved, name)


def test_nothing_is_gained_at_the_optimum():
    joint = instance()
    best = cm.allocate_jointly(joint)
    step = PurchaseStep(joint)
    assert remaining_gain(joint, step, best.model, best.weights, best.eta) < 1e-9
    assert remaining_gain(joint, step, best.model, best.weights, 2 * best.eta) > 1e-3


# ---------------------------------------------------------------------------- exponential


@pytest.mark.parametrize("noise", ["worst-case", "realised"])
def test_the_exponential_method_serves_noise_in_the_model(noise):
    joint = instance(**NOISES[noise])
    found = solve_exponential(joint, 50.0, solver="ECOS")
    assert found.objective == pytest.approx(cm.allocate_jointly(joint).objective, rel=1e-5)


@pytest.mark.parametrize("name", one_in(2, ["power", "exponential"]))
def test_the_exponential_method_serves_convex_privacy_costs(name):
    check_convex_privacy_costs(name, 10)


def check_convex_privacy_costs(name, m):
    joint = instance(m, terms=SMOOTH[name], constraints=[cm.Cap(2)])
    found = solve_exponential(joint, 50.0, tol=1e-7)
    gradient, _ = descend_jointly(joint, grid=1, eps_max=found.eta / m, max_iterations=1000)
    assert found.objective == pytest.approx(gradient.objective, rel=1e-5)
    assert found.weights.max() <= 2 / m * (1 + 1e-8)
    nearby = [joint.objective(found.model, found.weights, found.eta * k) for k in (0.99, 1.01)]
    assert min(nearby) >= found.objective


@pytest.mark.parametrize("bound", one_in(3, ["largest", "given", "budget"]))
@pytest.mark.parametrize("paid", [True, False])
def test_the_exponential_method_keeps_bounds_that_join_weights_and_eta(bound, paid):
    check_bounds_are_kept(bound, paid, 8)


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
        block.noise = -1.0


def test_the_exponential_method_leaves_out_whom_it_does_not_buy_from():
    check_who_is_left_out(10)


def check_who_is_left_out(m):
    sellers = cm.Sellers(virtual_costs=np.append(np.full(m - 1, 0.1), 1e4))
    joint = instance(m, sellers=sellers, terms=SMOOTH["square"])
    found = solve_exponential(joint, 50.0, tol=1e-7)
    assert found.weights[-1] == 0
    assert found.objective == pytest.approx(cm.allocate_jointly(joint).objective, rel=1e-5)


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
@pytest.mark.parametrize("payments", [cm.Payments(), cm.Payments(cm.PowerCost(1.0000001))])
def test_the_best_eta_is_that_of_the_closed_form_within_the_constraints(
    constraints, expected, payments
):
    sellers = cm.Sellers(virtual_costs=np.full(40, 0.2))
    joint = instance(sellers=sellers, terms=norm_terms(payments), constraints=constraints)
    weights = np.full(40, 1 / 40)
    assert best_eta(joint, np.zeros(3), weights, 15.0) == pytest.approx(expected, rel=1e-4)


class Unknown(cm.terms.Constraint):
    def constraints(self, quantities):
        return [quantities.inverse_eta <= 10]


def test_the_exponential_method_refuses_what_it_cannot_serve():
    with pytest.raises(NotSupportedError, match="Unknown"):
        solve_exponential(instance(constraints=[Unknown()]), 50.0)
    with pytest.raises(CurvatureError, match="NegativeEntropy"):
        solve_exponential(instance(terms=norm_terms() + cm.terms.NegativeEntropy()), 50.0)
    with pytest.raises(NotSupportedError, match="not installed"):
        solve_exponential(instance(), 50.0, solver="nobody")
    with pytest.raises(UnattainedOptimumError, match="no minimum"):
        solve_exponential(instance(noise="realised", noise_vector=[1.0, 0.0, 0.0]), 50.0)
    with pytest.raises(InfeasibleMarketError, match="leave no weights that sum to one"):
        solve_exponential(instance(constraints=[cm.MaxEpsilon(0.1), cm.EtaRange(5, 9)]), 6.0)
    for wrong in ({"max_iterations": 0}, {"tol": 0.0}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            solve_exponential(instance(), 50.0, **wrong)
    with pytest.raises(ParameterError, match="eta must"):
        solve_exponential(instance(), 0.0)


# ------------------------------------------------------------------------------ nonlinear


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", one_in(2, ["norm", "power", "exponential"]))
def test_the_nonlinear_method_serves_every_noise_and_cost(name, noise, capfd):
    pytest.importorskip("unopy")
    joint = instance(terms=SMOOTH[name], constraints=[cm.Cap(2)], **NOISES[noise])
    found = solve_nonlinear(joint, beginning(joint))
    assert found.residual <= 1e-4
    assert found.weights.max() <= 2 / 40 * (1 + 1e-6)
    assert capfd.readouterr().out == ""


def test_the_nonlinear_problem_says_the_objective():
    for noise, options in NOISES.items():
        joint = instance(terms=SMOOTH["both"], **options)
        start = beginning(joint)
        problem = NonlinearProblem(joint, start)
        expected = joint.objective(problem.model, problem.weights, problem.eta)
        assert problem.objective.value == pytest.approx(expected, rel=1e-9), noise
        assert not problem.is_dcp()
        assert problem.eta == start.eta


def test_the_nonlinear_method_says_what_to_install(monkeypatch):
    joint = instance()
    monkeypatch.setattr("convexmarket.joint.nonlinear.util.find_spec", lambda name: None)
    with pytest.raises(NotSupportedError, match=r"pip install .*unopy"):
        solve_nonlinear(joint, beginning(joint))
    monkeypatch.setattr("convexmarket.joint.nonlinear.metadata.version", lambda name: "1.8.2")
    with pytest.raises(NotSupportedError, match=r"this is 1\.8\.2: pip install"):
        solve_nonlinear(joint, beginning(joint))


def test_the_nonlinear_method_checks_its_start():
    with pytest.raises(ParameterError, match="eta"):
        NonlinearProblem(instance(), SimpleNamespace(model=np.zeros(3), weights=None, eta=0.0))


def test_the_nonlinear_method_reports_failure(monkeypatch):
    pytest.importorskip("unopy")
    joint = instance()

    def fails(problem, **options):
        raise cp.error.SolverError("out of steps")

    monkeypatch.setattr(NonlinearProblem, "solve", fails)
    with pytest.raises(SolverError, match=r"SolverError: out of steps.*another point"):
        solve_nonlinear(joint, beginning(joint))

    def refuses(problem, **options):
        raise cp.error.DCPError("not smooth")

    monkeypatch.setattr(NonlinearProblem, "solve", refuses)
    with pytest.raises(NotSupportedError, match="does not take a piece of the market"):
        solve_nonlinear(joint, beginning(joint))
