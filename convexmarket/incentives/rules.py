"""What sellers are paid so that the truth is the best reply of each alone (A, Eq. 8).

A seller who reports c is paid ``c*eps(c) + integral of eps(z) dz from c to c_hi``: its cost, and
the guarantees it would have sold at every dearer report. The integral ends at the top c_hi of the
prior's support, beyond which nothing is bought; running it to infinity overpays.

In the papers' markets the integral comes from the exact curve
(:mod:`convexmarket.incentives.exact_rents`); markets of another form are solved again, one report
at a time (:mod:`convexmarket.incentives.rents`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.parted import PartedAllocation
from convexmarket.allocation.result import Allocation
from convexmarket.checks import check_callable, check_instance, check_jobs, check_share
from convexmarket.errors import (
    AllocationError,
    NotSupportedError,
    ParameterError,
    SellersError,
)
from convexmarket.incentives.exact_rents import ACCURACY, ACCURACY_BOUNDED, information_rents
from convexmarket.incentives.rents import (
    Estimate,
    SolvedCurve,
    chord_rent,
    for_each_seller,
    quadrature_rent,
)
from convexmarket.market import Incentives, Market
from convexmarket.sellers import SellerParts

__all__ = [
    "PaymentEstimate",
    "estimate_payments",
    "method_of",
    "part_payments",
    "payments",
    "positions_of",
    "reports_of",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Method = Literal["exact", "constant", "envelope", "quadrature"]

#: Relative accuracy of payments in markets that have no exact curve.
_ACCURACY_OF_ESTIMATES = 1e-4
#: Relative error from which on payments are refused.
_LARGEST_ERROR = 1e-2
_SMALLEST_GAP = 1e-9
_NOT_KNOWN = {"not guaranteed": "not guaranteed to exist", "unknown": "not known to exist"}


@dataclass(frozen=True, eq=False)
class PaymentEstimate:
    """Payments, how far each may be off, and how they were found.

    Attributes
    ----------
    amounts : ndarray, shape (n,)
        What each of ``sellers`` is paid, in the currency of the sensitivities.
    errors : ndarray, shape (n,)
        How far the amount may be off, given what is sold. For "envelope" it comes from the
        certificates of the solves; where psi is not affine, it trusts that between reports that
        are solved u(eps) falls about as evenly as it did at them.
    sellers : ndarray of int, shape (n,)
        Positions in the market.
    method : str
        "exact" (the papers' problem), "constant" (reports do not matter), "envelope" (differences
        of optimal objectives) or "quadrature" (of u(eps)).
    incentives : Incentives
        What is known of the market: whether these payments make the truth the best reply of each
        seller alone.
    n_solves : int
        Markets solved on the way.
    """

    amounts: Floats
    errors: Floats
    sellers: Ints
    method: str
    incentives: Incentives
    n_solves: int = 0

    def __post_init__(self) -> None:
        """Refuse amounts that are not numbers."""
        if not np.all(np.isfinite(self.amounts)):
            raise AllocationError(
                "payments are not numbers in double precision, as virtual costs overflow on the "
                "prior's support; choose a less extreme prior"
            )

    def __repr__(self) -> str:
        return (
            f"PaymentEstimate({self.sellers.size} sellers, total={self.amounts.sum():.6g}, "
            f"largest error={self.errors.max(initial=0.0):.1e}, method={self.method!r}, "
            f"truthful: {self.incentives})"
        )


def payments(market: Market, allocation: Allocation) -> Floats:
    """Return the payment of every seller under A's Eq. (8), with B's convex privacy cost u.

    Exact for the papers' problem. Any other market with truthful prices is solved again at other
    reports, see :func:`estimate_payments`, and refuses where a payment could be off by a percent.

    Parameters
    ----------
    market : Market
        With sellers whose priors are known, and truthful prices (``market.incentives``).
    allocation : Allocation
        The global optimum of ``market``; truthfulness rests on it being the global one.

    Returns
    -------
    ndarray, shape (m,)
        t_i >= c_i * u(eps_i), in the currency of the sensitivities; 0 for sellers not bought from.
        Of sellers in partitions a Dask Series, computed where they are.

    Raises
    ------
    SellersError
        If the sellers have no prior, on which payments depend.
    AllocationError
        If the allocation is not of this market, not certified to be its optimum, or its gap too
        large for payments of that accuracy.
    NotSupportedError
        If the market is not known to have truthful prices; the message says why.

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
        return _payments_in_parts(parts, market, allocation)
    estimate = estimate_payments(market, allocation)
    allowed = _LARGEST_ERROR * _scales(market, allocation)
    unknown = estimate.errors > allowed
    if np.any(unknown):
        worst = int(np.argmax(estimate.errors))
        raise AllocationError(
            f"{np.count_nonzero(unknown)} payments are not known well enough, that of seller "
            f"{worst} only to {estimate.errors[worst]:.1e}; the allocation has a gap of "
            f"{allocation.gap:.1e}; allocate with a smaller one, such as gap=1e-8, or take "
            "estimate_payments(market, allocation, gap=...), which reports the errors"
        )
    return estimate.amounts


