"""Base class of priors, which irons virtual costs, and priors from ``scipy.stats``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import isotonic_regression
from scipy.special import expit

from convexmarket.checks import check_count, checked_numbers, generator_of, is_iterable, shown
from convexmarket.errors import ConvexMarketError, ParameterError, PriorError, SellersError

__all__ = [
    "FloatArray",
    "Prior",
    "PriorLike",
    "PriorOrPriors",
    "ScipyPrior",
    "as_prior",
    "assigned",
]

FloatArray = NDArray[np.float64]
#: A prior, or a frozen distribution of scipy.stats (which has no public class).
PriorLike: TypeAlias = Any
#: One prior for all sellers, one for each seller, or one for each group.
PriorOrPriors: TypeAlias = PriorLike | Iterable[PriorLike] | Mapping[Any, PriorLike]

#: Smallest normal number. Smaller arguments of SciPy's beta distribution can crash the process.
SMALLEST = float(np.finfo(np.float64).tiny)
#: Probability beyond the outermost nodes, and smallest probability between two ironing nodes.
_TAIL, _SMALLEST_CELL = 1e-9, 1e-7


class Prior(ABC):
    """Distribution of sensitivities c >= 0, known to the buyer and to the sellers.

    Any parameter ``prior`` accepts a named family (:class:`Uniform`, :class:`Beta`, ...), an
    :class:`EmpiricalPrior`, or a frozen continuous ``scipy.stats`` distribution. For other
    distributions, derive a class from ``Prior``, set :attr:`support` to the interval [c_lo, c_hi]
    of possible sensitivities, and define :meth:`cdf` and :meth:`pdf`. c_hi can be infinite.

    Priors are immutable. Named families are compared by value, and other priors by identity.

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

    #: Name of the family in problem files and on the command line, and an example of its use.
    family: ClassVar[str] = "custom"
    example: ClassVar[str] = ""

    support: tuple[float, float]
    #: Slope of psi if psi is affine on the whole support (2 for Uniform), or None.
    virtual_cost_slope: float | None = None
    #: Whether the ironed psi is constant between breakpoints, as for a sample.
    is_step: ClassVar[bool] = False
    #: Sensitivities inside the support at which the density can jump, used as nodes for ironing.
    _jumps: FloatArray = np.empty(0)

    @staticmethod
    def from_scipy(frozen: Any) -> Prior:
        """Convert a frozen continuous ``scipy.stats`` distribution to a prior.

        The density must be positive and finite on one interval of sensitivities. Computations are
        fast if a custom distribution defines ``_cdf`` and ``_ppf``.

        Parameters
        ----------
        frozen : a frozen ``scipy.stats`` distribution
        """
        return as_prior(frozen, "frozen")

    @abstractmethod
    def cdf(self, c: ArrayLike) -> FloatArray:
        """Compute F(c), the probability that a sensitivity is at most c, for each entry of ``c``.

        Parameters
        ----------
        c : array_like, reported costs
        """

    @abstractmethod
    def pdf(self, c: ArrayLike) -> FloatArray:
        """Compute the density f(c), per unit of sensitivity, for each entry of ``c``.

        Parameters
        ----------
        c : array_like, reported costs
        """

    def _logs(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Compute log F and log f."""
        return np.log(self.cdf(c)), np.log(self.pdf(c))

    def _quantile(self, u: FloatArray) -> FloatArray:
        """Solve F(c) = u to machine precision by dividing intervals into quarters."""
        bottom, top = self.support
        end = min(top, bottom + 1.0)
        while end < top and np.max(self.cdf(end)) < np.max(u, initial=0.0, where=u < 1):
            end = min(top, 2.0 * end)
        low, high = np.full_like(u, bottom), np.full_like(u, end)
        for _ in range(40):
            c = low + np.multiply.outer([0.25, 0.5, 0.75], high - low)
            enough = self.cdf(c.ravel()).reshape(c.shape) >= u
            low, high = np.where(enough, low, c).max(0), np.where(enough, c, high).min(0)
        return np.select([u <= 0, u >= 1], [bottom, top], high)

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self.quantile(rng.random(size))

    @cached_property
    def mean(self) -> float:
        """Expected sensitivity."""
        low, high = self.support
        return float(low + quad(lambda c: 1 - float(self.cdf(c)), low, high, limit=200)[0])

    @cached_property
    def is_regular(self) -> bool:
        """Whether psi is strictly increasing (A, Assumption III.1). Otherwise, psi is ironed."""
        self._check_density()
        costs = self._virtual_cost(self._nodes)
        costs = costs[np.isfinite(costs)]
        return bool(np.all(np.diff(costs) > -1e-12 * costs[1:]))  # up to rounding

    @property
    def breakpoints(self) -> FloatArray:
        """Increasing sensitivities inside the support where the ironed psi has a kink or jump."""
        ironed = np.empty(0) if self.is_regular else self._inside(self._ironing[2])
        return np.union1d(ironed, self._jumps)

    def _inside(self, points: FloatArray) -> FloatArray:
        return points[(points > self.support[0]) & (points < self.support[1])]

    def _virtual_cost(self, c: FloatArray) -> FloatArray:
        """Compute psi on the support."""
        if (slope := self.virtual_cost_slope) is not None:
            return np.maximum(slope * c - (slope - 1) * self.support[0], c)
        # Use logarithms, because F and f can underflow in the tails even if their ratio does not.
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_cdf, log_pdf = self._logs(c)
            ratio = np.exp(log_cdf - log_pdf)
        # At the lower end of the support, F/f tends to 0 for any density.
        return c + np.where(np.isneginf(log_cdf), 0.0, ratio)

    def _ironed_virtual_cost(self, c: FloatArray) -> FloatArray:
        """Compute the ironed psi on the support."""
        if self.is_regular:
            return self._virtual_cost(c)
        nodes, costs, _ = self._ironing
        between, above = np.interp(c, nodes, costs), c > nodes[-1]
        if not above.any():  # otherwise, some c are in a tail, or where psi is infinite
            return between
        tail = np.maximum(self._virtual_cost(np.where(above, c, nodes[-1])), costs[-1])
        return np.where(above, tail, between)

    @cached_property
    def _nodes(self) -> FloatArray:
        """Nodes for ironing: increasing finite sensitivities, denser where the density is high."""
        reach = np.log1p(-_TAIL) - np.log(_TAIL)
        levels = np.union1d(expit(np.linspace(-reach, reach, 97)), np.linspace(0, 1, 33)[1:-1])
        ends = [end for end in self.support if np.isfinite(end)]
        anchors = np.union1d(self._quantile(levels), ends)
        between = anchors[:-1] + np.diff(anchors) * np.arange(16)[:, None] / 16
        even = np.linspace(anchors[0], anchors[-1], 4097)
        return np.unique(np.concatenate([between.ravel(), even, self._jumps]))

    @cached_property
    def _ironing(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The nodes for ironing, the ironed psi at the nodes, and ends of ironed intervals."""
        levels = self.cdf(self._nodes)
        chosen = [0]
        for position, level in enumerate(levels):
            if level - levels[chosen[-1]] >= _SMALLEST_CELL <= levels[-1] - level:
                chosen.append(position)
        chosen.append(len(levels) - 1)
        nodes, levels = self._nodes[chosen], levels[chosen]
        mass = np.diff(levels)
        slopes = isotonic_regression(np.diff(nodes * levels) / mass, weights=mass).x
        # At a node, psi is clipped to the range between the slopes of the hull on adjacent cells.
        # So the result is exact outside the ironed intervals, and constant on these intervals.
        lower, upper = np.append(-np.inf, slopes), np.append(slopes, np.inf)
        costs = np.clip(self._virtual_cost(nodes), lower, upper)
        nodes, costs = nodes[np.isfinite(costs)], costs[np.isfinite(costs)]
        flat = np.concatenate([[False], np.diff(costs) == 0, [False]])
        return nodes, costs, nodes[flat[1:] != flat[:-1]]

    def _check_density(self) -> None:
        """Check that the density is positive and finite at nodes inside the support."""
        inside = self._inside(self._nodes)
        with np.errstate(divide="ignore", invalid="ignore"):
            bad = inside[~np.isfinite(self._logs(inside)[1])]
        if bad.size:
            low, high = self.support
            raise PriorError(
                f"{self!r}: the density is {self.pdf(bad[0])} at c = {bad[0]:.6g}, inside the "
                f"support [{low:g}, {high:g}]; the density must be positive and finite there. "
                "Give a different distribution, or EmpiricalPrior(samples)"
            )

    def quantile(self, u: ArrayLike) -> FloatArray:
        """Compute the smallest sensitivity c in the support with F(c) >= u.

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
        """Compute Myerson's virtual cost psi(c) = c + F(c)/f(c) (A, Assumption III.1), not ironed.

        psi is +inf above the support. NaN and entries below the support raise a PriorError.

        Parameters
        ----------
        c : array_like, reported costs
        """
        return self._over_support(self._virtual_cost, c)

    def ironed_virtual_cost(self, c: ArrayLike) -> FloatArray:
        """Compute the ironed virtual cost, which is nondecreasing in ``c``.

        The ironed psi is the slope of the convex hull of R(q) = q * F^-1(q) (Myerson, 1981, section
        6; A, Lemma III.2). For a regular prior, it equals psi. For any other continuous prior, it
        is interpolated linearly between about 6000 nodes.

        Parameters
        ----------
        c : array_like, reported costs
        """
        return self._over_support(self._ironed_virtual_cost, c)

    def _over_support(self, cost: Callable[[FloatArray], FloatArray], c: ArrayLike) -> FloatArray:
        """Evaluate ``cost`` on the support, and return +inf above the support."""
        reports, (low, high) = self.check_reports(c, above=True), self.support
        above = (reports > high) | np.isinf(reports)
        return np.where(above, np.inf, cost(np.where(above, low, reports)))[()]

    def check_reports(
        self, c: ArrayLike, name: Callable[[int], str] = "c[{}]".format, *, above: bool = False
    ) -> FloatArray:
        """Convert reports to an array, and check that they are in the support.

        ``above`` allows reports above the support. Errors do not contain reported values.

        Raises
        ------
        PriorError
            If a report is outside the permitted range.
        """
        reports, (low, high) = checked_numbers("c", c), self.support
        outside = ~((reports >= low) & (above | ((reports <= high) & np.isfinite(reports))))
        if outside.any():
            raise PriorError(
                f"{int(outside.sum())} of {reports.size} sensitivities "
                f"{'are NaN or below' if above else 'are not in'} the support [{low:g}, {high:g}] "
                f"of {self!r}; the first is {name(int(np.argmax(outside)))}. "
                "Correct the reports, or declare a prior whose support contains them"
            )
        return reports

    def contains(self, reports: FloatArray) -> bool:
        """Check whether the prior is a sample that contains all reports, with repetitions."""
        return False

    def sample(self, size: int, random_state: np.random.Generator | int) -> FloatArray:
        """Draw ``size`` independent sensitivities.

        Parameters
        ----------
        size : int
        random_state : int or numpy.random.Generator
        """
        size = check_count("size", size, 0)
        # Scaling inside scipy can round a draw to a value slightly outside the support.
        return np.clip(self._draw(size, generator_of(random_state)), *self.support)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-compatible dictionary of the family and its parameters."""
        return {"family": self.family, "distribution": type(self).__name__}

    def _key(self) -> Any:
        """Return a hashable key that identifies the prior."""
        return id(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Prior) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


class ScipyPrior(Prior):
    """Prior of a frozen continuous distribution, and base class of the named families.

    ``_parameters`` is empty for a distribution that is not defined in ``scipy.stats``.
    """

    family = "scipy"
    _frozen: Any
    _parameters: dict[str, Any]

    @cached_property
    def mean(self) -> float:
        return float(self._frozen.mean())

    def cdf(self, c: ArrayLike) -> FloatArray:
        return self._frozen.cdf(checked_numbers("c", c))

    def pdf(self, c: ArrayLike) -> FloatArray:
        return self._frozen.pdf(checked_numbers("c", c))

    def _logs(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self._frozen.logcdf(c), self._frozen.logpdf(c)

    def _quantile(self, u: FloatArray) -> FloatArray:
        return np.clip(self._frozen.ppf(u), *self.support)

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        return self._frozen.rvs(size=size, random_state=rng)

    def to_dict(self) -> dict[str, Any]:
        if self._parameters:
            return {"family": self.family, **self._parameters}
        return {"family": Prior.family, "distribution": type(self._frozen.dist).__name__}

    def _key(self) -> Any:
        return repr(self) if self._parameters else id(self._frozen)

    def __repr__(self) -> str:
        if not self._parameters:
            return f"Prior.from_scipy(<{type(self._frozen.dist).__name__}>)"
        name, args, kwds = self._parameters.values()
        texts = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwds.items())]
        return f"Prior.from_scipy(scipy.stats.{name}({', '.join(texts)}))"


