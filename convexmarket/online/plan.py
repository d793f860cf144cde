r"""The plan behind the quotes: the buyer's problem with expectations in the place of sums.

Sellers still to come are known by the prior only. Let ``v = (p - psi)_+`` be the margin of a
random seller at the price p, and let a weight be ``a(c)/m`` with E[a] = 1. The buyer minimises

.. math:: \mu \sqrt{E[a^2]/m} + \sigma/\eta + \gamma\eta E[\psi a], \qquad 0 \le a \le k.

For a fixed eta this is convex, and as in A's Eq. (13) its optimum is ``a = min(v, w)/E[min(v, w)]``
for some p, with ``w = infinity`` where there is no cap. Without it the points that are stationary
in eta as well satisfy A's Eq. (14) in expectation, for lambda = gamma*p:

.. math:: p = \frac{\sigma\gamma m}{\mu^2} E[v^2] + \frac{E[v^2]}{E[v]}.

There can be several. As p falls from infinity to the cheapest virtual cost, eta rises from 0 to
infinity, so a walk over p meets every solution; with t = gamma*eta the optimum V(t) of the
fixed-eta problem is concave, and chords between the points of the walk prove a lower bound on
everything between them (see :mod:`convexmarket.allocation.search`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.exact import solve_exact
from convexmarket.errors import SolverError, UnattainedOptimumError
from convexmarket.market import StandardForm
from convexmarket.online.curves import Terms
from convexmarket.online.margins import Margins, margins_of
from convexmarket.online.shapes import ROUNDING, Buyer, cheapest_price, shape_at
from convexmarket.priors import EmpiricalPrior, Prior

__all__ = ["Plan", "Root", "algorithm_3", "plan_all"]

Floats = NDArray[np.float64]

_GRID = 257
_GAP = 1e-9
#: Of the largest guarantee, so much may hang on the last digit of the price.
_DIGITS = 1e-7
_MAX_REFINEMENTS = 100
#: Parts that a cell is divided into where the lower bound is lowest.
_SPLIT = 8
#: Stationary points whose objective is more than this times the best are not looked for.
_WORST = 16.0
#: Noise that is less than this share of the rest of the loss is nothing.
_VANISHED = 1e-12
#: How often a cell is halved in which a stationary point cannot be excluded.
_HALVINGS = 16
_MAX_DOUBLINGS = 1000
#: Where V would be less accurate than this, the walk ends.
_DIGITS = 1e-7


class Root(NamedTuple):
    """A stationary point of the expected problem.

    Attributes
    ----------
    price : float
        p; A's lambda is ``gamma*price``.
    eta : float
        Expected total of the guarantees.
    objective : float
    """

    price: float
    eta: float
    objective: float


@dataclass(frozen=True)
class Plan:
    """What the buyer does with any seller to come, and what that leads to in expectation.

    Attributes
    ----------
    terms : Terms
        Price, scale and largest guarantee.
    eta : float
        Expected total of all guarantees, those sold before included.
    objective : float
        The loss (A, Eq. 11) with expectations in the place of sums; infinite where nothing is
        bought. In a plan for the rest, what was paid before does not count.
    lower_bound : float
        No plan has a smaller one; NaN where nothing is proved.
    roots : tuple of Root
        All stationary points that were found, by price; the plan is the best of them.
    n_points : int
        Points at which the expected problem was evaluated.
    """

    terms: Terms
    eta: float
    objective: float
    lower_bound: float = np.nan
    roots: tuple[Root, ...] = ()
    n_points: int = 0

    @property
    def cutoff(self) -> float:
        """Virtual cost from which on nothing is bought."""
        return self.terms.price

    @property
    def gap(self) -> float:
        """Relative distance between objective and lower bound."""
        return (self.objective - self.lower_bound) / self.objective


class _Walk:
    """The optimal purchases for every eta, by their price."""

    def __init__(self, margins: Margins, buyer: Buyer) -> None:
        self.margins, self.buyer = margins, buyer
        self.base = cheapest_price(margins, buyer.cap)
        self.noise = buyer.sigma * buyer.gamma
        #: E[psi a] if only the cheapest are bought from; V never grows more slowly in t.
        self.cheapest = margins.lowest
        if np.isfinite(buyer.cap):
            first = float(margins.moments(np.array(self.base))[1])
            rounding = ROUNDING * (self.base + buyer.cap * first)
            cheapest = self.base - buyer.cap * first - rounding
            self.cheapest = max(margins.lowest, cheapest)

    def at(self, above: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return t = gamma*eta, V(t), E[psi a] and the error of V, by distance to the cheapest."""
        buyer = self.buyer
        shape = shape_at(self.margins, self.base + above, buyer.cap)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            norm = np.sqrt(shape.second / buyer.m) / shape.first
            t = buyer.mu / np.sqrt(buyer.m * shape.second)
            cost = shape.cost / shape.first
            spread = buyer.mu * norm
            value = spread + t * cost
        return t, value, cost, 2.0 * shape.doubt * value

    def objective(self, above: Floats) -> Floats:
        """Return the loss with expectations in the place of sums."""
        t, value, _, _ = self.at(above)
        return value + self.noise / t

    def slope(self, above: float) -> float:
        """Return a number with the sign of the objective's derivative in t."""
        t, _, cost, _ = self.at(np.array(above))
        return float(cost - self.noise / t / t)

    def range(self) -> tuple[float, float]:
        """Return distances above the cheapest price that enclose every minimiser.

        And every stationary point, t being between sqrt(noise/E[psi a]) for the dearest and the
        cheapest sellers; but none whose objective is more than ``_WORST`` times the best, and none
        where a cap leaves next to no choice whom to buy from.
        """
        low = high = self.margins.unit
        best = float(self.objective(np.array(high)))
        with np.errstate(divide="ignore"):
            first, last = np.sqrt(self.noise / np.array([self.margins.highest, self.cheapest]))
        for _ in range(_MAX_DOUBLINGS):
            t, value, _, _ = self.at(np.array(high))
            best = min(best, float(value + self.noise / t))
            worse = self.noise / t / best  # less privacy is worse by its noise alone
            if worse >= _WORST or (worse >= 1 and t <= first):
                break
            high *= 2.0
        for _ in range(_MAX_DOUBLINGS):
            t, value, _, doubt = self.at(np.array(0.5 * low))
            if not doubt <= _DIGITS * value:
                break
            low *= 0.5
            best = min(best, float(value + self.noise / t))
            worse = value / best  # more privacy is worse without any noise
            if worse >= _WORST or (worse >= 1 and t >= last):
                break
            if self.noise / t <= _VANISHED * value:
                break
        return low, high


