r"""Solve the buyer's problem with expectations instead of sums over the sellers.

Let E and Q be the sums of the guarantees sold so far and of their squares, initially 0. The buyer
chooses the guarantees of the n remaining sellers to minimise

.. math:: (\mu N + \sigma)/S + \gamma n E[\psi\epsilon], \qquad
          N^2 = Q + n E[\epsilon^2],\quad S = E + n E[\epsilon],\quad \epsilon \le k S/m.

For a given S, the optimum is ``eps = b*min(v, w)`` (A, Eq. 13, in expectation). Here
``v = (p - psi)_+`` is the margin at a price p, ``b = gamma*S*N/mu``, and ``b*w = k*S/m`` with a
cap. N determines w and a unique price, so a search over N covers all optima. Let G(S, r) be the
minimum of ``r*mu*N + gamma*n*E[psi*eps]``. By duality, any p, b and w yield a minorant of G that is
affine in S, for one r. G is concave in r, so chords in r of minorants bound the loss ``G(S, 1/S) +
sigma/S`` from below. The search divides intervals until this bound certifies the best point. For a
prior with a density, two sets of atoms bound the loss (:mod:`convexmarket.online.atoms`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.errors import InfeasibleMarketError, SolverError, UnattainedOptimumError
from convexmarket.online.atoms import Atoms, atoms_of, cells_of
from convexmarket.priors import EmpiricalPrior, Prior

Floats = NDArray[np.float64]

#: Largest relative gaps of a search and of a plan, and number of refinements of the atoms.
_WALK, _GAP, _REFINEMENTS = 1e-10, 1e-9, 2
#: Largest power of 4 among the first norms, number of parts of an interval, and number of rounds.
#: If ``_MANY`` intervals are undecided, a search stops because of rounding errors.
_REACH, _PARTS, _ROUNDS, _MANY = 100.0, 6, 40, 300
_STEPS = 100
_ROUNDING = 8.0 * float(np.finfo(float).eps)
#: Largest relative error of a guarantee that the rounding error of the price can cause.
_DIGITS = 1e-7


@dataclass(frozen=True)
class Buyer:
    """Weights of the buyer's objective (A, Eq. 11), number m of sellers, and cap k (or inf).

    Examples
    --------
    >>> from convexmarket.online import Buyer
    >>> Buyer(mu=1.0, sigma=1.0, gamma=0.1, m=100).loss(norm=0.1, eta=20.0, cost=2.0)
    0.255
    """

    mu: float
    sigma: float
    gamma: float
    m: int
    cap: float = np.inf

    def loss(self, norm: Any, eta: Any, cost: Any) -> Any:
        """Compute ``mu*||eps||/eta + sigma/eta + gamma*psi'eps``.

        Parameters
        ----------
        norm : float
            Euclidean norm of the guarantees.
        eta : float > 0
        cost : float
            Total virtual cost psi'eps.
        """
        return (self.mu * norm + self.sigma) / eta + self.gamma * cost


@dataclass(frozen=True)
class Terms:
    """Virtual cost at which sales end, guarantee per unit of margin, and largest guarantee."""

    price: float
    scale: float
    largest: float = np.inf

    def epsilon(self, costs: Floats) -> Floats:
        """Compute the guarantees at virtual costs, which can be +inf."""
        return np.minimum(self.scale * np.maximum(self.price - costs, 0.0), self.largest)


@dataclass(frozen=True)
class Plan:
    """Terms for the remaining sellers, and the expected outcome.

    Attributes
    ----------
    terms : Terms
    eta : float
        Expected total of all guarantees, including guarantees sold earlier.
    objective : float
        Expected loss (A, Eq. 11) without earlier payments, or inf if nothing is bought.
    lower_bound : float
        Lower bound on the loss of every plan, or NaN if unknown.

    Examples
    --------
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(0, 1), 10, mu=1, sigma=1, gamma=1)
    >>> round(policy.plan.eta, 2), policy.plan.gap < 1e-9
    (2.59, True)
    """

    terms: Terms
    eta: float
    objective: float
    lower_bound: float = np.nan

    @property
    def cutoff(self) -> float:
        """Virtual cost above which nothing is bought."""
        return self.terms.price

    @property
    def gap(self) -> float:
        """Difference between the objective and the lower bound, relative to the objective."""
        return (self.objective - self.lower_bound) / self.objective


class _Points(NamedTuple):
    """Points of a search, as arrays of equal shape.

    ``new`` is the norm of the new guarantees, and ``norm`` is the norm of all guarantees. ``price``
    is relative to the lowest cost. ``level + slope*S`` is a lower bound on G(S, rate) for any S.
    """

    new: Floats
    norm: Floats
    price: Floats
    value: Floats
    rate: Floats
    level: Floats
    slope: Floats


@dataclass(frozen=True)
class _Market:
    """Buyer's problem for n remaining sellers, given the sums of earlier guarantees and squares."""

    atoms: Atoms
    buyer: Buyer
    n: int
    total: float
    squares: float

    def walk(self, near: _Points | None = None) -> tuple[Plan, float, _Points | None]:
        """Return the best plan, its price relative to ``lowest``, and all points if certified."""
        buyer, points = self.buyer, self._start(near)
        if not points.new.size:
            raise _too_far_apart(self)
        for _ in range(_ROUNDS):
            proven, bound = self._bounds(points)
            bad = np.flatnonzero(proven < points.value.min() * (1.0 - _WALK))
            if not 0 < bad.size < _MANY:
                break
            parts = np.arange(1, _PARTS) / _PARTS
            between = points.new[bad, None] + np.diff(points.new)[bad, None] * parts
            points = _merged(points, self._at(between.ravel(), points))
        new, norm, price, value, rate, *_ = self._polished(points)
        known = None if bad.size else points
        if new == 0:
            return Plan(Terms(self.atoms.lowest, 0.0), self.total, value, bound), 0.0, known
        scale, largest = buyer.gamma * norm / buyer.mu / rate, buyer.cap / buyer.m / rate
        best = _outcome(self, Terms(self.atoms.lowest + price, scale, largest))
        terms = replace(best.terms, largest=buyer.cap * best.eta / buyer.m)
        return replace(best, terms=terms, lower_bound=min(bound, best.objective)), price, known

    def _start(self, near: _Points | None) -> _Points:
        """Compute points for norms of many magnitudes (or ``near``), and without new purchases."""
        atoms, buyer = self.atoms, self.buyer
        first = atoms.shape(np.array([atoms.unit]), np.array([np.inf])).first
        new = buyer.mu / (buyer.gamma * self.n * first) * 4.0 ** np.arange(-_REACH, _REACH + 1.0)
        if near is not None:
            new = near.new[near.new > 0]
        if self.total == 0:
            return self._at(new, near)
        if self.is_limited:  # at the last point, the cap binds for all remaining sellers
            part = buyer.cap / buyer.m
            eta = self.total / (1.0 - part * self.n * atoms.masses.sum())
            most = np.array([part * eta * np.sqrt(self.n * atoms.masses.sum())])
            points = _merged(self._at(new[new < most], near), self._at(most, at_most=True))
        else:
            points = self._at(new, near)
        norm = np.sqrt(self.squares)
        slope = buyer.gamma * atoms.lowest
        level = buyer.mu * norm / self.total - slope * self.total * (1.0 + _ROUNDING)
        nothing = (0, norm, 0, buyer.loss(norm, self.total, 0.0), 1.0 / self.total, level, slope)
        return _merged(_Points(*(np.array([entry]) for entry in nothing)), points)

    @property
    def is_limited(self) -> bool:
        """Whether the cap limits the total because too few sellers remain."""
        return self.buyer.cap * self.n * float(self.atoms.masses.sum()) < self.buyer.m

    def _at(self, new: Floats, near: _Points | None = None, at_most: bool = False) -> _Points:
        """Compute points below the cap or, if ``at_most``, at the cap, from prices of ``near``."""
        buyer, n = self.buyer, self.n
        norm = np.hypot(np.sqrt(self.squares), new)
        share = buyer.cap / buyer.m if np.isfinite(buyer.cap) else 0.0
        width = share * buyer.mu / buyer.gamma / norm if share else np.full_like(norm, np.inf)
        if at_most:
            price = (self.atoms.above[-1] + width) * (1.0 + _ROUNDING)
        else:
            guess = np.full_like(new, self.atoms.unit)
            if near is not None:
                guess = np.interp(new, near.new, near.price)
            price = self._price(new, norm, width, guess)
        shape = self.atoms.shape(price, width)
        with np.errstate(all="ignore"):
            scale = new / np.sqrt(n * shape.second)
            total = self.total + n * scale * shape.first
            value = buyer.loss(norm, total, n * scale * shape.cost)
            rate, paid = buyer.gamma * norm / buyer.mu / scale, self.atoms.lowest + price
            slope = buyer.gamma * (paid * (1.0 - 2.0 * _ROUNDING) - share * n * shape.beyond)
            level = self.squares / scale - paid * self.total * (1.0 + _ROUNDING)
            # If the relative error of ``rate`` is e, the relative error of G is at most e.
            safe = 1.0 - _ROUNDING * (1.0 + price * price * shape.share / shape.second)
        points = _Points(new, norm, price, value, rate, safe * buyer.gamma * level, safe * slope)
        known = np.isfinite(points).all(axis=0) & (safe > 0.5)
        return _Points(*(part[known] for part in points))

    def _price(self, new: Floats, norm: Floats, width: Floats, guess: Floats) -> Floats:
        """Solve ``gamma*S*N = mu*b`` for the prices by Newton's method with a bracket."""
        mu, gamma, n, before = self.buyer.mu, self.buyer.gamma, self.n, self.total
        low = np.full(new.shape, self.atoms.unit * 1e-150)
        high = np.full(new.shape, self.atoms.unit * 1e130)
        price = high
        reached: Any = True
        for step in range(_STEPS):
            shape = self.atoms.shape(price, width)
            with np.errstate(all="ignore"):
                root = np.sqrt(n * shape.second)
                excess = gamma * norm * (before * root + n * new * shape.first) - mu * new
                rise = before * n * shape.margin / root + n * new * shape.share
                newton = price - excess / (gamma * norm * rise)
            if step == 0:
                reached, newton = excess >= 0, guess
            low, high = np.where(excess < 0, price, low), np.where(excess < 0, high, price)
            inside = (low <= newton) & (newton <= high)
            following = np.where(inside, newton, np.sqrt(low) * np.sqrt(high))
            moved = np.abs(following - price) > 1e-13 * price
            price = following
            if step and not moved.any():
                break
        return np.where(reached, price, np.nan)

    def _bounds(self, points: _Points) -> tuple[Floats, float]:
        """Compute lower bounds on the loss between neighbouring points, and on all losses."""
        sigma, rate = self.buyer.sigma, np.minimum.accumulate(points.rate)
        level, slope = points.level * rate / points.rate, points.slope * rate / points.rate
        value = level + slope / rate + sigma * rate
        left, right = slice(None, -1), slice(1, None)
        step = rate[left] - rate[right]
        with np.errstate(all="ignore"):
            along = (level[left] - level[right]) / step + sigma
            across = (rate[left] * slope[right] - rate[right] * slope[left]) / step
            at = np.nan_to_num(np.sqrt(across / along))
            at = np.clip(at, rate[right], rate[left])
            part = (rate[left] - at) / step
            between = (1.0 - part) * (level[left] + slope[left] / at) + sigma * at
            between += part * (level[right] + slope[right] / at)
            # G/r does not increase in r, because G is concave in r and G(S, 0) >= 0.
            tangent = (level[left] + slope[left] / rate[right]) / rate[left] + sigma
        between = np.fmax(between, rate[right] * tangent)
        proven = np.fmin(between, np.minimum(value[left], value[right]))
        first = sigma * rate if self.total == 0 else value
        last = value if self.is_limited else np.minimum(value, slope / rate)
        bound = float(min(first[0], last[-1], proven.min(initial=np.inf)))
        return proven, bound * (1.0 - _ROUNDING)

    def _polished(self, points: _Points) -> list[float]:
        """Refine the best point to a stationary point of the loss."""
        rise = points.slope / points.rate**2 - self.buyer.mu * points.norm - self.buyer.sigma
        known = dict(zip(points.new.tolist(), rise.tolist(), strict=True))

        def slope(new: float) -> float:
            if new in known:
                return known[new]
            at = self._at(np.array([new]), points)
            if not at.new.size:  # beyond the cap
                return self.buyer.sigma
            return float((at.slope / at.rate**2 - self.buyer.mu * at.norm - self.buyer.sigma)[0])

        best = int(np.argmin(points.value))
        low, high = points.new[max(best - 1, 0)], points.new[min(best + 1, points.new.size - 1)]
        if 0 < low < high and slope(low) < 0 < slope(high):
            new = brentq(slope, low, high, xtol=1e-300, rtol=1e-15)
            points = _merged(points, self._at(np.array([new]), points))
            best = int(np.argmin(np.abs(points.new - new)))
        return [float(part[best]) for part in points]


