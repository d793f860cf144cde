"""The guarantee of a seller as a function of its report, given the reports of all other sellers.

Each point of the curve is the optimum of a market in which one cost is replaced. All these markets
are solved exactly and together, from the prefix sums of one sorted list
(:mod:`convexmarket.allocation.path`).
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from convexmarket.allocation.exact_solver import (
    UNATTAINED,
    costs_that_matter,
    optimum,
    solve_exact,
    with_spread,
)
from convexmarket.allocation.path import Costs, Floats, Ints, Markets
from convexmarket.errors import UnattainedOptimumError
from convexmarket.market import StandardForm

#: Number of markets that are solved together, chosen so that their arrays fit in the cache.
_CHUNK = 1 << 13


class CurvePoints(NamedTuple):
    """Points of the curve, as arrays of one shape.

    ``epsilon`` is the guarantee sold, and ``value`` the optimal objective of the buyer. By the
    envelope theorem, the derivative of ``value`` with respect to the seller's virtual cost is
    gamma*epsilon, where it exists. Sellers with virtual costs above ``level`` sell nothing.
    """

    epsilon: Floats
    value: Floats
    level: Floats


class OwnReportCurve:
    """Exact optimum of a market as a function of one seller's virtual cost.

    If ``form`` contains only some sellers of the market, ``costs`` must contain every seller who
    sells after some replacement. Sellers with virtual costs above ``limit`` sell nothing.
    ``n_sellers`` is the number of sellers with finite virtual costs. ``needs_each`` is whether the
    market is infeasible if any one seller leaves.
    """

    def __init__(
        self,
        form: StandardForm,
        costs: Costs | None = None,
        limit: float = np.inf,
        n_sellers: int | None = None,
    ) -> None:
        available = n_sellers or int(np.count_nonzero(form.virtual_costs < np.inf))
        self.form, self._spread = form, with_spread(form)
        # Include the next more expensive sellers, because one seller can leave.
        self._costs, self._limit = (costs, limit) if costs else costs_that_matter(self._spread, 1)
        # The smallest guarantee that one seller sells at any cost.
        low, others = form.eta_low, available - 1
        weight = max(0.0, 1.0 - others * form.max_weight)
        sold = others * form.max_epsilon if others else 0.0
        self._least_sold = max(low * weight, low - sold)
        self.needs_each = weight > 1e-12 or self._least_sold > 1e-12 * low

    def of_part(self, virtual_costs: Floats, truth: Floats) -> OwnReportCurve:
        """Return the curve of sellers with given virtual costs and guarantees in this market."""
        part = copy(self)
        part.form, part.truth = replace(self.form, virtual_costs=virtual_costs), truth
        return part

    @cached_property
    def truth(self) -> Floats:
        """The guarantees of all sellers at their costs in the market, shape (m,)."""
        best = solve_exact(self.form, self._costs)
        return best.eta * best.weights

    def __call__(self, seller: Ints, psi: Floats) -> CurvePoints:
        """Solve the market with ``psi[k]`` in place of the cost of ``seller[k]``, for all k.

        A cost of +inf removes the seller from the market. If the market is infeasible without the
        seller, the result is the smallest feasible purchase from the seller.
        """
        old, points = self.form.virtual_costs[seller], np.empty((3, seller.size))
        # Truthful reports do not change the market, which is solved once.
        truthful = np.flatnonzero(psi == old)
        rest = np.delete(np.arange(seller.size), truthful[1:])
        for some in np.split(rest, np.arange(_CHUNK, rest.size, _CHUNK)):
            if some.size:
                points[:, some] = self._solve(old[some], psi[some])
        if truthful.size > 1:
            points[:, truthful] = points[:, truthful[:1]]
            points[0, truthful] = self.truth[seller[truthful]]
        return CurvePoints(*points)

    def _solve(self, old: Floats, psi: Floats) -> tuple[Floats, Floats, Floats]:
        costs, endless = self._costs, psi == np.inf
        unsold = costs.scale if self.needs_each else np.inf  # sold at any finite cost
        new = np.where(endless if self.needs_each else psi > self._limit, unsold, psi)
        markets = Markets(costs, old, new)
        points, _ = optimum(self._spread, markets)
        if np.any(np.isinf(points.rate)):
            raise UnattainedOptimumError(UNATTAINED.format("at some report a seller has"))
        etas = points.rate / costs.units(self._spread)[1]
        epsilon = markets.weights(points, markets.place, markets.new) * etas
        value, level = self._spread.mu * points.value, costs.lowest + costs.scale * points.level
        if self.needs_each:
            epsilon[endless], value[endless], level[endless] = self._least_sold, np.inf, np.inf
        return epsilon, value, level
