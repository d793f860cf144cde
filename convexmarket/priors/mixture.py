"""Several populations of sellers as one prior: the mixture of their densities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from convexmarket.errors import PriorError
from convexmarket.priors.arguments import FloatArray, floats
from convexmarket.priors.base import ContinuousPrior
from convexmarket.priors.ironing import dense_nodes

__all__ = ["Mixture"]

#: Halvings of an interval until nothing is left of it in floating point.
_HALVINGS = 80


class _Blend:
    """What a frozen scipy distribution can do, for a weighted sum of them."""

    def __init__(self, weights: FloatArray, parts: Sequence[ContinuousPrior]) -> None:
        self._weights = weights
        self._parts = parts

    def _average(self, values: list[Any]) -> FloatArray:
        return np.tensordot(self._weights, np.array(values), 1)[()]

    def _log_average(self, logarithms: list[Any]) -> FloatArray:
        weights = self._weights.reshape(-1, *[1] * np.ndim(logarithms[0]))
        return logsumexp(logarithms, axis=0, b=weights)

    def mean(self) -> float:
        return float(self._average([part.mean for part in self._parts]))

    def median(self) -> float:
        return float(self.ppf(0.5))

    def cdf(self, c: ArrayLike) -> FloatArray:
        return np.minimum(self._average([part.cdf(c) for part in self._parts]), 1.0)

    def pdf(self, c: ArrayLike) -> FloatArray:
        return self._average([part.pdf(c) for part in self._parts])

    def logcdf(self, c: ArrayLike) -> FloatArray:
        return self._log_average([part._frozen.logcdf(c) for part in self._parts])

    def logpdf(self, c: ArrayLike) -> FloatArray:
        return self._log_average([part._frozen.logpdf(c) for part in self._parts])

    def ppf(self, u: ArrayLike) -> FloatArray:
        levels = np.asarray(u, dtype=float)
        ends = np.array([part.quantile(levels) for part in self._parts])
        low, high = ends.min(axis=0), ends.max(axis=0)
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            enough = self.cdf(middle) >= levels
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def rvs(self, size: int, random_state: np.random.Generator) -> FloatArray:
        source = random_state.choice(self._weights.size, size=size, p=self._weights)
        drawn = np.empty(size)
        for number, part in enumerate(self._parts):
            own = source == number
            drawn[own] = part.sample(int(np.count_nonzero(own)), random_state)
        return drawn


class Mixture(ContinuousPrior):
    """Sellers from several populations, who cannot be told apart.

    Where they can (a group that everybody sees), give each group its own prior instead. With two
    humps psi falls between them and is ironed.

    Parameters
    ----------
    weights : array_like, shape (k,)
        Share of each population, positive; divided by their sum.
    components : sequence of k Priors
        Continuous ones, whose supports together form one interval.

    Raises
    ------
    PriorError
        If the lengths differ, a weight is not a finite positive number, a component is not a
        continuous prior, or the density is zero or not finite somewhere inside the support.

    Examples
    --------
    >>> import convexmarket as cm
    >>> prior = cm.priors.Mixture([1, 3], [cm.Uniform(0, 1), cm.Uniform(0.5, 2)])
    >>> prior.support, prior.mean, prior.is_regular
    ((0.0, 2.0), 1.0625, False)
    """

    family = "mixture"
    example = "mixture:0.5*uniform:0,1;0.5*beta:2,5,0,2"

    def __init__(self, weights: ArrayLike, components: Sequence[ContinuousPrior]) -> None:
        shares = floats("weights", weights)
        parts = _continuous(components)
        if shares.shape != (len(parts),) or not parts:
            raise PriorError(
                f"Mixture: {len(parts)} components and weights of shape {shares.shape}; give one "
                "weight for each of at least one component"
            )
        good = (shares > 0) & (shares < np.inf)
        if not good.all():
            first = int(np.argmin(good))
            raise PriorError(
                f"Mixture: weights[{first}] = {shares[first]}; give finite numbers > 0"
            )
        whole = shares.sum()
        # Shares that sum to one stay as they are, so that what to_dict says gives the same prior.
        self._weights = shares if abs(whole - 1.0) < 1e-12 else shares / whole
        self._components = parts
        self._support = _union([part.support for part in parts])
        self._frozen = _Blend(self._weights, parts)
        self._check_density()
        super().__init__(self._frozen, self._support)

    @property
    def breakpoints(self) -> FloatArray:
        """Ends of ironed intervals, and of the components' supports, where the density may jump."""
        return np.union1d(super().breakpoints, self._inner_ends)

    @property
    def _inner_ends(self) -> FloatArray:
        ends = np.unique([part.support for part in self._components])
        return ends[(ends > self._support[0]) & (ends < self._support[1])]

    @cached_property
    def _nodes(self) -> FloatArray:
        return np.union1d(dense_nodes(self._quantile, self._support), self._inner_ends)

    def to_dict(self) -> dict[str, Any]:
        """Return the weights and the components, ready for JSON."""
        return {
            "family": self.family,
            "weights": self._weights.tolist(),
            "components": [part.to_dict() for part in self._components],
        }

    def _key(self) -> tuple[Any, ...]:
        return *self._weights.tolist(), *self._components

    def __repr__(self) -> str:
        return f"Mixture({self._weights.tolist()}, [{', '.join(map(repr, self._components))}])"


def _continuous(components: Sequence[ContinuousPrior]) -> tuple[ContinuousPrior, ...]:
    """Return the components, checked to be priors that have a density."""
    parts = tuple(components) if isinstance(components, Sequence) else (components,)
    for number, part in enumerate(parts):
        if not isinstance(part, ContinuousPrior):
            raise PriorError(
                f"Mixture: components[{number}] is {part!r}, which is not a prior with a density; "
                "give priors such as Uniform(0, 1)"
            )
    return parts


def _union(supports: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the interval that supports make up together, or say where they leave a gap."""
    ordered = sorted(supports)
    low, reach = ordered[0]
    for bottom, top in ordered[1:]:
        if bottom > reach:
            raise PriorError(
                f"Mixture: nothing lies between {reach:g} and {bottom:g}, so psi = c + F/f is "
                "undefined there; give components whose supports overlap, or EmpiricalPrior"
            )
        reach = max(reach, top)
    return low, reach
