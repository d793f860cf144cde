r"""Several buyers who share their sellers, and a limit on what each seller sells to all of them.

.. math:: \min \sum_b F_b(a_b, \eta_b) \quad\text{s.t.}\quad
          \sum_b \eta_b a_{b,i} \le e_i \text{ for every seller } i

and each buyer's constraints. At fixed :math:`\eta_b` it is one convex program, whose multipliers
give the slope in every :math:`\eta_b`. With the multipliers y of the limits each buyer alone,
charged :math:`y^\top \varepsilon`, proves a bound for all purchases:

.. math:: \sum_b \min_{a, \eta} \{F_b + \eta\, y^\top a\} - y^\top e .

Where a part of the sellers is sold out, only differences of y are known at fixed eta. Their level
is the multiplier of the linear bound on the eta, which makes the slopes vanish. The limits may
leave a gap that no prices close.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import LinearConstraint, OptimizeResult, minimize, nnls

from convexmarket.allocation.conic import Conic
from convexmarket.allocation.eta_search import check_gap, search_eta
from convexmarket.allocation.formulations import embed
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.result import Allocation, CertifiedPurchase
from convexmarket.allocation.solvers import run_solver
from convexmarket.allocation.views import numbers
from convexmarket.checks import shown
from convexmarket.errors import (
    InfeasibleMarketError,
    LooseCertificateWarning,
    ParameterError,
    SolverError,
)
from convexmarket.market import Market, checked_constraints
from convexmarket.terms import Constraint, Form, MaxEpsilon, Quantities, Term

__all__ = ["Together", "allocate_together"]

Floats = NDArray[np.float64]

#: Descents, each followed by a bound; what they may learn of infeasible eta; steps of each.
_ROUNDS, _LESSONS, _STEPS = 4, 20, 25
#: Exceeding a limit costs this many times the objective for all of it.
_PENALTY = 100.0
#: Distance from bounds on eta, where multipliers are not unique: in descents, and at the end.
_MARGIN, _WITHIN = 1e-4, 1e-7
#: An excess up to this, relatively, is a solver's error.
_SOLVER_ERROR = 1e-5
#: Slopes are differences of cuts over this step; gap of the first look; solves of a search.
_STEP, _COARSE, _MAX_SOLVES = 1e-4, 1e-2, 200
#: A descent goes this factor far.
_FAR = 5.0


@dataclass(frozen=True, eq=False)
class Together(CertifiedPurchase):
    """What several buyers buy of the same sellers.

    Attributes
    ----------
    allocations : tuple of Allocation
        One for each buyer, without lower bounds; the one below is of all together.
    objective, lower_bound : float
        Of the sum over the buyers.
    prices : ndarray, shape (m,)
        Of a unit of each seller's privacy, 0 where its limit is not used up.
    n_solves : int
        Convex programs that a solver solved.
    seconds : float
    scale : float
        Sum of the absolute weighted terms, to which the gap is relative.
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
        """What each seller sells in all, shape (m,)."""
        return np.sum([allocation.epsilon for allocation in self.allocations], axis=0)

    def __repr__(self) -> str:
        return (
            f"Together({len(self.allocations)} buyers, objective={self.objective:.10g}, "
            f"gap={self.gap:.1e}, {self.n_solves} solves)"
        )


