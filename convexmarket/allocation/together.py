r"""Several buyers who share their sellers, and a limit on what each seller sells to all of them.

.. math:: \min \sum_b F_b(a_b, \eta_b) \quad\text{s.t.}\quad
          \sum_b \eta_b a_{b,i} \le e_i \text{ for every seller } i

and each buyer's own constraints. At fixed :math:`\eta_b` it is one convex program, and the
multipliers of its cuts give the slope in every :math:`\eta_b`, along which a descent goes. With the
multipliers y of the limits each buyer alone, charged :math:`y^\top \varepsilon`, proves a bound:

.. math:: \sum_b \min_{a, \eta} \{F_b + \eta\, y^\top a\} - y^\top e

is below the optimum for every :math:`y \ge 0`, and each minimum has the certificate of a single
market. The limits may leave a gap that no prices close; then the bound says so.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

from convexmarket.allocation.conic import Conic, mend
from convexmarket.allocation.cuts import Cut
from convexmarket.allocation.eta_search import check_gap
from convexmarket.allocation.result import Allocation, CertifiedPurchase
from convexmarket.allocation.solvers import run_solver
from convexmarket.arguments import shown
from convexmarket.errors import (
    InfeasibleMarketError,
    LooseCertificateWarning,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, checked_constraints
from convexmarket.terms import Constraint, Form, Quantities, Term

__all__ = ["Together", "allocate_together"]

Floats = NDArray[np.float64]

#: Rounds of descent, price and bound, and steps of each descent.
_ROUNDS = 6
_STEPS = 60
#: Slack of the limits costs this many times what privacy is worth at first, and then more.
_DEAR = 10.0
_MAX_SOLVES = 200
#: A descent goes no further than this factor; its slopes are differences over this step.
_FAR, _STEP = 1e3, 1e-4
#: More than is allowed by this, relatively, is a solver's error.
_MENDABLE = 1e-5
#: What is sold stays below all limits together by this, so that their multipliers are prices.
_WITHIN = 1 - 1e-7
#: Who sells this share of the limit sells all of it.
_SOLD_OUT = 1 - 1e-5


@dataclass(frozen=True, eq=False)
class Together(CertifiedPurchase):
    """What several buyers buy of the same sellers.

    Attributes
    ----------
    allocations : tuple of Allocation
        One for each buyer. Their own lower bounds are not known; the one below is of all together.
    objective, lower_bound : float
        Of the sum over the buyers.
    prices : ndarray, shape (m,)
        Of a unit of each seller's privacy, by which its limit is shared out; 0 where it is not
        used up.
    n_solves : int
        Convex programs solved.
    seconds : float
    """

    allocations: tuple[Allocation, ...]
    objective: float
    lower_bound: float
    prices: Floats
    n_solves: int
    seconds: float

    @property
    def epsilon(self) -> Floats:
        """What each seller sells in all, shape (m,)."""
        return np.sum([allocation.epsilon for allocation in self.allocations], axis=0)

    def __repr__(self) -> str:
        return (
            f"Together({len(self.allocations)} buyers, objective={self.objective:.10g}, "
            f"gap={self.gap:.1e}, {self.n_solves} solves)"
        )


class _Charge(Term):
    """What a buyer is charged for the sellers' limits, prices'eps."""

    def __init__(self, prices: cp.Parameter) -> None:
        self.prices = prices

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return prices'eps."""
        return self.prices @ quantities.epsilon