def as_prior(given: Any, name: str = "prior", error: type[ConvexMarketError] = PriorError) -> Prior:
    """Return a prior, or convert a frozen distribution of scipy.stats to a prior.

    Any other object raises an ``error`` whose message contains ``name``.
    """
    if isinstance(given, Prior):
        return given
    if isinstance(getattr(given, "dist", None), stats.rv_continuous):
        return _converted(given)
    raise error(
        f"{name} is {shown(given)}, which is not a prior; give Uniform(0.02, 0.10), an instance of "
        "another subclass of convexmarket.Prior (support, cdf, pdf), EmpiricalPrior(samples), or a "
        "frozen continuous distribution such as scipy.stats.gamma(2, scale=0.05)"
    )


@lru_cache(maxsize=64)
def _converted(frozen: Any) -> Prior:
    values = [np.asarray(value) for value in (*frozen.args, *frozen.kwds.values())]
    tiny = any(np.any((x != 0) & (abs(x) < SMALLEST)) for x in values if x.dtype.kind in "iuf")
    low, high = frozen.support()
    if tiny or np.ndim(low) or np.ndim(high) or not 0 <= low < high:
        raise PriorError(
            f"scipy.stats.{frozen.dist.name} has support [{low}, {high}], which must be one "
            "interval of sensitivities >= 0; give each parameter one valid value, whose size is 0 "
            f"or at least {SMALLEST:.0g}, or truncate or shift the distribution"
        )
    prior, name = ScipyPrior(), str(frozen.dist.name)
    prior._frozen, prior._parameters, prior.support = frozen, {}, (float(low), float(high))
    if type(getattr(stats, name, None)) is type(frozen.dist):
        kwds = {key: float(value) for key, value in sorted(frozen.kwds.items())}
        prior._parameters = {"distribution": name, "args": [*map(float, frozen.args)], "kwds": kwds}
    prior._check_density()
    return prior


