"""Payments under which a truthful report is each seller's best reply (A, Eq. 8).

The payment for a report c is ``c*u(eps(c)) + integral of u(eps(z)) dz from c to c_hi``. The first
term is the seller's cost, and the second term is the rent (:mod:`convexmarket.incentives.rents`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.allocation_result import Allocation
from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.checks import check_instance, check_share
from convexmarket.errors import AllocationError, NotSupportedError, ParameterError, SellersError
from convexmarket.incentives.rents import Curve, ExactCurve, SolvedCurve
from convexmarket.market import Incentives, Market

__all__ = ["PaymentEstimate", "curve_of", "estimate_payments", "part_payments", "payments"]
__all__ += ["reports_of"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: If no curve is exact: target and largest relative error of payments, and gap of allocations.
ACCURACY, _LARGEST_ERROR, _SMALLEST_GAP = 1e-4, 1e-2, 1e-9


@dataclass(frozen=True, eq=False)
class PaymentEstimate:
    """Payments with bounds on their errors.

    Attributes
    ----------
    amounts, errors : ndarray, shape (n,)
        Payments, and bounds on their errors for given guarantees, in the currency of the reports.
    sellers : ndarray of int, shape (n,)
        Positions of the paid sellers.
    method : str
        "exact" (the papers' problem), "constant" (purchases do not depend on reports), "envelope"
        (differences of optimal objectives) or "quadrature" (of u(eps)).
    incentives : Incentives
        Whether a truthful report is the best reply of each seller under these payments.
    n_solves : int
        Number of markets solved.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> estimate = cm.incentives.estimate_payments(market, cm.allocate(market))
    >>> estimate.amounts.round(2), bool(estimate.errors.max() < 1e-9)
    (array([0.34, 0.2 , 0.  ]), True)
    """

    amounts: Floats
    errors: Floats
    sellers: Ints
    method: str
    incentives: Incentives
    n_solves: int = 0

    def __post_init__(self) -> None:
        if not np.all(np.isfinite(self.amounts)):
            raise AllocationError("payments overflow on the support; use a different prior")

    def __repr__(self) -> str:
        return (
            f"PaymentEstimate({self.sellers.size} sellers, total={self.amounts.sum():.6g}, largest "
            f"error={self.errors.max(initial=0.0):.1e}, method={self.method!r}, truthful: "
            f"{self.incentives})"
        )


def payments(market: Market, allocation: Allocation) -> Floats:
    """Compute the payment of every seller under A's Eq. (8), with B's convex privacy cost u.

    Payments are exact for the papers' problem. Other markets are solved again at other reports, as
    in :func:`estimate_payments`. An estimated error above one per cent raises an error.

    Parameters
    ----------
    market : Market
        Market with truthful payments (see ``market.incentives``), and sellers with a prior.
    allocation : Allocation
        Global optimum of ``market``.

    Returns
    -------
    ndarray, shape (m,)
        t_i >= c_i * u(eps_i), in the currency of the sensitivities; 0 for sellers who sell nothing.
        For sellers in partitions, a Dask Series in the same partitions.

    Raises
    ------
    SellersError
        If the sellers have no prior.
    AllocationError
        If the allocation is not certified to be the optimum of this market.
    NotSupportedError
        If truthful payments are not known to exist.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.payments(market, cm.allocate(market)).round(4)
    array([0.7974, 0.4813])
    """
    check_instance("market", market, Market)
    if (parts := market.sellers.parts) is not None:
        whole: Any = allocation
        if not (isinstance(whole, PartedAllocation) and whole.is_of(market.sellers)):
            raise _another("other sellers")
        whole.curve(np.empty(0))  # raises errors before payments are computed
        return parts.column(partial(part_payments, whole), "payment")
    estimate = estimate_payments(market, allocation)
    if np.any(estimate.errors > _LARGEST_ERROR * scales(market, allocation)):
        worst = int(np.argmax(estimate.errors))
        raise AllocationError(
            f"the payment of seller {worst} has an error of {estimate.errors[worst]:.1e}; allocate "
            "with a smaller gap, such as gap=1e-8, or use estimate_payments, which reports errors"
        )
    return estimate.amounts


def part_payments(allocation: PartedAllocation, reports: Floats) -> Floats:
    """Compute the payments of sellers with given reports under an allocation in partitions."""
    curve = allocation.curve(reports)
    bought, paid = np.flatnonzero(curve.truth > 0), reports * curve.truth
    paid[bought] += ExactCurve(curve).rents(allocation.prior, bought, reports[bought])[0]
    return paid


def estimate_payments(
    market: Market,
    allocation: Allocation,
    *,
    tol: float = ACCURACY,
    sellers: ArrayLike | None = None,
    assume_monotone: bool = False,
) -> PaymentEstimate:
    """Estimate payments under Eq. (8) in any market, with bounds on their errors.

    Parameters
    ----------
    market : Market
    allocation : Allocation
    tol : float
        Target error, relative to the larger of the payment and the average cost of a seller.
    sellers : array_like of int, optional
        Positions of the sellers to be paid, all sellers by default.
    assume_monotone : bool
        Compute Eq. (8) even if truthful payments are not known to exist.

    Returns
    -------
    PaymentEstimate

    Raises
    ------
    ParameterError
        If ``sellers`` are not positions. Other errors are raised as by :func:`payments`.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 2 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments())
    >>> estimate = cm.incentives.estimate_payments(market, cm.allocate(market, gap=1e-8))
    >>> estimate.method, estimate.amounts.round(2)
    ('envelope', array([0.76, 0.67]))
    """
    reports = reports_of(market)
    check_share("tol", tol)
    try:
        who = np.arange(reports.size)[slice(None) if sellers is None else np.atleast_1d(sellers)]
    except (IndexError, ValueError):
        raise ParameterError(
            f"sellers must be positions from 0 to {reports.size - 1}, got {sellers!r}"
        ) from None
    method = _method_of(market, assume_monotone)
    _check_allocation(market, allocation)
    lost = np.asarray(market.privacy_cost(allocation.epsilon))
    bought = np.unique(who[lost[who] > 0])
    amounts, errors, gap = reports * lost, np.zeros(reports.size), _SMALLEST_GAP
    if method in ("envelope", "quadrature"):
        # With a gap g, objectives have errors of order g, and guarantees of order sqrt(g).
        if method == "quadrature":
            gap = tol * tol / 8
        elif all(prior.is_regular for prior in market.sellers.priors):
            money = abs(allocation.objective) / (market.form.total_gamma or 1.0)
            gap = 0.1 * tol * float(scales(market, allocation).min()) / money
        gap = float(np.clip(gap, _SMALLEST_GAP, 1e-6))
        again = allocate(market, gap=gap, start=allocation)
        gaps = [answer.objective - answer.lower_bound for answer in (allocation, again)]
        if abs(allocation.objective - again.objective) > sum(gaps) + 1e-9 * abs(again.objective):
            raise _another(f"the objective {again.objective:.10g}")
        best = max(allocation.lower_bound, again.lower_bound)
        allocation = replace(allocation, lower_bound=best)
    curve = curve_of(market, allocation, gap, tol)
    for prior, place in market.sellers.by_prior(bought):
        some = bought[place]
        rents, errors[some] = curve.rents(prior, some, reports[some])
        amounts[some] += rents
    if isinstance(curve, ExactCurve):
        truth = curve.curve.truth
        deviation = float(np.max(np.abs(allocation.epsilon - truth)))
        if deviation > 1e-2 * float(np.max(truth)):
            raise _another(f"guarantees that differ by up to {deviation:.3g}")
        errors = np.maximum(errors, 10 * curve.accuracy * amounts)
    n_solves = curve.n_solves + 1 if isinstance(curve, SolvedCurve) and method != "constant" else 0
    return PaymentEstimate(amounts[who], errors[who], who, method, market.incentives, n_solves)


def curve_of(market: Market, allocation: Allocation, gap: float, tol: float = ACCURACY) -> Curve:
    """Return the curve of a market, even if truthful payments are not known to exist."""
    method = _method_of(market, assume_monotone=True)
    if method == "exact":
        return ExactCurve(OwnReportCurve(market.form.exact))  # type: ignore[arg-type]
    return SolvedCurve(market, allocation, gap, method, tol * scales(market, allocation))


def _method_of(market: Market, assume_monotone: bool) -> str:
    """Return the method for payments, or raise an error if truthfulness is not guaranteed."""
    if market.form.exact is not None:
        return "exact"
    if market.incentives != "by construction" and not assume_monotone:
        raise NotSupportedError(
            f"truthful payments are {market.incentives} in this market: "
            f"{market.incentives.reason}. Use audit_incentives to test misreports, or "
            "estimate_payments(..., assume_monotone=True) to compute Eq. (8) in any case"
        )
    # Under a budget, reports occur in a constraint instead of the objective.
    if market.incentives != "by construction" or market.form.budgets:
        return "quadrature"
    return "envelope" if market.form.total_gamma > 0 else "constant"


def _check_allocation(market: Market, allocation: Allocation) -> None:
    """Check that an allocation is certified, and that it is an optimum of this market."""
    check_instance("allocation", allocation, Allocation, "the result of allocate(market)")
    if allocation.method == "together":
        raise NotSupportedError("payments are not defined for an allocation of allocate_together")
    if not allocation.gap < 1e-3:
        raise AllocationError(
            f"the allocation has a gap of {allocation.gap:.1e}, but truthful payments need the "
            "global optimum; allocate with method='exact' or a smaller gap"
        )
    if allocation.weights.size != len(market.sellers):
        raise _another(f"{len(market.sellers)} sellers")
    costs = np.where(allocation.weights > 0, market.sellers.virtual_costs, 0.0)
    value = market.objective.value(allocation.weights, allocation.eta, costs)
    if not abs(value - allocation.objective) <= 1e-6 * abs(allocation.objective):
        raise _another(f"the objective {value:.10g} at these weights")


def _another(what: str) -> AllocationError:
    return AllocationError(
        f"the allocation is not the optimum of this market, which has {what}; allocate this market"
    )


def scales(market: Market, allocation: Allocation) -> Floats:
    """Compute the scale of each payment error: the seller's cost or, if larger, the average."""
    lost, reports = np.asarray(market.privacy_cost(allocation.epsilon)), reports_of(market)
    costs = reports * lost
    # If all sellers who sell report zero, use the average report of all sellers.
    total = float(costs.sum()) or float(reports.mean() * lost.sum())
    return np.maximum(costs, total / max(1, allocation.n_bought))


def reports_of(market: Market) -> Floats:
    """Return the reports of a market, or raise an error if they are missing."""
    check_instance("market", market, Market)
    reports = market.sellers.sensitivities
    if reports is None:
        m = market.sellers.virtual_costs.size  # raises an error for sellers in partitions
        raise SellersError(f"{m} sellers have virtual costs only; give sensitivities and a prior")
    return reports
