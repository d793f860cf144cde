r"""The papers' problem with losses, a squared spread or largest guarantees, without a solver.

.. math:: \min\; \mu R(a) + \ell^\top a + \sigma/\eta + \gamma\eta\,\psi^\top a
          \quad\text{s.t.}\quad \mathbf 1^\top a = 1,\; 0 \le a \le k/m,\; \eta a \le e,
          \qquad R = \|a\|,\ \|a\|^2

with one bound for all sellers or one for each. Without payments (gamma = 0) it takes bounds e: the
problem of given guarantees with losses (B, Eq. 3, for a given model).

For a fixed eta this is a projection on a capped simplex, exact in O(m log m). Over eta the
objective is piecewise smooth, but a stationary point of a piece has no closed form, and the order
of the prices ``l + gamma*eta*psi`` changes with eta, so that the pieces are no single path as in
the papers' problem (docs/theory.md, section 9.3). Branch and bound over exact evaluations certifies
the optimum instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, check_gap, first_look, search_eta
from convexmarket.allocation.formulations import embed
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.simplex import (
    ROUNDING,
    common_price,
    feasible_limits,
    largest_eta,
    norm_minimiser,
    project_capped_simplex,
)
from convexmarket.arguments import shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError
from convexmarket.market import Market
from convexmarket.terms import Constraint, Form, Spread, SquaredSpread

__all__ = ["ProjectableForm", "Projections", "solve_projections"]

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

#: Evaluations are exact, so that a search ends no earlier than at this gap.
_AIM = 1e-10
#: Steps towards the norm of the weights, and towards their level.
_STEPS, _STEPS_OF_THETA = 20, 100


class ProjectableForm(Form):
    """The problem of this module: of those who can sell, with one of ``mu`` and ``mu_squared``."""

    @classmethod
    def of(cls, form: Form) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
        """Return the problem of those who can sell anything, and who they are.

        None for a market that has another piece.

        Raises
        ------
        InfeasibleMarketError
            If nobody can sell, or too few.
        """
        if not form.is_projectable:
            return None
        form, active = form.restricted()
        feasible_limits(np.broadcast_to(form.max_weight, form.virtual_costs.shape))
        return cls(**vars(form)), active

    @property
    def weight(self) -> float:
        """The weight of R."""
        return self.mu or self.mu_squared

    @property
    def squared(self) -> bool:
        """Whether R is the square."""
        return self.mu == 0

    @property
    def spread(self) -> Spread | SquaredSpread:
        """R."""
        return SquaredSpread() if self.squared else Spread()

    def prices(self, eta: float) -> Floats:
        """Return what a unit of each seller's weight costs beside the spread, shape (m,)."""
        return self.losses + (self.gamma * eta) * self.virtual_costs

    def weights(self, eta: float) -> Floats:
        """Return the optimal weights at an eta, exact up to rounding, shape (m,)."""
        return self._cheapest(self.weight, self.prices(eta), self.limit(eta))

    def minimum(self, mu: float, costs: Floats) -> float:
        """Return the minimum of ``mu*R(a) + costs'a`` under the caps; by its dual, never above it.

        Caps stay in, as their multipliers change with the costs, fast where mu is small.
        """
        if np.min(self.max_weight) < 1:
            weights = self._cheapest(mu, costs, self.max_weight)
            extra = self.multipliers(mu, weights, costs, self.max_weight)[1]
            relieved = float(np.sum(self.max_weight * extra))
            return float(self._level(mu, costs + extra)) - relieved
        return float(self._level(mu, costs))

    def _level(self, mu: float, costs: Floats) -> Floats:
        """Return the minimum of ``mu*R(a) + costs'a`` without caps."""
        found = self.spread.simplex_minimum(mu, costs)
        assert found is not None  # the spread is about no reference
        return found

    def _cheapest(self, mu: float, costs: Floats, limit: float | Floats) -> Floats:
        """Return the minimiser of ``mu*R(a) + costs'a`` under a bound on the weights."""
        if self.squared:
            return project_capped_simplex(costs / (-2.0 * mu), limit)
        margins = np.maximum(self._level(mu, costs) - costs, 0.0)
        total = float(margins.sum())
        if total > 0 and np.all(margins <= limit * total):  # the limit binds nobody
            return np.asarray(margins / total)
        return norm_minimiser(costs, mu, limit)

    def multipliers(
        self, mu: float, weights: Floats, costs: Floats, limit: float | Floats
    ) -> tuple[float, Floats]:
        """Return the multipliers of ``sum a = 1`` and of the bounds at such a minimiser."""
        marginal = mu / self.weight * self.slope(weights) + costs
        at_limit = weights >= limit * (1 - 1e-12)
        price = common_price(weights, marginal, np.where(at_limit, 0.0, limit - weights))
        return price, np.where(at_limit, np.maximum(price - marginal, 0.0), 0.0)

    def slope(self, weights: Floats) -> Floats:
        """Return the gradient of the spread, shape (m,)."""
        if self.squared:
            return 2.0 * self.weight * weights
        return self.weight * weights / np.linalg.norm(weights)

    def size(self, weights: Floats, eta: float) -> float:
        """Sum the absolute weighted terms, to which gaps are relative."""
        losses = float(np.sum(self.losses * weights))
        return self.objective(weights, eta) - losses + abs(losses) or 1.0

    def objective(self, weights: Floats, eta: float) -> float:
        """Return the objective of feasible weights."""
        norm = float(np.linalg.norm(weights))
        spread = norm**2 if self.squared else norm
        return self.weight * spread + float(self.prices(eta) @ weights) + self.sigma / eta

    def largest_eta(self) -> float:
        """Return the largest eta at which weights within their bounds sum to one."""
        return largest_eta(self.max_weight, self.max_epsilon, self.virtual_costs.size)

    def check_sold(self, eta: float) -> None:
        """Refuse an eta that the largest guarantees do not add up to."""
        largest = self.largest_eta()
        if eta > largest * (1 + 1e-12):
            raise InfeasibleMarketError(
                f"{self.virtual_costs.size} sellers at no more than epsilon = "
                f"{np.max(self.max_epsilon):g} sell {largest:g} in all, but the EtaRange starts at "
                f"{eta:g}; raise one or lower the other"
            )


