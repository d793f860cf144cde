"""Samplers of noise, guarantees, and the accounting of privacy loss."""

from convexmarket.privacy.accountant import Account, AccountComposition, PrivacyAccountant
from convexmarket.privacy.accounting import (
    Accounting,
    calibrate_eta,
    objective_perturbation_guarantee,
)
from convexmarket.privacy.active import RowAccount, account, names_of, reserve
from convexmarket.privacy.guarantee import Guarantee, Profile
from convexmarket.privacy.random_sources import (
    RandomSource,
    Simulation,
    gamma_sphere_noise,
    noise_assumption,
    resolve_generator,
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
    "calibrate_eta",
    "gamma_sphere_noise",
    "names_of",
    "noise_assumption",
    "objective_perturbation_guarantee",
    "private_selection",
    "reserve",
    "resolve_generator",
    "ridge_norm_bound",
    "ridge_sensitivity",
]