class _Charge(Term):
    """The payment for the limits, prices'eps."""

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

    Guarantees add up: a seller of eps to one buyer and eps' to another loses eps + eps'.

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
        every buyer would buy just that.

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
    buyers = _Buyers(markets, _shared_limit(markets, constraints), solver, solver_options)
    etas, bound, prices = buyers.first, -np.inf, np.zeros(0)
    best, open_gap = None, np.inf
    for _ in range(_ROUNDS):
        point, asked = buyers.descend(etas)
        best = point if best is None else min(best, point, key=lambda each: each.objective)
        found = buyers.alone(asked, point.etas, gap / 4)
        etas = np.array([eta for _, eta, _ in found])
        proven = sum(least for _, _, least in found) - float(asked @ buyers.limit)
        bound, prices = max((bound, prices), (proven, asked), key=lambda each: each[0])
        before, open_gap = open_gap, best.objective - bound
        if open_gap <= gap * best.scale or open_gap > before - gap * best.scale:
            break
    assert best is not None
    seconds = time.perf_counter() - began
    result = Together(
        allocations=tuple(buyers.allocation(best, b, gap, seconds) for b in range(len(markets))),
        objective=best.objective,
        lower_bound=min(bound, best.objective),
        prices=prices,
        n_solves=buyers.n_solves + sum(conic.violation.n_solves for conic in buyers.conics),
        seconds=seconds,
        scale=best.scale,
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
    for ids in others:
        if ids != first and range(len(ids)) not in (ids, first):
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


class _Point(NamedTuple):
    """Purchases of all buyers within the limits; ``value``, slopes and prices before mending."""

    etas: Floats
    weights: list[Floats]
    objective: float
    scale: float
    value: float
    slopes: Floats
    prices: Floats
    multipliers: list[float]


class _InfeasibleError(Exception):
    """The eta are infeasible, and why has been noted."""


class _Buyers:
    """The markets of all buyers, alone with a charge, and together at fixed eta."""

    def __init__(
        self,
        markets: Sequence[Market],
        limit: Floats,
        solver: str,
        options: Mapping[str, Any] | None,
    ) -> None:
        self.limit, self.n_solves = limit, 0
        self.charge = cp.Parameter(limit.size, nonneg=True, value=np.zeros(limit.size))
        kept, shared = {id(self.charge): self.charge}, MaxEpsilon(limit)
        bounded = [
            Market(each.sellers, each.objective, [*each.constraints, shared]) for each in markets
        ]
        self.forms = [market.form for market in bounded]
        self.conics = [
            Conic(
                Market(b.sellers, b.objective + _Charge(self.charge), b.constraints),
                solver,
                options,
                kept,
            )
            for b in bounded
        ]
        total = float(limit.sum())
        self.ranges = [(form.eta_low, min(form.eta_high, total)) for form in self.forms]
        # Linear bounds on the eta, g'eta <= d, with the prices that prove them.
        self.bounds = [(np.ones(len(markets)), total, np.ones(limit.size))]
        found = self.alone(np.zeros(limit.size), [None] * len(markets), _COARSE)
        self.first = np.array([eta for _, eta, _ in found])
        views = zip(self.conics, found, strict=True)
        self.scale = sum(conic.view.size(each[0], each[1]) for conic, each in views)
        self._declare()

    def _declare(self) -> None:
        pairs = zip(self.conics, self.first, strict=True)
        self.parts = [conic.declare(float(eta)) for conic, eta in pairs]
        self._excess = cp.Variable(int(np.count_nonzero(self.limit)), nonneg=True)
        self._penalty = cp.Parameter(nonneg=True, value=_PENALTY)
        able = self.limit > 0
        share = np.divide(1.0, self.limit, out=np.zeros(self.limit.size), where=able)
        sold = cp.multiply(share[able], cp.sum([part.epsilon for part in self.parts])[able])
        self._shared, self._share = sold <= 1 + self._excess, share
        costs = [part.scale / self.scale * part.objective.expr for part in self.parts]
        items = [*(item for part in self.parts for item in part.constraints), self._shared]
        over = self.limit[able] @ self._excess
        fine = self._penalty * (over / self.limit.sum())
        self.joint = cp.Problem(cp.Minimize(cp.sum(cp.hstack(costs)) + fine), items)
        self.least = cp.Problem(cp.Minimize(over), items)

    def alone(
        self, prices: Floats, starts: Iterable[float | None], gap: float
    ) -> list[tuple[Floats, float, float]]:
        """Return what each buys alone at prices of the limits: weights, eta and a lower bound."""
        found = []
        for form, conic, start in zip(self.forms, self.conics, starts, strict=True):
            gamma = form.gamma or 1.0
            costs = np.where(
                np.isinf(form.virtual_costs), np.inf, form.gamma / gamma * form.virtual_costs
            )
            charged = replace(form, gamma=gamma, virtual_costs=costs + prices / gamma)
            if projectable := ProjectableForm.of(charged):
                runner = Projections(projectable[0])
                point, bound = search_eta(runner, start or runner.first(), gap, _MAX_SOLVES, None)
                found.append((embed(point.weights, projectable[1]), point.eta, bound))
                continue
            self.charge.value = prices
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LooseCertificateWarning)  # one for all, at the end
                bought = conic.search(gap, _MAX_SOLVES, start, None)
            self.n_solves += len(bought.solves)
            found.append((bought.weights, bought.eta, bought.lower_bound))
        self.charge.value = np.zeros(self.limit.size)
        return found

    def solve(self, etas: Floats) -> _Point:
        """Return the best purchases at given eta; raise _InfeasibleError where there are none."""
        for part, eta in zip(self.parts, etas, strict=True):
            part.eta = float(eta)
        self._run(self.joint, etas)
        if np.max(numbers(self._excess)) > _SOLVER_ERROR:
            self._learn(etas)
            self._penalty.value = _PENALTY * numbers(self._penalty)
            self._run(self.joint, etas)
        prices, value = self.scale * self._prices(), self.scale * float(self.joint.value)
        raw = [part.weights for part in self.parts]
        self.charge.value = prices
        each = list(zip(self.conics, self.parts, raw, etas, strict=True))
        cuts = [
            conic.linearizer.cut(a, eta, *part.proof(self.scale)) for conic, part, a, eta in each
        ]
        slopes = [
            (cut(eta * (1 + _STEP)) - cut(eta * (1 - _STEP))) / (2 * _STEP * eta)
            for cut, eta in zip(cuts, etas, strict=True)
        ]
        self.charge.value = np.zeros(self.limit.size)
        weights = [conic.mended(a, eta) for conic, _, a, eta in each]
        near = etas / max(1.0, np.max(np.transpose(weights) @ etas * self._share))
        objective, scale = (
            sum(evaluate(a, eta) for evaluate, a, eta in zip(ways, weights, near, strict=True))
            for ways in zip(*((c.view.value, c.view.size) for c in self.conics), strict=True)
        )
        levels = [cut.price for cut in cuts]
        return _Point(near, weights, objective, scale, value, np.array(slopes), prices, levels)

    def _prices(self) -> Floats:
        prices = self._share.copy()
        prices[prices > 0] *= np.maximum(np.asarray(self._shared.dual_value), 0.0)
        return prices

    def _learn(self, etas: Floats) -> None:
        """Note a linear bound on the eta by the multipliers of the least excess."""
        self._run(self.least, etas)
        over, prices = float(self.least.value), self._prices()
        if over <= _SOLVER_ERROR * self.limit.min(where=self.limit > 0, initial=np.inf):
            return
        slopes = []
        for conic, part, eta in zip(self.conics, self.parts, etas, strict=True):
            weights, ends = part.weights, []
            for step in (_STEP, -_STEP):
                conic.view.place(weights, eta * (1 + step))
                pairs = zip(conic.view.flat_constraints(), part.proof(1.0)[0], strict=True)
                ends.append(sum(np.sum(y * numbers(h.expr)) for h, y in pairs if y is not None))
            slopes.append(prices @ weights + (ends[0] - ends[1]) / (2 * _STEP * eta))
        g = np.array(slopes)
        self.bounds.append((g, float(g @ etas) - over, prices))
        raise _InfeasibleError

    def _run(self, problem: cp.Problem, etas: Floats) -> None:
        self.charge.value = np.zeros(self.limit.size)
        first = self.conics[0]
        status = run_solver(problem, first.solver, first.options)
        self.n_solves += 1
        if status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE) and np.allclose(
            [part.raw_weights.sum() for part in self.parts], 1.0, atol=_SOLVER_ERROR
        ):
            return
        for b, (conic, known, eta) in enumerate(zip(self.conics, self.ranges, etas, strict=True)):
            proven = conic.violation.interval(float(eta))
            self.ranges[b] = max(known[0], proven[0]), min(known[1], proven[1])
            if not np.allclose(known, self.ranges[b], rtol=_WITHIN):
                raise _InfeasibleError
        raise SolverError(
            f"{first.solver} {first.version} failed on {len(etas)} markets together (status "
            f"{status}); try another solver"
        )

    def _inside(self, margin: float) -> tuple[Floats, list[float]]:
        """Return the known range of every eta, shape (2, n), and the ends of the linear bounds.

        Ends that come from other constraints than an EtaRange are moved inwards, as multipliers are
        not unique there.
        """
        given = np.transpose([(form.eta_low, form.eta_high) for form in self.forms])
        known, step = np.transpose(self.ranges), np.array([[1 + margin], [1 - margin]])
        ends = [d - margin * float(self.limit.sum()) for _, d, _ in self.bounds]
        return np.where(known == given, known, known * step), ends

    def _minimize(
        self,
        value: Callable[[Floats], tuple[float, Floats]],
        unit: Floats,
        start: Floats,
        margin: float,
    ) -> OptimizeResult:
        """Minimise over the eta, in a unit each, within what is known of feasible ones."""
        (low, high), ends = self._inside(margin)
        rows = np.array([g for g, _, _ in self.bounds]) * unit
        size = np.abs(rows).sum(axis=1)
        return minimize(
            value,
            start,
            jac=True,
            method="SLSQP",
            bounds=np.clip([low / unit, high / unit], 1 / _FAR, _FAR).T,
            constraints=LinearConstraint(rows / size[:, None], ub=ends / size),
            options={"maxiter": _STEPS, "ftol": 1e-11},
        )

    def descend(self, etas: Floats) -> tuple[_Point, Floats]:
        """Return the best point of a descent in every eta, and the prices of the limits there."""
        seen: list[_Point] = []

        def value(x: Floats) -> tuple[float, Floats]:
            seen.append(self.solve(unit * x))
            return seen[-1].value / self.scale, seen[-1].slopes * unit / self.scale

        def near(x: Floats) -> tuple[float, Floats]:
            return float(np.sum((x - 1) ** 2)), 2 * (x - 1)

        def ahead(x: Floats) -> tuple[float, Floats]:
            away, slopes = x - seen[0].etas / unit, seen[0].slopes * unit / self.scale
            return float(slopes @ away + away @ away), slopes + 2 * away

        for _ in range(_LESSONS):
            unit = etas
            start = self._minimize(near, unit, np.ones(unit.size), _MARGIN)
            if not start.success:
                raise InfeasibleMarketError(
                    "the buyers' constraints need more privacy than the sellers sell in all; "
                    "loosen one of them, or raise the shared limit"
                )
            try:
                self._minimize(value, unit, start.x, _MARGIN)
                seen.sort(key=lambda point: point.objective)
                prices = self._levelled(seen[0])
                value(self._minimize(ahead, unit, seen[0].etas / unit, _WITHIN).x)
            except _InfeasibleError:
                etas = min(seen, key=lambda p: p.objective).etas if seen else unit * start.x
                continue
            return min(seen, key=lambda point: point.objective), prices
        raise SolverError("no purchases within the shared limits were found; try another solver")

    def _levelled(self, point: _Point) -> Floats:
        """Return the prices of the limits, with the levels at which the slopes in eta vanish."""
        (low, high), ends = self._inside(2 * _MARGIN)
        etas = point.etas
        tight = [
            (g, z) for (g, _, z), end in zip(self.bounds, ends, strict=True) if g @ etas >= end
        ]
        unit = np.eye(etas.size)
        columns = [*(g for g, _ in tight), *-unit[etas <= low], *unit[etas >= high]]
        if not columns:
            return point.prices
        levels = nnls(np.transpose(columns) * etas[:, None], -point.slopes * etas)[0]
        return point.prices + sum(t * z for t, (_, z) in zip(levels, tight, strict=False))

    def allocation(self, point: _Point, b: int, gap: float, seconds: float) -> Allocation:
        """Return what one buyer buys; the time is that of all together."""
        conic, weights, eta = self.conics[b], point.weights[b], float(point.etas[b])
        return Allocation(
            weights=weights,
            eta=eta,
            objective=conic.view.value(weights, eta),
            lower_bound=-np.inf,
            multiplier=point.multipliers[b] / eta,
            method="together",
            seconds=seconds,
            formulation="primal",
            solver=conic.solver,
            solver_version=conic.version,
            tolerance=gap,
        )
