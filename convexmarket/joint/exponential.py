r"""Solve the joint problem in the variables ``z = log(a)`` by the convex-concave procedure.

The objective is convex in (w, z) if the regularization is at least
:func:`convexmarket.joint.convexity_threshold` (B, Theorem 4.1), but the set ``sum exp(z) = 1`` is
not convex. By CVXPY's rules, a piece evaluated at ``exp(z)`` is convex only if it is convex and
*nondecreasing* in every weight. Scaling weights down to a sum of one then does not increase the
objective, so ``sum exp(z) <= 1`` can be omitted. The convex-concave procedure replaces
``sum exp(z) >= 1`` by the tangent at a point z0, which is a stricter constraint.

In each round, the best model is computed, and the z-block (:class:`ExponentialBlock`) is solved for
a few tangents. A solve multiplies every weight by a positive factor, so all weights remain
positive. Final weights below a billionth of the average weight are set to zero.
"""

from __future__ import annotations

from dataclasses import replace

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from convexmarket.allocation.simplex import embed
from convexmarket.allocation.solver_calls import SOLVED, check_solver, run_solver
from convexmarket.allocation.views import DeclaredMarket, numbers, spread_out
from convexmarket.checks import check_nonnegative, check_positive, shown
from convexmarket.errors import (
    CurvatureError,
    InfeasibleMarketError,
    NotSupportedError,
    SolverError,
)
from convexmarket.joint.alternating import Descent, PurchaseStep, best_model
from convexmarket.joint.problem import JointMarket, checked_vector
from convexmarket.terms import Constraint, MarketNumbers, Quantities
from convexmarket.terms.pieces import Piece

Floats = NDArray[np.float64]

#: Smallest weight in a logarithm, and largest weight set to 0, relative to the mean weight.
_SMALLEST, _NOTHING = 1e-12, 1e-9
#: Largest number of tangents in one round. The model is updated before z converges.
_MAX_TANGENTS = 10


