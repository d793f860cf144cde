"""The risk of linear and kernel models, with which a learner enters a market."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np
from scipy.special import gammainccinv, lambertw

from convexmarket.checks import as_float, check_choice, check_count, check_positives, check_share
from convexmarket.errors import ParameterError
from convexmarket.learners.losses import Loss

__all__ = [
    "Constants",
    "lipschitz_risk_constants",
    "logistic_norm_bound",
    "logistic_risk_constants",
]

#: Constants with a proof, or those printed in the paper.
Constants: TypeAlias = Literal["proven", "paper"]
#: Largest value of z / (1 + e^z), which bounds the increase of a model's norm by a row.
LARGEST_PULL = float(lambertw(np.exp(-1.0)).real)


def logistic_risk_constants(
    failure_probability: float,
    noise_failure_probability: float,
    max_norm: float,
    n_features: int,
    *,
    constants: Constants = "proven",
) -> tuple[float, float]:
    r"""Return the (mu, sigma) of the excess risk ``mu * ||a|| + sigma / eta``.

    Parameters
    ----------
    failure_probability, noise_failure_probability : float
        Probability :math:`\delta` that the concentration inequality fails, and :math:`\delta'` that
        the noise is larger than assumed.
    max_norm : float
        Bound :math:`\beta` on the norm of the model, times that on the rows.
    n_features : int
    constants : {"proven", "paper"}, default "proven"
        ``"paper"`` are those of A, Theorem II.4, as printed and with natural logarithms, for
        reproduction. Its proof does not give them (docs/theory.md, section 6).

    Returns
    -------
    mu, sigma : float
        Weights of spread and noise, in shares of wrong predictions.

    Notes
    -----
    With probability at least :math:`1 - \delta - \delta'`, for all models of norm at most
    :math:`\beta` at once, the error is at most the noisy training loss in bits plus
    :math:`\mu\|a\| + \sigma/\eta`, if the weights were chosen without looking at the rows
    (docs/theory/objective-perturbation.md).

    Examples
    --------
    >>> mu, sigma = logistic_risk_constants(0.05, 0.05, max_norm=1.0, n_features=10)
    >>> round(mu, 3), round(sigma, 3)
    (3.154, 45.316)
    >>> mu, sigma = logistic_risk_constants(0.05, 0.05, 1.0, 10, constants="paper")
    >>> round(mu, 3), round(sigma, 3)
    (9.788, 861.262)
    """
    check_share("failure_probability", failure_probability)
    check_positives(max_norm=max_norm)
    check_choice("constants", constants, Constants)
    log_chance = np.log(1.0 / failure_probability)
    length = 2.0 * max_norm * _noise_quantile(noise_failure_probability, n_features)
    if constants == "proven":
        mu = max_norm * (0.5 + np.tanh(max_norm / 2.0) + np.sqrt(log_chance / 2.0)) / np.log(2.0)
        return float(mu), float(length / np.log(2.0))
    concentration = 3.0 * log_chance / np.sqrt(2.0)
    mu = concentration * np.logaddexp(0.0, max_norm) + max_norm / np.log(2.0)
    return float(mu), float((2.0 * concentration + 1.0) * 2.0 * length)


def logistic_norm_bound(
    regularization: float,
    eta: float,
    n_features: int,
    *,
    noise_failure_probability: float = 0.05,
    data_norm: float = 1.0,
) -> float:
    r"""Bound the norm of the perturbed model before any row is seen.

    Where the gradient vanishes, :math:`\Lambda\|w\|^2 = -b^\top w + \sum a_i z_i/(1 + e^{z_i})`,
    and :math:`z/(1 + e^z)` is at most 0.2785; and :math:`\Lambda\|w\| \le \|b\| + R`.

    Parameters
    ----------
    regularization, eta, n_features, data_norm
        :math:`\Lambda`, what sets the noise, the dimension of the model, and R; positive.
    noise_failure_probability : float, default 0.05

    Returns
    -------
    float

    Raises
    ------
    ParameterError
        If ``eta`` or another argument is out of its range.

    Examples
    --------
    >>> round(logistic_norm_bound(0.01, 1000.0, 10), 2)
    7.08
    """
    check_positives(regularization=regularization, data_norm=data_norm)
    if not as_float(eta) > 0:
        raise ParameterError(f"eta must be positive (infinity means no noise), got {eta!r}")
    noise = data_norm * 2.0 * _noise_quantile(noise_failure_probability, n_features) / eta
    pulled = noise + np.sqrt(noise**2 + 4.0 * regularization * LARGEST_PULL)
    return float(min(pulled / 2.0, noise + data_norm) / regularization)


def lipschitz_risk_constants(
    loss: Loss,
    failure_probability: float,
    noise_failure_probability: float,
    reach: float,
    n_features: int,
    targets: tuple[float, float] = (-1.0, 1.0),
) -> tuple[float, float]:
    r"""Return the (mu, sigma) of the risk ``mu * ||a|| + sigma / eta`` for any Lipschitz loss.

    Parameters
    ----------
    loss : Loss
    failure_probability, noise_failure_probability, n_features
        As for :func:`logistic_risk_constants`.
    reach : float
        Bound B on every prediction: that on the norm of the model times that on the rows.
    targets : pair of floats, default (-1, 1)
        Lowest and highest label.

    Returns
    -------
    mu, sigma : float
        In shares of wrong labels where the loss classifies, in units of the loss elsewhere.

    Notes
    -----
    With probability at least :math:`1-\delta-\delta'`, for all models within reach at once, if the
    weights were chosen without looking at the rows,

    .. math:: E\,\ell \le \sum_i a_i\ell_i + b'^\top w + \Big(2LB + D\sqrt{\tfrac12
        \ln\tfrac1\delta}\Big)\|a\| + \frac{2LBq}{\eta},

    where D is the range of the loss within reach and q as for the logistic loss. A wrong label has
    a loss of :math:`\ell(0)` at least, by which both are divided where the loss classifies.

    Examples
    --------
    >>> from convexmarket.learners import HuberLoss
    >>> mu, sigma = lipschitz_risk_constants(HuberLoss(), 0.05, 0.05, 1.0, 10)
    >>> round(mu, 3), round(sigma, 3)
    (3.836, 31.41)
    """
    check_share("failure_probability", failure_probability)
    check_positives(reach=reach)
    corners = np.array([-reach, -reach, reach, reach]), np.tile(targets, 2).astype(np.float64)
    values = loss.values(*corners)
    smallest = float(values.min()) if loss.classifies else 0.0
    unit = loss.at_zero if loss.classifies else 1.0
    pull = 2.0 * loss.lipschitz * reach
    mu = pull + (values.max() - smallest) * np.sqrt(np.log(1.0 / failure_probability) / 2.0)
    length = _noise_quantile(noise_failure_probability, n_features)
    return float(mu / unit), float(pull * length / unit)


def _noise_quantile(noise_failure_probability: float, n_features: int) -> float:
    """Compute the upper quantile of the norm of standard noise for a probability."""
    check_share("noise_failure_probability", noise_failure_probability)
    check_count("n_features", n_features)
    return float(gammainccinv(n_features, noise_failure_probability))
