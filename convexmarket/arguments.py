"""Checks of what users pass, in words that name the argument, the value and the remedy."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable
from numbers import Real
from pathlib import Path
from typing import Any, TypeGuard, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.errors import ParameterError

__all__ = [
    "as_float",
    "check_callable",
    "check_choice",
    "check_count",
    "check_instance",
    "check_jobs",
    "check_nonnegative",
    "check_positive",
    "check_positives",
    "check_share",
    "checked_numbers",
    "is_iterable",
    "is_number",
    "shown",
    "warn_user",
]

#: Characters of an object that an error message shows.
_SHOWN = 120


def shown(value: object, write: Callable[[object], str] = repr) -> str:
    """Return what stands for a value in an error message: one line, long ones without their middle.

    A market's constraints stand at its end, so that both ends are kept.
    """
    text = " ".join(write(value).split())
    if len(text) <= _SHOWN:
        return text
    end = _SHOWN // 3
    return f"{text[: _SHOWN - end - 5]} ... {text[-end:]}"


def is_number(value: object) -> TypeGuard[float]:
    """Say whether a value is one real number, and not a truth value."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def is_iterable(value: object) -> TypeGuard[Iterable[Any]]:
    """Say whether a value can be gone through; an array without dimensions cannot."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


def as_float(value: object) -> float:
    """Return a real number as a float; NaN for what is none, or too large for a float."""
    if not is_number(value):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.nan


def check_positive(name: str, value: object) -> float:
    """Return a finite number > 0."""
    number = as_float(value)
    if not 0 < number < np.inf:
        raise ParameterError(f"{name} is {value!r}; give a finite number > 0")
    return number


def check_positives(**numbers: object) -> None:
    """Refuse numbers, given by name, that are not finite and > 0."""
    for name, value in numbers.items():
        check_positive(name, value)


def check_nonnegative(name: str, value: object) -> float:
    """Return a finite number >= 0."""
    number = as_float(value)
    if not 0 <= number < np.inf:
        raise ParameterError(f"{name} is {value!r}; give a finite number >= 0")
    return number


def check_share(name: str, value: object) -> float:
    """Return a number strictly between 0 and 1."""
    number = as_float(value)
    if not 0 < number < 1:
        raise ParameterError(f"{name} is {value!r}; give a number between 0 and 1")
    return number


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number that is at least as large as it has to be."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < least:
        raise ParameterError(f"{name} is {value!r}; give a whole number >= {least}")
    return int(value)


def check_jobs(jobs: Any) -> None:
    """Refuse a number of processes that joblib does not understand."""
    if isinstance(jobs, bool) or not isinstance(jobs, int | np.integer) or jobs == 0:
        raise ParameterError(f"jobs is {jobs!r}; give a whole number >= 1, or -1 for all cores")


def check_choice(name: str, value: object, choices: Any) -> None:
    """Refuse what is not one of the words of a ``Literal``."""
    words = get_args(choices)
    if not isinstance(value, str) or value not in words:
        known = ", ".join(map(repr, words))
        raise ParameterError(f"{name} is {value!r}; choose one of {known}")


def check_instance(
    name: str, value: object, kind: type[Any] | tuple[type[Any], ...], example: str = ""
) -> None:
    """Refuse an object of another kind, or of none of several; ``example`` says what to give."""
    if not isinstance(value, kind):
        remedy = example or f"a {getattr(kind, '__name__', kind)}"
        raise ParameterError(f"{name} is {shown(value)}; give {remedy}")


def check_callable(name: str, value: object, *, optional: bool = True) -> None:
    """Refuse what cannot be called; None stands for no call, where that is an option."""
    if not callable(value) and not (optional and value is None):
        raise ParameterError(f"{name} is {shown(value)}; give a function{', or None' * optional}")


def checked_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return an array of floats, whatever its shape."""
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError) as error:
        raise ParameterError(f"{name} must hold numbers: {error}") from None


def warn_user(message: str, category: type[Warning]) -> None:
    """Warn at the line of the user that led here, however deep inside the package."""
    package = str(Path(__file__).parent) + os.sep
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
