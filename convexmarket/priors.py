"""Priors: the distributions, common knowledge, that sellers' sensitivities are drawn from.

A prior turns a reported sensitivity c into the virtual cost psi(c) = c + F(c)/f(c) that the buyer
weighs (A, Assumption III.1). Truthful payments need a guarantee that never grows with the report,
hence a psi that never falls; where a prior's psi does fall, it is *ironed* (Myerson, 1981).

Both operations are read off one curve. Buying from everybody whose sensitivity is at most c costs
R(q) = q * F^-1(q) at q = F(c), since each of them can pretend to be c, and psi(c) = dR/dq. Ironing
replaces R by its convex hull, and psi by the slope of that hull: an isotonic regression of slopes,
weighted by probability.

The curve of a continuous prior is smooth, that of a sample (:class:`EmpiricalPrior`) piecewise
linear. Named families know their psi in closed form or by stable logarithms; any other continuous
``scipy.stats`` distribution enters through :meth:`Prior.from_scipy`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.optimize import isotonic_regression
from scipy.special import expit

from convexmarket.errors import ParameterError, PriorError

__all__ = [
    "Beta",
    "EmpiricalPrior",
    "Exponential",
    "Gamma",
    "LogNormal",
    "Power",
    "Prior",
    "TruncatedNormal",
    "Uniform",
    "parse_prior",
    "prior_from_dict",
]

FloatArray = NDArray[np.float64]

# A scipy prior is checked, and an irregular prior ironed, on nodes: quantiles dense in both tails,
# down to this probability, with equally spaced sensitivities between two neighbours; and equally
# spaced ones over the whole, because quantiles are far apart where few sellers are.
_TAIL = 1e-9
_TAIL_LEVELS = 97
_EVEN_LEVELS = 33
_SUBDIVISIONS = 16
_EVEN_NODES = 4097

# Ironing differences the expected-cost curve: cells of less probability drown in rounding.
_SMALLEST_CELL = 1e-7


class Prior(ABC):
    """A distribution of sensitivities c >= 0 that buyer and sellers know.

    Use a named family (:class:`Uniform`, :class:`Beta`, ...), :meth:`from_scipy` or
    :class:`EmpiricalPrior`. Priors are immutable; they compare and hash by value, those of custom
    scipy distributions by identity.
    """

    family: ClassVar[str]
    example: ClassVar[str]

    _support: tuple[float, float]
    _mean: float
    _regular: bool
    _slope: float | None = None
    _step: ClassVar[bool] = False

    @staticmethod
    def from_scipy(frozen: Any) -> Prior:
        """Return the prior of a frozen continuous ``scipy.stats`` distribution.

        Parameters
        ----------
        frozen : scipy.stats frozen distribution
            Such as ``scipy.stats.gamma(2, scale=0.05)`` or ``scipy.stats.rv_histogram(...)()``.

        Returns
        -------
        Prior
            Its ``is_regular`` is decided numerically, on about 6000 sensitivities, up to rounding.
            A custom distribution is fast only if it defines ``_cdf`` next to ``_pdf``, and samples
            fast only if it defines ``_ppf`` too.

        Raises
        ------
        PriorError
            If the distribution is not frozen, not continuous, reaches below zero, or has a density
            that is zero or not finite somewhere inside its support (psi is undefined there).

        Examples
        --------
        >>> import scipy.stats
        >>> Prior.from_scipy(scipy.stats.expon(scale=0.5)).support
        (0.0, inf)
        """
        return _ScipyPrior(frozen)

    @property
    def support(self) -> tuple[float, float]:
        """The interval [c_lo, c_hi] of possible sensitivities; c_hi may be infinite."""
        return self._support

    @property
    def mean(self) -> float:
        """Expected sensitivity."""
        return self._mean

    @property
    def is_regular(self) -> bool:
        """Whether psi is strictly increasing (A, Assumption III.1), so that nothing is ironed."""
        return self._regular

    @property
    def virtual_cost_slope(self) -> float | None:
        """Slope of psi where it is affine on the whole support (2 for Uniform), else None."""
        return self._slope

    @property
    def is_step(self) -> bool:
        """Whether the ironed psi is constant between breakpoints, as for a sample."""
        return self._step

    @property
    @abstractmethod
    def breakpoints(self) -> FloatArray:
        """Sensitivities strictly inside the support where the ironed psi has a kink or a jump.

        Ends of ironed intervals, and the atoms at which an empirical psi jumps; empty for a
        regular continuous prior. Increasing, shape (b,).
        """

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the family and its parameters, ready for JSON; see :func:`prior_from_dict`."""

    @abstractmethod
    def cdf(self, c: ArrayLike) -> FloatArray:
        """Return F(c), the probability of a sensitivity of at most c; same shape as ``c``."""

    @abstractmethod
    def pdf(self, c: ArrayLike) -> FloatArray:
        """Return the density f(c), per unit of sensitivity; same shape as ``c``."""

    @abstractmethod
    def _quantile(self, u: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray: ...

    @abstractmethod
    def _raw_on_support(self, c: FloatArray) -> FloatArray: ...

    @abstractmethod
    def _ironed_on_support(self, c: FloatArray) -> FloatArray: ...

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Return the smallest sensitivity c of the support with F(c) >= u.

        Parameters
        ----------
        u : array_like of probabilities in [0, 1]

        Raises
        ------
        ParameterError
            If an entry is not in [0, 1].
        """
        levels = _floats("u", u)
        outside = ~((levels >= 0) & (levels <= 1))
        if outside.any():
            raise ParameterError(f"u = {levels[outside][0]} is not a probability; give 0 <= u <= 1")
        return self._quantile(levels)[()]

    def virtual_cost(self, c: ArrayLike) -> FloatArray:
        """Return Myerson's virtual cost psi(c) = c + F(c)/f(c) (A, Assumption III.1), unironed.

        Parameters
        ----------
        c : array_like
            Sensitivities, at least c_lo.

        Returns
        -------
        ndarray, same shape as ``c``
            In units of sensitivity; +inf above c_hi, where nothing is ever bought, and at c_hi
            itself where the density vanishes there.

        Raises
        ------
        PriorError
            If an entry is NaN or below the support.
        """
        return self._over_support(self._raw_on_support, c)

    def ironed_virtual_cost(self, c: ArrayLike) -> FloatArray:
        """Return the ironed virtual cost: what a market uses, never falling in ``c``.

        A guarantee is truthfully priced only if it never grows with the report (A, Lemma III.2);
        the buyer's problem ensures that when the cost it sees never falls. With the expected-cost
        curve R(q) = q * F^-1(q), psi = dR/dq; the ironed psi is the slope of the convex hull of R,
        which is the best the buyer can do among nondecreasing costs (Myerson, 1981, section 6).

        For a regular prior it is psi itself. An irregular continuous prior is ironed on about 6000
        sensitivities and interpolated linearly between them, so that it is nondecreasing by
        construction. The interpolation costs second order in the spacing, and no truthfulness:
        payments are truthful for any nondecreasing cost that allocation and payments share.

        Parameters, return value and errors are those of :meth:`virtual_cost`.
        """
        return self._over_support(self._ironed_on_support, c)

    def check_reports(self, c: ArrayLike) -> None:
        """Check that every reported sensitivity is finite and in the support.

        Raises
        ------
        PriorError
            Naming the first report outside the support, and how many there are.
        """
        reports = _floats("c", c)
        low, high = self.support
        outside = ~((reports >= low) & (reports <= high) & np.isfinite(reports))
        if outside.any():
            raise self._outside(reports, outside, "are not in")

    def sample(self, size: int, rng: np.random.Generator) -> FloatArray:
        """Draw independent sensitivities.

        Parameters
        ----------
        size : int
            Number of draws, at least 0.
        rng : numpy.random.Generator
            Source of randomness; the same state gives the same draws.

        Returns
        -------
        ndarray, shape (size,)

        Raises
        ------
        ParameterError
            If ``size`` is not an integer >= 0 or ``rng`` is not a Generator.
        """
        if isinstance(size, bool) or not isinstance(size, int | np.integer) or size < 0:
            raise ParameterError(f"size = {size!r} is not a number of draws; give an integer >= 0")
        if not isinstance(rng, np.random.Generator):
            raise ParameterError(
                f"rng = {rng!r} is not a numpy.random.Generator; "
                "give numpy.random.default_rng(seed)"
            )
        # Scaling inside scipy can round a draw to just outside the support.
        return np.clip(self._draw(int(size), rng), *self.support)

    def _over_support(
        self, formula: Callable[[FloatArray], FloatArray], c: ArrayLike
    ) -> FloatArray:
        """Return ``formula`` on the support and +inf above it."""
        reports = _floats("c", c)
        low, high = self.support
        outside = ~(reports >= low)  # NaN compares false
        if outside.any():
            raise self._outside(reports, outside, "are NaN or below")
        above = (reports > high) | np.isinf(reports)
        costs = formula(np.where(above, low, reports) if above.any() else reports)
        return np.where(above, np.inf, costs)[()]

    def _outside(self, reports: FloatArray, outside: NDArray[np.bool_], what: str) -> PriorError:
        low, high = self.support
        first = int(np.argmax(outside))
        return PriorError(
            f"{int(outside.sum())} of {reports.size} sensitivities {what} the support "
            f"[{low:g}, {high:g}] of {self!r}; the first is c[{first}] = {reports.flat[first]}. "
            "Correct the reports, or declare a prior that covers them"
        )

    def _key(self) -> tuple[Any, ...]:
        """Return what identifies the prior, hashable."""
        return tuple(self.to_dict().items())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Prior):
            return NotImplemented
        return type(self) is type(other) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self), self._key()))


class _ContinuousPrior(Prior):
    """A frozen scipy distribution with what is known of its virtual cost."""

    def __init__(
        self,
        frozen: Any,
        support: tuple[float, float],
        *,
        regular: bool | None = None,
        slope: float | None = None,
    ) -> None:
        self._frozen = frozen
        self._support = support
        self._slope = slope
        self._mean = float(frozen.mean())
        if not support[0] <= self._frozen.median() <= support[1]:
            raise PriorError(
                f"{self!r}: the median is {self._frozen.median()} in floating point; "
                "choose less extreme parameters"
            )
        self._regular = self._looks_regular() if regular is None else regular

    @property
    def breakpoints(self) -> FloatArray:
        """Ends of the ironed intervals strictly inside the support."""
        if self._regular:
            return np.empty(0)
        ends = self._ironing[2]
        return ends[(ends > self._support[0]) & (ends < self._support[1])]

    def cdf(self, c: ArrayLike) -> FloatArray:
        return self._frozen.cdf(c)

    def pdf(self, c: ArrayLike) -> FloatArray:
        return self._frozen.pdf(c)

    def _quantile(self, u: FloatArray) -> FloatArray:
        return np.clip(self._frozen.ppf(u), *self._support)

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self._frozen.rvs(size=size, random_state=rng)

    def _raw_on_support(self, c: FloatArray) -> FloatArray:
        if self._slope is not None:
            return self._slope * c - (self._slope - 1) * self._support[0]
        # Logarithms, because in the tails F or f underflows long before their ratio does.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_cdf = self._frozen.logcdf(c)
            ratio = np.exp(log_cdf - self._frozen.logpdf(c))
        # At the bottom of the support F/f tends to 0, whatever the density does there.
        return c + np.where(np.isneginf(log_cdf), 0.0, ratio)

    def _ironed_on_support(self, c: FloatArray) -> FloatArray:
        if self._regular:
            return self._raw_on_support(c)
        nodes, costs, _ = self._ironing
        ironed = np.interp(c, nodes, costs)
        # Beyond the table: an unbounded tail, or a top where psi is infinite.
        beyond = c > nodes[-1]
        if np.any(beyond):
            tail = np.maximum(self._raw_on_support(np.where(beyond, c, nodes[-1])), costs[-1])
            return np.where(beyond, tail, ironed)
        return ironed

    @cached_property
    def _nodes(self) -> FloatArray:
        """Sensitivities dense where the probability is; from c_lo to c_hi if finite."""
        reach = np.log1p(-_TAIL) - np.log(_TAIL)
        levels = np.union1d(
            expit(np.linspace(-reach, reach, _TAIL_LEVELS)),
            np.linspace(0, 1, _EVEN_LEVELS)[1:-1],
        )
        ends = [end for end in self._support if np.isfinite(end)]
        anchors = np.union1d(self._quantile(levels), ends)
        steps = np.arange(_SUBDIVISIONS) / _SUBDIVISIONS
        between = anchors[:-1, None] + np.diff(anchors)[:, None] * steps
        return np.union1d(between, np.linspace(anchors[0], anchors[-1], _EVEN_NODES))

    def _looks_regular(self) -> bool:
        costs = self._raw_on_support(self._nodes)
        costs = costs[np.isfinite(costs)]
        return bool(np.all(np.diff(costs) > -1e-12 * costs[1:]))

    @cached_property
    def _ironing(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Nodes, the ironed psi at the nodes, and the ends of the ironed intervals."""
        levels = self._frozen.cdf(self._nodes)
        kept = _apart(levels, _SMALLEST_CELL)
        nodes, levels = self._nodes[kept], levels[kept]
        mass = np.diff(levels)
        slopes = isotonic_regression(np.diff(nodes * levels) / mass, weights=mass).x
        # At a node the hull may take any slope between those of its two cells: take psi if it is
        # one of them. That is exact off the ironed intervals, and constant on them.
        lower, upper = np.append(-np.inf, slopes), np.append(slopes, np.inf)
        costs = np.clip(self._raw_on_support(nodes), lower, upper)
        nodes, costs = nodes[np.isfinite(costs)], costs[np.isfinite(costs)]
        flat = np.concatenate([[False], np.diff(costs) == 0, [False]])
        return nodes, costs, nodes[flat[1:] != flat[:-1]]


class _ScipyPrior(_ContinuousPrior):
    """Any frozen continuous distribution on nonnegative numbers."""

    family = "scipy"

    def __init__(self, frozen: Any) -> None:
        self._support = _scipy_support(frozen)
        self._frozen = frozen
        self._check_density()
        super().__init__(frozen, self._support)

    def _check_density(self) -> None:
        low, high = self._support
        nodes = self._nodes
        inside = nodes[(nodes > low) & (nodes < high)]
        with np.errstate(divide="ignore", invalid="ignore"):
            bad = ~np.isfinite(self._frozen.logpdf(inside))
        if bad.any():
            c = inside[np.argmax(bad)]
            raise PriorError(
                f"{self!r}: the density is {self._frozen.pdf(c)} at c = {c:.6g}, inside the "
                f"support [{low:g}, {high:g}], so psi = c + F/f is undefined there. Use a "
                "distribution with a positive, finite density between its ends, or "
                "EmpiricalPrior(samples)"
            )

    @property
    def _is_public(self) -> bool:
        """Whether scipy.stats can rebuild the distribution from its name."""
        public = getattr(stats, str(self._frozen.dist.name), None)
        return type(public) is type(self._frozen.dist)

    def to_dict(self) -> dict[str, Any]:
        if not self._is_public:
            return {"family": "custom", "distribution": type(self._frozen.dist).__name__}
        return {
            "family": self.family,
            "distribution": self._frozen.dist.name,
            "args": [float(value) for value in self._frozen.args],
            "kwds": {name: float(value) for name, value in self._frozen.kwds.items()},
        }

    def _key(self) -> tuple[Any, ...]:
        if not self._is_public:
            return (id(self._frozen),)
        named = self.to_dict()
        return named["distribution"], *named["args"], *sorted(named["kwds"].items())

    def __repr__(self) -> str:
        described = self.to_dict()
        if described["family"] == "custom":
            return f"Prior.from_scipy(<{described['distribution']}>)"
        arguments = [repr(value) for value in described["args"]]
        arguments += [f"{name}={value!r}" for name, value in described["kwds"].items()]
        return f"Prior.from_scipy(scipy.stats.{described['distribution']}({', '.join(arguments)}))"


class _Family(_ContinuousPrior):
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
        low, high = _interval(self, low, high)
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
    """

    family = "power"
    example = "power:2,0.1"

    def __init__(self, exponent: float, high: float) -> None:
        exponent = _positive(self, "exponent", exponent)
        high = _positive(self, "high", high)
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
    """

    family = "exponential"
    example = "exponential:0.05"

    def __init__(self, mean: float) -> None:
        mean = _positive(self, "mean", mean)
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
    """

    family = "beta"
    example = "beta:2,5,0,0.1"

    def __init__(self, a: float, b: float, low: float = 0.0, high: float = 1.0) -> None:
        a, b = _positive(self, "a", a), _positive(self, "b", b)
        low, high = _interval(self, low, high)
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
    """

    family = "truncnorm"
    example = "truncnorm:0.05,0.02,0.01,0.10"

    def __init__(self, mean: float, std: float, low: float, high: float) -> None:
        mean, std = _finite(self, "mean", mean), _positive(self, "std", std)
        low, high = _interval(self, low, high)
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
    """

    family = "lognormal"
    example = "lognormal:-3,0.5"

    def __init__(self, log_mean: float, log_std: float) -> None:
        log_mean, log_std = _finite(self, "log_mean", log_mean), _positive(self, "log_std", log_std)
        with np.errstate(over="ignore"):
            median = _positive(self, "exp(log_mean)", np.exp(log_mean))
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
    """

    family = "gamma"
    example = "gamma:2,0.05"

    def __init__(self, shape: float, scale: float) -> None:
        shape, scale = _positive(self, "shape", shape), _positive(self, "scale", scale)
        super().__init__(
            {"shape": shape, "scale": scale}, stats.gamma(shape, scale=scale), (0.0, np.inf)
        )


class EmpiricalPrior(Prior):
    """The discrete prior of a sample: each distinct value with its frequency.

    On the distinct values v_1 < ... < v_n with frequencies f_k and F_k = f_1 + ... + f_k, the
    expected-cost curve joins the points (F_k, v_k*F_k), and its slopes are the virtual costs

        psi(v_1) = v_1,    psi(v_k) = v_k + (v_k - v_{k-1})*F_{k-1}/f_k.

    A report between two values counts as the higher one, so psi is a step function, continuous
    from the left. ``breakpoints`` holds the values strictly inside the support where it jumps.

    Parameters
    ----------
    samples : array_like
        Sensitivities, finite and >= 0, at least one; a single distinct value is allowed.

    Raises
    ------
    PriorError
        If there is no sample, or one is negative, infinite or NaN.

    Examples
    --------
    >>> prior = EmpiricalPrior([1, 2, 2, 4])
    >>> prior.virtual_cost([1, 2, 4])
    array([ 1. ,  2.5, 10. ])
    """

    _step = True
    family = "empirical"
    example = "empirical:sensitivities.csv"

    def __init__(self, samples: ArrayLike) -> None:
        drawn = _floats("samples", samples).ravel()
        bad = ~((drawn >= 0) & np.isfinite(drawn))
        if drawn.size == 0:
            raise PriorError("samples is empty; give at least one sensitivity")
        if bad.any():
            raise PriorError(
                f"samples[{np.argmax(bad)}] = {drawn[bad][0]} is not a sensitivity; "
                f"remove the {bad.sum()} of {drawn.size} samples that are not finite and >= 0"
            )
        self._values, self._counts = np.unique(drawn, return_counts=True)
        self._below = np.cumsum(self._counts)
        gaps = np.diff(self._values, prepend=self._values[0])
        self._raw = self._values + gaps * (self._below - self._counts) / self._counts
        self._ironed = isotonic_regression(self._raw, weights=self._counts).x
        self._support = float(self._values[0]), float(self._values[-1])
        self._mean = float(drawn.mean())
        self._regular = bool(np.all(np.diff(self._raw) > 0))

    @property
    def breakpoints(self) -> FloatArray:
        """The sample values strictly inside the support at which the ironed psi jumps."""
        jumps = np.flatnonzero(np.diff(self._ironed) > 0)
        return self._values[jumps[jumps > 0]]

    def to_dict(self) -> dict[str, Any]:
        """Return the family and the sorted samples, ready for JSON."""
        samples = np.repeat(self._values, self._counts)
        return {"family": self.family, "samples": samples.tolist()}

    def cdf(self, c: ArrayLike) -> FloatArray:
        """Return F(c), the share of samples of at most c; same shape as ``c``."""
        position = np.searchsorted(self._values, _floats("c", c), side="right")
        return np.append(0, self._below)[position] / self._below[-1]

    def pdf(self, c: ArrayLike) -> FloatArray:
        """Raise PriorError: a discrete prior has no density."""
        raise PriorError(
            f"{self!r} is discrete and has no density; use cdf, or fit a continuous prior"
        )

    def _quantile(self, u: FloatArray) -> FloatArray:
        # Compared with cdf's own quotients, so that quantile(cdf(v)) is v whatever the rounding.
        return self._values[np.searchsorted(self._below / self._below[-1], u, side="left")]

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        rank = rng.integers(self._below[-1], size=size)
        return self._values[np.searchsorted(self._below, rank, side="right")]

    def _raw_on_support(self, c: FloatArray) -> FloatArray:
        return self._raw[np.searchsorted(self._values, c, side="left")]

    def _ironed_on_support(self, c: FloatArray) -> FloatArray:
        return self._ironed[np.searchsorted(self._values, c, side="left")]

    def _key(self) -> tuple[Any, ...]:
        return self._values.tobytes(), self._counts.tobytes()

    def __repr__(self) -> str:
        if self._below[-1] <= 10:
            return f"EmpiricalPrior({self.to_dict()['samples']})"
        low, high = self.support
        return f"EmpiricalPrior(<{self._below[-1]} samples in [{low:g}, {high:g}]>)"


_FAMILIES: dict[str, type[Prior]] = {
    kind.family: kind
    for kind in (
        Uniform,
        Exponential,
        Beta,
        Power,
        TruncatedNormal,
        LogNormal,
        Gamma,
        EmpiricalPrior,
    )
}
_EXAMPLES = "; ".join(kind.example for kind in _FAMILIES.values())


def parse_prior(text: str) -> Prior:
    """Return the prior that a short text names, such as ``"uniform:0.02,0.10"``.

    Parameters
    ----------
    text : str
        A family, a colon, and its parameters in the order of its constructor; or
        ``empirical:FILE.csv``, whose first numeric column holds the samples.

    Raises
    ------
    PriorError
        If the family is unknown, or its parameters are missing, too many, or not valid; the
        message shows an example of each family.

    Examples
    --------
    >>> parse_prior("uniform:0.02,0.10")
    Uniform(0.02, 0.1)
    >>> parse_prior("beta:2,5")
    Beta(2.0, 5.0, 0.0, 1.0)
    """
    if not isinstance(text, str):
        raise PriorError(f"prior = {text!r} is not a text; write one of {_EXAMPLES}")
    family, _, arguments = text.partition(":")
    family = family.strip().lower()
    kind = _family(family)
    if kind is EmpiricalPrior:
        return EmpiricalPrior(_first_numeric_column(arguments.strip()))
    try:
        numbers = [float(number) for number in arguments.split(",")]
    except ValueError as error:
        raise PriorError(f"prior {text!r}: {error}; write {kind.example}") from None
    return _build(kind, numbers, {})


def prior_from_dict(described: Mapping[str, Any]) -> Prior:
    """Return the prior that ``Prior.to_dict`` describes.

    Parameters
    ----------
    described : mapping
        ``{"family": "uniform", "low": 0.02, "high": 0.1}`` and the like.

    Raises
    ------
    PriorError
        If the family is missing, unknown or custom code, or its parameters are missing, unknown
        or not valid.

    Examples
    --------
    >>> prior_from_dict({"family": "exponential", "mean": 0.05})
    Exponential(0.05)
    """
    if not isinstance(described, Mapping) or "family" not in described:
        raise PriorError(f"prior = {described!r} has no key 'family'; name one of {_EXAMPLES}")
    parameters = {name: value for name, value in described.items() if name != "family"}
    if described["family"] == _ScipyPrior.family:
        return _build(_rebuilt_scipy_prior, [], parameters)
    return _build(_family(described["family"]), [], parameters)


def _rebuilt_scipy_prior(
    distribution: str, args: list[float] | None = None, kwds: dict[str, float] | None = None
) -> Prior:
    public = getattr(stats, str(distribution), None)
    if not isinstance(public, stats.rv_continuous):
        raise PriorError(
            f"distribution = {distribution!r} is not a continuous distribution of scipy.stats; "
            "use one of its names, such as 'gamma'"
        )
    try:
        frozen = public(*(args or []), **(kwds or {}))
    except TypeError as error:
        raise PriorError(f"scipy.stats.{distribution}: {error}; correct args and kwds") from None
    return Prior.from_scipy(frozen)


def _build(build: Callable[..., Prior], values: list[float], parameters: dict[str, Any]) -> Prior:
    """Call ``build``, refusing parameters that it does not have in words of its own."""
    signature = inspect.signature(build)
    try:
        signature.bind(*values, **parameters)
    except TypeError as error:
        takes = ", ".join(map(str, signature.parameters.values()))
        raise PriorError(f"{build.__name__}: {error}; the parameters are ({takes})") from None
    return build(*values, **parameters)


def _family(name: object) -> type[Prior]:
    if str(name) not in _FAMILIES:
        raise PriorError(f"prior family {name!r} is unknown; write one of {_EXAMPLES}")
    return _FAMILIES[str(name)]


def _first_numeric_column(path: str) -> FloatArray:
    """Read the first column of a CSV file that holds numbers, below a header or not."""
    try:
        # Read without a header: with one, pandas would swallow the first of bare numbers.
        table = pd.read_csv(path, header=None, dtype=str)
    except (OSError, ValueError) as error:
        raise PriorError(f"prior 'empirical:{path}': {error}; give a CSV file") from None
    for name in table:
        numbers = pd.to_numeric(table[name], errors="coerce").to_numpy(dtype=float)
        header = int(np.isnan(numbers[0]))
        if numbers.size > header and not np.isnan(numbers[header:]).any():
            return numbers[header:]
    raise PriorError(
        f"prior 'empirical:{path}': no column holds a number in every row; "
        "give a CSV file with a column of sensitivities"
    )


def _apart(levels: FloatArray, least: float) -> list[int]:
    """Return positions of increasing levels at least ``least`` apart, first and last included."""
    kept = [0]
    for position, level in enumerate(levels):
        if level - levels[kept[-1]] >= least and levels[-1] - level >= least:
            kept.append(position)
    return [*kept, len(levels) - 1]


def _scipy_support(frozen: Any) -> tuple[float, float]:
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


def _floats(name: str, values: ArrayLike) -> FloatArray:
    try:
        return np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must hold numbers: {error}") from None


def _finite(prior: Prior, name: str, value: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise PriorError(f"{type(prior).__name__}: {name} = {value!r}; give a finite number")
    return number


def _positive(prior: Prior, name: str, value: float) -> float:
    number = _finite(prior, name, value)
    if number <= 0:
        raise PriorError(f"{type(prior).__name__}: {name} = {value!r}; give a number > 0")
    return number


def _interval(prior: Prior, low: float, high: float) -> tuple[float, float]:
    bottom, top = _finite(prior, "low", low), _finite(prior, "high", high)
    if not 0 <= bottom < top:
        raise PriorError(
            f"{type(prior).__name__}: low = {low!r}, high = {high!r}; give 0 <= low < high"
        )
    return bottom, top
