"""A market as CVXPY expressions: at a fixed eta, and jointly in the weights and 1/eta."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import cvxpy as cp
import numpy as np
from cvxpy.problems.problem import Cache
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.allocation.minorants import Hints, Lifted
from convexmarket.allocation.simplex import ROUNDING
from convexmarket.checks import check_positive, shown
from convexmarket.errors import AllocationError, ParameterError
from convexmarket.market import Market
from convexmarket.terms import Constraint, Quantities, Term, WeightedTerm
from convexmarket.terms.base import Number, value_of

__all__ = [
    "Declared",
    "DeclaredMarket",
    "FixedEta",
    "JointView",
    "inverse_of",
    "numbers",
    "spread_out",
]

Floats = NDArray[np.float64]


def numbers(expression: cp.Expression) -> Floats:
    """Return the value of an expression whose unknowns are set."""
    if expression.value is None:
        raise AllocationError(f"{expression} has no value; solve its problem first")
    return np.asarray(expression.value, dtype=float)


def spread_out(expression: cp.Expression, sellers: NDArray[np.bool_]) -> cp.Expression:
    """Return the expression of shape (m,) that is zero for sellers who are left out."""
    if sellers.all():
        return expression
    return sparse.eye_array(sellers.size, format="csc")[:, sellers] @ expression


def _costs(
    market: Market, active: NDArray[np.bool_], parameters: Mapping[int, cp.Parameter] | None
) -> Any:
    """Return the virtual costs, shape (m,): a parameter, if it is to stay one, or numbers."""
    parameter = market.sellers.cost_parameter
    if parameter is not None and (parameters is None or id(parameter) in parameters):
        return parameter
    return np.where(active, market.sellers.virtual_costs, 0.0)


class JointView:
    """Objective and constraints over three unknowns: weights, guarantees and 1/eta.

    A piece that does not use the guarantees is convex jointly in the weights and 1/eta. Weights are
    held as ``m*a`` and 1/eta in units of ``inverse_scale``, both of order one.

    Parameters
    ----------
    market : Market
    inverse_scale : float
    parameters : mapping from id to cvxpy.Parameter
        Replacements of parameters in the market's pieces. All others become constants with their
        present values, so that later changes do not reach the problem. None keeps all parameters.

    Attributes
    ----------
    active : ndarray of bool, shape (m,)
        Sellers with finite virtual costs; the others have weight zero.
    unknowns : tuple of cvxpy.Variable
        Scaled weights, guarantees and scaled 1/eta.
    terms : list of (weight, term, the term times its weight)
    constraints : list of (piece, list of cvxpy.Constraint)
        Comparisons of expressions, including the domains of terms.
    """

    def __init__(
        self,
        market: Market,
        inverse_scale: float = 1.0,
        parameters: Mapping[int, cp.Parameter] | None = MappingProxyType({}),
    ) -> None:
        self.market, self.inverse_scale, self._parameters = market, inverse_scale, parameters
        self.active = market.form.active
        m = self.active.size
        self.scaled_weights = cp.Variable(int(self.active.sum()), nonneg=True, name="m*a")
        self.scaled_inverse = cp.Variable(nonneg=True, name="scaled_inverse_eta")
        self.epsilon = cp.Variable(m, nonneg=True, name="epsilon")
        self.unknowns = self.scaled_weights, self.epsilon, self.scaled_inverse
        self.quantities = Quantities(
            weights=spread_out(self.scaled_weights, self.active) / m,
            epsilon=self.epsilon,
            inverse_eta=inverse_scale * self.scaled_inverse,
            virtual_costs=_costs(market, self.active, parameters),
        )
        parts = [(self._weight(part), part) for part in market.objective.parts]
        self.terms: list[tuple[Number, Term, cp.Expression]] = [
            (weight, part.term, self._settled(part.weighted(weight, self.quantities)))
            for weight, part in parts
            if isinstance(weight, cp.Expression) or weight > 0
        ]
        self.constraints: list[tuple[Constraint | Term, list[cp.Constraint]]] = [
            (piece, [type(item)(*map(self._settled, item.args)) for item in items])
            for piece, items in ((p, p.comparisons(self.quantities)) for p in market.constraints)
        ]
        self.constraints += [
            (term, domain) for _, term, e in self.terms if (domain := self._domain(e))
        ]

    def _domain(self, expression: cp.Expression) -> list[cp.Constraint]:
        """List restrictions of an expression's domain, such as ``eps <= 1`` for log(1 - eps)."""
        return [
            item
            for item in expression.domain
            if isinstance(item, cp.constraints.Inequality)
            and item.variables()
            and not item.expr.is_nonpos()
            and (not self.bounds_epsilon(item) or item.variables() == [self.epsilon])
        ]

    def _weight(self, part: WeightedTerm) -> Number:
        """Return a weight: a number, unless it is a parameter that stays one."""
        if isinstance(part.weight, cp.Expression) and (
            self._parameters is None
            or any(id(each) in self._parameters for each in part.weight.parameters())
        ):
            return self._settled(part.weight)
        return part.value

    def _settled(self, expression: cp.Expression) -> cp.Expression:
        """Return an expression without parameters except the given ones."""
        if self._parameters is None or not expression.parameters():
            return expression
        leaves = {
            id(each): self._parameters[id(each)]
            if id(each) in self._parameters
            else cp.Constant(value_of(each))
            for each in expression.parameters()
        }
        return Lifted(leaves, kinks=False)(expression)

    def uses_epsilon(self, expression: cp.Expression) -> bool:
        """Whether an expression contains the guarantees."""
        return any(variable is self.epsilon for variable in expression.variables())

    def bounds_epsilon(self, item: cp.Constraint) -> bool:
        """Whether a constraint contains the guarantees."""
        return any(variable is self.epsilon for variable in item.variables())

    @property
    def is_jointly_convex(self) -> bool:
        """Whether no term is in the guarantees, so that the market is convex in (a, 1/eta)."""
        return not any(self.uses_epsilon(e) for _, _, e in self.terms)

    @property
    def simplex(self) -> list[cp.Constraint]:
        """``sum a = 1``; the variable is nonnegative."""
        return [cp.sum(self.scaled_weights) == self.active.size]

    def flat_constraints(self) -> list[cp.Constraint]:
        """Return the constraints of all pieces."""
        return [item for _, items in self.constraints for item in items]

    def objective(self) -> cp.Expression:
        """Return the objective; a convex program in itself where no term uses the guarantees."""
        return cp.sum(cp.hstack([0.0, *(expression for _, _, expression in self.terms)]))

    def embedded(self, values: Floats, other: float = 0.0) -> Floats:
        """Return values for all sellers from those of the active ones."""
        everyone = np.full(self.active.size, other)
        everyone[self.active] = values
        return everyone

    def place(self, weights: Floats, eta: float) -> None:
        """Set the unknowns to a point, so that expressions have values there."""
        self.scaled_weights.value = self.active.size * weights[self.active]
        self.scaled_inverse.value = 1.0 / (eta * self.inverse_scale)
        self.epsilon.value = eta * weights

    def parts(self, weights: Floats, eta: float) -> list[float]:
        """Evaluate the weighted terms at weights, shape (m,), and eta."""
        self.place(weights, eta)
        with np.errstate(all="ignore"):  # outside a domain the value is not a number
            return [float(numbers(expression)) for _, _, expression in self.terms]

    def value(self, weights: Floats, eta: float) -> float:
        """Evaluate the objective at weights, shape (m,), and eta."""
        return sum(self.parts(weights, eta))

    def size(self, weights: Floats, eta: float) -> float:
        """Sum the absolute weighted terms, to which gaps are relative."""
        return sum(map(abs, self.parts(weights, eta))) or 1.0


