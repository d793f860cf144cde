"""Rows in the partitions of a Dask array: learners ask them for sums, and they stay there.

Loss, gradient and Hessian are sums over rows, and so are the bounds on their roundings. Each pass
checks the rows again, as it reads them again. Noise is none of the partitions' business.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.errors import DataError, NotSupportedError
from convexmarket.learners.minimiser import Matrix, PerturbedObjective, Vector
from convexmarket.learners.norms import bounded_rows

__all__ = ["PartedObjective", "PartedRows", "is_parted", "labels_of", "whole_rows", "within_norm"]

#: Rows that are fetched, for a start near the minimum.
_SAMPLE = 100_000


def is_parted(X: Any) -> bool:
    """Say whether rows are in the partitions of Dask."""
    return hasattr(X, "to_delayed")


def whole_rows(X: Any) -> Any:
    """Return a Dask array of numbers whose partitions hold whole rows, of known number.

    Raises
    ------
    DataError
        If it is none.
    """
    if not hasattr(X, "rechunk"):
        raise DataError("X is a Dask table; pass its numbers, X.to_dask_array(lengths=True)")
    if np.isnan(X.shape).any():
        raise DataError("X has partitions of unknown length; pass X.compute_chunk_sizes()")
    if X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind not in "fiub":
        raise DataError(f"X must be a matrix of numbers, got {X.dtype} of shape {X.shape}")
    return X.rechunk({1: -1})


def labels_of(X: Any, y: Any) -> NDArray[Any]:
    """Return the labels of rows in partitions, which are few enough for one memory.

    Raises
    ------
    DataError
        If there is not one for each row.
    """
    labels = np.asarray(y)
    if labels.shape != (X.shape[0],):
        raise DataError(f"y has shape {labels.shape} for {X.shape[0]} rows; give one each")
    return labels


class PartedRows:
    """The rows that are used, of a Dask array; a matrix to nobody but who asks for sums of rows.

    Parameters
    ----------
    X : Dask array of shape (n_rows, n_features)
        As :func:`whole_rows` returns it.
    used : ndarray of bool, shape (n_rows,)
        The other rows are dropped before anything looks at what they hold.
    checked : callable
        Given the rows of a partition that are used, finite numbers, it returns them as the learner
        wants them, or raises DataError. Every pass calls it.

    Attributes
    ----------
    shape : (int, int)
    sampled : ndarray of int
        Which of the rows that are used :meth:`fetched` keeps, spread evenly.
    sample : ndarray of shape (n_sampled, n_features)

    Raises
    ------
    NotSupportedError
        If there are fewer rows than features.
    """

    sample: Matrix

    def __init__(
        self, X: Any, used: NDArray[np.bool_], checked: Callable[[Matrix], Matrix]
    ) -> None:
        self.shape = (int(np.count_nonzero(used)), int(X.shape[1]))
        if self.shape[0] < self.shape[1]:
            raise NotSupportedError(
                f"X has {self.shape[0]} rows that are used and {self.shape[1]} features; fewer rows"
                " than features are for memory: fit X.compute()"
            )
        self._X, self._used, self._checked = X, used, checked
        self._parts = list(X.to_delayed()[:, 0])
        self._of_rows = np.cumsum(X.chunks[0])[:-1]
        masks = np.split(used, self._of_rows)
        self._of_used = np.cumsum([np.count_nonzero(mask) for mask in masks])[:-1]
        self._masks = _kept_there([(mask,) for mask in masks])
        self.sampled = np.arange(0, self.shape[0], max(4, -(-self.shape[0] // _SAMPLE)))

    def fetched(self) -> PartedRows:
        """Check all rows in a pass, and keep a sample, for a start near the minimum."""
        cuts = np.searchsorted(self.sampled, self._of_used)
        starts = [0, *self._of_used]
        places = [
            (some - start,)
            for some, start in zip(np.split(self.sampled, cuts), starts, strict=True)
        ]
        self.sample = np.concatenate(self.each(_taken, places))
        return self

    def __getitem__(self, kept: NDArray[np.bool_]) -> PartedRows:
        """Return some of the rows."""
        used = self._used.copy()
        used[used] = kept
        return PartedRows(self._X, used, self._checked).fetched()

    def beside(self, *columns: Vector) -> list[Any]:
        """Send columns of the rows that are used to where the rows are."""
        return _kept_there(
            list(zip(*(np.split(one, self._of_used) for one in columns), strict=True))
        )

    def each(self, work: Callable[..., Any], columns: list[Any]) -> list[Any]:
        """Return what the work gives for the rows and columns of each partition; one pass.

        Raises
        ------
        DataError
            If a row is not what the learner wants, or holds no finite number; the message names
            the partition.
        """
        import dask

        read = dask.delayed(partial(_on_rows, work, self._checked), pure=False)
        every = zip(self._parts, self._masks, columns, strict=True)
        found = dask.compute(*(read(part, mask, own) for part, mask, own in every))
        for number, (_, fault) in enumerate(found):
            if fault:
                raise DataError(f"partition {number} of X: {fault}")
        return [one for one, _ in found]


def _kept_there(columns: list[Any]) -> list[Any]:
    """Return what Dask keeps beside each partition, so that no pass sends it again."""
    import dask

    return list(dask.persist(*(dask.delayed(one, pure=False, traverse=False) for one in columns)))


def _on_rows(
    work: Callable[..., Any],
    checked: Callable[[Matrix], Matrix],
    part: Any,
    mask: tuple[Any],
    own: tuple[Any, ...],
) -> tuple[Any, str]:
    """Return what the work gives, and what is wrong with the rows."""
    rows = np.asarray(part)[mask[0]]
    if rows.dtype != np.float32:
        rows = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(rows).all():
        return None, "a row holds NaN or infinity; give finite numbers"
    try:
        return work(np.ascontiguousarray(checked(rows)), *own), ""
    except DataError as error:
        return None, str(error)


def _taken(rows: Matrix, places: NDArray[np.intp]) -> Matrix:
    return rows[places]


def within_norm(data_norm: float, rows: Matrix) -> Matrix:
    """Return rows of at most a norm; those within its slack are shortened to it."""
    return bounded_rows(rows, data_norm)[0]


class PartedObjective(PerturbedObjective):
    """The objective of rows in partitions; each value, Hessian and error bound is a pass."""

    # No matrix: every method that reads rows is one of this class.
    X: PartedRows  # type: ignore[assignment]

    def __init__(self, X: PartedRows, *rest: Any) -> None:
        super().__init__(X, *rest)  # type: ignore[arg-type]
        self._columns = X.beside(self.targets, self.weights)

    def hessian(self, w: Vector) -> Matrix:
        """Return the Hessian at w, shape (n_features, n_features)."""
        return self.regularization * np.eye(w.size) + self._sum(_hessian, w)

    def thinned(self, step: int) -> PerturbedObjective:
        """Return the objective on the rows that were fetched, with the same total weight."""
        weights = self.weights[self.X.sampled]
        weights = weights * (self.weights.sum() / weights.sum())
        thin = (self.X.sample, self.targets[self.X.sampled], weights, self.shift)
        return PerturbedObjective(*thin, self.regularization, self.loss)

    def _sum(self, work: Callable[..., Any], *arguments: Any) -> Any:
        each = self.X.each(partial(_on_part, work, arguments, self.loss), self._columns)
        return np.sum(each, axis=0)

    def _move_to(self, w: Vector) -> None:
        if self._point is not None and np.array_equal(self._point, w):
            return
        value, *gradient = self._sum(_value_and_gradient, w)
        self._value = float(value + self.shift @ w + self.regularization * (w @ w) / 2.0)
        self._gradient = self.shift + self.regularization * w + np.asarray(gradient)
        self._point = w.copy()

    def _data_error(self, magnitudes: Vector, n_rows: int) -> Vector:
        return np.asarray(self._sum(_data_error, self._point, magnitudes, n_rows))


def _on_part(
    work: Callable[..., Any], arguments: Any, loss: Any, rows: Matrix, targets: Any, weights: Any
) -> Any:
    nothing = np.zeros(rows.shape[1])
    return work(PerturbedObjective(rows, targets, weights, nothing, 0.0, loss), *arguments)


def _value_and_gradient(objective: PerturbedObjective, w: Vector) -> Vector:
    value, gradient = objective.value_and_gradient(w)
    return np.concatenate([[value], gradient])


def _hessian(objective: PerturbedObjective, w: Vector) -> Matrix:
    return objective.hessian(w)


def _data_error(
    objective: PerturbedObjective, w: Vector, magnitudes: Vector, n_rows: int
) -> Vector:
    objective.gradient(w)
    return objective._data_error(magnitudes, n_rows)
