"""Scikit-learn estimators that release a model under the guarantees that sellers sold."""

from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.losses import (
    AbsoluteLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    lipschitz_risk_constants,
)
from convexmarket.learners.perturbed import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
)
from convexmarket.learners.predictor import Kernel
from convexmarket.learners.private_learner import Learner
from convexmarket.learners.private_search import PrivateSearch
from convexmarket.learners.ridge import PersonalizedRidge, expected_loss
from convexmarket.learners.ridge_math import (
    ridge_error_bound,
    ridge_risk_constants,
    solve_ridge,
)
from convexmarket.learners.saved import load_model, save_model

__all__ = [
    "AbsoluteLoss",
    "HingeLoss",
    "HuberLoss",
    "Kernel",
    "KernelERM",
    "Learner",
    "LogisticLoss",
    "Loss",
    "PersonalizedRidge",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateSearch",
    "expected_loss",
    "lipschitz_risk_constants",
    "load_model",
    "ridge_error_bound",
    "ridge_risk_constants",
    "save_model",
    "solve_ridge",
]
