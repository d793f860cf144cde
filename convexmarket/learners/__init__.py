"""Scikit-learn estimators that release a model under the guarantees that were sold."""

from convexmarket.learners.density import objective_perturbation_log_density
from convexmarket.learners.logistic import PrivateLogisticRegression, logistic_risk_constants
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

__all__ = [
    "NoisyLoss",
    "NonPersonalizedRidge",
    "NonPrivateRidge",
    "PersonalizedRidge",
    "PrivateLogisticRegression",
    "RidgeErrorBound",
    "SampledRidge",
    "expected_loss",
    "logistic_risk_constants",
    "noisy_loss",
    "objective_perturbation_log_density",
    "ridge_error_bound",
    "ridge_risk_constants",
]
