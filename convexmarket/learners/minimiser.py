"""Minimise a weighted loss plus a linear and a quadratic term.

The guarantee of objective perturbation holds for the *exact* minimiser. Newton's method therefore
iterates until rounding errors dominate. The norm of the gradient at the last point is bounded. Rows
can be stored in several parts. All rows are read and checked again in each pass.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotrs

from convexmarket.checks import moderate, numbers_of
from convexmarket.errors import DataError, NotSupportedError, SolverError
from convexmarket.learners.losses import LogisticLoss, Loss

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

UNIT = 2.0**-53  # half the distance from 1.0 to the next float
LOGISTIC = LogisticLoss()
TINY = float(np.finfo(np.float64).tiny)
SLOPE_UNITS = 16.0  # relative error of a slope, from exp, a sum and a quotient
MAX_STEPS = 500
IDLE_STEPS = 20  # number of steps without progress after which the search stops
REUSE = 0.05  # a Hessian is reused if its step multiplies the gradient norm by at most this factor
ROUNDING = 4e-16  # relative length below which a step has no effect
SAMPLE = 100_000  # number of rows that are fetched from parts to compute a starting point


class PerturbedObjective:
    """A weighted loss plus a linear and a quadratic term. The latest derivatives are cached."""

    chunk = 1024  # number of rows of X whose scaled copy fits in the processor's cache

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
        """Compute the objective and its gradient at w."""
        self._move_to(w)
        return self._value, self._gradient.copy()

    def gradient(self, w: Vector) -> Vector:
        """Compute the gradient at w."""
        return self.value_and_gradient(w)[1]

    def gradient_norm(self, w: Vector) -> tuple[float, float]:
        r"""Compute the norm of the gradient, and bound the rounding error of this norm.

        To first order, k operations have a relative error of at most :math:`\gamma_k = ku/(1-ku)`.
        A sum of k products, in any order, has an error of at most :math:`\gamma_k` times the sum of
        their absolute values. The error of a prediction is therefore at most
        :math:`\delta_i = \gamma_n |x_i|^\top|w|`. The error of a slope is :math:`\delta_i` times
        the curvature nearby, plus 16 units for its evaluation, if ``exp`` is correct to four units
        in the last place. The errors of the sum over rows, of the quadratic and linear terms, and
        of the norm are added to these errors. All terms of the bound are nonnegative. The bound is
        doubled to cover its rounding errors for fewer than 1e15 rows and features.
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
        """Bound the rounding error of the sum over these rows, in a gradient of ``n_rows`` rows."""
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
        """Compute the Hessian at w, shape (n_features, n_features)."""
        self._move_to(w)
        scale = np.sqrt(self.weights * self._curvatures)[:, None]
        hessian = self.regularization * np.eye(w.size)
        for start in range(0, len(scale), self.chunk):
            rows = slice(start, start + self.chunk)
            scaled = scale[rows] * self.X[rows]
            hessian += scaled.T @ scaled
        return hessian

    def newton_step(self, w: Vector) -> Callable[[Vector], Vector]:
        """Return a function that maps a gradient to the Newton step with the Hessian at w."""
        factor, fault = dpotrf(self.hessian(w))
        if fault:
            raise SolverError("the Hessian is not positive definite; use a larger regularization")
        return lambda gradient: -dpotrs(factor, gradient)[0]

    def regularized(self, regularization: float) -> PerturbedObjective:
        """Return a copy of the objective with another regularization."""
        same = copy.copy(self)
        same.regularization, same._point = regularization, None
        return same

    def thinned(self) -> PerturbedObjective:
        """Return the objective on every tenth row, without changing the total weight."""
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
        losses, self._slopes, self._curvatures = self.loss.derivatives(self.X @ w, self.targets)
        return float(self.weights @ losses), (self.weights * self._slopes) @ self.X


def relative_error(operations: int) -> float:
    r"""Return :math:`\gamma_k = ku/(1-ku)`, which bounds the relative error of k roundings."""
    return operations * UNIT / (1.0 - operations * UNIT)


def minimise(objective: PerturbedObjective, tol: float, start: Vector | None = None) -> Vector:
    """Minimise to a gradient norm of ``tol``, and return the point of the smallest gradient norm.

    The line search uses slopes, because near the minimum they are more accurate than values.
    """
    n_rows, n_features = objective.X.shape
    newton, last = None, 0.0
    if start is None:
        w, alone = np.zeros(n_features), -objective.shift / objective.regularization
        if objective.value_and_gradient(alone)[0] < objective.value_and_gradient(w)[0]:
            w = alone
        if n_rows >= max(10_000, 100 * n_features):
            goal = 1e-3 * float(np.linalg.norm(objective.gradient(w)))
            thin = objective.thinned()
            w = minimise(thin, max(tol, goal))
            newton, last = thin.newton_step(w), math.inf
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
        if newton is None or norm > REUSE * last:
            newton = objective.newton_step(w)
        last = norm
        step = newton(gradient)
        step = step * _step_length(objective, w, step, norm)
        if np.linalg.norm(step) <= ROUNDING * np.linalg.norm(w):
            return best
        w = w + step
    return best


def _step_length(objective: PerturbedObjective, w: Vector, step: Vector, norm: float) -> float:
    """Return a step length of 1, or a shorter length that reduces the slope to a hundredth."""
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


class RowParts(Protocol):
    """A matrix whose rows are stored in several parts, and functions that process each part."""

    shape: tuple[int, int]

    def send(self, *columns: NDArray[Any]) -> Any:
        """Split columns that have one entry per row, and store the entries with their rows."""

    def map_parts(self, work: Callable[..., Any], *sent: Any) -> list[Any]:
        """Apply the function to the rows of each part and the columns stored with them."""


