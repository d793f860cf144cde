"""What a ridge regression accepts: public boxes for rows and labels, and their unit scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import LARGEST, SMALLEST, is_iterable, numbers_of, warn_user
from convexmarket.errors import DataError, ParameterError, PrivacyLeakWarning
from convexmarket.learners.ridge_math import (
    Matrix,
    Vector,
    chunks,
)

__all__ = [
    "RANGE_SLACK",
    "BoxRows",
    "Domain",
    "Range",
    "UnitRows",
    "check_rows",
    "pair_of_bounds",
    "per_feature",
    "positive_width",
    "warn_of_leak",
]

Range: TypeAlias = tuple[ArrayLike, ArrayLike]

RANGE_SLACK = 1e-12  # of the range's width; rows scaled to it in floating point may exceed it


@dataclass(frozen=True, eq=False)
class Domain:
    """The public box that rows and labels lie in, mapped to [0, 1]^d and [-1, 1]."""

    low: Vector
    width: Vector
    centre: float
    half: float

    def unit_rows(self, X: Matrix) -> UnitRows:
        """Return the rows on the unit scale, computed when they are asked for."""
        return UnitRows(X, self)

    def box_rows(self, X: Matrix) -> BoxRows:
        """Return the rows on the unit scale, those within the slack moved to the edge."""
        return BoxRows(X, self)

    def checked(self, boxed: bool, X: Matrix) -> Matrix:
        """Return rows of a partition on the unit scale, and in the box to the last digit if asked.

        Raises
        ------
        DataError
            If one lies outside its domain.
        """
        check_rows(self.unit_rows(X))
        return (self.box_rows(X) if boxed else self.unit_rows(X))[:]

    def unit_labels(self, y: Vector) -> Vector:
        """Return the labels on the unit scale."""
        return (y - self.centre) / self.half


@dataclass(frozen=True, eq=False)
class UnitRows:
    """Rows on the unit scale, a slice at a time, so that no scaled copy of the data is kept."""

    X: Matrix
    domain: Domain

    @property
    def shape(self) -> tuple[int, ...]:
        """Numbers of rows and of features."""
        return self.X.shape

    def __getitem__(self, rows: slice) -> Matrix:
        return (self.X[rows] - self.domain.low) / self.domain.width


class BoxRows(UnitRows):
    """Rows on the unit scale that lie in the unit box to the last digit."""

    def __getitem__(self, rows: slice) -> Matrix:
        return np.clip(super().__getitem__(rows), 0.0, 1.0)


def pair_of_bounds(name: str, bounds: Any) -> tuple[Vector, Vector]:
    """Return low and high as arrays."""
    pair = list(bounds) if is_iterable(bounds) else []
    low, high = map(numbers_of, pair) if len(pair) == 2 else (None, None)
    if low is None or high is None:
        raise ParameterError(
            f"{name} must be a pair (low, high) of public bounds, or None, got {bounds!r}"
        )
    return low, high


def per_feature(array: Vector, n_features: int) -> Vector:
    """Return a bound as one number per feature."""
    if array.shape not in ((), (n_features,)):
        raise ParameterError(
            f"feature_range has a bound of shape {array.shape} for {n_features} features; give a "
            "number, or one per feature"
        )
    return np.broadcast_to(array, n_features)


def positive_width(name: str, low: Vector, high: Vector) -> Vector:
    """Return ``high - low``, or refuse a range without width, or at the ends of floating point."""
    if not (np.all(np.abs([low, high]) <= LARGEST) and np.all(high - low >= SMALLEST)):
        raise ParameterError(
            f"{name} must be finite with low < high, of at most {LARGEST:g} and no narrower than "
            f"{SMALLEST:g}, not ({low}, {high})"
        )
    return high - low


def check_rows(rows: UnitRows) -> None:
    """Refuse rows outside their domain, a few thousand at a time."""
    outside = 0
    for part in chunks(rows.shape[0]):
        unit = rows[part]
        if unit.min() < -RANGE_SLACK or unit.max() > 1.0 + RANGE_SLACK:
            bad = (unit < -RANGE_SLACK) | (unit > 1.0 + RANGE_SLACK)
            outside += int(np.count_nonzero(bad.any(axis=1)))
    if outside:
        raise DataError(
            f"{outside} of {rows.shape[0]} rows lie outside feature_range; pass a wider public "
            "range, or clip each row to it"
        )


def warn_of_leak(name: str) -> None:
    """Warn that a range was computed from private rows."""
    warn_user(
        f"{name} was computed from the private rows, so no guarantee covers it: pass a public"
        " range.",
        PrivacyLeakWarning,
    )
