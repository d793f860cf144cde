"""Scikit-learn estimators that release a model under the guarantees that were sold."""

from convexmarket.learners.density import objective_perturbation_log_density
from convexmarket.learners.logistic import PrivateLogisticRegression, logistic_risk_constants

__all__ = [
    "PrivateLogisticRegression",
    "logistic_risk_constants",
    "objective_perturbation_log_density",
]
