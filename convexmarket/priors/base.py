"""What every prior can do, and the one implementation behind all continuous ones.

:class:`Prior` is what the rest of the package relies on. It checks arguments and leaves the
formulas to its subclasses, which are asked for sensitivities in the support only.
:class:`ContinuousPrior` supplies them for any frozen ``scipy.stats`` distribution.
:class:`ScipyPrior` lives beside them because :meth:`Prior.from_scipy` makes it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from convexmarket.arguments import generator_of
from convexmarket.errors import ParameterError, PriorError
from convexmarket.priors.arguments import FloatArray, floats, scipy_support
from convexmarket.priors.ironing import IronedCosts, dense_nodes, iron, never_falls

__all__ = ["ContinuousPrior", "Prior", "ScipyPrior"]


class Prior(ABC):
    """A distribution of sensitivities c >= 0 that buyer and sellers know.

    Use a named family (:class:`Uniform`, :class:`Beta`, ...), :meth:`from_scipy` or
    :class:`EmpiricalPrior`. Priors are immutable; they compare and hash by value, those of custom
    scipy distributions by identity.

    Examples
    --------
    >>> import scipy.stats
    >>> import convexmarket as cm
    >>> prior = cm.Prior.from_scipy(scipy.stats.triang(0.5, loc=0.02, scale=0.08))
    >>> prior.support
    (0.02, 0.1)
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
        return ScipyPrior(frozen)

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
        levels = floats("u", u)
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
        reports = floats("c", c)
        low, high = self.support
        outside = ~((reports >= low) & (reports <= high) & np.isfinite(reports))
        if outside.any():
            raise self._outside(reports, outside, "are not in")

    def sample(self, size: int, random_state: np.random.Generator | int) -> FloatArray:
        """Draw independent sensitivities.

        Parameters
        ----------
        size : int
            Number of draws, at least 0.
        random_state : numpy.random.Generator or int
            Source of randomness, or a seed; the same gives the same draws.

        Returns
        -------
        ndarray, shape (size,)

        Raises
        ------
        ParameterError
            If an argument is neither.
        """
        whole = isinstance(size, int | np.integer) and not isinstance(size, bool)
        if not whole or not 0 <= size <= np.iinfo(np.intp).max // 8:  # bytes of a float
            raise ParameterError(f"size = {size!r} is not a number of draws; give an integer >= 0")
        rng = generator_of(random_state)
        # Scaling inside scipy can round a draw to just outside the support.
        return np.clip(self._draw(int(size), rng), *self.support)

    def _over_support(
        self, formula: Callable[[FloatArray], FloatArray], c: ArrayLike
    ) -> FloatArray:
        """Return ``formula`` on the support and +inf above it."""
        reports = floats("c", c)
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
        # A report is private; one alone is that of the seller who asks.
        found = f" = {reports.flat[first]}" if reports.size == 1 else ""
        return PriorError(
            f"{int(outside.sum())} of {reports.size} sensitivities {what} the support "
            f"[{low:g}, {high:g}] of {self!r}; the first is c[{first}]{found}. "
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


class ContinuousPrior(Prior):
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
        try:
            median, self._mean = float(frozen.median()), float(frozen.mean())
        except (OverflowError, RecursionError) as error:
            raise PriorError(f"{self!r} is beyond double precision: {error}") from None
        for what, value in (("median", median), ("mean", self._mean)):
            # Averages of numbers next to an end may be rounded to just outside it.
            if not support[0] * (1 - 1e-9) <= value <= support[1] * (1 + 1e-9):
                raise PriorError(
                    f"{self!r}: the {what} is {value} in floating point, outside the support "
                    f"[{support[0]:g}, {support[1]:g}]; choose less extreme parameters"
                )
        if regular is None:
            regular = never_falls(self._raw_on_support(self._nodes))
        self._regular = regular

    @property
    def breakpoints(self) -> FloatArray:
        """Ends of the ironed intervals strictly inside the support."""
        if self._regular:
            return np.empty(0)
        ends = self._ironing.ends
        return ends[(ends > self._support[0]) & (ends < self._support[1])]

    def cdf(self, c: ArrayLike) -> FloatArray:
        """Return F(c), the probability of a sensitivity of at most c; same shape as ``c``."""
        return self._computed(self._frozen.cdf, floats("c", c))

    def pdf(self, c: ArrayLike) -> FloatArray:
        """Return the density f(c), per unit of sensitivity; same shape as ``c``."""
        return self._computed(self._frozen.pdf, floats("c", c))

    def _quantile(self, u: FloatArray) -> FloatArray:
        return np.clip(self._computed(self._frozen.ppf, u), *self._support)

    def _computed(self, function: Callable[[FloatArray], FloatArray], x: FloatArray) -> FloatArray:
        try:
            return function(x)
        except (OverflowError, RecursionError) as error:
            raise PriorError(f"{self!r} is beyond double precision: {error}") from None

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self._frozen.rvs(size=size, random_state=rng)

    def _raw_on_support(self, c: FloatArray) -> FloatArray:
        if self._slope is not None:
            return np.maximum(self._slope * c - (self._slope - 1) * self._support[0], c)
        # Logarithms, because in the tails F or f underflows long before their ratio does.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_cdf = self._computed(self._frozen.logcdf, c)
            ratio = np.exp(log_cdf - self._computed(self._frozen.logpdf, c))
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

    def _check_density(self) -> None:
        """Refuse a density that is zero or not finite at a node inside the support."""
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

    @cached_property
    def _nodes(self) -> FloatArray:
        return dense_nodes(self._quantile, self._support)

    @cached_property
    def _ironing(self) -> IronedCosts:
        return iron(self._nodes, self._frozen.cdf(self._nodes), self._raw_on_support)


class ScipyPrior(ContinuousPrior):
    """Any frozen continuous distribution on nonnegative numbers."""

    family = "scipy"

    def __init__(self, frozen: Any) -> None:
        self._support = scipy_support(frozen)
        self._frozen = frozen
        self._check_density()
        super().__init__(frozen, self._support)

    @property
    def _is_public(self) -> bool:
        """Whether scipy.stats can rebuild the distribution from its name."""
        public = getattr(stats, str(self._frozen.dist.name), None)
        return type(public) is type(self._frozen.dist)

    def to_dict(self) -> dict[str, Any]:
        """Return the distribution's name and parameters; of a custom one, its class only."""
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
