"""What truthful sellers earn beyond their cost, from the exact curve of a market of the papers.

A seller who reports c earns the integral of eps(z) dz from c to the top of the prior's support (A,
Eq. 8). By the envelope theorem the optimal objective F of the buyer, as a function of the seller's
virtual cost y, has the slope gamma*eps(y). Where the virtual cost is affine in the report, as for
a uniform prior, the integral is therefore a difference of two optimal objectives, jumps of the
optimum between branches included. Elsewhere, and where the difference would lose digits, it is
computed by vectorised adaptive quadrature. Of many truthful sellers few are integrated, and the
others follow from these by polynomials (docs/theory.md, section 4).
Markets of another form are solved again, one report at a time
(:mod:`convexmarket.incentives.rents`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.polynomial import Chebyshev
from numpy.typing import NDArray
from scipy.optimize.elementwise import find_root

from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.errors import NotSupportedError, SolverError
from convexmarket.priors import Prior

__all__ = ["ACCURACY", "ACCURACY_BOUNDED", "information_rents", "last_sale"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Relative accuracy that the integrals are computed to.
ACCURACY = 1e-11
#: With a largest guarantee, where the curve has a kink for every seller at the bound.
ACCURACY_BOUNDED = 1e-8
#: Length, relative to the report, at which an interval with a jump is let be: it moves a payment
#: by less than this.
_SHORTEST = 1e-12
_MAX_DEPTH = 60
#: Sellers whose rents are all integrated; of more, some, and the others follow to this accuracy.
_MANY, _MANY_AFFINE, _ACCURACY_BETWEEN = 256, 10_000, 3e-11
#: Nodes of a polynomial, at least: where sellers are in clusters, several of 25 are the same.
_FEWEST = 16
#: Searches take an infinite virtual cost for this, and one right at the level for just above.
_FAR, _ABOVE = 1e200, 1e-300
#: Times that the level of the cap is looked for again, one seller's cost being there, until it
#: stands still.
_ROUNDS, _STILL = 20, 1e-9
#: Intervals of the quadrature, per interval at first; halving past this chases rounding.
_MOST_PIECES = 2_048


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
    truth = np.asarray(prior.ironed_virtual_cost(reports))
    slope = prior.virtual_cost_slope
    affine = slope is not None and np.isfinite(top)
    many = _MANY_AFFINE if affine else _MANY
    if seller.size >= many and np.all(truth == curve.form.virtual_costs[seller]):
        return _of_many(curve, prior, seller, reports)
    if slope is None or not affine:
        return _quadrature(curve, prior, seller, reports)
    own, per_objective = curve(seller, truth), 1.0 / (curve.form.gamma * slope)
    dearest = curve(seller, np.full(seller.size, prior.ironed_virtual_cost(top))).value
    rents = np.maximum(dearest - own.value, 0.0) * per_objective
    noise = np.finfo(float).eps * dearest * per_objective
    doubtful = noise > 10.0 * ACCURACY * (rents + reports * own.epsilon)
    if np.any(doubtful):
        rents[doubtful] = _quadrature(curve, prior, seller[doubtful], reports[doubtful])
    return rents


def _sold(curve: OwnReportCurve, prior: Prior, seller: Ints, z: Floats) -> Floats:
    """Return what each seller sells if it reports z, shape (n,)."""
    return curve(seller, np.asarray(prior.ironed_virtual_cost(z))).epsilon


def _of_many(curve: OwnReportCurve, prior: Prior, seller: Ints, reports: Floats) -> Floats:
    """Integrate the curves of some of many truthful sellers, whom the others follow.

    Their rents are a function of the report alone, with few kinks. Between these a polynomial
    through some of them is as good, which others show.
    """
    places, first, place = np.unique(reports, return_index=True, return_inverse=True)
    sold, rents = curve.truth[seller[first]], np.full(places.size, np.nan)
    capped = np.isclose(sold, sold.max(), rtol=1e-12, atol=0.0)
    kinks = np.searchsorted(places, prior.breakpoints, side="right")
    cuts = np.unique([*kinks, np.count_nonzero(capped), np.count_nonzero(sold)])
    stretches = [some for some in np.split(np.arange(places.size), cuts) if some.size]
    while stretches:
        through = [_nodes_among(places, some) for some in stretches]
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


def _nodes_among(places: Floats, some: Ints) -> Ints:
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
        bounded = curve.form.max_epsilon < np.inf
        accuracy = ACCURACY_BOUNDED if bounded else ACCURACY
        parts = _adaptive(epsilon, low, high, accuracy * scale[owner])
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
