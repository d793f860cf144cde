"""Define the public inputs of a fit, such as the domain of the data and the granted epsilons.

A :class:`Ball` bounds the Euclidean norm of every row, and a :class:`Box` bounds every feature.
Labels belong to :class:`Classes` or to an :class:`Interval`. If a bound is None, ``of`` computes
the bound from the private rows and issues a :class:`~convexmarket.errors.PrivacyLeakWarning`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, validate_data

from convexmarket.checks import (
    LARGEST,
    SMALLEST,
    check_instance,
    check_scales,
    checked_numbers,
    is_iterable,
    moderate,
    numbers_of,
    row_norms,
    warn_user,
    where_no_number,
)
from convexmarket.data.features import PublicFeatures
from convexmarket.errors import (
    DataError,
    DataTypeError,
    NotSupportedError,
    ParameterError,
    PrivacyLeakWarning,
)
from convexmarket.learners.minimiser import PartedRows, in_parts

Floats = NDArray[np.float64]
Range: TypeAlias = tuple[ArrayLike, ArrayLike]

#: Relative excess over a bound that is attributed to rounding.
SLACK = 1e-12
SINGLE_PRECISION, DOUBLE_PRECISION = 2.0**-23, 2.0**-52
#: Share of the mean epsilon below which an epsilon is replaced by 0, so that its row is not used.
TRACE = 1e-6
#: Smallest permitted value of the largest epsilon of a fit.
LEAST = 1e-50


@dataclass(frozen=True)
class Ball:
    """The set of rows with Euclidean norm at most ``data_norm``."""

    data_norm: float

    @classmethod
    def of(cls, data_norm: Any, X: NDArray[Any] | None = None) -> Ball:
        """Check a public bound on the norms, or compute the bound from the private rows X."""
        if data_norm is not None:
            check_scales(data_norm=data_norm)
            return cls(float(data_norm))
        assert X is not None
        _warn_of_leak("data_norm", "a public bound")
        return cls(float(row_norms(np.asarray(X, dtype=np.float64)).max()) or 1.0)

    def rows(self, X: NDArray[Any], what: str = "rows") -> Floats:
        """Convert rows to double precision, and shrink rows that exceed the bound by rounding."""
        single = X.dtype == np.float32
        slack = (X.shape[1] + 8) * SINGLE_PRECISION if single else SLACK
        X = np.asarray(X, dtype=np.float64)
        norms = row_norms(X)
        _refuse(
            ~(norms <= self.data_norm * (1.0 + slack)),
            f"{what} are longer than data_norm = {self.data_norm:g}; project each row onto the "
            "ball with convexmarket.datasets.scale_rows, or pass a larger public bound",
        )
        if (over := norms > self.data_norm).any():
            X = X.copy()
            below = 1.0 - (X.shape[1] + 16) * DOUBLE_PRECISION
            X[over] *= (self.data_norm * below / norms[over])[:, None]
        return X

    def coefficients(self, model: Floats) -> tuple[Floats, float]:
        """Return coefficients and intercept in the units of the data."""
        return model, 0.0

    @property
    def assumption(self) -> str:
        """Text of a guarantee's assumption about the rows."""
        return f"the norm of every row is at most {self.data_norm:g}, a public bound"


