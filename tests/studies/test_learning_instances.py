"""Instances of learning: every declaration has the optimum that is known without a conic solver."""

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.studies.subproblems.fits import SemiInteractiveInstance
from convexmarket.studies.subproblems.joint import ZBlockInstance
from convexmarket.studies.subproblems.learning import (
    RidgeInstance,
    WeightedLogisticInstance,
    draw_rows,
)

TIGHT = {"solver": "CLARABEL", "tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
OTHERS = {"exponential": ["ECOS", "SCS"], "quadratic": ["ECOS", "OSQP"]}


def rows_of(rng, size=25, n_features=3):
    X = rng.standard_normal((size, n_features))
    X /= np.linalg.norm(X, axis=1).max()
    return X, np.where(rng.random(size) < 0.6, 1.0, -1.0)


def logistic(rng, size=25, **changes):
    X, y = rows_of(rng, size)
    weights = rng.dirichlet(np.ones(size))
    noise, other = 0.1 * rng.standard_normal((2, 3))
    given = {"X": X, "y": y, "weights": weights, "regularization": 0.1} | changes
    return WeightedLogisticInstance(**given, noise=noise, changed_noise=other)


def ridge(rng, size=25, **changes):
    X, y = rows_of(rng, size)
    weights = rng.dirichlet(np.ones(size))
    given = {"X": X, "y": y, "weights": weights, "regularization": 0.1} | changes
    return RidgeInstance(**given, changed_y=given["y"] + 0.1 * rng.standard_normal(size))


def fit(rng, size=25, **changes):
    X, y = rows_of(rng, 40)
    return SemiInteractiveInstance.draw(
        **{"points": X[:20], "X": X, "y": y, "bandwidth": 0.5, "regularization": 0.01}
        | {"noise_scale": 0.3, "size": size, "rng": rng}
        | changes
    )


def z_block(rng, size=25, spread=None, constraints=()):
    X, y = rows_of(rng, size)
    prior = cm.Uniform(0.02, 0.1)
    objective = (spread or 20.0 * cm.terms.SquaredSpread()) + 10 * cm.Noise() + 0.1 * cm.Payments()
    sellers = cm.Sellers(prior.sample(size, rng), prior)
    market = cm.Market(sellers, objective, list(constraints))
    return ZBlockInstance(cm.JointMarket(market, X, y, regularization=0.05))


MAKERS = {"logistic": logistic, "ridge": ridge, "fit": fit, "z-block": z_block}
DECLARED = [
    (name, formulation)
    for name, kind in (
        ("logistic", WeightedLogisticInstance),
        ("ridge", RidgeInstance),
        ("fit", SemiInteractiveInstance),
        ("z-block", ZBlockInstance),
    )
    for formulation in kind.formulations
]


def check(instance, formulation, options, tolerance, scale=0.0):
    """Solve both values of the parameters, and compare with the exact answers."""
    problem = instance.declare(formulation)
    assert problem.is_dcp(dpp=True)
    for changed in (False, True):
        if changed:
            instance.change(problem)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of solvers that fall short; they are compared below
            problem.solve(**options)
        found, best = instance.answer(problem), instance.exact(changed)
        assert found.shape == best.shape
        value = instance.objective(best, changed)
        size = max(abs(value), scale)
        assert abs(instance.objective(found, changed) - value) <= tolerance * size
        assert instance.violation(found) <= 10 * tolerance
        assert instance.violation(best) <= 1e-12
        # Both problems are strictly convex, so that answers are as near as objectives allow.
        assert found == pytest.approx(best, abs=10 * np.sqrt(tolerance) * np.abs(best).max())
    return problem


@pytest.mark.parametrize(("name", "formulation"), DECLARED)
def test_every_declaration_has_the_exact_optimum(name, formulation):
    check(MAKERS[name](np.random.default_rng(3)), formulation, TIGHT, 1e-8)


@pytest.mark.parametrize(
    ("name", "formulation", "solver"),
    [
        (name, formulation, solver)
        for name, formulation in DECLARED
        for solver in OTHERS["quadratic" if name == "ridge" else "exponential"]
    ],
)
def test_other_solvers_find_it_too(name, formulation, solver):
    tight = {"abstol": 1e-9, "reltol": 1e-9} if solver == "ECOS" else {"eps_abs": 1e-8}
    tight |= {} if solver == "ECOS" else {"eps_rel": 1e-8}
    check(MAKERS[name](np.random.default_rng(4)), formulation, {"solver": solver} | tight, 1e-6)


@pytest.mark.parametrize(("name", "formulation"), DECLARED)
def test_a_change_changes_the_answer_without_compiling_again(name, formulation):
    instance = MAKERS[name](np.random.default_rng(5))
    problem = instance.declare(formulation)
    problem.get_problem_data("CLARABEL")
    program = problem._cache.param_prog
    assert program is not None
    before = [np.copy(parameter.value) for parameter in problem.parameters()]
    instance.change(problem)
    problem.get_problem_data("CLARABEL")
    assert problem._cache.param_prog is program
    after = [np.copy(parameter.value) for parameter in problem.parameters()]
    assert not all(map(np.array_equal, before, after))
    first, second = instance.exact(False), instance.exact(True)
    assert not np.allclose(first, second, rtol=1e-6)
    assert instance.objective(first, False) < instance.objective(second, False)
    assert instance.objective(second, True) < instance.objective(first, True)


@pytest.mark.parametrize("name", MAKERS)
def test_an_instance_is_the_same_for_the_same_seed(name):
    one, same, other = (MAKERS[name](np.random.default_rng(seed)) for seed in (6, 6, 7))
    assert np.array_equal(one.exact(True), same.exact(True))
    assert not np.array_equal(one.exact(True), other.exact(True))


@pytest.mark.parametrize("name", MAKERS)
def test_an_unknown_formulation_is_refused(name):
    with pytest.raises(ParameterError, match=r"'backwards'.* has "):
        MAKERS[name](np.random.default_rng(0)).declare("backwards")


@pytest.mark.parametrize(
    ("name", "formulation"),
    [("logistic", "primal"), ("logistic", "dual"), ("z-block", "exponential")],
)
def test_solvers_without_exponential_cones_cannot(name, formulation):
    problem = MAKERS[name](np.random.default_rng(0)).declare(formulation)
    said = r"OSQP cannot solve|could not be reduced to a QP"  # CVXPY 1.9, 1.8
    with pytest.raises(cp.error.SolverError, match=said):
        problem.solve(solver="OSQP")


# --------------------------------------------------------------------------------- the rows


def test_fewer_rows_are_a_sample_without_replacement():
    X, y = np.arange(20.0).reshape(10, 2), np.arange(10.0)
    rows, labels = draw_rows(X, y, 10, np.random.default_rng(0))
    assert sorted(labels) == list(y)
    assert np.array_equal(rows, X[labels.astype(int)])
    assert len(set(draw_rows(X, y, 4, np.random.default_rng(0))[1])) == 4


@given(st.integers(0, 2**32 - 1), st.integers(1, 30), st.integers(1, 4))
def test_further_rows_are_turned_but_no_longer_than_theirs(seed, more, n_features):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((5, n_features)) * np.array([[0], [1e-200], [1], [1], [1e150]])
    y = np.arange(5.0)
    rows, labels = draw_rows(X, y, 5 + more, rng)
    assert np.array_equal(rows[:5], X)
    assert np.array_equal(labels[:5], y)
    origin = X[labels[5:].astype(int)]
    lengths = np.linalg.norm(origin, axis=1)
    assert np.linalg.norm(rows[5:], axis=1) == pytest.approx(lengths, rel=1e-12)
    apart = np.linalg.norm(rows[5:] - origin, axis=1)
    assert np.all(apart <= 0.2 * lengths)
    if n_features > 1:
        assert np.all((apart > 0) | (lengths < 1e-100))


@pytest.mark.parametrize(
    ("X", "y", "size", "error", "message"),
    [
        (np.ones((2, 3)), np.ones(3), 2, DataError, r"X has shape \(2, 3\)"),
        (np.ones(2), np.ones(2), 2, DataError, "rows of features"),
        (np.full((2, 3), np.nan), np.ones(2), 2, DataError, "not finite"),
        (np.ones((2, 3)), np.ones(2), 0, ParameterError, "size must .*, got 0"),
    ],
)
def test_data_that_are_none_are_refused(X, y, size, error, message):
    with pytest.raises(error, match=message):
        draw_rows(X, y, size, np.random.default_rng(0))


# ----------------------------------------------------------------------------- the logistic


def test_logistic_objective_of_one_row_by_hand():
    instance = WeightedLogisticInstance(
        X=np.array([[1.0]]),
        y=np.array([1.0]),
        weights=np.array([1.0]),
        regularization=2.0,
        noise=np.array([0.5]),
        changed_noise=np.array([0.0]),
    )
    assert instance.objective(np.zeros(1), False) == pytest.approx(np.log(2))
    # log(1 + 1/e) + 1 + 0.5 at w = 1, and without the noise.
    assert instance.objective(np.ones(1), False) == pytest.approx(np.log1p(np.exp(-1)) + 1.5)
    assert instance.objective(np.ones(1), True) == pytest.approx(np.log1p(np.exp(-1)) + 1.0)
    # At w = 0 the slope is -1/2 + b = 0.
    assert instance.exact(False) == pytest.approx([0.0], abs=1e-12)
    assert instance.violation(np.array([1e9])) == 0


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plain", "zero weights", "duplicates", "one row", "one label", "wide"]),
    st.sampled_from(WeightedLogisticInstance.formulations),
)
def test_logistic_instances_of_degenerate_data(seed, kind, formulation):
    rng = np.random.default_rng(seed)
    size = {"one row": 1, "wide": 2}.get(kind, 12)
    X, y = rows_of(rng, size)
    weights = rng.dirichlet(np.ones(size))
    if kind == "zero weights":
        weights[: size // 2] = 0.0
        weights /= weights.sum()
    elif kind == "duplicates":
        X, y = np.repeat(X[:3], 4, axis=0), np.repeat(y[:3], 4)
    elif kind == "one label":
        y = np.ones(size)
    instance = logistic(rng, size, X=X, y=y, weights=weights)
    check(instance, formulation, TIGHT, 1e-7)
    for changed in (False, True):
        slope = instance._perturbed(changed).gradient(instance.exact(changed))
        assert np.linalg.norm(slope) <= 1e-12


def test_sellers_who_are_not_bought_from_are_left_out():
    rng = np.random.default_rng(1)
    X, y = rows_of(rng, 6)
    weights = np.array([0.5, 0.0, 0.25, 0.0, 0.25, 0.0])
    instance = WeightedLogisticInstance.draw(X, y, weights, 0.1, 0.02, rng)
    assert instance.weights == pytest.approx([0.5, 0.25, 0.25])
    assert instance.X.shape == (3, 3)
    assert set(map(tuple, instance.X)) <= set(map(tuple, X))
    assert not np.array_equal(instance.noise, instance.changed_noise)
    larger = WeightedLogisticInstance.draw(X, y, np.full(50, 0.02), 0.1, 0.02, rng)
    assert larger.X.shape == (50, 3)


@pytest.mark.parametrize("make", [logistic, ridge])
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"regularization": 0.0}, "regularization must .*, got 0.0"),
        ({"regularization": np.inf}, "regularization must .*, got inf"),
        ({"weights": np.full(25, 0.5)}, "sum to one"),
        ({"weights": np.full(24, 1 / 24)}, "24 entries for 25 rows"),
    ],
)
def test_arguments_out_of_range_are_refused(make, changes, message):
    with pytest.raises(ParameterError, match=message):
        make(np.random.default_rng(0), **changes)


