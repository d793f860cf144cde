"""Compute the guarantees and payments for reports under a plan.

With the price p, the scale s and the largest guarantee e of a plan, a seller who reports z sells
``eps(z) = min(s*(p - psi(z))_+, e)``. The payment for a report c (A, Eq. 8) is ``c*eps(c)`` plus
the rent, the integral of eps from c to the upper end of the support. On each cell, the rent is
represented by a polynomial. The polynomial is exact if psi is affine or a step function. Otherwise,
its error is the error of a Gauss rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PPoly

from convexmarket.online.atoms import cells_of
from convexmarket.online.plan import Terms
from convexmarket.priors import Prior

Floats = NDArray[np.float64]

#: Number of evenly spaced nodes, and number of times that cells are halved towards the last sale.
_EVEN, _HALVINGS = 1025, 50
_SECTIONS, _SIXTEENTHS = 30, np.arange(1.0, 16.0)[:, None] / 16.0
#: A cell is halved if halving changes its integral by more than this fraction of the largest rent.
#: More than ``_MANY`` such cells are attributed to rounding errors.
_ACCURACY, _MANY = 1e-15, 5000
#: Nodes and weights of a Gauss rule on [0, 1], and matrix from values to polynomial coefficients.
_PLACES, _WEIGHTS = 0.5 * (np.array([[1.0], [0.0]]) + np.polynomial.legendre.leggauss(5))
_TO_POWERS = np.linalg.inv(np.vander(_PLACES))


class Curve:
    """Guarantees and rents as functions of the report, for reports of at least ``low``.

    A report below the support gets the guarantee of the lower end. Nothing is bought at a report
    above ``last``. ``error`` is an estimate of the largest error of a rent.
    """

    def __init__(self, prior: Prior, terms: Terms, low: float) -> None:
        self._prior, self._terms = prior, terms
        bottom, top = prior.support
        if np.isinf(top):
            top = float(prior.quantile(0.5))
            while float(prior.ironed_virtual_cost(top)) < terms.price:  # ends, because psi(c) >= c
                top *= 2.0
        kinks = [terms.price]
        if np.isfinite(terms.largest) and terms.scale > 0:
            kinks.append(terms.price - terms.largest / terms.scale)
        self._end, *flat = _reports_at(prior, np.array(kinks), top)
        self.error, self._rent = 0.0, None
        ends = self._end * (1.0 - np.array([0.0, 1e-15, 1e-14, 1e-13]))
        sells = ends[self._sold(ends) > 0]
        self.last = float(sells[0]) if sells.size else np.nan
        low = min(low, bottom)
        if not (low < self._end and terms.scale > 0):
            return
        near = self._end - (self._end - bottom) * 0.5 ** np.arange(1.0, _HALVINGS)
        exact = prior.is_step or prior.virtual_cost_slope is not None
        nodes: list[Any] = [[low, bottom, self._end], prior.breakpoints, flat]
        nodes += [] if prior.is_step else [near]
        nodes += [] if exact else [cells_of(prior).edges, np.linspace(bottom, self._end, _EVEN)]
        places = np.unique(np.concatenate(nodes))
        places = places[(places >= low) & (places <= self._end)]
        places = places[np.append(np.diff(places) > 1e-16 * (self._end - low), True)]
        places[0] = low
        if not exact:
            self.error, places = self._settled(places)
        self._rent = self._integral(places)

    def _settled(self, nodes: Floats) -> tuple[float, Floats]:
        """Halve cells until the rent converges; return the estimated error and all nodes."""
        left, right, off = nodes[:-1], nodes[1:], 0.0
        span = self._end - nodes[0]
        largest = float(self._sold(nodes[:1])[0]) * span
        for _ in range(_HALVINGS):
            middle = 0.5 * (left + right)
            whole, lower, upper = (
                (after - before) * (_WEIGHTS @ self._sold(_places(before, after)))
                for before, after in ((left, right), (left, middle), (middle, right))
            )
            apart = np.abs(whole - lower - upper)
            bad = (apart > _ACCURACY * largest) & (right - left > 1e-15 * span)
            off += float(apart[~bad].sum())
            if not 0 < np.count_nonzero(bad) < _MANY:
                break
            nodes = np.union1d(nodes, middle[bad])
            left, right = np.append(left[bad], middle[bad]), np.append(middle[bad], right[bad])
        return off, nodes

    def _sold(self, reports: Floats) -> Floats:
        counted = np.maximum(reports, self._prior.support[0])
        return self._terms.epsilon(np.asarray(self._prior.ironed_virtual_cost(counted)))

    def _integral(self, nodes: Floats) -> PPoly:
        """Return the rent as a piecewise polynomial in the distance of the report from ``_end``."""
        away = (self._end - nodes)[::-1]
        width = np.diff(away)
        series = _TO_POWERS @ self._sold(_places(nodes[:-1], nodes[1:])[::-1, ::-1])
        powers = np.arange(_PLACES.size - 1.0, -1.0, -1.0)[:, None]
        return PPoly(series / width**powers, away).antiderivative()

    def sell(self, reports: Floats) -> tuple[Floats, Floats]:
        """Compute the guarantees and rents as arrays with the shape of ``reports``."""
        sold = self._sold(reports)
        if self._rent is None:
            return sold, np.zeros_like(sold)
        rent = self._rent(np.maximum(self._end - reports, 0.0))
        return sold, np.where(sold > 0, np.maximum(rent, 0.0), 0.0)


def _places(left: Floats, right: Floats) -> Floats:
    """Return the nodes of the Gauss rule in each interval, with one column per interval."""
    return np.clip(left + (right - left) * _PLACES[:, None], left, right)


def _reports_at(prior: Prior, prices: Floats, top: float) -> Floats:
    """Compute, for each price, the largest report whose virtual cost is at most the price."""
    left, right = np.full(prices.shape, prior.support[0]), np.full(prices.shape, top)
    for _ in range(_SECTIONS):  # divide the intervals into sixteenths
        middle = left + (right - left) * _SIXTEENTHS
        below = np.asarray(prior.ironed_virtual_cost(middle)) <= prices
        left, right = np.where(below, middle, left).max(0), np.where(below, right, middle).min(0)
    return np.where(np.asarray(prior.ironed_virtual_cost(top)) <= prices, top, left)
