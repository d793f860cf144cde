r"""Several buyers who share their sellers, and a limit on what each seller sells to all of them.

.. math:: \min \sum_b F_b(a_b, \eta_b) \quad\text{s.t.}\quad
          \sum_b \eta_b a_{b,i} \le e_i \text{ for every seller } i

and each buyer's constraints. With the guarantees linear in the weights and the eta about a point it
is one convex program, which gives the next :math:`\eta_b` and the prices y of the limits; at fixed
eta it is exact. At these prices each buyer alone, charged :math:`y^\top \varepsilon`, proves a
bound for all purchases, :math:`\sum_b \min \{F_b + \eta\, y^\top a\} - y^\top e`. The limits may
leave a gap that no prices close.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation, CertifiedPurchase
from convexmarket.allocation.choose_method import allocate, best_method
from convexmarket.allocation.conic import Conic
from convexmarket.allocation.eta_search import check_gap
from convexmarket.allocation.solver_calls import SOLVED, run_solver
from convexmarket.allocation.views import numbers
from convexmarket.checks import shown
from convexmarket.errors import (
    InfeasibleMarketError,
    LooseCertificateWarning,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, checked_constraints
from convexmarket.terms import Constraint, MarketNumbers, MaxEpsilon, Quantities, Term

__all__ = ["Together", "allocate_together"]

Floats = NDArray[np.float64]
#: Descents, each followed by a bound, and their steps.
_ROUNDS, _STEPS = 3, 24
#: Penalty for exceeding the limits by their size, relative to the objective.
_PENALTY = 100.0
#: Relative change of eta in the first and in the smallest step; excess within a solver's accuracy.
_REACH, _LEAST, _SOLVER_ERROR = 0.5, 1e-4, 1e-9


@dataclass(frozen=True, eq=False)
class Together(CertifiedPurchase):
    """Purchases of several buyers from the same sellers.

    Attributes
    ----------
    allocations : tuple of Allocation
        One for each buyer, without lower bounds.
    objective, lower_bound : float
        Sum of the objectives of all buyers, and a lower bound on it.
    prices : ndarray, shape (m,)
        Price of a unit of each seller's privacy; 0 if its limit does not bind.
    n_solves : int
        Number of convex programs solved by a solver.
    seconds : float
    scale : float
        Sum of the absolute weighted terms, to which the gap is relative.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> both = cm.allocation.allocate_together([market, market], [cm.MaxEpsilon(0.5)])
    >>> both.epsilon.round(2)
    array([0.5, 0.5, 0.5])
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
        return (
            f"Together({len(self.allocations)} buyers, objective={self.objective:.10g}, "
            f"gap={self.gap:.1e}, {self.n_solves} solves)"
        )


def allocate_together(
    markets: Sequence[Market],
    constraints: Iterable[Constraint],
    *,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    solver_options: Mapping[str, Any] | None = None,
) -> Together:
    """Allocate several markets with the same sellers, under limits on each seller's total.

    Guarantees add up: a seller of eps to one buyer and eps' to another loses eps + eps'.

    Parameters
    ----------
    markets : sequence of Market
        One for each buyer, with as many sellers, in the same order.
    constraints : iterable of Constraint
        Limits on each seller's total: ``[MaxEpsilon(2.0)]``, or one number for each seller.
    solver, gap, solver_options
        As in :func:`allocate`.

    Returns
    -------
    Together
        If its gap is larger than ``gap``, a warning is issued: prices at which every buyer would
        make these purchases may not exist.

    Raises
    ------
    ParameterError
        If the sellers are not the same, or a shared constraint is of another kind.
    InfeasibleMarketError, UnattainedOptimumError, SolverError
        If the markets have no common optimum, or a solver fails.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3, 0.6], prior=cm.Uniform(0, 1))
    >>> def buyer(sigma):
    ...     return cm.Market(sellers, cm.Spread() + sigma * cm.Noise() + 0.1 * cm.Payments())
    >>> both = cm.allocate_together([buyer(1.0), buyer(3.0)], [cm.MaxEpsilon(1.5)], gap=1e-3)
    >>> both.epsilon.round(3)
    array([1.5, 1.5, 1.5])
    """
    began = time.perf_counter()
    check_gap(gap)
    buyers = _Buyers(markets, _shared_limit(markets, constraints), solver, solver_options)
    etas, bound, points = buyers.first, -np.inf, []
    for _ in range(_ROUNDS):
        point, trial = buyers.descend(etas, gap)
        points.append(point)
        best = min(points, key=lambda each: each[:2])
        bought = buyers.alone(trial, point.etas, gap / 4)
        etas = np.array([each.eta for each in bought])
        proven = sum(each.lower_bound for each in bought) - float(trial @ buyers.limit)
        improved = proven > bound + gap * best.scale
        if proven > bound:
            bound, prices, multipliers = proven, trial, [each.multiplier for each in bought]
        if best.objective - bound <= gap * best.scale or not improved:
            break
    seconds = time.perf_counter() - began
    allocations = tuple(
        Allocation(
            *(weights, float(eta), conic.view.value(weights, float(eta)), -np.inf, multiplier),
            method="together",
            seconds=seconds,
            solver=conic.solver,
            solver_version=conic.version,
            tolerance=gap,
        )
        for conic, weights, eta, multiplier in zip(
            buyers.conics, best.weights, best.etas, multipliers, strict=True
        )
    )
    solves = buyers.n_solves + sum(conic.violation.n_solves for conic in buyers.conics)
    proven = min(bound, best.objective)
    result = Together(allocations, best.objective, proven, prices, solves, seconds, best.scale)
    result.warn_if_loose(
        gap, "prices that support the purchases may not exist; the purchases are feasible"
    )
    return result