def test_labels_are_signs():
    with pytest.raises(DataError, match="-1 and 1"):
        logistic(np.random.default_rng(0), y=np.arange(25.0))


# -------------------------------------------------------------------------------- the ridge


def test_ridge_of_two_rows_by_hand():
    instance = RidgeInstance(
        X=np.eye(2),
        y=np.array([1.0, 2.0]),
        changed_y=np.array([0.0, 2.0]),
        weights=np.array([0.25, 0.75]),
        regularization=0.25,
    )
    # theta_j = a_j*y_j / (a_j + lambda)
    assert instance.exact(False) == pytest.approx([0.5, 1.5])
    assert instance.exact(True) == pytest.approx([0.0, 1.5])
    # 0.25*0.5^2 + 0.75*0.5^2 + 0.25*(0.5^2 + 1.5^2)
    assert instance.objective(np.array([0.5, 1.5]), False) == pytest.approx(0.875)
    assert instance.violation(np.array([1e9, 0.0])) == 0


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plain", "zero weights", "duplicates", "one row", "same column"]),
    st.sampled_from(RidgeInstance.formulations),
)
def test_ridge_instances_of_degenerate_data(seed, kind, formulation):
    rng = np.random.default_rng(seed)
    size = 1 if kind == "one row" else 12
    X, y = rows_of(rng, size)
    weights = rng.dirichlet(np.ones(size))
    if kind == "zero weights":
        weights[: size // 2] = 0.0
        weights /= weights.sum()
    elif kind == "duplicates":
        X, y = np.repeat(X[:3], 4, axis=0), np.repeat(y[:3], 4)
    elif kind == "same column":
        X[:, 1] = X[:, 0]
    instance = ridge(rng, size, X=X, y=y, weights=weights)
    problem = check(instance, formulation, TIGHT, 1e-9)
    # The optimal values are the objective too, times m in the scaled declaration.
    scale = size if formulation == "primal" else 1
    best = instance.objective(instance.exact(True), True)
    assert problem.value == pytest.approx(scale * best, rel=1e-8)


def test_next_years_labels_differ_by_their_noise():
    rng = np.random.default_rng(2)
    X, y = rows_of(rng, 100)
    instance = RidgeInstance.draw(X, y, np.full(2000, 1 / 2000), 0.1, 0.05, rng)
    assert np.std(instance.changed_y - instance.y) == pytest.approx(0.05, rel=0.1)
    assert instance.X.shape == (2000, 3)


# ---------------------------------------------------------------------------------- the fit


def test_a_fit_to_one_prediction_by_hand():
    # f(z) = c with norm |c|: the prediction, or the nearest value allowed.
    instance = SemiInteractiveInstance(np.ones((1, 1)), np.array([3.0]), np.array([-0.5]), 2.0)
    assert instance.exact(False) == pytest.approx([2.0, 2.0])
    assert instance.exact(True) == pytest.approx([-0.5, 0.5])
    assert instance.objective(np.array([2.0, 2.0]), False) == pytest.approx(1.0)
    assert instance.violation(np.array([3.0, 3.0])) == pytest.approx(0.5)
    assert instance.violation(np.array([2.0, 2.0])) == 0


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(["plain", "singular", "loose", "one point", "smooth"]),
    st.sampled_from(SemiInteractiveInstance.formulations),
)
def test_fits_of_degenerate_kernels(seed, kind, formulation):
    rng = np.random.default_rng(seed)
    instance = fit(
        rng, 1 if kind == "one point" else 12, bandwidth=3.0 if kind == "smooth" else 0.5
    )
    if kind == "singular":
        kernel = np.repeat(np.repeat(instance.kernel[:4, :4], 3, axis=0), 3, axis=1)
        instance = SemiInteractiveInstance(
            kernel, instance.predictions, instance.changed_predictions, instance.max_norm
        )
    elif kind == "loose":
        kernel = instance.kernel + np.eye(12)
        instance = SemiInteractiveInstance(
            kernel, instance.predictions, instance.changed_predictions, 1e3
        )
    energy = float(instance.predictions @ instance.predictions)
    check(instance, formulation, TIGHT, 1e-7, scale=energy)


