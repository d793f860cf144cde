"""Exact allocations of sellers who do not fit in one memory, or on one machine.

Passes over partitions (:mod:`convexmarket.allocation.passes`) leave the few sellers who matter;
they are solved here, exactly. What the optimum buys from anybody then follows from the own virtual
cost and a few numbers (:meth:`PartedAllocation.weights`), wherever that seller is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.bounds import check_noise
from convexmarket.allocation.costs import GroupedCosts, Ints, ReplacedInGroups
from convexmarket.allocation.curve import CurvePoints, OwnReportCurve
from convexmarket.allocation.exact import (
    Place,
    best_place,
    check_enough,
    check_sum,
    highest_cost_bought,
    priced,
    weigh,
)
from convexmarket.allocation.passes import Pass, blocks_of, survey
from convexmarket.errors import NotSupportedError, ParameterError, SellersError
from convexmarket.market import Market, StandardForm
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers

__all__ = ["DaskSellers", "PartedAllocation", "allocate_parts"]

Floats = NDArray[np.float64]

#: Sellers who are fetched to be solved exactly.
_MOST = 100_000


class DaskSellers:
    """Sellers in the partitions of a Dask collection; they stay where they are.

    Parameters
    ----------
    sensitivities : Dask Series or one-dimensional Array
        Reported sensitivities; one column of a Parquet folder, for example.
    prior : Prior
        What they are drawn from.

    Raises
    ------
    SellersError
        If there is no seller, or a sensitivity is no number or not in the prior's support; the
        message names the first partition and row at fault.
    """

    def __init__(self, sensitivities: Any, prior: Prior) -> None:
        if not hasattr(sensitivities, "to_delayed"):
            raise ParameterError(
                f"sensitivities is a {type(sensitivities).__name__}; give a column of a Dask "
                "DataFrame, or a Dask array; others are for Sellers"
            )
        self._parts = list(np.ravel(sensitivities.to_delayed()))
        self.prior = prior
        self.n_passes = 0
        found = self._map(partial(_checked, prior.support))
        self.size = sum(size for size, _ in found)
        for number, (_, bad) in enumerate(found):
            if bad >= 0:
                low, high = prior.support
                raise SellersError(
                    f"row {bad} of partition {number} holds no number in the support [{low:g}, "
                    f"{high:g}] of {prior!r}; correct the report, or declare a prior that covers it"
                )
        if not self.size:
            raise SellersError("there are no sellers in any partition; give at least one")

    def each(self, work: Pass) -> Sequence[Any]:
        """Return what the work gives for the virtual costs of each partition."""
        return self._map(partial(_on_costs, work, self.prior))

    def _map(self, work: Any) -> Sequence[Any]:
        import dask

        self.n_passes += 1
        # The work gives the same each time: what dies with a worker is done again.
        return dask.compute(*(dask.delayed(work, pure=False)(part) for part in self._parts))


def _checked(support: tuple[float, float], part: Any) -> tuple[int, int]:
    """Return how many sellers a partition has, and the first without a report; -1 if all have."""
    reports = np.asarray(part, dtype=float)
    bad = ~((reports >= max(support[0], 0.0)) & (reports <= support[1]) & (reports < np.inf))
    return reports.size, int(np.argmax(bad)) if bad.any() else -1


def _on_costs(work: Pass, prior: Prior, part: Any) -> Any:
    reports = np.ascontiguousarray(part, dtype=float)
    return work(prior.ironed_virtual_cost(block) for block in blocks_of(reports))


@dataclass(frozen=True)
class PartedAllocation:
    """How much privacy to buy, from sellers who are elsewhere.

    Attributes
    ----------
    eta, objective, lower_bound, multiplier, binding
        As in :class:`~convexmarket.allocation.Allocation`.
    n_sellers, n_bought : int
    n_passes : int
        Passes over the partitions, the check of the reports included.
    seconds : float
    """

    eta: float
    objective: float
    lower_bound: float
    multiplier: float
    binding: tuple[str, ...]
    n_sellers: int
    n_bought: int
    n_passes: int
    seconds: float
    prior: Prior
    _form: StandardForm = field(repr=False)
    _place: Place = field(repr=False)
    _costs: GroupedCosts = field(repr=False)

    @property
    def gap(self) -> float:
        """Relative distance between objective and lower bound."""
        return max(0.0, self.objective - self.lower_bound) / abs(self.objective)

    def weights(self, sensitivities: ArrayLike) -> Floats:
        """Return the weights of sellers of this market, by their reports.

        Works on a part of them, so that ``series.map_partitions(allocation.weights)`` does.
        """
        psi = np.asarray(self.prior.ironed_virtual_cost(sensitivities))
        out = np.empty(psi.size)
        weigh(psi, self._place.piece, self._form.max_weight, out)
        return out

    def epsilon(self, sensitivities: ArrayLike) -> Floats:
        """Return the guarantees eps_i = eta*a_i of sellers of this market, by their reports."""
        return self.eta * self.weights(sensitivities)

    def curve(self, sensitivities: ArrayLike) -> PartCurve:
        """Return what sellers of this market would get at dearer reports.

        Raises
        ------
        NotSupportedError
            If the others cannot carry the whole weight under the cap.
        """
        if not _can_do_without_one(self.n_sellers, self._form):
            raise NotSupportedError(
                "under this cap the buyer cannot do without anyone, which partitions are not for; "
                "raise the cap, or allocate in memory"
            )
        psi = np.asarray(self.prior.ironed_virtual_cost(sensitivities))
        return PartCurve(replace(self._form, virtual_costs=psi), self)


class PartCurve(OwnReportCurve):
    """The exact answers of a market as the virtual cost of one of some sellers rises."""

    _common = None

    def __init__(self, form: StandardForm, allocation: PartedAllocation) -> None:
        self.form = form
        self._base: GroupedCosts = allocation._costs
        self._limit = self._base.limit
        weights = np.empty(form.virtual_costs.size)
        weigh(form.virtual_costs, allocation._place.piece, form.max_weight, weights)
        self.truth = allocation.eta * weights

    def can_do_without(self) -> bool:
        """Whether the others can carry the whole weight under the cap."""
        return True

    def at(self, seller: Ints, psi: float) -> Floats:
        """Return the optimal objectives if each seller alone had one and the same cost."""
        return self(seller, np.full(seller.size, psi)).value

    def _solve(self, seller: Ints, psi: Floats) -> CurvePoints:
        instead = np.where(psi > self._limit, np.inf, psi)
        own = self.form.virtual_costs[seller]
        return self._interior(ReplacedInGroups(self._base, own, instead))


def _can_do_without_one(m: int, form: StandardForm) -> bool:
    return (m - 1) * form.max_weight >= 1


def allocate_parts(
    sellers: DaskSellers,
    *,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None = None,
    eta_range: tuple[float, float] | None = None,
) -> PartedAllocation:
    """Solve the papers' problem (A, Eq. 11) exactly, for sellers in the partitions of Dask.

    Parameters
    ----------
    sellers : DaskSellers
    mu, sigma, gamma, cap, eta_range
        As for :meth:`convexmarket.market.Market.standard`; mu > 0.

    Returns
    -------
    PartedAllocation

    Raises
    ------
    InfeasibleMarketError, UnattainedOptimumError, ParameterError
        As for :func:`convexmarket.allocate`.
    NotSupportedError
        If mu is 0.
    """
    start, before = time.perf_counter(), sellers.n_passes
    form = _form(sellers.size, mu, sigma, gamma, cap, eta_range)
    check_noise(form)

    def ceiling(g: float) -> float:
        return highest_cost_bought(form, np.broadcast_to(g, sellers.size))

    def check(available: int) -> None:
        check_enough(form, available, sellers.size)

    prior, dearest = sellers.prior, None
    if _can_do_without_one(sellers.size, form):
        top = prior.support[1]
        dearest = float(prior.ironed_virtual_cost(top)) if np.isfinite(top) else np.inf
    costs = survey(sellers, form, ceiling, _MOST, check, dearest)
    place = best_place(form, costs)
    sums = np.sum(sellers.each(partial(_weighed, place, form.max_weight)), axis=0)
    check_sum(float(sums[0]))
    bought = priced(form, costs, place, float(np.sqrt(sums[1])), float(sums[2]))
    return PartedAllocation(
        eta=bought.eta,
        objective=bought.objective,
        lower_bound=bought.lower_bound,
        multiplier=bought.multiplier,
        binding=bought.binding,
        n_sellers=sellers.size,
        n_bought=int(sums[3]),
        n_passes=sellers.n_passes - before + 1,
        seconds=time.perf_counter() - start,
        prior=prior,
        _form=form,
        _place=place,
        _costs=costs,
    )


def _form(
    m: int,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None,
    eta_range: tuple[float, float] | None,
) -> StandardForm:
    """Return the problem without its costs, its numbers checked as those of any market are."""
    one = Market.standard(
        Sellers(virtual_costs=[1.0]), mu=mu, sigma=sigma, gamma=gamma, eta_range=eta_range
    ).standard_form
    if one is None or not one.mu > 0:
        raise NotSupportedError(
            f"mu is {mu!r} and gamma {gamma!r}: partitions are for markets with mu > 0 and "
            "gamma > 0; allocate in memory"
        )
    if cap is not None and not 1 <= cap < np.inf:
        raise ParameterError(f"cap is {cap!r}; give a number >= 1, or leave it out")
    return StandardForm(
        np.empty(0),
        one.mu,
        one.sigma,
        one.gamma,
        1.0 if cap is None else min(cap / m, 1.0),
        one.eta_low,
        one.eta_high,
    )


def _weighed(place: Place, cap: float, blocks: Iterable[Floats]) -> Floats:
    """Return the sums of the weights of a partition, and how many are bought from."""
    sums = np.zeros(4)
    for psi in blocks:
        out = np.empty(psi.size)
        sums += (*weigh(psi, place.piece, cap, out), int(np.count_nonzero(out)))
    return sums
