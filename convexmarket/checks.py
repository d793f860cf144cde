"""Checks of arguments and ids. Messages contain the argument, the value and a remedy."""

from __future__ import annotations

import os
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.errors import ConvexMarketError, DataError, ParameterError, SellersError

#: Bounds on public parameters of learners and releases, so that squares and ratios are finite.
SMALLEST, LARGEST = 1e-100, 1e100
#: Bounds on nonzero entries of rows, so that sums of squares neither overflow nor lose digits.
LEAST_ENTRY, LARGEST_ENTRY = 1e-150, 1e150
#: Largest number of characters of a value in an error message, and largest length of an id.
_SHOWN, LONGEST = 120, 200


def shown(value: object, write: Callable[[object], str] = repr) -> str:
    """Format a value as one printable line for a message, and omit the middle of a long text."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of {value.bit_length()} bits"
    text = " ".join(write(value).split())
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 45]} ... {text[-40:]}"


def is_number(value: object) -> TypeGuard[float]:
    """Test whether a value is a single real number, which excludes truth values."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    """Test whether a value can be iterated, which excludes arrays without dimensions."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


def as_float(value: object) -> float:
    """Convert a real number to a float, or return NaN for other values and too large numbers."""
    with suppress(OverflowError):
        return float(value) if is_number(value) else np.nan
    return np.nan


def _check(inside: Callable[[float], bool], what: str, name: str, value: object) -> float:
    number = as_float(value)
    if not inside(number):  # also rejects NaN
        raise ParameterError(f"{name} must {what}, got {value!r}")
    return number


check_positive = partial(_check, lambda x: 0 < x < np.inf, "be a finite number > 0")
check_nonnegative = partial(_check, lambda x: 0 <= x < np.inf, "be a finite number >= 0")
check_share = partial(_check, lambda x: 0 < x < 1, "lie strictly between 0 and 1")


def check_positives(**numbers: object) -> None:
    """Check that numbers, given by name, are finite and > 0."""
    for name, value in numbers.items():
        check_positive(name, value)


def check_scales(**numbers: object) -> None:
    """Check that squares and ratios of positive numbers are within the range of floats."""
    check_positives(**numbers)
    what = f"lie between {SMALLEST:g} and {LARGEST:g}"
    for name, value in numbers.items():
        _check(lambda x: SMALLEST <= x <= LARGEST, what, name, value)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Check that a value is a whole number of at least ``least``."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ParameterError(f"{name} must be a whole number >= {least}, got {value!r}")
    if value > 2**53:  # not all larger whole numbers are exact floats
        raise ParameterError(f"{name} must be at most 2**53, got {shown(value)}")
    return int(value)


def check_choice(name: str, value: Any, choices: Any) -> Any:
    """Check that a value is a member of a ``Literal``, and return it."""
    if not isinstance(value, str) or value not in get_args(choices):
        known = ", ".join(map(repr, get_args(choices)))
        raise ParameterError(f"{name} must be one of {known}, got {value!r}")
    return value


