"""Named families of priors, whose regularity follows from a theorem."""

from __future__ import annotations

import numpy as np
from scipy import stats

from convexmarket.checks import as_float
from convexmarket.errors import PriorError
from convexmarket.priors.base import SMALLEST, FloatArray, ScipyPrior

__all__ = ["Beta", "Exponential", "Gamma", "LogNormal", "Power", "TruncatedNormal", "Uniform"]

#: Of logarithms; with less, virtual costs consist of rounding errors.
SMALLEST_SPREAD = 1e-9
#: Above it the logarithm of a density is a difference of numbers with too few digits left.
LARGEST_SHAPE = 1e8


def _number(
    prior: ScipyPrior, name: str, value: float, least: float = -np.inf, most: float = np.inf
) -> float:
    """Return a parameter of ``prior`` as a finite float in a range."""
    number = as_float(value)
    if np.isfinite(number) and least <= number <= most:
        return number
    kind = f"number > 0, from {least:.0g}" if least > 0 else "finite number"
    upto = f" to {most:.0e}" if most < np.inf else ""
    raise PriorError(f"{type(prior).__name__}: {name} = {value!r}; give a {kind}{upto}")


def _interval(prior: ScipyPrior, low: float, high: float) -> tuple[float, float]:
    """Return the ends of a support, with 0 <= low < high."""
    bottom, top = _number(prior, "low", low), _number(prior, "high", high)
    if not 0 <= bottom < top:
        raise PriorError(
            f"{type(prior).__name__}: low = {low!r}, high = {high!r}; give 0 <= low < high"
        )
    return bottom, top


class Uniform(ScipyPrior):
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

    family = "uniform"
    example = "uniform:0.02,0.10"

    def __init__(self, low: float, high: float) -> None:
        low, high = _interval(self, low, high)
        named, frozen = {"low": low, "high": high}, stats.uniform(low, high - low)
        super().__init__(frozen, named, support=(low, high), regular=True, slope=2.0)


class Power(ScipyPrior):
    """F(c) = (c/high)**exponent on [0, high]; psi(c) = (1 + 1/exponent)*c.

    Parameters
    ----------
    exponent : float
        Positive; 1 is the uniform prior, more makes sensitive sellers more common.
    high : float
        Largest sensitivity, positive.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.Power(2, 0.1).virtual_cost(0.05).round(4))
    0.075
    """

    family = "power"
    example = "power:2,0.1"

    def __init__(self, exponent: float, high: float) -> None:
        exponent, high = (
            _number(self, "exponent", exponent, SMALLEST),
            _number(self, "high", high, SMALLEST),
        )
        named, frozen = {"exponent": exponent, "high": high}, stats.powerlaw(exponent, scale=high)
        slope = 1 + 1 / exponent
        super().__init__(frozen, named, support=(0.0, high), regular=True, slope=slope)


class Exponential(ScipyPrior):
    """Exponential sensitivities, unbounded; psi(c) = c + mean*(exp(c/mean) - 1).

    Parameters
    ----------
    mean : float
        Expected sensitivity, positive.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.Exponential(0.05).virtual_cost(0.05).round(4))
    0.1359
    """

    family = "exponential"
    example = "exponential:0.05"

    def __init__(self, mean: float) -> None:
        mean = _number(self, "mean", mean, SMALLEST)
        super().__init__(stats.expon(scale=mean), {"mean": mean}, regular=True)

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return c + self.mean * np.expm1(c / self.mean)


class Beta(ScipyPrior):
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
    >>> import convexmarket as cm
    >>> prior = cm.Beta(2, 5, 0.02, 0.10)
    >>> prior.support, float(prior.virtual_cost(0.05).round(4))
    ((0.02, 0.1), 0.0838)
    """

    family = "beta"
    example = "beta:2,5,0,0.1"

    def __init__(self, a: float, b: float, low: float = 0.0, high: float = 1.0) -> None:
        a, b = (
            _number(self, "a", a, SMALLEST, LARGEST_SHAPE),
            _number(self, "b", b, SMALLEST, LARGEST_SHAPE),
        )
        low, high = _interval(self, low, high)
        # F is log-concave, so F/f never falls, exactly when b >= 1: the density is log-concave
        # (a >= 1) or decreasing (a <= 1). For b < 1, F/f falls to 0 with slope -inf at the top.
        frozen = stats.beta(a, b, loc=low, scale=high - low)
        named = {"a": a, "b": b, "low": low, "high": high}
        slope = 1 + 1 / a if b == 1 else None
        super().__init__(frozen, named, support=(low, high), regular=b >= 1, slope=slope)


class TruncatedNormal(ScipyPrior):
    """Normal sensitivities conditioned to [low, high]; regular, its density being log-concave.

    Parameters
    ----------
    mean, std : float
        Of the normal before truncation; the property ``mean`` is the one after it. ``std`` > 0.
    low, high : float
        0 <= low < high.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.TruncatedNormal(0.05, 0.02, 0, 0.1).virtual_cost(0.05).round(4))
    0.0748
    """

    family = "truncnorm"
    example = "truncnorm:0.05,0.02,0.01,0.10"

    def __init__(self, mean: float, std: float, low: float, high: float) -> None:
        mean, std = _number(self, "mean", mean), _number(self, "std", std, SMALLEST)
        low, high = _interval(self, low, high)
        frozen = stats.truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std)
        named = {"mean": mean, "std": std, "low": low, "high": high}
        super().__init__(frozen, named, support=(low, high), regular=True)


class LogNormal(ScipyPrior):
    """Sensitivities whose logarithm is normal, unbounded; regular, its F being log-concave.

    Parameters
    ----------
    log_mean, log_std : float
        Mean and standard deviation of the natural logarithm; ``log_std`` is at least 1e-9.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.LogNormal(-3, 0.5).virtual_cost(0.05).round(4))
    0.0815
    """

    family = "lognormal"
    example = "lognormal:-3,0.5"

    def __init__(self, log_mean: float, log_std: float) -> None:
        log_mean, log_std = (
            _number(self, "log_mean", log_mean),
            _number(self, "log_std", log_std, SMALLEST_SPREAD),
        )
        with np.errstate(over="ignore"):
            median = _number(self, "exp(log_mean)", np.exp(log_mean), SMALLEST)
        named = {"log_mean": log_mean, "log_std": log_std}
        super().__init__(stats.lognorm(log_std, scale=median), named, regular=True)


class Gamma(ScipyPrior):
    """Gamma sensitivities, unbounded; regular, its F being log-concave for every shape.

    Parameters
    ----------
    shape, scale : float
        Positive; the mean is their product.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.Gamma(4, 0.01).virtual_cost(0.05).round(4))
    0.1024
    """

    family = "gamma"
    example = "gamma:2,0.05"

    def __init__(self, shape: float, scale: float) -> None:
        shape, scale = (
            _number(self, "shape", shape, SMALLEST, LARGEST_SHAPE),
            _number(self, "scale", scale, SMALLEST),
        )
        named = {"shape": shape, "scale": scale}
        super().__init__(stats.gamma(shape, scale=scale), named, regular=True)
