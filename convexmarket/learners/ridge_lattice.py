r"""Output perturbation of a ridge regression that is safe in floating point.

The model is rounded to a lattice and gets exact discrete Laplace noise in every coordinate
(:mod:`convexmarket.privacy.lattice`). What remains to be known is how far the *computed* model
moves when a row is replaced: by the real sensitivity, and by the error of the solve on either side.

**The error of the solve.** Let :math:`A = \sum w_i x_i x_i^\top + \lambda I`,
:math:`m = \sum w_i y_i x_i`, and :math:`\hat\theta` any vector with
:math:`\|m - A\hat\theta\| \le r`. As :math:`A \succeq \lambda I`, it is within :math:`r/\lambda` of
:math:`A^{-1}m`, however it was found. The residual is computed after the solve. With
:math:`u = 2^{-53}`, k the longest chain of roundings in a sum, rows in :math:`[0,1]^d`, labels in
:math:`[-1,1]`, weights that sum to one and :math:`\|\hat\theta\| \le B`, standard bounds (Higham,
Accuracy and Stability of Numerical Algorithms, sections 3.1 and 10.1) give twice over, which makes
room for terms of second order,

- its own rounding: at most :math:`\delta = 2u\sqrt d\,k\,(1 + \sqrt d B + \lambda B)`;
- what a Cholesky factorisation leaves: at most
  :math:`\tau = 2u\,\big((dk + (3d+1)\,d(1+\lambda) + 1 + \lambda)B + \sqrt d\,k\big)`.

So a computed residual is at most :math:`\tau + \delta`, the true one then at most
:math:`\tau + 2\delta`, and the error at most :math:`(\tau + 2\delta)/\lambda`, numbers that do not
depend on the rows. The comparison is made in every fit: it fails only where arithmetic is not what
:math:`\tau` supposes, and the guarantee does not rest on :math:`\tau`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import fsum, sqrt

import numpy as np

from convexmarket.errors import NotSupportedError, SolverError
from convexmarket.learners.parted import PartedRows
from convexmarket.learners.ridge_math import (
    CHUNK,
    WELL_CONDITIONED,
    Matrix,
    Rows,
    Vector,
    row_sum,
    solve_ridge,
)
from convexmarket.privacy.lattice import (
    check_reach,
    lattice_epsilon,
    lattice_moves,
    lattice_release,
    lattice_scale,
    lattice_step,
)
from convexmarket.privacy.sensitivity import Sensitivity, ridge_norm_bound, ridge_sensitivity

__all__ = ["RidgeLattice", "SolveError", "fine_step", "ridge_lattice", "solve_error"]

UNIT = 2.0**-53
SMALL_CHAIN = 10  # roundings of an entry beyond those of its sums
NORM_SLACK = 1.01  # of a computed model's norm over the bound on the exact one's
UPWARD = 1.0 + 1e-9  # more than the roundings of a formula
FINE = 1000


@dataclass(frozen=True)
class SolveError:
    """What a computed ridge solution has to satisfy, and how near the exact one it is then.

    Attributes
    ----------
    residual : float
        Largest computed residual.
    norm : float
        Largest norm.
    distance : float
        From the exact solution, Euclidean, at most.
    """

    residual: float
    norm: float
    distance: float


@dataclass(frozen=True, eq=False)
class RidgeLattice:
    """All that a release on a lattice decides without looking at the data.

    Attributes
    ----------
    step : float
        A power of two.
    scale : int
        Of the noise in every coordinate, in steps.
    epsilon : ndarray of shape (n_rows,)
        What each row loses.
    error : SolveError
    """

    step: float
    scale: int
    epsilon: Vector
    error: SolveError

    def solve(
        self, X: Rows | PartedRows, y: Vector, weights: Vector, regularization: float
    ) -> Vector:
        """Return a solution that is known to be near the exact one.

        Raises
        ------
        SolverError
            If it is not.
        """
        model = solve_ridge(X, y, weights, regularization)
        left = np.linalg.norm(_residual(X, y, weights, regularization, model))
        if not (left <= self.error.residual and np.linalg.norm(model) <= self.error.norm):
            raise SolverError(
                f"the ridge solve left a residual above the {self.error.residual:.3g} that double "
                "precision should leave: this machine's linear algebra is not what rounding= "
                "relies on. Use a larger regularization, or rounding=None"
            )
        return model

    def release(self, model: Vector, rng: np.random.Generator) -> Vector:
        """Return the model on the lattice, with exact noise."""
        return lattice_release(model, self.step, self.scale, rng)


def ridge_lattice(
    rounding: float | None,
    regularization: float,
    n_features: int,
    weights: Vector,
    exposure: Vector,
    sold: Vector,
    max_norm: float | None,
    sensitivity: Sensitivity,
) -> RidgeLattice:
    r"""Plan a release on a lattice, from public quantities.

    Parameters
    ----------
    rounding : float or None
        The step is the largest power of two that is at most this. ``None`` takes one so fine that
        it adds less than a hundredth to the noise, where doubles can count so many steps.
    regularization, n_features, max_norm, sensitivity
        As for :func:`~convexmarket.privacy.ridge_sensitivity`.
    weights : ndarray of shape (n_rows,)
        Of the loss.
    exposure : ndarray of shape (n_rows,)
        Largest weight that each row can have.
    sold : ndarray of shape (n_rows,)
        What each row may lose, where its exposure is positive.

    Returns
    -------
    RidgeLattice

    Raises
    ------
    NotSupportedError
        If there are fewer rows than features, or too little regularization for a
        Cholesky factorisation.
    ParameterError
        If the step is too fine or out of its range.

    Notes
    -----
    The sum of the coordinates' changes is at most :math:`\sqrt d\,(\kappa w_i + 2 \cdot
    \mathrm{error})`. Where the weights sum to W above one, by rounding, the problem is the one with
    weights w/W and :math:`\lambda/W`.
    """
    error = solve_error(weights.size, n_features, regularization)
    total = max(1.0, fsum(weights) * UPWARD)
    kappa = (
        ridge_sensitivity(regularization / total, n_features, max_norm, sensitivity)
        / total
        * UPWARD
    )
    moved = np.where(exposure > 0, kappa * exposure + 2.0 * error.distance, 0.0)
    shift = sqrt(n_features) * moved * UPWARD
    step = fine_step(shift, sold, n_features, error.norm) if rounding is None else rounding
    step = lattice_step(step)
    check_reach(error.norm, step)
    moves = lattice_moves(shift, step, n_features)
    scale = lattice_scale(moves, sold)
    return RidgeLattice(step, scale, np.minimum(lattice_epsilon(moves, scale), sold), error)


def fine_step(shift: Vector, sold: Vector, n_features: int, norm: float) -> float:
    """Return a step of which the noise is more than ``FINE`` times d, whichever row sets its scale.

    Rounding adds at most d steps to what a row moves, hence d / epsilon steps to the scale.
    """
    exposed = shift > 0
    finite = np.isfinite(sold[exposed])
    granted = sold[exposed][finite]
    scale = float(np.max(shift[exposed][finite] / granted))
    wanted = scale * min(1.0, float(granted.min())) / (FINE * n_features)
    return max(wanted, scale * 2.0**-40, norm * 2.0**-48)


def solve_error(n_rows: int, n_features: int, regularization: float) -> SolveError:
    """Return what the solve of a ridge regression on the unit domain keeps to.

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
    chain = min(n_rows, CHUNK) + -(-n_rows // CHUNK) + d + SMALL_CHAIN
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


def _residual(
    X: Rows | PartedRows, y: Vector, weights: Vector, regularization: float, model: Vector
) -> Vector:
    """Return half the negative gradient of the loss."""
    total = row_sum(X, partial(_misfit, model), y, weights)
    return np.asarray(total - regularization * model)


def _misfit(model: Vector, X: Matrix, y: Vector, weights: Vector) -> Vector:
    return np.asarray(X.T @ (weights * (y - X @ model)))
