"""Payments of sellers in partitions: each part pays its own, from what all of them share."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.parted import PartedAllocation
from convexmarket.errors import AllocationError
from convexmarket.incentives.exact_rents import information_rents
from convexmarket.sellers import PartedSellers

__all__ = ["part_payments", "parted_payments"]


def parted_payments(sellers: PartedSellers, allocation: Any) -> Any:
    """Return the payments under A's Eq. (8), a Dask Series in the sellers' partitions.

    Raises
    ------
    AllocationError
        If the allocation is not of these sellers.
    NotSupportedError
        If the cap leaves no seller out.
    """
    if not (isinstance(allocation, PartedAllocation) and allocation.is_of(sellers)):
        raise AllocationError(
            "the allocation is not of this market's sellers; give what allocate(market) returned"
        )
    allocation.curve(np.empty(0))  # refuses before anything is computed
    return sellers.each_row(partial(part_payments, allocation), "payment")


def part_payments(
    allocation: PartedAllocation, reports: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the payments of some sellers of a market, by their reports."""
    curve = allocation.curve(reports)
    bought = np.flatnonzero(curve.truth > 0)
    paid = np.zeros(reports.size)
    rents = information_rents(curve, allocation.prior, bought, reports[bought])
    paid[bought] = reports[bought] * curve.truth[bought] + rents
    return paid
