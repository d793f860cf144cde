"""Samplers of noise, guarantees, and the accounting of privacy loss."""

from convexmarket.privacy.accountant import Account, AccountComposition, PrivacyAccountant
from convexmarket.privacy.accounting import (
    Accounting,
    calibrate_eta,
    check_weights,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.active import RowAccount, account, admit, names_of
from convexmarket.privacy.approximate import default_minimum_epsilon
from convexmarket.privacy.exact import gamma_sphere_draw, gamma_sphere_error
from convexmarket.privacy.guarantee import Guarantee, Profile
from convexmarket.privacy.lattice import (
    lattice_blur,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
)
from convexmarket.privacy.noise import (
    RandomSource,
    Simulation,
    gamma_sphere_log_density,
    gamma_sphere_noise,
    noise_assumption,
    open_generator,
    resolve_generator,
    secure_generator,
    warn_of_plain_noise,
)
from convexmarket.privacy.selection import private_selection
from convexmarket.privacy.sensitivity import Sensitivity, ridge_norm_bound, ridge_sensitivity

__all__ = [
    "Account",
    "AccountComposition",
    "Accounting",
    "Guarantee",
    "PrivacyAccountant",
    "Profile",
    "RandomSource",
    "RowAccount",
    "Sensitivity",
    "Simulation",
    "account",
    "admit",
    "calibrate_eta",
    "check_weights",
    "default_minimum_epsilon",
    "gamma_sphere_draw",
    "gamma_sphere_error",
    "gamma_sphere_log_density",
    "gamma_sphere_noise",
    "lattice_blur",
    "lattice_epsilon",
    "lattice_moves",
    "lattice_release",
    "lattice_scale",
    "lattice_step",
    "names_of",
    "noise_assumption",
    "objective_perturbation_guarantee",
    "open_generator",
    "private_selection",
    "resolve_generator",
    "ridge_norm_bound",
    "ridge_sensitivity",
    "secure_generator",
    "warn_of_plain_noise",
]
