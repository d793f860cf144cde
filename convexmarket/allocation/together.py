r"""Allocations of several buyers with the same sellers, whose total sales are limited.

.. math:: \min \sum_b F_b(a_b, \eta_b) \quad\text{s.t.}\quad
          \sum_b \eta_b a_{b,i} \le e_i \text{ for every seller } i

under the constraints of each buyer. A convex program, in which the guarantees are linearised about
a point, gives the next :math:`\eta_b` and the prices y of the limits. Separate allocations at these
prices prove the lower bound :math:`\sum_b \min \{F_b + \eta\, y^\top a\} - y^\top e`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import cvxpy as cp
import numpy as np

from convexmarket.allocation.allocation_result import Allocation, CertifiedPurchase
from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.simplex import Floats
from convexmarket.allocation.solver_calls import SOLVED, run_solver
from convexmarket.allocation.views import numbers
from convexmarket.checks import check_list, check_positive, shown
from convexmarket.errors import (
    InfeasibleMarketError,
    LooseCertificateWarning,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, checked_constraints
from convexmarket.terms import Constraint, MarketNumbers, Quantities, Term

#: Number of descents, each followed by a lower bound, and largest number of steps of a descent.
_ROUNDS, _STEPS = 3, 24
#: Largest relative change of eta in the first step of a descent, and in the last step.
_REACH, _LEAST = 0.5, 1e-4
#: Relative weight of a penalty on excess sales, and excess attributed to the solver's accuracy.
_PENALTY, _SOLVER_ERROR = 100.0, 1e-9


@dataclass(frozen=True, eq=False)
class Together(CertifiedPurchase):
    """Purchases of several buyers from the same sellers.

    Attributes
    ----------
    allocations : tuple of Allocation
        Allocation of each buyer, without a lower bound.
    objective, lower_bound : float
        Sum of the objectives of all buyers, and a lower bound on it.
    prices : ndarray, shape (m,)
        Price of a unit of each seller's privacy; 0 if its limit does not bind.
    n_solves : int
        Number of convex programs solved by a solver.
    scale : float
        Sum of the absolute weighted terms, to which the gap is relative.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.1)
    >>> cm.allocate_together([market, market], [cm.MaxEpsilon(1.5)]).gap < 1e-6
    True
    """

    allocations: tuple[Allocation, ...]
    objective: float
    lower_bound: float
    prices: Floats
    n_solves: int
    seconds: float
    scale: float

    @property
    def epsilon(self) -> Floats:
        """The total guarantee that each seller sells, shape (m,)."""
        return np.sum([allocation.epsilon for allocation in self.allocations], axis=0)

    def __repr__(self) -> str:
        values = f"objective={self.objective:.10g}, gap={self.gap:.1e}, {self.n_solves} solves"
        return f"Together({len(self.allocations)} buyers, {values})"


def allocate_together(
    markets: Sequence[Market],
    constraints: Iterable[Constraint],
    *,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    solver_options: Mapping[str, Any] | None = None,
) -> Together:
    """Allocate several markets with the same sellers, under limits on each seller's total.

    The guarantees of a seller add up: after selling eps to one buyer and eps' to another buyer, its
    total privacy loss is eps + eps'.

    Parameters
    ----------
    markets : sequence of Market
        One for each buyer, with the same sellers in the same order. Different costs require ids.
    constraints : iterable of Constraint
        Limits on each seller's total: ``[MaxEpsilon(2.0)]``, or one number for each seller.
    solver, gap, solver_options
        As in :func:`allocate`.

    Returns
    -------
    Together
        If its gap is larger than ``gap``, a warning is issued: there may be no prices at which
        every buyer would make these purchases.

    Raises
    ------
    ParameterError
        If the sellers differ, or a shared constraint has another type.
    InfeasibleMarketError, UnattainedOptimumError, SolverError
        If the markets have no common optimum, or a solver fails.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=0.1)
    >>> both = cm.allocate_together([market, market], [cm.MaxEpsilon(1.5)])
    >>> both.epsilon.round(2)
    array([1.5, 1.5, 1.5])
    """
    began = time.perf_counter()
    check_positive("gap", gap)
    buyers = _Buyers(markets, constraints, solver, solver_options)
    proof, bound, points = np.zeros(buyers.limit.size), -np.inf, []
    start = alone = buyers.alone(proof, None, 1e-2)
    for _ in range(_ROUNDS):
        point, prices = buyers.descend(start, gap)
        points.append(point)
        start, best = buyers.alone(prices, point, gap / 4), min(points, key=buyers.rank)
        objective, scale = _sum(best, "objective"), _sum(best, "scale")
        proven = _sum(start, "lower_bound") - float(prices @ buyers.limit)
        improved = proven > bound + gap * scale
        if proven > bound:
            bound, proof, alone = proven, prices, start
        if objective - bound <= gap * scale or not improved:
            break
    pairs = zip(best, alone, strict=True)
    result = Together(
        allocations=tuple(replace(each, multiplier=own.multiplier) for each, own in pairs),
        objective=objective,
        lower_bound=min(bound, objective),
        prices=proof,
        n_solves=buyers.n_solves + sum(conic.violation.n_solves for conic in buyers.conics),
        seconds=time.perf_counter() - began,
        scale=scale,
    )
    result.warn_if_loose(gap, "the purchases are feasible, but prices of the limits may not exist")
    return result


def _sum(purchases: Sequence[Allocation], name: str) -> float:
    return sum(getattr(each, name) or 0.0 for each in purchases)


class _Charge(Term):
    """Term that charges the prices of the limits, ``prices'eps``."""

    def __init__(self, prices: Floats) -> None:
        self.prices = prices

    def expression(self, quantities: Quantities) -> cp.Expression:
        return self.prices @ quantities.epsilon

    def numbers(self, weight: float, form: MarketNumbers) -> MarketNumbers | None:
        if form.payments or form.rest:
            return None
        costs = form.virtual_costs if form.gamma else np.where(form.active, 0.0, np.inf)
        gamma = form.gamma or 1.0
        return replace(form, gamma=gamma, virtual_costs=costs + self.prices * (weight / gamma))


