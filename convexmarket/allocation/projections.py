r"""The papers' problem with losses, a squared spread or largest guarantees, without a solver.

.. math:: \min\; \mu R(a) + \ell^\top a + \sigma/\eta + \gamma\eta\,\psi^\top a
          \quad\text{s.t.}\quad \mathbf 1^\top a = 1,\; 0 \le a \le k/m,\; \eta a \le e,
          \qquad R = \|a\|,\ \|a\|^2

with one bound for all sellers or one for each. Without payments (gamma = 0) it needs bounds e.

For a fixed eta this is a projection on a capped simplex, exact in O(m log m). Over eta the
objective is piecewise smooth, but its stationary points have no closed form. The order of the
prices ``l + gamma*eta*psi`` depends on eta, so the pieces do not form a single path as in the
papers' problem (docs/theory.md, section 9.3). Branch and bound over exact evaluations certifies the
optimum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, allocation_of, first_look, search_eta
from convexmarket.allocation.simplex import (
    ROUNDING,
    Floats,
    Ints,
    Projection,
    check_sold,
    feasible_limits,
    largest_eta,
    norm_minimiser,
    project,
    projected,
)
from convexmarket.checks import shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError
from convexmarket.market import Market
from convexmarket.terms import Constraint, MarketNumbers, Spread, SquaredSpread

#: Largest gap at which a search ends, as evaluations are exact.
_AIM = 1e-10


@dataclass(frozen=True, eq=False)
class ProjectableForm(MarketNumbers):
    """The problem of this module for the active sellers, with one of ``mu`` and ``mu_squared``.

    Attributes
    ----------
    group : ndarray of int, shape (m,)
        The group of each seller; a single group without bounds on shares.
    least, most : ndarray, one for each group
        Bounds on the shares.
    """

    group: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    least: Floats = field(default_factory=lambda: np.zeros(1))
    most: Floats = field(default_factory=lambda: np.ones(1))

    def __post_init__(self) -> None:
        if not self.group.size:
            object.__setattr__(self, "group", np.zeros(self.virtual_costs.size, np.intp))

    @classmethod
    def of(cls, form: MarketNumbers) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
        """Return the problem restricted to the active sellers, and the mask of these sellers.

        None for a market with other pieces, or several bounds on shares.

        Raises
        ------
        InfeasibleMarketError
            If no seller can sell, or the weights of the active sellers cannot sum to one.
        """
        if (parts := _without_shares(form)) is None:
            return None
        plain, active = parts[0].restricted()
        limits = np.broadcast_to(plain.max_weight, plain.virtual_costs.shape)
        feasible_limits(limits)
        if parts[1] is None or parts[1].shares is None:
            return cls(**vars(plain)), active
        group, least, most = parts[1].shares
        shared = cls(**vars(plain), group=group[active], least=least, most=most)
        able = np.minimum(shared._sum(limits), most)
        feasible = np.all(able >= least * (1 - ROUNDING)) and able.sum() >= 1 - ROUNDING
        if not (feasible and least.sum() <= 1 + ROUNDING):
            raise InfeasibleMarketError(
                f"{shown(parts[1])} contradicts itself, or the bounds on the sellers' weights; "
                "loosen one of them"
            )
        return shared, active

    @property
    def weight(self) -> float:
        """The weight of the spread term R."""
        return self.mu or self.mu_squared

    @property
    def squared(self) -> bool:
        """Whether the spread term R is the squared norm."""
        return self.mu == 0

    @property
    def has_shares(self) -> bool:
        """Whether the shares of groups are bounded."""
        return self.least.size > 1

    def prices(self, eta: float) -> Floats:
        """Return the cost per unit of weight of each seller, excluding the spread, shape (m,)."""
        return self.losses + (self.gamma * eta) * self.virtual_costs

    def optimum(self, eta: float) -> tuple[Projection, Floats]:
        """Return the optimal weights at an eta, with prices, and the multipliers of their bounds.

        The prices are the multipliers of ``sum a = 1``, of each block.
        """
        return self._priced(self.weight, self.prices(eta), self.limit(eta))

    def weights(self, eta: float) -> Floats:
        """Return the optimal weights at an eta, exact up to rounding, shape (m,)."""
        return self.optimum(eta)[0].weights

    def minimum(self, mu: float, costs: Floats) -> float:
        """Return a lower bound on the minimum of ``mu*R(a) + costs'a`` under the caps, by its dual.

        Caps are included, because their multipliers change fast with the costs if mu is small. If
        shares are bounded, caps are left out.
        """
        relieved = 0.0
        if np.min(self.max_weight) < 1 and not self.has_shares:
            extra = self._priced(mu, costs, self.max_weight)[1]
            costs, relieved = costs + extra, float(np.sum(self.max_weight * extra))
        level = self._level(mu, costs)
        return level - relieved - 4e-15 * (abs(level) + relieved)

    def _level(self, mu: float, costs: Floats) -> float:
        """Return the minimum of ``mu*R(a) + costs'a`` without caps."""
        spread = SquaredSpread() if self.squared else Spread()
        return float(spread.simplex_minimum(mu, costs))  # type: ignore[arg-type]

    def _priced(self, mu: float, costs: Floats, limit: float | Floats) -> tuple[Projection, Floats]:
        """Minimise ``mu*R(a) + costs'a`` under a bound on the weights."""
        if not self.has_shares and not self.squared:
            level = self._level(mu, costs)
            margins = np.maximum(level - costs, 0.0)
            total = float(margins.sum())
            if total > 0 and np.all(margins <= limit * total):  # no limit binds
                return Projection(margins / total, np.array([level]), self.group), 0.0 * costs
        limits = np.broadcast_to(limit, costs.shape)
        if not self.has_shares:
            limits = feasible_limits(limits)
        if self.squared:
            best = self._nearest(costs / (-2.0 * mu), limits)
            best = best._replace(levels=-2.0 * mu * best.levels)
        else:
            best = norm_minimiser(costs, mu, limits, self._nearest)
        marginal = costs + self.slope(best.weights) * (mu / self.weight)
        at_limit = best.weights >= limits * (1 - 1e-12)
        return best, np.where(at_limit, np.maximum(best.levels[best.block] - marginal, 0.0), 0.0)

    def _sum(self, values: Floats) -> Floats:
        return np.bincount(self.group, values, minlength=self.least.size).astype(float)

    def _nearest(self, point: Floats, limits: Floats) -> Projection:
        """Return the nearest feasible weights, by block.

        Each group with an active bound is a block with its capped simplex. All other groups are
        block 0, with the remaining weight.
        """
        if not self.has_shares:
            return projected(point, limits)

        def masses(level: float) -> Floats:
            return self._sum(np.clip(point - level, 0.0, limits))

        def excess(level: float) -> float:
            return float(np.clip(masses(level), self.least, self.most).sum()) - 1.0

        low, high = float(np.min(point - limits)), float(np.max(point))
        level = high if excess(high) >= 0 else low
        if excess(low) > 0 > excess(high):
            level = brentq(excess, low, high, xtol=1e-300, rtol=1e-15)
        mass = masses(level)
        totals = np.clip(mass, self.least, self.most)
        active = (mass <= self.least) | (mass >= self.most)
        totals = np.append(max(0.0, 1.0 - float(totals[active].sum())), totals)
        block = np.where(active[self.group], self.group + 1, 0)
        weights, levels = np.zeros(point.size), np.full(totals.size, level)
        for k in np.unique(block):
            some = block == k
            caps, total = limits[some], float(totals[k])
            caps = np.where(caps < total, caps, 2 * total or caps)  # such a limit cannot bind
            weights[some], levels[k] = project(point[some], caps, total)
        return Projection(weights, levels, block)

    def slope(self, weights: Floats) -> Floats:
        """Return the gradient of the spread, shape (m,)."""
        if self.squared:
            return 2.0 * self.weight * weights
        return self.weight * weights / np.linalg.norm(weights)

    def objective(self, weights: Floats, eta: float) -> float:
        """Return the objective of feasible weights."""
        norm = float(np.linalg.norm(weights))
        spread = norm**2 if self.squared else norm
        return self.weight * spread + float(self.prices(eta) @ weights) + self.sigma / eta

    def size(self, weights: Floats, eta: float) -> float:
        """Sum the absolute weighted terms, to which gaps are relative."""
        losses = float(np.sum(self.losses * weights))
        return self.objective(weights, eta) - losses + abs(losses) or 1.0

    def largest_eta(self) -> float:
        """Return the largest eta at which weights within their bounds sum to one."""
        bounds, m = (self.max_weight, self.max_epsilon), self.virtual_costs.size
        return largest_eta(*bounds, m, self.group, self.least, self.most)

    def check_sold(self, eta: float) -> None:
        """Check that the largest guarantees add up to at least eta."""
        bound = float(np.max(self.max_epsilon))
        check_sold(eta, self.largest_eta(), bound, self.virtual_costs.size)