@given(
    st.integers(0, 2**32 - 1), st.floats(1e-3, 1.0), st.booleans(), st.sampled_from([0.1, 0.5, 5])
)
def test_the_exact_fit_satisfies_the_optimality_conditions(seed, share, repeated, bandwidth):
    found = fit(np.random.default_rng(seed), 15, bandwidth=bandwidth)
    kernel = np.tile(found.kernel[:5, :5], (3, 3)) if repeated else found.kernel
    bound = share * found.max_norm
    instance = SemiInteractiveInstance(kernel, found.predictions, found.changed_predictions, bound)
    p = instance.predictions
    values, norm = np.split(instance.exact(False), [15])
    # Stationarity: K (p - f) = nu f, where nu = f'(p - f) / norm^2, and 0 below the bound.
    assert norm[0] <= bound * (1 + 1e-12)
    binds = norm[0] >= bound * (1 - 1e-12)
    nu = values @ (p - values) / bound**2 if binds else 0.0
    assert nu >= 0
    size = np.abs(kernel).sum(axis=1).max() * np.abs(p).max()
    assert kernel @ (p - values) == pytest.approx(nu * values, abs=1e-12 * size)
    # With f = K c, c = (p - f)/nu, the norm is the root of c'Kc.
    square = (p - values) @ kernel @ (p - values)
    assert square == pytest.approx((nu * norm[0]) ** 2, rel=1e-8, abs=1e-12 * size**2)