def inverse_of(eta: cp.Parameter, unit: float = 1.0) -> cp.CallbackParam:
    """Return ``1/(eta*unit)`` as a parameter that follows another."""
    return cp.CallbackParam(partial(_reciprocal, eta, unit), pos=True, name="inverse_eta")


def _reciprocal(eta: cp.Parameter, unit: float) -> float | None:
    return None if eta.value is None else 1.0 / (float(eta.value) * unit)


def fixed_eta(view: JointView) -> tuple[cp.Parameter, dict[int, cp.Expression]]:
    """Return eta as a parameter, and what the guarantees and 1/eta of a view are with it."""
    eta = cp.Parameter(pos=True, name="eta")
    return eta, {
        id(view.epsilon): eta * view.quantities.weights,
        id(view.scaled_inverse): inverse_of(eta, view.inverse_scale),
    }


class Declared(cp.Problem):
    """A :class:`cvxpy.Problem` that can be copied and pickled, without what a solver keeps of it.

    A copy shares nothing with its original. One problem is not for several threads at once, as
    solving it sets its variables.
    """

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but what has been compiled."""
        return {**self.__dict__, "_cache": Cache(), "_solver_cache": {}}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a problem of its own."""
        return pickle.loads(pickle.dumps(self))

    def __copy__(self) -> Self:
        """Return a problem of its own, too."""
        return self.__deepcopy__({})

    def solution(self, expression: cp.Expression, started: bool = False) -> Floats:
        """Return the value of an expression after a solve, of this problem or one made of it.

        Where variables have a start, a value says nothing, but a status does.

        Raises
        ------
        AllocationError
            If the problem has not been solved.
        """
        if expression.value is None or (started and self.status is None):
            raise AllocationError(
                f"the problem has no solution to show (status {self.status}); call solve() first"
            )
        return np.asarray(expression.value, dtype=float)