def check_instance(name: str, value: object, kind: Any, example: str = "") -> None:
    """Check the type of an object. The error message suggests ``example``."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        remedy = example or " or ".join(f"a {each.__name__}" for each in kinds)
        raise ParameterError(f"{name} must be {remedy}, got {shown(value)}")


def check_list(name: str, value: object, entries: str) -> None:
    """Check that a value can be iterated and is not a string."""
    if isinstance(value, str | bytes) or not is_iterable(value):
        raise ParameterError(f"{name} must be a list of {entries}, got {shown(value)}")


def numbers_of(values: Any, *, truth_values: bool = False) -> NDArray[np.float64] | None:
    """Convert real numbers to floats, or return None if an entry is not a real number."""
    kinds, others = ("fiub", (Decimal, bool, np.bool_)) if truth_values else ("fiu", (Decimal,))
    try:
        array = np.asarray(values)
        real = array.dtype.kind in kinds or not array.size
        if array.dtype.kind == "O":
            real = all(is_number(cell) or isinstance(cell, others) for cell in array.flat)
        return array.astype(np.float64, copy=False) if real else None
    except (TypeError, ValueError, OverflowError):  # messages can quote a private entry
        return None


def where_no_number(values: Any, *, truth_values: bool = False) -> str:
    """Describe the position, not the content, of the first cell that is not a real number."""
    named = isinstance(values, pd.DataFrame)
    try:
        table = pd.DataFrame(values if named else np.array(values, object), dtype=object)
    except (TypeError, ValueError):
        return f"it is of type {type(values).__name__}, without rows of equal length"
    for column, cells in table.items():
        for row, cell in enumerate(cells):
            if numbers_of(cell, truth_values=truth_values) is None:
                where = f" of column {column!r}" if named or table.shape[1] > 1 else ""
                return f"row {row}{where} is not a number"
    return "an entry is not a number"


def checked_numbers(
    name: str,
    values: Any,
    error: type[ConvexMarketError] = ParameterError,
    *,
    truth_values: bool = False,
) -> NDArray[np.float64]:
    """Convert real numbers to an array of floats of any shape."""
    array = numbers_of(values, truth_values=truth_values)
    if array is None:
        where = where_no_number(values, truth_values=truth_values)
        raise error(f"{name} must hold numbers: {where}")
    return array


def finite_entries(
    name: str,
    values: NDArray[np.float64],
    error: type[ConvexMarketError] = ParameterError,
    least: float = -np.inf,
) -> NDArray[np.float64]:
    """Check that numbers are finite and at least ``least``, and return a read-only copy."""
    good = np.isfinite(values) & (values >= least)
    if not good.all():
        first = int(np.argmin(good))
        what = "a finite number" + (f" >= {least:g}" if least > -np.inf else "")
        raise error(f"{name}[{first}] must be {what}, got {values.flat[first]}")
    copy = values.copy()
    copy.flags.writeable = False
    return copy


def moderate(values: NDArray[Any]) -> NDArray[Any]:
    """Clip absolute values to at most ``1e150``, and set entries below ``1e-150`` in size to 0.

    Private rows are changed, because an error would reveal information about the rows.
    """
    if values.dtype != np.float64:
        return values
    sizes = np.abs(values)
    tiny = (sizes < LEAST_ENTRY) & (sizes > 0)
    if not np.any(tiny | (sizes > LARGEST_ENTRY)):
        return values
    return np.where(tiny, 0.0, np.clip(values, -LARGEST_ENTRY, LARGEST_ENTRY))


def row_norms(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute Euclidean norms of finite rows, with exact scaling against overflow."""
    squares = np.einsum("ij,ij->i", X, X)
    if np.all((squares > 1e-200) & (squares < 1e200)):
        return np.sqrt(squares)
    exponents = np.frexp(np.abs(X).max(axis=1, initial=0.0))[1]
    scaled = np.ldexp(X, -exponents[:, None])
    return np.ldexp(np.sqrt(np.einsum("ij,ij->i", scaled, scaled)), exponents)


def labels_of(value: object) -> pd.Index[Any] | None:
    """Return the index of a pandas Series or DataFrame, or None for other values."""
    return value.index if isinstance(value, pd.Series | pd.DataFrame) else None


def group_array(groups: Any, error: type[ConvexMarketError] = ParameterError) -> NDArray[Any]:
    """Convert groups to a read-only array. Labels of several lengths yield an empty matrix."""
    try:
        labels, missing = np.array(groups), pd.isna(np.array(groups, dtype=object))
    except ValueError:  # the lists differ in length
        labels, missing = np.empty((0, 0)), np.empty(0, dtype=bool)
    for place in np.flatnonzero(missing)[:1]:
        raise error(f"groups[{place}] is missing; give the group of each seller, or omit its row")
    labels.flags.writeable = False
    return labels


def is_default(labels: pd.Index[Any]) -> bool:
    """Test whether labels are 0, 1, 2, ..., the default of pandas."""
    return isinstance(labels, pd.RangeIndex) and (labels.start, labels.step) == (0, 1)


def check_distinct(name: str, labels: pd.Index[Any]) -> None:
    """Check that no label repeats."""
    if not labels.is_unique:
        label, remedy = labels[labels.duplicated()][0], f"give distinct labels or {name}.to_numpy()"
        raise DataError(f"the label {label!r} belongs to more than one row of {name}; {remedy}")


def generator_of(random_state: object) -> np.random.Generator:
    """Return a generator unchanged, or create a generator from a seed."""
    with suppress(ValueError):  # the seed is negative
        if isinstance(random_state, int | np.integer | np.random.Generator):
            return np.random.default_rng(random_state)
    what = "a seed (a whole number >= 0) or a numpy.random.Generator"
    raise ParameterError(f"random_state must be {what}, got {shown(random_state)}")


