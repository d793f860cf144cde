r"""The two steps of alternation: the best model for purchases, the best purchases for a model.

The model is a weighted logistic regression with a priced norm,

.. math:: \min_{\|w\| \le \beta}\; \sum_i a_i \log(1 + e^{-y_i w^\top x_i})
          + \tfrac{\Lambda}{2}\|w\|^2 + v^\top w + \kappa\|w\|

More regularization replaces the norm and the bound: for nu >= 0 let w(nu) minimise without either
under Lambda + nu. It is the answer when ``nu*||w(nu)|| = kappa``, or ``||w(nu)|| = beta`` if that
takes a larger nu; both sides are monotone in nu. It is 0 when kappa is at least the norm of the
gradient at 0.

The purchases are the allocation of the market with the losses of the model: about ten exact
evaluations for a market of :mod:`convexmarket.allocation.projections`, else the best method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import brentq

from convexmarket.allocation import allocate
from convexmarket.allocation.eta_search import search_eta
from convexmarket.allocation.projections import ProjectableForm, Projections
from convexmarket.allocation.simplex import embed
from convexmarket.checks import check_positive, checked_numbers
from convexmarket.errors import ParameterError, SolverError
from convexmarket.joint.problem import JointMarket
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.market import Market
from convexmarket.terms import EtaRange, Losses

__all__ = ["Purchase", "PurchaseStep", "best_model", "model_gradient", "norm_price"]

Floats = NDArray[np.float64]

#: Norm of the gradient of a model, relative to the largest row.
_TOLERANCE = 1e-10
#: Relative gap and largest number of exact evaluations over eta, and the gap of a conic search.
_GAP, _MAX_SOLVES, _CONIC_GAP = 1e-13, 200, 1e-8


def _smooth(joint: JointMarket, weights: Floats, eta: float) -> PerturbedObjective:
    """Return the part of the objective that is smooth in the model."""
    used, shift = weights > 0, np.zeros(joint.X.shape[1])
    if joint.noise_vector is not None:
        shift = 2.0 / eta * joint.noise_vector
    X, y = (joint.X, joint.y) if used.all() else (joint.X[used], joint.y[used])
    return PerturbedObjective(X, y, weights[used], shift, joint.regularization)


def norm_price(joint: JointMarket, eta: float) -> float:
    """Return the price of the norm of the model at an eta, due to worst-case noise."""
    return 2.0 * joint.noise_radius / eta if joint.noise == "worst-case" else 0.0


def best_model(joint: JointMarket, weights: ArrayLike, eta: float) -> Floats:
    """Compute the model that minimises the objective for given weights and eta.

    Parameters
    ----------
    joint : JointMarket
    weights : array_like, shape (m,)
    eta : float

    Returns
    -------
    ndarray, shape (n_features,)

    Raises
    ------
    ParameterError
        If weights are not m nonnegative numbers, or eta is not positive.
    SolverError
        If the minimiser fails.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3], prior=cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> joint = cm.JointMarket(market, [[0.6], [-0.6]], [1, -1], regularization=0.5)
    >>> best_model(joint, np.array([0.5, 0.5]), 1.0).round(3)
    array([0.509])
    """
    weights, eta = checked_numbers("weights", weights), check_positive("eta", eta)
    if weights.shape != joint.y.shape or not np.all((weights >= 0.0) & (weights < np.inf)):
        raise ParameterError(
            f"weights have shape {weights.shape}; give a finite number >= 0 for each of "
            f"{joint.y.size} sellers"
        )
    smooth, kappa = _smooth(joint, weights, eta), norm_price(joint, eta)
    slope = float(np.linalg.norm(smooth.gradient(np.zeros(joint.X.shape[1]))))
    if slope <= kappa:
        return np.zeros(joint.X.shape[1])
    longest = float(np.sqrt(np.einsum("ij,ij->i", joint.X, joint.X).max())) or 1.0
    models: dict[float, Floats] = {}

    def at(nu: float) -> Floats:
        if nu not in models:
            level = smooth.regularized(joint.regularization + nu)
            try:
                models[nu] = minimise(level, _TOLERANCE * longest)
            except np.linalg.LinAlgError as error:
                raise SolverError(f"Newton's method failed: {error}") from error
        return models[nu]

    def length(nu: float) -> float:
        return float(np.linalg.norm(at(nu)))

    nu = 0.0
    if kappa > 0:  # nu*||w(nu)|| rises from 0 to the slope at 0
        nu = _crossing(lambda x: x * length(x) - kappa, kappa / max(length(0.0), 1e-300))
    beta = joint.max_norm
    if beta is not None and length(nu) > beta:
        nu = _crossing(lambda x: beta - length(x), max(nu, slope / beta), nu)
        return at(nu) * (beta / length(nu))
    return at(nu)


def _crossing(rising: Callable[[float], float], guess: float, low: float = 0.0) -> float:
    """Return the zero of a rising function above ``low``."""
    high = max(guess, 1e-12)
    while rising(high) < 0:
        low, high = high, 4.0 * high
    return float(brentq(rising, low, high, xtol=1e-14, rtol=1e-13))


def model_gradient(
    joint: JointMarket, model: Floats, weights: Floats, eta: float, smooth: bool = False
) -> Floats:
    """Compute the smallest subgradient of the objective in the model; 0 at the best model.

    ``smooth`` leaves out the price of the norm and the bound on it.
    """
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


@dataclass(frozen=True, eq=False)
class Purchase:
    """Weights and eta, and a bound on their possible improvement for the same model."""

    weights: Floats
    eta: float
    excess: float


class PurchaseStep:
    """The best weights and eta, for one model after the other.

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
        """Compute the best weights and eta for a model, starting at an eta."""
        if self.joint.noise_price(model) <= 0 < self.joint.eta_low:
            # Less privacy costs less and the noise lowers the objective: the range decides eta.
            return self.at(model, self.joint.eta_low)
        form = self.priced(model)
        if form is None or self.form is None:
            return self._allocated(self.joint.purchase_market(model))
        runner = Projections(form)
        best, bound = search_eta(runner, start or runner.first(), _GAP, _MAX_SOLVES, None)
        return Purchase(embed(best.weights, self.form[1]), best.eta, best.objective - bound)

    def at(self, model: Floats, eta: float) -> Purchase:
        """Compute the best weights for a model at one eta."""
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
        answer = allocate(market, method, solver=solver, gap=_CONIC_GAP)  # type: ignore[arg-type]
        return Purchase(answer.weights, answer.eta, answer.objective - answer.lower_bound)