def estimate_payments(
    market: Market,
    allocation: Allocation,
    *,
    tol: float = _ACCURACY_OF_ESTIMATES,
    gap: float | None = None,
    sellers: ArrayLike | None = None,
    assume_monotone: bool = False,
    progress: Callable[[int, int], None] | None = None,
    jobs: int = 1,
) -> PaymentEstimate:
    """Return payments under Eq. (8) in any market, and how far each may be off.

    ``t_i = c_i*u(eps_i) + integral of u(eps_i(z)) dz`` from c_i to the top of the support, where
    eps_i(z) is what seller i would sell if it reported z. How it is integrated says
    :mod:`convexmarket.incentives.rents`.

    Parameters
    ----------
    market : Market
    allocation : Allocation
        Of this market.
    tol : float
        Error at which no further report is solved, relative to the payment (or to the average
        cost of a seller, if that is more).
    gap : float, optional
        Relative gap of the solves at other reports; what the accuracy needs where left out.
    sellers : array_like of int, optional
        Positions of the sellers to be paid; all where left out.
    assume_monotone : bool
        Integrate even where the market is not known to have truthful prices.
    progress : callable, optional
        Called with the number of sellers done and to be done.
    jobs : int
        Processes that work at once.

    Returns
    -------
    PaymentEstimate

    Raises
    ------
    NotSupportedError
        If the market is not known to have truthful prices and ``assume_monotone`` is False, or a
        seller could ask for any price.
    SellersError, AllocationError
        As for :func:`payments`.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, 2 * cm.terms.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments())
    >>> estimate = cm.incentives.estimate_payments(market, cm.allocate(market, gap=1e-8))
    >>> estimate.method, estimate.amounts.round(2)
    ('envelope', array([0.76, 0.67]))
    """
    m = reports_of(market).size
    check_share("tol", tol)
    if gap is not None:
        check_share("gap", gap)
    check_callable("progress", progress)
    check_jobs(jobs)
    who = positions_of(sellers, m)
    method = method_of(market, assume_monotone)
    _check_allocation(market, allocation)
    if method == "exact":
        return _exact_payments(market, allocation, who)
    if method == "constant":
        return _constant_payments(market, allocation, who)
    return _solved_payments(market, allocation, who, method, tol, gap, progress, jobs)


def method_of(market: Market, assume_monotone: bool) -> Method:
    """Return how this market's payments are found, or refuse those that promise nothing."""
    if market.form.exact is not None:
        return "exact"
    if market.incentives != "by construction":
        if assume_monotone:
            return "quadrature"
        raise NotSupportedError(
            f"payments that make the truth the best reply are {_NOT_KNOWN[market.incentives]} in "
            f"this market: {market.incentives.reason}. audit_incentives tries misreports; "
            "estimate_payments(..., assume_monotone=True) computes Eq. (8) all the same"
        )
    if market.form.budgets:  # reports enter by a constraint, where objectives say nothing of them
        return "quadrature"
    return "envelope" if market.form.price_of_money > 0 else "constant"


def _gap_for(market: Market, allocation: Allocation, error: float) -> float:
    """Return the gap of the solves at other reports that lets rents be known up to an error.

    Objectives are as good as their gap, what is sold on ironed intervals its root.
    """
    if not all(prior.is_regular for prior in market.sellers.priors):
        return _SMALLEST_GAP
    money = abs(allocation.objective) / (market.form.price_of_money or 1.0)
    return float(np.clip(0.1 * error / money, _SMALLEST_GAP, 1e-6))


