"""Noise and the guarantees it buys: sampling, and the accounting of privacy loss."""

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

__all__ = [
    "Accounting",
    "Guarantee",
    "RandomSource",
    "calibrate_eta",
    "check_weights",
    "gamma_sphere_log_density",
    "gamma_sphere_noise",
    "objective_perturbation_guarantee",
    "resolve_generator",
    "secure_generator",
]
