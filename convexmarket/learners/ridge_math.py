r"""Ridge regression by output perturbation, as arithmetic on arrays.

The released model is :math:`\hat\theta = \bar\theta + Z`, with :math:`\bar\theta` the weighted
ridge solution and :math:`Z` of density proportional to :math:`e^{-\eta_z\|z\|}` (Algorithm 1 of
Acharya et al.). The test loss is a quadratic in Z, whose radius and direction are independent with
known moments, so its mean and its standard deviation over the noise are closed forms.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve

from convexmarket.checks import as_float, check_nonnegative, check_share, checked_numbers
from convexmarket.errors import ParameterError
from convexmarket.learners.parted import PartedRows
from convexmarket.privacy.sensitivity import Sensitivity, ridge_sensitivity

__all__ = [
    "NoisyLoss",
    "RidgeErrorBound",
    "chunks",
    "lattice_loss",
    "noise_moments",
    "noise_rate",
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
    """Return the sum of what the work gives for a few thousand rows at a time.

    Rows in partitions are summed where they are, in one pass. No chain of roundings becomes longer
    by that: sums of partitions are added exactly, and rounded once.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_features), or PartedRows
    work : callable
        From some rows, and their part of each column, to a new array of a shape that does not
        depend on how many they are. Sent to the partitions.
    *columns : ndarray of shape (n_rows,)

    Returns
    -------
    ndarray
        Of the shape that the work gives.

    Raises
    ------
    DataError
        If rows in a partition are not what the learner wants.
    """
    if not isinstance(X, PartedRows):
        return _sum_of_chunks(work, X, *columns)
    sums = np.stack(X.each(partial(_sum_of_chunks, work), X.send(*columns)))
    return np.apply_along_axis(math.fsum, 0, sums)


def _sum_of_chunks(work: Callable[..., Matrix], X: Matrix, *columns: Vector) -> Matrix:
    sums = (
        work(X[rows], *(column[rows] for column in columns)) for rows in chunks(max(1, X.shape[0]))
    )
    total = next(sums)
    for one in sums:
        total += one
    return total


def _normal_equations(X: Matrix, y: Vector, root: Vector) -> Matrix:
    """Return the Gram matrix of weighted rows, and their moment as its last column."""
    weighted = X * root[:, None]
    return np.column_stack([weighted.T @ weighted, weighted.T @ (y * root)])


def solve_ridge(
    X: Matrix | PartedRows, y: Vector, weights: Vector, regularization: float
) -> Vector:
    r"""Minimise :math:`\sum_i w_i (y_i - x_i^\top\theta)^2 + \lambda\|\theta\|^2`.

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

    Raises
    ------
    NotSupportedError
        If rows in partitions need an orthogonal factorisation, which is for memory.

    Notes
    -----
    A Cholesky factorisation of the smaller of the two Gram matrices, built from a few thousand
    rows at a time; orthogonal factorisations where it is so small that squaring would cost
    digits.

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


def chunks(n_rows: int) -> Iterator[slice]:
    """Split the rows into slices that fit the cache."""
    return (slice(start, start + CHUNK) for start in range(0, n_rows, CHUNK))


def noise_rate(weights: ArrayLike, epsilon: ArrayLike, kappa: float) -> float:
    r"""Return the largest rate of the noise that keeps every row's guarantee.

    Parameters
    ----------
    weights, epsilon : array_like of shape (n_rows,)
        Weights of the loss and guarantees; infinite guarantees are allowed.
    kappa : float
        How far a row moves the model, per unit of weight.

    Returns
    -------
    float
        :math:`\min_i \varepsilon_i / (\kappa w_i)` over the rows with a positive weight, in
        units of 1 / model; infinity means no noise. For weights proportional to epsilon it is
        ``sum(epsilon) / kappa`` (Acharya et al., Theorem 3.2).

    Raises
    ------
    ParameterError
        If finite guarantees are so large that their noise is below the smallest float.

    Examples
    --------
    >>> noise_rate([0.25, 0.75], [0.25, 0.75], kappa=2.0)
    0.5
    """
    weights, epsilon = np.asarray(weights, dtype=float), np.asarray(epsilon, dtype=float)
    used = weights > 0
    with np.errstate(over="ignore"):
        rate = float(np.min(epsilon[used] / weights[used]) / kappa)
    if rate == np.inf and np.isfinite(epsilon[used]).any():
        raise ParameterError(
            f"epsilon is up to {epsilon[used].max():g}, and the noise for it is below the smallest "
            "float; give smaller guarantees, or infinity for no privacy"
        )
    return rate