def _merged(some: _Points, others: _Points) -> _Points:
    """Merge two sets of points in increasing order of the norm ``new``."""
    order = np.argsort(np.concatenate((some.new, others.new)), kind="stable")
    return _Points(*(np.concatenate(pair)[order] for pair in zip(some, others, strict=True)))


@lru_cache(maxsize=32)  # policies are often created again for the same market
def plan(
    prior: Prior,
    buyer: Buyer,
    n: int | None = None,
    total: float = 0.0,
    squares: float = 0.0,
    gap: float = 1e-9,
) -> Plan:
    """Compute the best plan for n remaining sellers (by default, all) and a bound on the loss.

    ``total`` and ``squares`` are the sums of the guarantees sold so far and of their squares. Cells
    of the prior are refined until the relative gap is at most ``gap``.
    """
    n = buyer.m if n is None else n
    if not buyer.cap > 1.0 and total == 0:
        raise InfeasibleMarketError(
            f"cap is {buyer.cap:g}: weights of at most cap times the average cannot sum to one; "
            "give a cap > 1"
        )
    if isinstance(prior, EmpiricalPrior):
        return plan_atoms(atoms_of(prior), buyer, n, total, squares)
    cells = cells_of(prior)
    _, price, points = _Market(cells.inner, buyer, n, total, squares).walk()
    size = int(gap**-0.5)
    for _ in range(_REFINEMENTS):
        lowest = cells.inner.lowest
        cells = cells.refined(size, lowest, lowest + 1.25 * price)
        market = _Market(cells.inner, buyer, n, total, squares)
        best, price, points = market.walk(points)
        outer, other, _ = _Market(cells.outer, buyer, n, total, squares).walk(points)
        bound = min(best.lower_bound, outer.lower_bound)
        best = replace(_between(best, outer, buyer), lower_bound=bound)
        if best.gap <= gap:
            break
        price, size = max(price, other), 4 * size
    _check(market, best)
    return best


