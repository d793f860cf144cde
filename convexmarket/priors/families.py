"""Named families of priors, whose regularity follows from a theorem."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from scipy import stats

from convexmarket.checks import as_float
from convexmarket.errors import PriorError
from convexmarket.priors.prior import SMALLEST, FloatArray, ScipyPrior

__all__ = ["Beta", "Exponential", "Gamma", "LogNormal", "Power", "TruncatedNormal", "Uniform"]

_ANY, _POSITIVE = (-np.inf, np.inf), (SMALLEST, np.inf)
_ENDS = {"low": _ANY, "high": _ANY}
#: Above 1e8 the logarithm of a density is a difference of numbers with too few digits left.
_SHAPES = dict.fromkeys(("a", "b", "shape"), (SMALLEST, 1e8))


class Family(ScipyPrior):
    """A family with named parameters, each in a range; ``low`` and ``high`` are the support."""

    def _checked(
        self, ranges: Mapping[str, tuple[float, float]] = MappingProxyType({}), **given: Any
    ) -> tuple[float, ...]:
        """Store parameters as finite floats, and return them; without a range, they are > 0."""
        kind, self._parameters = type(self).__name__, {}
        for name, value in given.items():
            number, (least, most) = as_float(value), ranges.get(name, _POSITIVE)
            if not (np.isfinite(number) and least <= number <= most):
                what = "number > 0" if least > 0 else "finite number"
                what += f", from {least:.0g}" if least > -np.inf else ""
                what += f" to {most:.0e}" if most < np.inf else ""
                raise PriorError(f"{kind}: {name} = {value!r}; give a {what}")
            self._parameters[name] = number
        low, high = self._parameters.get("low", 0.0), self._parameters.get("high", np.inf)
        if not 0 <= low < high:
            ends = f"low = {given['low']!r}, high = {given['high']!r}"
            raise PriorError(f"{kind}: {ends}; give 0 <= low < high")
        self.support = low, high
        return tuple(self._parameters.values())


class Uniform(Family):
    """Sensitivities uniform on [low, high]; psi(c) = 2c - low.

    Parameters
    ----------
    low, high : float
        0 <= low < high.

    Examples
    --------
    >>> Uniform(0.5, 1).virtual_cost([0.5, 1, 2])
    array([0.5, 1.5, inf])
    """

    family, example = "uniform", "uniform:0.02,0.10"

    def __init__(self, low: float, high: float) -> None:
        low, high = self._checked(_ENDS, low=low, high=high)
        super().__init__(stats.uniform(low, high - low), regular=True, slope=2.0)


class Power(Family):
    """F(c) = (c/high)**exponent on [0, high]; psi(c) = (1 + 1/exponent)*c.

    Parameters
    ----------
    exponent : float
        Positive; 1 is the uniform prior, more makes sensitive sellers more common.
    high : float
        Largest sensitivity, positive.

    Examples
    --------
    >>> float(Power(2, 0.1).virtual_cost(0.05).round(4))
    0.075
    """

    family, example = "power", "power:2,0.1"

    def __init__(self, exponent: float, high: float) -> None:
        exponent, high = self._checked(exponent=exponent, high=high)
        frozen = stats.powerlaw(exponent, scale=high)
        super().__init__(frozen, regular=True, slope=1 + 1 / exponent)


class Exponential(Family):
    """Exponential sensitivities, unbounded; psi(c) = c + mean*(exp(c/mean) - 1).

    Parameters
    ----------
    mean : float
        Expected sensitivity, positive.

    Examples
    --------
    >>> float(Exponential(0.05).virtual_cost(0.05).round(4))
    0.1359
    """

    family, example = "exponential", "exponential:0.05"

    def __init__(self, mean: float) -> None:
        (mean,) = self._checked(mean=mean)
        super().__init__(stats.expon(scale=mean), regular=True)

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return c + self.mean * np.expm1(c / self.mean)


class Beta(Family):
    """Beta(a, b) sensitivities stretched to [low, high].

    Its psi is affine for b = 1; it is regular for b >= 1 and falls near ``high`` for b < 1,
    where the density runs to infinity.

    Parameters
    ----------
    a, b : float
        Shapes, positive.
    low, high : float
        0 <= low < high.

    Examples
    --------
    >>> prior = Beta(2, 5, 0.02, 0.10)
    >>> prior.support, float(prior.virtual_cost(0.05).round(4))
    ((0.02, 0.1), 0.0838)
    """

    family, example = "beta", "beta:2,5,0,0.1"

    def __init__(self, a: float, b: float, low: float = 0.0, high: float = 1.0) -> None:
        a, b, low, high = self._checked(_ENDS | _SHAPES, a=a, b=b, low=low, high=high)
        # F is log-concave, so F/f never falls, exactly when b >= 1: the density is log-concave
        # (a >= 1) or decreasing (a <= 1). For b < 1, F/f falls to 0 with slope -inf at the top.
        frozen = stats.beta(a, b, loc=low, scale=high - low)
        slope = 1 + 1 / a if b == 1 else None
        super().__init__(frozen, regular=b >= 1, slope=slope)


class TruncatedNormal(Family):
    """Normal sensitivities conditioned to [low, high]; regular, its density being log-concave.

    Parameters
    ----------
    mean, std : float
        Of the normal before truncation; the property ``mean`` is the one after it. ``std`` > 0.
    low, high : float
        0 <= low < high.

    Examples
    --------
    >>> float(TruncatedNormal(0.05, 0.02, 0, 0.1).virtual_cost(0.05).round(4))
    0.0748
    """

    family, example = "truncnorm", "truncnorm:0.05,0.02,0.01,0.10"

    def __init__(self, mean: float, std: float, low: float, high: float) -> None:
        ranges = _ENDS | {"mean": _ANY}
        mean, std, low, high = self._checked(ranges, mean=mean, std=std, low=low, high=high)
        frozen = stats.truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std)
        super().__init__(frozen, regular=True)


class LogNormal(Family):
    """Sensitivities whose logarithm is normal, unbounded; regular, its F being log-concave.

    Parameters
    ----------
    log_mean, log_std : float
        Mean (from -700 to 700) and standard deviation of the natural logarithm; with a ``log_std``
        below 1e-9, which is refused, virtual costs would consist of rounding errors.

    Examples
    --------
    >>> float(LogNormal(-3, 0.5).virtual_cost(0.05).round(4))
    0.0815
    """

    family, example = "lognormal", "lognormal:-3,0.5"

    def __init__(self, log_mean: float, log_std: float) -> None:
        ranges = {"log_mean": (-700.0, 700.0), "log_std": (1e-9, np.inf)}
        log_mean, log_std = self._checked(ranges, log_mean=log_mean, log_std=log_std)
        super().__init__(stats.lognorm(log_std, scale=np.exp(log_mean)), regular=True)


class Gamma(Family):
    """Gamma sensitivities, unbounded; regular, its F being log-concave for every shape.

    Parameters
    ----------
    shape, scale : float
        Positive; the mean is their product.

    Examples
    --------
    >>> float(Gamma(4, 0.01).virtual_cost(0.05).round(4))
    0.1024
    """

    family, example = "gamma", "gamma:2,0.05"

    def __init__(self, shape: float, scale: float) -> None:
        shape, scale = self._checked(_SHAPES, shape=shape, scale=scale)
        super().__init__(stats.gamma(shape, scale=scale), regular=True)
