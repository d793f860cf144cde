"""The guarantee of a seller as a function of its report, at fixed reports of the others.

Each point of the curve is a market with one cost replaced. All are solved together, exactly,
from the prefix sums of one sorted list (:mod:`convexmarket.allocation.path`).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np

from convexmarket.allocation.exact_solver import (
    costs_that_matter,
    optimum,
    solve_exact,
    unattained,
    with_spread,
)
from convexmarket.allocation.path import Costs, Floats, Ints, joined, rates_of, take
from convexmarket.allocation.simplex import check_feasible
from convexmarket.market import StandardForm

#: Number of markets solved together, which fit in the cache.
_CHUNK = 1 << 13


class CurvePoints(NamedTuple):
    """Points of the curve, arrays of one shape.

    ``epsilon`` is the guarantee sold, and ``value`` the optimal objective of the buyer. Its
    derivative in the seller's virtual cost is gamma*epsilon (the envelope theorem), wherever it
    exists. Sellers with virtual costs above ``level`` sell nothing.
    """

    epsilon: Floats
    value: Floats
    level: Floats


class OwnReportCurve:
    """Exact optimum of a market as a function of one seller's virtual cost.

    The ``form`` may contain only some sellers of the market. Then ``costs`` contains all
    relevant sellers, for any replaced seller. Sellers above the ``limit`` sell nothing, and
    ``n_sellers`` have finite costs.
    """

    def __init__(
        self,
        form: StandardForm,
        costs: Costs | None = None,
        limit: float = np.inf,
        n_sellers: int | None = None,
    ) -> None:
        psi = form.virtual_costs
        available = n_sellers or int(np.count_nonzero(psi < np.inf))
        if costs is None:
            check_feasible(form, available, psi.size)
            # One seller may leave, so the next more expensive sellers are included.
            costs, limit = costs_that_matter(with_spread(form), 1)
        self.form, self._spread, self._base, self._limit = form, with_spread(form), costs, limit
        # The smallest guarantee that one seller sells at any cost.
        low, others = form.eta_low, available - 1
        weight = max(0.0, 1.0 - others * form.max_weight)
        sold = others * form.max_epsilon if others else 0.0
        self._least_sold = max(low * weight, low - sold)
        self._needed = weight > 1e-12 or self._least_sold > 1e-12 * low

    def can_do_without(self) -> bool:
        """Whether the market is feasible without one of its sellers."""
        return not self._needed

    @cached_property
    def truth(self) -> Floats:
        """The guarantees of all sellers at their costs in the market, shape (m,)."""
        best = solve_exact(self.form, self._base)
        return best.eta * best.weights

    def __call__(self, seller: Ints, psi: Floats) -> CurvePoints:
        """Solve the market with ``psi[k]`` in place of the cost of ``seller[k]``, for all k.

        A cost of +inf removes the seller from the market. If the market is infeasible without the
        seller, the result is the limit: the smallest feasible purchase from the seller.
        """
        if not seller.size:
            return CurvePoints(*np.empty((3, 0)))
        truthful = psi == self.form.virtual_costs[seller]
        # All truthful entries are the same market, which is solved once.
        ask, source = np.unique(
            np.where(truthful, -1, np.arange(seller.size)), return_index=True, return_inverse=True
        )[1:]
        chunks = np.split(ask, np.arange(_CHUNK, ask.size, _CHUNK))
        points = take(joined([self._solve(seller[some], psi[some]) for some in chunks]), source)
        if np.count_nonzero(truthful) > 1:
            points.epsilon[truthful] = self.truth[seller[truthful]]
        return points

    def _solve(self, seller: Ints, psi: Floats) -> CurvePoints:
        form, base, endless = self._spread, self._base, psi == np.inf
        unsold = base.scale if self._needed else np.inf  # any finite cost
        asked = np.where(endless if self._needed else psi > self._limit, unsold, psi)
        costs = base.replaced(self.form.virtual_costs[seller], asked)
        point, _ = optimum(form, costs)
        if np.any(np.isinf(point.rate)):
            raise unattained()
        epsilon = point.weight_of(costs) * (point.rate / rates_of(form, costs)[1])
        level = costs.lowest + costs.scale * point.level
        points = CurvePoints(epsilon, form.mu * point.value, level)
        if self._needed:
            for part, limit in zip(points, (self._least_sold, np.inf, np.inf), strict=True):
                part[endless] = limit
        return points
