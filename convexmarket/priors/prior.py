"""The base class of all priors, ironing, and the prior of a frozen ``scipy.stats`` distribution."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import isotonic_regression
from scipy.special import expit

from convexmarket.checks import check_count, checked_numbers, generator_of, shown
from convexmarket.errors import ConvexMarketError, ParameterError, PriorError

__all__ = ["FloatArray", "Prior", "PriorLike", "ScipyPrior", "as_prior"]

FloatArray = NDArray[np.float64]
#: A prior, or a frozen distribution of scipy.stats (which has no public class).
PriorLike: TypeAlias = Any

#: Smallest normal number. The code behind SciPy's beta distribution ends the process below it.
SMALLEST = float(np.finfo(np.float64).tiny)
#: Halvings of an interval, to the last digit.
_HALVINGS = 80
#: Nodes are quantiles that are dense in both tails, down to this probability, with equally spaced
#: sensitivities between two neighbours, and equally spaced sensitivities over the whole support.
_TAIL, _TAIL_LEVELS, _EVEN_LEVELS, _SUBDIVISIONS, _EVEN_NODES = 1e-9, 97, 33, 16, 4097
#: Ironing differences the expected-cost curve: cells of less probability drown in rounding.
_SMALLEST_CELL = 1e-7


class Prior(ABC):
    """A distribution of sensitivities c >= 0, known to buyer and sellers.

    Every argument ``prior`` accepts a named family (:class:`Uniform`, :class:`Beta`, ...), an
    :class:`EmpiricalPrior`, or a frozen continuous ``scipy.stats`` distribution. For another
    distribution, subclass ``Prior``: set :attr:`support` and write :meth:`cdf` and :meth:`pdf`.

    Priors are immutable and compare by value; a prior without a named family by identity.

    Attributes
    ----------
    support : tuple of float
        The interval [c_lo, c_hi] of possible sensitivities; c_hi may be infinite.

    Examples
    --------
    >>> class Ramp(Prior):
    ...     support = (0.0, 1.0)
    ...     def cdf(self, c):
    ...         return np.clip(c, 0, 1) ** 2
    ...     def pdf(self, c):
    ...         return 2 * np.asarray(c)
    >>> Ramp().virtual_cost([0.2, 0.6]).round(6)
    array([0.3, 0.9])
    """

    #: Name in problem files and on the command line, with an example of its parameters.
    family: ClassVar[str] = "custom"
    example: ClassVar[str] = ""

    support: tuple[float, float]
    #: Slope of psi where psi is affine on the whole support (2 for Uniform), else None.
    virtual_cost_slope: float | None = None
    #: Whether the ironed psi is constant between breakpoints, as for a sample.
    is_step: ClassVar[bool] = False

    @staticmethod
    def from_scipy(frozen: Any) -> Prior:
        """Convert a frozen continuous ``scipy.stats`` distribution to a prior.

        A custom distribution is fast if it defines ``_cdf`` next to ``_pdf``, and ``_ppf`` for
        samples. Regularity is tested on about 6000 sensitivities, up to rounding. A distribution
        without a positive and finite density on one interval of sensitivities is a PriorError.

        Parameters
        ----------
        frozen : a frozen ``scipy.stats`` distribution

        Examples
        --------
        >>> import scipy.stats
        >>> Prior.from_scipy(scipy.stats.expon(scale=0.5)).support
        (0.0, inf)
        """
        return as_prior(frozen, "frozen")

    @abstractmethod
    def cdf(self, c: ArrayLike) -> FloatArray:
        """Compute F(c), the probability of a sensitivity of at most c; same shape as ``c``.

        Parameters
        ----------
        c : array_like, reported costs
        """

    @abstractmethod
    def pdf(self, c: ArrayLike) -> FloatArray:
        """Compute the density f(c), per unit of sensitivity; same shape as ``c``.

        Parameters
        ----------
        c : array_like, reported costs
        """

    def _logs(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute log F and log f."""
        return np.log(self.cdf(c)), np.log(self.pdf(c))

    def _quantile(self, u: FloatArray) -> FloatArray:
        low, top = self.support
        high = min(top, low + 1.0)
        while high < top and np.max(self.cdf(high)) < np.max(u, initial=0.0, where=u < 1):
            high = min(top, 2.0 * high)
        inside = self._bisect(u, np.full_like(u, low), np.full_like(u, high))
        return np.select([u <= 0, u >= 1], [low, top], inside)

    def _bisect(self, u: FloatArray, low: FloatArray, high: FloatArray) -> FloatArray:
        """Solve F(c) = u between two bounds."""
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            enough = self.cdf(middle) >= u
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.quantile(rng.random(size))

    @cached_property
    def mean(self) -> float:
        """Expected sensitivity."""
        low, high = self.support
        return float(low + quad(lambda c: 1 - float(self.cdf(c)), low, high, limit=200)[0])

    @cached_property
    def is_regular(self) -> bool:
        """Whether psi is strictly increasing (A, Assumption III.1). Other priors are ironed."""
        self._check_density()
        costs = self._virtual_cost(self._nodes)
        costs = costs[np.isfinite(costs)]
        return bool(np.all(np.diff(costs) > -1e-12 * costs[1:]))  # up to rounding

    @property
    def breakpoints(self) -> FloatArray:
        """Sensitivities inside the support where the ironed psi has a kink or jump, increasing."""
        return np.empty(0) if self.is_regular else self._inside(self._ironing[2])

    def _inside(self, points: FloatArray) -> FloatArray:
        return points[(points > self.support[0]) & (points < self.support[1])]

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        """Compute psi on the support."""
        if (slope := self.virtual_cost_slope) is not None:
            return np.maximum(slope * c - (slope - 1) * self.support[0], c)
        # Logarithms, because in the tails F or f underflows long before their ratio does.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_cdf, log_pdf = self._logs(c)
            ratio = np.exp(log_cdf - log_pdf)
        # At the bottom of the support F/f tends to 0, whatever the density does there.
        return c + np.where(np.isneginf(log_cdf), 0.0, ratio)

    def _ironed_virtual_cost(self, c: FloatArray) -> FloatArray:
        """Compute the ironed psi on the support."""
        if self.is_regular:
            return self._virtual_cost(c)
        nodes, costs, _ = self._ironing
        above = c > nodes[-1]  # an unbounded tail, or a top where psi is infinite
        tail = np.maximum(self._virtual_cost(np.where(above, c, nodes[-1])), costs[-1])
        return np.where(above, tail, np.interp(c, nodes, costs))

    @cached_property
    def _nodes(self) -> FloatArray:
        """Sensitivities, increasing and finite, which are denser where the density is larger."""
        reach = np.log1p(-_TAIL) - np.log(_TAIL)
        levels = expit(np.linspace(-reach, reach, _TAIL_LEVELS))
        levels = np.union1d(levels, np.linspace(0, 1, _EVEN_LEVELS)[1:-1])
        ends = [end for end in self.support if np.isfinite(end)]
        anchors = np.union1d(self._quantile(levels), ends)
        steps = np.arange(_SUBDIVISIONS) / _SUBDIVISIONS
        between = anchors[:-1, None] + np.diff(anchors)[:, None] * steps
        return np.union1d(between, np.linspace(anchors[0], anchors[-1], _EVEN_NODES))

    @cached_property
    def _ironing(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Nodes, the ironed psi there, and the ends of the ironed intervals."""
        levels = self.cdf(self._nodes)
        chosen = [0]  # nodes at least the smallest cell apart in probability, and the last
        for position, level in enumerate(levels):
            if level - levels[chosen[-1]] >= _SMALLEST_CELL <= levels[-1] - level:
                chosen.append(position)
        chosen.append(len(levels) - 1)
        nodes, levels = self._nodes[chosen], levels[chosen]
        mass = np.diff(levels)
        slopes = isotonic_regression(np.diff(nodes * levels) / mass, weights=mass).x
        # At a node the hull may take any slope between those of its two cells: take psi if it is
        # one of them. This is exact outside the ironed intervals, and constant on them.
        lower, upper = np.append(-np.inf, slopes), np.append(slopes, np.inf)
        costs = np.clip(self._virtual_cost(nodes), lower, upper)
        nodes, costs = nodes[np.isfinite(costs)], costs[np.isfinite(costs)]
        flat = np.concatenate([[False], np.diff(costs) == 0, [False]])
        return nodes, costs, nodes[flat[1:] != flat[:-1]]

    def _check_density(self) -> None:
        """Check that the density is positive and finite at nodes inside the support."""
        inside = self._inside(self._nodes)
        with np.errstate(divide="ignore", invalid="ignore"):
            bad = ~np.isfinite(self._logs(inside)[1])
        if bad.any():
            c, (low, high) = inside[np.argmax(bad)], self.support
            raise PriorError(
                f"{self!r}: the density is {self.pdf(c)} at c = {c:.6g}, inside the support "
                f"[{low:g}, {high:g}], so psi = c + F/f is undefined there. Use a distribution "
                "with a positive, finite density between its ends, or EmpiricalPrior(samples)"
            )

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Compute the smallest sensitivity c of the support with F(c) >= u.

        Parameters
        ----------
        u : array_like, levels from 0 to 1

        Raises
        ------
        ParameterError
            If an entry of ``u`` is not in [0, 1].
        """
        levels = checked_numbers("u", u)
        outside = ~((levels >= 0) & (levels <= 1))
        if outside.any():
            raise ParameterError(f"u = {levels[outside][0]} is not a probability; give 0 <= u <= 1")
        return np.clip(self._quantile(levels), *self.support)[()]

    def virtual_cost(self, c: ArrayLike) -> FloatArray:
        """Compute Myerson's virtual cost psi(c) = c + F(c)/f(c) (A, Assumption III.1), unironed.

        It is +inf above c_hi, and at c_hi if the density vanishes there. NaN, or an entry below the
        support, is a PriorError.

        Parameters
        ----------
        c : array_like, reported costs
        """
        return self._over_support(self._virtual_cost, c)

    def ironed_virtual_cost(self, c: ArrayLike) -> FloatArray:
        """Compute the ironed virtual cost of a market, which is nondecreasing in ``c``.

        It is the slope of the convex hull of R(q) = q * F^-1(q), the best nondecreasing cost for
        the buyer (Myerson, 1981, section 6; A, Lemma III.2), and psi for a regular prior. Other
        continuous priors are ironed on about 6000 sensitivities, with linear interpolation.

        Parameters
        ----------
        c : array_like, reported costs
        """
        return self._over_support(self._ironed_virtual_cost, c)

    def _over_support(
        self, formula: Callable[[FloatArray], FloatArray], c: ArrayLike
    ) -> FloatArray:
        """Apply ``formula`` on the support; the cost is +inf above it."""
        self.check_reports(c, above=True)
        reports, (low, high) = checked_numbers("c", c), self.support
        above = (reports > high) | np.isinf(reports)
        return np.where(above, np.inf, formula(np.where(above, low, reports)))[()]

    def check_reports(
        self, c: ArrayLike, name: Callable[[int], str] | None = None, *, above: bool = False
    ) -> None:
        """Check that reports are in the support; ``name`` names a position in the message.

        With ``above``, reports above the support pass.

        Raises
        ------
        PriorError
            If one is not.
        """
        reports, (low, high) = checked_numbers("c", c), self.support
        outside = ~((reports >= low) & (above | ((reports <= high) & np.isfinite(reports))))
        if not outside.any():
            return
        first = int(np.argmax(outside))
        place = name(first) if name else f"c[{first}]"
        if not name and reports.size == 1:  # the report of the caller; others are private
            place += f" = {reports.flat[first]}"
        raise PriorError(
            f"{int(outside.sum())} of {reports.size} sensitivities "
            f"{'are NaN or below' if above else 'are not in'} the support [{low:g}, {high:g}] of "
            f"{self!r}; the first is {place}. "
            "Correct the reports, or declare a prior that covers them"
        )

    def contains(self, reports: FloatArray) -> bool:
        """Whether the prior is a sample that contains these reports.

        Parameters
        ----------
        reports : array_like
        """
        return False

    def sample(self, size: int, random_state: np.random.Generator | int) -> FloatArray:
        """Draw ``size`` independent sensitivities with a generator or a seed.

        Parameters
        ----------
        size : int
        random_state : int or numpy.random.Generator
        """
        size = check_count("size", size, 0)
        # Scaling inside scipy can round a draw to just outside the support.
        return np.clip(self._draw(size, generator_of(random_state)), *self.support)

    def to_dict(self) -> dict[str, Any]:
        """Describe the prior by its family and parameters, ready for JSON."""
        return {"family": self.family, "distribution": type(self).__name__}

    def _key(self) -> Any:
        """Identify the prior, by something hashable."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Prior) and type(self) is type(other) and self._key() == other._key()
        )

    def __hash__(self) -> int:
        return hash((type(self), self._key()))


class ScipyPrior(Prior):
    """The prior of a frozen continuous distribution, and the base class of named families.

    A family has set its support and parameters. Without ``regular``, regularity is tested on nodes;
    ``slope`` is that of an affine psi.
    """

    family = "scipy"
    _parameters: dict[str, Any] | None = None

    def __init__(
        self, frozen: Any, *, regular: bool | None = None, slope: float | None = None
    ) -> None:
        self._frozen, self.virtual_cost_slope = frozen, slope
        if self._parameters is None:
            self.support = _support(frozen)
            name = str(frozen.dist.name)
            if type(getattr(stats, name, None)) is type(frozen.dist):
                kwds = {key: float(value) for key, value in sorted(frozen.kwds.items())}
                args = [float(value) for value in frozen.args]
                self._parameters = {"distribution": name, "args": args, "kwds": kwds}
        low, high = self.support
        try:
            if regular is None:
                self._check_density()
            else:
                self.is_regular = regular
            averages = {"median": float(frozen.median()), "mean": self.mean}
        except (OverflowError, RecursionError) as error:
            raise PriorError(f"{self!r} is beyond double precision: {error}") from None
        for what, value in averages.items():
            # Averages of numbers next to an end may be rounded to just outside it.
            if not low * (1 - 1e-9) <= value <= high * (1 + 1e-9):
                raise PriorError(
                    f"{self!r}: the {what} is {value} in floating point, outside the support "
                    f"[{low:g}, {high:g}]; choose less extreme parameters"
                )

    @cached_property
    def mean(self) -> float:
        """Expected sensitivity."""
        return float(self._frozen.mean())

    def cdf(self, c: ArrayLike) -> FloatArray:
        """Compute F(c); same shape as ``c``."""
        try:
            return self._frozen.cdf(checked_numbers("c", c))
        except (OverflowError, RecursionError) as error:
            raise PriorError(f"{self!r} is beyond double precision: {error}") from None

    def pdf(self, c: ArrayLike) -> FloatArray:
        """Compute the density f(c); same shape as ``c``."""
        return self._frozen.pdf(checked_numbers("c", c))

    def _logs(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._frozen.logcdf(c), self._frozen.logpdf(c)

    def _quantile(self, u: FloatArray) -> FloatArray:
        return np.clip(self._frozen.ppf(u), *self.support)

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self._frozen.rvs(size=size, random_state=rng)

    def to_dict(self) -> dict[str, Any]:
        """Describe the prior by its family and parameters, or a custom one by its class."""
        if self._parameters is not None:
            return {"family": self.family, **self._parameters}
        return {"family": Prior.family, "distribution": type(self._frozen.dist).__name__}

    def _key(self) -> Any:
        return id(self._frozen) if self._parameters is None else repr(self._parameters)

    def __repr__(self) -> str:
        if self._parameters is None:
            return f"Prior.from_scipy(<{type(self._frozen.dist).__name__}>)"
        if type(self) is not ScipyPrior:
            return f"{type(self).__name__}({', '.join(map(repr, self._parameters.values()))})"
        name, positional, named = self._parameters.values()
        texts = [*map(repr, positional), *(f"{key}={value!r}" for key, value in named.items())]
        return f"Prior.from_scipy(scipy.stats.{name}({', '.join(texts)}))"


def as_prior(given: Any, name: str = "prior", error: type[ConvexMarketError] = PriorError) -> Prior:
    """Return a prior, converted from a frozen distribution of scipy.stats if it is one.

    Another object is an error of the given type, with the name of the argument.
    """
    if isinstance(given, Prior):
        return given
    kinds = stats.rv_continuous | stats.rv_discrete
    if isinstance(given, kinds) or isinstance(getattr(given, "dist", None), kinds):
        return ScipyPrior(given)
    raise error(
        f"{name} is {shown(given)}, which is not a prior; give one such as Uniform(0.02, 0.10), or "
        "a frozen distribution such as scipy.stats.gamma(2, scale=0.05)"
    )


def _support(frozen: Any) -> tuple[float, float]:
    """Return the support of a frozen continuous distribution, checked to be nonnegative."""
    if isinstance(frozen, stats.rv_continuous | stats.rv_discrete):
        raise PriorError(f"{type(frozen).__name__} has no parameters yet; call it with them")
    name = f"scipy.stats.{frozen.dist.name}"
    if isinstance(frozen.dist, stats.rv_discrete):
        raise PriorError(f"{name} is discrete and has no density; use EmpiricalPrior(samples)")
    given = [np.asarray(value) for value in (*frozen.args, *frozen.kwds.values())]
    numbers = [x for x in given if x.dtype.kind in "iuf"]
    if any(np.any((x != 0) & (abs(x) < SMALLEST)) for x in numbers):
        raise PriorError(f"{name} has a parameter below {SMALLEST:.0g}; give a larger one, or zero")
    low, high = frozen.support()
    if np.ndim(low) or np.ndim(high) or not 0 <= low < high:
        raise PriorError(
            f"{name} has support [{low}, {high}], which is not one interval of sensitivities >= 0; "
            "give it one valid value of each parameter, truncate or shift it"
        )
    return float(low), float(high)
