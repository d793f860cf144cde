r"""Ridge regression as arithmetic on arrays: the solve, and closed forms under noise.

A released model is :math:`\hat\theta = \bar\theta + Z`, with :math:`\bar\theta` the weighted ridge
solution. The test loss is a quadratic in Z, so its mean and standard deviation are closed forms.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from functools import partial, reduce
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from convexmarket.checks import (
    as_float,
    check_count,
    check_nonnegative,
    check_positives,
    check_share,
    checked_numbers,
)
from convexmarket.errors import ParameterError
from convexmarket.learners.partitioned_rows import PartedRows
from convexmarket.privacy.sensitivity import Sensitivity, ridge_sensitivity

__all__ = [
    "NoisyLoss",
    "RidgeErrorBound",
    "noisy_loss",
    "ridge_error_bound",
    "ridge_risk_constants",
    "row_sum",
    "solve_ridge",
]

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

CHUNK = 8192  # rows at a time, so that the weighted copy of the data stays small
# Below this share of the Gram matrix's trace, the normal equations lose too many digits.
WELL_CONDITIONED = 1e-7


def row_sum(X: Matrix | PartedRows, work: Callable[..., Matrix], *columns: Vector) -> Matrix:
    """Sum the values of a function over blocks of a few thousand rows and column entries.

    Sums of partitions are added exactly and rounded once, so no chain of roundings becomes longer.
    """
    if not isinstance(X, PartedRows):
        return _sum_of_chunks(work, X, *columns)
    sums = np.stack(X.each(partial(_sum_of_chunks, work), X.send(*columns)))
    return np.apply_along_axis(math.fsum, 0, sums)


def _sum_of_chunks(work: Callable[..., Matrix], X: Matrix, *columns: Vector) -> Matrix:
    chunks = [slice(start, start + CHUNK) for start in range(0, max(1, X.shape[0]), CHUNK)]
    parts = (work(X[rows], *(column[rows] for column in columns)) for rows in chunks)
    return reduce(operator.add, parts)


def _normal_equations(X: Matrix, y: Vector, root: Vector) -> Matrix:
    """Return the Gram matrix of weighted rows, and their moment as its last column."""
    weighted = X * root[:, None]
    return np.column_stack([weighted.T @ weighted, weighted.T @ (y * root)])


def solve_ridge(
    X: Matrix | PartedRows, y: Vector, weights: Vector, regularization: float
) -> Vector:
    r"""Minimise :math:`\sum_i w_i (y_i - x_i^\top\theta)^2 + \lambda\|\theta\|^2`.

    This is the closed form of PDP-OP, by a Cholesky factorisation of the smaller Gram matrix, or by
    orthogonal factorisation where squaring would cost digits.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features)
    y : ndarray of shape (n_rows,)
    weights : ndarray of shape (n_rows,)
        Nonnegative.
    regularization : float
        :math:`\lambda`, nonnegative; zero takes the solution of least norm.

    Returns
    -------
    ndarray of shape (n_features,)

    Examples
    --------
    >>> solve_ridge(np.eye(2), np.array([1.0, 1.0]), np.array([0.5, 0.5]), 0.5)
    array([0.5, 0.5])
    """
    n_rows, n_features = X.shape
    root = np.sqrt(weights)
    if n_rows < n_features:
        weighted = X[:] * root[:, None]
        gram = weighted @ weighted.T
    else:
        equations = row_sum(X, _normal_equations, y, root)
        gram, moment = equations[:, :-1].copy(), equations[:, -1]
    if regularization <= WELL_CONDITIONED * np.trace(gram):
        stacked = np.vstack([X[:] * root[:, None], np.sqrt(regularization) * np.eye(n_features)])
        target = np.concatenate([y * root, np.zeros(n_features)])
        return np.asarray(np.linalg.lstsq(stacked, target, rcond=None)[0])
    gram.flat[:: gram.shape[0] + 1] += regularization
    if n_rows < n_features:
        return np.asarray(weighted.T @ cho_solve(cho_factor(gram), y * root))
    return np.asarray(cho_solve(cho_factor(gram), moment))


class NoisyLoss(NamedTuple):
    """Expectation and standard deviation of the loss of a model released with noise."""

    mean: float
    std: float


def noisy_loss(
    theta: ArrayLike,
    rate: float,
    X: ArrayLike,
    y: ArrayLike,
    penalty: float = 0.0,
    step: float | None = None,
) -> NoisyLoss:
    r"""Compute the test loss of :math:`\hat\theta = \theta + Z`, exactly.

    Z has density proportional to :math:`e^{-\eta_z\|z\|}` with the rate :math:`\eta_z`; on a
    lattice of this step, each coordinate has probability proportional to :math:`e^{-\eta_z|z_j|}`.
    The loss :math:`\frac1n\sum_i(y_i - x_i^\top\hat\theta)^2 + \lambda\|\hat\theta\|^2`, with the
    penalty :math:`\lambda`, is a constant plus :math:`2q^\top Z + Z^\top HZ`. Odd moments of Z
    vanish, so its variance follows from :math:`E z_j^2`, :math:`E z_j^2z_k^2` and :math:`E z_j^4`.
    They are :math:`(d+1)/\eta_z^2`, and once and three times :math:`(d+1)(d+3)/\eta_z^4`. On the
    lattice, with :math:`r = e^{-\eta_z q}` for steps q, :math:`E z^2 = 2q^2r/(1-r)^2` and
    :math:`E z^4 = 2q^4r(1+10r+r^2)/(1-r)^4`, independently.
    """
    model, rows = np.asarray(theta, dtype=np.float64), np.asarray(X, dtype=np.float64)
    if step is not None:
        model = step * np.floor(model / step + 0.5)
    residual = np.asarray(y, dtype=np.float64) - rows @ model
    hessian = rows.T @ rows / residual.size + penalty * np.eye(model.size)
    slope = penalty * model - rows.T @ residual / residual.size
    centre = float(np.mean(residual**2) + penalty * model @ model)
    if np.isinf(rate):
        return NoisyLoss(centre, 0.0)
    d = model.size
    if step is None:
        second, mixed = (d + 1) / rate**2, (d + 1) * (d + 3) / rate**4
        fourth, spread = 3.0 * mixed, 2.0 * (d + 1) / rate**4
    else:
        r, left = np.exp(-rate * step), -np.expm1(-rate * step)
        second, spread = step**2 * 2.0 * r / left**2, 0.0
        mixed, fourth = second**2, step**4 * 2.0 * r * (1.0 + 10.0 * r + r * r) / left**4
    diagonal = np.diag(hessian)
    variance = 4.0 * second * slope @ slope + spread * diagonal.sum() ** 2
    variance += 2.0 * mixed * np.sum(hessian**2) + (fourth - 3.0 * mixed) * diagonal @ diagonal
    return NoisyLoss(float(centre + second * diagonal.sum()), float(np.sqrt(variance)))


class RidgeErrorBound(NamedTuple):
    r"""Three terms that bound :math:`\|\theta^* - \hat\theta\|` (Acharya et al., Theorem 3.6).

    They are those of the regularisation, of the noise for privacy, and of the labels' noise.
    """

    bias: float
    privacy: float
    labels: float

    @property
    def total(self) -> float:
        """The sum of the three terms."""
        return sum(self)


def ridge_error_bound(
    weights: ArrayLike,
    rate: float,
    regularization: float,
    *,
    n_features: int,
    coef_norm: float,
    label_noise: float,
    failure_probability: float,
    smallest_eigenvalue: float = 0.0,
) -> RidgeErrorBound:
    r"""Bound the distance between the released model and the true one.

    The bound holds with probability at least ``1 - failure_probability`` over the noise of labels
    and release, if :math:`y_i = x_i^\top\theta^* + e_i` with independent Gaussian :math:`e_i`.

    Parameters
    ----------
    weights : array_like of shape (n_rows,)
        Of the loss, summing to one.
    rate : float
        Rate of the noise; infinity means none.
    regularization, n_features, failure_probability : float, int, float
        :math:`\lambda`, d, and the chance.
    coef_norm, label_noise, smallest_eigenvalue : float
        Public: :math:`\|\theta^*\|` or a bound on it, the standard deviation of the :math:`e_i`,
        and a lower bound on the smallest eigenvalue of :math:`\sum w_i x_i x_i^\top`.

    Returns
    -------
    RidgeErrorBound

    Raises
    ------
    ParameterError
        If ``rate`` is not positive, or another argument is out of its range.

    Examples
    --------
    >>> bound = ridge_error_bound([0.5, 0.5], rate=100.0, regularization=1.0, n_features=2,
    ...                           coef_norm=1.0, label_noise=0.1, failure_probability=0.5,
    ...                           smallest_eigenvalue=1.0)
    >>> round(bound.bias, 4), round(bound.privacy, 4), round(bound.labels, 4)
    (0.5, 0.0483, 0.2)
    """
    array = checked_numbers("weights", weights)
    _check_risk(regularization, n_features, label_noise, failure_probability)
    check_nonnegative("coef_norm", coef_norm)
    check_nonnegative("smallest_eigenvalue", smallest_eigenvalue)
    if not as_float(rate) > 0:
        raise ParameterError(f"rate must be positive (infinity means no noise), got {rate!r}")
    deviation = np.sqrt(2.0 * n_features / failure_probability)
    return RidgeErrorBound(
        bias=float(coef_norm / (1.0 + smallest_eigenvalue / regularization)),
        privacy=float((n_features + deviation) / rate),
        labels=float(label_noise / regularization * deviation * np.linalg.norm(array)),
    )


def ridge_risk_constants(
    regularization: float,
    n_features: int,
    label_noise: float,
    failure_probability: float,
    max_norm: float | None = None,
    sensitivity: Sensitivity = "tight",
    *,
    exact: bool = False,
) -> tuple[float, float]:
    r"""Return the (mu, sigma) with which ridge regression enters a market.

    Theorem 3.6 of Acharya et al., bias apart, is ``mu * ||a|| + sigma / eta`` in the weights a and
    the total privacy eta: selling :math:`\varepsilon_i = a_i\eta` means noise of rate
    :math:`\eta/\kappa`.

    Parameters
    ----------
    regularization, n_features, label_noise, failure_probability
        As for :func:`ridge_error_bound`.
    max_norm, sensitivity
        As for :func:`~convexmarket.privacy.ridge_sensitivity`.
    exact : bool, default False
        Whether the noise is Laplace noise of a lattice in every coordinate: then sigma is
        :math:`\kappa\sqrt{d\,(2d + \sqrt{40d/\delta})}`, by Chebyshev's inequality for
        :math:`\|Z\|^2`, whose mean is 2d and whose variance 20d scales squared.

    Returns
    -------
    mu, sigma : float
        :math:`\frac{s}{\lambda}\sqrt{2d/\delta}` (s the label noise) and
        :math:`\kappa\,(d + \sqrt{2d/\delta})`, in units of the model's norm.

    Examples
    --------
    >>> mu, sigma = ridge_risk_constants(5.0, 12, label_noise=0.1, failure_probability=0.05)
    >>> round(mu, 3), round(sigma, 3)
    (0.438, 51.154)
    """
    _check_risk(regularization, n_features, label_noise, failure_probability)
    kappa = ridge_sensitivity(regularization, n_features, max_norm, sensitivity)
    deviation = np.sqrt(2.0 * n_features / failure_probability)
    length = n_features + deviation
    if exact:
        squared = 2.0 * n_features + np.sqrt(40.0 * n_features / failure_probability)
        length = np.sqrt(n_features * squared)
    return float(label_noise / regularization * deviation), float(kappa * length)


def _check_risk(
    regularization: float, n_features: int, label_noise: float, failure_probability: float
) -> None:
    check_positives(regularization=regularization)
    check_count("n_features", n_features)
    check_nonnegative("label_noise", label_noise)
    check_share("failure_probability", failure_probability)