def test_a_loose_bound_does_not_bind():
    kernel = np.array([[1.0, 0.5], [0.5, 1.0]])
    p = np.array([1.0, 0.25])
    instance = SemiInteractiveInstance(kernel, p, p, 10.0)
    # Interpolation: norm^2 = p' K^-1 p = (4/3)*(p1^2 - p1*p2 + p2^2).
    assert instance.exact(False) == pytest.approx([1.0, 0.25, np.sqrt(4 / 3 * 0.8125)])


def test_the_private_model_is_allowed_and_the_noise_is_drawn_twice():
    rng = np.random.default_rng(8)
    quiet = fit(rng, noise_scale=0.0)
    # Without noise the private model itself fits, and it is no larger than itself.
    assert quiet.objective(quiet.exact(False), False) <= 1e-12
    assert quiet.exact(False)[-1] <= quiet.max_norm
    noisy = fit(rng, 1000, noise_scale=0.5)
    spread = noisy.changed_predictions - noisy.predictions
    assert np.std(spread) == pytest.approx(1.0, rel=0.15)  # each has a variance of 2*0.5^2
    assert noisy.exact(False)[-1] == pytest.approx(noisy.max_norm)


def test_dense_kernels_have_a_largest_size():
    with pytest.raises(NotSupportedError, match="size is 2001: the dense kernel"):
        fit(np.random.default_rng(0), 2001)
    X = np.zeros((2001, 2))
    with pytest.raises(NotSupportedError, match="dense kernel"):
        fit(np.random.default_rng(0), X=X, y=np.ones(2001))


