"""Test the solution, noise, guarantee and loss of ridge regression with output perturbation."""

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.utils.estimator_checks import check_estimator

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.domain import Granted
from convexmarket.learners.ridge_math import noisy_loss, solve_ridge
from convexmarket.privacy import Simulation
from convexmarket.privacy.sensitivity import ridge_sensitivity
from tests.learners.builders import (
    PRIVATE_RIDGES,
    check_ridge_noise,
    neighbours,
    output_ridge,
    ridge_sample,
    solution,
)

MODES = ["paper", "tight"]


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 12), st.floats(-3, 2))
def test_the_solution_equals_that_of_the_declaration(seed, n, d, log_alpha) -> None:
    rng = np.random.default_rng(seed)
    X, y, alpha = rng.random((n, d)), rng.uniform(-1, 1, n), 10.0**log_alpha
    weights = rng.dirichlet(np.ones(n))
    theta = cp.Variable(d)
    loss = cp.sum(cp.multiply(weights, cp.square(y - X @ theta)))
    cp.Problem(cp.Minimize(loss + alpha * cp.sum_squares(theta))).solve(solver="CLARABEL")
    result = solve_ridge(X, y, weights, alpha)
    assert result == pytest.approx(theta.value, abs=1e-5)
    gradient = X.T @ (weights * (X @ result - y)) + alpha * result
    assert np.linalg.norm(gradient) <= 1e-13 * max(1, alpha)


@pytest.mark.parametrize(("n", "d"), [(200, 5), (5, 200)])
@pytest.mark.parametrize("alpha", [1e-14, 1e-10, 1e-6, 1.0])
def test_weak_regularisation_keeps_full_accuracy(n, d, alpha) -> None:
    rng = np.random.default_rng(0)
    X, y, weights = rng.random((n, d)), rng.uniform(-1, 1, n), np.full(n, 1 / n)
    theta = solve_ridge(X, y, weights, alpha)
    left, values, right = np.linalg.svd(X / np.sqrt(n), full_matrices=False)
    exact = right.T @ (values / (values**2 + alpha) * (left.T @ (y / np.sqrt(n))))
    assert np.linalg.norm(theta - exact) <= 1e-6 * np.linalg.norm(exact)


def test_no_regularisation_gives_the_minimum_norm_solution() -> None:
    X, y, _ = ridge_sample(2, 30, 2)
    X = np.hstack([X, X])
    theta = solve_ridge(X, y, np.full(30, 1 / 30), 0.0)
    assert theta == pytest.approx(np.linalg.lstsq(X, y, rcond=None)[0], abs=1e-12)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bound", [None, 0.7])
def test_proportional_weights_have_the_rate_of_the_theorems(mode, bound) -> None:
    X, y, epsilon = ridge_sample(4)
    model = output_ridge(2.0, max_norm=bound, sensitivity=mode, rounding=None)
    model.fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    assert model.noise_rate_ == pytest.approx(
        epsilon.sum() / ridge_sensitivity(2.0, 3, bound, mode), rel=1e-12
    )
    assert np.all(model.epsilon_ <= epsilon)
    assert model.epsilon_ == pytest.approx(epsilon, rel=1e-12)


def test_noise_rates_equal_those_of_theorems_3_2_and_3_4() -> None:
    X, y, epsilon = ridge_sample(5, 40, 4)
    total = epsilon.sum()
    for alpha, bound in [(0.25, 2.0), (16.0, 0.125), (0.25, 0.5)]:
        known = bound if (alpha, bound) == (0.25, 0.5) else None
        model = output_ridge(alpha, max_norm=known, sensitivity="paper", rounding=None)
        model.fit(X, y, epsilon=epsilon, random_state=Simulation(0))
        assert model.noise_rate_ == pytest.approx(alpha * total / (4 * (1 + 2 * bound)))


def test_the_noise_has_the_stated_density() -> None:
    check_ridge_noise(500)


def released(model, X, y, epsilon):
    """Return the plan of a fit with floating-point noise."""
    model.set_params(rounding=None)
    d = X.shape[1]
    return model._plan(Granted(epsilon), d, model._domain(d))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("weights", ["granted", "bound", "equal"])
