"""The minimiser of a weighted loss plus a linear and a quadratic term.

The guarantee of objective perturbation is one of the *exact* minimiser, so the search ends where
rounding begins, and bounds the gradient's norm there. Kernel models are minimised in the same way,
with coordinates of the features in place of rows.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from convexmarket.learners.losses import LogisticLoss, Loss

__all__ = ["Matrix", "PerturbedObjective", "Vector", "minimise", "relative_error"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

UNIT = 2.0**-53  # half the distance from 1.0 to the next float
LOGISTIC = LogisticLoss()
TINY = float(np.finfo(np.float64).tiny)
SLOPE_UNITS = 16.0  # of the steepest loss: exp to four last places, a sum and a quotient
MAX_STEPS = 500
IDLE_STEPS = 20  # steps without progress before rounding is assumed
REUSE = 0.25  # factor of the gradient's norm; a Hessian with a larger gain is used again
ROUNDING = 4e-16  # relative length of a step without effect


class PerturbedObjective:
    """Weighted loss plus a linear and a quadratic term, with its derivatives.

    Values at the last point are kept, since the search reads them again.
    """

    chunk = 1024  # rows of X whose scaled copy stays in the processor's cache

    def __init__(
        self,
        X: Matrix,
        targets: Vector,
        weights: Vector,
        shift: Vector,
        regularization: float,
        loss: Loss = LOGISTIC,
    ) -> None:
        self.X = X
        self.targets = targets
        self.weights = weights
        self.shift = shift
        self.regularization = regularization
        self.loss = loss
        self._point: Vector | None = None

    def value_and_gradient(self, w: Vector) -> tuple[float, Vector]:
        """Return the objective and its gradient at w."""
        self._move_to(w)
        return self._value, self._gradient.copy()

    def gradient(self, w: Vector) -> Vector:
        """Return the gradient at w."""
        return self.value_and_gradient(w)[1]

    def gradient_norm(self, w: Vector) -> tuple[float, float]:
        r"""Return the norm of the computed gradient, and how far the true norm may be above it.

        The first-order rules of rounding: k operations in a row are off by a relative
        :math:`\gamma_k = ku/(1-ku)` at most, and a sum of k products, in any order, by
        :math:`\gamma_k` times the sum of their absolute values. They are applied to

        - the prediction: :math:`\delta_i = \gamma_n |x_i|^\top|w|`;
        - the loss's slope, which changes by :math:`\delta_i` times its curvature nearby, and 16
          units for its own evaluation, if ``exp`` is right to four units in the last place;
        - the sum over the rows, the quadratic and the linear term, and the norm.

        The bound is itself a computed sum of nonnegative terms, which doubling it covers, as long
        as there are fewer than 1e15 rows and features.
        """
        gradient = self.gradient(w)
        quadratic = np.abs(self.regularization * w)
        error = UNIT * (quadratic + np.abs(self.shift + self.regularization * w) + np.abs(gradient))
        error += self._data_error(np.abs(w), self.X.shape[0])
        norm = float(np.linalg.norm(gradient))
        underflow = math.sqrt(w.size * TINY)
        of_norm = relative_error(w.size + 2) * norm
        return norm, 2.0 * (float(np.linalg.norm(error)) + of_norm + underflow)

    def _data_error(self, magnitudes: Vector, n_rows: int) -> Vector:
        """Bound the error of these rows' part of the gradient, a sum over ``n_rows`` in all."""
        n_own, n_features = self.X.shape
        margin, total = relative_error(n_features), relative_error(n_rows + 1)
        error = np.zeros(n_features)
        for start in range(0, n_own, self.chunk):
            rows = slice(start, start + self.chunk)
            sizes, p = np.abs(self.X[rows]), np.abs(self._slopes[rows])
            off = margin * (sizes @ magnitudes)
            bent = self.loss.curvatures_within(self._curvatures[rows], off)
            off = off * bent + SLOPE_UNITS * UNIT * p + TINY
            error += (self.weights[rows] * (off + total * p)) @ sizes
        return error

    def hessian(self, w: Vector) -> Matrix:
        """Return the Hessian at w, shape (n_features, n_features)."""
        self._move_to(w)
        scale = np.sqrt(self.weights * self._curvatures)[:, None]
        hessian = self.regularization * np.eye(w.size)
        for start in range(0, len(scale), self.chunk):
            rows = slice(start, start + self.chunk)
            scaled = scale[rows] * self.X[rows]
            hessian += scaled.T @ scaled
        return hessian

    def newton_solver(self, w: Vector) -> Callable[[Vector], Vector]:
        """Return the division by the Hessian at w, factored in the smaller of two spaces."""
        if self.X.shape[0] >= w.size:
            return partial(cho_solve, cho_factor(self.hessian(w)))
        self._move_to(w)
        bent = np.sqrt(self.weights * self._curvatures)
        rows = bent[bent > 0, None] * self.X[bent > 0]
        outer = rows @ rows.T
        outer[np.diag_indices_from(outer)] += self.regularization
        factor = cho_factor(outer)

        def solve(gradient: Vector) -> Vector:
            inner = rows.T @ cho_solve(factor, rows @ gradient)
            return np.asarray((gradient - inner) / self.regularization)

        return solve

    def regularized(self, regularization: float) -> PerturbedObjective:
        """Return the same objective with another quadratic term."""
        same = copy.copy(self)
        same.regularization, same._point = regularization, None
        return same

    def thinned(self) -> PerturbedObjective:
        """Return the objective on every tenth row, with the same total weight."""
        return self._part(self.X[::10], slice(None, None, 10))

    def _part(self, X: Matrix, rows: Any) -> PerturbedObjective:
        weights = self.weights[rows]
        terms = weights * (self.weights.sum() / weights.sum()), self.shift, self.regularization
        return PerturbedObjective(X, self.targets[rows], *terms, self.loss)

    def _move_to(self, w: Vector) -> None:
        if self._point is not None and np.array_equal(self._point, w):
            return
        value, gradient = self._of_data(w)
        self._value = float(value + (self.shift @ w + self.regularization * (w @ w) / 2.0))
        self._gradient = self.shift + self.regularization * w + gradient
        self._point = w.copy()

    def _of_data(self, w: Vector) -> tuple[float, Vector]:
        """Return the losses and their gradient, each a sum over the rows."""
        losses, self._slopes, self._curvatures = self.loss.derivatives(self.X @ w, self.targets)
        return float(self.weights @ losses), (self.weights * self._slopes) @ self.X