@dataclass(frozen=True, eq=False)
class Box:
    """The set of rows whose features lie in public ranges, which are mapped to [0, 1]."""

    low: Floats
    width: Floats
    centre: float = 0.0  # number that is subtracted from the features on the unit scale
    constant: float = 0.0  # value of an appended feature; 0 for no feature

    @classmethod
    def of(
        cls, feature_range: Any, n_features: int, X: Floats | None = None, **options: float
    ) -> Box:
        """Check a public range, or compute the range from the private rows X."""
        if feature_range is None:
            assert X is not None
            _warn_of_leak("feature_range", "a public range")
            low, high = X.min(axis=0), X.max(axis=0)
            low = np.where(high > low, low, high - 1.0)  # a constant column is mapped to 1
            return cls(low, high - low, **options)
        low, high = _pair("feature_range", feature_range)
        for bound in (low, high):
            if bound.shape not in ((), (n_features,)):
                raise ParameterError(
                    f"feature_range has a bound of shape {bound.shape} for {n_features} features; "
                    "give a number, or one number for each feature"
                )
        low, high = (np.broadcast_to(bound, n_features) for bound in (low, high))
        return cls(low, high - low, **options)

    def rows(self, X: NDArray[Any], check: bool = True) -> Floats:
        """Return rows on the unit scale."""
        unit = (X - self.low) / self.width
        if check:
            _refuse(
                np.any((unit < -SLACK) | (unit > 1.0 + SLACK), axis=1),
                "rows lie outside feature_range; pass a wider public range, or clip each row to "
                "feature_range",
            )
            unit = np.clip(unit, 0.0, 1.0, out=unit)
        unit -= self.centre
        return np.pad(unit, [(0, 0), (0, bool(self.constant))], constant_values=self.constant)

    def coefficients(self, model: Floats) -> tuple[Floats, float]:
        """Convert a model on the unit scale to coefficients and intercept for unit labels."""
        size = self.low.size
        coef = model[:size] / self.width
        level = float(model[size:].sum() * self.constant) - float(self.centre * model[:size].sum())
        return coef, level - float(coef @ self.low)

    @property
    def assumption(self) -> str:
        """Text of a guarantee's assumption about the rows."""
        return "every feature is within feature_range, which is public"


@dataclass(frozen=True, eq=False)
class Classes:
    """Two labels, the second of which is the positive class."""

    values: NDArray[Any]

    @classmethod
    def of(cls, classes: Any, y: NDArray[Any] | None = None) -> Classes:
        """Check a public set of two labels, or compute the set from the private labels y."""
        if classes is None:
            assert y is not None
            check_classification_targets(y)
            values = np.unique(y)
            if values.size != 2:
                raise DataError(
                    f"Only binary classification is supported. y contains {values.size} classes; "
                    "pass the public label set as classes=(negative, positive)"
                )
            _warn_of_leak("classes", "classes=(negative, positive)")
            return cls(values)
        labels = list(classes) if isinstance(classes, (tuple, list, np.ndarray)) else []
        single = not any(isinstance(label, (tuple, list, dict, np.ndarray)) for label in labels)
        if len(labels) != 2 or not single or labels[0] == labels[1]:
            raise ParameterError(f"classes must be two different labels, got {classes!r}")
        return cls(np.asarray(classes))

    def numbers(self, y: NDArray[Any]) -> Floats:
        """Return the labels as -1 and 1."""
        positive = np.asarray(y == self.values[1])
        unknown = ~(positive | np.asarray(y == self.values[0]))
        remedy = "pass classes=(negative, positive)"
        if unknown.any() and np.asarray(y).dtype.kind in "fiu" and np.unique(y).size > 2:
            remedy += ", or train convexmarket.PersonalizedRidge on a numeric target"
        known = tuple(self.values.tolist())
        _refuse(unknown, f"labels are not in the public classes {known}; {remedy}")
        return np.where(positive, 1.0, -1.0)

    @property
    def assumption(self) -> str:
        """Text of a guarantee's assumption about the labels."""
        return f"the label set {tuple(self.values.tolist())} is public"


@dataclass(frozen=True)
class Interval:
    """The set of labels between two numbers."""

    low: float
    high: float

    @classmethod
    def of(cls, target_range: Any, y: Floats | None = None) -> Interval:
        """Check a public range, or compute the range from the private labels y."""
        if target_range is None:
            assert y is not None
            _warn_of_leak("target_range", "a public range")
            low, high = float(np.min(y)), float(np.max(y))
            return cls(low, high) if high > low else cls(low - 1.0, high + 1.0)
        bounds = _pair("target_range", target_range)
        if bounds[0].ndim or bounds[1].ndim:
            raise ParameterError(f"target_range must be two numbers, got {target_range!r}")
        return cls(float(bounds[0]), float(bounds[1]))

    def numbers(self, y: Any) -> Floats:
        """Check that labels are in the interval, and clip labels that are outside by rounding."""
        labels = checked_numbers("y", y, DataError, truth_values=True)
        slack = SLACK * (self.high - self.low)
        _refuse(
            ~((labels >= self.low - slack) & (labels <= self.high + slack)),
            f"labels lie outside target_range = ({self.low:g}, {self.high:g}); pass a wider public "
            "range, or clip each label to target_range",
        )
        return np.clip(labels, self.low, self.high)

    @property
    def middle(self) -> float:
        """Label that is 0 on the unit scale."""
        return (self.low + self.high) / 2.0

    @property
    def half(self) -> float:
        """Half the width of the interval, which is 1 on the unit scale."""
        return (self.high - self.low) / 2.0

    @property
    def assumption(self) -> str:
        """Text of a guarantee's assumption about the labels."""
        return f"every label is in ({self.low:g}, {self.high:g}), a public range"


