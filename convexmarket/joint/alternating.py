r"""Alternating minimisation, and a global certificate where the problem is convex for each eta.

A step computes the best model for the present weights and eta, the next the best weights and eta
for that model; each is solved to the last digits, so that the objective never rises. Every few
steps a quasi-Newton method accelerates the descent along the models.

Where the problem is convex in (w, a) for a fixed eta (:func:`convexity_ratio` below 1), linear in
the payments and without realised noise, alternation at a fixed eta finds its global optimum, and a
tangent there bounds the objective for *every* eta. Write the objective as ``Phi(w, a) +
2*r*||w||/eta + gamma*eta*psi'a + sigma/eta``, r = 0 for expected noise. With rho the ratio, ``(1 -
sqrt(rho))`` of the curvature of the spread and of the regularization may be split off before Phi is
replaced by its tangent, since the rest is still convex. The bound keeps both and is of second
order, like the cuts of :mod:`convexmarket.allocation.cuts`, and the same search over eta uses it.
Its minimum over the models has a closed form, concave and nondecreasing in 1/eta.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from convexmarket.allocation.allocation_result import SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, search_eta
from convexmarket.allocation.projections import Projections
from convexmarket.joint.certificates import convexity_ratio
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.steps import Purchase, PurchaseStep, best_model, model_gradient, norm_price

__all__ = ["Descent", "GlobalSearch"]

Floats = NDArray[np.float64]

#: Alternations before a quasi-Newton descent, its largest number of steps, and alternations at a
#: fixed eta.
_ALTERNATIONS, _ACCELERATED, _AT_ETA = 5, 50, 500
_MAX_SOLVES = 200


class Descent:
    """The best point so far of a descent in the joint problem."""

    def __init__(self, joint: JointMarket, step: PurchaseStep, model: Floats) -> None:
        self.joint, self.step, self.model = joint, step, model
        self.weights = np.zeros(len(joint.market.sellers))
        self.eta, self.objective, self.residual = np.nan, np.inf, np.inf

    @property
    def scale(self) -> float:
        """The size of the objective."""
        return max(abs(self.objective), float(np.finfo(float).tiny))

    def take(self, model: Floats, weights: Floats, eta: float) -> None:
        """Move to a point if it is not worse."""
        objective = self.joint.objective(model, weights, eta)
        if objective <= self.objective:
            self.model, self.weights, self.eta = model, weights, eta
            self.objective = objective

    def run(self, tol: float, max_iterations: int, eta: float | None = None) -> None:
        """Alternate from the present model, at a fixed eta if one is given.

        Alternation converges linearly, so that every few steps a quasi-Newton method descends along
        the models. With weights and eta minimised out, the objective is a function of the model
        alone, with the gradient at the best purchase (envelope theorem).
        """
        joint = self.joint

        def bought(model: Floats) -> Purchase:
            if eta is not None:
                return self.step.at(model, eta)
            return self.step(model, None if np.isnan(self.eta) else self.eta)

        def reduced(model: Floats) -> tuple[float, Floats]:
            best = bought(model)
            self.take(model.copy(), best.weights, best.eta)
            value = joint.objective(model, best.weights, best.eta)
            return value, model_gradient(joint, model, best.weights, best.eta)

        options: Any = {"maxiter": _ACCELERATED, "ftol": tol, "gtol": 0.0}
        for iteration in range(1, max_iterations + 1):
            before = self.objective
            if iteration % _ALTERNATIONS == 0 and joint.max_norm is None:
                minimize(reduced, self.model, jac=True, method="L-BFGS-B", options=options)
            best = bought(self.model)
            self.take(self.model, best.weights, best.eta)
            self.take(best_model(joint, self.weights, self.eta), self.weights, self.eta)
            if before - self.objective <= tol * self.scale:
                return

    def measure(self) -> None:
        """Set the residual: the largest gain of a change of the model or the purchase alone."""
        best = self.step(self.model, self.eta)
        objective = self.joint.objective(self.model, best.weights, best.eta)
        gradient = model_gradient(self.joint, self.model, self.weights, self.eta)
        gain = float(gradient @ gradient) / (2 * self.joint.regularization)
        excess = max(self.objective - objective + best.excess, 0.0)
        self.residual = (gain + excess) / self.scale


@dataclass(eq=False)
class _JointCut(KeptSpreadCut):
    """A cut plus the minimum over the models, a concave nondecreasing function of s = 1/eta.

    Between two s its chord is a lower bound, which is a constant plus noise.
    """

    model: Callable[[float], float] = float

    def __call__(self, eta: float) -> float:
        return super().__call__(eta) + self.model(1.0 / eta)

    def minimum(self, low: float, high: float) -> tuple[float, float]:
        least, slope = 1.0 / high, 0.0
        level = self.model(least)
        if 0 < low < high:
            slope = (self.model(1.0 / low) - level) / (1.0 / low - least)
            level -= slope * least
        rest = self.costs, self.slopes, self.spread, self.price
        return KeptSpreadCut(self.const + level, self.noise + slope, *rest).minimum(low, high)

    def blend(self, other: KeptSpreadCut, share: float) -> KeptSpreadCut:
        assert isinstance(other, _JointCut)
        mixed, models = super().blend(other, share), (self.model, other.model)
        return replace(mixed, model=lambda s: (1 - share) * models[0](s) + share * models[1](s))  # type: ignore[call-arg]

    def interval_bound(self, other: KeptSpreadCut, low: float, high: float) -> tuple[float, float]:
        assert isinstance(other, _JointCut)
        eta, value = super().interval_bound(other, low, high)
        return eta, value + min(self.model(1.0 / high), other.model(1.0 / high))


class GlobalSearch:
    """Solver of the joint problem at given eta, with cuts that are valid for every eta.

    The problem is convex for a fixed eta, with expected or worst-case noise and linear payments.
    """

    def __init__(self, joint: JointMarket, step: PurchaseStep, tol: float) -> None:
        assert step.form is not None
        self.joint, self.step, self.tol = joint, step, tol
        self.ends = Projections(step.form[0]).ends
        self.records: list[SolveRecord] = []
        self.model = np.zeros(joint.X.shape[1])  # of the eta before: a good start
        self.descents: dict[float, Descent] = {}

    def best(self, first: float, gap: float) -> tuple[Descent, float]:
        """Search all eta; return the best point and a lower bound on the objective."""
        best, bound = search_eta(self, first, gap, _MAX_SOLVES, None)
        return self.descents[best.eta], bound

    def solve(self, eta: float) -> Evaluated:
        """Return the optimum at eta and a bound on the optimum at every eta."""
        began = time.perf_counter()
        descent = Descent(self.joint, self.step, self.model)
        descent.run(self.tol, _AT_ETA, eta)
        descent.take(descent.model, self.step.at(descent.model, eta).weights, eta)
        self.model = descent.model
        self.descents[eta] = descent
        cut = self._cut(descent.model, descent.weights, eta)
        seconds = time.perf_counter() - began
        self.records.append(SolveRecord(eta, descent.objective, cut(eta), "alternated", seconds))
        return Evaluated(descent.weights, eta, descent.objective, cut, descent.scale)

    def _cut(self, model: Floats, weights: Floats, eta: float) -> KeptSpreadCut:
        """Return the tangent of the convex part, with the curvature that may be kept."""
        joint, root = self.joint, float(np.sqrt(convexity_ratio(self.joint)))
        priced, form = self.step.priced(model), self.step.form
        assert priced is not None
        assert form is not None
        priced, a = replace(priced, sigma=joint.sigma), weights[form[1]]
        weight, keep = (1 - root) * priced.weight, (1 - root) * joint.regularization
        plain = Projections(priced).solve(eta).cut
        slope = root * priced.slope(a)
        spread = root * (
            priced.objective(a, eta) - float(priced.prices(eta) @ a) - joint.sigma / eta
        )
        # With g the slope of Phi the model's part is keep/2*||w - v||^2 + 2*r*s*||w||, v = w - g.
        radius, norm = norm_price(joint, 1.0), float(np.linalg.norm(model))
        gradient = model_gradient(joint, model, weights, eta, smooth=norm == 0)
        if norm > 0:
            gradient = gradient - radius / eta * model / norm
        centre = float(np.linalg.norm(model - gradient / keep))
        const = joint.regularization / 2 * norm**2 - float(gradient @ gradient) / (2 * keep)

        def envelope(s: float) -> float:
            reach = min(radius * s / keep, centre)
            return keep * reach * (centre - reach / 2) + const

        return _JointCut(
            const=plain.const + spread - float(slope @ a),
            noise=plain.noise,
            costs=plain.costs + slope,
            slopes=plain.slopes,
            spread=lambda costs: priced.minimum(weight, costs),
            price=plain.price,
            model=envelope,
        )
