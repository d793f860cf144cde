"""From a plan to terms: what a report sells, and what it earns at all dearer reports.

With the price p, the scale s and the largest guarantee e of a plan, a report z sells
``eps(z) = min(s*(p - psi(z))_+, e)``. A's Eq. (8) pays ``c*eps(c)`` and the rent, the integral of
eps from c to the top of the support. It is a closed form where psi is affine, a sum where psi is
a step function, and a quadrature otherwise.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PPoly

from convexmarket.online.atoms import cells_of
from convexmarket.online.plan import Terms
from convexmarket.priors import Prior

__all__ = ["Curve", "curve_of"]

Floats = NDArray[np.float64]

#: Even nodes up to the last sale, and how often cells halve towards it.
_EVEN, _HALVINGS = 1025, 50
_BISECTIONS = 120
#: A cell whose halves differ from it by this share of the largest rent is halved, unless so many
#: are that it must be rounding.
_ACCURACY, _MANY = 1e-15, 5000
#: Places of a Gauss rule on [0, 1], and from values there to coefficients of powers.
_PLACES, _WEIGHTS = 0.5 * (np.array([[1.0], [0.0]]) + np.polynomial.legendre.leggauss(5))
_TO_POWERS = np.linalg.inv(np.vander(_PLACES))


class Curve(Protocol):
    """What reports sell and earn.

    Attributes
    ----------
    error : float
        Estimated error of any rent.
    """

    error: float

    def sell(self, reports: Floats) -> tuple[Floats, Floats]:
        """Return guarantees and rents, both of the shape of the reports."""
        ...


class AffineCurve:
    """Reports of a prior whose virtual cost is affine on the whole support."""

    error = 0.0

    def __init__(self, prior: Prior, terms: Terms) -> None:
        slope = prior.virtual_cost_slope
        assert slope is not None
        low, high = prior.support
        #: eps(z) = min((intercept - rate*z)_+, largest)
        self.intercept = terms.scale * (terms.price + (slope - 1.0) * low)
        self.rate = terms.scale * slope
        self.largest = terms.largest
        #: Where sales end, what is sold there, and where the largest guarantee ends.
        at_top = self.intercept - self.rate * high
        self._end, self._at_end = high, min(max(at_top, 0.0), self.largest)
        if at_top <= 0.0:
            self._end = self.intercept / self.rate if self.rate > 0 else low
        self._flat = low
        if np.isfinite(self.largest) and self.rate > 0:
            flat = (self.intercept - self.largest) / self.rate
            self._flat = min(max(flat, low), self._end)

    def one(self, report: float) -> tuple[float, float]:
        """Return guarantee and rent of a single report, without arrays."""
        if report >= self._end and self._at_end == 0.0:
            return 0.0, 0.0
        wanted = self.intercept - self.rate * report
        sold = max(wanted, 0.0) if wanted < self.largest else self.largest
        flat = self._flat - report if report < self._flat else 0.0
        # The area under a line from the report to the end of sales: no digits are lost in it.
        return sold, flat * sold + 0.5 * (self._end - report - flat) * (sold + self._at_end)

    def sell(self, reports: Floats) -> tuple[Floats, Floats]:
        """See :class:`Curve`."""
        sold = reports * -self.rate
        sold += self.intercept
        np.clip(sold, 0.0, self.largest, out=sold)
        rent = sold + self._at_end
        rent *= 0.5
        if np.isinf(self.largest):
            rent *= np.maximum(self._end - reports, 0.0)
            return sold, rent
        flat = np.maximum(self._flat - reports, 0.0)
        rent *= np.maximum(self._end - reports - flat, 0.0)
        flat *= sold
        rent += flat
        return sold, rent


class StepCurve:
    """Reports of a sample, on a support that may reach beyond it.

    A report below the sample's smallest value counts as that value; above its largest, nothing is
    bought.
    """

    error = 0.0

    def __init__(self, prior: Prior, terms: Terms) -> None:
        low, high = prior.support
        self._tops = np.unique(np.concatenate(([low], prior.breakpoints, [high])))
        self._sold = terms.epsilon(np.asarray(prior.ironed_virtual_cost(self._tops)))
        areas = self._sold[1:] * np.diff(self._tops)
        self._dearer = np.append(np.cumsum(areas[::-1])[::-1], 0.0)

    def sell(self, reports: Floats) -> tuple[Floats, Floats]:
        """See :class:`Curve`."""
        cell = np.searchsorted(self._tops, reports, side="left")
        over = cell == self._tops.size
        cell = np.where(over, 0, cell)
        sold = np.where(over, 0.0, self._sold[cell])
        rent = np.where(over, 0.0, sold * (self._tops[cell] - reports) + self._dearer[cell])
        return sold, rent


class SmoothCurve:
    """Reports of any other prior: rents by a Gauss rule on cells, kept as polynomials."""

    def __init__(self, prior: Prior, terms: Terms) -> None:
        self._prior, self._terms = prior, terms
        self._low, top = prior.support
        if np.isinf(top):
            top = float(prior.quantile(0.5))
            while float(prior.ironed_virtual_cost(top)) < terms.price:  # psi is at least c
                top *= 2.0
        kinks = [terms.price]
        if np.isfinite(terms.largest) and terms.scale > 0:
            kinks.append(terms.price - terms.largest / terms.scale)
        self._end, *flat = _reports_at(prior, np.array(kinks), top)
        self.error, self._rent = 0.0, None
        if not (self._low < self._end and terms.scale > 0):
            return
        near = self._end - (self._end - self._low) * 0.5 ** np.arange(1.0, _HALVINGS)
        even = np.linspace(self._low, self._end, _EVEN)
        nodes = np.concatenate((cells_of(prior).edges, prior.breakpoints, near, even, flat))
        nodes = np.unique(nodes[(nodes >= self._low) & (nodes <= self._end)])
        nodes = nodes[np.append(np.diff(nodes) > 1e-16 * (self._end - self._low), True)]
        nodes[0] = self._low
        self.error, nodes = self._settled(nodes)
        self._rent = self._integral(nodes)

    def _settled(self, nodes: Floats) -> tuple[float, Floats]:
        """Return what is still off in all, and nodes among them where halves agree with wholes."""
        left, right, off = nodes[:-1], nodes[1:], 0.0
        largest = float(self._sold(nodes[:1])[0]) * (self._end - self._low)
        for _ in range(_HALVINGS):
            middle = 0.5 * (left + right)
            whole, lower, upper = (
                (after - before) * (_WEIGHTS @ self._sold(_places(before, after)))
                for before, after in ((left, right), (left, middle), (middle, right))
            )
            apart = np.abs(whole - lower - upper)
            bad = apart > _ACCURACY * largest
            bad &= right - left > 1e-15 * (self._end - self._low)
            off += float(apart[~bad].sum())
            if not 0 < np.count_nonzero(bad) < _MANY:
                break
            nodes = np.union1d(nodes, middle[bad])
            left, right = (
                np.append(left[bad], middle[bad]),
                np.append(middle[bad], right[bad]),
            )
        return off, nodes

    def _sold(self, reports: Floats) -> Floats:
        return self._terms.epsilon(np.asarray(self._prior.ironed_virtual_cost(reports)))

    def _integral(self, nodes: Floats) -> PPoly:
        """Return what is sold, integrated from the bottom on, as a polynomial on each cell."""
        left, width = nodes[:-1], np.diff(nodes)
        series = _TO_POWERS @ self._sold(_places(left, nodes[1:]))
        powers = np.arange(_PLACES.size - 1.0, -1.0, -1.0)[:, None]
        return PPoly(series / width**powers, nodes).antiderivative()

    def sell(self, reports: Floats) -> tuple[Floats, Floats]:
        """See :class:`Curve`."""
        sold = self._sold(reports)
        if self._rent is None:
            return sold, np.zeros_like(sold)
        rent = self._rent(self._end) - self._rent(np.minimum(reports, self._end))
        return sold, np.where(sold > 0, np.maximum(rent, 0.0), 0.0)


def _places(left: Floats, right: Floats) -> Floats:
    """Return the places of the Gauss rule in intervals, one in each row."""
    return np.clip(left + (right - left) * _PLACES[:, None], left, right)


def _reports_at(prior: Prior, prices: Floats, top: float) -> Floats:
    """Return the largest reports whose virtual costs are at most the prices."""
    left, right = np.full(prices.shape, prior.support[0]), np.full(prices.shape, top)
    for _ in range(_BISECTIONS):
        middle = 0.5 * (left + right)
        below = np.asarray(prior.ironed_virtual_cost(middle)) <= prices
        left, right = np.where(below, middle, left), np.where(below, right, middle)
    return np.where(np.asarray(prior.ironed_virtual_cost(top)) <= prices, top, left)


def curve_of(prior: Prior, terms: Terms) -> Curve:
    """Return what reports sell and earn under a prior's virtual costs and a plan's terms."""
    if prior.virtual_cost_slope is not None:
        return AffineCurve(prior, terms)
    return StepCurve(prior, terms) if prior.is_step else SmoothCurve(prior, terms)