@dataclass(frozen=True, eq=False)
class SharedForm(ProjectableForm):
    """The problem with bounds on the shares of groups, each seller being in one.

    Attributes
    ----------
    group : ndarray of int, shape (m,)
    least, most : ndarray, one for each group
    """

    group: Ints = field(default_factory=lambda: np.zeros(0, np.intp))
    least: Floats = field(default_factory=lambda: np.zeros(0))
    most: Floats = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def of_shares(
        cls, form: Form, piece: Constraint
    ) -> tuple[SharedForm, NDArray[np.bool_]] | None:
        """Return the problem of those who can sell, and who they are; None as for ``of``."""
        found = ProjectableForm.of(replace(form, other_constraints=()))
        if found is None:
            return None
        plain, active = found
        assert piece.shares is not None  # as it was chosen for
        group, least, most = piece.shares
        shared = cls(**vars(plain), group=group[active], least=least, most=most)
        if not shared._is_feasible(np.broadcast_to(plain.max_weight, shared.group.shape)):
            raise InfeasibleMarketError(
                f"{shown(piece)} contradicts itself, or the bounds on the sellers' weights; loosen "
                "one of them"
            )
        return shared, active

    def _sum(self, values: Floats) -> Floats:
        return np.bincount(self.group, values, minlength=self.least.size).astype(float)

    def _is_feasible(self, limit: Floats) -> bool:
        most = np.minimum(self._sum(limit), self.most)
        able = np.all(most >= self.least * (1 - ROUNDING)) and most.sum() >= 1 - ROUNDING
        return bool(able and self.least.sum() <= 1 + ROUNDING)

    def largest_eta(self) -> float:
        """Return the largest eta at which weights within their bounds sum to one."""
        high = super().largest_eta()
        if high == np.inf:
            return high
        size, low = self.group.shape, 0.0
        for _ in range(100):
            middle = 0.5 * (low + high)
            if self._is_feasible(np.broadcast_to(self.limit(middle), size)):
                low = middle
            else:
                high = middle
        return low

    def weights(self, eta: float) -> Floats:
        """Return the optimal weights at an eta, exact up to rounding, shape (m,)."""
        costs = self.prices(eta)
        limit = np.broadcast_to(self.limit(eta), costs.shape)
        if self.squared:
            return self._project(costs / (-2.0 * self.weight), limit)[0]
        costs = costs / self.weight
        norm = 1.0 / np.sqrt(costs.size)
        for _ in range(_STEPS):
            weights, theta = self._project(-norm * costs, limit)
            # On this piece the weights are affine in the norm, so that it is a root.
            free = (weights > 0) & (weights < limit)
            block = self._blocks(theta)
            number = np.maximum(np.bincount(block, free), 1)
            mean = np.bincount(block, np.where(free, costs, 0.0)) / number
            tilt = float(np.sum((costs - mean[block])[free] ** 2))
            size2 = float(weights @ weights)
            if tilt >= 1.0:
                break
            following = np.sqrt(max(size2 - norm**2 * tilt, 0.0) / (1.0 - tilt))
            if abs(following - norm) <= 4e-16 * norm:
                return weights
            norm = float(following)

        def excess(norm: float) -> float:
            return norm - float(np.linalg.norm(self._project(-norm * costs, limit)[0]))

        low, high = (1 - ROUNDING) / np.sqrt(costs.size), 1 + ROUNDING
        return self._project(-brentq(excess, low, high, xtol=1e-300, rtol=1e-14) * costs, limit)[0]

    def minimum(self, mu: float, costs: Floats) -> float:
        """Return the minimum of ``mu*R(a) + costs'a``; the multipliers of caps stand in costs."""
        return float(self._level(mu, costs))

    def _blocks(self, active: NDArray[np.bool_]) -> Ints:
        """Return a number for each group with an active bound, and one for all other sellers."""
        return np.where(active[self.group], self.group + 1, 0)

    def _project(self, point: Floats, limit: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the nearest feasible weights, and which groups have an active bound."""
        low, high = float(np.min(point - limit)), float(np.max(point))
        theta = 0.5 * (low + high)
        for _ in range(_STEPS_OF_THETA):
            weights = np.clip(point - theta, 0.0, limit)
            mass = self._sum(weights)
            kept = np.clip(mass, self.least, self.most)
            excess = float(kept.sum()) - 1.0
            low, high = (theta, high) if excess > 0 else (low, theta)
            inside = (mass > self.least) & (mass < self.most)
            free = np.count_nonzero((weights > 0) & (weights < limit) & inside[self.group])
            following = theta + excess / free if free else 0.5 * (low + high)
            close = abs(following - theta) <= 1e-15 * max(abs(theta), high - low, 1e-300)
            if not (close or low < following < high):
                following = 0.5 * (low + high)
            if close or low == high:
                break
            theta = following
        active = ~((mass > self.least) & (mass < self.most))
        for k in np.flatnonzero(active):
            some, share = self.group == k, float(kept[k])
            weights[some] = 0.0
            if share > 0:
                bound = np.maximum(limit[some] / share, 0.0)
                weights[some] = share * project_capped_simplex(point[some] / share, bound)
        return weights, active

    def relief(self, weights: Floats, eta: float) -> tuple[float, Floats, float, Floats]:
        """Return multipliers: of the sum, of the sellers' bounds, and the constant and slopes.

        The last two are those of the Lagrangian's part for the shares.
        """
        limit = np.broadcast_to(self.limit(eta), weights.shape)
        marginal = self.slope(weights) + self.prices(eta)
        at_limit = weights >= limit * (1 - 1e-12)
        room = np.where(at_limit, 0.0, limit - weights)
        mass = self._sum(weights)
        low = (mass <= self.least + 1e-12) & (self.least > 0)
        high = (mass >= self.most - 1e-12) & (self.most < 1)
        active = low | high
        prices = np.zeros(self.least.size)
        for k in np.flatnonzero(active):
            some = self.group == k
            if not np.any(some):
                continue
            sells = np.any(weights[some] > 0)
            prices[k] = (
                common_price(weights[some], marginal[some], room[some])
                if sells
                else marginal[some].min()
            )
        others = ~active[self.group]
        if np.any(weights[others] > 0):
            price = common_price(weights[others], marginal[others], room[others])
        elif np.any(low & ~high):
            price = float(prices[low & ~high].min())
        elif np.any(high & ~low):
            price = float(prices[high & ~low].max())
        else:
            price = float(prices.mean())
        more = np.where(active, prices - price, 0.0)
        more = np.where(low & ~high, np.maximum(more, 0.0), more)
        more = np.where(high & ~low, np.minimum(more, 0.0), more)
        bound = np.where(more > 0, self.least, self.most)
        own = np.where(others, price, prices[self.group])
        extra = np.where(at_limit, np.maximum(own - marginal, 0.0), 0.0)
        return price, extra, float(more @ bound), -more[self.group]


class Projections:
    """Solves the problem, with finite virtual costs, at one eta after the other."""

    def __init__(self, form: ProjectableForm) -> None:
        self.form = form
        self.records: list[SolveRecord] = []
        largest = form.largest_eta()
        high = min(form.eta_high, largest)
        form.check_sold(form.eta_low)
        self.ends = min(form.eta_low, high), high

    def first(self) -> float:
        """Return the eta at which noise and payments balance if everybody weighs the same."""
        form = self.form
        price = form.gamma * float(form.virtual_costs.mean())
        if price > 0 and form.sigma > 0:
            return float(np.sqrt(form.sigma / price))
        return min(self.ends[1], 1.0) if self.ends[1] == np.inf else self.ends[1] / 2

    def solve(self, eta: float) -> Evaluated:
        """Return the optimum at eta and the cut of its multipliers."""
        start = time.perf_counter()
        form = self.form
        limit, weights = form.limit(eta), form.weights(eta)
        const, shares = 0.0, np.zeros(1)
        if isinstance(form, SharedForm):
            price, extra, const, shares = form.relief(weights, eta)
            capped = limit >= form.max_weight
            const -= float(np.sum(np.where(capped, form.max_weight * extra, 0.0)))
            shares = shares + np.where(capped, extra, 0.0)
        else:
            price, extra = form.multipliers(form.weight, weights, form.prices(eta), limit)
        extra = np.where(limit < form.max_weight, extra, 0.0)  # caps stay in the cut
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


def is_projectable(market: Market) -> bool:
    """Whether projections serve a market."""
    form = market.form
    if _shares_of(form) is not None:
        form = replace(form, other_constraints=())
    return form.is_projectable


def _shares_of(form: Form) -> Constraint | None:
    """Return the bound on shares, if a market has one and no other piece that has no numbers."""
    if form.other_terms or len(form.other_constraints) != 1:
        return None
    (piece,) = form.other_constraints
    return None if piece.shares is None else piece


def _form_of(market: Market) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
    piece = _shares_of(market.form)
    if piece is None:
        return ProjectableForm.of(market.form)
    return SharedForm.of_shares(market.form, piece)


def solve_projections(
    market: Market,
    gap: float = 1e-6,
    max_solves: int = 500,
    start: float | None = None,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy by a certified search over eta with exact evaluations; see :func:`allocate`.

    A gap of 1e-10 costs little more than a larger one, and is aimed at anyway.
    """
    began = time.perf_counter()
    check_gap(gap, max_solves)
    found = _form_of(market)
    if found is None:
        raise NotSupportedError(
            "projections serve sums of Spread() or SquaredSpread() (with mu > 0), Noise, linear "
            "Payments and Losses under Cap, EtaRange, MaxEpsilon, GivenEpsilon and one GroupShare, "
            "and payments or "
            f"largest guarantees there must be; this is {shown(market)}"
        )
    form, active = found
    runner = Projections(form)
    first = first_look(runner.first(), start)
    best, bound = search_eta(runner, first, min(gap, _AIM), max_solves, progress)
    ends = {"eta_low": form.eta_low, "eta_high": form.eta_high}
    for end in ends.values():  # the search stops next to an end that binds
        if runner.ends[0] <= end <= runner.ends[1] and 0 < end < np.inf:
            best = min(runner.solve(end), best, key=lambda point: point.objective)
    allocation = Allocation(
        weights=embed(best.weights, active),
        eta=best.eta,
        objective=best.objective,
        lower_bound=bound,
        multiplier=best.cut.price / best.eta,
        method="projections",
        seconds=time.perf_counter() - began,
        scale=best.scale,
        tolerance=gap,
        solves=tuple(runner.records),
        binding=tuple(name for name, end in ends.items() if best.eta == end),
    )
    allocation.warn_if_loose(
        gap, "bounds leave hardly a choice, or mu is next to nothing; try more max_solves"
    )
    return allocation