def _shared_limit(markets: Sequence[Market], constraints: Iterable[Constraint]) -> Floats:
    """Return the limit on each seller's total guarantee, shape (m,)."""
    a_list = isinstance(markets, list | tuple) and markets
    if not (a_list and all(isinstance(market, Market) for market in markets)):
        raise ParameterError(
            f"markets must be a list of Market, one per buyer, got {shown(markets)}"
        )
    if len({tuple(market.sellers.ids) for market in markets}) > 1:
        sizes = sorted({len(market.sellers) for market in markets})
        raise ParameterError(
            f"the markets must have the same sellers, got {', '.join(map(str, sizes))} sellers "
            "with other ids or in another order; declare the markets with one Sellers object"
        )
    pieces = checked_constraints(constraints, markets[0].sellers)
    form = MarketNumbers(np.ones(len(markets[0].sellers))).plus((), pieces)
    extra = form.rest or form.budgets or np.min(form.max_weight) < 1
    if extra or not form.is_bounded or form.eta_low > 0 or form.eta_high < np.inf:
        raise ParameterError(
            f"the shared constraints are {shown(list(pieces))}; give a limit on the total of each "
            "seller, such as MaxEpsilon(2.0)"
        )
    return np.zeros(form.virtual_costs.size) + form.max_epsilon


class _Charge(Term):
    """The payment for the limits, prices'eps."""

    def __init__(self, prices: Floats) -> None:
        self.prices = prices

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return prices'eps."""
        return self.prices @ quantities.epsilon

    def numbers(self, weight: float, form: MarketNumbers) -> MarketNumbers | None:
        """Add the prices to the virtual costs."""
        if form.payments or form.rest:
            return None
        gamma = form.gamma or 1.0
        costs = np.where(form.active, form.virtual_costs, 0.0) * (form.gamma / gamma)
        costs = np.where(form.active, costs + self.prices * (weight / gamma), np.inf)
        return replace(form, gamma=gamma, virtual_costs=costs)


class _Point(NamedTuple):
    """Purchases of all buyers; ``excess`` is the share by which the limits are exceeded."""

    excess: float
    objective: float
    scale: float
    etas: Floats
    weights: list[Floats]
    prices: Floats


