r"""Solve ridge regression, perturb its sums or its solution, and compute the expected loss.

**Output perturbation** (PDP-OP, Algorithm 1 of Acharya, Boenisch, Naidu and Ziani). Replacing row i
changes the weighted ridge solution by at most :math:`\kappa w_i`
(:func:`~convexmarket.privacy.sensitivity.ridge_sensitivity`). Noise of rate
:math:`\min_i \epsilon_i/(\kappa w_i)` is added to the solution.

**Perturbed statistics.** The model solves :math:`(A_+ + \lambda I)\theta = m`, where A is the noisy
matrix of second moments of the features, :math:`A_+` is the positive part of A, and m is the noisy
vector of cross moments of features and labels. Replacing row i changes the sums by at most
:math:`w_i` times :func:`statistics_sensitivity`.

The model or the sums are rounded to a lattice. Exact discrete noise is added, and its scale also
covers numerical errors. Proofs and error bounds are in docs/theory/ridge.md, section 7.4.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, reduce
from math import fsum, sqrt
from typing import Any, NamedTuple, TypeAlias

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
from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.learners.domain import Perturbation
from convexmarket.learners.minimiser import PartedRows
from convexmarket.privacy.composition import gaussian_shift
from convexmarket.privacy.lattice import (
    check_reach,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
)
from convexmarket.privacy.random_sources import gamma_sphere_noise
from convexmarket.privacy.sensitivity import Sensitivity, ridge_norm_bound, ridge_sensitivity

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

CHUNK = 8192  # number of rows of a block, which limits the memory for weighted copies of rows
# The normal equations are used if lambda exceeds this share of the Gram matrix's trace.
WELL_CONDITIONED = 1e-7
UNIT = 2.0**-53
SMALL_CHAIN = 10  # number of roundings of an entry, without the roundings in sums
NORM_SLACK = 1.01  # ratio of a computed model's norm to the bound on the exact norm
UPWARD = 1.0 + 1e-9  # factor that covers rounding errors in a formula
FINE = 1000
LARGEST = 1.01  # bound on the entries of the sums, if the weights sum to one
#: Difference of the squared scales of discrete and continuous noise, in steps (docs/theory.md).
NARROWER = 9.0

EXACT = (
    "arithmetic follows IEEE 754, rounding to nearest; the noise is exact, and covers a rounding"
    " error of at most {:.2g}"
)
REAL = "noise and coefficients, computed in double precision, are treated as real numbers"


def row_sum(X: Matrix | PartedRows, work: Callable[..., Matrix], *columns: Vector) -> Matrix:
    """Sum the results of a function over blocks of a few thousand rows.

    The sums of several partitions are added exactly, and the total is rounded once.
    """
    if not isinstance(X, PartedRows):
        return _sum_of_chunks(work, X, *columns)
    sums = np.stack(X.each(partial(_sum_of_chunks, work), X.send(*columns)))
    return np.apply_along_axis(fsum, 0, sums)


def _sum_of_chunks(work: Callable[..., Matrix], X: Matrix, *columns: Vector) -> Matrix:
    chunks = [slice(start, start + CHUNK) for start in range(0, max(1, X.shape[0]), CHUNK)]
    parts = (work(X[rows], *(column[rows] for column in columns)) for rows in chunks)
    return reduce(operator.add, parts)


def _moments(X: Matrix, y: Vector, weights: Vector) -> Matrix:
    weighed = (weights[:, None] * X).T
    return np.column_stack([weighed @ X, weighed @ y])


def solve_ridge(
    X: Matrix | PartedRows, y: Vector, weights: Vector, regularization: float
) -> Vector:
    r"""Minimise :math:`\sum_i w_i (y_i - x_i^\top\theta)^2 + \lambda\|\theta\|^2`.

    The normal equations are solved by a Cholesky factorisation or, if they are ill-conditioned, by
    an orthogonal factorisation.

    Parameters
    ----------
    X, y, weights : ndarrays of shapes (n_rows, n_features), (n_rows,) and (n_rows,)
    regularization : float
        Nonnegative :math:`\lambda`. If zero, the solution of least norm is returned.

    Returns
    -------
    ndarray of shape (n_features,)

    Examples
    --------
    >>> solve_ridge(np.eye(2), np.array([1.0, 1.0]), np.array([0.5, 0.5]), 0.5)
    array([0.5, 0.5])
    """
    n_rows, n_features = X.shape
    if n_rows >= n_features:
        moments = row_sum(X, _moments, y, weights)
        gram, moment = moments[:, :-1].copy(), moments[:, -1]
        if regularization > WELL_CONDITIONED * np.trace(gram):
            gram.flat[:: n_features + 1] += regularization
            return np.asarray(cho_solve(cho_factor(gram), moment))
    root = np.sqrt(weights)
    stacked = np.vstack([X[:] * root[:, None], np.sqrt(regularization) * np.eye(n_features)])
    target = np.concatenate([y * root, np.zeros(n_features)])
    return np.asarray(np.linalg.lstsq(stacked, target, rcond=None)[0])


class NoisyLoss(NamedTuple):
    """Expectation and standard deviation of the loss of a model with noise."""

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
    r"""Compute the mean and deviation of the test loss of :math:`\hat\theta = \theta + Z`.

    The loss is a constant plus :math:`2q^\top Z + Z^\top HZ`. The odd moments of Z are zero. For a
    density proportional to :math:`e^{-\eta\|z\|}`, :math:`E z_j^2 = (d+1)/\eta^2`,
    :math:`E z_i^2 z_j^2 = (d+1)(d+3)/\eta^4` for distinct coordinates, and :math:`E z_j^4` is three
    times this value. On a lattice of step q, the coordinates are independent. With
    :math:`r = e^{-\eta q}`, :math:`E z^2 = 2q^2r/(1-r)^2` and
    :math:`E z^4 = 2q^4r(1+10r+r^2)/(1-r)^4`.
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
    r"""Bounds on the effects of regularisation, privacy and label noise (R, Theorem 3.6)."""

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
    r"""Bound the distance between the released model and the true model.

    The bound holds with probability at least ``1 - failure_probability`` over the draws of noise if
    :math:`y_i = x_i^\top\theta^* + e_i` with independent Gaussian :math:`e_i`.

    Parameters
    ----------
    weights, rate, regularization, n_features, failure_probability
        Weights of the rows, which sum to one, and rate of the noise (infinite without noise).
    coef_norm, label_noise, smallest_eigenvalue : float
        Public bound on :math:`\|\theta^*\|`, standard deviation of the :math:`e_i`, and lower bound
        on the smallest eigenvalue of :math:`\sum w_i x_i x_i^\top`.

    Returns
    -------
    RidgeErrorBound

    Raises
    ------
    ParameterError
        If an argument is out of range.

    Examples
    --------
    >>> bound = ridge_error_bound([0.5, 0.5], rate=100.0, regularization=1.0, n_features=2,
    ...                           coef_norm=1.0, label_noise=0.1, failure_probability=0.5)
    >>> round(bound.bias, 4), round(bound.privacy, 4), round(bound.labels, 4)
    (1.0, 0.0483, 0.2)
    """
    labels, length = _risk(regularization, n_features, label_noise, failure_probability)
    check_nonnegative("coef_norm", coef_norm)
    check_nonnegative("smallest_eigenvalue", smallest_eigenvalue)
    if not as_float(rate) > 0:
        raise ParameterError(f"rate must be positive (infinity means no noise), got {rate!r}")
    return RidgeErrorBound(
        bias=float(coef_norm / (1.0 + smallest_eigenvalue / regularization)),
        privacy=float(length / rate),
        labels=float(labels * np.linalg.norm(checked_numbers("weights", weights))),
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
    r"""Compute the weights (mu, sigma) of ridge regression in the objective of a market.

    The bound of Theorem 3.6 of Acharya et al., without bias, is ``mu * ||a|| + sigma / eta`` in
    units of the norm of the model, because the rate of the noise is :math:`\eta/\kappa` for
    epsilons :math:`\varepsilon_i = a_i\eta`. Here :math:`\mu = \frac{s}{\lambda}\sqrt{2d/\delta}`,
    where s is the label noise, and :math:`\sigma = \kappa\,(d + \sqrt{2d/\delta})`.

    Parameters
    ----------
    regularization, n_features, label_noise, failure_probability
        See :func:`ridge_error_bound`.
    max_norm, sensitivity
        See :func:`~convexmarket.privacy.sensitivity.ridge_sensitivity`.
    exact : bool, default False
        Whether the noise is exact Laplace noise on a lattice. In this case, sigma is
        :math:`\kappa\sqrt{d\,(2d + \sqrt{40d/\delta})}`, by Chebyshev's inequality.

    Returns
    -------
    mu, sigma : float

    Examples
    --------
    >>> mu, sigma = ridge_risk_constants(5.0, 12, label_noise=0.1, failure_probability=0.05)
    >>> round(mu, 3), round(sigma, 3)
    (0.438, 51.154)
    """
    mu, length = _risk(regularization, n_features, label_noise, failure_probability)
    if exact:
        length = sqrt(n_features) * noise_length(n_features, failure_probability)
    kappa = ridge_sensitivity(regularization, n_features, max_norm, sensitivity)
    return mu, float(kappa * length)


def noise_length(count: int, failure_probability: float) -> float:
    """Bound the norm of a vector of Laplace noise of scale 1 by Chebyshev's inequality."""
    return sqrt(2.0 * count + sqrt(40.0 * count / failure_probability))


def _risk(
    regularization: float, n_features: int, label_noise: float, failure_probability: float
) -> tuple[float, float]:
    check_positives(regularization=regularization)
    check_count("n_features", n_features)
    check_nonnegative("label_noise", label_noise)
    check_share("failure_probability", failure_probability)
    deviation = sqrt(2.0 * n_features / failure_probability)
    return label_noise / regularization * deviation, n_features + deviation


class SolveError(NamedTuple):
    """Conditions that a computed ridge solution must satisfy, and the resulting error bound."""

    residual: float  # largest residual that is accepted
    norm: float  # largest norm that is accepted
    distance: float


def solve_error(n_rows: int, n_features: int, regularization: float) -> SolveError:
    """Bound the numerical error of a ridge solution for rows in the unit box."""
    d, root = n_features, sqrt(n_features)
    if n_rows < d:
        raise NotSupportedError(
            f"rounding needs at least as many rows as features, but there are {n_rows} rows of "
            f"{d} features; use rounding=None, with floating-point noise"
        )
    norm = NORM_SLACK * ridge_norm_bound(regularization, d)
    chain = _chain(n_rows) + d + SMALL_CHAIN
    solve = (
        d * chain + (3 * d + 1) * d * (1 + regularization) + 1 + regularization
    ) * norm + root * chain
    measure = root * chain * (1.0 + root * norm + regularization * norm)
    distance = 2.0 * UNIT * (solve + 2.0 * measure) / regularization
    if regularization < 1.01 * WELL_CONDITIONED * d or distance > (NORM_SLACK - 1.0) / 2.0 * norm:
        raise NotSupportedError(
            f"regularization = {regularization:g} is too small for {d} features to bound the error "
            "of the solve in double precision; use a larger value, or rounding=None"
        )
    return SolveError(2.0 * UNIT * (solve + measure), norm, distance)


class OutputPerturbation(Perturbation):
    """Perturbation of a ridge regression by noise that is added to the model."""

    rate = np.inf  # rate of the noise; on a lattice, rate of each coordinate
    step: float | None = None  # step of the lattice; None for floating-point noise
    scale = 1  # scale of the lattice noise, in steps
    error: SolveError | None = None  # error that the lattice noise covers

    def __init__(
        self,
        weights: Vector,
        sold: Vector,
        regularization: float,
        n_features: int,
        *,
        rounding: float | str | None,
        max_norm: float | None,
        sensitivity: Sensitivity,
    ) -> None:
        used, terms = weights > 0, (n_features, max_norm, sensitivity)
        self.weights, self.regularization = weights, regularization
        self.accounting, self.name = f"{sensitivity} sensitivity", "by output perturbation"
        self.noisy = not np.isinf(sold[used]).all()
        if self.noisy and rounding is not None:
            try:
                self.error = solve_error(weights.size, n_features, regularization)
            except NotSupportedError:
                if rounding != "auto":
                    raise
        self.exact, limits = self.error is not None, REAL
        if self.error is not None:
            total = max(1.0, fsum(weights) * UPWARD)  # W: the weights w/W sum to at most one
            kappa = ridge_sensitivity(regularization / total, *terms) / total * UPWARD
            moved = np.where(used, kappa * weights + 2.0 * self.error.distance, 0.0)
            shift = sqrt(n_features) * moved * UPWARD
            given = None if isinstance(rounding, str) else rounding
            lattice = _lattice(shift, sold, n_features, self.error.norm, given)
            self.step, self.scale, self.epsilon = lattice
            self.rate = 1.0 / (self.scale * self.step)
            self.name += f", exact noise on a lattice of step {self.step:g}"
            limits = EXACT.format(self.error.distance)
        elif self.noisy:
            kappa = ridge_sensitivity(regularization, *terms)
            self.rate = float(np.min(sold[used] / weights[used])) / kappa
            self.epsilon = np.minimum(weights * kappa * self.rate, sold)
            self.name += ", noise in plain floating point"
        else:
            self.epsilon = np.where(used, np.inf, 0.0)
        self.assumptions = (limits,)
        if max_norm is not None:
            public = (
                f"the minimiser without regularisation has norm at most {max_norm:g} on this data "
                "set and on all its neighbours, and this bound is public"
            )
            self.assumptions = (public, limits)

    def solve(self, X: Vector | PartedRows, y: Vector) -> Vector:
        """Solve the ridge regression, or raise a SolverError if its error exceeds the bound."""
        model = solve_ridge(X, y, self.weights, self.regularization)
        if self.error is None:
            return model
        misfit = row_sum(X, partial(_misfit, model), y, self.weights)
        left = np.linalg.norm(misfit - self.regularization * model)
        if not (left <= self.error.residual and np.linalg.norm(model) <= self.error.norm):
            raise SolverError(
                f"the residual of the ridge solution exceeds {self.error.residual:.3g}, the limit "
                "of double precision: the linear algebra of this machine is too inaccurate for "
                "rounding=. Use a larger regularization, or rounding=None"
            )
        return model

    def release(
        self, X: Vector | PartedRows, y: Vector, rng: np.random.Generator
    ) -> tuple[Vector, dict[str, Any]]:
        """Compute the noisy model and its fitted attributes."""
        model = self.solve(X, y)
        if self.step is not None:
            model = lattice_release(model, self.step, self.scale, rng)
        elif self.noisy:
            model = model + gamma_sphere_noise(model.size, rng) / self.rate
        return model, _fitted(self.rate, self.regularization, self.step)

    def noise_effect(self, second: Vector) -> float:
        """Compute the standard deviation of the noise in a prediction."""
        square = 2.0 if self.exact else second.size + 1.0
        return float(np.sqrt(square * second.sum()) / self.rate)


def statistics_sensitivity(n_features: int, *, centred: bool, order: int = 1) -> float:
    r"""Bound the change of the statistics if a row of weight one is replaced.

    Without an intercept, the bound is :math:`\frac{d(d+1)}2 + \frac{5d}4` in L1. With an intercept,
    features are centred, and the sharp bounds are :math:`\frac{d^2}8 + \frac{9d}8 + 2` in L1 and
    :math:`\sqrt{\frac14\lfloor d^2/4\rfloor + d + 4}` in L2.
    """
    d = n_features
    if order == 2:
        return sqrt((d * d // 4) / 4.0 + d + 4.0)
    return d * d / 8.0 + 9.0 * d / 8.0 + 2.0 if centred else d * (d + 1) / 2.0 + 1.25 * d


class StatisticsPerturbation(Perturbation):
    """Perturbation of the sums over rows by noise. If ``centred``, the last feature is 1."""

    def __init__(
        self,
        weights: Vector,
        sold: Vector,
        regularization: float,
        n_features: int,
        *,
        centred: bool,
        delta: float,
    ) -> None:
        count = n_features * (n_features + 3) // 2 + (n_features + 1) * centred
        error = 2.0 * UNIT * (_chain(weights.size) + 4)  # bound on the rounding error of an entry
        if delta and not centred:
            raise ParameterError("delta > 0 needs an intercept; pass fit_intercept=True or delta=0")
        kappa = statistics_sensitivity(n_features, centred=centred, order=2 if delta else 1)
        moved = kappa * weights + 2.0 * (sqrt(count) if delta else count) * error
        shift, used = np.where(weights > 0, moved * UPWARD, 0.0), weights > 0
        self.weights, self.regularization, self.centred = weights, regularization, centred
        self.delta, law, self.accounting = delta, "noise", "tight sensitivity"
        if delta:
            asking = used & np.isfinite(sold)
            allowed = np.asarray(gaussian_shift(sold[asking], delta))
            least = float(np.max(shift[asking] / allowed)) * min(1.0, float(allowed.min()))
            self.step = lattice_step(max(least / (FINE * count), LARGEST * 2.0**-48))
            check_reach(LARGEST, self.step)
            # On each of two data sets, rounding changes an entry by at most half a step.
            steps = np.where(used, shift / self.step + sqrt(count), 0.0)
            largest = float(np.max(steps[asking] / allowed))
            self.scale = int(np.ceil(np.sqrt(largest**2 * UPWARD + NARROWER)))  # in steps
            self.epsilon = np.where(used, sold, 0.0)
            self.shift = steps / np.sqrt(self.scale**2 - NARROWER)
            law, self.accounting = "Gaussian noise", "Gaussian"
        else:
            self.step, self.scale, self.epsilon = _lattice(shift, sold, count, LARGEST, None)
        self.name = f"from perturbed statistics, exact {law} on a lattice of step {self.step:g}"
        self.assumptions = (EXACT.format(error),)

    def sums(self, X: Vector | PartedRows, y: Vector) -> Vector:
        """Compute the upper triangle of second moments, followed by cross moments with labels."""
        sums = row_sum(X, _moments, y, self.weights)
        triangle = sums[np.triu_indices(X.shape[1])]
        return np.append(triangle[: triangle.size - self.centred], sums[:, -1])

    def release(
        self, X: Vector | PartedRows, y: Vector, rng: np.random.Generator
    ) -> tuple[Vector, dict[str, Any]]:
        """Solve the noisy equations, and return the model and its fitted attributes."""
        d = X.shape[1]
        sums = self.sums(X, y)
        noisy = lattice_release(sums, self.step, self.scale, rng, gaussian=self.delta > 0)
        second = np.zeros((d, d))
        corner = np.ones(1) if self.centred else np.zeros(0)
        second[np.triu_indices(d)] = np.append(noisy[:-d], corner)
        values, vectors = np.linalg.eigh(second, UPLO="U")
        scaled = (vectors.T @ noisy[-d:]) / (np.maximum(values, 0.0) + self.regularization)
        rate = 1.0 / (self.scale * self.step)
        return np.asarray(vectors @ scaled), _fitted(rate, self.regularization, self.step)

    def noise_effect(self, second: Vector) -> float:
        """Compute the standard deviation of the noise in a prediction."""
        deviation = self.scale * self.step * (1.0 if self.delta else sqrt(2.0))
        # The noise in the gradient is computed at a model of norm 1.
        effect = np.sqrt(np.sum(second / (second + self.regularization) ** 2))
        return float(deviation * sqrt(2.0) * effect)


def _fitted(rate: float, regularization: float, step: float | None) -> dict[str, Any]:
    return {"noise_rate_": rate, "regularization_": regularization, "rounding_": step}


def _lattice(
    shift: Vector, sold: Vector, count: int, largest: float, rounding: float | None
) -> tuple[float, int, Vector]:
    """Choose the lattice step and the noise scale, and compute the privacy losses.

    With the default step, the noise scale is at least ``FINE * count`` steps. If a row is replaced,
    rounding adds at most ``count`` steps to the change in L1.
    """
    if rounding is None:
        exposed = (shift > 0) & np.isfinite(sold)
        granted = sold[exposed]
        scale = float(np.max(shift[exposed] / granted))
        wanted = scale * min(1.0, float(granted.min())) / (FINE * count)
        rounding = max(wanted, scale * 2.0**-40, largest * 2.0**-48)
    step = lattice_step(rounding)
    check_reach(largest, step)
    moves = lattice_moves(shift, step, count)
    whole = lattice_scale(moves, sold)
    return step, whole, np.minimum(lattice_epsilon(moves, whole), sold)


def _chain(n_rows: int) -> int:
    return min(n_rows, CHUNK) + -(-n_rows // CHUNK)


def _misfit(model: Vector, X: Vector, y: Vector, weights: Vector) -> Vector:
    return np.asarray(X.T @ (weights * (y - X @ model)))
