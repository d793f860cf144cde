"""The risk of a linear model with any Lipschitz loss, for a market."""

from __future__ import annotations

import numpy as np
from scipy.special import gammainccinv

from convexmarket.checks import check_count, check_positives, check_share
from convexmarket.learners.losses import Loss

__all__ = ["lipschitz_risk_constants"]


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
    failure_probability, noise_failure_probability : float
        :math:`\delta` and :math:`\delta'`, in (0, 1).
    reach : float
        Bound B on every prediction: that on the norm of the model times that on the rows.
    n_features : int
        Dimension n of the model, at least 1.
    targets : pair of floats, default (-1, 1)
        Lowest and highest label.

    Returns
    -------
    mu, sigma : float
        In shares of wrong labels where the loss classifies, in units of the loss elsewhere.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

    Notes
    -----
    With probability at least :math:`1-\delta-\delta'`, for all models within reach at once, if the
    weights were chosen without looking at the rows,

    .. math:: E\,\ell \le \sum_i a_i\ell_i + b'^\top w + \Big(2LB + D\sqrt{\tfrac12
        \ln\tfrac1\delta}\Big)\|a\| + \frac{2LBq}{\eta},

    where D is the range of the loss within reach and q the :math:`1-\delta'` quantile of a Gamma
    variable of shape n. A wrong label has a loss of :math:`\ell(0)` at least, by which both are
    divided where the loss classifies.

    Examples
    --------
    >>> from convexmarket.learners import HuberLoss
    >>> mu, sigma = lipschitz_risk_constants(HuberLoss(), 0.05, 0.05, 1.0, 10)
    >>> round(mu, 3), round(sigma, 3)
    (3.836, 31.41)
    """
    check_share("failure_probability", failure_probability)
    check_share("noise_failure_probability", noise_failure_probability)
    check_positives(reach=reach)
    check_count("n_features", n_features)
    corners = np.array([-reach, -reach, reach, reach]), np.tile(targets, 2).astype(np.float64)
    values = loss.values(*corners)
    smallest = float(values.min()) if loss.classifies else 0.0
    unit = loss.at_zero if loss.classifies else 1.0
    pull = 2.0 * loss.lipschitz * reach
    mu = pull + (values.max() - smallest) * np.sqrt(np.log(1.0 / failure_probability) / 2.0)
    length = float(gammainccinv(n_features, noise_failure_probability))
    return float(mu / unit), float(pull * length / unit)
