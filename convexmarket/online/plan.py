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

A plan can also start in the middle, after sellers have sold a total E of privacy whose squares sum
to Q. The rest of the plan then minimises, over the guarantees of those still to come,

.. math:: (\mu\sqrt{Q + m' E[\epsilon^2]} + \sigma)/S + \gamma m' E[\psi\epsilon],
          \qquad S = E + m' E[\epsilon],

again by margins: for each S there is one price.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.bounds import OuterProblem, lowest_bound
from convexmarket.allocation.exact import solve_exact
from convexmarket.errors import InfeasibleMarketError, UnattainedOptimumError
from convexmarket.market import StandardForm
from convexmarket.online.curves import Terms
from convexmarket.online.margins import Margins, margins_of
from convexmarket.priors import EmpiricalPrior, Prior

__all__ = ["Buyer", "Plan", "Root", "algorithm_3", "plan_all", "plan_rest"]

Floats = NDArray[np.float64]

_GRID = 257
_GAP = 1e-9
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
#: Error of a sum of moments by rounding, relative to its largest terms.
_ROUNDING = 8.0 * float(np.finfo(float).eps)
_BISECTIONS = 60
#: Totals tried for the rest of a plan.
_TOTALS = 129
#: Then the best of them and its neighbours are looked at closer, this often, with so many more.
_ZOOMS = 5
_CLOSER = 16


@dataclass(frozen=True)
class Buyer:
    """What the buyer wants (A, Eq. 11), and how many sellers are expected.

    Attributes
    ----------
    mu, sigma, gamma : float
    m : int
        Sellers expected in all.
    cap : float
        k; infinite where there is none.
    """

    mu: float
    sigma: float
    gamma: float
    m: int
    cap: float = np.inf

    def loss(self, norm: Any, eta: Any, cost: Any) -> Any:
        """Return ``mu*||eps||/eta + sigma/eta + gamma*psi'eps``."""
        return (self.mu * norm + self.sigma) / eta + self.gamma * cost


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


@dataclass(frozen=True)
class _Shape:
    """Moments of ``min(v, w)`` at prices p: how purchases are shared out, up to a factor.

    Attributes
    ----------
    width : w, where the cap binds; else the largest margin
    first, second, cost : E[min(v, w)], E[min(v, w)^2], E[psi*min(v, w)]
    doubt : relative error of ``second`` by rounding
    """

    width: Floats
    first: Floats
    second: Floats
    cost: Floats
    doubt: Floats


def _shape(margins: Margins, price: Floats, cap: Floats | float) -> _Shape:
    """Return the shape at each price, its largest weight ``w/E[min(v, w)]`` at most the cap."""
    share, first, second = margins.moments(price)
    width = np.maximum(price - margins.lowest, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rounding = _ROUNDING * share * width * width
        capped = width > cap * first
        if not np.any(capped):
            doubt = np.minimum(rounding / second, 1.0)
            return _Shape(width, first, second, price * first - second, doubt)
    # E[min(v, w)]/w falls from P(psi <= p) to E[v]/(p - lowest): find the last w where it is 1/cap,
    # up to rounding, as there may be a range of them.
    slack = _ROUNDING * first
    low, high = np.zeros_like(width), width
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        under = first - margins.moments(price - middle)[1] >= middle / cap - slack
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    width = np.where(capped, low, width)
    _, first_full, second_full = margins.moments(price - width)
    full = capped * first_full
    first = np.where(capped, width / cap, first)
    second = second - capped * second_full - 2.0 * width * full
    with np.errstate(divide="ignore", invalid="ignore"):  # digits are lost where w is small
        second = np.clip(second, first * first / share, width * first)
        doubt = np.minimum(rounding / second, 1.0)
    return _Shape(width, first, second, price * first - second - width * full, doubt)


def _cheapest_price(margins: Margins, cap: float) -> float:
    """Return the price below which a share of 1/cap of the sellers, which is needed, is not met."""
    low, high = margins.lowest, margins.lowest + margins.unit
    if np.isinf(cap) or margins.moments(np.array(low))[0] * cap > 1:
        return low
    for _ in range(_MAX_DOUBLINGS):
        if margins.moments(np.array(high))[0] * cap > 1:
            break
        high = low + 2.0 * (high - low)
    else:
        raise InfeasibleMarketError(
            f"cap is {cap:g}: weights of at most that times the average cannot sum to one; give a "
            "cap > 1"
        )
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        if margins.moments(np.array(middle))[0] * cap > 1:
            high = middle
        else:
            low = middle
    return high


class _Walk:
    """The optimal purchases for every eta, by their price."""

    def __init__(self, margins: Margins, buyer: Buyer) -> None:
        self._margins, self.buyer = margins, buyer
        self.base = _cheapest_price(margins, buyer.cap)
        self.noise = buyer.sigma * buyer.gamma
        #: E[psi a] if only the cheapest are bought from; V never grows more slowly in t.
        self.cheapest = margins.lowest
        if np.isfinite(buyer.cap):
            first = float(margins.moments(np.array(self.base))[1])
            self.cheapest = self.base - buyer.cap * first

    def at(self, above: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return t = gamma*eta, V(t), E[psi a] and the error of V, by distance to the cheapest."""
        buyer = self.buyer
        shape = _shape(self._margins, self.base + above, buyer.cap)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            norm = np.sqrt(shape.second / buyer.m) / shape.first
            t = buyer.mu / np.sqrt(buyer.m * shape.second)
            cost = shape.cost / shape.first
            spread = buyer.mu * norm
            value = spread + t * cost
        return t, value, cost, 2.0 * shape.doubt * value

    def objective(self, above: Floats) -> Floats:
        """Return the expected loss."""
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
        low = high = self._margins.unit
        best = float(self.objective(np.array(high)))
        with np.errstate(divide="ignore"):
            first, last = np.sqrt(self.noise / np.array([self._margins.highest, self.cheapest]))
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
    """
    if isinstance(prior, EmpiricalPrior) and np.isfinite(buyer.cap):
        return plan_sample(prior, buyer)
    margins = margins_of(prior)
    walk = _Walk(margins, buyer)
    low, high = walk.range()
    above = np.geomspace(low, high, _GRID)
    t, value, cost, doubt = walk.at(above)
    with np.errstate(divide="ignore"):
        farthest = np.sqrt(np.divide(walk.noise, walk.cheapest))  # no minimiser has a larger t
    for _ in range(_MAX_REFINEMENTS):
        objective = value + walk.noise / t
        best = float(objective.min())
        outer = OuterProblem(
            walk.noise,
            float(t.min()),
            float(max(t[0], farthest)),
            ((0.0, buyer.mu / np.sqrt(buyer.m)),),
            walk.cheapest,
        )
        candidate = lowest_bound(
            outer, list(zip(t.tolist(), (value - doubt).tolist(), strict=True))
        )
        if best - candidate.bound <= _GAP * best:
            break
        cell = int(np.clip(np.searchsorted(-t, -candidate.t), 1, t.size - 1))  # t falls with p
        between = np.geomspace(above[cell - 1], above[cell], _SPLIT + 1)[1:-1]
        if not above[cell - 1] < between[0] < between[-1] < above[cell]:
            break
        above = np.insert(above, cell, between)
        t, value, cost, doubt = (
            np.insert(old, cell, added)
            for old, added in zip((t, value, cost, doubt), walk.at(between), strict=True)
        )
    roots = _roots(walk, above, t, cost)
    ends = [_root(walk, float(above[int(np.argmin(value + walk.noise / t))]))]
    if cost[0] < walk.noise / t[0] / t[0]:  # beyond the walk the same sellers are bought from
        t_best = float(np.sqrt(walk.noise / cost[0]))
        spread = float(value[0] - t[0] * cost[0])
        best = spread + 2.0 * float(np.sqrt(walk.noise * cost[0]))
        ends.append(Root(walk.base + float(above[0]), t_best / buyer.gamma, best))
    chosen = min([*roots, *ends], key=lambda root: root.objective)
    free = float(margins.moments(np.array(margins.lowest))[0]) if margins.lowest == 0 else 0.0
    if (
        free * min(buyer.cap, buyer.m) > 1
        and chosen.objective * np.sqrt(free * buyer.m) >= buyer.mu
    ):
        raise UnattainedOptimumError(
            "sellers with virtual cost 0 can carry all the weight, and buying ever more privacy "
            "from them lowers the expected loss without reaching its infimum; give a prior whose "
            "support starts above 0, or a tighter cap"
        )
    return Plan(
        terms=_terms(margins, buyer, chosen),
        eta=chosen.eta,
        objective=chosen.objective,
        lower_bound=min(candidate.bound, chosen.objective),
        roots=roots,
        n_points=int(t.size),
    )


def plan_sample(prior: EmpiricalPrior, buyer: Buyer) -> Plan:
    """Return the best plan under a cap where the prior is a sample: exactly.

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
    return tuple(_root(walk, _zero(walk, above[cell], above[cell + 1])) for cell in crossing)


def _zero(walk: _Walk, low: float, high: float) -> float:
    """Return where the slope changes its sign."""
    if (walk.slope(low) > 0) == (walk.slope(high) > 0):  # by rounding, alone or among others
        return float(np.sqrt(low * high))
    return float(brentq(walk.slope, low, high, xtol=1e-300, rtol=1e-14))


def _root(walk: _Walk, above: float) -> Root:
    t, value, _, _ = walk.at(np.array(above))
    price, eta = walk.base + above, float(t) / walk.buyer.gamma
    return Root(price, eta, float(value + walk.noise / t))


def _terms(margins: Margins, buyer: Buyer, root: Root) -> Terms:
    first = float(_shape(margins, np.array(root.price), buyer.cap).first)
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


def plan_rest(margins: Margins, buyer: Buyer, remaining: int, total: float, squares: float) -> Plan:
    """Return a plan for the sellers still to come, given what was sold already.

    The best of a search over the total; nothing is proved of it.

    Parameters
    ----------
    margins : Margins
    buyer : Buyer
    remaining : int
        How many are still to come, at least 1.
    total, squares : float
        Sums of the guarantees sold so far, > 0, and of their squares.
    """
    rest = _Rest(margins, buyer, remaining, total, squares)
    centre = np.log(np.sqrt(buyer.sigma / buyer.gamma / max(margins.lowest + margins.unit, 1e-300)))
    centre = max(float(centre), np.log(total))
    logs = np.linspace(np.log(total) - 14.0, centre + 14.0, _TOTALS)
    values = rest.loss(np.exp(logs))
    for _ in range(_ZOOMS):
        nearest = int(np.argmin(values))
        around = logs[max(nearest - 1, 0)], logs[min(nearest + 1, logs.size - 1)]
        logs = np.append(np.linspace(*around, _CLOSER), logs[nearest])
        logs.sort()
        values = rest.loss(np.exp(logs))
    more = np.exp(logs[[int(np.argmin(values))]])
    nothing = float(buyer.loss(np.sqrt(squares), total, 0.0))
    objective = float(rest.loss(more)[0])
    if nothing <= objective:
        return Plan(Terms(margins.lowest, 0.0), total, nothing)
    price, scale, _ = rest.at(more)
    eta = total + float(more[0])
    largest = buyer.cap * eta / buyer.m
    return Plan(Terms(float(price[0]), float(scale[0]), largest), eta, objective)


class _Rest:
    """The best way to buy any further total of privacy."""

    def __init__(
        self, margins: Margins, buyer: Buyer, remaining: int, total: float, squares: float
    ) -> None:
        self._margins, self._buyer, self._remaining = margins, buyer, remaining
        self._total, self._squares = total, squares
        self._unit = margins.unit

    def _caps(self, more: Floats) -> Floats | float:
        """Return the cap relative to the average of the rest, where guarantees are eta*k/m."""
        buyer = self._buyer
        if np.isinf(buyer.cap):
            return np.inf
        return buyer.cap / buyer.m * (self._total + more) * self._remaining / more

    def at(self, more: Floats) -> tuple[Floats, Floats, _Shape]:
        """Return price, scale and shape of the best purchase of each total ``more``."""
        buyer, m = self._buyer, self._remaining
        caps = self._caps(more)
        eta = self._total + more
        low, high = np.full(more.shape, -690.0), np.full(more.shape, 200.0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            shape = _shape(self._margins, self._price(middle), caps)
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                scale = more / (m * shape.first)
                spread = np.sqrt(self._squares / scale / scale + m * shape.second)
            enough = (shape.first > 0) & (buyer.mu <= buyer.gamma * eta * spread)
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        price = self._price(high)
        shape = _shape(self._margins, price, caps)
        with np.errstate(divide="ignore"):
            return price, more / (m * shape.first), shape

    def _price(self, log: Floats) -> Floats:
        return self._margins.lowest + self._unit * np.exp(log)

    def loss(self, more: Floats) -> Floats:
        """Return the loss at each further total; infinite where the cap excludes it."""
        price, scale, shape = self.at(more)
        del price
        m = self._remaining
        with np.errstate(invalid="ignore", over="ignore"):
            norm = np.sqrt(self._squares + m * scale * scale * shape.second)
            loss = self._buyer.loss(norm, self._total + more, m * scale * shape.cost)
        possible = np.isfinite(loss) & (np.asarray(self._caps(more)) > 1)
        return np.where(possible, loss, np.inf)
