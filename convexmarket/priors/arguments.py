"""Checks of what users pass to a prior, in words that name the argument and the remedy.

Every kind of prior is built from numbers or arrays that a user typed; asking for them in one
place keeps the classes about distributions, and the messages alike.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from convexmarket.arguments import as_float, checked_numbers
from convexmarket.errors import PriorError

__all__ = ["FloatArray", "finite", "floats", "interval", "positive", "scipy_support", "shaped"]

FloatArray = NDArray[np.float64]

#: Below it numbers lose digits, and code under SciPy's beta distribution ends the process.
SMALLEST = float(np.finfo(np.float64).tiny)
#: Above it the logarithm of a density is a difference of numbers with too few digits left.
LARGEST_SHAPE = 1e8


def floats(name: str, values: ArrayLike) -> FloatArray:
    """Return the values as an array of floats."""
    return checked_numbers(name, values)


def finite(prior: object, name: str, value: float) -> float:
    """Return a parameter of ``prior`` as a finite float."""
    number = as_float(value)
    if not np.isfinite(number):
        raise PriorError(f"{type(prior).__name__}: {name} = {value!r}; give a finite number")
    return number


def positive(prior: object, name: str, value: float) -> float:
    """Return a parameter of ``prior`` as a finite float above zero."""
    number = finite(prior, name, value)
    if number <= 0:
        raise PriorError(f"{type(prior).__name__}: {name} = {value!r}; give a number > 0")
    if number < SMALLEST:
        raise PriorError(
            f"{type(prior).__name__}: {name} = {value!r}; give at least {SMALLEST:.0g}"
        )
    return number


def shaped(prior: object, name: str, value: float) -> float:
    """Return a shape as a float above zero, at which the logarithm of the density has digits."""
    number = positive(prior, name, value)
    if number > LARGEST_SHAPE:
        raise PriorError(
            f"{type(prior).__name__}: {name} = {value!r}; give at most {LARGEST_SHAPE:.0e}, beyond "
            "which the density is lost to rounding"
        )
    return number


def interval(prior: object, low: float, high: float) -> tuple[float, float]:
    """Return the ends of a support, with 0 <= low < high."""
    bottom, top = finite(prior, "low", low), finite(prior, "high", high)
    if not 0 <= bottom < top:
        raise PriorError(
            f"{type(prior).__name__}: low = {low!r}, high = {high!r}; give 0 <= low < high"
        )
    return bottom, top


def scipy_support(frozen: Any) -> tuple[float, float]:
    """Return the support of a frozen continuous distribution, checked to be nonnegative."""
    if isinstance(frozen, stats.rv_continuous | stats.rv_discrete):
        raise PriorError(
            f"frozen = {type(frozen).__name__} has no parameters yet; call it with them, "
            "as in scipy.stats.gamma(2, scale=0.05)"
        )
    dist = getattr(frozen, "dist", None)
    if isinstance(dist, stats.rv_discrete):
        raise PriorError(
            f"frozen = scipy.stats.{dist.name} is discrete and has no density; "
            "use EmpiricalPrior(samples)"
        )
    if not isinstance(dist, stats.rv_continuous):
        raise PriorError(
            f"frozen = {frozen!r} is not a frozen scipy.stats distribution; "
            "give one such as scipy.stats.gamma(2, scale=0.05)"
        )
    given = np.abs(np.concatenate([floats("args", v).ravel() for v in _numbers(frozen)]))
    if np.any((given > 0) & (given < SMALLEST)):
        raise PriorError(
            f"scipy.stats.{dist.name} has a parameter below {SMALLEST:.0g} that is not zero; give "
            "a larger one, or zero"
        )
    low, high = frozen.support()
    if np.ndim(low) or np.ndim(high) or not low < high:
        raise PriorError(
            f"scipy.stats.{dist.name} has support [{low}, {high}], which is not one interval; "
            "give it one valid value of each parameter"
        )
    if low < 0:
        raise PriorError(
            f"scipy.stats.{dist.name} has support [{low:g}, {high:g}], but sensitivities are "
            ">= 0; truncate or shift it"
        )
    return float(low), float(high)


def _numbers(frozen: Any) -> list[Any]:
    """Return the parameters of a frozen distribution that are numbers."""
    given = [*frozen.args, *frozen.kwds.values()]
    return [value for value in given if np.asarray(value).dtype.kind in "iuf"] or [0.0]