def assigned(
    given: PriorOrPriors | None, groups: NDArray[Any] | None, m: int
) -> tuple[tuple[Prior, ...], NDArray[np.intp]]:
    """Return the distinct priors, and the index of the prior of each seller."""
    if isinstance(given, Mapping):
        named, keys = dict(given), [None] * m if groups is None else groups.tolist()
        if unknown := [place for place, name in enumerate(keys) if name not in named]:
            raise SellersError(
                f"groups[{unknown[0]}] is {keys[unknown[0]]!r}, but prior has no such group; give "
                f"each seller one of the groups {', '.join(map(repr, list(named)[:10]))}"
            )
    elif is_iterable(given) and not isinstance(given, str):
        named = dict(enumerate(given))
        keys = list(named)
    else:
        return (as_prior(given, error=SellersError),), np.broadcast_to(np.intp(0), m)
    made = {name: as_prior(each, f"prior[{name!r}]", SellersError) for name, each in named.items()}
    if len(keys) != m:
        raise SellersError(f"{len(keys)} priors for {m} sellers; give one for each seller")
    used = dict.fromkeys(made[key] for key in dict.fromkeys(keys))
    places = {prior: place for place, prior in enumerate(used)}
    number = {name: places.get(prior, 0) for name, prior in made.items()}
    return tuple(places), np.array([number[key] for key in keys], dtype=np.intp)
