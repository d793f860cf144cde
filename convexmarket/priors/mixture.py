"""Several populations of sellers as one prior: the mixture of their densities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from convexmarket.checks import checked_numbers
from convexmarket.errors import PriorError
from convexmarket.priors.prior import FloatArray, Prior, PriorLike, as_prior

__all__ = ["Mixture"]


class Mixture(Prior):
    """The prior of sellers from several populations, whose population is not observed.

    If it is observed, give each group a prior instead. Between two modes psi falls and is ironed.

    Parameters
    ----------
    weights : array_like, shape (k,)
        Share of each population, positive; divided by their sum.
    components : sequence of k priors or frozen scipy.stats distributions
        Continuous ones, whose supports together form one interval.

    Raises
    ------
    PriorError
        If the lengths differ, a weight is not a finite positive number, or a component is not a
        continuous prior.

    Examples
    --------
    >>> import convexmarket as cm
    >>> prior = cm.priors.Mixture([1, 3], [cm.Uniform(0, 1), cm.Uniform(0.5, 2)])
    >>> prior.support, prior.mean, prior.is_regular
    ((0.0, 2.0), 1.0625, False)
    """

    family = "mixture"
    example = "mixture:0.5*uniform:0,1;0.5*beta:2,5,0,2"

    def __init__(self, weights: ArrayLike, components: Sequence[PriorLike]) -> None:
        shares = checked_numbers("weights", weights)
        given = components if isinstance(components, Sequence) else (components,)
        parts = [as_prior(part, f"components[{place}]") for place, part in enumerate(given)]
        for place, part in enumerate(parts):
            if part.is_step:
                raise PriorError(
                    f"components[{place}] is {part!r}, which has no density; give priors such as "
                    "Uniform(0, 1)"
                )
        if shares.shape != (len(parts),) or not parts:
            raise PriorError(
                f"Mixture: {len(parts)} components and weights of shape {shares.shape}; give one "
                "weight for each of at least one component"
            )
        bad = ~((shares > 0) & (shares < np.inf))
        if bad.any():
            raise PriorError(
                f"Mixture: weights[{np.argmax(bad)}] = {shares[bad][0]}; give finite numbers > 0"
            )
        # Shares that sum to one are not divided: to_dict then describes the same prior.
        self._weights = shares if abs(shares.sum() - 1.0) < 1e-12 else shares / shares.sum()
        self._components = tuple(parts)
        ordered = sorted(part.support for part in parts)
        low, high = ordered[0]
        for bottom, top in ordered[1:]:
            if bottom > high:
                raise PriorError(
                    f"Mixture: nothing lies between {high:g} and {bottom:g}, so psi = c + F/f is "
                    "undefined there; give components whose supports overlap, or EmpiricalPrior"
                )
            high = max(high, top)
        self.support = low, high
        self.mean = float(self._average([part.mean for part in parts]))
        self._check_density()

    def _average(self, values: list[Any]) -> FloatArray:
        return np.tensordot(self._weights, np.array(values), 1)[()]

    def cdf(self, c: ArrayLike) -> FloatArray:
        """Compute F(c), the average over the components; same shape as ``c``."""
        return np.minimum(self._average([part.cdf(c) for part in self._components]), 1.0)

    def pdf(self, c: ArrayLike) -> FloatArray:
        """Compute the density f(c), the average over the components."""
        return self._average([part.pdf(c) for part in self._components])

    def _logs(self, c: FloatArray) -> tuple[FloatArray, FloatArray]:
        logs = np.stack([np.array(part._logs(c)) for part in self._components], axis=-1)
        log_cdf, log_pdf = logsumexp(logs, axis=-1, b=self._weights)
        return log_cdf, log_pdf

    def _quantile(self, u: FloatArray) -> FloatArray:
        ends = np.array([part.quantile(u) for part in self._components])
        return self._bisect(u, ends.min(axis=0), ends.max(axis=0))

    def _draw(self, size: int, rng: np.random.Generator) -> FloatArray:
        source = rng.choice(self._weights.size, size=size, p=self._weights)
        drawn = np.empty(size)
        for number, part in enumerate(self._components):
            drawn[source == number] = part.sample(int(np.count_nonzero(source == number)), rng)
        return drawn

    @property
    def breakpoints(self) -> FloatArray:
        """Ends of ironed intervals, and of the components' supports, where the density may jump."""
        return np.union1d(super().breakpoints, self._inner_ends)

    @property
    def _inner_ends(self) -> FloatArray:
        return self._inside(np.array([part.support for part in self._components]))

    @cached_property
    def _nodes(self) -> FloatArray:
        return np.union1d(super()._nodes, self._inner_ends)

    def to_dict(self) -> dict[str, Any]:
        """Return the weights and the components, ready for JSON."""
        return {
            "family": self.family,
            "weights": self._weights.tolist(),
            "components": [part.to_dict() for part in self._components],
        }

    def _key(self) -> Any:
        return *self._weights.tolist(), *self._components

    def __repr__(self) -> str:
        return f"Mixture({self._weights.tolist()}, [{', '.join(map(repr, self._components))}])"
