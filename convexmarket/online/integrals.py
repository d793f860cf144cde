"""The integral of a function from the left end of an interval to anywhere in it.

Needed at many places at once and to nearly all digits: expectations of a price's margins, and what
sellers earn at dearer reports. Panels are halved until a Gauss rule agrees with its halves; on
each the integrand is kept as a Legendre series, whose integral is one too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import NDArray

from convexmarket.errors import SolverError

__all__ = ["Antiderivative"]

Floats = NDArray[np.float64]

_DEGREE = 11
_NODES, _WEIGHTS = legendre.leggauss(_DEGREE + 1)
#: From values at the nodes to coefficients of the Legendre series that they determine.
_TO_SERIES = (legendre.legvander(_NODES, _DEGREE) * _WEIGHTS[:, None]).T * (
    np.arange(_DEGREE + 1)[:, None] + 0.5
)
_ACCURACY = 1e-11
#: Relative to the whole, an error that no panel is halved for.
_ROUNDING = 1e-15
_MAX_DEPTH = 48
#: Panels at a time beyond which the integrand is taken to be noisy, not rough.
_MAX_PANELS = 2000


class Antiderivative:
    """Integrals of several functions at once, from the first of the cuts to any place.

    Parameters
    ----------
    functions : callable
        From places, shape (n,), to values, shape (k, n); finite inside the panels.
    cuts : ndarray, shape (p,)
        Increasing; the first and the last are the ends, and a kink or jump anywhere else costs
        time where it is not one of them.

    Attributes
    ----------
    total : ndarray, shape (k,)
        The integrals over everything.
    error : ndarray, shape (k,)
        Sum over the panels of the difference between one rule and two on its halves: an estimate
        of how far any integral may be off, usually far too large.
    """

    def __init__(self, functions: Callable[[Floats], Floats], cuts: Floats) -> None:
        left, right = cuts[:-1], cuts[1:]
        if not np.any(left < right):
            raise SolverError(
                f"the interval from {cuts[0]:g} to {cuts[-1]:g} has no number inside it; use a "
                "prior with more spread"
            )
        series = self._series(functions, left, right)
        whole = np.abs(2.0 * series[:, 0]).sum(axis=1)
        kept: list[tuple[Floats, Floats, Floats]] = []
        error = np.zeros(series.shape[0])
        for depth in range(_MAX_DEPTH + 1):
            middle = 0.5 * (left + right)
            halves = [
                self._series(functions, left, middle),
                self._series(functions, middle, right),
            ]
            sums = 2.0 * (halves[0][:, 0] + halves[1][:, 0])
            off = np.abs(sums - 2.0 * series[:, 0])
            good = (off <= _ACCURACY * np.abs(sums)) | (off <= _ROUNDING * whole[:, None])
            done = good.all(axis=0) | (middle <= left) | (middle >= right)
            if depth == _MAX_DEPTH or np.count_nonzero(~done) > _MAX_PANELS:
                done[:] = True
            error += off[:, done].sum(axis=1)
            kept.append((left[done], middle[done], halves[0][:, :, done]))
            kept.append((middle[done], right[done], halves[1][:, :, done]))
            if done.all():
                break
            more = ~done
            left, right = (
                np.concatenate((left[more], middle[more])),
                np.concatenate((middle[more], right[more])),
            )
            series = np.concatenate((halves[0][:, :, more], halves[1][:, :, more]), axis=2)
        left = np.concatenate([part[0] for part in kept])
        right = np.concatenate([part[1] for part in kept])
        order = np.argsort(left, kind="stable")
        order = order[left[order] < right[order]]
        self._left, self._right = left[order], right[order]
        series = np.concatenate([part[2] for part in kept], axis=2)[:, :, order]
        self._integrals = legendre.legint(series, lbnd=-1, axis=1)
        steps = np.cumsum(2.0 * series[:, 0], axis=1)
        self._before = np.concatenate((np.zeros((series.shape[0], 1)), steps[:, :-1]), axis=1)
        self.total = steps[:, -1]
        self.error = error

    @staticmethod
    def _series(functions: Callable[[Floats], Floats], left: Floats, right: Floats) -> Floats:
        """Return coefficients, shape (k, degree + 1, p), times half the width of the panel."""
        half = 0.5 * (right - left)
        places = (0.5 * (left + right))[None, :] + half[None, :] * _NODES[:, None]
        places = np.clip(places, left, right)  # rounding may carry a place beyond its panel
        values = functions(places.ravel())
        if not np.isfinite(values).all():
            raise SolverError(
                "quadrature met a value that is not finite; use a prior whose density and virtual "
                "cost are finite inside its support"
            )
        values = values.reshape(values.shape[0], _NODES.size, left.size)
        return np.einsum("dn,knp->kdp", _TO_SERIES, values) * half

    def __call__(self, places: Floats) -> Floats:
        """Return the integrals up to each place, shape (k, n); beyond the ends, those up to them.

        Parameters
        ----------
        places : ndarray, shape (n,)
        """
        inside = np.clip(places, self._left[0], self._right[-1])
        panel = np.clip(np.searchsorted(self._left, inside, side="right") - 1, 0, None)
        left, right = self._left[panel], self._right[panel]
        own = np.clip((2.0 * inside - left - right) / (right - left), -1.0, 1.0)
        part = legendre.legval(own, np.moveaxis(self._integrals[:, :, panel], 1, 0), tensor=False)
        return self._before[:, panel] + part