def plan_all(prior: Prior, buyer: Buyer) -> Plan:
    """Return the best plan for all sellers, with all stationary points and a lower bound.

    Raises
    ------
    InfeasibleMarketError
        If the cap leaves no weights.
    UnattainedOptimumError
        If free sellers make eta run away.
    SolverError
        If costs and weights are further apart than double precision can weigh.
    """
    if isinstance(prior, EmpiricalPrior) and np.isfinite(buyer.cap):
        return _plan_sample(prior, buyer)
    margins = margins_of(prior)
    walk = _Walk(margins, buyer)
    above, t, value, cost, bound = _certified(walk)
    roots = _roots(walk, above, t, cost)
    ends = [_root(walk, float(above[int(np.argmin(value + walk.noise / t))]))]
    if cost[0] < walk.noise / t[0] / t[0]:  # beyond the walk the same sellers are bought from
        with np.errstate(divide="ignore"):
            t_best = float(np.sqrt(np.divide(walk.noise, cost[0])))
        spread = float(value[0] - t[0] * cost[0])
        best = spread + 2.0 * float(np.sqrt(walk.noise * cost[0]))
        ends.append(Root(walk.base + float(above[0]), t_best / buyer.gamma, best))
    chosen = min([*roots, *ends], key=lambda root: root.objective)
    _refuse_free_sellers(margins, buyer, chosen.objective)
    terms = _terms(margins, buyer, chosen)
    if not (_is_carried(terms, margins) and np.isfinite(chosen.objective)):
        raise _too_far_apart(margins, buyer)
    plan = Plan(
        terms=terms,
        eta=chosen.eta,
        objective=chosen.objective,
        lower_bound=min(bound, chosen.objective),
        roots=roots,
        n_points=int(t.size),
    )
    if isinstance(prior, EmpiricalPrior) and not plan.gap <= _GAP:
        return replace(_plan_sample(prior, buyer), roots=roots)
    return plan