def plan_atoms(atoms: Atoms, buyer: Buyer, n: int, total: float, squares: float) -> Plan:
    """Compute the plan for finitely many virtual costs."""
    market = _Market(atoms, buyer, n, total, squares)
    best = market.walk()[0]
    _check(market, best)
    return best


def _between(inner: Plan, outer: Plan, buyer: Buyer) -> Plan:
    """Combine the terms for the means and for the ends of cells into more accurate terms.

    On a cell of width D with uniform density, the variance is too small by D^2/12 for means, and
    too large by D^2/6 for ends. Weights of 2/3 and 1/3 cancel these errors to leading order.
    """
    some, others = inner.terms, outer.terms
    if not abs(some.price - others.price) < 1e-6 * some.price or not some.scale * others.scale > 0:
        return inner  # the plans differ too much
    eta = (2.0 * inner.eta + outer.eta) / 3.0
    price, scale = (2.0 * some.price + others.price) / 3.0, (2.0 * some.scale + others.scale) / 3.0
    return replace(inner, terms=Terms(price, scale, buyer.cap * eta / buyer.m), eta=eta)


def _check(market: _Market, best: Plan) -> None:
    """Raise an error if no optimum exists, or if the gap or price is too inaccurate."""
    atoms, buyer, terms = market.atoms, market.buyer, best.terms
    free = float(atoms.masses[0]) if atoms.lowest == 0 and market.total == 0 else 0.0
    if free * buyer.cap >= 1 and best.objective >= buyer.mu / np.sqrt(free * buyer.m):
        raise UnattainedOptimumError(
            "no optimum exists: sellers with virtual cost 0 can have all the weight, and more "
            "privacy from these sellers always decreases the loss; give a prior whose support "
            "starts above 0, or a smaller cap"
        )
    largest = min(terms.scale * (terms.price - atoms.lowest), terms.largest)
    lost = np.spacing(terms.price) * terms.scale
    if not (best.gap < 0.5 and lost <= _DIGITS * largest):
        raise _too_far_apart(market)


