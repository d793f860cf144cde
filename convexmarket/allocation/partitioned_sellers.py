"""Exact allocations for sellers in partitions, on one or several machines.

After two passes over the partitions (:mod:`convexmarket.allocation.passes`), few sellers remain,
whose market is solved exactly. The weight of a seller is computed from its virtual cost and a few
numbers (:meth:`PartedAllocation.weights_of`), on the machine that stores the report.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.allocation.allocation_result import CertifiedPurchase
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.exact_solver import PathSegment, best_segment
from convexmarket.allocation.passes import Pass, blocks_of, screen_sellers
from convexmarket.allocation.path import Floats
from convexmarket.errors import NotSupportedError
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import SellerParts, Sellers
from convexmarket.terms import MarketNumbers


@dataclass(frozen=True, eq=False)
class PartedAllocation(CertifiedPurchase):
    """Guarantees to buy from sellers in partitions.

    Attributes
    ----------
    eta, objective, lower_bound, multiplier, binding
        As in :class:`~convexmarket.allocation.Allocation`.
    n_sellers : int
    seconds : float

    Examples
    --------
    >>> import pandas as pd
    >>> import dask.dataframe as dd
    >>> import convexmarket as cm
    >>> from convexmarket.partitions import sellers
    >>> asks = dd.from_pandas(pd.Series([0.1, 0.2, 0.4]), npartitions=2)
    >>> market = cm.Market.standard(sellers(asks, cm.Uniform(0, 1)), mu=1, sigma=1, gamma=1)
    >>> cm.allocate(market).epsilon.compute().round(2).tolist()
    [1.23, 0.69, 0.0]
    """

    eta: float
    objective: float
    lower_bound: float
    multiplier: float
    binding: tuple[str, ...]
    n_sellers: int
    seconds: float
    prior: Prior
    _parts: SellerParts = field(repr=False)
    _segment: PathSegment = field(repr=False)
    _curve: OwnReportCurve = field(repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without the partitions, for copies on workers."""
        return vars(self) | {"_parts": None}

    @property
    def n_bought(self) -> int:
        """Number of sellers with a positive weight."""
        return self._segment.bought

    @property
    def weights(self) -> Any:  # type: ignore[override]
        """The weights a_i, a Dask Series in the sellers' partitions."""
        return self._parts.column(self.weights_of, "weight")

    @property
    def epsilon(self) -> Any:
        """The guarantees eps_i = eta*a_i, a Dask Series in the sellers' partitions."""
        return self._parts.column(lambda part: self.eta * self.weights_of(part), "epsilon")

    def is_of(self, sellers: Sellers) -> bool:
        """Whether the allocation is for these sellers."""
        return self._parts is sellers.parts

    def certificate(self) -> dict[str, Any]:
        """Return the numbers of the certificate, as plain values for JSON."""
        names = ["objective", "lower_bound", "gap", "eta", "multiplier", "n_sellers", "n_bought"]
        values = {name: getattr(self, name) for name in [*names, "seconds"]}
        return values | {"method": "exact", "binding": list(self.binding)}

    def weights_of(self, sensitivities: ArrayLike) -> Floats:
        """Return the weights of the sellers of this market with the given reports.

        Parameters
        ----------
        sensitivities : array_like
        """
        return self._segment.weights(np.asarray(self.prior.ironed_virtual_cost(sensitivities)))

    def curve(self, sensitivities: ArrayLike) -> OwnReportCurve:
        """Return the guarantees of the sellers of this market as functions of their reports.

        Raises
        ------
        NotSupportedError
            If the weights of all other sellers cannot sum to one under the cap.
        """
        if (self.n_sellers - 1) * self._curve.form.max_weight < 1:
            raise NotSupportedError(
                "under this cap every seller is needed, which is not supported for partitions; "
                "raise the cap, or allocate in memory"
            )
        costs = np.asarray(self.prior.ironed_virtual_cost(sensitivities))
        return self._curve.of_part(costs, self.eta * self.weights_of(sensitivities))


def _on_costs(work: Pass, prior: Prior, reports: Floats) -> Any:
    return work(prior.ironed_virtual_cost(block) for block in blocks_of(reports))


def allocate_parts(parts: SellerParts, market: Market) -> PartedAllocation:
    """Solve the papers' problem (A, Eq. 11) exactly, for sellers in parts."""
    start, m = time.perf_counter(), len(parts)
    (prior,) = market.sellers.priors
    # No term of the papers' problem uses the costs.
    numbers = MarketNumbers(np.broadcast_to(0.0, m))
    form = numbers.plus(market.objective.parts, market.constraints).standard
    if form is None or not form.mu > 0:
        raise NotSupportedError(
            "partitions support mu*Spread() + sigma*Noise() + gamma*Payments() with mu > 0 and "
            f"gamma > 0, under Cap and EtaRange; this market is {market!r}"
        )
    form = replace(form, virtual_costs=np.empty(0))
    low, top = prior.support
    lowest = float(prior.ironed_virtual_cost(low))
    highest = float(prior.ironed_virtual_cost(top)) if np.isfinite(top) else np.inf
    spare = int((m - 1) * form.max_weight >= 1)  # feasible without any one seller

    def each(work: Pass) -> Sequence[Any]:
        return parts.map_parts(partial(_on_costs, work, prior))

    costs, limit = screen_sellers(each, form, m, lowest, highest, spare)
    segment, best, _ = best_segment(form, costs)
    return PartedAllocation(
        *(best.eta, best.objective, best.lower_bound, best.multiplier),
        binding=("Cap",) * (segment.capped > 0) + best.binding,
        n_sellers=m,
        seconds=time.perf_counter() - start,
        prior=prior,
        _parts=parts,
        _segment=segment,
        _curve=OwnReportCurve(form, costs, limit, m),
    )
