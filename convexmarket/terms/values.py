"""The numbers that pieces hold: checked, read-only, short to print, and compared by value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import as_float, is_number, label_array, numbers_of, shown
from convexmarket.errors import ParameterError

__all__ = [
    "ByValue",
    "brief",
    "check_length",
    "checked_groups",
    "checked_matrix",
    "checked_reference",
    "checked_vector",
    "one_or_each",
]

Floats = NDArray[np.float64]
Matrix = Floats | sparse.csr_array

#: How far from one target weights may sum.
_SUM_ERROR = 1e-6


@dataclass(frozen=True, eq=False)
class ByValue:
    """Equality and hash by the values of the fields, which may be arrays."""

    def _key(self) -> tuple[Any, ...]:
        return tuple(_hashable(getattr(self, field.name)) for field in fields(self) if field.init)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, *value.ravel().tolist()
    if isinstance(value, cp.Parameter):
        return id(value)
    if isinstance(value, Mapping):
        return frozenset(value.items())
    if _is_sparse(value):
        return value.shape, *zip(*map(np.ndarray.tolist, sparse.find(value)), strict=True)
    return value


def _is_sparse(value: Any) -> bool:  # without its type, which has no shape
    return sparse.issparse(value)


def brief(values: Any) -> str:
    """Write a number, the range of a vector or the name of a parameter, for a repr."""
    if isinstance(values, cp.Parameter):
        return f"parameter {values.name()!r}"
    if not isinstance(values, np.ndarray):
        return repr(values)
    return f"<{values.size} values in [{values.min():g}, {values.max():g}]>"


def check_length(name: str, values: Any, n_sellers: int) -> None:
    """Check that a vector or matrix has one entry or row for each seller."""
    shape = getattr(values, "shape", ())
    if shape and shape[0] != n_sellers:
        what = "rows" if len(shape) == 2 else "entries"
        raise ParameterError(
            f"{name} has {shape[0]} {what} for {n_sellers} sellers; give one for each"
        )


def _floats(value: Any) -> Floats:
    """Convert to a read-only array of floats; to one NaN if an entry is not a number."""
    numbers = numbers_of(value)
    array = np.array(np.nan if numbers is None else numbers)
    array.flags.writeable = False
    return array


def one_or_each(
    name: str,
    value: Any,
    example: str,
    *,
    zero: bool = False,
    each: str = "seller",
    parameter: bool = False,
) -> float | Floats:
    """Return a positive number, or one nonnegative number for ``each`` seller, read-only.

    With ``zero``, a number for all may be zero; with ``parameter``, it may be a cvxpy.Parameter.
    """
    if parameter and isinstance(value, cp.Parameter):
        if value.ndim > 1 or not value.is_nonneg():
            raise ParameterError(
                f"the parameter of {name} must be cp.Parameter(nonneg=True), or have one entry for "
                f"each {each}"
            )
        return value  # type: ignore[return-value]
    wanted = f"a finite number {'>= 0' if zero else '> 0'}, such as {example}"
    if is_number(value):
        if not (0 < as_float(value) < np.inf or (zero and value == 0)):
            raise ParameterError(f"{name} must be {wanted}, got {value!r}")
        return value
    array = _floats(value)
    if array.ndim != 1 or array.size == 0:
        raise ParameterError(
            f"{name} must be {wanted}, or a vector with one for each {each}, got {value!r}"
        )
    bad = ~((array >= 0) & (array < np.inf))
    if bad.any():
        first = int(np.argmax(bad))
        raise ParameterError(f"{name}[{first}] must be finite numbers >= 0, got {array[first]}")
    return array


def checked_vector(name: str, value: Any, of: str) -> Floats:
    """Return finite numbers, read-only; ``of`` describes them."""
    array = _floats(value)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ParameterError(f"{name} must be a vector of finite numbers, {of}, got {shown(value)}")
    return array


def checked_matrix(name: str, value: Any, of: str) -> Matrix:
    """Return finite numbers, dense or sparse as they were given, read-only."""
    if _is_sparse(value):
        matrix: Any = sparse.csr_array(value).astype(float)
        matrix.sum_duplicates()
        numbers = matrix.data
        numbers.flags.writeable = False
    else:
        numbers = matrix = _floats(value)
    if matrix.ndim != 2 or 0 in matrix.shape or not np.isfinite(numbers).all():
        shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
        raise ParameterError(
            f"{name} is a {type(value).__name__}{shape}; give a matrix of finite numbers, {of}"
        )
    return matrix


def checked_reference(value: Any, *, positive: bool = False) -> Floats | None:
    """Return target weights, read-only; None stands for none."""
    if value is None:
        return None
    target = checked_vector("reference", value, "the target weight of each seller")
    bad = target <= 0 if positive else target < 0
    if bad.any():
        first = int(np.argmax(bad))
        wanted = "> 0, or leave out who has none" if positive else ">= 0"
        raise ParameterError(
            f"reference[{first}] must be target weights {wanted}, got {target[first]}"
        )
    if abs(target.sum() - 1.0) > _SUM_ERROR:
        raise ParameterError(
            f"reference sums to {target.sum():g}; divide it by its sum, as weights sum to one"
        )
    return target


def checked_groups(value: Any) -> tuple[NDArray[Any], Sequence[Any]]:
    """Return the group of each seller, read-only, and the groups in the order they appear."""
    groups = label_array(value)
    if groups.ndim != 1 or groups.size == 0:
        raise ParameterError("groups must name the group of each seller: a column or a list")
    return groups, list(dict.fromkeys(groups.tolist()))