def _too_far_apart(market: _Market) -> SolverError:
    atoms, buyer = market.atoms, market.buyer
    return SolverError(
        f"virtual costs from {atoms.lowest:g} to {atoms.lowest + atoms.above[-1]:g} and {buyer} "
        "differ by too many orders of magnitude for double precision; rescale the costs or weights"
    )


def algorithm_3(prior: Prior, buyer: Buyer, density: float) -> Plan:
    """Compute the plan of A's Algorithm 3, an approximation for many sellers without a cap.

    ``density`` is the density of the virtual cost at 0.
    """
    cutoff = np.sqrt(buyer.mu**2 * buyer.gamma / (buyer.sigma * buyer.m * density))
    scale = 2.0 * np.sqrt(3.0) * buyer.gamma**2.5 * buyer.mu
    scale /= density**1.5 * buyer.m**1.5 * cutoff**3.5
    terms = Terms(float(cutoff / buyer.gamma), float(scale))
    atoms = cells_of(prior).refined(int(_GAP**-0.5), 0.0, terms.price).inner
    return _outcome(_Market(atoms, buyer, buyer.m, 0.0, 0.0), terms)


def _outcome(market: _Market, terms: Terms) -> Plan:
    """Compute the expected outcome of given terms by sums over the atoms."""
    atoms, n = market.atoms, market.n
    epsilon = terms.epsilon(atoms.lowest + atoms.above)
    sold = n * atoms.masses * epsilon
    eta = market.total + float(sold.sum())
    norm = float(np.sqrt(market.squares + sold @ epsilon))
    cost = atoms.lowest * float(sold.sum()) + float(sold @ atoms.above)
    return Plan(terms, eta, float(market.buyer.loss(norm, eta, cost)))
