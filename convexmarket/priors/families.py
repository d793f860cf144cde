"""Named families of priors, empirical priors, and mixtures of priors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
from scipy.optimize import isotonic_regression
from scipy.special import logsumexp

from convexmarket.checks import as_float, checked_numbers, finite_entries, shown
from convexmarket.errors import PriorError
from convexmarket.priors.prior import SMALLEST, FloatArray, Prior, PriorLike, ScipyPrior, as_prior

__all__ = ["Beta", "EmpiricalPrior", "Exponential", "Gamma", "LogNormal", "Mixture"]
__all__ += ["Power", "TruncatedNormal", "Uniform"]

_ANY, _POSITIVE = (-np.inf, np.inf), (SMALLEST, np.inf)
#: Valid ranges of parameters, outside which the logarithm of a density is inaccurate.
_RANGES = {
    **dict.fromkeys(("low", "high"), _ANY),
    **dict.fromkeys(("a", "b", "shape"), (SMALLEST, 1e8)),
    "log_mean": (-700.0, 700.0),
    "log_std": (1e-9, np.inf),
    "(low - mean)/std": (-np.inf, 1e8),
    "(mean - high)/std": (-np.inf, 1e8),
}


class Family(ScipyPrior):
    """A family with named parameters, regular by default. The support is [``low``, ``high``]."""

    _parameters: dict[str, float]

    def _checked(self, **given: Any) -> tuple[float, ...]:
        """Check the ranges of the parameters, store them as floats, and return their values."""
        self._parameters = {name: self._number(name, given[name]) for name in given}
        low, high = self._parameters.get("low", 0.0), self._parameters.get("high", np.inf)
        if not 0 <= low < high:
            raise PriorError(
                f"{type(self).__name__}: low = {low:g}, high = {high:g}; give 0 <= low < high"
            )
        self.support, self.is_regular = (low, high), True
        return tuple(self._parameters.values())

    def _number(self, name: str, value: Any) -> float:
        number, (least, most) = as_float(value), _RANGES.get(name, _POSITIVE)
        if not (np.isfinite(number) and least <= number <= most):
            within = f" in [{least:.1g}, {most:.1g}]" if np.isfinite([least, most]).any() else ""
            what = f"{type(self).__name__}: {name} = {value!r}"
            raise PriorError(f"{what}; give a finite number{within}")
        return number

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._parameters.values()))})"


class Uniform(Family):
    """Uniform distribution on [low, high], 0 <= low < high, with psi(c) = 2c - low.

    Examples
    --------
    >>> Uniform(0.5, 1).virtual_cost([0.5, 1, 2])
    array([0.5, 1.5, inf])
    """

    family, example = "uniform", "uniform:0.02,0.10"

    def __init__(self, low: float, high: float) -> None:
        low, high = self._checked(low=low, high=high)
        self._frozen, self.virtual_cost_slope = stats.uniform(low, high - low), 2.0


class Power(Family):
    """Power distribution F(c) = (c/high)**exponent on [0, high]; psi(c) = (1 + 1/exponent)*c.

    The exponent is positive. A larger exponent increases the probability of high sensitivities.

    Examples
    --------
    >>> float(Power(2, 0.1).virtual_cost(0.05).round(4))
    0.075
    """

    family, example = "power", "power:2,0.1"

    def __init__(self, exponent: float, high: float) -> None:
        exponent, high = self._checked(exponent=exponent, high=high)
        self._frozen = stats.powerlaw(exponent, scale=high)
        self.virtual_cost_slope = 1 + 1 / exponent


class Exponential(Family):
    """Exponential distribution with a given mean; psi(c) = c + mean*(exp(c/mean) - 1).

    Examples
    --------
    >>> float(Exponential(0.05).virtual_cost(0.05).round(4))
    0.1359
    """

    family, example = "exponential", "exponential:0.05"

    def __init__(self, mean: float) -> None:
        (mean,) = self._checked(mean=mean)
        self._frozen = stats.expon(scale=mean)

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        with np.errstate(over="ignore"):
            return c + self.mean * np.expm1(c / self.mean)


class Beta(Family):
    """Beta distribution with shapes a, b > 0, scaled to [low, high].

    psi is affine for b = 1 and increasing for b >= 1. For b < 1, psi decreases near ``high``.

    Examples
    --------
    >>> prior = Beta(2, 5, 0.02, 0.10)
    >>> prior.support, float(prior.virtual_cost(0.05).round(4))
    ((0.02, 0.1), 0.0838)
    """

    family, example = "beta", "beta:2,5,0,0.1"

    def __init__(self, a: float, b: float, low: float = 0.0, high: float = 1.0) -> None:
        a, b, low, high = self._checked(a=a, b=b, low=low, high=high)
        # For b >= 1, the density is log-concave (a >= 1) or decreasing (a <= 1).
        # So F is log-concave, and F/f is nondecreasing.
        # For b < 1, F/f decreases to 0 with slope -inf at the upper end.
        self._frozen, self.is_regular = stats.beta(a, b, loc=low, scale=high - low), b >= 1
        self.virtual_cost_slope = 1 + 1 / a if b == 1 else None


class TruncatedNormal(Family):
    """Normal distribution truncated to [low, high]; regular, because the density is log-concave.

    Arguments are the mean and standard deviation before truncation; the property ``mean`` is after.

    Examples
    --------
    >>> float(TruncatedNormal(0.05, 0.02, 0, 0.1).virtual_cost(0.05).round(4))
    0.0748
    """

    family, example = "truncnorm", "truncnorm:0.05,0.02,0.01,0.10"

    def __init__(self, mean: float, std: float, low: float, high: float) -> None:
        std, low, high = self._checked(std=std, low=low, high=high)
        mean = as_float(mean)
        a = self._number("(low - mean)/std", (low - mean) / std)
        b = -self._number("(mean - high)/std", (mean - high) / std)
        self._frozen = stats.truncnorm(a, b, loc=mean, scale=std)
        self._parameters = {"mean": mean, **self._parameters}


class LogNormal(Family):
    """Log-normal distribution; regular, because F is log-concave.

    Examples
    --------
    >>> float(LogNormal(-3, 0.5).virtual_cost(0.05).round(4))
    0.0815
    """

    family, example = "lognormal", "lognormal:-3,0.5"

    def __init__(self, log_mean: float, log_std: float) -> None:
        log_mean, log_std = self._checked(log_mean=log_mean, log_std=log_std)
        self._frozen = stats.lognorm(log_std, scale=np.exp(log_mean))


class Gamma(Family):
    """Gamma distribution with mean shape*scale; regular, because F is log-concave.

    Examples
    --------
    >>> float(Gamma(4, 0.01).virtual_cost(0.05).round(4))
    0.1024
    """

    family, example = "gamma", "gamma:2,0.05"

    def __init__(self, shape: float, scale: float) -> None:
        shape, scale = self._checked(shape=shape, scale=scale)
        self._frozen = stats.gamma(shape, scale=scale)


class EmpiricalPrior(Prior):
    """Discrete distribution of a sample. The probability of each value is its frequency.

    Let v_1 < ... < v_n be the distinct values, f_k their frequencies and F_k = f_1 + ... + f_k. The
    virtual costs are psi(v_1) = v_1 and psi(v_k) = v_k + (v_k - v_{k-1})*F_{k-1}/f_k. A report
    between two values is treated as the higher value.

    Parameters
    ----------
    samples : array_like
        At least one sensitivity.
    counts : array_like of int, same shape, optional
        Number of occurrences of each sample, 1 by default.

    Attributes
    ----------
    values, counts, masses : ndarray, shape (n,)
        The distinct samples in increasing order, their counts, and their probabilities.
    size : int
        Number of samples.

    Raises
    ------
    PriorError

    Examples
    --------
    >>> EmpiricalPrior([1, 2, 2, 4]).virtual_cost([1, 2, 4])
    array([ 1. ,  2.5, 10. ])
    """

    is_step = True
    family, example = "empirical", "empirical:sensitivities.csv"

    def __init__(self, samples: ArrayLike, counts: ArrayLike | None = None) -> None:
        drawn = checked_numbers("samples", samples).ravel()
        drawn = finite_entries("samples", drawn, PriorError, 0.0)
        times = np.ones(drawn.size) if counts is None else checked_numbers("counts", counts).ravel()
        if not times.size == drawn.size > 0 or not np.all((times >= 1) & (times % 1 == 0)):
            raise PriorError(
                "samples must not be empty, and counts must be a whole number of at least 1 for "
                f"each sample, got {drawn.size} samples and {shown(counts)}"
            )
        self.values, place = np.unique(drawn, return_inverse=True)
        self.counts = np.bincount(place, times).astype(np.int64)
        self._below = np.cumsum(self.counts)
        self.size = int(self._below[-1])
        self.masses = self.counts / self.size
        for array in (self.values, self.counts, self.masses):
            array.flags.writeable = False
        gaps = np.diff(self.values, prepend=self.values[0])
        self._raw = self.values + gaps * (self._below - self.counts) / self.counts
        self._hull = isotonic_regression(self._raw, weights=self.counts).x
        self.support = float(self.values[0]), float(self.values[-1])
        mean = np.average(self.values, weights=self.counts)
        self.mean = float(np.clip(mean, *self.support))  # rounding can move the mean outside
        self.is_regular = bool(np.all(np.diff(self._raw) > 0))

    @property
    def breakpoints(self) -> FloatArray:
        jumps = np.flatnonzero(np.diff(self._hull) > 0)
        return self.values[jumps[jumps > 0]]

    def contains(self, reports: FloatArray) -> bool:
        values, times = np.unique(reports, return_counts=True)
        place = np.searchsorted(self.values[:-1], values)
        return bool(np.all((self.values[place] == values) & (self.counts[place] >= times)))

    def to_dict(self) -> dict[str, Any]:
        described = {"family": self.family, "samples": self.values.tolist()}
        return described | ({"counts": self.counts.tolist()} if self.counts.max() > 1 else {})

    def cdf(self, c: ArrayLike) -> FloatArray:
        position = np.searchsorted(self.values, checked_numbers("c", c), side="right")
        return np.append(0, self._below)[position] / self.size

    def pdf(self, c: ArrayLike) -> FloatArray:
        """Raise an error, because a discrete prior has no density.

        Raises
        ------
        PriorError
        """
        raise PriorError(f"{self!r} is discrete and has no density; use cdf, or a continuous prior")

    def _quantile(self, u: FloatArray) -> FloatArray:
        # These quotients are the values of cdf, so quantile(cdf(v)) is exactly v.
        return self.values[np.searchsorted(self._below / self.size, u, side="left")]

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        rank = rng.integers(self.size, size=size)
        return self.values[np.searchsorted(self._below, rank, side="right")]

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        return self._raw[np.searchsorted(self.values, c, side="left")]

    def _ironed_virtual_cost(self, c: FloatArray) -> FloatArray:
        return self._hull[np.searchsorted(self.values, c, side="left")]

    def _key(self) -> Any:
        return self.values.tobytes(), self.counts.tobytes()

    def __repr__(self) -> str:
        if self.size <= 10:
            return f"EmpiricalPrior({np.repeat(self.values, self.counts).tolist()})"
        return "EmpiricalPrior(<{} samples in [{:g}, {:g}]>)".format(self.size, *self.support)


class Mixture(Prior):
    """Mixture of the priors of several populations. The population of a seller is not observed.

    If the populations are observed, use one prior for each group. psi is ironed if it decreases.

    Parameters
    ----------
    weights : array_like, shape (k,)
        Positive shares of the populations, which are divided by their sum.
    components : sequence of k continuous priors or frozen scipy.stats distributions
        The union of their supports must be one interval.

    Raises
    ------
    PriorError

    Examples
    --------
    >>> import convexmarket as cm
    >>> prior = cm.priors.Mixture([1, 3], [cm.Uniform(0, 1), cm.Uniform(0.5, 2)])
    >>> prior.support, prior.mean, prior.is_regular
    ((0.0, 2.0), 1.0625, False)
    """

    family, example = "mixture", "mixture:0.5*uniform:0,1;0.5*beta:2,5,0,2"

    def __init__(self, weights: ArrayLike, components: Sequence[PriorLike]) -> None:
        given = components if isinstance(components, Sequence) else (components,)
        parts = [as_prior(part, f"components[{place}]") for place, part in enumerate(given)]
        shares = finite_entries(
            "weights", checked_numbers("weights", weights, PriorError), PriorError, SMALLEST
        )
        if shares.shape != (len(parts),) or not parts or any(part.is_step for part in parts):
            raise PriorError(
                f"Mixture: weights of shape {shares.shape} for the components {parts}; give at "
                "least one component, a weight for each component, and components with a density"
            )
        # Shares that sum to one are not divided, so that to_dict describes exactly this prior.
        self._weights = shares if abs(shares.sum() - 1.0) < 1e-12 else shares / shares.sum()
        self._components = tuple(parts)
        lows, highs = zip(*(part.support for part in parts), strict=True)
        self.support = min(lows), max(highs)
        self.mean = float(self._average([part.mean for part in parts]))
        self._jumps = self._inside(np.array([lows, highs]))
        self._check_density()

    def _average(self, values: list[Any]) -> FloatArray:
        return np.tensordot(self._weights, np.array(values), 1)[()]

    def cdf(self, c: ArrayLike) -> FloatArray:
        return np.minimum(self._average([part.cdf(c) for part in self._components]), 1.0)

    def pdf(self, c: ArrayLike) -> FloatArray:
        return self._average([part.pdf(c) for part in self._components])

    def _logs(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        logs = np.stack([np.array(part._logs(c)) for part in self._components], axis=-1)
        log_cdf, log_pdf = logsumexp(logs, axis=-1, b=self._weights)
        return log_cdf, log_pdf

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        source = rng.choice(self._weights.size, size=size, p=self._weights)
        drawn = np.empty(size)
        for number, part in enumerate(self._components):
            drawn[source == number] = part.sample(int(np.count_nonzero(source == number)), rng)
        return drawn

    def to_dict(self) -> dict[str, Any]:
        components = [part.to_dict() for part in self._components]
        weights = self._weights.tolist()
        return {"family": self.family, "weights": weights, "components": components}

    def _key(self) -> Any:
        return *self._weights.tolist(), *self._components

    def __repr__(self) -> str:
        return f"Mixture({self._weights.tolist()}, [{', '.join(map(repr, self._components))}])"
