"""Rows that are stored in several parts: learners need only sums over them.

Loss, gradient, Hessian and the bounds on their rounding errors are sums over rows. Each pass reads
the rows again, and checks them again. Noise does not depend on the parts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from convexmarket.checks import moderate, numbers_of
from convexmarket.errors import DataError, NotSupportedError
from convexmarket.learners.minimiser import Matrix, PerturbedObjective, Vector

__all__ = ["PartedObjective", "PartedRows", "RowParts", "in_parts", "labels_of"]

#: Largest number of rows to fetch for a start near the minimum.
_SAMPLE = 100_000


class RowParts(Protocol):
    """A matrix whose rows are stored in several parts; functions are mapped over the parts."""

    shape: tuple[int, int]

    def send(self, *columns: NDArray[Any]) -> Any:
        """Split columns with one entry per row like the rows, and store them with the rows."""

    def map_parts(self, work: Callable[..., Any], *sent: Any) -> list[Any]:
        """Return the result of the function for the rows and the sent columns of each part."""


def in_parts(X: Any) -> TypeGuard[RowParts]:
    """Check whether rows are stored in several parts."""
    return hasattr(X, "map_parts")


def labels_of(X: RowParts, y: Any) -> NDArray[Any]:
    """Return the labels of rows in parts, one for each row, or raise a DataError."""
    labels = np.asarray(y)
    if labels.shape != (X.shape[0],):
        raise DataError(f"y has shape {labels.shape} for {X.shape[0]} rows; give one each")
    return labels


class PartedRows:
    """The used rows of a fit, in parts; other rows are never read.

    Every pass calls ``checked`` with the used rows of a part, finite numbers; it returns them in
    the learner's units with ``extra`` columns, or raises DataError. ``sampled`` are positions
    among the used rows; :meth:`fetched` stores these rows as ``sample``.
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
                f"X has {self.shape[0]} rows that are used and {self.shape[1]} features; fewer rows"
                " than features are for memory: fit X.compute()"
            )
        self._parts, self._used, self._checked, self._extra = parts, used, checked, extra
        self._sent = parts.send(used)
        self.sampled = np.arange(0, self.shape[0], max(4, -(-self.shape[0] // _SAMPLE)))

    def fetched(self) -> PartedRows:
        """Check all rows in a pass, and keep a sample, for a start near the minimum."""
        taken = np.isin(np.arange(self.shape[0]), self.sampled)
        self.sample = np.concatenate(self.each(_taken, self.send(taken)))
        return self

    def __getitem__(self, mask: Any) -> PartedRows:
        """Select rows by a mask; a slice would be a matrix in memory."""
        if isinstance(mask, slice):
            raise NotSupportedError(
                "regularization is too small for rows in partitions; use a larger one, or fit "
                "X.compute()"
            )
        used = self._used.copy()
        used[used] = mask
        return PartedRows(self._parts, used, self._checked, self._extra).fetched()

    def send(self, *columns: NDArray[Any]) -> Any:
        """Send columns of the used rows to the parts."""
        positions = np.cumsum(self._used) - 1  # values of other rows are not read
        return self._parts.send(*(column[positions] for column in columns))

    def each(self, work: Callable[..., Any], sent: Any) -> list[Any]:
        """Return the results of a function for the used rows and columns of each part; one pass.

        The DataError for a row that is refused names the part.
        """
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
    """Return the result of the function, or the fault of the rows."""
    (mask,) = used
    rows = np.asarray(part)[mask]
    numbers = rows if rows.dtype == np.float32 else numbers_of(rows)
    if numbers is None:
        return None, "a row holds a cell that is not a real number; give numbers"
    if not np.isfinite(numbers).all():
        return None, "a row holds NaN or infinity; give finite numbers"
    try:
        rows = np.ascontiguousarray(checked(moderate(numbers)))
    except DataError as error:
        return None, str(error)
    return work(rows, *(column[mask] for column in columns)), ""


def _taken(rows: Matrix, taken: NDArray[np.bool_]) -> Matrix:
    return rows[taken]


class PartedObjective(PerturbedObjective):
    """The objective of rows in parts; each value, Hessian and error bound is a pass."""

    # No matrix: all methods that read rows are overridden here.
    X: PartedRows  # type: ignore[assignment]

    def __init__(self, X: PartedRows, *rest: Any) -> None:
        super().__init__(X, *rest)  # type: ignore[arg-type]
        self._sent = X.send(self.targets, self.weights)

    def hessian(self, w: Vector) -> Matrix:
        """Return the Hessian at w, shape (n_features, n_features)."""
        return self.regularization * np.eye(w.size) + self._sum("hessian", w)

    def thinned(self) -> PerturbedObjective:
        """Return the objective on the fetched rows, with the same total weight."""
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
    """Evaluate the losses of a part at w by a method of the objective."""
    objective = PerturbedObjective(rows, targets, weights, np.zeros_like(w), 0.0, loss)
    value, gradient = objective.value_and_gradient(w)
    if method == "value_and_gradient":
        return np.concatenate([[value], gradient])
    return np.asarray(getattr(objective, method)(*(arguments or (w,))))
