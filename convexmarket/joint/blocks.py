r"""The blocks of the joint problem as real CVXPY problems, so that solvers can be compared on them.

- :class:`ModelBlock`: the best model for given weights and eta; exponential cones.
- :func:`purchase_block`: the best weights for a given model and eta; a second-order cone program.
- :class:`ExponentialBlock`: the same in ``z = log(a)``, where the whole objective is convex in
  (w, z), with eta or for a given one; exponential cones.

In z the set ``sum exp(z) = 1`` is the boundary of a convex set. CVXPY's rules accept a piece in
``exp(z)`` only if it is convex and *nondecreasing* in every weight, so that ``sum exp(z) <= 1`` may
be dropped: scaling weights down to a sum of one never costs. What is left, ``sum exp(z) >= 1``, is
replaced by its tangent at a point z0, which is stricter: the convex-concave procedure.

Weights are of order 1/m, too small for the absolute tolerances of conic solvers, so that all three
are written for ``m*a``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation import declare
from convexmarket.allocation.formulations import FixedEtaProblem
from convexmarket.allocation.views import Declared, FixedEta, spread_out
from convexmarket.checks import check_nonnegative, check_positive, shown
from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.joint.model_step import best_model
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.purchase_step import PurchaseStep
from convexmarket.terms import Constraint, Form, Quantities

__all__ = ["ExponentialBlock", "ModelBlock", "purchase_block", "remaining_gain"]

Floats = NDArray[np.float64]

#: Weights below this share of the average are taken for it where a logarithm is needed.
_SMALLEST = 1e-12


class ModelBlock(Declared):
    """The best model for given weights and eta: a :class:`cvxpy.Problem`, compiled once for all.

    Its value is the part of the joint objective that depends on the model.

    Parameters
    ----------
    joint : JointMarket
    weights : array_like, shape (m,), optional
        Equal where left out.
    eta : float, optional
        May be left out where the noise has no part in the model (noise "expected").

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> from convexmarket.joint.blocks import ModelBlock
    >>> sellers = cm.Sellers([0.1, 0.3], prior=cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, cm.terms.SquaredSpread() + cm.Noise() + cm.Payments())
    >>> X, y = np.array([[0.6, 0.8], [-0.6, 0.2]]), np.array([1, -1])
    >>> block = ModelBlock(cm.JointMarket(market, X, y, regularization=0.5))
    >>> value = block.solve(solver="CLARABEL")
    >>> block.weights = [0.25, 0.75]  # compiled once
    >>> value = block.solve(solver="CLARABEL")
    >>> block.model.round(3)
    array([0.509, 0.039])
    """

    def __init__(
        self, joint: JointMarket, weights: ArrayLike | None = None, eta: float = 1.0
    ) -> None:
        m, n = joint.X.shape
        self._w = cp.Variable(n, name="w")
        self._scaled_weights = cp.Parameter(m, nonneg=True, name="m*a")
        self._inverse_eta = cp.Parameter(pos=True, name="inverse_eta")
        losses = cp.logistic(-(joint.y[:, None] * joint.X) @ self._w)
        objective = (self._scaled_weights @ losses) / m
        objective += joint.regularization / 2 * cp.sum_squares(self._w)
        if joint.noise == "worst-case":
            objective += self._inverse_eta * (2.0 * joint.noise_radius * cp.norm(self._w, 2))
        if joint.noise_vector is not None:
            objective += self._inverse_eta * (2.0 * joint.noise_vector @ self._w)
        bounds = [] if joint.max_norm is None else [cp.norm(self._w, 2) <= joint.max_norm]
        super().__init__(cp.Minimize(objective), bounds)
        self.weights = np.full(m, 1.0 / m) if weights is None else weights
        self.eta = eta

    @property
    def weights(self) -> Floats:
        """The given weights, shape (m,); setting them does not compile again."""
        return np.asarray(self._scaled_weights.value, dtype=float) / self._scaled_weights.size

    @weights.setter
    def weights(self, weights: ArrayLike) -> None:
        self._scaled_weights.value = self._scaled_weights.size * _checked_weights(
            weights, self._scaled_weights.size
        )

    @property
    def eta(self) -> float:
        """The given total privacy; setting it does not compile again."""
        return 1.0 / float(np.asarray(self._inverse_eta.value))

    @eta.setter
    def eta(self, eta: float) -> None:
        self._inverse_eta.value = 1.0 / check_positive("eta", eta)

    @property
    def model(self) -> Floats:
        """The model of the last solve, shape (n_features,)."""
        return self.solution(self._w, started=True)


def purchase_block(joint: JointMarket, model: ArrayLike, eta: float) -> FixedEtaProblem | FixedEta:
    """Declare the best weights for a given model as a CVXPY problem.

    Parameters
    ----------
    joint : JointMarket
    model : array_like, shape (n_features,)
    eta : float
        May be changed later through the attribute of that name, without compiling again.

    Returns
    -------
    FixedEtaProblem or FixedEta
        With the attributes ``weights`` and ``eta``; its value, and the regularization of the model,
        are the joint objective.

    Raises
    ------
    CurvatureError
        If a realised noise vector makes more noise pay (1/eta has a negative price).
    ParameterError
        If eta is outside the market's EtaRange.
    """
    return declare(joint.purchase_market(np.asarray(model, dtype=float)), eta=eta)


class ExponentialBlock(Declared):
    """The best weights for given losses, in z = log(a), around a point z0; the best eta, if wanted.

    A :class:`cvxpy.Problem`, compiled once for all losses, noise, eta and z0. In z and log(eta)
    payments are convex, and a largest guarantee is a linear constraint. Its value is the joint
    objective without what depends on the model alone.

    Parameters
    ----------
    joint : JointMarket
    losses : array_like, shape (m,)
        Of a model, >= 0: ``joint.losses(model)``.
    eta : float
        The total privacy; a guess of it, to which numbers are scaled, if the block chooses it.
    around : array_like, shape (m,), optional
        The weights ``exp(z0)``; equal where left out.
    noise : float, optional
        What multiplies 1/eta, >= 0; the market's sigma where left out.
    choose_eta : bool

    Raises
    ------
    CurvatureError
        If a piece of the market is not convex by CVXPY's rules; the message names it.
    ParameterError
        If eta is outside what a piece allows.
    """

    def __init__(
        self,
        joint: JointMarket,
        losses: ArrayLike,
        eta: float,
        around: ArrayLike | None = None,
        *,
        noise: float | None = None,
        choose_eta: bool = False,
    ) -> None:
        market = joint.market
        self._sellers = market.form.active
        m, n = self._sellers.size, int(self._sellers.sum())
        self._z = cp.Variable(n, name="log(m*a)")
        # How far log(eta) is from that of the eta given.
        self._v: cp.Expression = cp.Variable(name="v") if choose_eta else cp.Constant(0.0)
        self._losses = cp.Parameter(n, nonneg=True, name="losses")
        self._noise = cp.Parameter(nonneg=True, name="noise")
        self._eta = cp.Parameter(pos=True, name="eta")
        self._slope = cp.Parameter(n, nonneg=True, name="exp(z0)")
        self._level = cp.Parameter(name="level")
        self._eta.value, self._noise.value = check_positive("eta", eta), joint.sigma
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
        noised = self._from_eta(lambda eta: self.noise / eta, nonneg=True) * cp.exp(-self._v)
        super().__init__(
            cp.Minimize(terms + noised + (self._losses @ scaled) / m),
            [
                self._slope @ self._z >= self._level,
                *(item for _, items in self._pieces for item in items if item.variables()),
            ],
        )
        self.losses = losses
        self.noise = joint.sigma if noise is None else noise
        self.eta = eta
        self.around = np.full(m, 1.0 / m) if around is None else around

    def _from_eta(self, function: Callable[[float], float], **sign: bool) -> cp.CallbackParam:
        return cp.CallbackParam(lambda: function(float(np.asarray(self._eta.value))), **sign)

    def _written(self, piece: Constraint, quantities: Quantities) -> list[cp.Constraint]:
        """Return a constraint in z and log(eta): what joins weights and eta, in the guarantees."""
        said = Form(quantities.virtual_costs).plus(constraints=[piece])
        if said.budgets:  # psi'a <= B/eta
            return piece.constraints(
                replace(quantities, weights=quantities.epsilon, inverse_eta=cp.Constant(1.0))
            )
        log_eta, found = self._v + self._from_eta(np.log), []
        if said.is_bounded:
            m = self._sellers.size
            bounds = np.broadcast_to(said.max_epsilon, m)[self._sellers]
            found.append(self._z + log_eta <= np.log(m * bounds))
        if said.eta_low > 0:
            found.append(log_eta >= np.log(said.eta_low))
        if said.eta_high < np.inf:
            found.append(log_eta <= np.log(said.eta_high))
        return found or piece.constraints(quantities)

    @property
    def losses(self) -> Floats:
        """The given losses, shape (m,), zero for sellers who cannot sell."""
        found = np.zeros(self._sellers.size)
        found[self._sellers] = np.asarray(self._losses.value, dtype=float)
        return found

    @losses.setter
    def losses(self, losses: ArrayLike) -> None:
        self._losses.value = _checked_weights(losses, self._sellers.size, "losses")[self._sellers]

    @property
    def noise(self) -> float:
        """What multiplies 1/eta; setting it does not compile again."""
        return float(np.asarray(self._noise.value))

    @noise.setter
    def noise(self, noise: float) -> None:
        self._noise.value = check_nonnegative("noise", noise)

    @property
    def eta(self) -> float:
        """The given total privacy, or that of the last solve; setting it does not compile again."""
        given = float(np.asarray(self._eta.value))
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
    def around(self) -> Floats:
        """The weights exp(z0) at which ``sum exp(z) >= 1`` is linearised, shape (m,)."""
        found = np.zeros(self._sellers.size)
        found[self._sellers] = np.asarray(self._slope.value, dtype=float)
        return found

    @around.setter
    def around(self, weights: ArrayLike) -> None:
        given = _checked_weights(weights, self._sellers.size)[self._sellers]
        m = self._sellers.size
        given = np.maximum(given, _SMALLEST / m)
        self._slope.value = given
        self._level.value = 1.0 - float(given @ (1.0 - np.log(m * given)))
        self._z.value = np.log(m * given)

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, scaled down to a sum of one, shape (m,)."""
        weights = np.zeros(self._sellers.size)
        weights[self._sellers] = np.exp(self.solution(self._z, started=True))
        return weights / weights.sum()


def remaining_gain(
    joint: JointMarket, purchases: PurchaseStep, model: Floats, weights: Floats, eta: float
) -> float:
    """Return how much the model alone, or weights and eta alone, still improve the objective.

    Relative to the objective; 0 at a point that satisfies the first-order conditions.
    """
    here = joint.objective(model, weights, eta)
    other = joint.objective(best_model(joint, weights, eta), weights, eta)
    bought = purchases(model, eta)
    there = joint.objective(model, bought.weights, bought.eta) - bought.excess
    scale = max(abs(here), float(np.finfo(float).tiny))
    return max(0.0, here - other, here - there) / scale


def _checked_weights(values: ArrayLike, n_sellers: int, name: str = "weights") -> Floats:
    found = np.asarray(values, dtype=float)
    if found.shape != (n_sellers,) or not (np.isfinite(found).all() and (found >= 0).all()):
        raise ParameterError(
            f"{name} must be {n_sellers} finite numbers >= 0, one for each seller; got shape "
            f"{found.shape}"
        )
    return found