@dataclass(frozen=True)
class Domain:
    """The public domain of rows and labels. Labels are scaled as ``(y - middle) / half``."""

    rows: Ball | Box
    labels: Classes | Interval
    middle: float = 0.0
    half: float = 1.0


def _refuse(outside: NDArray[np.bool_], what: str) -> None:
    if count := np.count_nonzero(outside):
        raise DataError(f"{count} of {outside.size} {what}")


def _pair(name: str, bounds: Any) -> tuple[Floats, Floats]:
    pair = list(bounds) if is_iterable(bounds) else []
    low, high = map(numbers_of, pair) if len(pair) == 2 else (None, None)
    if low is None or high is None:
        raise ParameterError(f"{name} must be a pair of public bounds, or None, got {bounds!r}")
    sizes = np.abs([*low.flat, *high.flat])
    if not (np.all(sizes <= LARGEST) and np.all(high - low >= SMALLEST)):
        raise ParameterError(
            f"{name} must be finite bounds with low < high, of size at most {LARGEST:g} and width "
            f"at least {SMALLEST:g}, got ({low}, {high})"
        )
    return low, high


def _warn_of_leak(name: str, remedy: str) -> None:
    why = f"{name} was computed from the private rows, so no guarantee covers it"
    warn_user(f"{why}: pass {remedy}.", PrivacyLeakWarning)


class Perturbation(ABC):
    """The plan of a release, computed from public numbers. Vectors have one entry per used row."""

    weights: Floats  # weights of the used rows in the loss
    epsilon: Floats
    regularization: float
    name: str  # description of the noise in the guarantee
    accounting: str  # name of the bound on epsilon
    assumptions: tuple[str, ...]  # assumptions besides the domain
    noisy: bool = True
    exact: bool = True  # whether the noise is on a lattice
    delta: float = 0.0
    shift: Floats | None = None  # change by one row, in standard deviations of Gaussian noise

    @abstractmethod
    def release(
        self, X: Floats | PartedRows, y: Floats, rng: np.random.Generator
    ) -> tuple[Floats, dict[str, Any]]:
        """Return the noisy model on the unit scale, and other fitted attributes."""

    @abstractmethod
    def noise_effect(self, second: Floats) -> float:
        """Compute the standard deviation of noisy predictions from the mean squares of features."""


