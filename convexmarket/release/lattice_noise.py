r"""Draw exact noise for releases on a lattice whose step is much smaller than the sensitivity.

Values are rounded to multiples of a power of two, and the noise is drawn as integers
(:mod:`convexmarket.privacy.lattice`). There are two kinds of noise:

- *Laplace* noise is added to single predictions;
- a *process* adds independent discrete Gaussian noise to the coordinates of the model in an
  orthonormal basis for public points. The noisy coordinates determine the answers.

Let L be the Cholesky factor of :math:`K + JR^2 I`, where K is the kernel matrix of the points. The
coordinates of a model with predictions p are :math:`L^{-1}p`, and new points only add rows to L.
Let :math:`\Phi` contain the features of the points. If replacing a row changes the model by d and
the computed predictions by :math:`\Phi d + e`, then
:math:`\|L^{-1}(\Phi d + e)\| \le \|d\| + \|e\|/(R\sqrt J)`. J is much larger than the rounding
errors of K and L, and much smaller than the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from convexmarket.errors import SolverError
from convexmarket.learners.kernel_erm import KernelERM
from convexmarket.learners.predictor import Kernel
from convexmarket.privacy import Profile
from convexmarket.privacy.lattice import check_reach, lattice_release, lattice_scale, lattice_step
from convexmarket.release.scales import Calibration, calibrate, function_epsilon

Floats = NDArray[np.float64]

#: Bound on the error of a computed prediction, relative to the sensitivity.
#: Measured errors are a million times smaller than this bound.
ARITHMETIC = 1e-8
#: Variance of independent noise added to a process, relative to the squared feature bound.
JITTER = 1e-6
MOST_POINTS = 5_000  # largest number of points at which correlated noise is drawn
#: Lattice steps of Laplace and process noise, relative to the smaller of sensitivity and scale.
LAPLACE_STEP, PROCESS_STEP = 2.0**-20, 2.0**-17
LEAST_STEP = 2.0**-43  # smallest lattice step, relative to the scale of the noise
FINEST = 2.0**-50  # smallest lattice step, relative to the largest represented value
#: Largest relative increase of sensitivity and scale by a lattice, for Laplace and process noise.
#: The scale is at most ten million times the sensitivity.
LAPLACE_SLACK, PROCESS_SLACK = 2.0**-19, 0.004
CONDITION = 1.01  # bound on the norm of the inverse factor, relative to 1 / (R sqrt(J))
#: Number of steps added in quadrature to the scale of a discrete Gaussian (docs/theory.md).
NARROWER = 3.0


@dataclass(frozen=True, eq=False)
class Noise:
    """Calibrated exact noise of a release."""

    scale: float  # Laplace scale, or standard deviation of a process per unit of feature norm
    step: float  # step of the lattice
    steps: int  # the scale, in steps
    epsilon: Floats  # guarantee of each row
    profile: Profile  # profile of the privacy loss, which is Gaussian for a process
    accounting: str = ""  # name of the bound on epsilon, if it differs from the accounting argument

    def rounded(self, values: Floats) -> Floats:
        """Round values to the lattice, so that lattice noise can be added exactly."""
        return np.rint(values / self.step) * self.step

    def added_to(self, values: Floats, generator: np.random.Generator) -> Floats:
        """Add noise to values, or to coordinates, shape (n_values,)."""
        gaussian = self.profile.law == "gaussian"
        return lattice_release(values, self.step, self.steps, generator, gaussian=gaussian)


def noise_scale(
    sensitivity: float, epsilon: float, calibration: Calibration, slack: float
) -> float:
    """Bound the scale of the noise if a lattice multiplies sensitivity and scale by 1 + slack."""
    shift, sold = np.array([[sensitivity * (1.0 + slack)], [epsilon]], dtype=float)
    return calibrate(shift, sold, calibration)[0] * (1.0 + slack)


def laplace_noise(
    erm: KernelERM, sold: Floats, epsilon_of: Calibration, delta: float, spread: float = 1.0
) -> Noise:
    """Calibrate Laplace noise from public quantities.

    ``spread`` is the effect of errors in all predictions, relative to an error in one prediction.
    """
    moved = erm.row_sensitivities_
    scale, _ = calibrate(moved, sold, epsilon_of)
    largest = erm.feature_bound_ * erm.norm_bound_
    step = _step(LAPLACE_STEP, erm.sensitivity_, scale, largest)
    counted = spread * (step + 2.0 * ARITHMETIC * erm.sensitivity_)
    scale, epsilon = calibrate(np.where(moved > 0, moved + counted, 0.0), sold, epsilon_of)
    steps = lattice_scale([scale / step], [1.0])
    return Noise(step * steps, step, steps, epsilon, Profile("pure", epsilon, delta))


def process_noise(erm: KernelERM, sold: Floats, delta: float) -> Noise:
    """Calibrate the noise of a process from public quantities.

    The calibration covers errors of :data:`ARITHMETIC` times the sensitivity in predictions and
    residuals at every point, for both neighbouring data sets.
    """
    moved = erm.row_sensitivities_ / erm.feature_bound_
    scale, _ = calibrate(moved, sold, function_epsilon(delta))
    sensitivity = erm.sensitivity_ / erm.feature_bound_
    step = _step(PROCESS_STEP, sensitivity, scale, CONDITION * erm.norm_bound_)
    errors = 4.0 * ARITHMETIC * sensitivity * CONDITION / sqrt(JITTER)
    counted = sqrt(MOST_POINTS) * (step + errors)
    shifts = np.where(moved > 0, moved + counted, 0.0)
    scale, epsilon = calibrate(shifts, sold, function_epsilon(delta))
    steps = lattice_scale([hypot(scale / step, NARROWER)], [1.0])
    profile = Profile("gaussian", shifts / scale)
    return Noise(step * steps, step, steps, epsilon, profile, "exact")


class Process:
    """Predictions with the noise of a Gaussian process, drawn conditionally on all earlier answers.

    The released ``coordinates`` refer to a basis for ``points`` and determine the answers.
    """

    def __init__(self, erm: KernelERM, noise: Noise, generator: np.random.Generator) -> None:
        self._kernel: Kernel = erm.kernel_
        self._noise, self._generator = noise, generator
        self._jitter = JITTER * erm.feature_bound_**2
        self._residual = ARITHMETIC * erm.sensitivity_ * sqrt(MOST_POINTS) / 2.0
        self.points: Floats = np.zeros((0, erm.n_features_in_))
        self.coordinates: Floats = np.zeros(0)
        self._true: Floats = np.zeros(0)  # coordinates without noise
        self._triangle: Floats = np.zeros((0, 0))  # Cholesky factor of the points' covariance

    def at(self, points: Floats, predictions: Floats) -> Floats:
        """Draw the answers at additional points, shape (n_points,).

        Raises
        ------
        SolverError
            If the predictions cannot be recovered from the coordinates.
        """
        n_old, n_new = len(self.points), len(points)
        inside = self._kernel(points, points)
        inside = (inside + inside.T) / 2.0
        inside[np.diag_indices(n_new)] += self._jitter
        across: Floats = np.zeros((n_new, n_old))
        if n_old:
            between = self._kernel(self.points, points)
            across = np.asarray(solve_triangular(self._triangle, between, lower=True)).T
        corner = np.linalg.cholesky(inside - across @ across.T)
        left = predictions - across @ self._true
        true = np.asarray(solve_triangular(corner, left, lower=True))
        if not np.linalg.norm(left - corner @ true) <= self._residual:
            raise SolverError(
                "the error of the coordinates of the predictions exceeds the error that the noise "
                "covers; use fewer points or a larger regularization"
            )
        released = self._noise.added_to(true, self._generator)
        triangle = np.zeros((n_old + n_new, n_old + n_new))
        triangle[:n_old, :n_old] = self._triangle
        triangle[n_old:, :n_old], triangle[n_old:, n_old:] = across, corner
        self.points, self._triangle = np.vstack([self.points, points]), triangle
        self._true = np.append(self._true, true)
        self.coordinates = np.append(self.coordinates, released)
        return triangle[n_old:] @ self.coordinates


def _step(share: float, sensitivity: float, scale: float, largest: float) -> float:
    """Choose the step of a lattice that represents values of size up to ``largest``."""
    step = lattice_step(max(share * min(sensitivity, scale), LEAST_STEP * scale, FINEST * largest))
    check_reach(largest, step)
    return step