def _certified(walk: _Walk) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Walk until a lower bound on the objective meets the best point.

    Returns
    -------
    above, t, value, cost : ndarray, shape (n,)
        Distances to the cheapest price, rising, and what :meth:`_Walk.at` says there.
    bound : float
    """
    above = np.geomspace(*walk.range(), _GRID)
    t, value, cost, doubt = walk.at(above)
    known = np.isfinite(value) & (t > 0) & np.isfinite(t)
    if not (known[0] and known[-1]):  # the bound is about all that lies between them
        raise _too_far_apart(walk.margins, walk.buyer)
    above, t, value, cost, doubt = (part[known] for part in (above, t, value, cost, doubt))
    for _ in range(_MAX_REFINEMENTS):
        objective = value + walk.noise / t
        best = float(objective.min())
        where, bound = _lowest_bound(walk, t, value - doubt)
        if best - bound <= _GAP * best:
            break
        cell = int(np.clip(np.searchsorted(-t, -where), 1, t.size - 1))  # t falls with p
        between = np.geomspace(above[cell - 1], above[cell], _SPLIT + 1)[1:-1]
        if not above[cell - 1] < between[0] < between[-1] < above[cell]:
            break
        above = np.insert(above, cell, between)
        t, value, cost, doubt = (
            np.insert(old, cell, added)
            for old, added in zip((t, value, cost, doubt), walk.at(between), strict=True)
        )
    return above, t, value, cost, bound


def _lowest_bound(walk: _Walk, t: Floats, proven: Floats) -> tuple[float, float]:
    """Return where a lower bound on the objective is lowest, and that bound.

    From each point of the walk, where V is proven to be so high, V lies above the chord to the next
    one, and above a line of the least slope. No minimiser has a t above the last one here.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        last = max(t[0], np.sqrt(np.divide(walk.noise, walk.cheapest)))
        left, right = np.append(t, 0.0), np.append(last, t)  # t falls
        start = np.append(proven, walk.buyer.mu / np.sqrt(walk.buyer.m))
        slope = np.fmax(np.append(0.0, np.diff(start) / np.diff(left)), walk.cheapest)
        at = np.clip(np.sqrt(walk.noise / slope), np.maximum(left, t[-1]), right)
        bound = start + np.fmax(slope * (at - left), 0.0) + walk.noise / at
    least = int(np.argmin(bound))
    return float(at[least]), float(bound[least])


def _refuse_free_sellers(margins: Margins, buyer: Buyer, objective: float) -> None:
    """Raise UnattainedOptimumError if buying ever more from free sellers is better."""
    free = float(margins.moments(np.array(margins.lowest))[0]) if margins.lowest == 0 else 0.0
    enough = free > 0 and free * buyer.cap >= 1
    if enough and objective >= buyer.mu / np.sqrt(free * buyer.m):
        raise UnattainedOptimumError(
            "sellers with virtual cost 0 can carry all the weight, and buying ever more privacy "
            "from them lowers the loss without reaching its infimum; give a prior whose "
            "support starts above 0, or a tighter cap"
        )


def _is_carried(terms: Terms, margins: Margins) -> bool:
    """Whether the last digit of the price moves no guarantee by much of the largest one."""
    largest = min(terms.scale * (terms.price - margins.lowest), terms.largest)
    return 0 < terms.scale < np.inf and np.spacing(terms.price) * terms.scale <= _DIGITS * largest


def _too_far_apart(margins: Margins, buyer: Buyer) -> SolverError:
    return SolverError(
        f"virtual costs from {margins.lowest:g} to {margins.highest:g}, mu = {buyer.mu:g}, "
        f"sigma = {buyer.sigma:g} and gamma = {buyer.gamma:g} are further apart than double "
        "precision can weigh; bring them closer"
    )