class Projections:
    """Solver of the problem with finite virtual costs at given eta."""

    def __init__(self, form: ProjectableForm) -> None:
        self.form = form
        self.records: list[SolveRecord] = []
        form.check_sold(form.eta_low)
        high = min(form.eta_high, form.largest_eta())
        self.ends = min(form.eta_low, high), high

    def first(self) -> float:
        """Return the first eta of a search."""
        return first_look(self.form)

    def solve(self, eta: float) -> Evaluated:
        """Return the optimum at eta and the cut of its multipliers."""
        start, form = time.perf_counter(), self.form
        (weights, prices, _), extra = form.optimum(eta)
        capped = np.where(form.limit(eta) >= form.max_weight, extra, 0.0)
        extra, price, const, shares = extra - capped, float(prices[0]), 0.0, 0.0 * extra
        if form.has_shares:  # otherwise the cut includes the caps
            more = prices[1:] - price
            const = float(more @ np.where(more > 0, form.least, form.most))
            const -= float(np.sum(form.max_weight * capped))
            shares = capped - more[form.group]
        cut = KeptSpreadCut(
            const=const,
            noise=form.sigma - float((np.where(extra > 0, form.max_epsilon, 0.0) * extra).sum()),
            costs=form.losses + extra + shares,
            slopes=form.gamma * form.virtual_costs,
            spread=lambda costs: form.minimum(form.weight, costs),
            price=price,
        )
        objective = form.objective(weights, eta)
        seconds = time.perf_counter() - start
        self.records.append(SolveRecord(eta, objective, cut(eta), "projected", seconds))
        return Evaluated(weights, eta, objective, cut, form.size(weights, eta))


