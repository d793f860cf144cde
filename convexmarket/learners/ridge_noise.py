r"""Two perturbations of ridge regression: of the model, and of the sums that it is computed from.

**Output perturbation** (PDP-OP, Algorithm 1 of Acharya, Boenisch, Naidu and Ziani). The weighted
ridge solution moves by at most :math:`\kappa w_i` when row i is replaced
(:func:`~convexmarket.privacy.ridge_sensitivity`), and noise of rate
:math:`\min_i \epsilon_i/(\kappa w_i)` is added to it.

**Perturbed statistics.** Released are noisy sums: the second moments of the features and their
moments with the labels. The model solves :math:`(A_+ + \lambda I)\theta = m` with the positive part
of A, which costs nothing more. Replacing row i changes the sums by at most :math:`w_i\kappa` in L1.
For features in [0, 1], labels in [-1, 1] and no intercept,

.. math:: \kappa = \frac{d(d+1)}2 + \frac{5d}4 .

*Proof.* An entry off the diagonal changes by at most 1. Feature j with values :math:`u \ge v`
changes a diagonal entry and one of m by at most :math:`u^2 - v^2 + u + v \le \frac94` in sum.
:math:`\blacksquare`

With an intercept, features are centred: :math:`u_j = x_j - \frac12`, and the sums are those of
:math:`u_ju_k` for :math:`j \le k`, of :math:`u_j`, of :math:`y u_j` and of y. Then

.. math:: \kappa_c = \frac{d^2}8 + \frac{9d}8 + 2, \qquad
          \kappa_2^2 = \frac14\Big\lfloor\frac{d^2}4\Big\rfloor + d + 4

bound the change in L1 and in L2, and both are attained. *Proof of the first.* Let s and t be the
difference and the sum of two rows, :math:`|s_j| + |t_j| \le 1`, :math:`p_j = |s_j|` and P their
sum. As :math:`u_ju_k - v_jv_k = (s_jt_k + t_js_k)/2`, the second moments change by at most
:math:`\frac12(d+1)P - \frac12P^2 - \frac12\sum_j p_j^2 \le \frac{d+1}2 P(1 - \frac Pd) \le
\frac{d(d+1)}8`. With labels y and z the rest changes by at most
:math:`\sum_j(|s_j| + |y u_j - z v_j|) + |y - z| \le d + 2`. Equality: u = 1/2 in every feature,
v = 0, y = -z = 1. :math:`\blacksquare`

So Laplace noise of rate :math:`\min_i \epsilon_i/(w_i\kappa)`, or Gaussian noise of deviation
:math:`\max_i w_i\kappa_2/\mu_i` where a delta was granted (:math:`\mu_i` the shift that costs
:math:`\epsilon_i` at this delta), keeps every :math:`\epsilon_i`.

**Floating point.** Model or sums are rounded to a lattice and get exact discrete noise
(:mod:`convexmarket.privacy.lattice`), so the change of the *computed* values counts: the real
sensitivity, and the error of the computation on either side. For a solution, let
:math:`A = \sum w_i x_i x_i^\top + \lambda I`, :math:`m = \sum w_i y_i x_i`, and
:math:`\hat\theta` any vector with :math:`\|m - A\hat\theta\| \le r`. As
:math:`A \succeq \lambda I`, it is within :math:`r/\lambda` of :math:`A^{-1}m`. With
:math:`u = 2^{-53}`, k the longest chain of roundings in a sum and :math:`\|\hat\theta\| \le B`,
standard bounds (Higham, Accuracy and Stability of Numerical Algorithms, sections 3.1 and 10.1)
give, twice over to make room for terms of second order,

- for the rounding of the residual: :math:`\delta = 2u\sqrt d\,k\,(1 + \sqrt d B + \lambda B)`;
- for a Cholesky factorisation:
  :math:`\tau = 2u\,\big((dk + (3d+1)\,d(1+\lambda) + 1 + \lambda)B + \sqrt d\,k\big)`.

A computed residual is at most :math:`\tau + \delta`, the true one then at most
:math:`\tau + 2\delta`, and the error at most :math:`(\tau + 2\delta)/\lambda`: numbers that do not
depend on the rows. Every fit compares its residual with them. The guarantee does not rest on
:math:`\tau`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import fsum, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import NotSupportedError, ParameterError, SolverError
from convexmarket.learners.parted import PartedRows
from convexmarket.learners.ridge_math import (
    CHUNK,
    WELL_CONDITIONED,
    noise_rate,
    row_sum,
    solve_ridge,
)
from convexmarket.privacy.composition import gaussian_shift
from convexmarket.privacy.lattice import (
    check_reach,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
)
from convexmarket.privacy.noise import gamma_sphere_noise
from convexmarket.privacy.sensitivity import Sensitivity, ridge_norm_bound, ridge_sensitivity

__all__ = [
    "OutputPerturbation",
    "SolveError",
    "StatisticsPerturbation",
    "solve_error",
    "statistics_sensitivity",
]

Floats = NDArray[np.float64]

UNIT = 2.0**-53
SMALL_CHAIN = 10  # roundings of an entry beyond those of its sums
NORM_SLACK = 1.01  # of a computed model's norm over the bound on the exact one's
UPWARD = 1.0 + 1e-9  # more than the roundings of a formula
FINE = 1000
LARGEST = 1.01  # entry of the sums, whose weights add up to one
SMALLEST_RATE = 1e-280  # of noise, which would overflow below it
#: Steps by which the square of a discrete Gaussian exceeds the real one's (docs/theory.md).
NARROWER = 9.0
#: Norm of the model, on the unit scale, that noise effects and rules for lambda suppose.
NORM = 1.0

EXACT = (
    "arithmetic is that of IEEE 754, rounding to nearest: the noise is exact, and covers an error"
)
REAL = "noise and coefficients are real numbers: they are computed in double precision"


@dataclass(frozen=True)
class SolveError:
    """Conditions on a computed ridge solution, and its distance from the exact one under them.

    Attributes
    ----------
    residual, norm : float
        Largest computed residual, and largest norm.
    distance : float
        Largest Euclidean distance from the exact solution.
    """

    residual: float
    norm: float
    distance: float


def solve_error(n_rows: int, n_features: int, regularization: float) -> SolveError:
    """Bound the error of the solve of a ridge regression on the unit box.

    Parameters
    ----------
    n_rows, n_features : int
    regularization : float
        Positive.

    Returns
    -------
    SolveError

    Raises
    ------
    NotSupportedError
        If there are fewer rows than features, or too little regularization for a
        Cholesky factorisation.

    Examples
    --------
    >>> solve_error(100_000, 10, 1.0).distance < 1e-10
    True
    """
    d, root = n_features, sqrt(n_features)
    if n_rows < d:
        raise NotSupportedError(
            f"rounding needs as many rows as features, and there are {n_rows} rows of {d} "
            "features; use rounding=None, whose noise is of real numbers"
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
            "of the solve in double precision; use a larger one, or rounding=None"
        )
    return SolveError(2.0 * UNIT * (solve + measure), norm, distance)


@dataclass(frozen=True, eq=False)
class OutputPerturbation:
    """Noise on the model itself; see the module.

    Attributes
    ----------
    weights, epsilon : ndarray of shape (n_used,)
        Of the loss, and what each row loses.
    rate : float
        Of the noise: infinity for none. On a lattice, of each coordinate.
    regularization : float
    step : float or None
        Of the lattice; None for noise in floating point.
    scale : int
        Of the noise on the lattice, in steps.
    error : SolveError or None
        Of the solve that the noise on the lattice covers.
    """

    weights: Floats
    epsilon: Floats
    rate: float
    regularization: float
    accounting: str
    step: float | None = None
    scale: int = 1
    error: SolveError | None = None
    extra: tuple[str, ...] = ()
    delta: float = 0.0

    @classmethod
    def of(
        cls,
        weights: Floats,
        sold: Floats,
        regularization: float,
        n_features: int,
        *,
        rounding: float | str | None,
        max_norm: float | None,
        sensitivity: Sensitivity,
        exposure: Floats | None = None,
    ) -> OutputPerturbation:
        """Plan the noise that keeps what each row sold.

        Parameters
        ----------
        weights, sold : ndarray of shape (n_used,)
        regularization, n_features, max_norm, sensitivity
            As for :func:`~convexmarket.privacy.ridge_sensitivity`.
        rounding : "auto", float or None
            Step of the lattice; ``"auto"`` takes a fine one where the error of the solve has a
            bound.
        exposure : ndarray of shape (n_used,), optional
            Largest weight that each row can have, where weights are drawn.

        Raises
        ------
        NotSupportedError
            If ``rounding`` is a number and the error of the solve has no bound.
        ParameterError
            If the noise or the step is out of the range of floating point.
        """
        accounting = f"{sensitivity} sensitivity"
        extra: tuple[str, ...] = ()
        if max_norm is not None:
            extra = (
                f"the minimiser without regularisation has norm at most {max_norm:g} on this data"
                " set and on every neighbour of it, and that is public",
            )
        exposure = weights if exposure is None else exposure
        if np.isinf(sold[exposure > 0]).all():  # also where no row was drawn
            kept = np.where(weights > 0, np.inf, 0.0)
            return cls(weights, kept, np.inf, regularization, accounting, extra=extra)
        terms = n_features, max_norm, sensitivity
        kappa = ridge_sensitivity(regularization, *terms)
        rate = noise_rate(exposure, sold, kappa)
        if rate < SMALLEST_RATE:
            raise ParameterError(
                f"regularization = {regularization!r} and an epsilon of {sold.min():g} need noise "
                "beyond the range of floating point; use a larger regularization, or 0 in place of "
                "the smallest epsilon"
            )
        try:
            error = None
            if rounding is not None:
                error = solve_error(weights.size, n_features, regularization)
        except NotSupportedError:
            if rounding != "auto":
                raise
        if error is None:
            kept = np.where(exposure > 0, np.minimum(exposure * kappa * rate, sold), 0.0)
            return cls(weights, kept, rate, regularization, accounting, extra=extra)
        total = max(1.0, fsum(weights) * UPWARD)  # the problem with weights w/W and lambda/W
        kappa = ridge_sensitivity(regularization / total, *terms) / total * UPWARD
        moved = np.where(exposure > 0, kappa * exposure + 2.0 * error.distance, 0.0)
        shift = sqrt(n_features) * moved * UPWARD
        given = None if isinstance(rounding, str) else rounding
        step, scale, kept = _lattice(shift, sold, n_features, error.norm, given)
        rate = 1.0 / (scale * step)
        return cls(weights, kept, rate, regularization, accounting, step, scale, error, extra)

    @property
    def noisy(self) -> bool:
        """Whether there is noise."""
        return bool(np.isfinite(self.rate))

    @property
    def exact(self) -> bool:
        """Whether the noise is exact."""
        return self.step is not None

    @property
    def name(self) -> str:
        """How the noise is added."""
        if self.step is not None:
            return f"by output perturbation, exact noise on a lattice of step {self.step:g}"
        return "by output perturbation" + ", noise in plain floating point" * self.noisy

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on besides the domain."""
        if self.error is None:
            return (*self.extra, REAL)
        covered = f"{EXACT} error of {self.error.distance:.2g} in what it is added to"
        return (*self.extra, covered)

    def solve(self, X: Floats | PartedRows, y: Floats) -> Floats:
        """Return the ridge solution, whose error is known where noise on a lattice covers it.

        Raises
        ------
        SolverError
            If the error is not.
        """
        model = solve_ridge(X, y, self.weights, self.regularization)
        if self.error is None:
            return model
        misfit = row_sum(X, partial(_misfit, model), y, self.weights)
        left = np.linalg.norm(misfit - self.regularization * model)
        if not (left <= self.error.residual and np.linalg.norm(model) <= self.error.norm):
            raise SolverError(
                f"the ridge solve left a residual above the {self.error.residual:.3g} that double "
                "precision should leave: this machine's linear algebra is not what rounding= "
                "relies on. Use a larger regularization, or rounding=None"
            )
        return model

    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the noisy model, and its fitted attributes."""
        model = self.solve(X, y)
        if self.step is not None:
            model = lattice_release(model, self.step, self.scale, rng)
        elif self.noisy:
            model = model + gamma_sphere_noise(model.size, rng) / self.rate
        return model, {
            "noise_rate_": self.rate,
            "regularization_": self.regularization,
            "rounding_": self.step,
        }

    def noise_effect(self, second: Floats) -> float:
        """Return the deviation that noise adds to a prediction."""
        square = 2.0 if self.exact else second.size + 1.0
        return float(np.sqrt(square * second.sum()) / self.rate)


def statistics_sensitivity(n_features: int, *, centred: bool, order: int = 1) -> float:
    r"""Return how far a row of weight one can move all statistics; see the module.

    Parameters
    ----------
    n_features : int
    centred : bool
        Whether there is an intercept.
    order : {1, 2}, default 1
        Of the norm. Without an intercept a bound in L2 is not served.

    Examples
    --------
    >>> statistics_sensitivity(10, centred=False), statistics_sensitivity(10, centred=True)
    (67.5, 25.75)
    """
    d = n_features
    if order == 2:
        return sqrt((d * d // 4) / 4.0 + d + 4.0)
    return d * d / 8.0 + 9.0 * d / 8.0 + 2.0 if centred else d * (d + 1) / 2.0 + 1.25 * d


@dataclass(frozen=True, eq=False)
class StatisticsPerturbation:
    """Noise on the sums; see the module.

    Attributes
    ----------
    weights, epsilon : ndarray of shape (n_used,)
    regularization : float
    centred : bool
        Whether the last feature is the constant 1 and the others are centred.
    step : float
        Of the lattice.
    scale : int
        Of the noise, in steps; its deviation where it is Gaussian.
    delta : float
        0 for Laplace noise.
    shift : ndarray of shape (n_used,) or None
        Of Gaussian noise: change of the sums in its standard deviations.
    """

    weights: Floats
    epsilon: Floats
    regularization: float
    centred: bool
    step: float
    scale: int
    delta: float
    error: float
    shift: Floats | None = None

    noisy = exact = True

    @classmethod
    def of(
        cls,
        weights: Floats,
        sold: Floats,
        regularization: float,
        n_features: int,
        *,
        centred: bool,
        delta: float,
    ) -> StatisticsPerturbation:
        """Plan the noise that keeps what each row sold.

        Raises
        ------
        ParameterError
            If the noise is out of the range of floating point, or a delta is given without an
            intercept.
        """
        count = n_features * (n_features + 3) // 2 + (n_features + 1) * centred
        error = 2.0 * UNIT * (_chain(weights.size) + 4)  # of an entry of a sum of total size one
        if delta and not centred:
            raise ParameterError("delta > 0 needs fit_intercept=True; pass it, or delta=0")
        order = 2 if delta else 1
        kappa = statistics_sensitivity(n_features, centred=centred, order=order)
        moved = kappa * weights + 2.0 * (sqrt(count) if delta else count) * error
        shift = np.where(weights > 0, moved * UPWARD, 0.0)
        if not delta:
            step, scale, kept = _lattice(shift, sold, count, LARGEST, None)
            return cls(weights, kept, regularization, centred, step, scale, delta, error)
        asking = (weights > 0) & np.isfinite(sold)
        allowed = np.asarray(gaussian_shift(sold[asking], delta))
        largest = float(np.max(shift[asking] / allowed))
        wanted = largest * min(1.0, float(allowed.min())) / (FINE * count)
        step = lattice_step(max(wanted, LARGEST * 2.0**-48))
        check_reach(LARGEST, step)
        # Rounding adds at most half a step per entry on either side.
        steps = np.where(weights > 0, shift / step + sqrt(count), 0.0)
        largest = float(np.max(steps[asking] / allowed))
        scale = int(np.ceil(np.sqrt(largest**2 * UPWARD + NARROWER)))
        kept = np.where(weights > 0, sold, 0.0)
        shift = steps / np.sqrt(scale**2 - NARROWER)
        return cls(weights, kept, regularization, centred, step, scale, delta, error, shift)

    @property
    def name(self) -> str:
        """How the noise is added."""
        law = "Gaussian noise" if self.delta else "noise"
        return f"from perturbed statistics, exact {law} on a lattice of step {self.step:g}"

    @property
    def accounting(self) -> str:
        """Which bound gives epsilon."""
        return "Gaussian" if self.delta else "tight sensitivity"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the guarantee rests on besides the domain."""
        return (f"{EXACT} error of {self.error:.2g} in what it is added to",)

    def sums(self, X: Floats | PartedRows, y: Floats) -> Floats:
        """Return the statistics: the upper triangle of second moments, then moments with labels."""
        sums = row_sum(X, _moments, y, self.weights)
        triangle = sums[np.triu_indices(X.shape[1])]
        return np.append(triangle[: triangle.size - self.centred], sums[:, -1])

    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the model that solves the noisy equations, and its fitted attributes."""
        d = X.shape[1]
        sums = self.sums(X, y)
        noisy = lattice_release(sums, self.step, self.scale, rng, gaussian=self.delta > 0)
        second = np.zeros((d, d))
        corner = np.ones(1) if self.centred else np.zeros(0)
        second[np.triu_indices(d)] = np.append(noisy[:-d], corner)
        values, vectors = np.linalg.eigh(second, UPLO="U")
        scaled = (vectors.T @ noisy[-d:]) / (np.maximum(values, 0.0) + self.regularization)
        return np.asarray(vectors @ scaled), {
            "noise_rate_": 1.0 / (self.scale * self.step),
            "regularization_": self.regularization,
            "rounding_": self.step,
        }

    def noise_effect(self, second: Floats) -> float:
        """Return the deviation that noise adds to a prediction."""
        deviation = self.scale * self.step * (1.0 if self.delta else sqrt(2.0))
        gradient = deviation * sqrt(1.0 + NORM**2)
        return float(gradient * np.sqrt(np.sum(second / (second + self.regularization) ** 2)))


def _lattice(
    shift: Floats, sold: Floats, count: int, largest: float, rounding: float | None
) -> tuple[float, int, Floats]:
    """Return step, scale and what each row loses, for so many values of at most a size.

    Without a step that is asked for, noise is more than ``FINE * count`` steps, whichever row sets
    its scale: rounding adds at most ``count`` steps to what a row moves.
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
    """Return the longest chain of roundings in a sum over rows."""
    return min(n_rows, CHUNK) + -(-n_rows // CHUNK)


def _moments(X: Floats, y: Floats, weights: Floats) -> Floats:
    """Return second moments, and moments with the labels as the last column."""
    weighed = weights[:, None] * X
    return np.column_stack([weighed.T @ X, weighed.T @ y])


def _misfit(model: Floats, X: Floats, y: Floats, weights: Floats) -> Floats:
    return np.asarray(X.T @ (weights * (y - X @ model)))
