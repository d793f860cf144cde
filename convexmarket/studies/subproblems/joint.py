r"""The joint problem's choice of weights for a given model, in log(a) and in a.

``exponential`` is :class:`~convexmarket.joint.blocks.ExponentialBlock`, in z = log(a), with the
constraint ``sum exp(z) >= 1`` replaced by its tangent at z0; ``purchase`` is the same choice in
``m*a``, convex without that. They have the same optimum where z0 is the logarithm of the optimal
weights: there the tangent has the constraint's gradient, so that the same multipliers prove both.
This is where the convex-concave procedure ends, and so z0 is chosen here, for each model anew. Of
weights that are zero there is no logarithm: z0 has a trace in their place.
"""

from __future__ import annotations

import cvxpy as cp
import numpy as np

from convexmarket.allocation.views import FixedEta, JointView, numbers
from convexmarket.checks import shown
from convexmarket.errors import NotSupportedError
from convexmarket.joint.blocks import ExponentialBlock
from convexmarket.joint.model_step import best_model
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.studies.subproblems.base import Floats, Instance
from convexmarket.studies.subproblems.learning import unknown_formulation
from convexmarket.studies.subproblems.markets import off_simplex

__all__ = ["ZBlockInstance"]


class ZBlockInstance(Instance):
    """The best weights at a fixed eta for a model's losses, and again for the next model's.

    Eta is the best one without a model. The two models are the first two of the alternating
    method: the best for the weights bought without a model, and the best for those bought with it.
    An answer is the weights of all sellers. What the noise costs the model does not depend on the
    weights, and is left out.

    Parameters
    ----------
    joint : JointMarket
        Of a spread or squared spread (mu > 0), noise and linear payments, under caps and largest
        guarantees.

    Raises
    ------
    NotSupportedError
        If the market has another piece, so that the optimum is not known.
    """

    problem_class = "z-block"
    formulations = ("exponential", "purchase")

    def __init__(self, joint: JointMarket) -> None:
        purchases = PurchaseStep(joint)
        if purchases.form is None:
            raise NotSupportedError(
                "the z-block of a study is linearised at the optimal weights, which are known for "
                "Spread() or SquaredSpread() (with mu > 0), Noise and linear Payments under Cap, "
                f"EtaRange and MaxEpsilon; this is {shown(joint.market)}"
            )
        self.joint = joint
        start = purchases(np.zeros(joint.X.shape[1]))
        self.eta = start.eta
        first = best_model(joint, start.weights, self.eta)
        bought = purchases.at(first, self.eta)
        second = best_model(joint, bought.weights, self.eta)
        self._purchases, self._models = purchases, (first, second)
        self._losses = (joint.losses(first), joint.losses(second))
        self._optima = (bought.weights, purchases.at(second, self.eta).weights)
        form, self._able = purchases.form
        self._limit = form.limit(self.eta)
        self._view = JointView(joint.market)

    def declare(self, formulation: str) -> cp.Problem:
        """Return the problem with the losses of the first model."""
        if formulation == "exponential":
            return ExponentialBlock(self.joint, self._losses[0], self.eta, self._optima[0])
        if formulation != "purchase":
            raise unknown_formulation(self, formulation)
        market = FixedEta(self.joint.market, self.eta)
        (scaled_weights,) = market.variables()
        losses = cp.Parameter(scaled_weights.size, name="losses", nonneg=True)
        losses.value = self._losses[0][self._able]
        added = cp.Minimize(losses @ scaled_weights / self._able.size)
        return cp.Problem(market.objective + added, market.constraints)

    def change(self, problem: cp.Problem) -> None:
        """Take the losses of the second model."""
        if isinstance(problem, ExponentialBlock):
            problem.place(self._losses[1], self._optima[1])
        else:
            problem.param_dict["losses"].value = self._losses[1][self._able]

    def answer(self, problem: cp.Problem) -> Floats:
        """Return the weights of all sellers, shape (m,)."""
        (variable,) = problem.variables()
        scaled = numbers(variable)
        weights = np.zeros(self._able.size)
        weights[self._able] = np.exp(scaled) if isinstance(problem, ExponentialBlock) else scaled
        return weights / self._able.size

    def objective(self, answer: Floats, changed: bool) -> float:
        """Return the market's objective and the losses."""
        return self._view.value(answer, self.eta) + float(self._losses[changed] @ answer)

    def violation(self, answer: Floats) -> float:
        """Return by how much the weights leave the capped simplex."""
        return off_simplex(answer[self._able], self._limit)

    def exact(self, changed: bool) -> Floats:
        """Return the weights by projection on the capped simplex."""
        return self._purchases.at(self._models[changed], self.eta).weights