class _Buyers:
    """The markets of all buyers, alone with a charge, and together."""

    def __init__(
        self,
        markets: Sequence[Market],
        limit: Floats,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.limit, self.n_solves, self.solver, self.options = limit, 0, solver, options
        bound = MaxEpsilon(limit)
        self.markets = [Market(b.sellers, b.objective, [*b.constraints, bound]) for b in markets]
        self.conics = [Conic(market, solver, options) for market in self.markets]
        self.views = [conic.view for conic in self.conics]
        ends, total = [market.form.eta_range for market in markets], float(limit.sum())
        self.ends = np.array([(low, min(high, total)) for low, high in ends]).T
        start = self.alone(np.zeros(limit.size), [None] * len(markets), 1e-2)
        self.first = np.array([each.eta for each in start])
        pairs = zip(self.views, start, strict=True)
        self.scale = sum(view.size(each.weights, each.eta) for view, each in pairs)

    def alone(self, prices: Floats, starts: Iterable[float | None], gap: float) -> list[Allocation]:
        """Return the purchase of each buyer alone at prices of the limits."""
        bought = []
        for b, start in zip(self.markets, starts, strict=True):
            market = Market(b.sellers, b.objective + _Charge(prices), b.constraints)
            method, options = best_method(market), dict[str, Any]()
            if method == "branch_and_bound":
                options = {"solver": self.solver, "solver_options": self.options}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LooseCertificateWarning)  # issued once, at the end
                bought.append(allocate(market, method, gap=gap, start=start, **options))
            self.n_solves += len(bought[-1].solves) if options else 0
        return bought

    def step(self, weights: Sequence[Floats], etas: Floats, reach: float) -> _Point | None:
        """Solve the program linearised at a point; return None if the solver fails.

        Eta changes by a factor of at most ``1 + reach``, and is reduced if the purchases exceed the
        limits.
        """
        ends, items, ratios = np.clip(self.ends / etas, 1 - reach, 1 + reach).T, [], []
        for view, a, eta, (low, high) in zip(self.views, weights, etas, ends, strict=True):
            # Near a point: eps = eta*a + eta*a_0*(r - 1), and 1/eta between a curve and its chord.
            ratios.append(r := cp.Variable(nonneg=True))
            inverse = 1.0 / (eta * view.inverse_scale)
            chord = inverse / (low * high) * ((low + high) * (1 + 1e-9) - r)
            items += [*view.simplex, *view.flat_constraints(), r >= low, r <= high]
            items.append(view.epsilon == eta * view.quantities.weights + eta * a * (r - 1))
            items += [view.scaled_inverse >= inverse * cp.inv_pos(r), view.scaled_inverse <= chord]
        able, beyond = self.limit > 0, cp.Variable(nonneg=True)
        bought = cp.sum([view.epsilon for view in self.views])
        shared = cp.multiply(1.0 / self.limit[able], bought[able]) <= 1.0 + beyond
        costs = cp.sum(cp.hstack([view.objective() for view in self.views]))
        goal = cp.Minimize(costs / self.scale + _PENALTY * beyond)
        self.n_solves += 1
        program = cp.Problem(goal, [*items, shared])
        if run_solver(program, self.solver, self.options) not in SOLVED:
            return None
        prices = np.zeros(self.limit.size)
        duals = np.maximum(np.asarray(shared.dual_value), 0.0)
        prices[able] = self.scale * duals / self.limit[able]
        etas = etas * np.array([float(numbers(r)) for r in ratios])
        raw = [np.maximum(numbers(view.quantities.weights), 0.0) for view in self.views]
        pairs = zip(self.conics, raw, etas.tolist(), strict=True)
        try:
            weights = [conic.repaired(a / a.sum(), eta) for conic, a, eta in pairs]
        except SolverError:  # too far outside
            return None
        each = np.transpose(weights) / np.where(able, self.limit, np.inf)[:, None]
        etas = np.maximum(etas / max(1.0, float(np.max(each @ etas))), self.ends[0])
        excess = float(np.max(each @ etas)) - 1.0
        excess = excess if excess > _SOLVER_ERROR else 0.0
        points = zip(self.views, weights, etas.tolist(), strict=True)
        parts = [part for view, a, eta in points for part in view.parts(a, eta)]
        return _Point(excess, sum(parts), sum(map(abs, parts)) or 1.0, etas, weights, prices)

    def descend(self, etas: Floats, gap: float) -> tuple[_Point, Floats]:
        """Return the best point of a descent in every eta, and the last prices of the limits."""
        shares = [view.active / np.count_nonzero(view.active) for view in self.views]
        reach, best = _REACH, self.step(shares, etas, 0.0)
        if best is None:
            raise SolverError(
                f"{self.solver} computed no purchases within the constraints of all buyers; try "
                "another solver"
            )
        prices = best.prices
        for _ in range(_STEPS):
            point, before = self.step(best.weights, best.etas, reach), best
            if point is not None:
                prices, best = point.prices, min(best, point, key=lambda each: each[:2])
                gained = abs(before.objective - point.objective)
                if point.excess == before.excess and gained <= gap / 10 * best.scale:
                    break
            reach = reach if best is point else reach / 4
            if reach < _LEAST:
                break
        if best.excess > 0:
            raise InfeasibleMarketError(
                "the buyers' constraints need more privacy than the sellers sell in all; "
                "loosen one of them, or raise the shared limit"
            )
        return best, prices
