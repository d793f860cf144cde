"""Noise and the guarantees it buys: sampling, and the accounting of privacy loss."""

from convexmarket.privacy.accountant import Account, AccountComposition, PrivacyAccountant
from convexmarket.privacy.accounting import (
    Accounting,
    Guarantee,
    calibrate_eta,
    check_weights,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.noise import (
    RandomSource,
    gamma_sphere_log_density,
    gamma_sphere_noise,
    resolve_generator,
    secure_generator,
)
from convexmarket.privacy.sensitivity import Sensitivity, ridge_norm_bound, ridge_sensitivity

__all__ = [
    "Account",
    "AccountComposition",
    "Accounting",
    "Guarantee",
    "PrivacyAccountant",
    "RandomSource",
    "Sensitivity",
    "calibrate_eta",
    "check_weights",
    "gamma_sphere_log_density",
    "gamma_sphere_noise",
    "objective_perturbation_guarantee",
    "resolve_generator",
    "ridge_norm_bound",
    "ridge_sensitivity",
    "secure_generator",
]