@dataclass(frozen=True)
class NoisyLoss:
    """The loss of a model released with noise, over that noise.

    Attributes
    ----------
    mean : float
        Expectation.
    std : float
        Standard deviation; zero without noise.
    simulation_error : float
        Standard error of ``mean`` where a part of it was simulated, otherwise zero.
    """

    mean: float
    std: float
    simulation_error: float = 0.0


def noisy_loss(
    theta: ArrayLike, rate: float, X: ArrayLike, y: ArrayLike, penalty: float = 0.0
) -> NoisyLoss:
    r"""Mean and standard deviation of the loss of :math:`\theta + Z`, exactly.

    Parameters
    ----------
    theta : array_like of shape (n_features,)
        The model before the noise.
    rate : float
        :math:`\eta_z`: Z has density proportional to :math:`e^{-\eta_z\|z\|}`. Positive; infinity
        means no noise.
    X, y : array_like of shape (n_rows, n_features) and (n_rows,)
        Test rows.
    penalty : float, default 0
        :math:`\lambda` of the regularised loss, 0 for the mean squared error.

    Returns
    -------
    NoisyLoss
        Of :math:`\frac1n\sum_i(y_i - x_i^\top\hat\theta)^2 + \lambda\|\hat\theta\|^2`.

    Notes
    -----
    With :math:`R = \|Z\|`, :math:`E R^2 = d(d+1)/\eta_z^2` and
    :math:`E R^4 = d(d+1)(d+2)(d+3)/\eta_z^4`; on the sphere :math:`E\,u^\top H u = tr(H)/d` and
    :math:`E (u^\top H u)^2 = (tr(H)^2 + 2 tr(H^2))/(d(d+2))`. Odd moments vanish.

    Examples
    --------
    >>> loss = noisy_loss([0.0], rate=2.0, X=[[1.0]], y=[1.0])
    >>> loss.mean, round(loss.std, 4)
    (1.5, 1.8028)
    """
    model = np.asarray(theta, dtype=np.float64)
    centre, hessian, slope = _quadratic(model, X, y, penalty)
    if np.isinf(rate):
        return NoisyLoss(centre, 0.0)
    added, variance = noise_moments(
        rate, np.trace(hessian), np.sum(hessian**2), slope @ slope, model.size
    )
    return NoisyLoss(float(centre + added), float(np.sqrt(variance)))


def lattice_loss(
    theta: ArrayLike, scale: int, step: float, X: ArrayLike, y: ArrayLike, penalty: float = 0.0
) -> NoisyLoss:
    r"""Mean and standard deviation of the loss under exact noise on a lattice, exactly.

    Parameters
    ----------
    theta : array_like of shape (n_features,)
        The model before it is rounded.
    scale : int
        t: each coordinate's noise is z steps with probability proportional to :math:`e^{-|z|/t}`.
    step : float
    X, y, penalty
        As for :func:`noisy_loss`.

    Returns
    -------
    NoisyLoss

    Notes
    -----
    With :math:`r = e^{-1/t}`, :math:`E z^2 = 2r/(1-r)^2` and
    :math:`E z^4 = 2r(1+10r+r^2)/(1-r)^4`; odd moments vanish.

    Examples
    --------
    >>> loss = lattice_loss([0.0], 1000, 0.001, X=[[1.0]], y=[1.0])
    >>> round(loss.mean, 4), round(loss.std, 4)
    (3.0, 5.2915)
    """
    model = step * np.floor(np.asarray(theta, dtype=np.float64) / step + 0.5)
    centre, hessian, slope = _quadratic(model, X, y, penalty)
    r, left = np.exp(-1.0 / scale), -np.expm1(-1.0 / scale)
    second = step**2 * 2.0 * r / left**2
    fourth = step**4 * 2.0 * r * (1.0 + 10.0 * r + r * r) / left**4
    diagonal = np.diag(hessian)
    variance = 4.0 * second * slope @ slope + 2.0 * second**2 * np.sum(hessian**2)
    variance += (fourth - 3.0 * second**2) * diagonal @ diagonal
    return NoisyLoss(float(centre + second * diagonal.sum()), float(np.sqrt(variance)))


def _quadratic(
    model: Vector, X: ArrayLike, y: ArrayLike, penalty: float
) -> tuple[float, Matrix, Vector]:
    """Return the loss, H and q: noise Z adds ``2 q'Z + Z'HZ`` to it."""
    rows = np.asarray(X, dtype=np.float64)
    residual = np.asarray(y, dtype=np.float64) - rows @ model
    hessian = rows.T @ rows / residual.size + penalty * np.eye(model.size)
    slope = penalty * model - rows.T @ residual / residual.size
    return float(np.mean(residual**2) + penalty * model @ model), hessian, slope


