"""The check of a delta, which is everywhere the same."""

from __future__ import annotations

from typing import Any

from convexmarket.checks import is_number
from convexmarket.errors import ParameterError

__all__ = ["check_delta"]


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
        raise ParameterError(f"delta must be {least}{why}, got {delta!r}; try 1e-6")
    return float(delta)