def relative_error(operations: int) -> float:
    r"""Return :math:`\gamma_k = ku/(1-ku)`, what k roundings in a row may be off by."""
    return operations * UNIT / (1.0 - operations * UNIT)


def minimise(objective: PerturbedObjective, tol: float, start: Vector | None = None) -> Vector:
    """Search for a gradient norm of ``tol``; return the point with the smallest norm.

    Newton's method with a line search on the slope along each step, which rounding spares longer
    than values. With many rows it starts from the minimiser on a tenth of them.
    """
    n_rows, n_features = objective.X.shape
    solve, last = None, 0.0
    if start is None:
        w, alone = np.zeros(n_features), -objective.shift / objective.regularization
        if objective.value_and_gradient(alone)[0] < objective.value_and_gradient(w)[0]:
            w = alone
        if n_rows >= max(10_000, 100 * n_features):
            goal = 1e-3 * float(np.linalg.norm(objective.gradient(w)))
            thin = objective.thinned()
            w = minimise(thin, max(tol, goal))
            solve, last = thin.newton_solver(w), math.inf
    else:
        w = start
    best, best_norm, idle = w, math.inf, 0
    for _ in range(MAX_STEPS):
        gradient = objective.gradient(w)
        norm = float(np.linalg.norm(gradient))
        idle = 0 if norm < 0.9 * best_norm else idle + 1
        if norm < best_norm:
            best, best_norm = w, norm
        if best_norm <= tol or idle > IDLE_STEPS:
            return best
        if solve is None or norm > REUSE * last:
            solve = objective.newton_solver(w)
        last = norm
        step = -solve(gradient)
        step = step * _step_length(objective, w, step, norm)
        if np.linalg.norm(step) <= ROUNDING * np.linalg.norm(w):
            return best
        w = w + step
    return best


def _step_length(objective: PerturbedObjective, w: Vector, step: Vector, norm: float) -> float:
    """Return 1, or a shorter step at whose end the slope is a hundredth of that at its start."""
    slack = -float(objective.gradient(w) @ step) / 100.0
    ahead = objective.gradient(w + step)
    if ahead @ step <= slack or np.linalg.norm(ahead) <= norm / 2.0:
        return 1.0
    low, high, length = 0.0, 1.0, 0.5
    while high - low > 1e-12:
        slope = float(objective.gradient(w + length * step) @ step)
        if abs(slope) <= slack:
            break
        low, high = (low, length) if slope > 0 else (length, high)
        length = (low + high) / 2.0
    return length
