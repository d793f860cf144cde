"""What sellers are paid so that the truth is their best reply (A, Eq. 8).

A seller who reports c is paid ``c*eps(c) + integral of eps(z) dz from c to c_hi``: its cost, and
the guarantees it would have sold at every dearer report. The integral ends at the top c_hi of the
prior's support, beyond which nothing is bought; running it to infinity overpays.

By the envelope theorem the optimal objective F of the buyer, as a function of the seller's
virtual cost y, has the slope gamma*eps(y). Where the virtual cost is affine in the report, as for
a uniform prior, the integral is therefore a difference of two optimal objectives, jumps of the
optimum between branches included. Elsewhere it is computed by vectorised adaptive quadrature of
the exact curve.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.dispatch import standard_form_of
from convexmarket.allocation.result import Allocation
from convexmarket.errors import AllocationError, NotSupportedError, ParameterError, SellersError
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = ["information_rents", "last_sale", "payments", "reports_and_prior"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Relative accuracy that the integrals are computed to.
_ACCURACY = 1e-11
#: A seller whose closed form would lose more digits than this to cancellation is integrated.
_CANCELLATION = 1e-9
#: Length, relative to the report, at which an interval with a jump is let be: it moves a payment
#: by less than this.
_SHORTEST = 1e-12
_MAX_DEPTH = 60


def _lobatto(n: int) -> tuple[Floats, Floats]:
    """Return the Gauss-Lobatto rule on [-1, 1]: n nodes, the ends among them."""
    legendre = np.polynomial.Legendre.basis(n - 1)
    nodes = np.concatenate(([-1.0], legendre.deriv().roots().real, [1.0]))
    return nodes, 2.0 / (n * (n - 1) * legendre(nodes) ** 2)


# Rules of two orders, whose difference estimates the error. With the ends as nodes, a jump next
# to one of them does not escape both.
_FINE_NODES, _FINE_WEIGHTS = _lobatto(11)
_COARSE_NODES, _COARSE_WEIGHTS = _lobatto(6)


def payments(market: Market, allocation: Allocation) -> Floats:
    """Return the payment of every seller under A's Eq. (8).

    Parameters
    ----------
    market : Market
        Of the standard form, with sellers whose prior is known.
    allocation : Allocation
        The global optimum of ``market``; truthfulness rests on it being the global one.

    Returns
    -------
    ndarray, shape (m,)
        t_i >= c_i * eps_i, in the currency of the sensitivities; 0 for sellers not bought from.

    Raises
    ------
    SellersError
        If the sellers have no prior, on which payments depend.
    AllocationError
        If the allocation is not of this market, or not certified to be its optimum.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=2, sigma=1, gamma=0.5)
    >>> cm.payments(market, cm.allocate(market)).round(4)
    array([0.7974, 0.4813])
    """
    m = len(market.sellers)
    if allocation.weights.size != m:
        raise AllocationError(
            f"the allocation is for {allocation.weights.size} sellers, the market has {m}; "
            "allocate this market first"
        )
    if not allocation.gap < 1e-3:
        raise AllocationError(
            f"the allocation is {allocation.gap:.1e} (relative) away from its lower bound; paying "
            "for the truth needs the global optimum: allocate with method='exact' or a smaller gap"
        )
    reports, prior = reports_and_prior(market)
    curve = OwnReportCurve(standard_form_of(market, "the exact payment rule"))
    deviation = float(np.max(np.abs(allocation.epsilon - curve.truth)))
    if deviation > 1e-2 * float(np.max(curve.truth)):
        raise AllocationError(
            f"the allocation's guarantees differ by up to {deviation:.3g} from the optimum of this "
            "market; is it of another one? Allocate this market, or ask for a smaller gap"
        )
    bought = np.flatnonzero(allocation.weights > 0)
    paid = np.zeros(m)
    paid[bought] = reports[bought] * allocation.epsilon[bought]
    paid[bought] += information_rents(curve, prior, bought, reports[bought])
    return paid


def reports_and_prior(market: Market) -> tuple[Floats, Prior]:
    """Return what payments depend on, or say that it is missing."""
    sellers = market.sellers
    if sellers.sensitivities is None or sellers.prior is None:
        raise SellersError(
            "these sellers are known by their virtual costs alone; payments depend on the "
            "reports and the prior: give Sellers(sensitivities=..., prior=...)"
        )
    return sellers.sensitivities, sellers.prior


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
        return _quadrature(curve, prior, seller, reports)
    own = curve(seller, np.asarray(prior.ironed_virtual_cost(reports)))
    dearest = curve(seller, np.full(seller.size, float(prior.ironed_virtual_cost(top))))
    rents = np.maximum(dearest.value - own.value, 0.0) / (curve.form.gamma * slope)
    noise = np.finfo(float).eps * dearest.value / (curve.form.gamma * slope)
    doubtful = noise > _CANCELLATION * (rents + reports * own.epsilon)
    if np.any(doubtful):
        rents[doubtful] = _quadrature(curve, prior, seller[doubtful], reports[doubtful])
    return rents


def _quadrature(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Integrate the exact curve, cut where it ends and where the virtual cost has kinks."""
    end = last_sale(curve, prior, seller, reports)
    owner, low, high = _cut(reports, end, prior.breakpoints)

    def epsilon(piece: Ints, z: Floats) -> Floats:
        return curve(seller[owner[piece]], np.asarray(prior.ironed_virtual_cost(z))).epsilon

    if prior.is_step:  # constant on each piece
        parts = (high - low) * epsilon(np.arange(owner.size), 0.5 * (low + high))
    else:
        at_report = curve(seller, np.asarray(prior.ironed_virtual_cost(reports))).epsilon
        # Relative to the payment, with the rent at its least; rounding limits what can be asked.
        scale = at_report * (reports + 0.1 * (end - reports))
        parts = _adaptive(epsilon, low, high, _ACCURACY * scale[owner])
    return np.bincount(owner, parts, minlength=seller.size).astype(float)


