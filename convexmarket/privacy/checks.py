"""Numbers that are checked in many places: an error names the argument, the value, the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np

from convexmarket.arguments import as_float
from convexmarket.errors import ParameterError

__all__ = ["check_count", "check_delta", "check_failure", "check_positive", "is_number"]


def is_number(value: Any) -> bool:
    """Say whether a value is a real number, and not a truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def check_positive(**numbers: Any) -> None:
    """Refuse numbers that are not positive and finite.

    Raises
    ------
    ParameterError
        If one is not.
    """
    for name, value in numbers.items():
        if not is_number(value) or not 0 < as_float(value) < np.inf:
            raise ParameterError(f"{name} must be positive and finite, not {value!r}.")


def check_count(name: str, value: Any) -> int:
    """Return a count of at least one.

    Raises
    ------
    ParameterError
        If it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ParameterError(f"{name} must be an integer of at least 1, not {value!r}.")
    return int(value)


def check_failure(failure: Any) -> None:
    """Refuse a failure probability outside (0, 1).

    Raises
    ------
    ParameterError
        If it is outside.
    """
    if not is_number(failure) or not 0.0 < failure < 1.0:
        raise ParameterError(f"failure must lie strictly between 0 and 1, not {failure!r}.")


def check_delta(delta: Any, *, positive: bool = False, why: str = "") -> float:
    """Return delta, after checking that it is a probability below one.

    Parameters
    ----------
    delta : float
    positive : bool, default False
        Whether zero is refused.
    why : str
        What refuses it, for the message.

    Raises
    ------
    ParameterError
        If it is none.
    """
    if not is_number(delta) or not (0.0 <= delta < 1.0) or (positive and delta == 0.0):
        least = "strictly between 0 and 1" if positive else "at least 0 and below 1"
        raise ParameterError(f"delta must be {least}{why}, not {delta!r}: try 1e-6.")
    return float(delta)