@pytest.mark.parametrize(
    "changes",
    [{"bandwidth": 0.0}, {"regularization": -1.0}, {"bandwidth": np.nan}, {"noise_scale": -0.1}],
)
def test_fits_of_impossible_models_are_refused(changes):
    (name,) = changes
    with pytest.raises(ParameterError, match=f"{name} must"):
        fit(np.random.default_rng(0), **changes)


def test_a_model_of_no_size_is_refused():
    with pytest.raises(ParameterError, match=r"max_norm must .*, got 0\.0"):
        SemiInteractiveInstance(np.eye(1), np.zeros(1), np.zeros(1), 0.0)


# ------------------------------------------------------------------------------ the z-block


@pytest.mark.parametrize("formulation", ZBlockInstance.formulations)
@pytest.mark.parametrize(
    "options",
    [
        {"spread": 1.0 * cm.Spread()},
        {"constraints": [cm.Cap(1.05)]},
        {"constraints": [cm.Cap(2), cm.EtaRange(5, 6)]},
    ],
    ids=["norm", "cap", "range"],
)
def test_z_blocks_of_other_markets(options, formulation):
    check(z_block(np.random.default_rng(9), **options), formulation, TIGHT, 1e-7)


def test_sellers_who_cannot_sell_have_no_weight():
    instance = z_block(np.random.default_rng(10), 4, constraints=[cm.Cap([2, 2, 0, 2])])
    for formulation in ZBlockInstance.formulations:
        check(instance, formulation, TIGHT, 1e-8)
    assert instance.exact(False)[2] == 0
    assert np.count_nonzero(instance.exact(False)) == 3


def test_z_block_objective_and_violation_by_hand():
    instance = z_block(np.random.default_rng(11), 4, constraints=[cm.Cap(2)])
    weights = np.full(4, 0.25)
    costs = instance.joint.market.sellers.virtual_costs
    by_hand = 20 * 0.25 + 10 / instance.eta + 0.1 * instance.eta * costs.mean()
    value = instance.objective(weights, False) - instance.joint.losses(instance._models[0]).mean()
    assert value == pytest.approx(by_hand)
    assert instance.violation(weights) == 0
    assert instance.violation(np.array([0.25, 0.25, 0.25, 0.35])) == pytest.approx(0.1)
    # k/m = 0.5 is exceeded by 0.1, relative to the largest weight.
    assert instance.violation(np.array([0.6, 0.2, 0.1, 0.1])) == pytest.approx(0.1 / 0.6)
    assert instance.violation(np.array([0.5, 0.3, 0.3, -0.1])) == pytest.approx(0.1 / 0.5)


def test_z_blocks_without_a_known_optimum_are_refused():
    with pytest.raises(NotSupportedError, match="linearised at the optimal weights"):
        z_block(np.random.default_rng(0), spread=1.0 * cm.Spread(p=np.inf))