def _without_shares(form: MarketNumbers) -> tuple[MarketNumbers, Constraint | None] | None:
    """Return a projectable market without its bound on shares, and the bound; else None."""
    pieces = form.other_constraints
    bound = pieces[0] if len(pieces) == 1 and pieces[0].shares is not None else None
    plain = replace(form, other_constraints=()) if bound is not None else form
    return (plain, bound) if plain.is_projectable else None


def is_projectable(market: Market) -> bool:
    """Whether projections support a market."""
    return _without_shares(market.form) is not None


def solve_projections(
    market: Market,
    gap: float = 1e-6,
    max_solves: int = 500,
    start: float | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy by a certified search over eta with exact evaluations; see :func:`allocate`.

    The target gap is at most 1e-10, which takes little more time than a larger gap.
    """
    began, projectable = time.perf_counter(), ProjectableForm.of(market.form)
    if projectable is None:
        raise NotSupportedError(
            "projections support sums of Spread() or SquaredSpread() (with mu > 0), Noise, linear "
            "Payments and Losses under Cap, EtaRange, MaxEpsilon, GivenEpsilon and one GroupShare, "
            f"with payments or largest guarantees; this market is {shown(market)}"
        )
    runner = Projections(projectable[0])
    first = first_look(runner.form, start)
    result = search_eta(runner, first, min(gap, _AIM), max_solves, progress)
    allocation = allocation_of(result, runner, market, "projections", gap, began)
    allocation.warn_if_loose(
        gap, "bounds leave little choice, or mu is close to zero; try a larger max_solves"
    )
    return allocation
