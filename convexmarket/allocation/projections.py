r"""Solve the papers' problem with losses, a squared spread or bounds on guarantees by projections.

.. math:: \min\; \mu R(a) + \ell^\top a + \sigma/\eta + \gamma\eta\,\psi^\top a
          \quad\text{s.t.}\quad \mathbf 1^\top a = 1,\; 0 \le a \le k/m,\; \eta a \le e,
          \qquad R = \|a\|,\ \|a\|^2

where e is one bound for all sellers or a bound for each seller, and is required if gamma = 0.

For a fixed eta, the problem is a projection on a capped simplex, computed exactly. The stationary
points in eta have no closed form (docs/theory.md, section 9.3), so a branch and bound search over
exact evaluations certifies the optimum.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.allocation_result import Allocation, SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, allocation_of, first_look, search_eta
from convexmarket.allocation.simplex import (
    ROUNDING,
    Floats,
    Groups,
    Projection,
    check_sold,
    embed,
    feasible_limits,
    largest_eta,
    nearest,
    norm_minimiser,
)
from convexmarket.checks import shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError
from convexmarket.market import Market
from convexmarket.terms import MarketNumbers, Spread, SquaredSpread

#: The target gap of a search is at most this number.
_AIM = 1e-10
_NORM, _SQUARE = Spread(), SquaredSpread()


@dataclass(frozen=True, eq=False)
class ProjectableForm(MarketNumbers):
    """Numeric form of this problem for the active sellers; ``mu`` or ``mu_squared`` is zero.

    ``groups`` are the groups of sellers whose shares are bounded.
    """

    groups: Groups | None = None

    @classmethod
    def of(cls, form: MarketNumbers) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
        """Return the problem of the active sellers, and the mask of these sellers.

        The result is None for a market with other pieces, or with several bounds on shares.

        Raises
        ------
        InfeasibleMarketError
            If no seller can sell, or the weights of the active sellers cannot sum to one.
        """
        if not is_projectable(form):
            return None
        plain, active = replace(form, other_constraints=()).restricted()
        limits = np.broadcast_to(plain.max_weight, plain.virtual_costs.shape)
        feasible_limits(limits)
        shares = form.other_constraints[0].shares if form.other_constraints else None
        if shares is None:
            return cls(**vars(plain)), active
        group, least, most = shares
        groups = Groups(group[active], least, most)
        able = np.minimum(groups.sums(limits), most)
        feasible = np.all(able >= least * (1 - ROUNDING)) and able.sum() >= 1 - ROUNDING
        if not (feasible and least.sum() <= 1 + ROUNDING):
            raise InfeasibleMarketError(
                f"{shown(form.other_constraints[0])} contradicts itself or a Cap, or gives "
                "weight to sellers who cannot sell; loosen one of them"
            )
        return cls(**vars(plain), groups=groups), active

    @property
    def weight(self) -> float:
        """The weight of the spread term R."""
        return self.mu or self.mu_squared

    def prices(self, eta: float) -> Floats:
        """Return the cost per unit of weight of each seller, excluding the spread, shape (m,)."""
        return self.losses + (self.gamma * eta) * self.virtual_costs

    def optimum(self, eta: float) -> tuple[Projection, Floats]:
        """Return the optimal weights at an eta, their prices, and the multipliers of the bounds.

        The prices are the multipliers of ``sum a = 1`` in each block.
        """
        return self._priced(self.prices(eta), self.limit(eta))

    def minimum(self, costs: Floats) -> float:
        """Compute a dual lower bound on the minimum of the spread plus ``costs'a`` under the caps.

        The bound includes the caps, whose multipliers change fast with the costs if mu is small. If
        shares are bounded, the caps are ignored.
        """
        relieved = 0.0
        if self.groups is None and (np.ndim(self.max_weight) or self.max_weight < 1):
            extra = self._priced(costs, self.max_weight)[1]
            costs, relieved = costs + extra, float(np.sum(self.max_weight * extra))
        spread = _NORM if self.mu else _SQUARE
        level = float(spread.simplex_minimum(self.weight, costs))  # type: ignore[arg-type]
        return level - relieved - 4e-15 * (abs(level) + relieved)

    def _priced(self, costs: Floats, limit: float | Floats) -> tuple[Projection, Floats]:
        """Minimise the spread plus ``costs'a`` under a bound on the weights."""
        limits = np.broadcast_to(limit, costs.shape)
        limits = feasible_limits(limits) if self.groups is None else limits
        if self.mu:
            best = norm_minimiser(costs, self.mu, limits, self.groups)
        else:
            best = nearest(costs / (-2.0 * self.weight), limits, self.groups)
            best = best._replace(levels=-2.0 * self.weight * best.levels)
        marginal = costs + self.slope(best.weights)
        at_limit = best.weights >= limits * (1 - 1e-12)
        return best, np.where(at_limit, np.maximum(best.levels[best.block] - marginal, 0.0), 0.0)

    def slope(self, weights: Floats) -> Floats:
        """Compute the gradient of the spread, shape (m,)."""
        return self.weight * weights * (1.0 / np.linalg.norm(weights) if self.mu else 2.0)

    def size(self, weights: Floats, eta: float) -> float:
        """Sum the absolute weighted terms, to which gaps are relative."""
        losses = float(np.sum(self.losses * weights))
        return self.objective(weights, eta) - losses + abs(losses) or 1.0

    def largest_eta(self) -> float:
        """Compute the largest eta at which weights within their bounds can sum to one."""
        m = self.virtual_costs.size
        return largest_eta(self.max_weight, self.max_epsilon, m, self.groups)

    def check_sold(self, eta: float) -> None:
        """Check that sellers can sell at least eta within their bounds."""
        bound = float(np.max(self.max_epsilon))
        check_sold(eta, self.largest_eta(), bound, self.virtual_costs.size)


