"""Test the public rules for regularization and threshold, and the predicted effect of noise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import ParameterError
from convexmarket.learners import HuberLoss, LogisticLoss
from convexmarket.learners.perturbed import public_regularization
from convexmarket.privacy import Simulation
from tests.learners.builders import output_ridge


@given(
    st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 60), st.floats(-3, 3),
    st.sampled_from([LogisticLoss(), HuberLoss(0.125)]), st.floats(0.01, 100.0),
)  # fmt: skip
def test_the_rule_solves_its_equation(seed, rows, features, log_eps, loss, norm):
    """Check the equation Lambda * eta(Lambda) * W(eta) = 2 * L * R * sqrt(d * (d + 1))."""
    rng = np.random.default_rng(seed)
    sold = 10.0**log_eps * rng.uniform(0.1, 1.0, rows)
    weights = sold / sold.sum()
    result = public_regularization(weights, sold, features, norm, loss, 0.6)
    lost = np.log1p(loss.curvature * norm**2 * weights / result)
    eta = float(np.min((sold - lost) / weights))
    assert 0 < eta <= sold.sum()
    size = 0.6 / norm * (eta / features) ** 0.25
    goal = 2.0 * loss.lipschitz * norm * np.sqrt(features * (features + 1.0)) / (eta * size)
    assert result == pytest.approx(goal, rel=1e-4)


@pytest.mark.parametrize("features", [4, 70])
def test_the_norm_scale_of_logistic_models_grows_with_the_root_of_up_to_32_features(features):
    model = cm.PrivateLogisticRegression(data_norm=2.0, solver_epsilon=None)
    model.fit(np.zeros((50, features)), [1, -1] * 25, epsilon=1.0, random_state=Simulation(0))
    norm, equal = 0.72 * np.sqrt(min(features, 32)), np.full(50, 1 / 50)
    expected = public_regularization(equal, np.ones(50), features, 2.0, LogisticLoss(), norm)
    assert model.regularization_ == pytest.approx(expected, rel=1e-9)


def test_the_rule_does_not_depend_on_the_rows():
    X, y = np.random.default_rng(0).random((2, 80, 3)), np.linspace(-1, 1, 80)
    for make in (cm.PersonalizedRidge, lambda: cm.PersonalizedRidge(perturbation="statistics")):
        fitted = [
            make().fit(rows, labels, epsilon=1.0, random_state=Simulation(0)).regularization_
            for rows, labels in ((X[0], y), (X[1], -np.ones(80)))
        ]
        assert fitted[0] == fitted[1]


@pytest.mark.parametrize("perturbation", ["objective", "statistics", "output"])
def test_the_noise_effect_is_close_to_a_simulation(perturbation):
    """Check that predicted and simulated effects agree within a factor of two."""
    rng = np.random.default_rng(0)
    X = rng.random((3000, 4))
    y = np.clip(X @ [0.6, -0.4, 0.2, 0.1] + 0.1 * rng.normal(size=3000), -1, 1)
    learner = cm.PersonalizedRidge(
        perturbation=perturbation, fit_intercept=perturbation != "output"
    )
    learner.set_params(target_range=(-4.0, 4.0))
    predicted = []
    for seed in range(30):
        model = learner.fit(X, 4.0 * y, epsilon=1.0, random_state=Simulation(seed))
        predicted.append(X[:300] @ model.coef_ + model.intercept_)
    measured = np.sqrt(np.mean(np.var(predicted, axis=0)))
    assert 0.5 < learner.noise_effect(np.ones(3000), 4) / measured < 2.0


def test_the_noise_effect_needs_public_arguments_and_is_zero_without_noise():
    assert output_ridge().noise_effect(np.full(9, np.inf), 2) == 0.0
    with pytest.raises(ParameterError, match="n_features is missing"):
        cm.PersonalizedRidge().noise_effect(np.ones(9))
    with pytest.raises(ParameterError, match="n_features must be a whole number"):
        output_ridge().noise_effect(np.ones(9), 2.5)
    with pytest.raises(ParameterError, match="feature_range=None"):
        cm.PersonalizedRidge(feature_range=None).noise_effect(np.ones(9), 2)
    assert cm.PrivateLogisticRegression().noise_limit(np.full(9, np.inf), 2) > 3.99


@pytest.mark.parametrize("regularization", [0.1, 1.0])
@pytest.mark.parametrize(("kind", "square"), [("objective", 1 / 12), ("output", 1 / 3)])
def test_at_the_noise_limit_the_model_is_as_accurate_as_a_constant(kind, square, regularization):
    """Squared bias plus squared noise equals the variance. ``square`` is the mean square of x."""
    learner = cm.PersonalizedRidge(regularization, perturbation=kind, target_range=(0, 4))
    limit, variance = learner.noise_limit(np.full(9, 5.0), 4), 4.0 / 3.0
    share = 4 * square / (4 * square + regularization)
    assert (1 - share) ** 2 * variance + limit**2 == pytest.approx(variance)


@pytest.mark.parametrize("kind", ["objective", "statistics", "output", "logistic"])
def test_the_noise_is_below_its_limit_at_every_epsilon_above_a_threshold(kind):
    logistic = kind == "logistic"
    learner = (
        cm.PrivateLogisticRegression() if logistic else cm.PersonalizedRidge(perturbation=kind)
    )
    epsilon = [np.full(2000, value) for value in (1e-9, 1e-6, 1e-4, 0.01, 1.0)]
    useful = [learner.noise_effect(e, 4) < learner.noise_limit(e, 4) for e in epsilon]
    assert useful == sorted(useful)
    assert useful[::4] == [False, True]


def test_the_default_learners_have_good_scores():
    """Check the scores of regression and classification with 1,000 rows of epsilon 1."""
    rng = np.random.default_rng(0)
    X = rng.random((1000, 5))
    y = np.clip(X @ [0.5, -0.5, 0.25, 0.3, 0.0] - 0.2, -1, 1)
    terms = {"epsilon": 1.0, "random_state": Simulation(0)}
    assert cm.PersonalizedRidge().fit(X, y, **terms).score(X, y) > 0.85
    rows = np.column_stack([2 * X - 1, np.ones(1000)]) / np.sqrt(6)
    signs = np.where(y > np.median(y), 1, -1)
    assert cm.PrivateLogisticRegression().fit(rows, signs, **terms).score(rows, signs) > 0.85


@pytest.mark.parametrize(
    "options",
    [{"max_norm": 1.0}, {"sensitivity": "paper"}, {"rounding": None}, {"delta": 1e-6},
     {"perturbation": "input"}, {"perturbation": "statistics", "delta": 1e-6,
                                 "fit_intercept": False}],
)  # fmt: skip
def test_options_of_another_perturbation_are_refused(options):
    name = next(iter(options))
    with pytest.raises(ParameterError, match="delta" if "delta" in options else name):
        cm.PersonalizedRidge(**options).fit([[0.5], [0.1]], [0.0, 0.1], epsilon=1.0)


def test_a_numeric_target_for_a_classifier_suggests_ridge_regression():
    with pytest.raises(cm.errors.DataError, match="PersonalizedRidge"):
        cm.PrivateLogisticRegression().fit([[0.5]] * 4, [0.1, 0.2, 0.3, 0.4], epsilon=9.0)


@pytest.mark.parametrize("perturbation", ["objective", "statistics", "output"])
def test_finite_guarantees_hold_if_other_rows_have_infinite_guarantees(perturbation):
    rng = np.random.default_rng(0)
    X = rng.random((60, 2))
    epsilon = np.where(np.arange(60) % 2 == 0, np.inf, rng.uniform(0.5, 2.0, 60))
    model = cm.PersonalizedRidge(perturbation=perturbation, weighting="equal")
    model.fit(X, X[:, 0], epsilon=epsilon, random_state=Simulation(0))
    assert np.all(model.epsilon_ <= epsilon)
    assert np.isfinite(model.epsilon_[1::2]).all()
    assert "exact noise on a lattice" in model.guarantee_.mechanism
