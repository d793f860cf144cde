"""What the buyer expects of a random seller at a price: the margins E[v] and E[v^2].

At the price p of privacy a seller with virtual cost psi leaves the margin ``v = (p - psi)_+``. All
that a plan needs of a prior are, as functions of p, the probability that there is a margin, its
mean and its mean square: in closed form where psi is affine and F a power, as exact sums for a
sample, by quadrature otherwise.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from convexmarket.online.integrals import Antiderivative
from convexmarket.priors import EmpiricalPrior, Power, Prior, Uniform

__all__ = ["AtomMargins", "Margins", "atoms_of", "margins_of", "report_at"]

Floats = NDArray[np.float64]

#: Panels halve in width towards the bottom of the support, this often.
_HALVINGS = 60
_BISECTIONS = 70
#: Virtual costs are tabulated at so many places of each panel; false position does the rest.
_TABLE = 32
_STEPS = 7
#: Panels reach up to the quantile 1 - 2**-(_LAST - 1).
_LAST = 41.0
#: Atoms on each panel that stand for a continuous prior where speed matters more than digits.
_ATOMS = 24


class Margins(Protocol):
    """What the buyer expects of a random seller, at any price.

    Attributes
    ----------
    lowest, highest : float
        The range of virtual costs; ``highest`` may be infinite.
    unit : float
        A typical distance between virtual costs, positive.
    error : float
        Relative error of the quadrature that the moments come from; 0 for closed forms.
    """

    lowest: float
    highest: float
    unit: float
    error: float

    def moments(self, price: Floats) -> tuple[Floats, Floats, Floats]:
        """Return P(psi <= p), E[v] and E[v^2] at prices of any shape."""
        ...


class PowerMargins:
    """Virtual costs ``lowest + width*U**(1/exponent)`` with U uniform on [0, 1]."""

    error = 0.0

    def __init__(self, lowest: float, width: float, exponent: float) -> None:
        self.lowest, self.highest, self.unit = lowest, lowest + width, width
        self._exponent = exponent

    def moments(self, price: Floats) -> tuple[Floats, Floats, Floats]:
        """See :class:`Margins`."""
        a = self._exponent
        above = np.maximum((price - self.lowest) / self.unit, 0.0)
        x = np.minimum(above, 1.0)
        beyond = above - x  # from x = 1 on, everybody leaves a margin that grows like the price
        share = x**a
        first = share * x / (a + 1.0) + beyond
        second = 2.0 * share * x * x / ((a + 1.0) * (a + 2.0))
        second += beyond * (2.0 / (a + 1.0) + beyond)
        return share, self.unit * first, self.unit * self.unit * second


class AtomMargins:
    """Finitely many virtual costs, each with its probability: exact sums.

    Parameters
    ----------
    costs : ndarray, shape (n,)
        Finite, not falling.
    masses : ndarray, shape (n,)
        Positive; their sum may be less than one, the rest never leaving a margin.
    """

    error = 0.0

    def __init__(self, costs: Floats, masses: Floats) -> None:
        self.lowest, self.highest = float(costs[0]), float(costs[-1])
        above = costs - self.lowest
        self.unit = float(above @ masses / masses.sum()) or max(self.lowest, 1.0)
        self._costs = above
        powers = np.stack([np.ones_like(above), above, above * above])
        self._sums = np.concatenate((np.zeros((3, 1)), np.cumsum(masses * powers, axis=1)), axis=1)

    def moments(self, price: Floats) -> tuple[Floats, Floats, Floats]:
        """See :class:`Margins`."""
        x = np.maximum(np.asarray(price) - self.lowest, 0.0)
        share, mean, square = self._sums[:, np.searchsorted(self._costs, x, side="right")]
        first = share * x - mean
        second = (share * x - 2.0 * mean) * x + square
        return share, np.maximum(first, 0.0), np.maximum(second, 0.0)


class QuadratureMargins:
    """The margins of any prior with a density."""

    def __init__(self, prior: Prior) -> None:
        self._prior = prior
        self._cuts = cuts_of(prior)
        self.lowest = float(prior.ironed_virtual_cost(self._cuts[0]))
        self.highest = float(prior.ironed_virtual_cost(self._cuts[-1]))
        self.unit = float(prior.ironed_virtual_cost(prior.quantile(0.5))) - self.lowest
        self.unit = self.unit or max(self.lowest, 1.0)
        self._integrals = Antiderivative(self._weighted, self._cuts)
        self.error = float((self._integrals.error / self._integrals.total).max())
        self._reports = _between(self._cuts, _TABLE)
        costs = np.asarray(prior.ironed_virtual_cost(self._reports))
        self._costs = np.maximum.accumulate(costs)

    def _weighted(self, c: Floats) -> Floats:
        density = np.asarray(self._prior.pdf(c))
        above = np.asarray(self._prior.ironed_virtual_cost(c)) - self.lowest
        # A place may round to an end of the support, where a density may be infinite.
        density = np.where(np.isfinite(density) & np.isfinite(above), density, 0.0)
        above = np.where(density > 0, above, 0.0)
        return np.stack([above * density, above * above * density])

    def _report(self, price: Floats) -> Floats:
        """Return the report with a virtual cost, by a few steps of false position (Illinois).

        Its error enters the moments squared only: a seller at the price has no margin.
        """
        cell = np.clip(np.searchsorted(self._costs, price, side="right"), 1, self._costs.size - 1)
        left, right = self._reports[cell - 1], self._reports[cell]
        below, above = price - self._costs[cell - 1], self._costs[cell] - price
        outside = (below < 0) | (above < 0)
        moved = np.zeros(price.shape)
        for _ in range(_STEPS):
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                share = np.where(np.isfinite(above), below / (below + above), 0.5)
            z = left + np.where(np.isfinite(share), share, 0.5) * (right - left)
            z = np.clip(z, left, right)
            rest = price - np.asarray(self._prior.ironed_virtual_cost(z))
            under = rest >= 0
            left, right = np.where(under, z, left), np.where(under, right, z)
            # An end that stays twice counts half, so that the other end moves too.
            below = np.where(under, rest, np.where(moved < 0, 0.5 * below, below))
            above = np.where(under, np.where(moved > 0, 0.5 * above, above), -rest)
            moved = np.where(under, 1.0, -1.0)
        end = np.where(price < self._costs[0], self._reports[0], self._reports[-1])
        return np.where(outside, end, left)

    def moments(self, price: Floats) -> tuple[Floats, Floats, Floats]:
        """See :class:`Margins`."""
        price = np.asarray(price, dtype=float)
        z = self._report(price.ravel())
        mean, square = self._integrals(z)
        share = np.asarray(self._prior.cdf(z))
        x = np.maximum(price.ravel() - self.lowest, 0.0)
        first = np.maximum(share * x - mean, 0.0)
        second = np.maximum((share * x - 2.0 * mean) * x + square, 0.0)
        shape = price.shape
        return share.reshape(shape), first.reshape(shape), second.reshape(shape)


def margins_of(prior: Prior) -> Margins:
    """Return the margins of a prior, by the most accurate way that it allows."""
    low, high = prior.support
    if isinstance(prior, Uniform):
        return PowerMargins(low, 2.0 * (high - low), 1.0)
    if isinstance(prior, Power):
        exponent = float(prior.to_dict()["exponent"])
        return PowerMargins(0.0, (1.0 + 1.0 / exponent) * high, exponent)
    return atoms_of(prior) if prior.is_step else QuadratureMargins(prior)


def atoms_of(prior: Prior) -> AtomMargins:
    """Return margins as sums: exact for a sample, else about four digits, and much faster."""
    if isinstance(prior, EmpiricalPrior):
        return AtomMargins(np.asarray(prior.ironed_virtual_cost(prior.values)), prior.masses)
    cuts = cuts_of(prior)
    edges = _between(cuts, _ATOMS)
    masses = np.diff(np.asarray(prior.cdf(edges)))
    costs = np.asarray(prior.ironed_virtual_cost(0.5 * (edges[1:] + edges[:-1])))
    some = (masses > 0) & np.isfinite(costs)
    return AtomMargins(np.maximum.accumulate(costs[some]), masses[some])


def _between(cuts: Floats, parts: int) -> Floats:
    """Return the cuts and places that divide each panel between them into equal parts."""
    steps = np.arange((cuts.size - 1) * parts + 1) / parts
    return np.unique(np.interp(steps, np.arange(cuts.size), cuts))


def cuts_of(prior: Prior) -> Floats:
    """Return places that halve the support towards its bottom and hold kinks.

    They end where all but 1e-12 of the sellers are below, who do not matter to an expectation.
    """
    low, _ = prior.support
    middle = float(prior.quantile(0.5))
    down = low + (middle - low) * 0.5 ** np.arange(_HALVINGS, -1, -1.0)
    up = np.asarray(prior.quantile(1.0 - 0.5 ** np.arange(2.0, _LAST)))
    even = np.linspace(low, float(up[2]), 17)
    cuts = np.unique(np.concatenate(([low], down, up, even, prior.breakpoints)))
    return cuts[cuts <= up[-1]]


def report_at(prior: Prior, price: Floats, cuts: Floats) -> Floats:
    """Return the largest report, within the cuts, whose ironed virtual cost is at most the price.

    The bottom of the support where there is none.
    """
    costs = np.maximum.accumulate(np.asarray(prior.ironed_virtual_cost(cuts)))
    cell = np.searchsorted(costs, price, side="right") - 1
    left = cuts[np.clip(cell, 0, cuts.size - 1)]
    right = cuts[np.clip(cell + 1, 0, cuts.size - 1)]
    right = np.where(cell < 0, left, right)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (left + right)
        below = np.asarray(prior.ironed_virtual_cost(middle)) <= price
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    return left