class DeclaredMarket(Declared):
    """A whole market, whose weights a are an expression."""

    _weights: cp.Expression

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, nonnegative and summing to one, shape (m,)."""
        weights = np.maximum(self.raw_weights, 0.0)
        return weights / weights.sum()

    @property
    def raw_weights(self) -> Floats:
        """Weights of the last solve as the solver left them, shape (m,)."""
        return self.solution(self._weights)


class Subproblem(DeclaredMarket):
    """A view at a fixed eta as a solver gets it, compiled once, with the multipliers of a proof.

    Parameters
    ----------
    view : JointView
    smooth : collection of cvxpy.Expression
        Terms that need no multipliers.
    scale : float
        Unit of the objective.
    eta : float
        Total privacy, which can be changed by setting :attr:`eta`.
    """

    def __init__(
        self, view: JointView, smooth: Sequence[cp.Expression], scale: float, eta: float
    ) -> None:
        self._view, self._weights = view, view.quantities.weights
        self.scale = scale
        self._eta, leaves = fixed_eta(view)
        self.eta, self.epsilon = eta, leaves[id(view.epsilon)]
        links = self._free_guarantees(leaves)
        self._lifted = Lifted(leaves, follow=True)
        plain = Lifted(leaves, kinks=False, follow=True)
        self._items = [self._lifted.constraint(item) for item in view.flat_constraints()]
        objective = [
            (plain if any(e is s for s in smooth) else self._lifted)(e) / scale
            for _, _, e in view.terms
        ]
        # A bound on eta alone is no constraint on the weights: to a solver it would be an
        # inequality between numbers, without an interior where it is met exactly.
        bounds = [item for item in self._items if item.variables()]
        super().__init__(
            cp.Minimize(cp.sum(cp.hstack([0.0, *objective]))),
            [*view.simplex, *bounds, *self._lifted.links, *links],
        )

    def _free_guarantees(self, leaves: dict[int, cp.Expression]) -> list[cp.Constraint]:
        """Let guarantees be variables where a piece multiplies them by a parameter.

        Eta is a parameter already, and a product of two would be compiled anew in every solve.
        """
        at_eta = Lifted(leaves, kinks=False, follow=True)
        pieces = [e for _, _, e in self._view.terms]
        pieces += [item.expr for item in self._view.flat_constraints()]
        if all(at_eta(e).is_dpp() for e in pieces):
            return []
        leaves[id(self._view.epsilon)] = free = cp.Variable(self.epsilon.shape)
        return [free == self.epsilon]

    @property
    def eta(self) -> float:
        """Total privacy."""
        return float(numbers(self._eta))

    @eta.setter
    def eta(self, eta: float) -> None:
        self._eta.value = eta

    def proof(self, scale: float | None = None) -> tuple[list[Floats | None], Hints]:
        """Return the multipliers that a cut needs, of an objective in units of a scale.

        Those of the view's constraints, None of those that bind no weights; and those at the atoms
        with kinks.
        """
        scale = self.scale if scale is None else scale
        return [multiplier(item, scale) for item in self._items], self._lifted.hints(scale)


def multiplier(item: cp.Constraint, scale: float) -> Floats | None:
    """Return the multiplier of a solved comparison, times a scale; None where it has no use."""
    if not item.variables() or item.dual_value is None:
        return None
    dual = np.asarray(item.dual_value, dtype=float)
    return scale * dual.reshape(item.expr.shape, order="F")


class FixedEta(DeclaredMarket):
    """Any market at a fixed total privacy: a :class:`cvxpy.Problem`, compiled once for every eta.

    Made by :func:`convexmarket.declare`.

    Attributes
    ----------
    formulation : str
        "primal".
    quantities : Quantities
        Weights, guarantees and 1/eta as expressions, to add constraints of any kind with.
    """

    formulation = "primal"

    def __init__(self, market: Market, eta: float) -> None:
        active = market.form.active
        m = active.size
        self.scaled_weights = cp.Variable(int(active.sum()), nonneg=True, name="scaled_weights")
        self.parameter = cp.Parameter(pos=True, name="eta")
        self._weights = spread_out(self.scaled_weights, active) / m
        self.quantities = Quantities(
            weights=self._weights,
            epsilon=self.parameter * self._weights,
            inverse_eta=inverse_of(self.parameter),
            virtual_costs=_costs(market, active, None),
        )
        self.pieces = [(p, p.constraints(self.quantities)) for p in market.constraints]
        # A bound on eta alone is no constraint on the weights: to a solver it would be an
        # inequality between numbers, without an interior where it is met exactly.
        bounds = [c for _, items in self.pieces for c in items if c.variables()]
        self.eta = eta
        objective = market.objective.expression(self.quantities)
        super().__init__(cp.Minimize(objective), [cp.sum(self.scaled_weights) == m, *bounds])

    @property
    def eta(self) -> float:
        """Total privacy; setting it changes the parameters, without compiling again."""
        return float(numbers(self.parameter))

    @eta.setter
    def eta(self, eta: float) -> None:
        check_positive("eta", eta)
        self.parameter.value = eta
        for piece, items in self.pieces:
            if not all(item.value(tolerance=ROUNDING) for item in items if not item.variables()):
                raise ParameterError(f"eta is {eta!r}, outside what {shown(piece)} allows")
