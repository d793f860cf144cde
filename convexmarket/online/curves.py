"""From a plan to terms: what a report sells, and what it earns at all dearer reports.

With the price p, the scale s and the largest guarantee e of a plan, a report z sells
``eps(z) = min(s*(p - psi(z))_+, e)``. A's Eq. (8) pays ``c*eps(c)`` and the rent, the integral of
eps from c to the top of the support. It is a closed form where psi is affine, a sum where psi is
a step function, and a quadrature otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from convexmarket.online.integrals import Antiderivative
from convexmarket.online.margins import cuts_of, report_at
from convexmarket.priors import Prior

__all__ = ["Curve", "Terms", "curve_of"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Terms:
    """What a plan fixes.

    Attributes
    ----------
    price : float
        Virtual cost from which on nothing is bought.
    scale : float
        Guarantee per unit of margin.
    largest : float
        Largest guarantee; infinite where there is no cap.
    """

    price: float
    scale: float
    largest: float = np.inf

    def epsilon(self, costs: Floats) -> Floats:
        """Return what is bought at virtual costs, +inf among them."""
        return np.minimum(self.scale * np.maximum(self.price - costs, 0.0), self.largest)


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
    """Reports of any other prior: rents by quadrature."""

    def __init__(self, prior: Prior, terms: Terms) -> None:
        self._prior, self._terms = prior, terms
        cuts = _cuts_beyond(prior, terms.price)
        kinks = [terms.price]
        if np.isfinite(terms.largest) and terms.scale > 0:
            kinks.append(terms.price - terms.largest / terms.scale)
        end, *saturated = report_at(prior, np.array(kinks), cuts)
        cuts = np.unique(np.concatenate((cuts, saturated, [end])))
        cuts = cuts[cuts <= end]
        self.error = 0.0
        self._integral = None
        if cuts.size > 1 and terms.scale > 0:
            self._integral = Antiderivative(self._sold, cuts)
            self.error = float(self._integral.error[0])

    def _sold(self, reports: Floats) -> Floats:
        return self._terms.epsilon(np.asarray(self._prior.ironed_virtual_cost(reports)))[None]

    def sell(self, reports: Floats) -> tuple[Floats, Floats]:
        """See :class:`Curve`."""
        sold = self._sold(reports)[0]
        if self._integral is None:
            return sold, np.zeros_like(sold)
        rent = self._integral.total[0] - self._integral(reports.ravel())[0].reshape(sold.shape)
        return sold, np.where(sold > 0, np.maximum(rent, 0.0), 0.0)


def _cuts_beyond(prior: Prior, price: float) -> Floats:
    """Return cuts up to a report from which on nothing is sold, or to the top of the support."""
    cuts, top = cuts_of(prior), prior.support[1]
    if np.isfinite(top):
        return np.union1d(cuts, [top])
    while float(prior.ironed_virtual_cost(cuts[-1])) < price:  # psi is at least the report
        cuts = np.append(cuts, 2.0 * cuts[-1])
    return cuts


def curve_of(prior: Prior, terms: Terms) -> Curve:
    """Return what reports sell and earn under a prior's virtual costs and a plan's terms."""
    if prior.virtual_cost_slope is not None:
        return AffineCurve(prior, terms)
    return StepCurve(prior, terms) if prior.is_step else SmoothCurve(prior, terms)