def last_sale(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Return a report from which on each seller sells nothing, close to the smallest such.

    Guarantees fall with the report, so a binary search finds where they end. Mostly it is where
    the virtual cost meets the level of the market without the seller, which is tried first.
    """
    top = prior.support[1]
    if not curve.can_do_without():
        return np.full(seller.size, top)
    level = curve(seller, np.full(seller.size, np.inf)).level

    def too_dear(who: Ints, z: Floats) -> NDArray[np.bool_]:
        return np.asarray(prior.ironed_virtual_cost(z)) >= level[who]

    def unsold(who: Ints, z: Floats) -> NDArray[np.bool_]:
        return curve(seller[who], np.asarray(prior.ironed_virtual_cost(z))).epsilon == 0

    everyone = np.arange(seller.size)
    end = _first_true(too_dear, everyone, reports, prior)
    still = np.flatnonzero(~unsold(everyone, end))
    end[still] = _first_true(unsold, still, end[still], prior)
    return end


def _first_true(
    test: Callable[[Ints, Floats], NDArray[np.bool_]], who: Ints, start: Floats, prior: Prior
) -> Floats:
    """Return the smallest z from start to the top at which a monotone test holds, for all k."""
    low = start.copy()
    if np.isfinite(prior.support[1]):
        high = np.full(who.size, prior.support[1])
    else:
        high = start + prior.mean
        while np.any(short := ~test(who, high)):
            high = np.where(short, start + 2.0 * (high - start), high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        holds = test(who, middle)
        low, high = np.where(holds, low, middle), np.where(holds, middle, high)
    return high


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

    Every interval is integrated by two rules and halved until they agree to ``tolerance``; an
    interval of a length that does not matter (it holds a jump) is accepted as it is.
    """
    total = np.zeros(low.size)
    owner = np.arange(low.size)
    for _ in range(_MAX_DEPTH):
        if owner.size == 0:
            return total
        half, middle = 0.5 * (high - low), 0.5 * (high + low)
        fine = half * _rule(f, owner, low, high, _FINE_NODES, _FINE_WEIGHTS)
        coarse = half * _rule(f, owner, low, high, _COARSE_NODES, _COARSE_WEIGHTS)
        tiny = half <= _SHORTEST * np.abs(middle)
        good = (np.abs(fine - coarse) <= tolerance[owner]) | tiny
        np.add.at(total, owner[good], fine[good])
        owner = np.tile(owner[~good], 2)
        low = np.concatenate((low[~good], middle[~good]))
        high = np.concatenate((middle[~good], high[~good]))
    raise ParameterError("the payment integral did not converge; report this with the market")


def _rule(
    f: Callable[[Ints, Floats], Floats],
    owner: Ints,
    low: Floats,
    high: Floats,
    nodes: Floats,
    weights: Floats,
) -> Floats:
    """Apply a rule to f on each interval, up to half its length; shape of ``owner``."""
    z = 0.5 * ((high + low)[:, None] + (high - low)[:, None] * nodes)
    z[:, 0], z[:, -1] = low, high  # rounding must not put an end outside the support
    return f(np.repeat(owner, nodes.size), z.ravel()).reshape(z.shape) @ weights
