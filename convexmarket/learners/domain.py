"""Public domains of rows and labels, and the internal units of learners.

A :class:`Ball` bounds the Euclidean norm of every row, a :class:`Box` every feature. Labels come
from two :class:`Classes` or from an :class:`Interval`. Without a bound, ``of`` computes the domain
from the private rows, with a :class:`~convexmarket.errors.PrivacyLeakWarning`. Data outside
of a domain are refused with a DataError, by their number alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets

from convexmarket.checks import (
    LARGEST,
    SMALLEST,
    check_scales,
    checked_numbers,
    is_iterable,
    numbers_of,
    row_norms,
    warn_user,
)
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning

__all__ = ["Ball", "Box", "Classes", "Domain", "Interval", "Range"]

Floats = NDArray[np.float64]
Range: TypeAlias = tuple[ArrayLike, ArrayLike]

#: Relative excess over a bound that rounding explains in scaled rows.
SLACK = 1e-12
SINGLE_PRECISION, DOUBLE_PRECISION = 2.0**-23, 2.0**-52


@dataclass(frozen=True)
class Ball:
    """The rows with at most a given positive Euclidean norm."""

    data_norm: float

    @classmethod
    def of(cls, data_norm: Any, X: NDArray[Any] | None = None) -> Ball:
        """Check a public bound; None takes the largest norm of the private rows X."""
        if data_norm is not None:
            check_scales(data_norm=data_norm)
            return cls(float(data_norm))
        assert X is not None
        _warn_of_leak("data_norm", "a public bound")
        return cls(float(row_norms(np.asarray(X, dtype=np.float64)).max()) or 1.0)

    def rows(self, X: NDArray[Any], what: str = "rows") -> Floats:
        """Return rows in double precision; the excess of a row by its rounding is scaled back."""
        single = X.dtype == np.float32
        slack = (X.shape[1] + 8) * SINGLE_PRECISION if single else SLACK
        X = np.asarray(X, dtype=np.float64)
        norms = row_norms(X)
        _refuse(
            ~(norms <= self.data_norm * (1.0 + slack)),
            f"{what} are longer than data_norm = {self.data_norm:g}; project each row on the ball "
            "with convexmarket.datasets.scale_rows, or pass a larger public bound",
        )
        over = norms > self.data_norm
        if over.any():
            X = X.copy()
            below = 1.0 - (X.shape[1] + 16) * DOUBLE_PRECISION
            X[over] *= (self.data_norm * below / norms[over])[:, None]
        return X

    def coefficients(self, model: Floats) -> tuple[Floats, float]:
        """Return coefficients and intercept in the units of the data."""
        return model, 0.0

    @property
    def assumption(self) -> str:
        """Assumption of a guarantee on the rows."""
        return f"the norm of every row is at most {self.data_norm:g}, a public bound"


@dataclass(frozen=True, eq=False)
class Box:
    """The rows with every feature in a range, mapped to the unit box."""

    low: Floats
    width: Floats
    centre: float = 0.0  # subtracted from the features on the unit scale
    constant: float = 0.0  # a feature that is appended; 0 appends none

    @classmethod
    def of(
        cls, feature_range: Any, n_features: int, X: Floats | None = None, **options: float
    ) -> Box:
        """Check a public range; None takes that of the private rows X."""
        if feature_range is None:
            assert X is not None
            _warn_of_leak("feature_range", "a public range")
            low, high = X.min(axis=0), X.max(axis=0)
            low = np.where(high > low, low, high - 1.0)  # a constant column becomes one
            return cls(low, high - low, **options)
        low, high = _pair("feature_range", feature_range)
        for bound in (low, high):
            if bound.shape not in ((), (n_features,)):
                raise ParameterError(
                    f"feature_range has a bound of shape {bound.shape} for {n_features} features; "
                    "give a number, or one per feature"
                )
        low, high = (np.broadcast_to(bound, n_features) for bound in (low, high))
        return cls(low, high - low, **options)

    def rows(self, X: NDArray[Any], check: bool = True) -> Floats:
        """Return rows on the unit scale."""
        unit = (X - self.low) / self.width
        if check:
            _refuse(
                np.any((unit < -SLACK) | (unit > 1.0 + SLACK), axis=1),
                "rows lie outside feature_range; pass a wider public range, or clip each row to it",
            )
            unit = np.clip(unit, 0.0, 1.0, out=unit)
        unit -= self.centre
        return np.pad(unit, [(0, 0), (0, bool(self.constant))], constant_values=self.constant)

    def coefficients(self, model: Floats) -> tuple[Floats, float]:
        """Return coefficients and intercept of a model on the unit scale, of unit labels."""
        size = self.low.size
        coef = model[:size] / self.width
        level = float(model[size:].sum() * self.constant) - float(self.centre * model[:size].sum())
        return coef, level - float(coef @ self.low)

    @property
    def assumption(self) -> str:
        """Assumption of a guarantee on the rows."""
        return "every feature is within feature_range, which is public"


@dataclass(frozen=True, eq=False)
class Classes:
    """Two labels, of which the second is the positive one."""

    values: NDArray[Any]

    @classmethod
    def of(cls, classes: Any, y: NDArray[Any] | None = None) -> Classes:
        """Check a public set of two labels; None takes those of y."""
        if classes is None:
            assert y is not None
            check_classification_targets(y)
            values = np.unique(y)
            if values.size != 2:
                raise DataError(
                    f"Only binary classification is supported. y holds {values.size} classes; pass "
                    "the public label set as classes=(negative, positive)"
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
        """Assumption of a guarantee on the labels."""
        return f"the label set {tuple(self.values.tolist())} is public"


@dataclass(frozen=True)
class Interval:
    """Labels between two numbers."""

    low: float
    high: float

    @classmethod
    def of(cls, target_range: Any, y: Floats | None = None) -> Interval:
        """Check a public range; None takes that of the private labels y."""
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
        """Return labels; those outside the interval by rounding are moved to its ends."""
        labels = checked_numbers("y", y, DataError, truth_values=True)
        slack = SLACK * (self.high - self.low)
        _refuse(
            ~((labels >= self.low - slack) & (labels <= self.high + slack)),
            f"labels lie outside target_range = ({self.low:g}, {self.high:g}); pass a wider public "
            "range, or clip the labels to it one by one",
        )
        return np.clip(labels, self.low, self.high)

    @property
    def middle(self) -> float:
        """Label that is 0 on the unit scale."""
        return (self.low + self.high) / 2.0

    @property
    def half(self) -> float:
        """Length of a unit of the unit scale."""
        return (self.high - self.low) / 2.0

    @property
    def assumption(self) -> str:
        """Assumption of a guarantee on the labels."""
        return f"every label is in ({self.low:g}, {self.high:g}), a public range"


@dataclass(frozen=True)
class Domain:
    """The public domain of rows and labels; a release subtracts a label and divides by a unit."""

    rows: Ball | Box
    labels: Classes | Interval
    middle: float = 0.0
    half: float = 1.0


def _refuse(outside: NDArray[np.bool_], what: str) -> None:
    """Raise a DataError for rows or labels outside their domain."""
    count = np.count_nonzero(outside)
    if count:
        raise DataError(f"{count} of {outside.size} {what}")


def _pair(name: str, bounds: Any) -> tuple[Floats, Floats]:
    """Check a pair of bounds; refuse an empty range and the ends of floating point."""
    pair = list(bounds) if is_iterable(bounds) else []
    low, high = map(numbers_of, pair) if len(pair) == 2 else (None, None)
    if low is None or high is None:
        raise ParameterError(
            f"{name} must be a pair (low, high) of public bounds, or None, got {bounds!r}"
        )
    sizes = np.abs([*low.flat, *high.flat])
    if not (np.all(sizes <= LARGEST) and np.all(high - low >= SMALLEST)):
        raise ParameterError(
            f"{name} must be finite with low < high, of at most {LARGEST:g} and no narrower than "
            f"{SMALLEST:g}, not ({low}, {high})"
        )
    return low, high


def _warn_of_leak(name: str, remedy: str) -> None:
    warn_user(
        f"{name} was computed from the private rows, so no guarantee covers it: pass {remedy}.",
        PrivacyLeakWarning,
    )