class Projections:
    """Solver of the problem at a given eta, for finite virtual costs."""

    def __init__(self, form: ProjectableForm) -> None:
        self.form = form
        self.records: list[SolveRecord] = []
        form.check_sold(form.eta_low)
        high = min(form.eta_high, form.largest_eta())
        self.ends = min(form.eta_low, high), high

    def solve(self, eta: float) -> Evaluated:
        """Compute the optimum at eta, and the cut from its multipliers."""
        start, form = time.perf_counter(), self.form
        (weights, prices, _), extra = form.optimum(eta)
        capped = np.where(form.limit(eta) >= form.max_weight, extra, 0.0)
        extra, price, const, shares = extra - capped, float(prices[0]), 0.0, 0.0 * extra
        if form.groups is not None:  # without groups, the minimum of the cut includes the caps
            more = prices[1:] - price
            const = float(more @ np.where(more > 0, form.groups.least, form.groups.most))
            const -= float(np.sum(form.max_weight * capped))
            shares = capped - more[form.groups.of]
        cut = KeptSpreadCut(
            const=const,
            noise=form.sigma - float((np.where(extra > 0, form.max_epsilon, 0.0) * extra).sum()),
            costs=form.losses + extra + shares,
            slopes=form.gamma * form.virtual_costs,
            spread=form.minimum,
            price=price,
        )
        objective = form.objective(weights, eta)
        seconds = time.perf_counter() - start
        self.records.append(SolveRecord(eta, objective, cut(eta), "projected", seconds))
        return Evaluated(weights, eta, objective, cut, form.size(weights, eta))


def is_projectable(form: MarketNumbers) -> bool:
    """Whether projections support a market."""
    pieces = form.other_constraints
    shared = len(pieces) == 1 and pieces[0].shares is not None
    return (replace(form, other_constraints=()) if shared else form).is_projectable


def solve_projections(
    market: Market,
    gap: float = 1e-6,
    max_solves: int = 500,
    start: float | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy by a certified search over eta with exact evaluations; see :func:`allocate`.

    The target gap is at most 1e-10; a larger gap would save little time.
    """
    projectable = ProjectableForm.of(market.form)
    if projectable is None:
        raise NotSupportedError(
            "projections support sums of Spread() or SquaredSpread() (with mu > 0), Noise, linear "
            "Payments and Losses under Cap, EtaRange, MaxEpsilon, GivenEpsilon and one GroupShare, "
            f"with payments or largest guarantees; this market is {shown(market)}"
        )
    runner = Projections(projectable[0])
    first = first_look(runner.form, start)
    best = search_eta(runner, first, min(gap, _AIM), max_solves, progress)
    return allocation_of(*best, runner, market, "projections", gap)


def allocate_budget(form: MarketNumbers) -> Allocation:
    """Return the exact allocation of a market with ``is_budgeted``, by one projection.

    The best 1/eta is ``psi'a/B``, so a unit of ``psi'a`` costs ``sigma/B``. The lower bound is the
    minimum of the spread, the losses and these costs.
    """
    projectable = ProjectableForm.of(replace(form, gamma=1.0, budgets=(), sigma=0.0))
    assert projectable is not None  # not None, because ``is_budgeted`` is true
    rescaled, active = projectable
    price = form.sigma / form.budget
    (weights, prices, _), _ = rescaled.optimum(price)
    cost = float(rescaled.virtual_costs @ weights)
    objective = rescaled.objective(weights, 1.0) + (price - 1.0) * cost
    bound = min(rescaled.minimum(rescaled.prices(price)), objective)
    eta, scale = form.budget / cost, rescaled.size(weights, price) or None
    values = embed(weights, active), eta, objective, bound, float(prices[0]) / eta
    return Allocation(*values, scale=scale)
