r"""Approximate a prior by finitely many virtual costs that bound the optimal loss.

Let R(q) = q*F^-1(q). The mean virtual cost on a cell of sensitivities is the increment of R divided
by the mass of the cell. The first set of atoms consists of these means. The second set consists of
the virtual costs at the ends of the cells, with the mass of each cell divided so that its mean is
preserved. A policy for the first set defines a feasible policy for the prior that is constant on
each cell. Any policy for the prior corresponds to a policy for the second set with the same loss.
The optimal losses for the two sets therefore bound the optimal loss for the prior. Their difference
is of second order in the width of the cells.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from convexmarket.priors import EmpiricalPrior, Prior

Floats = NDArray[np.float64]

#: Number of times that cells are halved towards each end of the support.
#: ``_EVEN`` edges are evenly spaced, and each initial cell has ``_PARTS`` parts.
_HALVINGS, _EVEN, _PARTS = 40, 129, 4
#: Relative and absolute probability below which a cell is merged with the next cell.
_APART, _ROUNDING = 1e-9, 1e-15


class Shape(NamedTuple):
    """Moments of ``s = min(v, w)``: E[s], E[s^2], E[psi*s], E[(v-w)_+], P(0<v<w), E[v; v<w]."""

    first: Floats
    second: Floats
    cost: Floats
    beyond: Floats
    share: Floats
    margin: Floats


class Atoms:
    """Nondecreasing virtual costs and their probabilities, whose sum can be less than one.

    ``above`` contains the costs minus ``lowest``, and ``unit`` is a typical value of ``above``.
    """

    def __init__(self, costs: Floats, masses: Floats) -> None:
        self.lowest, self.masses = float(costs[0]), masses
        self.above = costs - self.lowest
        self.unit = float(self.above @ masses / masses.sum()) or max(self.lowest, 1.0)
        terms = masses * np.stack([np.ones_like(costs), self.above, self.above * self.above])
        sums, lost = self._sums = np.zeros((2, 3, costs.size + 1))  # sums and their rounding errors
        np.cumsum(terms, axis=1, out=sums[:, 1:])
        added = np.diff(sums)
        np.cumsum(sums[:, :-1] - (sums[:, 1:] - added) + (terms - added), axis=1, out=lost[:, 1:])

    def shape(self, price: Floats, width: Floats) -> Shape:
        """Compute the moments for ``v = (p - psi)_+`` at prices p relative to ``lowest``."""
        lower = self._sums.take(self.above.searchsorted(price - width, "right"), 2)
        upper = self._sums.take(self.above.searchsorted(price, "right"), 2)
        (full, below, _), (share, mean, square) = lower[0], (upper - lower).sum(0)
        width = np.where(full > 0, width, 0.0)
        margin = np.maximum(price * share - mean, 0.0)
        first = width * full + margin
        second = width * width * full + ((share * price - 2.0 * mean) * price + square)
        cost = self.lowest * first + width * below + (price * mean - square)
        beyond = np.maximum((price - width) * full - below, 0.0)
        return Shape(first, np.maximum(second, first * first), cost, beyond, share, margin)


class Cells:
    """Partition of the support of a continuous prior into cells."""

    def __init__(self, prior: Prior, edges: Floats) -> None:
        levels = np.asarray(prior.cdf(edges))
        least = _APART * levels[1:] * (1.0 - levels[:-1]) + _ROUNDING
        apart = np.append(True, np.diff(levels) > least)
        self.prior, self.edges, levels = prior, edges[apart], levels[apart]
        masses = np.diff(levels)
        raw = self.edges[1:] + np.diff(self.edges) * levels[:-1] / masses
        self._masses, self._means = masses, isotonic_regression(raw, weights=masses).x
        costs = np.asarray(prior.virtual_cost(self.edges))
        least, most = np.append(costs[0], self._means), np.append(self._means, np.inf)
        self._costs = np.clip(costs, least, most)
        low, high = self._costs[:-1], self._costs[1:]
        with np.errstate(invalid="ignore", divide="ignore"):
            up = np.where((low < high) & (high < np.inf), (self._means - low) / (high - low), 0.0)
            # Increase of the variance of the costs if the mass of each cell is moved to its ends.
            self._spread = np.fmax(up * (high - self._means) * (high - low) * masses, 0.0)
        self._at_ends = np.append(masses * (1.0 - up), 0.0) + np.append(0.0, masses * up)
        self._at_ends[-1] += max(0.0, 1.0 - levels[-1])

    @cached_property
    def inner(self) -> Atoms:
        """Atoms at the means of cells. Their optimal loss is at least the prior's."""
        return Atoms(self._means, self._masses)

    @cached_property
    def outer(self) -> Atoms:
        """Atoms at the ends of cells. Their optimal loss is at most the prior's."""
        some = (self._at_ends > 0) & np.isfinite(self._costs)
        return Atoms(self._costs[some], self._at_ends[some])

    def refined(self, size: int, low: float, high: float) -> Cells:
        """Add about ``size`` cells where the virtual costs in [``low``, ``high``] vary most."""
        touched = (self._costs[1:] > low) & (self._costs[:-1] < high)
        need = np.where(touched, np.cbrt(self._spread), 0.0)
        parts = 1 + np.ceil(size * need / max(float(need.sum()), 1e-300))
        return Cells(self.prior, _divided(self.edges, parts.astype(int)))


def _divided(edges: Floats, parts: NDArray[np.int_] | int) -> Floats:
    """Divide each cell into the given number of equal parts, and return all edges."""
    number = np.broadcast_to(parts, edges.size - 1)
    left = np.repeat(edges[:-1], number)
    step = np.repeat(np.diff(edges) / number, number)
    place = np.arange(left.size) - np.repeat(np.cumsum(number) - number, number)
    return np.unique(np.append(left + place * step, edges[-1]))


@lru_cache(maxsize=16)
def cells_of(prior: Prior) -> Cells:
    """Create cells of a prior that are narrowest near the lowest sensitivities."""
    low, high = prior.support
    halves = 0.5 ** np.arange(1.0, _HALVINGS)
    middle = float(prior.quantile(0.5))
    levels = np.concatenate((halves, 1.0 - halves))
    top = min(high, float(prior.quantile(1.0 - halves[-1])))
    edges = [
        low + (middle - low) * halves,
        np.asarray(prior.quantile(levels)),
        np.linspace(low, top, _EVEN),
        prior.breakpoints,
        np.array([high] if np.isfinite(high) else []),
    ]
    return Cells(prior, _divided(np.unique(np.concatenate(edges)), _PARTS))


def atoms_of(prior: EmpiricalPrior) -> Atoms:
    """Create atoms from the virtual costs of an empirical prior and their probabilities."""
    costs, place = np.unique(prior.ironed_virtual_cost(prior.values), return_inverse=True)
    return Atoms(costs, np.bincount(place, prior.masses).astype(float))
