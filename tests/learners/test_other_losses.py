"""Test objective perturbation with other losses, and kernel models with user-defined losses."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.attacks import formula_audits
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners import (
    AbsoluteLoss,
    HuberLoss,
    KernelERM,
    PrivateHuberRegressor,
    PrivateLinearSVC,
)
from convexmarket.learners.losses import HingeLoss
from convexmarket.learners.perturbed import ObjectivePerturbation, SecondNoise
from convexmarket.privacy import accounting
from convexmarket.privacy.accounting import objective_perturbation_guarantee
from tests import one_in
from tests.learners.builders import declared_kernel_erm, declared_losses

rng = np.random.default_rng(0)
X = rng.normal(size=(12, 3))
X /= np.maximum(np.linalg.norm(X, axis=1), 1.0)[:, None]
NUMBERS = 0.9 * X[:, 0]
SIGNS = np.where(X[:, 0] > 0, 1, -1)
EPSILON = rng.dirichlet(np.full(12, 3.0)) * 120.0


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("learner", "y"),
    one_in(
        3,
        [
            (PrivateLinearSVC(0.05), SIGNS),
            (PrivateLinearSVC(0.05, width=0.3, data_norm=2.0), SIGNS),
            (PrivateHuberRegressor(0.05, threshold=0.5), NUMBERS),
        ],
    ),
)
def test_the_claim_is_nearly_attained_and_half_of_its_logarithm_is_refuted(learner, y, monkeypatch):
    monkeypatch.setattr(formula_audits, "STARTS", 1)
    options = {"epsilon": EPSILON, "n_rows": 1, "draws": 30, "random_state": 0}
    audit = cm.audit_privacy(learner, X, y, **options)
    assert audit.passed, audit.statement()
    assert 0.999 < audit.ratio <= 1.0
    whole = accounting._loss

    def half(weights, eta, *terms):
        return 0.5 * (weights * eta + whole(weights, eta, *terms))

    monkeypatch.setattr(accounting, "_loss", half)
    assert not cm.audit_privacy(learner, X, y, **options).passed


@pytest.mark.parametrize("loss", [HingeLoss(0.5), HuberLoss(0.3)], ids=str)
def test_the_minimum_equals_that_of_the_declaration(loss):
    y = SIGNS.astype(float) if loss.classifies else NUMBERS
    weights = EPSILON / EPSILON.sum()
    options = {"data_norm": 1.0, "loss": loss, "second": SecondNoise(1e-11, None)}
    plan = ObjectivePerturbation(weights, np.full(12, np.inf), 0.02, 3, **options)
    coef, fitted = plan.release(X, y, np.random.default_rng(0))
    w = cp.Variable(3)
    risk = weights @ declared_losses(loss, X @ w, y) + 0.01 * cp.sum_squares(w)
    cp.Problem(cp.Minimize(risk)).solve(solver="CLARABEL")
    np.testing.assert_allclose(coef, w.value, atol=1e-5)
    assert fitted["gradient_norm_"] <= 1e-11


def test_the_sharp_bound_is_below_the_general_formula():
    weights = np.array([0.25, 0.75, 0.0])
    general = objective_perturbation_guarantee(
        weights, 4.0, 0.1, 2.0, "general", loss_curvature=1.5
    )
    expected = weights * 4.0 + np.log(1.0 + 1.5 * weights * 4.0 / 0.1)
    np.testing.assert_allclose(general, expected, rtol=1e-15)
    logistic = objective_perturbation_guarantee(weights, 4.0, 0.1, accounting="general")
    assert np.all(objective_perturbation_guarantee(weights, 4.0, 0.1) <= logistic)


@pytest.mark.parametrize(
    ("learner", "y", "error"),
    [
        (PrivateHuberRegressor(target_range=(0.0, 0.5)), NUMBERS, DataError),
        (PrivateHuberRegressor(target_range=(1.0, 0.5)), NUMBERS, ParameterError),
        (PrivateHuberRegressor(target_range=([0, 1], 2)), NUMBERS, ParameterError),
        (PrivateHuberRegressor(threshold=0.0), NUMBERS, ParameterError),
        (PrivateHuberRegressor(), np.full(12, "a"), DataError),
        (PrivateLinearSVC(width=0.0), SIGNS, ParameterError),
        (PrivateLinearSVC(1e-9), SIGNS, ParameterError),
    ],
)
def test_errors_name_unsupported_arguments(learner, y, error):
    with pytest.raises(error, match=r"target_range|threshold|width|regularization|numbers"):
        learner.fit(X, y, epsilon=1.0)


class Squashed(cm.learners.Loss):
    """User-defined loss sqrt(1 + (f - y)^2)."""

    classifies, lipschitz, curvature = False, 1.0, 1.0

    def derivatives(self, f, y):
        length = np.hypot(1.0, f - y)
        return length, (f - y) / length, length**-3.0


def squashed(loss, f, y):
    return cp.hstack([cp.norm(cp.hstack([1.0, f[i] - y[i]])) for i in range(y.size)])


@pytest.mark.parametrize(
    "loss",
    ["absolute", HuberLoss(0.3), Squashed(), HingeLoss(0.5)],
    ids=["absolute", "huber", "squashed", "hinge"],
)
def test_a_kernel_model_supports_any_lipschitz_loss(loss):
    y = SIGNS if getattr(loss, "classifies", False) else NUMBERS
    erm = KernelERM(loss, gamma=1.0, regularization=0.05, tol=1e-4).fit(X, y, epsilon=EPSILON)
    losses = squashed if isinstance(loss, Squashed) else declared_losses
    problem = declared_kernel_erm(erm, X, y, EPSILON, losses)
    problem.solve(solver="CLARABEL")
    result = erm.decision_function(X)
    declared = erm.kernel_(X, X) @ problem.variables()[0].value
    np.testing.assert_allclose(result, declared, atol=erm.prediction_error_ + 5e-4)
    lipschitz = AbsoluteLoss().lipschitz if isinstance(loss, str) else loss.lipschitz
    shares = EPSILON / EPSILON.sum()
    assert erm.sensitivity_ == pytest.approx(2.0 * lipschitz * shares.max() / 0.05)
    assert isinstance(loss, str) or "slopes of at most" in " ".join(erm.assumptions_)
