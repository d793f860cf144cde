r"""The choice of the weights in ``z = log(a)`` as a CVXPY problem, with eta or for a given one.

In z the whole objective is convex in (w, z), by exponential cones. The best weights in ``m*a`` are
``declare(joint.purchase_market(model), eta)``.

In z the set ``sum exp(z) = 1`` is the boundary of a convex set. CVXPY's rules accept a piece in
``exp(z)`` only if it is convex and *nondecreasing* in every weight, so that ``sum exp(z) <= 1`` may
be dropped: scaling weights down to a sum of one never costs. The remaining ``sum exp(z) >= 1`` is
replaced by its tangent at a point z0, which is stricter: the convex-concave procedure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cvxpy as cp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.allocation.views import Declared, numbers, spread_out
from convexmarket.checks import check_nonnegative, check_positive, shown
from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.joint.problem import JointMarket
from convexmarket.terms import Constraint, MarketNumbers, Quantities

__all__ = ["ExponentialBlock"]

Floats = NDArray[np.float64]

#: Weights below this share of the average are taken for it where a logarithm is needed.
_SMALLEST = 1e-12


class ExponentialBlock(Declared):
    """The best weights for given losses, in z = log(a), around a point z0; the best eta, if wanted.

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