def _with_best_bound(market: Market, allocation: Allocation, gap: float) -> Allocation:
    """Return the allocation with the better of its bound and that of a solve, if it is optimal."""
    again = allocate(market, gap=gap, start=allocation)
    _check_optimal(allocation, again)
    return replace(allocation, lower_bound=max(allocation.lower_bound, again.lower_bound))


def _solved_payments(
    market: Market,
    allocation: Allocation,
    who: Ints,
    method: Method,
    tol: float,
    gap: float | None,
    progress: Callable[[int, int], None] | None,
    jobs: int,
) -> PaymentEstimate:
    """Pay by the rents of markets that are solved at other reports."""
    tolerances = tol * _scales(market, allocation)
    if gap is None:
        gap = _gap_for(market, allocation, float(tolerances.min()))
    known = _with_best_bound(market, allocation, gap)
    reports = reports_of(market)
    lost = np.asarray(market.privacy_cost(allocation.epsilon))
    bought = who[lost[who] > 0]
    rent_of = partial(_rent, market, known, tolerances, gap, method)
    rents = for_each_seller(rent_of, bought, jobs, progress)
    amounts, errors = reports * lost, np.zeros(reports.size)
    amounts[bought] += [rent.value for rent, _ in rents]
    errors[bought] = [rent.error for rent, _ in rents]
    n_solves = 1 + sum(solves for _, solves in rents)
    return PaymentEstimate(amounts[who], errors[who], who, method, market.incentives, n_solves)


def _rent(
    market: Market,
    allocation: Allocation,
    tolerances: Floats,
    gap: float,
    method: Method,
    seller: int,
) -> tuple[Estimate, int]:
    """Return one seller's rent, and the number of markets solved for it."""
    curve = SolvedCurve(market, allocation, gap)
    integrate = chord_rent if method == "envelope" else quadrature_rent
    report, tolerance = float(reports_of(market)[seller]), float(tolerances[seller])
    rent = integrate(curve, market.sellers.prior_of(seller), seller, report, tolerance)
    return rent, curve.n_solves


def _exact_payments(market: Market, allocation: Allocation, who: Ints) -> PaymentEstimate:
    """Pay by the exact curve of the papers' problem, for all sellers at once."""
    reports = reports_of(market)
    form = market.form.exact
    assert form is not None  # as method_of says
    curve = OwnReportCurve(form)
    deviation = float(np.max(np.abs(allocation.epsilon - curve.truth)))
    if deviation > 1e-2 * float(np.max(curve.truth)):
        raise AllocationError(
            f"the allocation's guarantees differ by up to {deviation:.3g} from the optimum of this "
            "market; is it of another one? Allocate this market, or ask for a smaller gap"
        )
    asked = np.zeros(reports.size, dtype=bool)
    asked[who] = True
    bought = np.flatnonzero(asked & (allocation.weights > 0))
    paid = np.zeros(reports.size)
    paid[bought] = reports[bought] * allocation.epsilon[bought]
    for prior, place in market.sellers.by_prior(bought):
        own = bought[place]
        paid[own] += information_rents(curve, prior, own, reports[own])
    paid = paid[who]
    accuracy = ACCURACY_BOUNDED if form.max_epsilon < np.inf else ACCURACY
    return PaymentEstimate(paid, 10 * accuracy * paid, who, "exact", market.incentives)


def _payments_in_parts(parts: SellerParts, market: Market, allocation: Any) -> Any:
    """Return the payments as a column of the parts, each computed in its part."""
    if not (isinstance(allocation, PartedAllocation) and allocation.is_of(market.sellers)):
        raise AllocationError(
            "the allocation is not of this market's sellers; give what allocate(market) returned"
        )
    allocation.curve(np.empty(0))  # raises before anything is computed
    return parts.column(partial(part_payments, allocation), "payment")


def part_payments(allocation: PartedAllocation, reports: Floats) -> Floats:
    """Return the payments of some sellers of an allocation, by their reports."""
    curve = allocation.curve(reports)
    bought = np.flatnonzero(curve.truth > 0)
    paid = np.zeros(reports.size)
    rents = information_rents(curve, allocation.prior, bought, reports[bought])
    paid[bought] = reports[bought] * curve.truth[bought] + rents
    return paid


