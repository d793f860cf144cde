r"""The papers' problem with one largest guarantee for all, without a conic solver.

.. math:: \min\; \mu\|a\| + \sigma/\eta + \gamma\eta\,\psi^\top a \quad\text{s.t.}\quad
          \mathbf 1^\top a = 1,\; 0 \le a \le k/m,\; \eta a \le e

For a fixed eta this is the problem with the cap ``min(k/m, e/eta)``, solved exactly by projections.
Over eta the objective is piecewise smooth, and on each piece a stationary point is a root of a
polynomial of degree eight (docs/theory.md, section 9), so there is no closed form to enumerate as
for a cap alone. Branch and bound over exact evaluations certifies the optimum instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation.bounds import unattained_noise
from convexmarket.allocation.branch import Evaluated, check_gap, search_eta
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.formulations import (
    embed,
    marginal_price,
    optimal_weights,
    restrict_to_finite,
)
from convexmarket.allocation.region import Region
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.errors import InfeasibleMarketError, NotSupportedError
from convexmarket.market import Market, StandardForm
from convexmarket.terms import MaxEpsilon, Spread

__all__ = ["limited_form", "solve_limited"]

Floats = NDArray[np.float64]


def limited_form(market: Market) -> tuple[StandardForm, float] | None:
    """Return the papers' problem in numbers and the largest guarantee; None for other markets."""
    limits = [
        float(item.epsilon)
        for item in market.constraints
        if type(item) is MaxEpsilon and np.ndim(item.epsilon) == 0
    ]
    others = [item for item in market.constraints if type(item) is not MaxEpsilon]
    if not limits or len(limits) + len(others) < len(market.constraints):
        return None
    form = Market(market.sellers, market.objective, others).standard_form
    return None if form is None or form.mu == 0 else (form, min(limits))


class _Projections:
    """Solves the problem at a fixed eta by projections."""

    def __init__(self, form: StandardForm, largest: float) -> None:
        self.form = form
        self.largest = largest
        self.records: list[SolveRecord] = []
        m = form.virtual_costs.size
        high = min(form.eta_high, m * largest)
        if form.eta_low > high * (1 + 1e-12):
            raise InfeasibleMarketError(
                f"{m} sellers at no more than epsilon = {largest:g} sell {m * largest:g} in all, "
                f"but the EtaRange starts at {form.eta_low:g}; raise one or lower the other"
            )
        self.region = Region(min(form.eta_low, high), high, None)

    def solve(self, eta: float) -> Evaluated:
        """Return the optimum at eta and the cut of its multipliers."""
        start = time.perf_counter()
        form, t = self.form, self.form.gamma * eta
        limit = self.largest / eta
        capped = replace(form, max_weight=min(form.max_weight, limit))
        weights = optimal_weights(capped, t)
        price = marginal_price(capped, weights, t)
        at_cap = weights >= capped.max_weight * (1 - 1e-12)
        slope = form.mu * weights / np.linalg.norm(weights)
        extra = np.where(at_cap, np.maximum(price - slope - t * form.virtual_costs, 0.0), 0.0)
        by_epsilon = limit < form.max_weight
        cut = KeptSpreadCut(
            const=0.0 if by_epsilon else -form.max_weight * float(extra.sum()),
            noise=form.sigma - (self.largest * float(extra.sum()) if by_epsilon else 0.0),
            costs=extra,
            slopes=form.gamma * form.virtual_costs,
            spread=lambda costs: Spread().simplex_minimum(form.mu, costs),
            price=price,
        )
        objective = form.objective(weights, eta)
        seconds = time.perf_counter() - start
        self.records.append(SolveRecord(eta, objective, cut(eta), "projected", seconds))
        return Evaluated(weights, eta, objective, cut)


def solve_limited(
    market: Market,
    gap: float = 1e-10,
    max_solves: int = 500,
    progress: Callable[[SolveRecord], None] | None = None,
) -> Allocation:
    """Allocate privacy in the papers' problem with one ``MaxEpsilon`` for all.

    Parameters
    ----------
    market : Market
    gap : float
        Relative distance between objective and lower bound to stop at.
    max_solves : int
        At most this many evaluations, each O(m log m).
    progress : callable, optional
        Called with the :class:`SolveRecord` of each evaluation.

    Raises
    ------
    NotSupportedError
        If the market is of another form.
    InfeasibleMarketError, UnattainedOptimumError
        If there is no optimum.
    """
    began = time.perf_counter()
    check_gap(gap, max_solves)
    found = limited_form(market)
    if found is None:
        raise NotSupportedError(
            "projections serve sums of Spread() (with mu > 0), Noise and linear Payments under one "
            f"MaxEpsilon for all, Cap and EtaRange; this is {market!r}"
        )
    form, active = restrict_to_finite(found[0])
    if form.sigma == 0 and form.eta_low == 0:
        raise unattained_noise()
    runner = _Projections(form, found[1])
    mean = max(float(form.virtual_costs.mean()), np.finfo(float).tiny)
    first = np.sqrt(form.sigma / (form.gamma * mean))
    best, bound = search_eta(runner, first, gap, max_solves, progress)
    ends = {"eta_low": form.eta_low, "eta_high": form.eta_high}
    return Allocation(
        weights=embed(best.weights, active),
        eta=best.eta,
        objective=best.objective,
        lower_bound=bound,
        multiplier=best.cut.price / best.eta,
        method="projections",
        seconds=time.perf_counter() - began,
        tolerance=gap,
        solves=tuple(runner.records),
        binding=tuple(name for name, end in ends.items() if best.eta == end),
    )