def _plan_sample(prior: EmpiricalPrior, buyer: Buyer) -> Plan:
    """Return the best plan where the prior is a sample: exactly.

    With N sellers of equal probability the expected problem is A's Eq. (11) of these N, with mu
    multiplied by sqrt(N/m), as m sellers spread N times less or more.
    """
    n = prior.size
    costs = np.repeat(np.asarray(prior.ironed_virtual_cost(prior.values)), prior.counts)
    mu = buyer.mu * np.sqrt(n / buyer.m)
    cap = min(1.0, buyer.cap / n)
    found = solve_exact(StandardForm(costs, mu, buyer.sigma, buyer.gamma, cap))
    eta = found.eta
    price = found.multiplier / buyer.gamma
    norm = float(np.sqrt(found.weights @ found.weights))
    # Below the cap, mu*a = (lambda - gamma*psi)*eta*||a|| (A, Eq. 13), and eps = a*N*eta/m.
    scale = buyer.gamma * eta * eta * norm / mu * n / buyer.m
    terms = Terms(price, scale, buyer.cap * eta / buyer.m)
    margins = margins_of(prior)
    if not _is_carried(terms, margins):
        raise _too_far_apart(margins, buyer)
    root = Root(price, eta, found.objective)
    return Plan(terms, eta, found.objective, found.lower_bound, (root,), 1)


def _roots(walk: _Walk, above: Floats, t: Floats, cost: Floats) -> tuple[Root, ...]:
    """Return the stationary points between the points of the walk, by price.

    They are where the cost ``E[psi a]``, which never rises with t, meets ``noise/t^2``, which
    falls: so values at the ends exclude most cells, and the others are halved.
    """
    for _ in range(_HALVINGS):
        wanted = walk.noise / t / t  # rises with the price, as t falls
        possible = (cost[:-1] <= wanted[1:]) & (cost[1:] >= wanted[:-1])
        cells = np.flatnonzero(possible)
        between = np.sqrt(above[cells] * above[cells + 1])
        t_new, _, cost_new, _ = walk.at(between)
        above, t, cost = (
            np.insert(old, cells + 1, new)
            for old, new in ((above, between), (t, t_new), (cost, cost_new))
        )
    slope = cost - walk.noise / t / t
    crossing = np.flatnonzero((slope[:-1] > 0) != (slope[1:] > 0)).tolist()
    roots = (_root(walk, _zero(walk, above[cell], above[cell + 1])) for cell in crossing)
    return tuple(root for root in roots if np.isfinite(root.objective))


def _zero(walk: _Walk, low: float, high: float) -> float:
    """Return where the slope changes its sign."""
    ends = walk.slope(low), walk.slope(high)
    if not ends[0] > 0 > ends[1] and not ends[0] < 0 < ends[1]:  # for rounding
        return float(np.sqrt(low * high))
    return float(brentq(walk.slope, low, high, xtol=1e-300, rtol=1e-14))


def _root(walk: _Walk, above: float) -> Root:
    t, value, _, _ = walk.at(np.array(above))
    price, eta = walk.base + above, float(t) / walk.buyer.gamma
    return Root(price, eta, float(value + walk.noise / t))


def _terms(margins: Margins, buyer: Buyer, root: Root) -> Terms:
    first = float(shape_at(margins, np.array(root.price), buyer.cap).first)
    scale = root.eta / (buyer.m * first)
    largest = buyer.cap * root.eta / buyer.m
    return Terms(root.price, scale, largest)


def algorithm_3(buyer: Buyer, density: float, margins: Margins) -> Plan:
    """Return A's Algorithm 3: the leading order of the plan for many sellers.

    Parameters
    ----------
    buyer : Buyer
        Without a cap.
    density : float
        Of the virtual cost, at 0.
    margins : Margins
        For what the plan leads to.
    """
    cutoff = np.sqrt(buyer.mu**2 * buyer.gamma / (buyer.sigma * buyer.m * density))
    price = float(cutoff / buyer.gamma)
    scale = 2.0 * np.sqrt(3.0) * buyer.gamma**2.5 * buyer.mu
    scale /= density**1.5 * buyer.m**1.5 * cutoff**3.5
    _, first, second = margins.moments(np.array(price))
    eta = buyer.m * scale * float(first)
    norm = scale * float(np.sqrt(buyer.m * second))
    cost = buyer.m * scale * float(price * first - second)
    return Plan(Terms(price, float(scale)), eta, float(buyer.loss(norm, eta, cost)))
