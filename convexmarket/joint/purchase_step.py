"""The best weights and eta for a given model: the market with the losses of the model.

Where the market is of the form of :mod:`convexmarket.allocation.projections` this takes about ten
exact evaluations; any other market is allocated by its best method.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from convexmarket.allocation import allocate
from convexmarket.allocation.eta_search import search_eta
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.simplex import embed
from convexmarket.joint.problem import JointMarket
from convexmarket.market import Market
from convexmarket.terms import EtaRange, Losses

__all__ = ["Purchase", "PurchaseStep"]

Floats = NDArray[np.float64]

#: Relative gaps of exact evaluations over eta, how many at most, and of a conic search.
_GAP, _MAX_SOLVES, _CONIC_GAP = 1e-13, 200, 1e-8


@dataclass(frozen=True, eq=False)
class Purchase:
    """Weights and eta, and by how much they may be improved for the same model."""

    weights: Floats
    eta: float
    excess: float


class PurchaseStep:
    """Chooses weights and eta for one model after the other.

    With a solver every step is solved by branch and bound; without one it is exact where the market
    allows it.
    """

    def __init__(self, joint: JointMarket, solver: str | None = None) -> None:
        self.joint, self.solver = joint, solver

    @cached_property
    def form(self) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
        """The market in numbers, of the sellers who can sell; None if it has another piece."""
        return None if self.solver else ProjectableForm.of(self.joint.market.form)

    def priced(self, model: Floats) -> ProjectableForm | None:
        """Return the market with the losses and the noise of a model."""
        if self.form is None:
            return None
        form, active = self.form
        losses = form.losses + self.joint.losses(model)[active]
        return replace(form, losses=losses, sigma=self.joint.noise_price(model))

    def __call__(self, model: Floats, start: float | None = None) -> Purchase:
        """Return the best weights and eta for a model, looking at an eta first."""
        if self.joint.noise_price(model) <= 0 < self.joint.eta_low:
            # Less privacy costs less and "noise" pays: the range of eta decides.
            return self.at(model, self.joint.eta_low)
        form = self.priced(model)
        if form is None or self.form is None:
            return self._allocated(self.joint.purchase_market(model))
        runner = Projections(form)
        best, bound = search_eta(runner, start or runner.first(), _GAP, _MAX_SOLVES, None)
        return Purchase(embed(best.weights, self.form[1]), best.eta, best.objective - bound)

    def at(self, model: Floats, eta: float) -> Purchase:
        """Return the best weights for a model at one eta."""
        form = self.priced(model)
        if form is not None and self.form is not None:
            form.check_sold(eta)
            return Purchase(embed(form.weights(eta), self.form[1]), eta, 0.0)
        market = self.joint.market
        objective = Losses(self.joint.losses(model)) + market.objective.without_noise
        constraints = [*market.constraints, EtaRange(eta, eta)]
        return self._allocated(Market(market.sellers, objective, constraints))

    def _allocated(self, market: Market) -> Purchase:
        method, solver = "branch_and_bound" if self.solver else "auto", self.solver or "CLARABEL"
        found = allocate(market, method, solver=solver, gap=_CONIC_GAP)  # type: ignore[arg-type]
        return Purchase(found.weights, found.eta, found.objective - found.lower_bound)