def _constant_payments(market: Market, allocation: Allocation, who: Ints) -> PaymentEstimate:
    """Pay for what reports do not change: the price of the dearest possible seller."""
    cost = np.asarray(market.privacy_cost(allocation.epsilon))
    paid = np.zeros(cost.size)
    for prior, place in market.sellers.by_prior():
        own = place[cost[place] > 0]
        if own.size and np.isinf(prior.support[1]):
            raise NotSupportedError(
                f"{prior!r} has no largest sensitivity, and what is bought does not depend on the "
                "reports, so that no finite payment is truthful; use a prior with bounded support, "
                "or weigh Payments() in the objective"
            )
        paid[own] = prior.support[1] * cost[own]
    return PaymentEstimate(paid[who], np.zeros(who.size), who, "constant", market.incentives)


def _check_allocation(market: Market, allocation: Allocation) -> None:
    """Refuse an allocation that is not certified, or not of this market."""
    check_instance("allocation", allocation, Allocation, "what allocate(market) returned")
    m = len(market.sellers)
    if allocation.weights.size != m:
        raise AllocationError(
            f"the allocation is for {allocation.weights.size} sellers, the market has {m}; "
            "allocate this market first"
        )
    if not allocation.gap < 1e-3:
        raise AllocationError(
            f"the allocation is {allocation.gap:.1e} (relative) away from its lower bound; paying "
            "for the truth needs the global optimum; allocate with method='exact' or a smaller "
            "gap"
        )
    if (form := market.form.exact) is not None:
        value = form.objective(allocation.weights, allocation.eta)
    else:
        costs = np.where(allocation.weights > 0, market.sellers.virtual_costs, 0.0)
        value = market.objective.value(allocation.weights, allocation.eta, costs)
    if not abs(value - allocation.objective) <= 1e-6 * abs(allocation.objective):
        raise AllocationError(
            f"the objective of this market at the allocation is {value:.10g}, not "
            f"{allocation.objective:.10g}; is the allocation of another one? Allocate this market"
        )


def _check_optimal(allocation: Allocation, again: Allocation) -> None:
    """Refuse an allocation that this market's certificate proves to be worse than it says."""
    gaps = [one.objective - one.lower_bound for one in (allocation, again)]
    slack = sum(gaps) + 1e-9 * abs(again.objective)
    if abs(allocation.objective - again.objective) > slack:
        raise AllocationError(
            f"the allocation has the objective {allocation.objective:.10g}, but the optimum of "
            f"this market is {again.objective:.10g}; is it of another one? Allocate this market"
        )


def _scales(market: Market, allocation: Allocation) -> Floats:
    """Return what errors of payments are measured by: the seller's cost, or an average one."""
    lost = np.asarray(market.privacy_cost(allocation.epsilon))
    costs = reports_of(market) * lost
    total = float(costs.sum())
    if total == 0:  # all who sell ask for nothing; others' reports say what privacy is worth
        total = float(reports_of(market).mean() * lost.sum())
    return np.maximum(costs, total / max(1, allocation.n_bought))


def positions_of(sellers: ArrayLike | None, m: int) -> Ints:
    """Return the positions of sellers that are named, or of all."""
    if sellers is None:
        return np.arange(m)
    try:
        who = np.atleast_1d(np.asarray(sellers))
    except ValueError:  # lists of several lengths
        who = np.empty(1)
    if not (np.issubdtype(who.dtype, np.integer) and np.all((who >= 0) & (who < m))):
        raise ParameterError(f"sellers must be positions from 0 to {m - 1}, got {sellers!r}")
    return who.astype(np.intp)


def reports_of(market: Market) -> Floats:
    """Return what payments depend on, or say that it is missing."""
    check_instance("market", market, Market)
    market.sellers.check_in_memory()
    reports = market.sellers.sensitivities
    if reports is None:
        raise SellersError(
            "these sellers are known by their virtual costs alone; payments depend on the reports "
            "and the prior; give Sellers(sensitivities=..., prior=...)"
        )
    return reports