class ExponentialBlock(DeclaredMarket):
    """The convex program in z = log(a), and optionally in eta, with a tangent at a point z0.

    The :class:`cvxpy.Problem` is compiled only once, with losses, noise and z0 as parameters. Its
    value is the joint objective without the terms that depend only on the model.

    Parameters
    ----------
    joint : JointMarket
    losses : array_like, shape (m,)
        Nonnegative losses of a model, ``joint.losses(model)``.
    eta, choose_eta : float, bool
        The total privacy, and whether it is a variable. If True, ``eta`` only scales this variable.
    around : array_like, shape (m,), optional
        The weights ``exp(z0)``. The default is equal weights.

    Raises
    ------
    CurvatureError
        If a piece of the market is not convex by CVXPY's rules.

    Examples
    --------
    >>> import convexmarket as cm
    >>> sellers = cm.Sellers([0.1, 0.3], cm.Uniform(0, 1))
    >>> market = cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)
    >>> joint = cm.JointMarket(market, [[0.6], [-0.6]], [1, -1], regularization=0.5)
    >>> block = cm.joint.ExponentialBlock(joint, joint.losses([0.5]), eta=2.0)
    >>> _ = block.solve(solver='CLARABEL')
    >>> block.weights.round(1)
    array([0.6, 0.4])
    """

    def __init__(
        self,
        joint: JointMarket,
        losses: ArrayLike,
        eta: float,
        around: ArrayLike | None = None,
        *,
        choose_eta: bool = False,
    ) -> None:
        market, self._given = joint.market, check_positive("eta", eta)
        self._sellers = market.form.active
        m, n = self._sellers.size, int(self._sellers.sum())
        self._z = cp.Variable(n, name="log(m*a)")
        # Difference between log(eta) and the logarithm of the given eta.
        self._v: cp.Expression = cp.Variable(name="v") if choose_eta else cp.Constant(0.0)
        self._losses = cp.Parameter(n, nonneg=True, name="losses")
        self._noise = cp.Parameter(nonneg=True, name="noise/eta")
        self._slope = cp.Parameter(n, nonneg=True, name="exp(z0)")
        self._level = cp.Parameter(name="level")
        scaled = cp.exp(self._z)
        quantities = Quantities(
            weights=spread_out(scaled, self._sellers) / m,
            epsilon=(self._given / m) * spread_out(cp.exp(self._z + self._v), self._sellers),
            inverse_eta=cp.exp(-self._v) / self._given,
            virtual_costs=np.where(self._sellers, market.sellers.virtual_costs, 0.0),
        )
        limits = [self._slope @ self._z >= self._level]
        for piece in market.constraints:
            items = self._written(piece, quantities)
            if not all(item.is_dcp(dpp=True) for item in items):
                raise CurvatureError(
                    f"{shown(piece)} is not convex in z = log(a), unlike upper bounds on weights; "
                    'use method="alternating"'
                )
            limits += items
        terms = market.objective.without_noise
        for part in terms.parts:
            if not (plain := part.term.expression(quantities)).is_convex():
                raise CurvatureError(
                    f"in z = log(a), {shown(part.term)} is {plain.curvature.lower()}; use "
                    'method="alternating" for this market'
                )
        plain = terms.expression(quantities)
        objective = plain + self._noise * cp.exp(-self._v) + (self._losses @ scaled) / m
        super().__init__(cp.Minimize(objective), limits)
        self.place(losses, np.full(m, 1.0 / m) if around is None else around, joint.sigma)

    def _written(self, piece: Constraint, quantities: Quantities) -> list[cp.Constraint]:
        form = MarketNumbers(quantities.virtual_costs).plus(constraints=[piece])
        if form.budgets or form.is_bounded:  # bounds on guarantees, psi'eps <= B or eps <= e
            unit = cp.Constant(1.0)
            quantities = replace(quantities, weights=quantities.epsilon, inverse_eta=unit)
        elif form.eta_high < np.inf:
            low, high = np.log([form.eta_low, form.eta_high]) - np.log(self._given)
            return [self._v >= low, self._v <= high]
        return piece.constraints(quantities)

    def place(self, losses: ArrayLike, around: ArrayLike, noise: float | None = None) -> None:
        """Set the losses and the weights exp(z0), of shape (m,), and the factor of 1/eta."""
        m = self._sellers.size
        self._losses.value = checked_vector("losses", losses, m, 0.0)[self._sellers]
        if noise is not None:
            self._noise.value = check_nonnegative("noise", noise) / self._given
        given = np.maximum(checked_vector("around", around, m, 0.0)[self._sellers], _SMALLEST / m)
        self._slope.value = given
        self._level.value = 1.0 - float(given @ (1.0 - np.log(m * given)))
        self._z.value = np.log(m * given)

    @property
    def eta(self) -> float:
        """Total privacy of the last solve, or the given eta if it is fixed or not solved yet."""
        return self._given * float(np.exp(0.0 if self._v.value is None else self._v.value))

    @property
    def weights(self) -> Floats:
        """Weights of the last solve, or initial weights, scaled to a sum of one, shape (m,)."""
        weights = embed(np.exp(numbers(self._z, self.status)), self._sellers)
        return weights / weights.sum()


def solve_exponential(
    joint: JointMarket,
    eta: float,
    weights: Floats | None = None,
    solver: str = "CLARABEL",
    tol: float = 1e-9,
    max_iterations: int = 200,
) -> Descent:
    """Solve the joint problem in z = log(a) from an initial eta and positive weights.

    The descent ends when the relative gain of a round is at most ``tol``.
    """
    solver = check_solver(solver)
    sellers = joint.market.form.active
    weights = sellers / sellers.sum() if weights is None else weights
    model = best_model(joint, weights, float(eta))
    descent = Descent(joint, PurchaseStep(joint), model)
    block = ExponentialBlock(joint, joint.losses(model), eta, choose_eta=True)
    # Initial weights can violate a bound, so the first point is computed by a solve.
    descent.weights, descent.eta = _tangent(joint, block, solver, model, weights)
    for _ in range(max_iterations):
        before = descent.objective
        model = best_model(joint, descent.weights, descent.eta)
        descent.take(model, descent.weights, descent.eta)
        for _ in range(_MAX_TANGENTS):
            last = descent.objective
            step = _tangent(joint, block, solver, model, descent.weights)
            descent.take(model, *_further(joint, model, descent.weights, *step))
            if last - descent.objective <= tol * abs(last):
                break
        if before - descent.objective <= tol * descent.scale:
            break
    weights = np.where(descent.weights * sellers.size < _NOTHING, 0.0, descent.weights)
    descent.take(descent.model, weights / weights.sum(), descent.eta)
    return descent