@dataclass(frozen=True, eq=False)
class Granted:
    """The public, granted epsilon of each row. Infinity means no protection."""

    epsilon: Floats

    @classmethod
    def of(cls, X: ArrayLike, epsilon: ArrayLike | None) -> Granted:
        """Check that the granted epsilons match the number of rows of X.

        An epsilon below a millionth of the mean is attributed to solver errors and replaced by 0.
        """
        if epsilon is None:
            raise ParameterError(
                "epsilon is missing; pass the epsilon of each row, such as the epsilon of an "
                "allocation, or one number for all rows, fit(X, y, epsilon=...). In a pipeline, "
                "pass epsilon= to the constructor"
            )
        n_rows = _rows_of(X)
        array = checked_numbers("epsilon", epsilon)
        if array.ndim == 0:
            array = np.full(n_rows, float(array))
        if array.shape != (n_rows,):
            raise ParameterError(
                f"epsilon has shape {array.shape} for {n_rows} rows; give one number for each "
                "row, or one number for all rows"
            )
        if not np.all(array >= 0):
            raise ParameterError("epsilon must be nonnegative in every row; give 0 to omit a row")
        if 0 < array.max() < LEAST or np.any(np.isfinite(array) & (array > LARGEST)):
            raise ParameterError(
                f"epsilon must be between {LEAST:g} and {LARGEST:g}, got up to "
                f"{array.max():g}; give infinity for no privacy, or 0 to leave a row out"
            )
        if np.isfinite(array).all() and array.any():
            array = np.where(array < TRACE * array.sum() / np.count_nonzero(array), 0.0, array)
        if not np.any(array):
            raise ParameterError("epsilon is 0 in every row; give some rows a positive epsilon")
        return cls(array)

    @property
    def used(self) -> NDArray[np.bool_]:
        """Mask of the used rows, whose epsilon is positive, shape (n_rows,)."""
        return self.epsilon > 0

    @property
    def positive(self) -> Floats:
        """Epsilons of the used rows, shape (n_used,)."""
        return self.epsilon[self.used]

    def rows(self, X: Any, y: Any) -> tuple[Any, Any]:
        """Select the used rows and their labels, without reading any other row."""
        if self.used.all() or y is None:
            return X, y
        try:
            return tuple(_safe_indexing(each, self.used) for each in indexable(X, y))
        except ValueError as error:
            raise DataError(str(error)) from error

    def spread(self, values: Floats) -> Floats:
        """Expand values of the used rows to all rows, with zeros for the other rows."""
        spread = np.zeros_like(self.epsilon)
        spread[self.used] = values
        return spread

    def weights(self) -> Floats:
        """Return the weights of the used rows, which are proportional to their epsilons.

        If some epsilons are infinite, their rows have equal weights, and all other weights are 0.
        """
        positive = self.positive
        if (infinite := np.isinf(positive)).any():
            return np.asarray(infinite / np.count_nonzero(infinite))
        shares = np.ldexp(positive, -int(np.frexp(positive.max())[1]))  # scale exactly
        return np.asarray(shares / shares.sum())


def _rows_of(X: Any) -> int:
    if hasattr(X, "dask"):
        raise DataError("X is a Dask collection; pass convexmarket.partitions.rows(X)")
    try:
        n_rows = int(_num_samples(X))
    except TypeError:
        n_rows = -1
    if n_rows < 0:  # raised outside the handler, because scikit-learn's message can quote X
        raise DataError(f"X must be a matrix of rows, got a {type(X).__name__} without rows")
    if n_rows == 0:
        raise DataError("Found array with 0 sample(s), X must have at least one row")
    return n_rows


def dense_rows(estimator: Any, X: Any, *labels: Any, box: bool = False, **options: Any) -> Any:
    """Check with scikit-learn that rows and labels are real numbers of moderate size.

    The ``features`` of the estimator convert a table to numbers. Messages do not quote entries.
    """
    if in_parts(X):
        name = type(estimator).__name__
        raise NotSupportedError(f"{name} needs its rows in memory; fit X.compute()")
    if issparse(X):
        raise DataError("X is sparse, which is not supported; pass the dense matrix, X.toarray()")
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
                f"{name} must hold numbers: {where}; an argument must be real, neither a "
                "string nor a complex number"
            )
    result, words = None, ""
    try:
        result = validate_data(estimator, X, *labels, **options)
    except (TypeError, ValueError, OverflowError) as error:
        words = str(error)
    if result is None:  # raised outside the handler, because scikit-learn's message can quote rows
        raise DataError(_without_cells(words))
    return (moderate(result[0]), *result[1:]) if labels else moderate(result)


#: First words of scikit-learn's messages that do not quote entries of rows.
_PUBLIC = (
    "Expected 2D array", "Found array with", "Found input variables", "Input X contains",
    "Input y contains", "The feature names should match", "X has ", "requires y to be passed",
    "y should be a 1d array",
)  # fmt: skip


def _without_cells(message: str) -> str:
    """Return scikit-learn's message, or replace it if it can quote entries."""
    if not any(begins in message for begins in _PUBLIC):
        return "X and y must be rows of finite real numbers, with one label for each row"
    start, _, rest = message.partition("\narray=")
    _, _, remedy = rest.partition("Reshape your data")
    return start + (f" Reshape your data{remedy}" if remedy else "")
