"""The exact density of a released model, for audits and attacks.

The noise for which w is the minimiser is the gradient of the noiseless objective at w, up to sign
and scale. So the density of w is that of this noise, times the determinant of the Hessian.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import aligned
from convexmarket.learners.losses import LogisticLoss, Loss
from convexmarket.learners.minimiser import PerturbedObjective
from convexmarket.privacy.noise import gamma_sphere_log_density

__all__ = ["objective_perturbation_log_density"]


def objective_perturbation_log_density(
    w: ArrayLike,
    X: ArrayLike,
    y: ArrayLike,
    weights: ArrayLike,
    eta: float,
    regularization: float,
    data_norm: float = 1.0,
    loss: Loss | None = None,
) -> float:
    r"""Compute the log density of the released model at w, given the data.

    The privacy loss at w between two data sets is the difference of two such values. The model is
    the exact minimiser, without a second noise (``solver_epsilon``).

    Parameters
    ----------
    w : array_like of shape (n_features,)
        Point of evaluation.
    X, y, weights : array_like of shapes (n_sellers, n_features), (n_sellers,), (n_sellers,)
        Rows of norm at most ``data_norm`` (not checked), labels as numbers, and weights a of the
        loss.
    eta, regularization, data_norm : float
        Parameter of the noise, Lambda and R; positive and finite.
    loss : Loss, optional
        Logistic by default.

    Returns
    -------
    float
        :math:`\log h(b(w)) + n\log\frac{\eta}{2LR} + \log\det J(w)`, in nats: h is the density of
        the noise, b(w) the noise vector for which w is the minimiser, and J the Hessian of the
        noiseless objective.

    Examples
    --------
    >>> data = dict(X=[[1.0], [0.5]], y=[1, -1], weights=[0.5, 0.5], eta=4.0, regularization=1.0)
    >>> round(objective_perturbation_log_density([0.0], **data), 6)
    -0.104818
    """
    X, y, weights = aligned(X=X, y=y, weights=weights)
    point, rows, labels, shares = (np.asarray(v, dtype=np.float64) for v in (w, X, y, weights))
    loss = LogisticLoss() if loss is None else loss
    none = np.zeros_like(point)
    objective = PerturbedObjective(rows, labels, shares, none, regularization, loss)
    per_unit = eta / (2.0 * loss.lipschitz * data_norm)
    noise_norm = per_unit * float(np.linalg.norm(objective.gradient(point)))
    log_volume = float(np.linalg.slogdet(objective.hessian(point))[1])
    n_features = point.size
    return (
        gamma_sphere_log_density(noise_norm, n_features)
        + n_features * float(np.log(per_unit))
        + log_volume
    )
