"""The excess risk of logistic regression by objective perturbation, as a market sees it."""

from __future__ import annotations

import numpy as np
from scipy.special import gammainccinv

from convexmarket.arguments import as_float, check_share
from convexmarket.errors import ParameterError

__all__ = ["logistic_risk_constants"]


def logistic_risk_constants(
    failure_probability: float, noise_failure_probability: float, max_norm: float, n_features: int
) -> tuple[float, float]:
    r"""Return the (mu, sigma) of the excess risk ``mu * ||a|| + sigma / eta``.

    Parameters
    ----------
    failure_probability : float
        Of the concentration inequality, :math:`\delta` in (0, 1).
    noise_failure_probability : float
        Probability :math:`\delta'` that the noise is larger than assumed, in (0, 1).
    max_norm : float
        Bound :math:`\beta` on the norm of the model, positive. For rows bounded by ``data_norm``
        other than one, pass ``max_norm * data_norm``.
    n_features : int
        Dimension of the model, at least 1.

    Returns
    -------
    mu, sigma : float
        Weights of the spread of the weights and of the noise.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    Anjarlekar, Etesami and Srikant, Theorem II.4, as printed and with natural logarithms:
    :math:`\mu = \frac{3\ln(1/\delta)}{\sqrt2}\log(1+e^\beta) + \frac{\beta}{\ln 2}` and
    :math:`\sigma = (\frac{6\ln(1/\delta)}{\sqrt2} + 1)\,2\beta\,v^{-1}(\delta')`, where v is the
    survival function of a Gamma variable of shape n and scale 2. The proof has the square root of
    :math:`\ln(1/\delta)`, so the printed constants are safe for :math:`\delta \le 1/e` only.

    Examples
    --------
    >>> mu, sigma = logistic_risk_constants(0.05, 0.05, max_norm=1.0, n_features=10)
    >>> round(mu, 3), round(sigma, 3)
    (9.788, 861.262)
    """
    check_share("failure_probability", failure_probability)
    check_share("noise_failure_probability", noise_failure_probability)
    if not 0 < as_float(max_norm) < np.inf:
        raise ParameterError(f"max_norm must be positive and finite, not {max_norm!r}.")
    if not 1 <= as_float(n_features) < np.inf:
        raise ParameterError(f"n_features must be at least 1, not {n_features!r}.")
    concentration = 3.0 * np.log(1.0 / failure_probability) / np.sqrt(2.0)
    mu = concentration * np.logaddexp(0.0, max_norm) + max_norm / np.log(2.0)
    noise_quantile = 2.0 * gammainccinv(n_features, noise_failure_probability)
    sigma = (2.0 * concentration + 1.0) * 2.0 * max_norm * noise_quantile
    return float(mu), float(sigma)