class _Buyers:
    """The markets of all buyers, and the limits on the total of each seller."""

    def __init__(
        self,
        markets: Sequence[Market],
        constraints: Iterable[Constraint],
        solver: str,
        options: Any,
    ) -> None:
        check_list("markets", markets, "Market")
        typed = bool(markets) and all(isinstance(market, Market) for market in markets)
        if not (typed and len({market.sellers.identity for market in markets}) == 1):
            raise ParameterError(
                "markets must be a list of Market with the same sellers in the same order, got "
                f"{shown(markets)}; declare them with one Sellers object, or give ids"
            )
        pieces, m = checked_constraints(constraints, markets[0].sellers), len(markets[0].sellers)
        form = MarketNumbers(np.ones(m)).plus((), pieces)
        others = replace(form, max_epsilon=np.inf).is_limited or form.eta_range != (0, np.inf)
        if others or not form.is_bounded:
            raise ParameterError(
                f"the shared constraints are {shown(list(pieces))}; give a limit on the total of "
                "each seller, such as MaxEpsilon(2.0)"
            )
        self.limit = form.max_epsilon + np.zeros(m)
        self.unit = np.where(self.limit > 0, self.limit, 1.0)
        self.markets = [Market(b.sellers, b.objective, [*b.constraints, *pieces]) for b in markets]
        self.conics = [Conic(market, solver, options) for market in self.markets]
        self.n_solves, self.solver, self.options = 0, solver, options

    def rank(self, purchases: Sequence[Allocation]) -> tuple[float, float]:
        """Return the relative excess of the purchases over the limits, and their objective."""
        excess = self.share(each.epsilon for each in purchases) - 1.0
        return excess if excess > _SOLVER_ERROR else 0.0, _sum(purchases, "objective")

    def share(self, sold: Iterable[Floats]) -> float:
        """Return the largest ratio of a seller's total guarantee to its limit."""
        return float(np.max(sum(sold) * (self.limit > 0) / self.unit))

    def alone(self, prices: Floats, near: Any, gap: float) -> list[Allocation]:
        """Compute each buyer's separate purchase if sales also cost the prices of the limits."""
        bought, settings = [], {"solver": self.solver, "solver_options": self.options, "gap": gap}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LooseCertificateWarning)  # issued later, once
            for b, start in zip(self.markets, near or [None] * len(self.markets), strict=True):
                market = Market(b.sellers, b.objective + _Charge(prices), b.constraints)
                bought.append(allocate(market, start=start, **settings))
        by_solver = [each for each in bought if each.method == "branch_and_bound"]
        self.n_solves += sum(len(each.solves) for each in by_solver)
        return bought

    def step(self, last: Sequence[Allocation], reach: float) -> tuple[list[Allocation], Floats]:
        """Solve the program linearised at given purchases; return new purchases and prices.

        Eta changes by a factor of at most ``1 + reach``, and is reduced if the purchases exceed the
        limits.
        """
        beyond, items, ratios = cp.Variable(nonneg=True), [], list[cp.Variable]()
        views = [conic.view for conic in self.conics]
        for view, each in zip(views, last, strict=True):
            # Linearise eps: eta*a + eta*a_0*(r - 1). Bound 1/eta by a curve and its chord.
            ends = np.minimum(view.market.form.eta_range, self.limit.sum()) / each.eta
            low, high = np.clip(ends, 1 - reach, 1 + reach)
            ratios.append(r := cp.Variable(nonneg=True))
            inverse = 1.0 / (each.eta * view.inverse_scale)
            chord = inverse / (low * high) * ((low + high) * (1 + 1e-9) - r)
            bought = each.eta * view.quantities.weights + each.epsilon * (r - 1)
            items += [*view.simplex, *view.flat_constraints(), r >= low, r <= high]
            items += [view.epsilon == bought, view.scaled_inverse <= chord]
            items.append(view.scaled_inverse >= inverse * cp.inv_pos(r))
        sizes = map(lambda view, each: view.size(each.weights, each.eta), views, last)
        sold, scale = cp.sum([view.epsilon for view in views]), sum(sizes)
        shared = cp.multiply(1.0 / self.unit, sold) <= self.limit / self.unit + beyond
        costs = cp.sum(cp.hstack([view.objective() for view in views])) / scale
        program = cp.Problem(cp.Minimize(costs + _PENALTY * beyond), [*items, shared])
        self.n_solves += 1
        if run_solver(program, self.solver, self.options) not in SOLVED:
            raise SolverError(
                f"{self.solver} found no purchases that satisfy the constraints of all buyers; "
                "try another solver"
            )
        etas = [each.eta * float(numbers(r)) for each, r in zip(last, ratios, strict=True)]
        weights = []
        for conic, eta in zip(self.conics, etas, strict=True):
            raw = np.maximum(numbers(conic.view.quantities.weights), 0.0)
            weights.append(conic.repaired(raw / raw.sum(), eta))
        over, points = max(1.0, self.share(map(np.multiply, etas, weights))), []
        for view, a, eta in zip(views, weights, etas, strict=True):
            eta = max(eta / over, view.market.form.eta_low)
            values = a, eta, view.value(a, eta), -np.inf, np.nan
            size = view.size(a, eta)
            points.append(Allocation(*values, method="together", seconds=0.0, scale=size))
        return points, np.maximum(shared.dual_value, 0.0) * (scale / self.unit)

    def descend(self, start: Sequence[Allocation], gap: float) -> tuple[list[Allocation], Floats]:
        """Optimise all buyers' eta by repeated steps; return the best purchases and last prices."""
        (best, prices), reach = self.step(start, 0.0), _REACH
        for _ in range(_STEPS):
            before = best
            with suppress(SolverError):  # a shorter step can succeed
                point, prices = self.step(best, reach)
                best = min(best, point, key=self.rank)
                excess, gained = np.abs(np.subtract(self.rank(before), self.rank(point)))
                if excess == 0 and gained <= gap / 10 * _sum(best, "scale"):
                    break
            reach = reach / 4 if best is before else reach
            if reach < _LEAST:
                break
        if self.rank(best)[0] > 0:
            raise InfeasibleMarketError(
                "the buyers' constraints need more privacy than the limits allow the sellers to "
                "sell; loosen a constraint, or raise the shared limit"
            )
        return best, prices