@given(case=neighbours())
def test_no_privacy_loss_exceeds_the_guarantee(mode, weights, case) -> None:
    X, y, X2, y2, row, epsilon, alpha = case
    if weights == "equal":
        weights = np.full(epsilon.size, 1 / epsilon.size)
    model = output_ridge(alpha, weighting=weights, sensitivity=mode, label_noise=0.1)
    plan = released(model, X, y, epsilon)
    first = solution(X, y, plan.weights, alpha)
    second = solution(X2, y2, plan.weights, alpha)
    # the two models, a point beyond the first model, and random points
    others = np.random.default_rng(row).normal(size=(5, first.size))
    outputs = [first, second, 2 * first - second, *others]
    for o in outputs:
        loss = plan.rate * abs(np.linalg.norm(o - first) - np.linalg.norm(o - second))
        assert loss <= plan.epsilon[row] * (1 + 1e-9) + 1e-9 * plan.rate * np.linalg.norm(first)
    assert np.all(plan.epsilon <= epsilon)


def test_optimal_weights_lower_the_bound_and_keep_the_guarantee() -> None:
    X, y, epsilon = ridge_sample(7)
    for noise in (0.01, 0.1, 1.0):
        bounds = {}
        for weights in ("granted", "bound"):
            model = output_ridge(1.0, weighting=weights, label_noise=noise, failure_probability=0.1)
            plan = released(model, X, y, epsilon)
            bounds[weights] = cm.learners.ridge_error_bound(
                plan.weights,
                plan.rate,
                1.0,
                n_features=3,
                coef_norm=1.0,
                label_noise=noise,
                failure_probability=0.1,
            ).total
            assert np.all(plan.epsilon <= epsilon)
        assert bounds["bound"] <= bounds["granted"] * (1 + 1e-12)


def test_the_non_personalised_baseline_gives_all_rows_the_smallest_epsilon() -> None:
    X, y, epsilon = ridge_sample(8)
    model = output_ridge(1.0, weighting="equal", sensitivity="paper", rounding=None)
    model.fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    same = output_ridge(1.0, sensitivity="paper", rounding=None)
    same.fit(X, y, epsilon=epsilon.min(), random_state=Simulation(0))
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-9)
    assert model.epsilon_ == pytest.approx(np.full(epsilon.size, epsilon.min()), rel=1e-12)
    assert np.all(model.epsilon_ <= epsilon.min())


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 6), st.floats(0.5, 50.0), st.sampled_from([0, 2.0])
)
def test_closed_form_losses_equal_a_quadrature(seed, d, rate, penalty) -> None:
    """Compare the loss with quadrature over the norm of the noise and moments of its direction."""
    rng = np.random.default_rng(seed)
    X, y, theta = rng.random((7, d)), rng.uniform(-1, 1, 7), rng.normal(size=d)
    loss = noisy_loss(theta, rate, X, y, penalty)
    H = X.T @ X / 7 + penalty * np.eye(d)
    centre = np.mean((y - X @ theta) ** 2) + penalty * theta @ theta
    slope = 2 * (X.T @ (X @ theta - y) / 7 + penalty * theta)
    radius, mass = np.polynomial.laguerre.laggauss(40)
    mass = mass * radius ** (d - 1)
    mass /= mass.sum()
    second, fourth = mass @ (radius / rate) ** 2, mass @ (radius / rate) ** 4
    trace, square = np.trace(H), np.trace(H @ H)
    mean = centre + second * trace / d
    raw = fourth * (trace**2 + 2 * square) / (d * (d + 2)) + second * slope @ slope / d
    variance = raw - (second * trace / d) ** 2
    assert loss.mean == pytest.approx(mean, rel=1e-9)
    assert loss.std == pytest.approx(np.sqrt(variance), rel=1e-7)


def test_the_expected_loss_of_a_table_equals_that_of_its_rows() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.uniform(18, 100, 80), "smoker": rng.choice(["no", "yes"], 80)})
    y = table["age"] / 100.0 - 0.3 * (table["smoker"] == "yes")
    public = cm.PublicFeatures({"age": (18, 100), "smoker": ["no", "yes"]})
    box = public.transform_to_box(table)
    whole = output_ridge(0.1, features=public)
    of_table = cm.learners.expected_loss(whole, table[:50], y[:50], table[50:], y[50:], epsilon=1.0)
    of_rows = cm.learners.expected_loss(
        output_ridge(0.1), box[:50], y[:50].to_numpy(), box[50:], y[50:], epsilon=1.0
    )
    assert of_table.mean == pytest.approx(of_rows.mean, rel=1e-12)


