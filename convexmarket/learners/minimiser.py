"""The minimiser of a perturbed objective, to the last digits that floats allow.

Objective perturbation guarantees something about the *exact* minimiser, so the search has to end
where rounding begins, even for regularizations so weak that Newton's method wanders. Two methods
of SciPy share the work: a trust region follows the regularization down from where it is easy, and
a root finder on the gradient finishes.

Functions of arrays: nothing here knows of privacy, sellers or scikit-learn.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, root

from convexmarket.learners.losses import LogisticLoss, Loss

__all__ = ["Matrix", "PerturbedObjective", "Vector", "minimise"]

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

UNIT = 2.0**-53  # half the distance from 1.0 to the next float
LOGISTIC = LogisticLoss()
TINY = float(np.finfo(np.float64).tiny)
SLOPE_UNITS = 16.0  # the steepest: exp to four units in the last place, a sum and a quotient


class PerturbedObjective:
    """Weighted loss plus a linear and a quadratic term, with its derivatives.

    What was computed at the last point is kept: optimisers ask for it again.
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
        """Return the gradient at w, shape (n_features,)."""
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

        What overflows ends in an infinite or undefined bound. The bound is itself a computed sum
        of nonnegative terms, which doubling it covers, as long as there are fewer than 1e15 rows
        and features.
        """
        gradient = self.gradient(w)
        quadratic = np.abs(self.regularization * w)
        error = UNIT * (quadratic + np.abs(self.shift + self.regularization * w) + np.abs(gradient))
        error += self._data_error(np.abs(w), self.X.shape[0])
        norm = float(np.linalg.norm(gradient))
        underflow = math.sqrt(w.size * TINY)
        own = relative_error(w.size + 2) * norm
        return norm, 2.0 * (float(np.linalg.norm(error)) + own + underflow)

    def _data_error(self, magnitudes: Vector, n_rows: int) -> Vector:
        """Bound the error of the loss's part of the gradient, if that is a sum over so many rows.

        These may be some of them.
        """
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

    def regularized(self, regularization: float) -> PerturbedObjective:
        """Return the same objective with another quadratic term."""
        same = copy.copy(self)
        same.regularization, same._point = regularization, None
        return same

    def thinned(self, step: int) -> PerturbedObjective:
        """Return the objective on every ``step``-th row, with the same total weight."""
        weights = self.weights[::step]
        weights = weights * (self.weights.sum() / weights.sum())
        thin = (self.X[::step], self.targets[::step], weights, self.shift)
        return PerturbedObjective(*thin, self.regularization, self.loss)

    def _move_to(self, w: Vector) -> None:
        if self._point is not None and np.array_equal(self._point, w):
            return
        losses, self._slopes, self._curvatures = self.loss.derivatives(self.X @ w, self.targets)
        linear_and_quadratic = self.shift @ w + self.regularization * (w @ w) / 2.0
        self._value = float(self.weights @ losses + linear_and_quadratic)
        self._gradient = self.shift + self.regularization * w
        self._gradient += (self.weights * self._slopes) @ self.X
        self._point = w.copy()


def relative_error(operations: int) -> float:
    r"""Return :math:`\gamma_k = ku/(1-ku)`, what k roundings in a row may be off by."""
    return operations * UNIT / (1.0 - operations * UNIT)


def minimise(objective: PerturbedObjective, data_norm: float, tol: float) -> Vector:
    """Minimise to a gradient norm of ``tol``, or as near to it as floating point allows.

    The minimiser differs from ``-shift / regularization`` by a combination of the rows, so with
    fewer rows than features the search takes place in the span of the rows.
    """
    X, shift = objective.X, objective.shift
    if X.shape[0] >= X.shape[1]:
        return _minimise_tall(objective, data_norm, tol)
    basis = np.linalg.qr(X.T)[0]
    inside = basis.T @ shift
    reduced = PerturbedObjective(
        X @ basis,
        objective.targets,
        objective.weights,
        inside,
        objective.regularization,
        objective.loss,
    )
    w = basis @ _minimise_tall(reduced, data_norm, tol)
    return w - (shift - basis @ inside) / objective.regularization


def _minimise_tall(objective: PerturbedObjective, data_norm: float, tol: float) -> Vector:
    """Start from the minimiser on a tenth of the rows, where there are rows to spare.

    That start is so near that one Hessian, the expensive part, serves to the end, and it need not
    be exact: a quarter of the rows tells it well enough.
    """
    n_rows, n_features = objective.X.shape
    if n_rows >= max(10_000, 100 * n_features):
        near = _minimise_tall(objective.thinned(10), data_norm, 1e-3 * data_norm)
        approximation = objective.thinned(4).hessian
        w, reached = _solve_stationarity(objective, approximation, near, tol)
        if reached:
            return w
    w = _follow_regularization(objective, data_norm, tol)
    return _solve_stationarity(objective, objective.hessian, w, tol)[0]


def _solve_stationarity(
    objective: PerturbedObjective,
    hessian: Callable[[Vector], Matrix],
    start: Vector,
    tol: float,
) -> tuple[Vector, bool]:
    """Solve gradient = 0 with SciPy's hybrid method: one Hessian, then Broyden's updates.

    It compares gradients, not values of the objective, whose differences drown in rounding errors
    near the minimum. It stops on small steps only, so the gradient's norm is watched from here.
    Returns the best point met and whether the tolerance was reached.
    """
    best, best_norm = start, math.inf

    def watched_gradient(w: Vector) -> Vector:
        nonlocal best, best_norm
        gradient = objective.gradient(w)
        norm = float(np.linalg.norm(gradient))
        if norm < best_norm:
            best, best_norm = w.copy(), norm
        if norm <= tol:
            raise _ToleranceReached
        return gradient

    with contextlib.suppress(_ToleranceReached):
        root(watched_gradient, start, jac=hessian, options={"xtol": 1e-15})
    return best, best_norm <= tol


class _ToleranceReached(Exception):  # noqa: N818
    """The search is over: an event, not an error."""


def _follow_regularization(objective: PerturbedObjective, data_norm: float, tol: float) -> Vector:
    """Approach a small regularization from larger ones, a decade at a time.

    Far from the minimiser the loss is next to linear, and only the regularization bends it: where
    that is weak, Newton steps are useless until the search has come near.
    """
    target = objective.regularization
    decades = max(0, math.ceil(math.log10(1e-4 * data_norm**2 / target)))
    level = objective.regularized(target * 10.0**decades)
    starts = [np.zeros_like(level.shift), -level.shift / level.regularization]
    for decade in range(decades, -1, -1):
        level = objective.regularized(target * 10.0**decade)
        w = min(starts, key=lambda point: level.value_and_gradient(point)[0])
        goal = tol if decade == 0 else 1e-3 * data_norm
        w = _dogleg(level, w, data_norm, goal)
        starts = [w, 10.0 * w]
    return w


def _dogleg(objective: PerturbedObjective, start: Vector, data_norm: float, tol: float) -> Vector:
    """Run SciPy's dogleg trust-region method."""
    return minimize(
        objective.value_and_gradient,
        start,
        jac=True,
        hess=objective.hessian,
        method="dogleg",
        options={
            "gtol": tol,
            "initial_trust_radius": 1.0 / data_norm,
            "max_trust_radius": float(np.finfo(np.float64).max),
            "maxiter": 500,
        },
    ).x
