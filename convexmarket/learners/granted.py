"""Granted epsilons of the rows, and plans of releases from public numbers alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import _num_samples, validate_data

from convexmarket.checks import (
    LARGEST,
    check_instance,
    checked_numbers,
    moderate,
    numbers_of,
    where_no_number,
)
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, DataTypeError, NotSupportedError, ParameterError
from convexmarket.learners.minimiser import PartedRows, in_parts

__all__ = ["Granted", "Perturbation", "dense_rows"]

Vector = NDArray[np.float64]

#: Share of the mean epsilon below which a row is not used.
TRACE = 1e-6
#: Smallest value of the largest epsilon.
LEAST = 1e-50


class Perturbation(ABC):
    """A release that is planned from public numbers; vectors have one entry per used row."""

    weights: Vector  # of the loss
    epsilon: Vector
    regularization: float
    name: str  # description of the noise in the guarantee
    accounting: str  # name of the bound on epsilon
    assumptions: tuple[str, ...]  # assumptions besides those on the domain
    noisy: bool = True
    exact: bool = True  # noise on a lattice
    delta: float = 0.0
    shift: Vector | None = None  # shift of Gaussian noise, in standard deviations

    @abstractmethod
    def release(
        self, X: Vector | PartedRows, y: Vector, rng: np.random.Generator
    ) -> tuple[Vector, dict[str, Any]]:
        """Return the noisy model on the unit scale, and further fitted attributes."""

    @abstractmethod
    def noise_effect(self, second: Vector) -> float:
        """Return the deviation of a prediction by noise, for given mean squares of features."""


@dataclass(frozen=True, eq=False)
class Granted:
    """The granted epsilon of each row, which is public; infinity means no protection."""

    epsilon: Vector

    @classmethod
    def of(cls, X: ArrayLike, epsilon: ArrayLike | None) -> Granted:
        """Check the granted epsilons of the rows of X, of which only the number is read.

        Less than a millionth of the mean is an error of a solver, and counts as 0. Raises a
        ParameterError, or a DataError if X has no rows.
        """
        if epsilon is None:
            raise ParameterError(
                "epsilon is missing; pass what each row granted, fit(X, y, epsilon=...), such as "
                "the epsilon of an allocation, or one number for all rows. In a pipeline the "
                "constructor's epsilon= does as well"
            )
        n_rows = _rows_of(X)
        array = checked_numbers("epsilon", epsilon)
        if array.ndim == 0:
            array = np.full(n_rows, float(array))
        if array.shape != (n_rows,):
            raise ParameterError(
                f"epsilon has shape {array.shape} for {n_rows} rows; give one number per row, or "
                "one for all"
            )
        if not np.all(array >= 0):
            raise ParameterError(
                "epsilon must be nonnegative in every row: 0 is a row that is not to be used"
            )
        if 0 < array.max() < LEAST or np.any(np.isfinite(array) & (array > LARGEST)):
            raise ParameterError(
                f"epsilon must lie between {LEAST:g} and {LARGEST:g}, since other noise is beyond "
                f"the range of floating point, and is up to {array.max():g}; give infinity for no "
                "privacy, or 0 for rows that are not to be used"
            )
        if np.isfinite(array).all() and array.any():
            array = np.where(array < TRACE * array.sum() / np.count_nonzero(array), 0.0, array)
        if not np.any(array):
            raise ParameterError(
                "epsilon is 0 in every row, so no row can be used; buy some privacy first"
            )
        return cls(array)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Rows with a positive epsilon, shape (n_rows,)."""
        return self.epsilon > 0

    @property
    def positive(self) -> Vector:
        """Epsilons of the used rows, shape (n_used,)."""
        return self.epsilon[self.used]

    def rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Select the used rows and their labels, before any other row is read."""
        if self.used.all() or y is None:
            return X, y
        try:
            X, y = indexable(X, y)
        except ValueError as error:
            raise DataError(str(error)) from error
        return _safe_indexing(X, self.used), _safe_indexing(y, self.used)

    def spread(self, values: Vector) -> Vector:
        """Return values of the used rows as values of all rows; the others' are zero."""
        spread = np.zeros_like(self.epsilon)
        spread[self.used] = values
        return spread

    def weights(self) -> Vector:
        """Return the weights of the used rows, in proportion to their epsilons.

        If some epsilons are infinite, these rows share all weight equally.
        """
        positive = self.positive
        infinite = np.isinf(positive)
        if infinite.any():
            return np.asarray(infinite / np.count_nonzero(infinite))
        shares = np.ldexp(positive, -int(np.frexp(positive.max())[1]))  # to the last bit
        return np.asarray(shares / shares.sum())


def _rows_of(X: Any) -> int:
    """Return the number of rows, which is public."""
    if hasattr(X, "dask"):
        raise DataError("X is a Dask collection; pass convexmarket.partitions.rows(X)")
    try:
        n_rows = int(_num_samples(X))
    except TypeError:
        n_rows = -1
    if n_rows < 0:  # raised outside the handler, because scikit-learn quotes a single number
        raise DataError(f"X must be a matrix of rows, got a {type(X).__name__} without rows")
    if n_rows == 0:
        raise DataError("Found array with 0 sample(s), X must have at least one row")
    return n_rows


def dense_rows(estimator: Any, X: Any, *labels: Any, box: bool = False, **options: Any) -> Any:
    """Validate rows, and labels if given, by scikit-learn, as real numbers of moderate size.

    A table becomes rows by the estimator's ``features``, of the unit box or of their ball. Neither
    the message of a DataError nor its context quotes an entry.
    """
    if in_parts(X):
        raise NotSupportedError(
            f"{type(estimator).__name__} needs its rows in memory; fit X.compute()"
        )
    if issparse(X):
        raise DataError("X is sparse, which is not served; pass the dense matrix, X.toarray()")
    features = getattr(estimator, "features", None)
    if features is not None:
        check_instance("features", features, PublicFeatures)
        X = features.transform_to_box(X) if box else features.transform(X)
    for name, values in zip(("X", "y"), (X, *labels), strict=False):
        kind = getattr(getattr(values, "dtype", None), "kind", "")
        numeric = values is not None and (name == "X" or options.get("y_numeric"))
        if kind in ("c", "V") or (numeric and numbers_of(values, truth_values=True) is None):
            where = where_no_number(values, truth_values=True)
            where = "Complex data not supported" if kind == "c" else where
            raise DataTypeError(
                f"{name} must hold numbers: {where}; an argument must be real, neither a string"
                " nor a complex number"
            )
    result, words = None, ""
    try:
        result = validate_data(estimator, X, *labels, **options)
    except (TypeError, ValueError, OverflowError) as error:
        words = str(error)
    if result is None:  # raised outside the handler, because its error may quote rows
        raise DataError(_without_cells(words))
    return (moderate(result[0]), *result[1:]) if labels else moderate(result)


#: How scikit-learn's messages about shapes, missing numbers and names of columns begin.
_PUBLIC = (
    "Expected 2D array", "Found array with", "Found input variables", "Input X contains",
    "Input y contains", "The feature names should match", "X has ", "requires y to be passed",
    "y should be a 1d array",
)  # fmt: skip


def _without_cells(message: str) -> str:
    """Return scikit-learn's message, or a replacement if it may quote cells of the data."""
    if not any(begins in message for begins in _PUBLIC):
        return "X and y must be rows of finite real numbers, with one label for each row"
    start, _, rest = message.partition("\narray=")
    _, _, remedy = rest.partition("Reshape your data")
    return start + (f" Reshape your data{remedy}" if remedy else "")