def allocate_together(
    markets: Sequence[Market],
    constraints: Iterable[Constraint],
    *,
    solver: str = "CLARABEL",
    gap: float = 1e-6,
    solver_options: Mapping[str, Any] | None = None,
) -> Together:
    """Allocate several markets with the same sellers, who sell no more than a limit to all.

    Guarantees add up: who sells eps to one buyer and eps' to another loses eps + eps'.

    Parameters
    ----------
    markets : sequence of Market
        One for each buyer, with as many sellers, in the same order.
    constraints : iterable of Constraint
        On what each seller sells in all: ``[MaxEpsilon(2.0)]``, or one number for each seller.
    solver, gap, solver_options
        As in :func:`allocate`.

    Returns
    -------
    Together
        Its ``gap`` may exceed the one asked for, with a warning: there may be no prices at which
        every buyer would buy just that by itself.

    Raises
    ------
    ParameterError
        If the sellers are not the same, or a shared constraint is of another kind.
    InfeasibleMarketError, UnattainedOptimumError, SolverError
        If there is no answer.

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
    limit = _shared_limit(markets, constraints)
    buyers = _Buyers(markets, limit, solver, solver_options)
    best, bound, prices = buyers.start(), -np.inf, np.zeros(limit.size)
    for _ in range(_ROUNDS):
        best = min(best, buyers.descend(best.etas), key=lambda point: point.objective)
        found, etas, asked = buyers.bound(best, gap)
        bound, prices = max((bound, prices), (found, asked), key=lambda one: one[0])
        if best.objective - bound <= gap * abs(best.objective):
            break
        best = min(best, buyers.at(etas), key=lambda point: point.objective)
    seconds = time.perf_counter() - began
    result = Together(
        allocations=tuple(buyers.allocation(best, b, gap, seconds) for b in range(len(markets))),
        objective=best.objective,
        lower_bound=min(bound, best.objective),
        prices=prices,
        n_solves=buyers.n_solves,
        seconds=seconds,
    )
    result.warn_if_loose(
        gap, "there may be no prices that share the limits out; the purchases are feasible"
    )
    return result


def _shared_limit(markets: Sequence[Market], constraints: Iterable[Constraint]) -> Floats:
    """Return what each seller may sell in all, shape (m,)."""
    a_list = isinstance(markets, list | tuple) and markets
    if not (a_list and all(isinstance(market, Market) for market in markets)):
        raise ParameterError(f"markets must be a list of Market, one a buyer, got {shown(markets)}")
    sizes = {len(market.sellers) for market in markets}
    if len(sizes) > 1:
        raise ParameterError(
            f"the markets have {', '.join(map(str, sorted(sizes)))} sellers; buyers who share "
            "sellers have the same, in the same order"
        )
    first, *others = (market.sellers.ids for market in markets)
    for own in others:
        if own != first and range(len(own)) not in (own, first):
            raise ParameterError(
                "the markets name other sellers, or in another order; buyers who share sellers "
                "have the same, in the same order; make both of one Sellers object"
            )
    m = sizes.pop()
    pieces = checked_constraints(constraints, markets[0].sellers)
    form = Form(np.ones(m)).plus((), pieces)
    extra = form.rest or form.budgets or np.min(form.max_weight) < 1
    if extra or not form.is_bounded or form.eta_low > 0 or form.eta_high < np.inf:
        raise ParameterError(
            f"the shared constraints are {shown(list(pieces))}; give MaxEpsilon(2.0), what "
            "each seller sells to all buyers at most"
        )
    return np.zeros(m) + form.max_epsilon


@dataclass(frozen=True, eq=False)
class _Point:
    """Purchases of all buyers within the limits, and the prices at which they were found."""

    etas: Floats
    weights: list[Floats]
    objective: float
    value: float
    slopes: Floats
    prices: Floats
    cuts: list[Cut]


class _Buyers:
    """The markets of all buyers, compiled alone with a charge, and together at fixed eta."""

    def __init__(
        self,
        markets: Sequence[Market],
        limit: Floats,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.limit = limit
        self.charge = cp.Parameter(limit.size, nonneg=True, value=np.zeros(limit.size))
        kept = {id(self.charge): self.charge}
        charged = [
            Market(market.sellers, market.objective + _Charge(self.charge), market.constraints)
            for market in markets
        ]
        self.alone = [Conic(market, solver, options, kept) for market in charged]
        self.n_solves = 0

    def start(self) -> _Point:
        """Compile the joint program, and return the point next to what each would buy alone."""
        bought = [self._search(buyer, None, 1e-3) for buyer in self.alone]
        etas = np.array([allocation.eta for allocation in bought])
        within = min(1.0, 0.9 * float(self.limit.sum()) / float(etas.sum()))
        etas = np.array([within * eta for eta, b in zip(etas, self.alone, strict=True)])
        self.scale = sum(abs(allocation.objective) for allocation in bought) or 1.0
        self.dear = _DEAR * self.scale / float(self.limit.mean())
        for buyer in self.alone:
            buyer.problem = None  # in new units
        self.parts = [
            buyer.declare(float(eta)) for buyer, eta in zip(self.alone, etas, strict=True)
        ]
        self._slack = cp.Variable(self.limit.size, nonneg=True)
        self._dear = cp.Parameter(nonneg=True)
        sold = cp.sum([part.epsilon for part in self.parts])
        self._shared = sold <= self.limit + self._slack
        costs = [part.scale / self.scale * part.objective.expr for part in self.parts]
        self._joint = cp.Problem(
            cp.Minimize(cp.sum(cp.hstack(costs)) + self._dear * cp.sum(self._slack)),
            [*(item for part in self.parts for item in part.constraints), self._shared],
        )
        return self.at(etas)

    def at(self, etas: Floats) -> _Point:
        """Return the best purchases at given eta, made feasible; of objective inf if none are."""
        etas = etas * min(1.0, _WITHIN * float(self.limit.sum() / np.sum(etas)))
        etas = np.maximum(etas, [buyer.region.low for buyer in self.alone])
        for part, eta in zip(self.parts, etas, strict=True):
            part.eta = float(eta)
        self.charge.value = np.zeros(self.limit.size)
        self._dear.value = self.dear / self.scale
        first = self.alone[0]
        status = run_solver(self._joint, first.solver, first.options)
        self.n_solves += 1
        if status not in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE):
            raise SolverError(
                f"{first.solver} {first.version} failed on {len(etas)} markets together (status "
                f"{status}); try another solver"
            )
        prices = np.maximum(self.scale * np.asarray(self._shared.dual_value), 0.0)
        raw = [part.weights for part in self.parts]
        value = self.scale * float(self._joint.value)
        self.charge.value = prices
        cuts = [
            buyer.linearizer.cut(weights, eta, *part.proof(self.scale))
            for buyer, part, weights, eta in zip(self.alone, self.parts, raw, etas, strict=True)
        ]
        slopes = [
            (cut(eta * (1 + _STEP)) - cut(eta * (1 - _STEP))) / (2 * _STEP)
            for cut, eta in zip(cuts, etas, strict=True)
        ]
        self.charge.value = np.zeros(self.limit.size)
        weights, near, objective = self._mended(raw, etas)
        return _Point(near, weights, objective, value, np.array(slopes), prices, cuts)

    def _mended(self, raw: list[Floats], etas: Floats) -> tuple[list[Floats], Floats, float]:
        """Return purchases within every limit close to those of a solver, and their objective."""
        pairs = [
            mend(buyer.view, weights, eta, buyer.region.inside)
            for buyer, weights, eta in zip(self.alone, raw, etas, strict=True)
        ]
        weights, near = [pair[0] for pair in pairs], np.array([pair[1] for pair in pairs])
        sold = np.sum([eta * each for each, eta in zip(weights, near, strict=True)], axis=0)
        over = float(np.max(sold / np.maximum(self.limit, np.finfo(float).tiny)))
        if over > 1:
            near = near / over
        lows = np.array([buyer.region.low for buyer in self.alone])
        if over > 1 + _MENDABLE or np.any(near < lows * (1 - _MENDABLE)):
            return weights, near, np.inf
        values = [
            buyer.view.value(each, eta)
            for buyer, each, eta in zip(self.alone, weights, near, strict=True)
        ]
        return weights, near, float(sum(values))

    def descend(self, etas: Floats) -> _Point:
        """Return the best point that a descent in every eta comes by."""
        ends = [
            (max(b.region.low, eta / _FAR), min(b.region.high, eta * _FAR))
            for b, eta in zip(self.alone, etas, strict=True)
        ]
        seen: list[_Point] = []

        def value(logs: Floats) -> tuple[float, Floats]:
            seen.append(self.at(np.clip(np.exp(logs), *np.transpose(ends))))
            return seen[-1].value / self.scale, seen[-1].slopes / self.scale

        for _ in range(_ROUNDS):
            minimize(  # type: ignore[call-overload]
                value,
                np.log(etas),
                jac=True,
                method="L-BFGS-B",
                bounds=np.log(ends),
                options={"maxiter": _STEPS, "ftol": 1e-12, "gtol": 1e-8},
            )
            best = min(seen, key=lambda point: point.objective)
            if best.objective < np.inf:
                return best
            self.dear *= _DEAR
        raise InfeasibleMarketError(
            "the buyers' own constraints need more privacy than the sellers sell in all; loosen "
            "one of them, or raise the shared limit"
        )

    def bound(self, point: _Point, gap: float) -> tuple[float, Floats, Floats]:
        """Return the lower bound that prices prove, what each would buy at them, and the prices.

        Where the sellers are sold out, only differences of prices are known at given eta. Their
        level is where the buyers want no more than there is; every level proves a bound.
        """
        proven: list[tuple[float, Floats, Floats]] = []
        sold = np.sum([e * w for e, w in zip(point.etas, point.weights, strict=True)], axis=0)
        out = (sold >= _SOLD_OUT * self.limit).astype(float)

        def excess(level: float) -> float:
            prices = point.prices + level * out
            self.charge.value = prices
            etas = point.etas if not proven else proven[-1][1]
            found = [
                self._search(buyer, float(eta), gap / 4)
                for buyer, eta in zip(self.alone, etas, strict=True)
            ]
            bound = sum(allocation.lower_bound for allocation in found)
            bought = np.array([allocation.eta for allocation in found])
            proven.append((bound - float(prices @ self.limit), bought, prices))
            sold = np.sum([allocation.epsilon for allocation in found], axis=0)
            return float(out @ sold / (out @ self.limit)) - 1.0

        high = self.dear
        if not out.any():
            out[:] = 1.0
        open_gap = gap * abs(point.objective)
        if excess(0.0) > 0 and point.objective - proven[0][0] > open_gap:
            while excess(high) > 0:
                high *= _DEAR
            brentq(excess, 0.0, high, xtol=1e-12 * high, rtol=1e-7, maxiter=_STEPS, disp=False)
        self.charge.value = np.zeros(self.limit.size)
        return max(proven, key=lambda one: one[0])

    def _search(self, buyer: Conic, start: float | None, gap: float) -> Allocation:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LooseCertificateWarning)  # one for all, at the end
            found = buyer.search(gap, _MAX_SOLVES, start, None)
        self.n_solves += len(found.solves)
        return found

    def allocation(self, point: _Point, b: int, gap: float, seconds: float) -> Allocation:
        """Return what one buyer buys; the time is that of all together."""
        buyer, weights, eta = self.alone[b], point.weights[b], float(point.etas[b])
        return Allocation(
            weights=weights,
            eta=eta,
            objective=buyer.view.value(weights, eta),
            lower_bound=-np.inf,
            multiplier=point.cuts[b].price / eta,
            method="together",
            seconds=seconds,
            formulation="primal",
            solver=buyer.solver,
            solver_version=buyer.version,
            tolerance=gap,
        )