def _tangent(
    joint: JointMarket, block: ExponentialBlock, solver: str, model: Floats, around: Floats
) -> tuple[Floats, float]:
    """Compute the best weights and eta for the tangent of ``sum exp(z) >= 1`` at ``around``."""
    block.place(joint.losses(model), around, max(joint.noise_price(model), 0.0))
    status = run_solver(block, solver)
    if status.startswith("infeasible"):
        raise InfeasibleMarketError(
            "the z-block is infeasible: no weights within the market's bounds sum to one; relax "
            "the bounds"
        )
    if status not in SOLVED:
        raise SolverError(
            f"{solver} failed on the z-block (status {status}); choose another solver"
        )
    return block.weights, best_eta(joint, model, block.weights, block.eta)


def _further(
    joint: JointMarket, model: Floats, first: Floats, weights: Floats, eta: float
) -> tuple[Floats, float]:
    """Extend a step of z, and double its length while the objective decreases.

    The tangent points converge linearly. The last steps are smaller than the error of a conic
    solver.
    """
    form, sells = joint.market.form, joint.market.form.active
    if form.other_constraints or not (np.all(weights[sells] > 0) and np.all(first[sells] > 0)):
        return weights, eta
    z, length, best = np.log(first[sells]), 2.0, joint.objective(model, weights, eta)
    direction = np.log(weights[sells]) - z
    while True:
        ahead = embed(softmax(z + length * direction), sells)
        eta_ahead = best_eta(joint, model, ahead, eta)
        objective = joint.objective(model, ahead, eta_ahead)
        inside = np.all(ahead <= form.max_weight) and eta_ahead >= form.eta_low
        if not (inside and objective < best):
            return weights, eta
        weights, eta, best, length = ahead, eta_ahead, objective, 2.0 * length


def best_eta(joint: JointMarket, model: Floats, weights: Floats, eta: float) -> float:
    """Compute the best total privacy for a given model and weights from a feasible eta.

    If only linear payments and noise contain eta, the result has a closed form. Otherwise, eta is
    clipped to the constraints. If a custom constraint can bound eta, a NotSupportedError is raised.
    """
    form, bought = joint.market.form, weights > 0
    for piece in form.other_constraints:
        if _reads_eta(piece, weights.size):
            raise NotSupportedError(
                f"the exponential method does not support bounds of {shown(piece)} on eta; use "
                'method="alternating"'
            )
    bounds = np.broadcast_to(form.max_epsilon, weights.shape)[bought] / weights[bought]
    spent = float(form.virtual_costs[bought] @ weights[bought])
    affordable = form.budget / spent if spent > 0 else np.inf
    high = min(form.eta_high, float(bounds.min()), affordable)
    low, price = min(form.eta_low, high), joint.noise_price(model)
    if not (form.payments or any(_reads_eta(term, weights.size) for term in form.other_terms)):
        best = high
        if price <= 0:
            best = low or eta
        elif form.gamma * spent > 0:
            best = np.sqrt(price / (form.gamma * spent))
        eta = best if best < np.inf else eta
    return float(np.clip(eta, low, high))


def _reads_eta(piece: Piece, n_sellers: int) -> bool:
    return bool(piece.quantities_used(n_sellers) & {"epsilon", "inverse_eta"})
