r"""Alternating minimisation, with a global certificate if the problem is convex for each eta.

Each step is solved to machine precision, so the objective does not increase.

Assume that the problem is convex in (w, a) for a fixed eta (:func:`convexity_ratio` below 1), that
payments are linear, and that noise is not realised. Then alternation at a fixed eta finds the
global optimum, and a tangent at this optimum is a lower bound on the objective for *every* eta.
Write the objective as ``Phi(w, a) + 2*r*||w||/eta + gamma*eta*psi'a + sigma/eta``, with r = 0 for
expected noise, and let rho be the convexity ratio. A share ``(1 - sqrt(rho))`` of the curvature of
the spread and of the regularization can be separated before Phi is replaced by its tangent, because
the remainder is still convex. As in the cuts of :mod:`convexmarket.allocation.cuts`, the separated
shares are added to the bound. That module describes the search over eta. The minimum of the bound
over the models has a closed form, which is concave and nondecreasing in 1/eta.

The best model for given purchases is the solution of a weighted logistic regression,

.. math:: \min_{\|w\| \le \beta}\; \sum_i a_i \log(1 + e^{-y_i w^\top x_i})
          + \tfrac{\Lambda}{2}\|w\|^2 + v^\top w + \kappa\|w\|

The norm and its bound are replaced by additional regularization nu >= 0. Let w(nu) be the minimiser
with regularization Lambda + nu, kappa = 0 and no bound. The solution is w(nu) with
``nu*||w(nu)|| = kappa``, or with ``||w(nu)|| = beta`` if beta requires a larger nu. Both left-hand
sides are monotone in nu. The solution is 0 if the norm of the gradient at 0 is at most kappa.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq, minimize

from convexmarket.allocation import allocate
from convexmarket.allocation.allocation_result import SolveRecord
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, first_look, search_eta
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.simplex import embed
from convexmarket.checks import check_positive
from convexmarket.joint.problem import JointMarket, checked_vector, convexity_ratio
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.market import Market
from convexmarket.terms import EtaRange, Losses

Floats = NDArray[np.float64]

#: Number of alternations before a quasi-Newton run, and largest number of iterations of this run.
#: ``_AT_ETA`` is the largest number of alternations at a fixed eta.
_ALTERNATIONS, _ACCELERATED, _AT_ETA = 5, 50, 500
_TOLERANCE = 1e-10  # largest gradient norm at a model, relative to the largest norm of a row
#: Relative gap and largest number of solves of an exact search over eta.
#: ``_CONIC_GAP`` is the relative gap of a search with a conic solver.
_GAP, MAX_SOLVES, _CONIC_GAP = 1e-13, 200, 1e-8
_POLISHES = 3  # number of alternations after a search over eta


def _smooth(joint: JointMarket, weights: Floats, eta: float) -> PerturbedObjective:
    used, shift = weights > 0, np.zeros(joint.X.shape[1])
    if joint.noise_vector is not None:
        shift = 2.0 / eta * joint.noise_vector
    X, y = (joint.X, joint.y) if used.all() else (joint.X[used], joint.y[used])
    return PerturbedObjective(X, y, weights[used], shift, joint.regularization)


def norm_price(joint: JointMarket, eta: float) -> float:
    """Compute the factor of ``||w||`` in the objective; it is positive for worst-case noise."""
    return 2.0 * joint.noise_radius / eta if joint.noise == "worst-case" else 0.0


def best_model(joint: JointMarket, weights: ArrayLike, eta: float) -> Floats:
    """Compute the model that minimises the objective for given weights and eta.

    Parameters
    ----------
    joint, weights, eta : JointMarket, array_like of shape (m,), float

    Returns
    -------
    ndarray, shape (n_features,)

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> joint = cm.JointMarket(market, [[0.6], [-0.6]], [1, -1], regularization=0.5)
    >>> best_model(joint, [0.5, 0.5], 1.0).round(3)
    array([0.509])
    """
    weights, eta = checked_vector("weights", weights, joint.y.size, 0.0), check_positive("eta", eta)
    smooth, kappa = _smooth(joint, weights, eta), norm_price(joint, eta)
    slope = float(np.linalg.norm(smooth.gradient(np.zeros(joint.X.shape[1]))))
    if slope <= kappa:
        return np.zeros(joint.X.shape[1])
    longest = float(np.sqrt(np.einsum("ij,ij->i", joint.X, joint.X).max())) or 1.0

    @cache
    def at(nu: float) -> Floats:
        return minimise(smooth.regularized(joint.regularization + nu), _TOLERANCE * longest)

    def length(nu: float) -> float:
        return float(np.linalg.norm(at(nu)))

    nu = 0.0
    if kappa > 0:  # nu*||w(nu)|| increases in nu, from 0 to the gradient norm at 0
        nu = _crossing(lambda x: x * length(x) - kappa, kappa / max(length(0.0), 1e-300))
    beta = joint.max_norm
    if beta is not None and length(nu) > beta:
        nu = _crossing(lambda x: beta - length(x), max(nu, slope / beta), nu)
        return at(nu) * (beta / length(nu))
    return at(nu)


def _crossing(rising: Callable[[float], float], guess: float, low: float = 0.0) -> float:
    high = max(guess, 1e-12)
    while rising(high) < 0:
        low, high = high, 4.0 * high
    return float(brentq(rising, low, high, xtol=1e-14, rtol=1e-13))


def model_gradient(
    joint: JointMarket, model: Floats, weights: Floats, eta: float, smooth: bool = False
) -> Floats:
    """Compute the smallest subgradient of the objective, or of its smooth part, in the model."""
    gradient = _smooth(joint, weights, eta).gradient(model)
    kappa, norm = norm_price(joint, eta), float(np.linalg.norm(model))
    if smooth:
        return gradient
    if norm == 0:
        length = float(np.linalg.norm(gradient))
        return gradient * max(0.0, 1.0 - kappa / length) if length > 0 else gradient
    gradient = gradient + kappa * model / norm
    if joint.max_norm is not None and norm >= joint.max_norm * (1 - 1e-12):
        outwards = float(gradient @ model) / norm**2
        gradient = gradient - min(outwards, 0.0) * model
    return gradient


class Purchase(NamedTuple):
    """Weights and eta for a model, and a bound on the excess of the objective over its minimum."""

    weights: Floats
    eta: float
    excess: float


class PurchaseStep:
    """Compute the best weights and eta for a model, exactly if the market is projectable."""

    def __init__(self, joint: JointMarket, solver: str | None = None) -> None:
        self.joint, self.solver = joint, solver

    @cached_property
    def form(self) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
        """The projectable form of the market and its active sellers, or None if none exists."""
        return None if self.solver else ProjectableForm.of(self.joint.market.form)

    def priced(self, model: Floats) -> tuple[ProjectableForm, NDArray[np.bool_]] | None:
        """Return the market's projectable form with the losses and noise of a model, or None."""
        if self.form is None:
            return None
        form, active = self.form
        losses = form.losses + self.joint.losses(model)[active]
        return replace(form, losses=losses, sigma=self.joint.noise_price(model)), active

    def __call__(self, model: Floats, start: float | None = None) -> Purchase:
        """Compute the best weights and eta for a model from an initial eta."""
        low = self.joint.market.form.eta_low
        if self.joint.noise_price(model) <= 0 < low:
            # A smaller eta lowers the payments and increases the gain from noise.
            return self.at(model, low)
        if (priced := self.priced(model)) is None:
            return self._allocated(self.joint.purchase_market(model))
        runner, form = Projections(priced[0]), priced[0]
        best, bound = search_eta(runner, start or first_look(form), _GAP, MAX_SOLVES, None)
        for _ in range(_POLISHES):  # for given weights, the best eta has a closed form
            cost = float(form.gamma * form.virtual_costs @ best.weights)
            if cost > 0 < form.sigma:
                eta = float(np.clip(np.sqrt(form.sigma / cost), *runner.ends))
                weights = form.optimum(eta)[0].weights
                objective = form.objective(weights, eta)
                again = replace(best, weights=weights, eta=eta, objective=objective)
                best = again if objective <= best.objective else best
        return Purchase(embed(best.weights, priced[1]), best.eta, best.objective - bound)

    def at(self, model: Floats, eta: float) -> Purchase:
        """Compute the best weights for a model at a given eta."""
        if (priced := self.priced(model)) is not None:
            priced[0].check_sold(eta)
            return Purchase(embed(priced[0].optimum(eta)[0].weights, priced[1]), eta, 0.0)
        market = self.joint.market
        objective = Losses(self.joint.losses(model)) + market.objective.without_noise
        constraints = [*market.constraints, EtaRange(eta, eta)]
        return self._allocated(Market(market.sellers, objective, constraints))

    def _allocated(self, market: Market) -> Purchase:
        method, solver = "branch_and_bound" if self.solver else "auto", self.solver or "CLARABEL"
        answer = allocate(market, method, solver=solver, gap=_CONIC_GAP)  # type: ignore[arg-type]
        return Purchase(answer.weights, answer.eta, answer.objective - answer.lower_bound)


