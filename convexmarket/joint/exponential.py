r"""The joint problem in the variables ``z = log(a)``, by the convex-concave procedure.

In (w, z) the objective is convex (B, Theorem 4.1) where the regularization is at least
:func:`convexmarket.joint.convexity_threshold`. The set ``sum exp(z) = 1`` is not convex: it is the
boundary of a convex set. CVXPY's rules accept a piece in ``exp(z)`` only if it is convex and
*nondecreasing* in every weight, so that ``sum exp(z) <= 1`` may be dropped: scaling weights down to
a sum of one never costs. The remaining ``sum exp(z) >= 1`` is replaced by its tangent at a point
z0, which is stricter: the convex-concave procedure.

One round computes the best model, a few tangents of the z-block (:class:`ExponentialBlock`) with
eta, and the best eta for the weights to the last digits; each is a point of the joint problem, and
none is worse than the one before. A tangent multiplies every weight by a factor: the weight of a
seller who should sell nothing only tends to zero. Weights that end below a billionth of the average
are set to zero in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax

from convexmarket.allocation.solver_calls import SOLVED, check_solver, run_solver
from convexmarket.allocation.views import Declared, numbers, spread_out
from convexmarket.checks import check_nonnegative, check_positive, shown
from convexmarket.errors import (
    CurvatureError,
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
    SolverError,
)
from convexmarket.joint.alternating import Descent
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.steps import PurchaseStep, best_model
from convexmarket.terms import Constraint, MarketNumbers, Piece, Quantities

__all__ = ["ExponentialBlock", "best_eta", "solve_exponential"]

Floats = NDArray[np.float64]

#: Smallest share of the average weight in a logarithm, and the largest that counts as zero.
_SMALLEST, _NOTHING = 1e-12, 1e-9
#: Tangents of the z-block in one round; the model need not wait for the last digits of z.
_MAX_TANGENTS = 10


class ExponentialBlock(Declared):
    """Program for the best weights, and eta on request, in z = log(a), around a point z0.

    A :class:`cvxpy.Problem`, compiled once for all losses, noise, eta and z0. In z and log(eta)
    payments are convex, and a largest guarantee is a linear constraint. Its value is the joint
    objective without the parts that depend on the model alone.

    Parameters
    ----------
    joint : JointMarket
    losses : array_like, shape (m,)
        Of a model, >= 0: ``joint.losses(model)``.
    eta : float
        The total privacy; a guess of it, to which numbers are scaled, if the block chooses it.
    around : array_like, shape (m,), optional
        The weights ``exp(z0)``; equal where left out.
    choose_eta : bool

    Raises
    ------
    CurvatureError
        If a piece of the market is not convex by CVXPY's rules; the message names it.
    ParameterError
        If eta is outside what a piece allows.

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
        market, given = joint.market, check_positive("eta", eta)
        self._sellers = market.form.active
        m, n = self._sellers.size, int(self._sellers.sum())
        self._z = cp.Variable(n, name="log(m*a)")
        # How far log(eta) is from that of the eta given.
        self._v: cp.Expression = cp.Variable(name="v") if choose_eta else cp.Constant(0.0)
        self._losses = cp.Parameter(n, nonneg=True, name="losses")
        self._noise = cp.Parameter(nonneg=True, name="noise", value=joint.sigma)
        self._eta = cp.Parameter(pos=True, name="eta", value=given)
        self._slope = cp.Parameter(n, nonneg=True, name="exp(z0)")
        self._level = cp.Parameter(name="level")
        scaled = cp.exp(self._z)
        quantities = Quantities(
            weights=spread_out(scaled, self._sellers) / m,
            epsilon=(self._eta / m) * spread_out(cp.exp(self._z + self._v), self._sellers),
            inverse_eta=self._from_eta(lambda eta: 1.0 / eta, pos=True) * cp.exp(-self._v),
            virtual_costs=np.where(self._sellers, market.sellers.virtual_costs, 0.0),
        )
        self._pieces = [(piece, self._written(piece, quantities)) for piece in market.constraints]
        for piece, items in self._pieces:
            if not all(item.is_dcp(dpp=True) for item in items):
                raise CurvatureError(
                    f"{shown(piece)} is not convex in z = log(a): only bounds on weights from "
                    'above are; use method="alternating"'
                )
        try:
            terms = market.objective.without_noise.expression(quantities)
        except CurvatureError as error:
            raise CurvatureError(
                f'in z = log(a), {error}; use method="alternating" for this market'
            ) from error
        noise = self._from_eta(lambda eta: float(numbers(self._noise)) / eta, nonneg=True)
        objective = terms + noise * cp.exp(-self._v) + (self._losses @ scaled) / m
        bounds = [item for _, items in self._pieces for item in items if item.variables()]
        super().__init__(cp.Minimize(objective), [self._slope @ self._z >= self._level, *bounds])
        self.eta = given
        self.place(losses, np.full(m, 1.0 / m) if around is None else around)

    def _from_eta(self, function: Callable[[float], float], **sign: bool) -> cp.CallbackParam:
        return cp.CallbackParam(lambda: function(float(numbers(self._eta))), **sign)

    def _written(self, piece: Constraint, quantities: Quantities) -> list[cp.Constraint]:
        """Return a constraint in z and log(eta): bounds on both together, in the guarantees."""
        form = MarketNumbers(quantities.virtual_costs).plus(constraints=[piece])
        if form.budgets:  # psi'a <= B/eta
            return piece.constraints(
                replace(quantities, weights=quantities.epsilon, inverse_eta=cp.Constant(1.0))
            )
        log_eta, items = self._v + self._from_eta(np.log), []
        if form.is_bounded:
            m = self._sellers.size
            bounds = np.broadcast_to(form.max_epsilon, m)[self._sellers]
            items.append(self._z + log_eta <= np.log(m * bounds))
        if form.eta_low > 0:
            items.append(log_eta >= np.log(form.eta_low))
        if form.eta_high < np.inf:
            items.append(log_eta <= np.log(form.eta_high))
        return items or piece.constraints(quantities)

    def place(self, losses: ArrayLike, around: ArrayLike, noise: float | None = None) -> None:
        """Set losses, the weights exp(z0), shape (m,), and the price of 1/eta; compiled once."""
        m = self._sellers.size
        self._losses.value = _checked(losses, m, "losses")[self._sellers]
        if noise is not None:
            self._noise.value = check_nonnegative("noise", noise)
        given = np.maximum(_checked(around, m, "around")[self._sellers], _SMALLEST / m)
        self._slope.value = given
        self._level.value = 1.0 - float(given @ (1.0 - np.log(m * given)))
        self._z.value = np.log(m * given)

    @property
    def eta(self) -> float:
        """The given total privacy, or that of the last solve; setting it does not compile again."""
        given = float(numbers(self._eta))
        if isinstance(self._v, cp.Variable) and self.status is not None:
            return given * float(np.exp(self.solution(self._v, started=True)))
        return given

    @eta.setter
    def eta(self, eta: float) -> None:
        self._eta.value = check_positive("eta", eta)
        for piece, items in self._pieces:
            if not all(item.value(tolerance=1e-9) for item in items if not item.variables()):
                raise ParameterError(f"eta is {eta!r}, outside what {shown(piece)} allows")

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, scaled down to a sum of one, shape (m,)."""
        weights = np.zeros(self._sellers.size)
        weights[self._sellers] = np.exp(self.solution(self._z, started=True))
        return weights / weights.sum()


def _checked(values: ArrayLike, n_sellers: int, name: str) -> Floats:
    array = np.asarray(values, dtype=float)
    if array.shape != (n_sellers,) or not (np.isfinite(array).all() and (array >= 0).all()):
        raise ParameterError(
            f"{name} must be {n_sellers} finite numbers >= 0, one for each seller; got shape "
            f"{array.shape}"
        )
    return array


def solve_exponential(
    joint: JointMarket,
    eta: float,
    weights: Floats | None = None,
    solver: str = "CLARABEL",
    tol: float = 1e-9,
    max_iterations: int = 200,
) -> Descent:
    """Solve the joint problem in z = log(a), from a total privacy and positive weights.

    ``solver`` solves the z-block, with exponential cones. The descent ends when a round of model,
    weights and eta gains less than ``tol``, relative to the objective.

    Raises
    ------
    CurvatureError
        If a piece of the market is not convex in z.
    NotSupportedError
        If a user's constraint may bound eta, or the solver is not installed.
    InfeasibleMarketError, SolverError
        If the market is infeasible, or the solver fails.
    """
    solver = check_solver(solver)
    sellers = joint.market.form.active
    weights = sellers / sellers.sum() if weights is None else weights
    model = best_model(joint, weights, float(eta))
    descent = Descent(joint, PurchaseStep(joint), model)
    block = ExponentialBlock(joint, joint.losses(model), eta, choose_eta=True)
    # Equal weights may break a bound, so the first point comes after a solve.
    descent.weights, descent.eta = _tangent(joint, block, solver, model, weights)
    for _ in range(max_iterations):
        before = descent.objective
        model = best_model(joint, descent.weights, descent.eta)
        descent.take(model, descent.weights, descent.eta)
        for _ in range(_MAX_TANGENTS):
            last = descent.objective
            step = _tangent(joint, block, solver, descent.model, descent.weights)
            descent.take(descent.model, *_further(joint, descent, *step))
            if last - descent.objective <= tol * abs(last):
                break
        eta = best_eta(joint, descent.model, descent.weights, descent.eta)
        descent.take(descent.model, descent.weights, eta)
        if before - descent.objective <= tol * descent.scale:
            break
    weights = np.where(descent.weights * sellers.size < _NOTHING, 0.0, descent.weights)
    if np.count_nonzero(weights) < np.count_nonzero(descent.weights):
        descent.take(descent.model, weights / weights.sum(), descent.eta)
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
    """Continue in the direction of a step of z, doubling its length while the objective falls.

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
