"""Payments of sellers in partitions: each part pays its own, from what all of them share."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.parted import PartedAllocation
from convexmarket.incentives.rules import information_rents

__all__ = ["part_payments"]


def part_payments(allocation: PartedAllocation, sensitivities: ArrayLike) -> NDArray[np.float64]:
    """Return the payments under A's Eq. (8) of some sellers of a market, by their reports.

    Parameters
    ----------
    allocation : PartedAllocation
        Of the whole market.
    sensitivities : array_like, shape (n,)
        Reports of any of its sellers, a partition of them for example.

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    NotSupportedError
        If the cap leaves no seller out.
    """
    reports = np.asarray(sensitivities, dtype=float)
    curve = allocation.curve(reports)
    bought = np.flatnonzero(curve.truth > 0)
    paid = np.zeros(reports.size)
    rents = information_rents(curve, allocation.prior, bought, reports[bought])
    paid[bought] = reports[bought] * curve.truth[bought] + rents
    return paid
