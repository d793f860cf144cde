"""What sellers are paid so that the truth is the best reply of each alone (A, Eq. 8).

A seller who reports c is paid ``c*eps(c) + integral of eps(z) dz from c to c_hi``: its cost, and
the guarantees it would have sold at every dearer report. The integral ends at the top c_hi of the
prior's support, beyond which nothing is bought; running it to infinity overpays.

By the envelope theorem the optimal objective F of the buyer, as a function of the seller's
virtual cost y, has the slope gamma*eps(y). Where the virtual cost is affine in the report, as for
a uniform prior, the integral is therefore a difference of two optimal objectives, jumps of the
optimum between branches included. Elsewhere it is computed by vectorised adaptive quadrature of
the exact curve. Markets of another form are solved again, one report at a time
(:mod:`convexmarket.incentives.rents`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import ArrayLike, NDArray
from scipy.optimize.elementwise import find_root

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.dispatch import allocate, standard_form_of
from convexmarket.allocation.result import Allocation
from convexmarket.arguments import check_callable, check_instance, check_jobs, check_share
from convexmarket.errors import (
    AllocationError,
    NotSupportedError,
    ParameterError,
    SellersError,
    SolverError,
)
from convexmarket.incentives.rents import (
    Estimate,
    SolvedCurve,
    chord_rent,
    for_each_seller,
    quadrature_rent,
)
from convexmarket.market import Incentives, Market
from convexmarket.priors import Prior
from convexmarket.sellers import PartedSellers

__all__ = [
    "PaymentEstimate",
    "estimate_payments",
    "information_rents",
    "last_sale",
    "method_of",
    "payments",
    "positions_of",
    "reports_of",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Method = Literal["exact", "constant", "envelope", "quadrature"]

#: Relative accuracy that the integrals are computed to.
_ACCURACY = 1e-11
#: A seller whose closed form would lose more digits than this to cancellation is integrated.
_CANCELLATION = 1e-9
#: Length, relative to the report, at which an interval with a jump is let be: it moves a payment
#: by less than this.
_SHORTEST = 1e-12
_MAX_DEPTH = 60
#: Sellers whose rents are all integrated; of more, some, and the others follow to this accuracy.
_MANY, _ACCURACY_BETWEEN = 256, 3e-11
#: Nodes of a polynomial, at least: where sellers are in clusters, several of 25 are the same.
_FEWEST = 16
#: Searches take an infinite virtual cost for this, and one right at the level for just above.
_FAR, _ABOVE = 1e200, 1e-300
#: Times that the level of the cap is looked for again, one seller's cost being there, until it
#: stands still.
_ROUNDS, _STILL = 20, 1e-9
#: Intervals of the quadrature, per interval at first; halving past this chases rounding.
_MOST_PIECES = 2_048
#: Relative accuracy of payments in markets that have no exact curve.
_ACCURACY_OF_ESTIMATES = 1e-4
#: Relative error from which on payments are refused.
_LARGEST_ERROR = 1e-2
_SMALLEST_GAP = 1e-9
_NOT_KNOWN = {"not guaranteed": "not guaranteed to exist", "unknown": "not known to exist"}


def _clenshaw_curtis(n: int) -> tuple[Floats, Floats]:
    """Return the Clenshaw-Curtis rule on [-1, 1]: n + 1 nodes, the ends among them."""
    j, k = np.arange(n + 1), np.arange(1, n // 2 + 1)
    share = np.where(2 * k == n, 1.0, 2.0) / (4.0 * k * k - 1.0)
    weights = (2.0 - 2.0 * np.cos(2.0 * np.pi * np.outer(j, k) / n) @ share) / n
    weights[[0, -1]] *= 0.5
    return -np.cos(np.pi * j / n), weights


#: Rules of rising order, the nodes of one among those of the next: every so many of the last. With
#: the ends as nodes, a jump next to one of them does not escape two of them.
_STRIDES = (8, 4, 2, 1)
_NODES = _clenshaw_curtis(24)[0]
_WEIGHTS = {stride: _clenshaw_curtis(24 // stride)[1] for stride in _STRIDES}


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
    if isinstance(market.sellers, PartedSellers):
        from convexmarket.incentives.parted import parted_payments

        return parted_payments(market.sellers, allocation)
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
    if market.standard_form is not None:
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
    curve = OwnReportCurve(standard_form_of(market, "the exact payment rule"))
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
    return PaymentEstimate(paid, 10 * _ACCURACY * paid, who, "exact", market.incentives)


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
    if market.standard_form is not None:
        value = market.standard_form.objective(allocation.weights, allocation.eta)
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
    reports = market.sellers.sensitivities
    if reports is None:
        raise SellersError(
            "these sellers are known by their virtual costs alone; payments depend on the reports "
            "and the prior; give Sellers(sensitivities=..., prior=...)"
        )
    return reports


def information_rents(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Return the integral of eps(z) dz from each report to the top of the support.

    It is what a truthful seller earns beyond its cost.

    Parameters
    ----------
    curve : OwnReportCurve
    prior : Prior
    seller : ndarray of int, shape (n,)
        Positions in the market.
    reports : ndarray, shape (n,)
        What each says its sensitivity is; others say what the market has of them.

    Returns
    -------
    ndarray, shape (n,)

    Raises
    ------
    NotSupportedError
        If the prior's support has no top and the market cannot do without the seller, who could
        then ask for any price.
    """
    top = prior.support[1]
    if np.isinf(top) and not curve.can_do_without():
        raise NotSupportedError(
            f"{prior!r} has no largest sensitivity, and under this cap (or with one seller) the "
            "buyer cannot do without anyone, so that no finite payment is truthful; use a prior "
            "with bounded support, or a larger cap"
        )
    slope = prior.virtual_cost_slope
    if slope is None or np.isinf(top):
        return _integrals(curve, prior, seller, reports)
    own = curve(seller, np.asarray(prior.ironed_virtual_cost(reports)))
    dearest = curve.at(seller, float(prior.ironed_virtual_cost(top)))
    rents = np.maximum(dearest - own.value, 0.0) / (curve.form.gamma * slope)
    noise = np.finfo(float).eps * dearest / (curve.form.gamma * slope)
    doubtful = noise > _CANCELLATION * (rents + reports * own.epsilon)
    if np.any(doubtful):
        rents[doubtful] = _integrals(curve, prior, seller[doubtful], reports[doubtful])
    return rents


