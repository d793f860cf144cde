r"""Compute the proven and the printed constants of A, Theorem II.4, and bound the model's norm."""

from functools import partial

import numpy as np
from scipy.special import gammainccinv

from convexmarket.learners import LogisticLoss, lipschitz_risk_constants

logistic_risk_constants = partial(lipschitz_risk_constants, LogisticLoss())


def printed_risk_constants(chance, noise_chance, max_norm, n_features):
    """Compute mu and sigma as printed in the theorem, with natural logarithms."""
    concentration = 3.0 * np.log(1.0 / chance) / np.sqrt(2.0)
    mu = concentration * np.logaddexp(0.0, max_norm) + max_norm / np.log(2.0)
    length = 2.0 * max_norm * gammainccinv(n_features, noise_chance)
    return mu, (2.0 * concentration + 1.0) * 2.0 * length


def logistic_norm_bound(regularization, eta, n_features, noise_chance=0.05):
    r"""Bound the norm of the perturbed model without access to the rows.

    A zero gradient implies :math:`\Lambda\|w\|^2 = -b^\top w + \sum a_i z_i/(1 + e^{z_i})`, where
    :math:`z/(1 + e^z)` is at most 0.2785. It also implies :math:`\Lambda\|w\| \le \|b\| + 1`.
    """
    noise = 2.0 * gammainccinv(n_features, noise_chance) / eta
    pulled = noise + np.sqrt(noise**2 + 4.0 * regularization * 0.2784645427610738)
    return min(pulled / 2.0, noise + 1.0) / regularization