def test_the_expected_loss_equals_the_loss_without_noise() -> None:
    X, y, _ = ridge_sample(13)
    loss = cm.learners.expected_loss(output_ridge(0.1, epsilon=np.inf), X, y, X, y)
    fitted = output_ridge(0.1, epsilon=np.inf).fit(X, y)
    assert loss.mean == pytest.approx(np.mean((y - fitted.predict(X)) ** 2))
    assert loss.std == 0
    assert np.all(np.isinf(fitted.epsilon_))
    assert "no guarantee" in str(fitted.guarantee_)


def test_theorem_3_6_holds_with_the_stated_probability() -> None:
    rng = np.random.default_rng(0)
    n, d, alpha, noise, delta = 200, 3, 0.5, 0.05, 0.2
    X, truth = rng.random((n, d)), np.array([0.2, -0.1, 0.1])
    epsilon = rng.uniform(0.5, 2.0, n)
    weights = epsilon / epsilon.sum()
    rate = epsilon.sum() / ridge_sensitivity(alpha, d)
    bound = cm.learners.ridge_error_bound(
        weights,
        rate,
        alpha,
        n_features=d,
        coef_norm=float(np.linalg.norm(truth)),
        label_noise=noise,
        failure_probability=delta,
        smallest_eigenvalue=float(np.linalg.eigvalsh((X.T * weights) @ X)[0]),
    )
    failures = 0
    for _ in range(400):
        theta = solution(X, X @ truth + noise * rng.normal(size=n), weights, alpha)
        direction = rng.normal(size=d)
        theta = theta + rng.gamma(d, 1 / rate) * direction / np.linalg.norm(direction)
        failures += np.linalg.norm(theta - truth) > bound.total
    assert failures <= delta * 400


def test_the_market_constants_equal_the_error_bound() -> None:
    _, _, epsilon = ridge_sample(14)
    alpha, d, noise, delta = 2.0, 3, 0.2, 0.1
    mu, sigma = cm.learners.ridge_risk_constants(alpha, d, noise, delta)
    weights, eta = epsilon / epsilon.sum(), epsilon.sum()
    bound = cm.learners.ridge_error_bound(
        weights,
        epsilon.sum() / ridge_sensitivity(alpha, d),
        alpha,
        n_features=d,
        coef_norm=0.0,
        label_noise=noise,
        failure_probability=delta,
    )
    assert mu * np.linalg.norm(weights) + sigma / eta == pytest.approx(bound.total, rel=1e-12)


CONSTANTS = {"regularization": 1.0, "n_features": 2, "label_noise": 0.1, "failure_probability": 0.5}
BOUND = CONSTANTS | {"rate": 100.0, "coef_norm": 1.0, "smallest_eigenvalue": 1.0}
REFUSED = [
    ("regularization", 0.0, "regularization must be a finite number > 0, got 0.0"),
    ("n_features", 0, "n_features must be a whole number >= 1, got 0"),
    ("label_noise", -0.1, "label_noise must be a finite number >= 0, got -0.1"),
    ("failure_probability", 1.0, "failure_probability must lie strictly between 0 and 1, got 1.0"),
]
OF_BOUND = [
    ("coef_norm", -1.0, "coef_norm must be a finite number >= 0, got -1.0"),
    ("smallest_eigenvalue", np.inf, "smallest_eigenvalue must be a finite number >= 0, got inf"),
    ("rate", 0.0, "rate must be positive"),
]


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_risk_constants_refuse_invalid_arguments(name, value, message) -> None:
    with pytest.raises(ParameterError, match=message):
        cm.learners.ridge_risk_constants(**CONSTANTS | {name: value})


@pytest.mark.parametrize(("name", "value", "message"), [*REFUSED, *OF_BOUND])
def test_the_error_bound_refuses_invalid_arguments(name, value, message) -> None:
    with pytest.raises(ParameterError, match=message):
        cm.learners.ridge_error_bound([0.5, 0.5], **BOUND | {name: value})


def test_ranges_inferred_from_the_data_give_a_warning_at_the_caller() -> None:
    X, y, epsilon = ridge_sample(16)
    X[:, 1] = 7.0
    model = output_ridge(feature_range=None, target_range=None)
    with pytest.warns(cm.PrivacyLeakWarning) as caught:
        model.fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    assert {str(w.message).split()[0] for w in caught} == {"feature_range", "target_range"}
    assert caught[0].filename == __file__
    assert "VIOLATED: feature_range" in str(model.guarantee_)
    assert np.all(np.isfinite(model.coef_))