def in_parts(X: Any) -> TypeGuard[RowParts]:
    """Check whether rows are stored in several parts."""
    return hasattr(X, "map_parts")


def labels_of(X: RowParts, y: Any) -> NDArray[Any]:
    """Check that rows in parts have one label for each row, and return the labels."""
    labels = np.asarray(y)
    if labels.shape != (X.shape[0],):
        raise DataError(f"y has shape {labels.shape} for {X.shape[0]} rows; give one label per row")
    return labels


class PartedRows:
    """The used rows of a fit, stored in parts. Rows that are not used are never read.

    In every pass, ``checked`` converts the used rows of a part to the learner's units and adds
    ``extra`` columns, or raises a DataError.
    """

    sample: Matrix

    def __init__(
        self,
        parts: RowParts,
        used: NDArray[np.bool_],
        checked: Callable[[Matrix], Matrix],
        extra: int = 0,
    ) -> None:
        self.shape = (int(np.count_nonzero(used)), parts.shape[1] + extra)
        if self.shape[0] < self.shape[1]:
            raise NotSupportedError(
                f"X has {self.shape[0]} used rows and {self.shape[1]} features; partitions need "
                "at least as many rows as features: fit X.compute()"
            )
        self._parts, self._used, self._checked, self._extra = parts, used, checked, extra
        self._sent = parts.send(used)
        self.sampled = np.arange(0, self.shape[0], max(4, -(-self.shape[0] // SAMPLE)))

    def fetched(self) -> PartedRows:
        """Check all rows in one pass, and store a sample for the choice of a starting point."""
        taken = np.isin(np.arange(self.shape[0]), self.sampled)
        self.sample = np.concatenate(self.each(_taken, self.send(taken)))
        return self

    def __getitem__(self, mask: Any) -> PartedRows:
        """Select rows by a mask. Slices need a matrix in memory and raise an error."""
        if isinstance(mask, slice):
            raise NotSupportedError(
                "regularization is too small for rows in partitions; use a larger value, or fit "
                "X.compute()"
            )
        used = self._used.copy()
        used[used] = mask
        return PartedRows(self._parts, used, self._checked, self._extra).fetched()

    def send(self, *columns: NDArray[Any]) -> Any:
        """Split columns of the used rows, and store the entries with their rows."""
        positions = np.cumsum(self._used) - 1  # entries for unused rows are arbitrary
        return self._parts.send(*(column[positions] for column in columns))

    def each(self, work: Callable[..., Any], sent: Any) -> list[Any]:
        """Apply a function to the used rows and columns of each part in one pass."""
        results = self._parts.map_parts(partial(_on_rows, work, self._checked), self._sent, sent)
        for number, (_, fault) in enumerate(results):
            if fault:
                raise DataError(f"partition {number} of X: {fault}")
        return [result for result, _ in results]


def _on_rows(
    work: Callable[..., Any],
    checked: Callable[[Matrix], Matrix],
    part: Any,
    used: tuple[NDArray[np.bool_]],
    columns: tuple[NDArray[Any], ...],
) -> tuple[Any, str]:
    (mask,) = used
    rows = np.asarray(part)[mask]
    numbers = rows if rows.dtype == np.float32 else numbers_of(rows)
    if numbers is None:
        return None, "a row contains a cell that is not a real number; give only numbers"
    if not np.isfinite(numbers).all():
        return None, "a row contains NaN or infinity; give finite numbers"
    try:
        rows = np.ascontiguousarray(checked(moderate(numbers)))
    except DataError as error:
        return None, str(error)
    return work(rows, *(column[mask] for column in columns)), ""


def _taken(rows: Matrix, taken: NDArray[np.bool_]) -> Matrix:
    return rows[taken]


class PartedObjective(PerturbedObjective):
    """The objective of rows in parts. Each value, Hessian or bound needs one pass over the rows."""

    # The base class stores X. All methods that read rows are overridden.
    X: PartedRows  # type: ignore[assignment]

    def __init__(self, X: PartedRows, *rest: Any) -> None:
        super().__init__(X, *rest)  # type: ignore[arg-type]
        self._sent = X.send(self.targets, self.weights)

    def hessian(self, w: Vector) -> Matrix:
        """Compute the Hessian at w, shape (n_features, n_features)."""
        return self.regularization * np.eye(w.size) + self._sum("hessian", w)

    def thinned(self) -> PerturbedObjective:
        """Return the objective on the fetched rows, without changing the total weight."""
        return self._part(self.X.sample, self.X.sampled)

    def _sum(self, method: str, w: Vector, *arguments: Any) -> Any:
        on_part = partial(_on_part, method, w, arguments, self.loss)
        return np.sum(self.X.each(on_part, self._sent), axis=0)

    def _of_data(self, w: Vector) -> tuple[float, Vector]:
        value, *gradient = self._sum("value_and_gradient", w)
        return value, np.asarray(gradient)

    def _data_error(self, magnitudes: Vector, n_rows: int) -> Vector:
        assert self._point is not None
        return np.asarray(self._sum("_data_error", self._point, magnitudes, n_rows))


def _on_part(
    method: str,
    w: Vector,
    arguments: Any,
    loss: Any,
    rows: Matrix,
    targets: Vector,
    weights: Vector,
) -> Vector:
    objective = PerturbedObjective(rows, targets, weights, np.zeros_like(w), 0.0, loss)
    value, gradient = objective.value_and_gradient(w)
    if method == "value_and_gradient":
        return np.concatenate([[value], gradient])
    return np.asarray(getattr(objective, method)(*(arguments or (w,))))