def noise_moments(
    rate: ArrayLike, trace: ArrayLike, square: ArrayLike, slope: ArrayLike, n_features: int
) -> tuple[Vector, Vector]:
    r"""Return the mean and the variance of :math:`2 q^\top Z + Z^\top H Z`, elementwise.

    Parameters
    ----------
    rate : array_like
        Rates of the noise.
    trace, square, slope : array_like
        :math:`tr(H)`, :math:`tr(H^2)` and :math:`\|q\|^2`.
    n_features : int
        d.

    Returns
    -------
    mean, variance : ndarray
    """
    d, rate, trace = n_features, np.asarray(rate), np.asarray(trace)
    second = (d + 1) / rate**2  # E R^2 / d
    fourth = (d + 1) * (d + 3) / rate**4  # E R^4 / (d (d + 2))
    # E[q^2] - E[q]^2 for the quadratic, with the difference of the trace terms taken by hand.
    variance = 2.0 * fourth * np.asarray(square) + 2.0 * (d + 1) / rate**4 * trace**2
    return second * trace, variance + 4.0 * second * np.asarray(slope)


@dataclass(frozen=True)
class RidgeErrorBound:
    r"""The three terms that bound :math:`\|\theta^* - \hat\theta\|` (Acharya et al., Theorem 3.6).

    Attributes
    ----------
    bias : float
        Of the regularisation.
    privacy : float
        Of the noise added for privacy.
    labels : float
        Of the noise in the labels.
    """

    bias: float
    privacy: float
    labels: float

    @property
    def total(self) -> float:
        """The sum of the three."""
        return self.bias + self.privacy + self.labels


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

    Holds with probability at least ``1 - failure_probability`` over the noise of the labels and of
    the release, if :math:`y_i = x_i^\top\theta^* + e_i` with independent Gaussian :math:`e_i`.

    Parameters
    ----------
    weights : array_like of shape (n_rows,)
        Of the loss, summing to one.
    rate : float
        Rate of the noise; infinity means none.
    regularization : float
        :math:`\lambda`, positive.
    n_features : int
        d.
    coef_norm : float
        :math:`\|\theta^*\|`, or a public bound on it; nonnegative.
    label_noise : float
        Standard deviation of the :math:`e_i`, nonnegative.
    failure_probability : float
        In (0, 1).
    smallest_eigenvalue : float, default 0
        Of :math:`\sum w_i x_i x_i^\top`, or a public lower bound on it; nonnegative. It depends on
        the private rows, so it is an argument and never read from them.

    Returns
    -------
    RidgeErrorBound

    Raises
    ------
    ParameterError
        If an argument is out of its range.

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
    for name, value in (("coef_norm", coef_norm), ("smallest_eigenvalue", smallest_eigenvalue)):
        check_nonnegative(name, value)
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

    Theorem 3.6 of Acharya et al., bias apart (it does not depend on what is bought), is
    ``mu * ||a|| + sigma / eta`` in the weights a and the total privacy eta that is sold, because
    selling :math:`\varepsilon_i = a_i\eta` means noise of rate :math:`\eta/\kappa`.

    Parameters
    ----------
    regularization : float
        :math:`\lambda`, positive.
    n_features : int
        d.
    label_noise : float
        Standard deviation of the labels' noise, public, nonnegative.
    failure_probability : float
        Chance that the bound fails, in (0, 1).
    max_norm, sensitivity
        As for :func:`~convexmarket.privacy.ridge_sensitivity`.
    exact : bool, default False
        Whether the noise is that of a lattice, Laplace noise in every coordinate: then sigma is
        :math:`\kappa\sqrt{d\,(2d + \sqrt{40d/\delta})}`, by Chebyshev's inequality for
        :math:`\|Z\|^2`, whose mean is 2d and whose variance 20d scales squared.

    Returns
    -------
    mu, sigma : float
        :math:`\frac{s}{\lambda}\sqrt{2d/\delta}` (s the label noise) and
        :math:`\kappa\,(d + \sqrt{2d/\delta})`, in units of the model's norm.

    Raises
    ------
    ParameterError
        If an argument is out of its range.

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
        length = np.sqrt(
            n_features * (2.0 * n_features + np.sqrt(40.0 * n_features / failure_probability))
        )
    return float(label_noise / regularization * deviation), float(kappa * length)


def _check_risk(
    regularization: float, n_features: int, label_noise: float, failure_probability: float
) -> None:
    if not 0 < as_float(regularization) < np.inf:
        raise ParameterError(f"regularization must be positive and finite, got {regularization!r}")
    if not 1 <= as_float(n_features) < np.inf:
        raise ParameterError(f"n_features must be at least 1, got {n_features!r}")
    check_nonnegative("label_noise", label_noise)
    check_share("failure_probability", failure_probability)