@pytest.mark.parametrize(
    ("parameters", "change", "error", "words"),
    [
        ({}, {"X": [[1.2], [0.5]]}, DataError, "1 of 2 rows lie outside feature_range"),
        ({}, {"X": [[np.nan], [0.5]]}, DataError, "NaN"),
        ({}, {"y": [0, 1.5]}, DataError, "1 of 2 labels"),
        ({}, {"X": np.empty((2, 0))}, DataError, "0 feature"),
        ({}, {"y": [0, 0, 0]}, DataError, "inconsistent"),
        ({}, {"X": csr_array([[0.2], [0.5]])}, DataError, "X is sparse"),
        ({}, {"epsilon": 0.0}, ParameterError, "epsilon is 0 in every row"),
        ({}, {"epsilon": [1.0, np.nan]}, ParameterError, "epsilon must be nonneg"),
        ({}, {"epsilon": None}, ParameterError, "epsilon is missing"),
        ({}, {"epsilon": [1.0] * 3}, ParameterError, "epsilon has shape"),
        ({}, {"epsilon": "many"}, ParameterError, "epsilon must hold numbers"),
        ({}, {"epsilon": 1e-320}, ParameterError, "epsilon must be between"),
        ({"regularization": 0.0}, {}, ParameterError, "regularization"),
        ({"regularization": "large"}, {}, ParameterError, "regularization must be"),
        ({"max_norm": -1.0}, {}, ParameterError, "max_norm"),
        ({"max_norm": "small"}, {}, ParameterError, "max_norm must be a number"),
        ({"sensitivity": "x"}, {}, ParameterError, "sensitivity"),
        ({"rounding": "fine"}, {}, ParameterError, "rounding must be 'auto'"),
        ({"feature_range": (1, 0)}, {}, ParameterError, "feature_range"),
        ({"feature_range": ([0, 0], 1)}, {}, ParameterError, "feature_range"),
        ({"feature_range": "unit"}, {}, ParameterError, "feature_range"),
        ({"target_range": (0, 0)}, {}, ParameterError, "target_range"),
        ({"target_range": ([0, 1], 2)}, {}, ParameterError, "target_range"),
        ({"weighting": "best"}, {}, ParameterError, "weighting"),
        ({"weighting": "bound"}, {}, ParameterError, "label_noise"),
        ({"weighting": [0.5, 0.6]}, {}, ParameterError, "sum to one"),
    ],
)
def test_errors_name_invalid_input(parameters, change, error, words) -> None:
    arguments = {"X": [[0.2], [0.5]], "y": [0, 0], "epsilon": 1.0} | change
    for estimator in PRIVATE_RIDGES:
        with pytest.raises(error, match=words):
            estimator(**parameters).fit(**arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"y_test": [0.0]}, DataError, "inconsistent"),
        ({"X_test": [[np.nan, 0, 0]], "y_test": [0]}, DataError, "NaN"),
        ({"X_test": [[0.0]], "y_test": [0]}, DataError, "1 features"),
        ({"penalty": -1.0}, ParameterError, "penalty"),
    ],
)
def test_errors_name_invalid_arguments_of_the_expected_loss(arguments, error, words) -> None:
    X, y, epsilon = ridge_sample(19)
    given = {"X_test": X, "y_test": y, "epsilon": epsilon} | arguments
    with pytest.raises(error, match=words):
        cm.learners.expected_loss(output_ridge(), X, y, **given)


@pytest.mark.filterwarnings("ignore::convexmarket.errors.PrivacyLeakWarning")
@pytest.mark.parametrize(
    ("model", "fails"),
    [
        (output_ridge(epsilon=np.inf), {}),
        (
            output_ridge(epsilon=1e9),
            dict.fromkeys(
                ["check_fit_idempotent", "check_regressors_int", "check_supervised_y_2d"],
                "noise is drawn anew",
            ),
        ),
    ],
)
def test_the_learner_follows_scikit_learn_conventions(model, fails) -> None:
    """The ranges are inferred from the data, because the checks do not declare them."""
    model.set_params(feature_range=None, target_range=None, regularization=0.01)
    check_estimator(model, on_skip=None, expected_failed_checks=fails)
