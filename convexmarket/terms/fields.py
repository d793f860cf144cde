"""Checked, read-only fields of terms, constraints and costs; equality and repr by these fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, dataclass, field, is_dataclass
from functools import partial
from typing import Any, ClassVar, TypeVar, dataclass_transform

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.checks import (
    as_float,
    check_choice,
    finite_entries,
    is_number,
    label_array,
    numbers_of,
    shown,
)
from convexmarket.errors import ParameterError

__all__ = ["Record", "checked", "record"]

T = TypeVar("T")
Floats = NDArray[np.float64]
#: How far from one target weights may sum.
_SUM_ERROR = 1e-6


def checked(
    check: Callable[..., Any],
    name: str = "",
    *,
    each: bool = False,
    most: bool = False,
    default: Any = MISSING,
    **how: Any,
) -> Any:
    """Create a field of a dataclass whose value is checked, and replaced by the checked value.

    Parameters
    ----------
    check : callable
        Returns the value of the field, given the value and its name in messages.
    name : str
        The name in messages, by default that of the field.
    each, most : bool
        Whether an array has one entry or row per seller; whether m is the largest value.
    default : Any
        The default value, if there is one.
    **how
        Further arguments of the check.
    """
    metadata = {"check": partial(check, **how), "name": name, "each": each, "most": most}
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(checked, field))
def record(kind: type[T]) -> type[T]:
    """Make a class a frozen dataclass with the equality, hash and repr of :class:`Record`."""
    return dataclass(frozen=True, eq=False, repr=False)(kind)


class Record:
    """A dataclass with checked fields; equality, hash and repr are those of its fields."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @classmethod
    def _fields(cls) -> dict[str, Field[Any]]:
        """Return the fields; none of a class that is not a dataclass."""
        return getattr(cls, "__dataclass_fields__", {})

    def __post_init__(self) -> None:
        for name, each in self._fields().items():
            if check := each.metadata.get("check"):
                value = check(getattr(self, name), each.metadata["name"] or name)
                object.__setattr__(self, name, value)

    def check(self, n_sellers: int) -> None:
        """Check that the fields fit the number of sellers.

        Raises
        ------
        ParameterError
            If one does not.
        """
        for field_name, each in self._fields().items():
            name, value = each.metadata.get("name") or field_name, getattr(self, field_name, None)
            shape = getattr(value, "shape", ())
            if each.metadata.get("each") and shape and shape[0] != n_sellers:
                what = "rows" if len(shape) == 2 else "entries"
                raise ParameterError(
                    f"{name} has {shape[0]} {what} for {n_sellers} sellers; give one for each"
                )
            if each.metadata.get("most") and value is not None and value > n_sellers:
                raise ParameterError(
                    f"{name} is {value!r}, but there are {n_sellers} sellers; give at most "
                    f"{n_sellers}"
                )

    def _key(self) -> tuple[Any, ...]:
        if not is_dataclass(self):
            return (id(self),)
        fields = self._fields().items()
        return tuple(_hashable(getattr(self, name)) for name, each in fields if each.init)

    def __eq__(self, other: Any) -> bool:
        return type(other) is type(self) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))

    def __repr__(self) -> str:
        parts = []
        for name, each in self._fields().items():
            if not each.init:
                continue
            value = getattr(self, name)
            default = each.default if each.default_factory is MISSING else each.default_factory()
            if default is MISSING:
                parts.append(_brief(value))
            elif _hashable(value) != _hashable(default):
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


def vector(
    value: Any, name: str, of: str = "a vector of finite numbers", least: float = -np.inf
) -> Floats:
    """Check finite numbers of at least ``least``; ``of`` describes them."""
    array = numbers_of(value)
    if array is None or array.ndim != 1 or array.size == 0:
        raise ParameterError(f"{name} must be {of}, got {shown(value)}")
    return finite_entries(name, array, least=least)


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
    of = f"a vector with one number for each {unit}"
    if example:
        of = f"a finite number {'>= 0' if zero else '> 0'}, such as {example}, or {of}"
    return vector(value, name, of, least=0.0)


def matrix(value: Any, name: str, of: str) -> Floats | sparse.csr_array:
    """Check a matrix of finite numbers, which stays dense or sparse; ``of`` describes it."""
    if is_sparse(value):
        array: Any = sparse.csr_array(value).astype(float)
        array.sum_duplicates()
    else:
        array = np.array(np.nan if (numbers := numbers_of(value)) is None else numbers)
    entries = array.data if is_sparse(value) else array
    entries.flags.writeable = False
    if array.ndim != 2 or 0 in array.shape or not np.isfinite(entries).all():
        shape = f" of shape {value.shape}" if hasattr(value, "shape") else ""
        raise ParameterError(
            f"{name} is a {type(value).__name__}{shape}; give a matrix of finite numbers, {of}"
        )
    return array


def target(value: Any, name: str, positive: bool = False) -> Floats | None:
    """Check target weights; None is accepted."""
    if value is None:
        return None
    of = "a vector of target weights, one for each seller"
    weights = vector(value, name, of, least=0.0)
    if positive and not weights.all():
        raise ParameterError(
            f"{name}[{int(np.argmin(weights))}] must be a target weight > 0, got 0; leave out "
            "sellers without weight"
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