class Descent:
    """A descent in the joint problem, with the best point so far."""

    def __init__(self, joint: JointMarket, step: PurchaseStep, model: Floats) -> None:
        self.joint, self.step, self.model = joint, step, model
        self.weights = np.zeros(len(joint.market.sellers))
        self.eta, self.objective, self.residual = np.nan, np.inf, np.inf

    @property
    def scale(self) -> float:
        """Absolute value of the objective, or a tiny positive number if the objective is zero."""
        return max(abs(self.objective), float(np.finfo(float).tiny))

    def take(self, model: Floats, weights: Floats, eta: float) -> None:
        """Replace the best point by a given point unless the given point has a larger objective."""
        objective = self.joint.objective(model, weights, eta)
        if objective <= self.objective:
            self.model, self.weights, self.eta = model, weights, eta
            self.objective = objective

    def run(self, tol: float, max_iterations: int, eta: float | None = None) -> None:
        """Alternate between purchases and models from the best model. If given, ``eta`` is fixed.

        Alternation converges linearly, so every few steps a quasi-Newton method minimises the
        objective at the best purchase for each model, with gradients by the envelope theorem.
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
        """Bound the relative gain of changing only the model or only the purchase."""
        best = self.step(self.model, self.eta)
        objective = self.joint.objective(self.model, best.weights, best.eta)
        gradient = model_gradient(self.joint, self.model, self.weights, self.eta)
        gain = float(gradient @ gradient) / (2 * self.joint.regularization)
        excess = max(self.objective - objective + best.excess, 0.0)
        self.residual = (gain + excess) / self.scale


@dataclass(eq=False)
class _JointCut(KeptSpreadCut):
    """The sum of a cut and a minimum over models.

    The minimum is concave in s = 1/eta, so its chord between two values of s is a lower bound.
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
    """Solve a convex joint problem at a given eta, with cuts that are valid for every eta."""

    def __init__(self, start: Descent, tol: float) -> None:
        assert start.step.form is not None
        self.joint, self.step, self.tol = start.joint, start.step, tol
        self.ends = Projections(start.step.form[0]).ends
        self.records: list[SolveRecord] = []
        self.best, self.model = start, start.model  # model at the previous eta

    def solve(self, eta: float) -> Evaluated:
        """Compute the optimum at eta, and a cut that bounds the optimum at every eta from below."""
        began = time.perf_counter()
        descent = Descent(self.joint, self.step, self.model)
        descent.run(self.tol, _AT_ETA, eta)
        descent.take(descent.model, self.step.at(descent.model, eta).weights, eta)
        self.model = descent.model
        self.best = min(self.best, descent, key=lambda each: each.objective)
        cut = self._cut(descent.model, descent.weights, eta)
        seconds = time.perf_counter() - began
        self.records.append(SolveRecord(eta, descent.objective, cut(eta), "alternated", seconds))
        return Evaluated(descent.weights, eta, descent.objective, cut, descent.scale)

    def _cut(self, model: Floats, weights: Floats, eta: float) -> KeptSpreadCut:
        joint, root = self.joint, float(np.sqrt(convexity_ratio(self.joint)))
        form = self.step.priced(model)
        assert form is not None
        priced, a = replace(form[0], sigma=joint.sigma), weights[form[1]]
        rest_of = {name: (1 - root) * getattr(priced, name) for name in ("mu", "mu_squared")}
        lighter, keep = replace(priced, **rest_of), (1 - root) * joint.regularization
        plain = Projections(priced).solve(eta).cut
        slope = root * priced.slope(a)
        rest = float(priced.prices(eta) @ a) + joint.sigma / eta
        spread = root * (priced.objective(a, eta) - rest)
        # Let v be the current model minus gradient / keep.
        # Up to a constant, the terms in the model w are keep/2*||w - v||^2 + 2*r*s*||w||.
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
            spread=lighter.minimum,
            price=plain.price,
            model=envelope,
        )
