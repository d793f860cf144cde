"""Checked, read-only fields of terms, constraints and costs; equality and repr by these fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, is_dataclass
from functools import partial
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import as_float, check_choice, is_number, label_array, numbers_of, shown
from convexmarket.errors import ParameterError

__all__ = ["Record", "checked", "choice", "groups", "matrix", "number", "one_or_each", "vector"]

Floats = NDArray[np.float64]
Matrix = Floats | sparse.csr_array
#: How far from one target weights may sum.
_SUM_ERROR = 1e-6


def checked(
    check: Callable[..., Any], name: str = "", *, each: bool = False, most: bool = False, **how: Any
) -> dict[str, Any]:
    """Create the metadata of a dataclass field.

    Parameters
    ----------
    check : callable
        Returns the value of the field, given the value and its name in messages.
    name : str
        The name in messages, by default that of the field.
    each, most : bool
        Whether an array has one entry or row per seller; whether m is the largest value.
    **how
        Further arguments of the check.
    """
    return {"check": partial(check, **how), "name": name, "each": each, "most": most}


class Record:
    """A dataclass with checked fields; equality, hash and repr are those of its fields."""

    @classmethod
    def _fields(cls) -> dict[str, Field[Any]]:
        """Return the fields; none of a class that is not a dataclass."""
        return getattr(cls, "__dataclass_fields__", {})

    def __post_init__(self) -> None:
        for name, field in self._fields().items():
            if check := field.metadata.get("check"):
                value = check(getattr(self, name), field.metadata["name"] or name)
                object.__setattr__(self, name, value)

    def check(self, n_sellers: int) -> None:
        """Check that the fields fit the number of sellers.

        Raises
        ------
        ParameterError
            If one does not.
        """
        for field_name, field in self._fields().items():
            name, value = field.metadata.get("name") or field_name, getattr(self, field_name, None)
            shape = getattr(value, "shape", ())
            if field.metadata.get("each") and shape and shape[0] != n_sellers:
                what = "rows" if len(shape) == 2 else "entries"
                raise ParameterError(
                    f"{name} has {shape[0]} {what} for {n_sellers} sellers; give one for each"
                )
            if field.metadata.get("most") and value is not None and value > n_sellers:
                raise ParameterError(
                    f"{name} is {value!r}, but there are {n_sellers} sellers; give at most "
                    f"{n_sellers}"
                )

    def _values(self) -> dict[str, Any]:
        fields = self._fields().items()
        return {name: getattr(self, name) for name, field in fields if field.init}

    def _key(self) -> tuple[Any, ...]:
        if not is_dataclass(self):
            return (id(self),)
        return tuple(map(_hashable, self._values().values()))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Record) and type(other) is type(self) and self._key() == other._key()
        )

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        parts = []
        for name, value in self._values().items():
            field = self._fields()[name]
            if field.default is MISSING and field.default_factory is MISSING:
                parts.append(_brief(value))
                continue
            default = field.default if field.default_factory is MISSING else field.default_factory()
            if isinstance(value, np.ndarray | cp.Expression) or value != default:
                parts.append(f"{name}={_brief(value)}")
        return f"{type(self).__name__}({', '.join(parts)})"


def _hashable(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.shape, *value.ravel().tolist()
    if isinstance(value, cp.Parameter):
        return id(value)
    if isinstance(value, Mapping):
        return frozenset(value.items())
    if is_sparse(value):
        return value.shape, *zip(*map(np.ndarray.tolist, sparse.find(value)), strict=True)
    return value


def is_sparse(value: Any) -> bool:
    """Test for a sparse matrix, without its type, which has no shape."""
    return sparse.issparse(value)


def _brief(value: Any) -> str:
    """Write a value for a repr; of an array its size, and the range of a vector of numbers."""
    if isinstance(value, cp.Parameter):
        return f"parameter {value.name()!r}"
    shape = getattr(value, "shape", ())
    if not shape:
        return f"{value:g}" if isinstance(value, float) else repr(value)
    if len(shape) == 1 and value.dtype.kind == "f":
        return f"<{value.size} values in [{value.min():g}, {value.max():g}]>"
    return f"<{' x '.join(map(str, shape))} entries>"


def _floats(value: Any) -> Floats:
    """Convert to a read-only array of floats; to one NaN if an entry is not a number."""
    numbers = numbers_of(value)
    array = np.array(np.nan if numbers is None else numbers)
    array.flags.writeable = False
    return array


def number(value: Any, name: str, interval: str, also: float = np.nan) -> Any:
    """Check a number in an interval such as ``"[0, 1)"``, or equal to ``also``."""
    given = as_float(value)
    low, high = map(float, interval[1:-1].split(","))
    inside = low <= given <= high and (given != low or interval[0] == "[")
    if not (inside and (given != high or interval[-1] == "]")) and given != also:
        other = "" if np.isnan(also) else f", or {also:g}"
        raise ParameterError(f"{name} must be a number in {interval}{other}, got {value!r}")
    return value


def choice(value: Any, name: str, words: Any) -> Any:
    """Check for one of the words of a ``Literal``."""
    check_choice(name, value, words)
    return value


def one_or_each(
    value: Any, name: str, example: str = "", zero: bool = False, unit: str = "seller"
) -> float | Floats | cp.Parameter:
    """Check a positive number such as ``example``, or a nonnegative one for each ``unit``.

    Without an example, one number for all is refused; with ``zero``, it may be 0.
    """
    if isinstance(value, cp.Parameter) and not zero:
        if value.ndim > 1 or (value.ndim == 0 and not example) or not value.is_nonneg():
            raise ParameterError(
                f"the parameter of {name} must be cp.Parameter(nonneg=True), or have one entry for "
                f"each {unit}"
            )
        return value
    if example and (0 < as_float(value) < np.inf or (zero and is_number(value) and value == 0)):
        return value
    array = _floats(value)
    if is_number(value) or array.ndim != 1 or array.size == 0:
        scalar = f"a finite number {'>= 0' if zero else '> 0'}, such as {example}, or "
        scalar *= bool(example)
        raise ParameterError(
            f"{name} must be {scalar}a vector with one for each {unit}, got {shown(value)}"
        )
    bad = ~((array >= 0) & (array < np.inf))
    if bad.any():
        first = int(np.argmax(bad))
        raise ParameterError(f"{name}[{first}] must be finite numbers >= 0, got {array[first]}")
    return array


def vector(value: Any, name: str, of: str = "one for each seller") -> Floats:
    """Check finite numbers; ``of`` describes them."""
    array = _floats(value)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ParameterError(f"{name} must be a vector of finite numbers, {of}, got {shown(value)}")
    return array


def matrix(value: Any, name: str, of: str) -> Floats | sparse.csr_array:
    """Check a matrix of finite numbers, which stays dense or sparse; ``of`` describes it."""
    checked_value: Any = _floats(value) if not is_sparse(value) else None
    numbers = checked_value
    if checked_value is None:
        checked_value = sparse.csr_array(value).astype(float)
        checked_value.sum_duplicates()
        numbers = checked_value.data
        numbers.flags.writeable = False
    if checked_value.ndim != 2 or 0 in checked_value.shape or not np.isfinite(numbers).all():
        shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
        raise ParameterError(
            f"{name} is a {type(value).__name__}{shape}; give a matrix of finite numbers, {of}"
        )
    return checked_value


def target(value: Any, name: str, positive: bool = False) -> Floats | None:
    """Check target weights; None is accepted."""
    if value is None:
        return None
    weights = vector(value, name, "the target weight of each seller")
    bad = weights <= 0 if positive else weights < 0
    if bad.any():
        first = int(np.argmax(bad))
        wanted = "> 0, or leave out who has none" if positive else ">= 0"
        raise ParameterError(
            f"{name}[{first}] must be target weights {wanted}, got {weights[first]}"
        )
    if abs(weights.sum() - 1.0) > _SUM_ERROR:
        raise ParameterError(
            f"{name} sums to {weights.sum():g}; divide it by its sum, as weights sum to one"
        )
    return weights


def groups(value: Any, name: str) -> NDArray[Any]:
    """Check the group of each seller."""
    labels = label_array(value)
    if labels.ndim != 1 or labels.size == 0:
        raise ParameterError(f"{name} must name the group of each seller: a column or a list")
    return labels
