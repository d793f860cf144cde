"""Named families: what is known of a distribution's virtual cost before any number is computed.

A family knows by a theorem whether it is regular, and some know psi in closed form, so that
nothing needs to be tried on nodes. Its parameters are its repr, its equality and its dict.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from convexmarket.errors import PriorError
from convexmarket.priors.arguments import FloatArray, finite, interval, positive, shaped
from convexmarket.priors.base import ContinuousPrior

__all__ = ["Beta", "Exponential", "Gamma", "LogNormal", "Power", "TruncatedNormal", "Uniform"]

#: Of logarithms; with less, virtual costs are made of what rounding leaves.
SMALLEST_SPREAD = 1e-9


class _Family(ContinuousPrior):
    """A family with named parameters, which give its repr, its equality and its dict."""

    def __init__(
        self,
        parameters: dict[str, float],
        frozen: Any,
        support: tuple[float, float],
        *,
        regular: bool = True,
        slope: float | None = None,
    ) -> None:
        self._parameters = parameters
        super().__init__(frozen, support, regular=regular, slope=slope)

    def to_dict(self) -> dict[str, Any]:
        return {"family": self.family, **self._parameters}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._parameters.values()))})"


class Uniform(_Family):
    """Sensitivities uniform on [low, high]; psi(c) = 2c - low.

    Parameters
    ----------
    low, high : float
        0 <= low < high.

    Raises
    ------
    PriorError
        If the bounds are not finite, negative, or not in this order.

    Examples
    --------
    >>> Uniform(0.5, 1).virtual_cost([0.5, 1, 2])
    array([0.5, 1.5, inf])
    """

    family = "uniform"
    example = "uniform:0.02,0.10"

    def __init__(self, low: float, high: float) -> None:
        low, high = interval(self, low, high)
        frozen = stats.uniform(low, high - low)
        super().__init__({"low": low, "high": high}, frozen, (low, high), slope=2.0)


class Power(_Family):
    """F(c) = (c/high)**exponent on [0, high]; psi(c) = (1 + 1/exponent)*c.

    Parameters
    ----------
    exponent : float
        Positive; 1 is the uniform prior, more makes sensitive sellers more common.
    high : float
        Largest sensitivity, positive.

    Raises
    ------
    PriorError
        If a parameter is not a finite positive number.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.Power(2, 0.1).virtual_cost(0.05).round(4))
    0.075
    """

    family = "power"
    example = "power:2,0.1"

    def __init__(self, exponent: float, high: float) -> None:
        exponent = positive(self, "exponent", exponent)
        high = positive(self, "high", high)
        super().__init__(
            {"exponent": exponent, "high": high},
            stats.powerlaw(exponent, scale=high),
            (0.0, high),
            slope=1 + 1 / exponent,
        )


class Exponential(_Family):
    """Exponential sensitivities, unbounded; psi(c) = c + mean*(exp(c/mean) - 1).

    Parameters
    ----------
    mean : float
        Expected sensitivity, positive.

    Raises
    ------
    PriorError
        If ``mean`` is not a finite positive number.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.Exponential(0.05).virtual_cost(0.05).round(4))
    0.1359
    """

    family = "exponential"
    example = "exponential:0.05"

    def __init__(self, mean: float) -> None:
        mean = positive(self, "mean", mean)
        super().__init__({"mean": mean}, stats.expon(scale=mean), (0.0, np.inf))

    def _raw_on_support(self, c: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return c + self._mean * np.expm1(c / self._mean)


class Beta(_Family):
    """Beta(a, b) sensitivities stretched to [low, high].

    Its psi is affine for b = 1; it is regular for b >= 1 and falls near ``high`` for b < 1,
    where the density runs to infinity.

    Parameters
    ----------
    a, b : float
        Shapes, positive.
    low, high : float
        0 <= low < high.

    Raises
    ------
    PriorError
        If a shape is not finite and positive, or the bounds are not finite and in order.

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
        a, b = shaped(self, "a", a), shaped(self, "b", b)
        low, high = interval(self, low, high)
        # F is log-concave, so F/f never falls, exactly when b >= 1: the density is log-concave
        # (a >= 1) or decreasing (a <= 1). For b < 1, F/f falls to 0 with slope -inf at the top.
        super().__init__(
            {"a": a, "b": b, "low": low, "high": high},
            stats.beta(a, b, loc=low, scale=high - low),
            (low, high),
            regular=b >= 1,
            slope=1 + 1 / a if b == 1 else None,
        )


class TruncatedNormal(_Family):
    """Normal sensitivities conditioned to [low, high]; regular, its density being log-concave.

    Parameters
    ----------
    mean, std : float
        Of the normal before truncation; the property ``mean`` is the one after it. ``std`` > 0.
    low, high : float
        0 <= low < high.

    Raises
    ------
    PriorError
        If a parameter is not finite, ``std`` not positive, or the bounds are not in order.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.TruncatedNormal(0.05, 0.02, 0, 0.1).virtual_cost(0.05).round(4))
    0.0748
    """

    family = "truncnorm"
    example = "truncnorm:0.05,0.02,0.01,0.10"

    def __init__(self, mean: float, std: float, low: float, high: float) -> None:
        mean, std = finite(self, "mean", mean), positive(self, "std", std)
        low, high = interval(self, low, high)
        super().__init__(
            {"mean": mean, "std": std, "low": low, "high": high},
            stats.truncnorm((low - mean) / std, (high - mean) / std, loc=mean, scale=std),
            (low, high),
        )


class LogNormal(_Family):
    """Sensitivities whose logarithm is normal, unbounded; regular, its F being log-concave.

    Parameters
    ----------
    log_mean, log_std : float
        Mean and standard deviation of the natural logarithm; ``log_std`` > 0.

    Raises
    ------
    PriorError
        If a parameter is not finite or ``log_std`` is not positive.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.LogNormal(-3, 0.5).virtual_cost(0.05).round(4))
    0.0815
    """

    family = "lognormal"
    example = "lognormal:-3,0.5"

    def __init__(self, log_mean: float, log_std: float) -> None:
        log_mean, log_std = finite(self, "log_mean", log_mean), positive(self, "log_std", log_std)
        if log_std < SMALLEST_SPREAD:
            raise PriorError(
                f"LogNormal: log_std = {log_std!r}; give at least {SMALLEST_SPREAD:.0e}, below "
                "which sensitivities hardly differ by more than rounding"
            )
        with np.errstate(over="ignore"):
            median = positive(self, "exp(log_mean)", np.exp(log_mean))
        super().__init__(
            {"log_mean": log_mean, "log_std": log_std},
            stats.lognorm(log_std, scale=median),
            (0.0, np.inf),
        )


class Gamma(_Family):
    """Gamma sensitivities, unbounded; regular, its F being log-concave for every shape.

    Parameters
    ----------
    shape, scale : float
        Positive; the mean is their product.

    Raises
    ------
    PriorError
        If a parameter is not a finite positive number.

    Examples
    --------
    >>> import convexmarket as cm
    >>> float(cm.priors.Gamma(4, 0.01).virtual_cost(0.05).round(4))
    0.1024
    """

    family = "gamma"
    example = "gamma:2,0.05"

    def __init__(self, shape: float, scale: float) -> None:
        shape, scale = shaped(self, "shape", shape), positive(self, "scale", scale)
        super().__init__(
            {"shape": shape, "scale": scale}, stats.gamma(shape, scale=scale), (0.0, np.inf)
        )
