r"""Alternating minimisation, and a global certificate where the problem is convex for each eta.

A step chooses the best model for the weights and eta at hand, the next the best weights and eta for
that model; each is solved to the last digits, so that the objective never rises. Every few steps a
quasi-Newton method leaps ahead along the models.

Where the problem is convex in (w, a) for a fixed eta (:func:`convexity_ratio` below 1), linear in
the payments and without noise in the model, alternation at a fixed eta finds its global optimum,
and a tangent there bounds the objective for *every* eta. Write the objective as
``Phi(w, a) + gamma*eta*psi'a + sigma/eta``. With rho the ratio, ``(1 - sqrt(rho))`` of the
curvature of the spread and of the regularization may be split off before Phi is replaced by its
tangent, since what is left is still convex: the bound keeps both and is of second order, like the
cuts of :mod:`convexmarket.allocation.cuts`, and the same search over eta uses it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, search_eta
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.result import SolveRecord
from convexmarket.joint.certificates import convexity_ratio
from convexmarket.joint.model_step import best_model, model_gradient
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import Purchase, PurchaseStep
from convexmarket.joint.result import TracePoint

__all__ = ["Descent", "GlobalSearch", "alternate"]

Floats = NDArray[np.float64]

#: Alternations before a leap, and the steps of one.
_ALTERNATIONS = 5
_LEAP = 50


class Descent:
    """A point of the joint problem that only ever gets better, and the trace of how."""

    def __init__(
        self,
        joint: JointMarket,
        step: PurchaseStep,
        start: int,
        progress: Callable[[TracePoint], None] | None = None,
    ) -> None:
        self.joint = joint
        self.step = step
        self.start = start
        self.progress = progress
        self.trace: list[TracePoint] = []
        self.model = np.zeros(joint.X.shape[1])
        self.weights = np.zeros(len(joint.market.sellers))
        self.eta = np.nan
        self.objective = np.inf
        self.residual = np.inf
        self._began = time.perf_counter()

    def take(self, name: str, model: Floats, weights: Floats, eta: float) -> None:
        """Move to a point, if it is better, and say so."""
        objective = self.joint.objective(model, weights, eta)
        if objective <= self.objective:
            self.model, self.weights, self.eta = model, weights, eta
            self.objective = objective
        seconds = time.perf_counter() - self._began
        point = TracePoint(self.start, name, self.eta, self.objective, seconds)
        self.trace.append(point)
        if self.progress is not None:
            self.progress(point)

    def run(self, tol: float, max_iterations: int, eta: float | None = None) -> None:
        """Alternate from the model at hand, at a fixed eta if one is given."""
        joint = self.joint
        for iteration in range(1, max_iterations + 1):
            before = self.objective
            if iteration % _ALTERNATIONS == 0 and joint.max_norm is None:
                self._leap(eta, tol)
            bought = self._bought(self.model, eta)
            self.take("purchase", self.model, bought.weights, bought.eta)
            self.residual = self._residual(bought)
            self.take("model", best_model(joint, self.weights, self.eta), self.weights, self.eta)
            scale = max(abs(self.objective), np.finfo(float).tiny)
            if before - self.objective <= tol * scale:
                return

    def _bought(self, model: Floats, eta: float | None) -> Purchase:
        """Return the best purchase for a model, at a fixed eta if one is given."""
        if eta is not None:
            return self.step.at(model, eta)
        return self.step(model, None if np.isnan(self.eta) else self.eta)

    def _leap(self, eta: float | None, tol: float) -> None:
        """Descend along the models, with the best purchase for each, by a quasi-Newton method.

        Alternation converges linearly. With weights and eta minimised out the objective is a
        function of the model alone, whose slope is that at the best purchase (the envelope
        theorem).
        """

        def reduced(model: Floats) -> tuple[float, Floats]:
            bought = self._bought(model, eta)
            self.take("leap", model.copy(), bought.weights, bought.eta)
            value = self.joint.objective(model, bought.weights, bought.eta)
            return value, model_gradient(self.joint, model, bought.weights, bought.eta)

        minimize(
            reduced,
            self.model,
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": _LEAP, "ftol": tol, "gtol": 0.0},
        )

    def _residual(self, bought: Purchase) -> float:
        """Return what model or purchase alone may still gain, relative to the objective."""
        gradient = model_gradient(self.joint, self.model, self.weights, self.eta)
        gain = float(gradient @ gradient) / (2 * self.joint.regularization)
        scale = max(abs(self.objective), np.finfo(float).tiny)
        return (gain + max(bought.excess, 0.0)) / scale


def alternate(
    joint: JointMarket,
    step: PurchaseStep,
    models: list[Floats],
    tol: float,
    max_iterations: int,
    progress: Callable[[TracePoint], None] | None,
) -> list[Descent]:
    """Alternate from every model of a list."""
    found = []
    for number, model in enumerate(models):
        descent = Descent(joint, step, number, progress)
        descent.model = model
        descent.run(tol, max_iterations)
        found.append(descent)
    return found


class GlobalSearch:
    """Solves the joint problem at one eta after the other, with cuts that hold for every eta.

    Parameters
    ----------
    joint : JointMarket
        Convex for a fixed eta, with expected noise and linear payments.
    step : PurchaseStep
        Exact.
    form : ProjectableForm
        Of the joint's market.
    """

    def __init__(
        self, joint: JointMarket, step: PurchaseStep, form: ProjectableForm, tol: float
    ) -> None:
        self.joint, self.step, self.form, self.tol = joint, step, form, tol
        self.ends = Projections(form).ends
        self.records: list[SolveRecord] = []
        self.ratio = convexity_ratio(joint)
        self.model = np.zeros(joint.X.shape[1])
        self.descents: dict[float, Descent] = {}

    @classmethod
    def of(cls, joint: JointMarket, step: PurchaseStep, tol: float) -> GlobalSearch | None:
        """Return the search, or None where the problem is not of its kind."""
        if step.form is None or joint.noise != "expected" or convexity_ratio(joint) >= 1:
            return None
        return cls(joint, step, step.form[0], tol)

    def solve(self, eta: float) -> Evaluated:
        """Return the optimum at eta and a bound on the optimum at every eta."""
        began = time.perf_counter()
        descent = Descent(self.joint, self.step, 0)
        descent.model = self.model  # of the eta before: a good start
        descent.run(self.tol, 500, eta)
        bought = self.step.at(descent.model, eta)
        descent.take("purchase", descent.model, bought.weights, eta)
        self.model = descent.model
        self.descents[eta] = descent
        cut = self._cut(descent.model, descent.weights, eta)
        seconds = time.perf_counter() - began
        self.records.append(SolveRecord(eta, descent.objective, cut(eta), "alternated", seconds))
        scale = abs(descent.objective) or 1.0
        return Evaluated(descent.weights, eta, descent.objective, cut, scale)

    def _cut(self, model: Floats, weights: Floats, eta: float) -> KeptSpreadCut:
        """Return the tangent of the convex part, with the curvature that may be kept."""
        joint, root = self.joint, float(np.sqrt(self.ratio))
        form = self.step.priced(model)
        assert form is not None
        assert self.step.form is not None
        a = weights[self.step.form[1]]
        kept, keep = (1 - root) * form.weight, (1 - root) * joint.regularization
        runner = Projections(form)
        plain = runner.solve(eta).cut
        assert isinstance(plain, KeptSpreadCut)
        slope = root * form.slope(a)
        spread = root * (form.objective(a, eta) - float(form.prices(eta) @ a) - form.sigma / eta)
        lost = joint.regularization / 2 * float(model @ model) - _drop(joint, model, weights, keep)
        return KeptSpreadCut(
            const=plain.const + spread - float(slope @ a) + lost,
            noise=plain.noise,
            costs=plain.costs + slope,
            slopes=plain.slopes,
            spread=lambda costs: form.minimum(kept, costs),
            price=plain.price,
        )


def _drop(joint: JointMarket, model: Floats, weights: Floats, keep: float) -> float:
    """Return how far the tangent in the model, with the curvature kept, falls below its value."""
    gradient = model_gradient(joint, model, weights, 1.0)
    return float(gradient @ gradient) / (2 * keep)


def certify(
    search: GlobalSearch, first: float, gap: float, max_solves: int
) -> tuple[Descent, float]:
    """Return the best point over all eta and a lower bound on the objective."""
    best, bound = search_eta(search, first, gap, max_solves, None)
    return search.descents[best.eta], bound
