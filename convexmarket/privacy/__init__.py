"""Noise and the guarantees it buys: sampling, and the accounting of privacy loss."""

from convexmarket.privacy.accountant import Account, AccountComposition, PrivacyAccountant
from convexmarket.privacy.accounting import (
    Accounting,
    Guarantee,
    calibrate_eta,
    check_weights,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.admission import check_account
from convexmarket.privacy.approximate import approximate_minimum_rate, default_minimum_epsilon
from convexmarket.privacy.lattice import (
    discrete_laplace,
    discrete_laplace_log_density,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
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
    "approximate_minimum_rate",
    "calibrate_eta",
    "check_account",
    "check_weights",
    "default_minimum_epsilon",
    "discrete_laplace",
    "discrete_laplace_log_density",
    "gamma_sphere_log_density",
    "gamma_sphere_noise",
    "lattice_epsilon",
    "lattice_moves",
    "lattice_release",
    "lattice_scale",
    "lattice_step",
    "objective_perturbation_guarantee",
    "resolve_generator",
    "ridge_norm_bound",
    "ridge_sensitivity",
    "secure_generator",
]