def _sold(curve: OwnReportCurve, prior: Prior, seller: Ints, z: Floats) -> Floats:
    """Return what each seller sells if it reports z, shape (n,)."""
    return curve(seller, np.asarray(prior.ironed_virtual_cost(z))).epsilon


def _integrals(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Integrate the exact curves of sellers, of many only so many that the others follow.

    Where sellers tell the truth, rents are a function of the report alone, with few kinks. Between
    these a polynomial through some of them is as good, which others show.
    """
    truth = np.asarray(prior.ironed_virtual_cost(reports))
    if seller.size < _MANY or np.any(truth != curve.form.virtual_costs[seller]):
        return _quadrature(curve, prior, seller, reports)
    places, first, place = np.unique(reports, return_index=True, return_inverse=True)
    sold, rents = curve.truth[seller[first]], np.full(places.size, np.nan)
    capped = np.isclose(sold, sold.max(), rtol=1e-12, atol=0.0)
    kinks = np.searchsorted(places, prior.breakpoints, side="right")
    cuts = np.unique([*kinks, np.count_nonzero(capped), np.count_nonzero(sold)])
    stretches = [some for some in np.split(np.arange(places.size), cuts) if some.size]
    while stretches:
        through = [_spread_evenly(places, some) for some in stretches]
        ask = np.unique(np.concatenate(through))
        ask = ask[np.isnan(rents[ask])]
        rents[ask] = _quadrature(curve, prior, seller[first[ask]], reports[first[ask]])
        halves = []
        for some, nodes in zip(stretches, through, strict=True):
            rest = some[np.isnan(rents[some])]
            if nodes.size > _FEWEST and _is_met(places, rents, nodes, places * sold + rents):
                rents[rest] = _polynomial(places, rents, nodes)(places[rest])
            elif rest.size:
                halves += [some[: some.size // 2], some[some.size // 2 :]]
        stretches = halves
    return rents[place]


def _is_met(places: Floats, rents: Floats, nodes: Ints, paid: Floats) -> bool:
    """Say whether a polynomial through every other node meets the rest."""
    others = nodes[1::2]
    off = np.abs(_polynomial(places, rents, nodes[::2])(places[others]) - rents[others])
    return bool(np.all(off <= _ACCURACY_BETWEEN * paid[others]))


def _spread_evenly(places: Floats, some: Ints) -> Ints:
    """Return which of some places are next to Chebyshev's, or all of few."""
    if some.size < _MANY:
        return some
    low, high = places[some[0]], places[some[-1]]
    at = np.searchsorted(places[some], low + 0.5 * (high - low) * (1.0 + _NODES))
    return np.unique(some[np.minimum(at, some.size - 1)])


def _polynomial(places: Floats, rents: Floats, nodes: Ints) -> Chebyshev:
    # "full" leaves out a warning of places next to each other; what such a fit misses is seen.
    return Chebyshev.fit(places[nodes], rents[nodes], nodes.size - 1, full=True)[0]


def _quadrature(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Integrate the exact curve, cut where it ends, leaves the cap, and psi has kinks."""
    end = last_sale(curve, prior, seller, reports)
    free = _last_at_cap(curve, prior, seller, reports, end)
    twice = np.tile(np.arange(seller.size), 2)
    piece, low, high = _cut(
        np.concatenate((reports, free)), np.concatenate((free, end)), prior.breakpoints
    )
    some = low < high
    owner, low, high = twice[piece[some]], low[some], high[some]

    def epsilon(piece: Ints, z: Floats) -> Floats:
        return _sold(curve, prior, seller[owner[piece]], z)

    if prior.is_step:  # constant on each piece
        parts = (high - low) * epsilon(np.arange(owner.size), 0.5 * (low + high))
    else:
        scale = _least_payment(curve, prior, seller, reports, end)
        parts = _adaptive(epsilon, low, high, _ACCURACY * scale[owner])
    return np.bincount(owner, parts, minlength=seller.size).astype(float)


def _last_at_cap(
    curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats, end: Floats
) -> Floats:
    """Return a report up to which each seller is at the cap, close to the largest such."""
    psi = np.asarray(prior.ironed_virtual_cost(reports))
    leaves = curve(seller, psi).cap_level
    capped = np.flatnonzero(psi < leaves)
    for _ in range(_ROUNDS):  # the level moves by as little as one seller matters
        again = curve(seller[capped], leaves[capped]).cap_level
        moved = np.abs(again - leaves[capped]) > _STILL * np.abs(again)
        leaves[capped] = again
        capped = capped[moved]
    return np.minimum(_first_at(prior, leaves, reports), end)


def _least_payment(
    curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats, end: Floats
) -> Floats:
    """Return what each payment is at least, which is what its accuracy is relative to.

    Guarantees fall with the report, so the rent is at least eps(z)*(z - c) at any z.
    """
    least = reports * _sold(curve, prior, seller, reports)
    low = reports < 0.1 * end  # of others this is a tenth of the payment at least
    reach = 0.5 ** np.arange(1.0, 52.0, 2.0) * (end - reports)[low, None]
    z = reports[low, None] + reach
    further = _sold(curve, prior, np.repeat(seller[low], z.shape[1]), z.ravel()).reshape(z.shape)
    least[low] += np.max(reach * further, axis=1)
    return least


def last_sale(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Return a report from which on each seller sells nothing, close to the smallest such.

    Guarantees fall with the report, so a search finds where they end. Mostly it is where
    the virtual cost meets the level of the market without the seller, which is tried first.
    """
    top = prior.support[1]
    if not curve.can_do_without():
        return np.full(seller.size, top)
    level = curve(seller, np.full(seller.size, np.inf)).level

    def unsold(z: Floats, who: Ints) -> Floats:
        return np.where(_sold(curve, prior, seller[who], z) == 0, 1.0, -1.0)

    # A little further, because rounding may leave a trace right at that report.
    end = np.minimum(_first_at(prior, level, reports) * (1 + 1e-10), top)
    still = np.flatnonzero(unsold(end, np.arange(seller.size)) < 0)
    end[still] = _first_root(unsold, still, end[still], prior)
    return end


def _first_at(prior: Prior, level: Floats, start: Floats) -> Floats:
    """Return the smallest report from start to the top at which psi is at a level, for all k."""

    def above(z: Floats, level: Floats) -> Floats:
        return np.asarray(prior.ironed_virtual_cost(z)) - level

    return _first_root(above, level, start, prior)


def _first_root(
    f: Callable[[Floats, Any], Floats], which: NDArray[Any], start: Floats, prior: Prior
) -> Floats:
    """Return the smallest z from start to the top at which f(z, which) is not below 0, for all k.

    ``f`` never falls in z.
    """
    found = start.copy()
    todo = np.flatnonzero(f(start, which) < 0)
    low, which, top = start[todo], which[todo], prior.support[1]
    high = np.full(todo.size, top) if np.isfinite(top) else low + prior.mean
    while np.any(short := f(high, which) < 0) and np.isinf(top):
        high = np.where(short, low + 2.0 * (high - low), high)
    inside = ~short
    root = cast(Any, find_root)(  # its stubs know no args
        lambda z, which: _signed(f(z, which)),
        (low[inside], high[inside]),
        args=(which[inside],),
    )
    high[inside] = np.where(root.f_x >= 0, root.x, root.bracket[1])  # never on the lower side
    found[todo] = high
    return found


def _signed(excess: Floats) -> Floats:
    return np.where(excess < 0, np.maximum(excess, -_FAR), np.clip(excess, _ABOVE, _FAR))


def _cut(start: Floats, end: Floats, breakpoints: Floats) -> tuple[Ints, Floats, Floats]:
    """Cut every interval at the breakpoints inside it; return owner, low and high of each part."""
    first = np.searchsorted(breakpoints, start, side="right")
    inside = np.maximum(np.searchsorted(breakpoints, end) - first, 0)
    owner = np.repeat(np.arange(start.size), inside + 1)
    place = np.arange(owner.size) - np.repeat(np.cumsum(inside + 1) - inside - 1, inside + 1)
    padded = np.append(breakpoints, 0.0)
    low = np.where(place == 0, start[owner], padded[first[owner] + place - 1])
    high = np.where(place == inside[owner], end[owner], padded[first[owner] + place])
    return owner, low, np.maximum(low, high)


def _adaptive(
    f: Callable[[Ints, Floats], Floats], low: Floats, high: Floats, tolerance: Floats
) -> Floats:
    """Integrate ``f(k, z)`` over z in [low[k], high[k]], for all k at once.

    Every interval is integrated by rules of rising order until three agree to ``tolerance``, and
    halved where none do; one of a length that does not matter (it holds a jump) is accepted.
    """
    total, n_intervals = np.zeros(low.size), low.size
    owner = np.arange(low.size)
    for _ in range(_MAX_DEPTH):
        if owner.size == 0:
            return total
        if owner.size > _MOST_PIECES * n_intervals:
            break
        fine, good = _by_rising_orders(f, owner, low, high, tolerance[owner])
        half, middle = 0.5 * (high - low), 0.5 * (high + low)
        good |= half <= _SHORTEST * np.abs(middle)
        np.add.at(total, owner[good], fine[good])
        owner = np.tile(owner[~good], 2)
        low = np.concatenate((low[~good], middle[~good]))
        high = np.concatenate((middle[~good], high[~good]))
    raise SolverError(
        "the integrals of the guarantees over higher reports do not converge: the ratio of scales "
        "of virtual costs and mu exceeds double precision; bring the weights of the terms closer"
    )


def _by_rising_orders(
    f: Callable[[Ints, Floats], Floats], owner: Ints, low: Floats, high: Floats, tolerance: Floats
) -> tuple[Floats, NDArray[np.bool_]]:
    """Integrate f on each interval; return also where three rules agree."""
    z = 0.5 * ((high + low)[:, None] + (high - low)[:, None] * _NODES)
    z[:, 0], z[:, -1] = low, high  # rounding must not put an end outside the support
    values, good = np.empty_like(z), np.zeros(owner.size, dtype=bool)
    found, apart = np.full((2, owner.size), np.inf)
    asked: Ints = np.empty(0, dtype=np.intp)
    for stride in _STRIDES:
        some, nodes = np.flatnonzero(~good), np.arange(0, _NODES.size, stride)
        if not some.size:
            break
        new = np.ix_(some, np.setdiff1d(nodes, asked))
        at = z[new]
        values[new] = f(np.repeat(owner[some], at.shape[1]), at.ravel()).reshape(at.shape)
        fine = 0.5 * (high - low)[some] * (values[np.ix_(some, nodes)] @ _WEIGHTS[stride])
        before, apart[some] = apart[some], np.abs(fine - found[some])
        # Two rules may agree by chance, but hardly both with a third.
        good[some] = np.maximum(apart[some], before) <= tolerance[some]
        found[some], asked = fine, nodes
    return found, good
