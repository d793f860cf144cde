"""Test that kernel models minimise the declared risk and that their sensitivities are valid."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize
from sklearn.base import clone
from sklearn.utils.estimator_checks import check_estimator

from convexmarket.data.datasets import scale_rows
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning, SolverError
from convexmarket.learners import HingeLoss, HuberLoss, KernelERM
from convexmarket.learners.kernel_erm import certified_distance
from convexmarket.learners.losses import loss_of
from convexmarket.learners.minimiser import PerturbedObjective
from tests.learners.builders import declared_kernel_erm, kernel_erm, rkhs_distance

LOSSES = ["logistic", "hinge", "huber"]
KERNELS = ["linear", "poly", "rbf", "laplacian", "cosine"]
KINDS = ["plain", "duplicated", "contradictory", "one class", "zero", "collinear", "far labels"]


def sample(seed: int, n_rows: int, loss: str = "logistic", kernel: str = "rbf", kind: str = ""):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n_rows, 3))
    if kind in ("duplicated", "contradictory"):
        X = np.repeat(X[:1], n_rows, axis=0)
    elif kind == "zero":
        X = np.zeros_like(X)
    elif kind == "collinear":
        X = np.outer(X[:, 0], np.ones(3))
    X = scale_rows(X)
    y = np.sin(4 * X[:, 0]) + 0.5 * rng.standard_normal(n_rows)
    if loss != "huber":
        y = np.where(y > 0, 1, -1)
    if kind == "duplicated" or (kind == "one class" and loss != "huber"):
        y = np.ones_like(y)
    elif kind == "contradictory":
        y = np.where(np.arange(n_rows) % 2 == 0, 1, -1)
    elif kind == "far labels" and loss == "huber":
        y = 1e3 * y
    return X, y


def objective(erm: KernelERM, X, y, weights=None) -> float:
    """Compute the regularised empirical risk of a fitted model from its predictions."""
    loss = loss_of(erm.loss)
    a = np.full(len(X), 1 / len(X)) if weights is None else weights
    losses = loss.values(erm.decision_function(X), np.asarray(y, dtype=float))
    return float(a @ losses + erm.regularization / 2 * squared_norm(erm))


def squared_norm(erm: KernelERM) -> float:
    return float(erm.dual_coef_ @ erm.kernel_(erm.pivots_, erm.pivots_) @ erm.dual_coef_)


def solve(problem: cp.Problem) -> float:
    tight = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # warnings of inaccuracy
        return float(problem.solve(solver=cp.CLARABEL, **tight))


@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(LOSSES),
    kernel=st.sampled_from(KERNELS),
    kind=st.sampled_from(KINDS),
    n_rows=st.sampled_from([1, 2, 7, 12, 25]),
    log_regularization=st.floats(-6, 3),
    log_tolerance=st.floats(-3, 0.5),
    weighted=st.booleans(),
)
def test_the_risk_exceeds_the_declared_optimum_by_at_most_the_certificate(
    seed, loss, kernel, kind, n_rows, log_regularization, log_tolerance, weighted
) -> None:
    n_rows = min(n_rows, 7) if loss == "hinge" else n_rows
    X, y = sample(seed, n_rows, loss, kernel, kind)
    weights = None
    if weighted:
        weights = np.random.default_rng(seed).dirichlet(np.ones(n_rows))
    erm = kernel_erm(loss, kernel, 10.0**log_regularization, tol=10.0**log_tolerance)
    erm.fit(X, y, epsilon=weights)
    assert erm.prediction_error_ <= erm.tol * erm.sensitivity_
    declared = solve(declared_kernel_erm(erm, X, y, weights))
    result = objective(erm, X, y, weights)
    # the certificate is a duality gap, which bounds the excess over the lowest risk
    gap = erm.regularization / 2 * (erm.prediction_error_ / erm.feature_bound_) ** 2
    assert result <= declared + gap + 1e-7 * (1 + abs(declared))
    # the optimum of the declared problem is at most the risk of the model
    assert declared <= result + 1e-7 * (1 + abs(result))
    assert squared_norm(erm) == pytest.approx(erm.norm_**2, rel=1e-6, abs=1e-12)


@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(LOSSES),
    kernel=st.sampled_from(KERNELS),
    kind=st.sampled_from(KINDS),
    n_rows=st.sampled_from([1, 7, 40]),
    log_regularization=st.floats(-4, 1),
    log_tolerance=st.floats(-2, 0.5),
)
def test_the_certificate_bounds_the_distance_from_a_more_accurate_model(
    seed, loss, kernel, kind, n_rows, log_regularization, log_tolerance
) -> None:
    n_rows = min(n_rows, 7) if loss == "hinge" else n_rows
    X, y = sample(seed, n_rows, loss, kernel, kind)
    rough = kernel_erm(loss, kernel, 10.0**log_regularization, tol=10.0**log_tolerance)
    exact = clone(rough).set_params(tol=rough.tol / 10)
    rough.fit(X, y)
    exact.fit(X, y)
    queries, _ = sample(seed + 1, 50, loss, kernel)
    off = np.abs(rough.decision_function(queries) - exact.decision_function(queries)).max()
    allowed = rough.prediction_error_ + exact.prediction_error_
    # rounding error of a square root of a small number
    rounding = 1e-7 * exact.feature_bound_ * np.abs(exact.dual_coef_).sum() + 1e-12
    assert off <= allowed + rounding
    assert rkhs_distance(rough, exact) * rough.feature_bound_ <= allowed + rounding
    for erm in (rough, exact):
        assert erm.norm_ <= erm.norm_bound_


@given(seed=st.integers(0, 10**6), smoothing=st.floats(0.05, 1.0))
def test_the_certified_distance_equals_the_distance_from_the_duality_gap(seed, smoothing) -> None:
    """Compare the distance with the gap between primal and dual values of the hinge loss."""
    rng, strength = np.random.default_rng(seed), 0.3
    features, y = rng.standard_normal((9, 3)), rng.choice([-1.0, 1.0], 9)
    weights, theta = rng.dirichlet(np.ones(9)), 0.3 * rng.standard_normal(3)
    problem = PerturbedObjective(features, y, weights, np.zeros(3), strength, HingeLoss(smoothing))
    short = 1 - y * (features @ theta)
    shares = np.clip(short / smoothing, 0, 1)
    pull = features.T @ (weights * shares * y)
    primal = weights @ np.maximum(short, 0) + strength / 2 * theta @ theta
    dual = weights @ shares - pull @ pull / (2 * strength)
    exact = np.sqrt(2 * (primal - dual) / strength)
    bound = certified_distance(problem, HingeLoss(), np.zeros(9), theta)
    assert bound == pytest.approx(exact, rel=1e-9)


def test_a_model_that_misses_its_tolerance_is_refused() -> None:
    X, y = sample(0, 20)
    with pytest.raises(SolverError, match=r"in a prediction, above .* use a larger tol"):
        kernel_erm(tol=1e-30).fit(X, y)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_norm_bound_holds_and_is_nearly_attained(loss) -> None:
    """Check the bound, which a model that is fitted to a single row nearly attains."""
    for regularization, least in [(50.0, 0.49 if loss == "logistic" else 0.99), (1.0, 0.4)]:
        y = [1e6] if loss == "huber" else [1]
        erm = kernel_erm(loss, "linear", regularization, tol=1e-9).fit([[1.0]], y)
        bound = 1.0 / regularization
        if loss != "huber":
            bound = min(bound, np.sqrt((np.log(2) if loss == "logistic" else 1) / regularization))
        assert erm.norm_bound_ == pytest.approx(bound, rel=1e-6)
        assert least * bound < erm.norm_ <= erm.norm_bound_


def corners(n_features: int, norm: float = 1.0) -> np.ndarray:
    """Return rows of a given norm along the axes and the diagonals."""
    signs = np.array(np.meshgrid(*[[-1, 0, 1]] * n_features)).reshape(n_features, -1).T
    signs = signs[np.any(signs != 0, axis=1)]
    return signs * (norm * (1 - 1e-13) / np.linalg.norm(signs, axis=1)[:, None])


def neighbours(X, y, row, loss, rng):
    """Yield data sets in which an extreme or random row replaces one row."""
    rows = np.vstack([corners(X.shape[1]), scale_rows(rng.uniform(-1, 1, (5, X.shape[1]))), X[row]])
    for x in rows:
        for label in (-1e4, 1e4) if loss == "huber" else (-1, 1):
            other, labels = X.copy(), y.copy()
            other[row], labels[row] = x, label
            yield other, labels


@given(
    seed=st.integers(0, 10**6),
    loss=st.sampled_from(LOSSES),
    kernel=st.sampled_from(["linear", "poly", "rbf", "laplacian", "cosine"]),
    n_rows=st.sampled_from([1, 2, 10]),
    log_regularization=st.floats(-3, 1.5),
    weighted=st.booleans(),
)
def test_no_replaced_row_moves_a_prediction_beyond_its_sensitivity(
    seed, loss, kernel, n_rows, log_regularization, weighted
) -> None:
    rng = np.random.default_rng(seed)
    X, y = sample(seed, n_rows, loss, kernel)
    X, y = X[:, :2].copy(), y.astype(float)
    weights = rng.dirichlet(np.ones(n_rows)) if weighted else None
    erm = kernel_erm(loss, kernel, 10.0**log_regularization).fit(X, y, epsilon=weights)
    queries = np.vstack([corners(2), scale_rows(rng.uniform(-1, 1, (100, 2))), X])
    row = int(rng.integers(n_rows))
    for other, labels in neighbours(X, y, row, loss, rng):
        changed = clone(erm).fit(other, labels, epsilon=weights)
        moved = np.abs(erm.decision_function(queries) - changed.decision_function(queries)).max()
        limit = erm.row_sensitivities_[row]
        assert moved <= limit * (1 + 1e-9)
        # the bound for exact minimisers, plus the errors of the two models
        errors = erm.prediction_error_ + changed.prediction_error_
        assert erm.feature_bound_ * rkhs_distance(erm, changed) <= limit * (1 + 1e-7) + errors


@pytest.mark.parametrize("loss", ["hinge", "huber"])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "laplacian", "cosine"])
def test_the_sensitivity_is_attained(loss, kernel) -> None:
    """If all slopes of the loss are extreme, a changed label attains the sensitivity."""
    X, y = sample(0, 12, "hinge", kernel)
    X[0] = [1.0 - 1e-13, 0.0, 0.0]
    far = 1e4 if loss == "huber" else 1
    erm = kernel_erm(loss, kernel, 50.0, tol=1e-6, gamma=0.3).fit(X, far * y)
    flipped = y.copy()
    flipped[0] = -y[0]
    moved = abs(
        erm.decision_function(X[:1]) - clone(erm).fit(X, far * flipped).decision_function(X[:1])
    )[0]
    assert moved / erm.sensitivity_ == pytest.approx(1.0, abs=1e-4)


def moved_by_two_rows(point, regularization, share) -> float:
    """Compute the distance between two logistic models, divided by the sensitivity to one row.

    The other row determines the direction of the models. Both versions of the replaced row have
    extreme slopes, because their label contradicts this direction.
    """
    along, across = np.cos(point), np.sin(point)
    models = []
    for sign in (-1.0, 1.0):
        X = np.array([[1.0, 0.0], [along, sign * across]]) * (1 - 1e-13)
        erm = kernel_erm("logistic", "linear", regularization, tol=1e-11)
        models.append(erm.fit(X, [1, -1], epsilon=[1 - share, share]))
    return rkhs_distance(*models) / models[0].row_sensitivities_[1]


def test_the_sensitivity_of_the_logistic_loss_is_nearly_attained() -> None:
    """Check that some rows attain more than 90 % of the bound."""
    best = optimize.minimize_scalar(
        lambda point: -moved_by_two_rows(point, 3e-6, 5.1e-7),
        bounds=(0.1, 1.5),
        method="bounded",
        options={"maxiter": 25},
    )
    assert 0.9 < -best.fun <= 1.0


def test_row_sensitivities_are_proportional_to_the_weights() -> None:
    X, y = sample(0, 4)
    weights = np.array([0.5, 0.3, 0.2, 0.0])
    erm = kernel_erm(kernel="poly", regularization=0.3, degree=2, tol=0.05).fit(
        X, y, epsilon=weights
    )
    square = 9.0  # (2*1 + 1)^2
    assert erm.feature_bound_ == pytest.approx(np.sqrt(square))
    assert erm.sensitivity_ == pytest.approx(2 * square * 0.5 / 0.3)
    errors = 2 * 0.05 * erm.sensitivity_
    expected = [2 * square * a / 0.3 + errors for a in weights[:3]]
    assert erm.row_sensitivities_ == pytest.approx([*expected, 0.0])
    equal = kernel_erm(regularization=0.3).fit(X, y)
    assert equal.sensitivity_ == pytest.approx(2 / (0.3 * 4))
    steep = kernel_erm(HuberLoss(0.1), "rbf", 0.3).fit(X, y)
    assert steep.sensitivity_ == pytest.approx(2 * 0.1 / (0.3 * 4))


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_of_weight_zero_do_not_affect_the_model(loss) -> None:
    X, y = sample(0, 20, loss)
    weights = np.random.default_rng(0).dirichlet(np.ones(20))
    weights[[3, 7, 19]] = 0.0
    weights /= weights.sum()
    first = kernel_erm(loss).fit(X, y, epsilon=weights)
    X[[3, 7, 19]], y[[3, 7, 19]] = corners(3)[:3], -y[[3, 7, 19]]
    second = kernel_erm(loss).fit(X, y, epsilon=weights)
    assert vars(first).keys() == vars(second).keys()
    for name, value in vars(first).items():
        other = getattr(second, name)
        if name == "guarantee_":
            value, other = value.epsilon, other.epsilon
        assert np.array_equal(value, other), name
    used = weights > 0
    dropped = kernel_erm(loss).fit(X[used], y[used], epsilon=weights[used])
    assert np.array_equal(dropped.dual_coef_, first.dual_coef_)


def test_classes_inferred_from_the_data_give_a_leak_warning() -> None:
    X, y = sample(0, 20)
    with pytest.warns(PrivacyLeakWarning, match="classes was computed") as caught:
        erm = kernel_erm(classes=None).fit(X, np.where(y > 0, "yes", "no"))
    assert caught[0].filename == __file__
    assert erm.classes_.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"loss": "squared"}, ParameterError, "loss must be"),
        ({"kernel": "sigmoid"}, ParameterError, "kernel must be one of"),
        ({"kernel": "linear", "data_norm": None}, ParameterError, "no known public bound"),
        ({"regularization": 0.0}, ParameterError, "regularization must be .*.*, got 0.0"),
        ({"tol": 0.0}, ParameterError, "tol must be .*.*, got 0.0"),
        ({"classes": (1, 1)}, ParameterError, "classes must be two different labels"),
        ({"data_norm": 0.4}, DataError, r"1 of 2 rows of X are longer than data_norm = 0\.4"),
        ({"tol": 1e-40}, SolverError, "larger tol"),
        ({"X": [[np.nan, 0], [0, 0]]}, DataError, "NaN"),
        ({"X": [0.5, 0.5]}, DataError, "1D array"),
        ({"X": np.zeros((0, 2)), "y": []}, DataError, "0 sample"),
        ({"y": [1, 3]}, DataError, "1 of 2 labels are not in the public classes"),
        ({"y": [1, 1, 1]}, DataError, "inconsistent"),
        ({"epsilon": [1.0]}, ParameterError, r"shape \(1,\) for 2 rows"),
        ({"epsilon": [0.0, 0.0]}, ParameterError, "epsilon is 0 in every row"),
        ({"rows": [0, 1]}, ParameterError, "does not release the model; pass them"),
    ],
)
def test_errors_name_invalid_input_and_nothing_is_fitted(change, error, words) -> None:
    arguments = {"X": [[0.5, 0.0], [-0.1, 0.3]], "y": [1, -1]} | change
    parameters = {name: arguments.pop(name) for name in change if name in vars(KernelERM())}
    erm = KernelERM(**parameters)
    with pytest.raises(error, match=words):
        erm.fit(**arguments)
    assert not {name for name in vars(erm) if name.endswith("_")} - {"n_features_in_"}


@pytest.mark.filterwarnings("ignore::convexmarket.errors.PrivacyLeakWarning")
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_classifiers_follow_scikit_learn_conventions(loss) -> None:
    check_estimator(KernelERM(loss, classes=None), on_skip=None)


def test_regressors_follow_scikit_learn_conventions() -> None:
    # With the default regularization, the scores are below the thresholds of scikit-learn's checks.
    results = check_estimator(
        KernelERM("huber", regularization=1e-3),
        on_skip=None,
        expected_failed_checks={
            "check_regressors_no_decision_function": "all losses have a decision_function"
        },
    )
    assert [r["check_name"] for r in results if r["status"] == "xfail"] == [
        "check_regressors_no_decision_function"
    ]


def test_the_guarantee_states_the_assumptions_of_the_fit() -> None:
    X, y = sample(0, 20)
    with pytest.warns(PrivacyLeakWarning):
        erm = kernel_erm(classes=None, tol=5.0).fit(X, y)
    erm.set_params(classes=(-1, 1), tol=0.01)
    assert any("VIOLATED" in line for line in erm.assumptions_)
    assert any("at most 5 * sensitivity_" in line for line in erm.assumptions_)
