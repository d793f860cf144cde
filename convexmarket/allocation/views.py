"""A market as CVXPY expressions: at a fixed eta, and jointly in the weights and 1/eta."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import cvxpy as cp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.allocation.simplex import ROUNDING
from convexmarket.errors import AllocationError, ParameterError
from convexmarket.market import Market
from convexmarket.terms import Constraint, Quantities, Term

__all__ = [
    "FixedEta",
    "JointView",
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


def _speaks_of(expression: cp.Expression, variable: cp.Variable) -> bool:
    return any(other is variable for other in expression.variables())


@dataclass(eq=False)
class JointView:
    """Objective and constraints over three unknowns: weights, 1/eta, and guarantees on their own.

    A piece that does not use the guarantees is convex jointly in the weights and 1/eta. Weights
    are held as ``m*a`` and 1/eta in units of ``inverse_scale``, both of order one.

    Attributes
    ----------
    market : Market
    active : ndarray of bool, shape (m,)
        Sellers with finite virtual costs; the others have weight zero.
    scaled_weights, scaled_inverse, epsilon : cvxpy.Variable
    terms : list of (weight, term, expression)
    constraints : list of (piece, list of cvxpy.Constraint)
    """

    market: Market
    inverse_scale: float = 1.0
    active: NDArray[np.bool_] = field(init=False)
    scaled_weights: cp.Variable = field(init=False)
    scaled_inverse: cp.Variable = field(init=False)
    epsilon: cp.Variable = field(init=False)
    terms: list[tuple[float, Term, cp.Expression]] = field(init=False)
    constraints: list[tuple[Constraint, list[cp.Constraint]]] = field(init=False)

    def __post_init__(self) -> None:
        self.active = self.market.form.active
        m = self.active.size
        self.scaled_weights = cp.Variable(int(self.active.sum()), nonneg=True, name="m*a")
        self.scaled_inverse = cp.Variable(nonneg=True, name="scaled_inverse_eta")
        self.epsilon = cp.Variable(m, nonneg=True, name="epsilon")
        costs = self.market.sellers.virtual_costs
        self.quantities = Quantities(
            weights=spread_out(self.scaled_weights, self.active) / m,
            epsilon=self.epsilon,
            inverse_eta=self.inverse_scale * self.scaled_inverse,
            virtual_costs=np.where(self.active, costs, 0.0),
        )
        self.terms = [
            (part.value, part.term, part.term.expression(self.quantities))
            for part in self.market.objective.parts
            if part.value > 0
        ]
        self.constraints = [
            (piece, piece.constraints(self.quantities)) for piece in self.market.constraints
        ]

    @cached_property
    def uses_epsilon(self) -> bool:
        """Whether a term speaks of the guarantees, so that eta has to be searched for."""
        return any(_speaks_of(expression, self.epsilon) for _, _, expression in self.terms)

    @cached_property
    def has_noise(self) -> bool:
        """Whether a term falls as more privacy is bought."""
        return any(_speaks_of(expression, self.scaled_inverse) for _, _, expression in self.terms)

    @property
    def simplex(self) -> list[cp.Constraint]:
        """``sum a = 1``; nonnegativity is the variable's own."""
        return [cp.sum(self.scaled_weights) == self.active.size]

    def flat_constraints(self) -> list[cp.Constraint]:
        """Return the constraints of all pieces."""
        return [item for _, items in self.constraints for item in items]

    def objective(self) -> cp.Expression:
        """Return the objective; a program in its own right where no term uses the guarantees."""
        if not self.terms:
            return cp.Constant(0.0)
        return cp.sum(cp.hstack([weight * expression for weight, _, expression in self.terms]))

    def place(self, weights: Floats, eta: float) -> None:
        """Set the unknowns to a point, so that expressions have values there."""
        self.scaled_weights.value = self.active.size * weights[self.active]
        self.scaled_inverse.value = 1.0 / (eta * self.inverse_scale)
        self.epsilon.value = eta * weights

    def value(self, weights: Floats, eta: float) -> float:
        """Evaluate the objective at weights, shape (m,), and eta."""
        self.place(weights, eta)
        return sum(weight * float(numbers(e)) for weight, _, e in self.terms)


class FixedEta(cp.Problem):
    """Any market at a fixed total privacy: a :class:`cvxpy.Problem`, compiled once for every eta.

    Made by :func:`convexmarket.declare`.

    Attributes
    ----------
    formulation : str
        "primal".
    """

    formulation = "primal"

    def __init__(self, market: Market, eta: float, scale: float = 1.0) -> None:
        self._sellers = market.form.active
        m = self._sellers.size
        costs = market.sellers.virtual_costs
        scaled_weights = cp.Variable(int(self._sellers.sum()), nonneg=True, name="scaled_weights")
        self._eta = cp.Parameter(pos=True, name="eta")
        self._weights = spread_out(scaled_weights, self._sellers) / m
        quantities = Quantities(
            weights=self._weights,
            epsilon=(self._eta / m) * spread_out(scaled_weights, self._sellers),
            inverse_eta=cp.CallbackParam(self._reciprocal, pos=True, name="inverse_eta"),
            virtual_costs=np.where(self._sellers, costs, 0.0),
        )
        self.pieces = [(piece, piece.constraints(quantities)) for piece in market.constraints]
        # A bound on eta alone is no constraint on the weights: to a solver it would be an
        # inequality between numbers, without an interior where it is met exactly.
        bounds = [c for _, items in self.pieces for c in items if c.variables()]
        self.eta = eta
        objective = market.objective.expression(quantities)
        super().__init__(
            cp.Minimize(objective / scale if scale != 1 else objective),
            [cp.sum(scaled_weights) == m, *bounds],
        )

    def _reciprocal(self) -> float | None:
        return None if self._eta.value is None else 1.0 / float(numbers(self._eta))

    @property
    def eta(self) -> float:
        """Total privacy; setting it changes the parameters, without compiling again."""
        return float(numbers(self._eta))

    @eta.setter
    def eta(self, eta: float) -> None:
        if not (np.isfinite(eta) and eta > 0):
            raise ParameterError(f"eta is {eta!r}; give a finite number > 0")
        self._eta.value = eta
        for piece, items in self.pieces:
            if not all(item.value(tolerance=ROUNDING) for item in items if not item.variables()):
                raise ParameterError(f"eta is {eta!r}, outside what {piece!r} allows")

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, nonnegative and summing to one, shape (m,)."""
        weights = np.maximum(self.raw_weights, 0.0)
        return weights / weights.sum()

    @property
    def raw_weights(self) -> Floats:
        """Weights of the last solve as the solver left them, shape (m,)."""
        value = self._weights.value
        if value is None:
            raise AllocationError(
                f"the problem has no solution to show (status {self.status}); call solve() first"
            )
        return np.asarray(value, dtype=float)
