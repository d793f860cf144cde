r"""The joint problem in the variables ``z = log(a)``, by the convex-concave procedure.

In (w, z) the objective is convex (B, Theorem 4.1) where the regularization is at least
:func:`convexmarket.joint.convexity_threshold`, but the set ``sum exp(z) = 1`` is not. For a given
model it is convex in z and log(eta) together, with every bound on the guarantees. One round takes
the best model, a few tangents of the z-block (:class:`ExponentialBlock`) with eta, and the best eta
for the weights to the last digits; each is a point of the joint problem, and none is worse than the
one before.

A tangent moves every weight by a factor: the weight of a seller who should sell nothing only tends
to zero, by a constant factor at best. Weights that end below a billionth of the average are set to
zero in the end.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from convexmarket.allocation.solver_calls import SOLVED, check_solver, run_solver
from convexmarket.checks import shown
from convexmarket.errors import InfeasibleMarketError, NotSupportedError, SolverError
from convexmarket.joint.alternating import Descent
from convexmarket.joint.blocks import ExponentialBlock
from convexmarket.joint.model_step import best_model
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.joint.result import TracePoint
from convexmarket.terms import Piece

__all__ = ["best_eta", "solve_exponential"]

Floats = NDArray[np.float64]

#: Weights below this share of the average count as zero.
_NOTHING = 1e-9
#: Tangents of the z-block in one round; the model need not wait for the last digits of z.
_MAX_TANGENTS = 10


def solve_exponential(
    joint: JointMarket,
    eta_start: float,
    weights_start: Floats | None = None,
    *,
    solver: str = "CLARABEL",
    tol: float = 1e-9,
    max_iterations: int = 200,
    start: int = 0,
    progress: Callable[[TracePoint], None] | None = None,
) -> Descent:
    """Solve the joint problem in z = log(a), from a total privacy and weights, none of them 0.

    ``solver`` solves the z-block, with exponential cones. The descent ends when a round of model,
    weights and eta gains less than ``tol``, relative to the objective.

    Raises
    ------
    CurvatureError
        If a piece of the market is not convex in z.
    NotSupportedError
        If a user's constraint may bound eta, or the solver is not installed.
    InfeasibleMarketError, SolverError
        If there is no answer.
    """
    solver = check_solver(solver)
    sellers = joint.market.form.active
    descent = Descent(joint, PurchaseStep(joint), start, progress)
    weights = sellers / sellers.sum() if weights_start is None else weights_start
    descent.model = model = best_model(joint, weights, float(eta_start))
    block = ExponentialBlock(joint, joint.losses(model), eta_start, choose_eta=True)
    # Equal weights may break a bound, so that the first point of the trace comes after a solve.
    descent.weights, descent.eta = _tangent(joint, block, solver, model, weights)
    for _ in range(max_iterations):
        before = descent.objective
        model = best_model(joint, descent.weights, descent.eta)
        descent.take("model", model, descent.weights, descent.eta)
        for _ in range(_MAX_TANGENTS):
            last = descent.objective
            step = _tangent(joint, block, solver, descent.model, descent.weights)
            descent.take("weights", descent.model, *_further(joint, descent, *step))
            if last - descent.objective <= tol * abs(last):
                break
        eta = best_eta(joint, descent.model, descent.weights, descent.eta)
        descent.take("eta", descent.model, descent.weights, eta)
        if before - descent.objective <= tol * descent.scale:
            break
    weights = np.where(descent.weights * sellers.size < _NOTHING, 0.0, descent.weights)
    if np.count_nonzero(weights) < np.count_nonzero(descent.weights):
        descent.take("zeros", descent.model, weights / weights.sum(), descent.eta)
    descent.measure()
    return descent


def _tangent(
    joint: JointMarket, block: ExponentialBlock, solver: str, model: Floats, around: Floats
) -> tuple[Floats, float]:
    """Return the best weights and eta where ``sum exp(z) >= 1`` is linear."""
    block.place(joint.losses(model), around, max(joint.noise_price(model), 0.0))
    status = run_solver(block, solver)
    if status not in SOLVED:
        if status.startswith("infeasible"):
            raise InfeasibleMarketError(
                "the z-block is infeasible: the market's bounds leave no weights that sum to one; "
                "loosen them"
            )
        raise SolverError(
            f"{solver} failed on the z-block (status {status}); choose another solver"
        )
    return block.weights, float(np.clip(block.eta, *_eta_range(joint, block.weights)))


def _further(
    joint: JointMarket, descent: Descent, weights: Floats, eta: float
) -> tuple[Floats, float]:
    """Go on in the direction of a step of z, twice as far each time, while that is better.

    Tangents converge linearly, at last by less in a step than a conic solver's error.
    """
    form, first, model = joint.market.form, descent.weights, descent.model
    sells = form.active
    if form.other_constraints or not (np.all(weights[sells] > 0) and np.all(first[sells] > 0)):
        return weights, eta
    z, length = np.log(first[sells]), 2.0
    direction = np.log(weights[sells]) - z
    best = joint.objective(model, weights, eta)
    while True:
        ahead = np.zeros_like(weights)
        ahead[sells] = softmax(z + length * direction)
        if np.any(ahead > form.max_weight):
            return weights, eta
        eta_ahead = best_eta(joint, model, ahead, eta)
        objective = joint.objective(model, ahead, eta_ahead)
        if eta_ahead < form.eta_low or not objective < best:
            return weights, eta
        weights, eta, best, length = ahead, eta_ahead, objective, 2.0 * length


def best_eta(joint: JointMarket, model: Floats, weights: Floats, eta: float) -> float:
    """Return the best total privacy for a given model and weights, near a feasible one.

    It has a closed form for linear payments. For other terms in eta it is the given one, which the
    z-block chose.

    Raises
    ------
    NotSupportedError
        If the market has a user's constraint that may bound eta.
    """
    low, high = _eta_range(joint, weights)
    price, form = joint.noise_price(model), joint.market.form
    if form.payments or any(_reads_eta(term, joint) for term in form.other_terms):
        return float(np.clip(eta, low, high))
    bought = weights > 0
    cost = form.gamma * float(form.virtual_costs[bought] @ weights[bought])
    if price <= 0:
        return low if low > 0 else eta
    best = max(low, min(np.sqrt(price / cost) if cost > 0 else np.inf, high))
    return float(best) if best < np.inf else eta


def _reads_eta(piece: Piece, joint: JointMarket) -> bool:
    """Whether a piece may depend on eta."""
    return bool(piece.quantities_used(len(joint.market.sellers)) & {"epsilon", "inverse_eta"})


def _eta_range(joint: JointMarket, weights: Floats) -> tuple[float, float]:
    """Return the range of eta that the constraints leave to given weights."""
    form, bought = joint.market.form, weights > 0
    for piece in form.other_constraints:
        if _reads_eta(piece, joint):
            raise NotSupportedError(
                f"bounds of {shown(piece)} on eta are not known to the exponential method; use "
                'method="alternating"'
            )
    bounds = np.broadcast_to(form.max_epsilon, weights.shape)[bought] / weights[bought]
    spent = float(form.virtual_costs[bought] @ weights[bought])
    affordable = form.budget / spent if spent > 0 else np.inf
    high = min(form.eta_high, float(bounds.min()), affordable)
    return min(form.eta_low, high), high
