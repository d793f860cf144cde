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
from dataclasses import replace
from operator import itemgetter
from typing import Any

import cvxpy as cp
import numpy as np

from convexmarket.allocation.allocation_result import Allocation, Together
from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.eta_search import Evaluated
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
    start = buyers.alone(0.0 * buyers.limit, [None] * len(buyers.conics), 1e-2)
    points, proofs = list[Any](), list[Any]()
    for _ in range(_ROUNDS):
        point, prices = buyers.descend(start, gap)
        start = buyers.alone(prices, [each.eta for each in point], gap / 4)
        bound = sum(each.lower_bound for each in start) - float(prices @ buyers.limit)
        points.append(point)
        proofs.append((bound, prices, start))
        best, (bound, prices, alone) = min(points, key=buyers.rank), max(proofs, key=itemgetter(0))
        objective, scale = (sum(getattr(each, x) for each in best) for x in ("objective", "scale"))
        if objective - bound <= gap * scale:
            break
    bought = tuple(
        Allocation(x.weights, x.eta, x.objective, -np.inf, y.multiplier, "together", 0.0, x.scale)
        for x, y in zip(best, alone, strict=True)
    )
    spent = buyers.n_solves, time.perf_counter() - began
    result = Together(bought, objective, min(bound, objective), prices, *spent, scale)
    result.warn_if_loose(gap, "the purchases are feasible, but prices of the limits may not exist")
    return result


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
        self, markets: Sequence[Market], constraints: Any, solver: str, options: Any
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
        limited = [Market(b.sellers, b.objective, [*b.constraints, *pieces]) for b in markets]
        self.conics = [Conic(market, solver, options) for market in limited]
        self.n_solves, self.solver, self.options, self.scale = 0, solver, options, 1.0

    def rank(self, purchases: Sequence[Any]) -> tuple[float, float]:
        """Return the relative excess of the purchases over the limits, and their objective."""
        excess = float(np.max(sum(each.eta * each.weights for each in purchases) / self.unit)) - 1
        return max(excess, _SOLVER_ERROR), sum(each.objective for each in purchases)

    def alone(self, prices: Floats, etas: Sequence[Any], gap: float) -> list[Allocation]:
        """Compute each buyer's separate purchase if sales also cost the prices of the limits."""
        bought, settings = [], {"solver": self.solver, "solver_options": self.options, "gap": gap}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LooseCertificateWarning)  # issued later, once
            for b, eta in zip((conic.market for conic in self.conics), etas, strict=True):
                market = Market(b.sellers, b.objective + _Charge(prices), b.constraints)
                bought.append(allocate(market, start=eta, **settings))
                self.n_solves += len(bought[-1].solves) * (bought[-1].solver is not None)
        return bought

    def step(self, last: Sequence[Any], reach: float) -> tuple[list[Evaluated], Floats]:
        """Solve the program linearised at given purchases; return new purchases and prices.

        Eta changes by a factor of at most ``1 + reach``, and is reduced if the purchases exceed the
        limits.
        """
        views, ratios, items = [conic.view for conic in self.conics], [], []
        for conic, each in zip(self.conics, last, strict=True):
            ends = np.minimum(conic.ends, self.limit.sum()) / each.eta
            ratio, around = conic.view.around(each, *np.clip(ends, 1 - reach, 1 + reach))
            ratios.append(ratio)
            items += around
        beyond, sold = cp.Variable(nonneg=True), cp.sum([view.epsilon for view in views])
        limits = cp.multiply(1.0 / self.unit, sold) <= self.limit / self.unit + beyond
        self.scale = sum(map(lambda view, x: view.size(x.weights, x.eta), views, last))
        costs = cp.sum(cp.hstack([view.objective() for view in views])) / self.scale
        program = cp.Problem(cp.Minimize(costs + _PENALTY * beyond), [*items, limits])
        self.n_solves += 1
        if run_solver(program, self.solver, self.options) not in SOLVED:
            raise SolverError(f"{self.solver} found no common purchases; try another solver")
        etas = [each.eta * float(numbers(r)) for each, r in zip(last, ratios, strict=True)]
        raw = [numbers(view.quantities.weights) for view in views]
        weights = list(map(Conic.repaired, self.conics, raw, etas))
        over = max(1.0, float(np.max(sum(map(np.multiply, etas, weights)) / self.unit)))
        etas = [max(eta / over, each.ends[0]) for eta, each in zip(etas, self.conics, strict=True)]
        points = list(map(Conic.evaluated, self.conics, weights, etas))
        return points, np.maximum(limits.dual_value, 0.0) * (self.scale / self.unit)

    def descend(self, start: Sequence[Any], gap: float) -> tuple[Sequence[Any], Floats]:
        """Optimise all buyers' eta by repeated steps; return the best purchases and last prices."""
        (best, prices), reach = self.step(start, 0.0), _REACH
        for _ in range(_STEPS):
            before = best
            with suppress(SolverError):  # a shorter step can succeed
                point, prices = self.step(best, reach)
                best = min(best, point, key=self.rank)
                excess, gained = np.abs(np.subtract(self.rank(before), self.rank(point)))
                if excess == 0 and gained <= gap / 10 * self.scale:
                    break
            reach = reach / 4 if best is before else reach
            if reach < _LEAST:
                break
        if self.rank(best)[0] > _SOLVER_ERROR:
            raise InfeasibleMarketError(
                "the buyers' constraints need more privacy than the limits allow the sellers to "
                "sell; loosen a constraint, or raise the shared limit"
            )
        return best, prices
