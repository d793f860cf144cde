"""Scikit-learn estimators that release a model under the guarantees that were sold."""

from convexmarket.learners.density import objective_perturbation_log_density
from convexmarket.learners.descent import NoisyDescent
from convexmarket.learners.kernel_erm import KernelERM, declare_erm
from convexmarket.learners.kernels import Kernel
from convexmarket.learners.logistic import PrivateLogisticRegression
from convexmarket.learners.logistic_risk import (
    LogisticErrorBound,
    logistic_error_bound,
    logistic_norm_bound,
    logistic_risk_constants,
)
from convexmarket.learners.loss_risk import lipschitz_risk_constants
from convexmarket.learners.losses import (
    AbsoluteLoss,
    HingeLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    QuantileLoss,
)
from convexmarket.learners.other_losses import PrivateHuberRegressor, PrivateLinearSVC
from convexmarket.learners.protocol import Learner
from convexmarket.learners.ridge import PersonalizedRidge
from convexmarket.learners.ridge_baselines import (
    NonPersonalizedRidge,
    NonPrivateRidge,
    SampledRidge,
)
from convexmarket.learners.ridge_expected import expected_loss
from convexmarket.learners.ridge_math import (
    NoisyLoss,
    RidgeErrorBound,
    noisy_loss,
    ridge_error_bound,
    ridge_risk_constants,
)
from convexmarket.learners.ridge_statistics import StatisticsRidge
from convexmarket.learners.saved import load_model, save_model
from convexmarket.learners.search import PrivateSearch
from convexmarket.learners.separable import (
    SeparableLimit,
    separable_budget,
    separable_error_bound,
    separable_limit,
    separable_tail,
    separation_margin,
)

__all__ = [
    "AbsoluteLoss",
    "HingeLoss",
    "HuberLoss",
    "Kernel",
    "KernelERM",
    "Learner",
    "LogisticErrorBound",
    "LogisticLoss",
    "Loss",
    "NoisyDescent",
    "NoisyLoss",
    "NonPersonalizedRidge",
    "NonPrivateRidge",
    "PersonalizedRidge",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateSearch",
    "QuantileLoss",
    "RidgeErrorBound",
    "SampledRidge",
    "SeparableLimit",
    "StatisticsRidge",
    "declare_erm",
    "expected_loss",
    "lipschitz_risk_constants",
    "load_model",
    "logistic_error_bound",
    "logistic_norm_bound",
    "logistic_risk_constants",
    "noisy_loss",
    "objective_perturbation_log_density",
    "ridge_error_bound",
    "ridge_risk_constants",
    "save_model",
    "separable_budget",
    "separable_error_bound",
    "separable_limit",
    "separable_tail",
    "separation_margin",
]
