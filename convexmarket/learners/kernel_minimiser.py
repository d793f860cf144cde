r"""The minimiser of a kernel model's risk, with a proven distance from the exact one.

The search runs in the span of some rows' features, chosen by a pivoted Cholesky factorisation of
the kernel matrix, and ends with a certificate: strong convexity turns the duality gap into a
distance from the minimiser over the whole space.

Functions of arrays: nothing here knows of privacy, sellers or scikit-learn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from convexmarket.learners.kernels import Kernel, cholesky_features
from convexmarket.learners.losses import Loss

__all__ = ["KernelObjective"]

Floats = NDArray[np.float64]

MAX_NEWTON_STEPS = 500
ROUNDING = 4e-16  # relative; a step that small changes nothing
# Smooth neighbours of a loss with kinks, each a tenth of the one before.
FIRST_SMOOTHING, LAST_SMOOTHING = 1.0, 1e-15


@dataclass(frozen=True, eq=False)
class KernelObjective:
    """The problem in the span of the pivots' features, and how far that is from the whole.

    Parameters
    ----------
    pivots : ndarray of shape (rank,)
    features : ndarray of shape (n_rows, rank)
    outside : ndarray of shape (n_rows,)
        Distance of each row's features from the span.
    targets, weights : ndarray of shape (n_rows,)
    loss : Loss
    regularization : float
    """

    pivots: NDArray[np.intp]
    features: Floats
    outside: Floats
    targets: Floats
    weights: Floats
    loss: Loss
    regularization: float

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        X: Floats,
        targets: Floats,
        weights: Floats,
        loss: Loss,
        regularization: float,
        allowed: float,
    ) -> Self:
        """Choose the pivots so that half of the error allowed remains for the search."""
        outside = allowed * regularization / (2.0 * loss.lipschitz * kernel.feature_bound)
        pivots, features, residuals = cholesky_features(kernel, X, weights, outside)
        return cls(pivots, features, np.sqrt(residuals), targets, weights, loss, regularization)

    def minimise(self, tol: float) -> tuple[Floats, float]:
        """Return the minimiser's coordinates, and a bound on its distance."""
        theta = best = np.zeros(self.features.shape[1])
        nearest = np.inf
        smoothing = 0.0 if self.loss.smooth else FIRST_SMOOTHING
        while True:
            theta = self._newton(theta, smoothing, 1e-3 * self.regularization * tol)
            distance = self.distance_bound(theta, smoothing)
            if distance < nearest:
                best, nearest = theta, distance
            if nearest <= tol or smoothing <= LAST_SMOOTHING:
                return best, nearest
            smoothing /= 10.0

    def distance_bound(self, theta: Floats, smoothing: float) -> float:
        r"""Bound the distance from the minimiser over the whole RKHS.

        The duality gap of w and of the multipliers u is
        :math:`\sum_i a_i(\ell_i + \ell_i^*(-u_i) + u_i f_i) + \|\lambda w - q\|^2/(2\lambda)`, with
        :math:`q = \sum_i a_i u_i \phi(x_i)`: a sum of squares and of Fenchel gaps, without
        cancellation. By strong convexity the squared distance is at most twice that over
        :math:`\lambda`.
        """
        f = self.features @ theta
        multipliers = -self.weights * self.loss.slopes(f, self.targets, smoothing)
        inside = self.regularization * theta - self.features.T @ multipliers
        beyond = np.abs(multipliers) @ self.outside
        fenchel = self.weights @ self.loss.fenchel_gaps(f, self.targets, smoothing)
        squared = inside @ inside + beyond**2 + 2.0 * self.regularization * fenchel
        return float(np.sqrt(squared)) / self.regularization

    def _newton(self, theta: Floats, smoothing: float, goal: float) -> Floats:
        """Minimise the smooth neighbour until the gradient's norm is at the goal, or steps end.

        Steps are judged by slopes along them, which rounding spares longer than values.
        """
        best, best_norm = theta, np.inf
        f = self.features @ theta
        for _ in range(MAX_NEWTON_STEPS):
            gradient = self.regularization * theta + self.features.T @ self._slopes(f, smoothing)
            norm = float(np.linalg.norm(gradient))
            if norm < best_norm:
                best, best_norm = theta, norm
            if best_norm <= goal:
                return best
            direction = -self._solve(f, gradient, smoothing)
            move = self._step_length(theta, f, direction, smoothing) * direction
            if np.linalg.norm(move) <= ROUNDING * np.linalg.norm(theta):
                return best
            theta = theta + move
            f = self.features @ theta
        return best

    def _step_length(self, theta: Floats, f: Floats, direction: Floats, smoothing: float) -> float:
        """Return 1, or a shorter step at whose end the slope is a hundredth at most."""
        ahead = self.features @ direction
        linear = self.regularization * (theta @ direction)
        quadratic = self.regularization * (direction @ direction)

        def slope(length: float) -> float:
            pull = self._slopes(f + length * ahead, smoothing) @ ahead
            return float(pull + linear + length * quadratic)

        steepest = -slope(0.0) / 100.0
        low, high = 0.0, 1.0
        length = high
        while high - low > 1e-12:
            here = slope(length)
            if here > steepest:
                high = length
            elif here < -steepest and length < 1.0:
                low = length
            else:
                break
            length = (low + high) / 2.0
        return length

    def _slopes(self, f: Floats, smoothing: float) -> Floats:
        return self.weights * self.loss.slopes(f, self.targets, smoothing)

    def _solve(self, f: Floats, gradient: Floats, smoothing: float) -> Floats:
        """Solve the Newton system, in the smaller of the two spaces."""
        scale = self.weights * self.loss.curvatures(f, self.targets, smoothing)
        bent = scale > 0
        rows = np.sqrt(scale[bent])[:, None] * self.features[bent]
        if len(rows) < self.features.shape[1]:
            outer = rows @ rows.T
            outer[np.diag_indices_from(outer)] += self.regularization
            inner = rows.T @ cho_solve(cho_factor(outer), rows @ gradient)
            return np.asarray((gradient - inner) / self.regularization)
        hessian = rows.T @ rows
        hessian[np.diag_indices_from(hessian)] += self.regularization
        return np.asarray(cho_solve(cho_factor(hessian), gradient))