def aligned(**arguments: Any) -> tuple[Any, ...]:
    """Reorder the rows of all arguments by the labels of the first pandas argument.

    Arguments without labels are matched by position, if all labels are in the same order.
    """
    labels = {k: value.index for k, value in arguments.items() if labels_of(value) is not None}
    if len(labels) < 2:
        return tuple(arguments.values())
    first, order = next(iter(labels.items()))
    for name, index in labels.items():
        check_distinct(name, index)
    moved = {name: index for name, index in labels.items() if not index.equals(order)}
    for name, index in moved.items():
        remedy = f"{name}.to_numpy() if it has the order of {first}"
        if is_default(index) or is_default(order):
            why = "different labels, some of which are pandas' default 0, 1, 2, ..."
            raise DataError(f"{first} and {name} have {why}; give the same labels, or {remedy}")
        if (lost := order.symmetric_difference(index, sort=False)).size:
            why = f"different rows: only one of them has the label {lost[0]!r}"
            raise DataError(f"{first} and {name} have {why}; give the same labels, or {remedy}")
    plain = [k for k, value in arguments.items() if k not in labels and np.ndim(value) > 0]
    for name in moved if plain else ():
        raise DataError(
            f"{first} and {name} have their labels in different orders, and {plain[0]} has none; "
            f"give it labels, or pass {name}.loc[{first}.index]"
        )
    return tuple(v.loc[order] if name in moved else v for name, v in arguments.items())


def warn_user(message: str, category: type[Warning]) -> None:
    """Issue a warning that points to the user's code outside of the package."""
    package = str(Path(__file__).parent) + os.sep
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def checked_id(id: Any, what: str = "id") -> str:
    """Compute the normal form of an id, which is printable text in Unicode form NFC.

    The form of a whole number is its decimal digits, so 1, 1.0 and "1" are the same id.
    """
    if isinstance(id, float) and id.is_integer() and abs(id) < 2**53:
        id = int(id)
    if isinstance(id, int | np.integer) and not isinstance(id, bool) and abs(int(id)) < 2**64:
        id = str(id)
    if not isinstance(id, str):
        raise ParameterError(f"{what} must be text or a whole number, got {shown(id)}")
    form = unicodedata.normalize("NFC", id)
    bad = "".join(letter for letter in form if not letter.isprintable())[:1]
    if not 1 <= len(form) <= LONGEST:
        fault = f"has {len(form)} characters; give from 1 to {LONGEST}"
    elif form != form.strip():
        fault = "begins or ends with a blank; remove it"
    elif bad:
        fault = f"contains {bad!a}, which is not printable; remove it"
    else:
        return form
    raise ParameterError(f"{what} {form[:LONGEST]!a} {fault}")


def forms_of(ids: Iterable[Any], place: Callable[[int], str] = "ids[{}]".format) -> list[str]:
    """Compute the normal form of each id. ``place`` describes a position in messages."""
    ids = list(ids)
    with suppress(TypeError):  # check all texts together for speed
        lines = "\n".join(["", *ids, ""])
        usual = "".join(ids).isprintable() and unicodedata.is_normalized("NFC", lines)
        blanks = any(bad in lines for bad in ("\n\n", "\n ", " \n"))
        if usual and not blanks and max(map(len, ids), default=0) <= LONGEST:
            return ids
    return [checked_id(id, place(k)) for k, id in enumerate(ids)]


def distinct_ids(ids: Any, m: int) -> Any:
    """Check and return the ids of m sellers. The default is 0 to m - 1."""
    if ids is None:
        return range(m)
    if not is_iterable(ids):
        raise SellersError(f"ids must be a list of text or whole numbers, got {shown(ids)}")
    try:
        forms = pd.Series(forms_of(names := tuple(ids)), dtype=object)
    except ParameterError as error:
        raise SellersError(str(error)) from None
    if len(names) != m:
        raise SellersError(f"{len(names)} ids for {m} sellers; give one for each seller")
    for id in forms[forms.duplicated()][:1]:
        raise SellersError(f"id {id!r} belongs to more than one seller; ids must be distinct")
    return names
