"""How terms compose: one small base class each for terms and constraints, and their sum."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING

import cvxpy as cp
import numpy as np
from cvxpy.constraints import Equality, Inequality, NonNeg, NonPos, Zero

from convexmarket.arguments import as_float, shown
from convexmarket.errors import CurvatureError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Constraint", "Objective", "Quantities", "Term", "WeightedTerm"]


@dataclass(frozen=True)
class Quantities:
    """What a term may speak of, as CVXPY expressions (or constants, to evaluate it).

    Attributes
    ----------
    weights : cvxpy.Expression, shape (m,)
        The weights a.
    epsilon : cvxpy.Expression, shape (m,)
        The guarantees eps = eta * a.
    inverse_eta : cvxpy.Expression, scalar
        1/eta, the reciprocal of the total privacy bought.
    virtual_costs : ndarray, shape (m,)
        psi(c_i), data.
    """

    weights: cp.Expression
    epsilon: cp.Expression
    inverse_eta: cp.Expression
    virtual_costs: NDArray[np.float64]

    @classmethod
    def at(
        cls, weights: NDArray[np.float64], eta: float, virtual_costs: NDArray[np.float64]
    ) -> Quantities:
        """Hold the quantities of a given point, so that terms evaluate to numbers there."""
        return cls(
            weights=cp.Constant(weights),
            epsilon=cp.Constant(eta * np.asarray(weights)),
            inverse_eta=cp.Constant(1.0 / eta),
            virtual_costs=virtual_costs,
        )


class Term(ABC):
    """One term of a buyer's objective, convex in the quantities it uses.

    Subclass it and write :meth:`expression`; ``weight * term`` and ``+`` then build objectives.
    """

    @abstractmethod
    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the term as a scalar, convex CVXPY expression."""

    def weighted(self, weight: float, quantities: Quantities) -> cp.Expression:
        """Return ``weight * term``, in a form whose numbers a solver can weigh."""
        return weight * self.expression(quantities)

    def check(self, n_sellers: int) -> None:  # noqa: B027
        """Raise a ParameterError if the term does not fit so many sellers."""

    def simplex_minimum(
        self, weight: float, costs: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        """Return the minimum of ``weight * term + costs'a`` over a >= 0, sum a = 1, or None.

        A certificate keeps the curvature of one such term; the others are replaced by tangents.
        Only a term in the weights alone can know it. It has to be a lower bound also in floating
        point, up to rounding.

        Parameters
        ----------
        weight : float
            Positive.
        costs : ndarray, shape (..., m)

        Returns
        -------
        ndarray, shape (...), or None
        """
        return None

    def __mul__(self, weight: float) -> Objective:
        return Objective((WeightedTerm(weight, self),))

    __rmul__ = __mul__

    def __add__(self, other: Term | Objective) -> Objective:
        return 1.0 * self + other

    def __radd__(self, other: float) -> Objective:
        return 1.0 * self + other


class Constraint(ABC):
    """One restriction on a market, convex in the weights a and 1/eta.

    A bound on guarantees is written with these two: ``eps_i <= e`` as ``a_i <= e * inverse_eta``.
    """

    @abstractmethod
    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return the restriction as CVXPY constraints."""

    def comparisons(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return the restriction as comparisons, which have a violation that one can measure.

        Raises
        ------
        ParameterError
            If a constraint is none of CVXPY's, or a cone that is not known as a comparison.
        """
        return [_as_comparison(self, item) for item in self.constraints(quantities)]

    def check(self, n_sellers: int) -> None:  # noqa: B027
        """Raise a ParameterError if the restriction does not fit so many sellers."""


def _as_comparison(piece: Constraint, item: object) -> cp.Constraint:
    """Write a cone as a comparison of expressions."""
    if isinstance(item, Inequality | Equality | Zero):
        return item
    if isinstance(item, NonNeg | NonPos):
        return item.expr >= 0 if isinstance(item, NonNeg) else item.expr <= 0
    if isinstance(item, cp.SOC):
        bound, vector = item.args
        return cp.norm(vector, 2, axis=item.axis if vector.ndim > 1 else None) <= bound
    if isinstance(item, cp.PSD):
        return cp.lambda_max(-item.expr) <= 0
    if isinstance(item, cp.ExpCone):
        x, y, z = item.args
        return x + cp.rel_entr(y, z) <= 0
    raise ParameterError(
        f"{shown(piece)} returned {shown(item)}; return a list of comparisons of CVXPY "
        "expressions, such as quantities.weights <= 0.1"
    )


@dataclass(frozen=True)
class WeightedTerm:
    """A term and the nonnegative number it is multiplied with."""

    weight: float
    term: Term

    def __post_init__(self) -> None:
        if not np.isfinite(as_float(self.weight)):
            raise ParameterError(
                f"the weight of {shown(self.term)} is {self.weight!r}; give a finite number"
            )
        if self.weight < 0:
            raise CurvatureError(
                f"the weight of {shown(self.term)} is {self.weight!r}: a negative multiple of a "
                "convex term is concave, so the market would not be convex; give a weight >= 0"
            )

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the term, without its weight, as a scalar and convex CVXPY expression.

        Raises
        ------
        CurvatureError, ParameterError
            If it is not; the message names it.
        """
        found = self.term.expression(quantities)
        if not isinstance(found, cp.Expression) or not found.is_scalar():
            what = f"shape {found.shape}" if isinstance(found, cp.Expression) else shown(found)
            raise ParameterError(
                f"the expression of {shown(self.term)} is {what}; return a scalar CVXPY expression"
            )
        if not found.is_convex():
            raise CurvatureError(
                f"{shown(self.term)} is {found.curvature.lower()}, but a term must be convex "
                "in the weights, epsilon and 1/eta"
            )
        return found


@dataclass(frozen=True)
class Objective:
    """A weighted sum of terms, to be minimised."""

    parts: tuple[WeightedTerm, ...]

    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the whole objective as a CVXPY expression.

        Raises
        ------
        CurvatureError
            If a term is not convex in the quantities given; the message names it.
        """
        pieces = [part.weight * part.expression(quantities) for part in self.parts]
        return cp.sum(cp.hstack(pieces)) if len(pieces) > 1 else pieces[0]

    def value(
        self, weights: NDArray[np.float64], eta: float, virtual_costs: NDArray[np.float64]
    ) -> float:
        """Evaluate the objective at weights (shape (m,)) and total privacy ``eta``."""
        value = self.expression(Quantities.at(weights, eta, virtual_costs)).value
        return float(np.asarray(value))

    def weight_of(self, kind: type[Term]) -> float:
        """Return the total weight of the terms of one kind; 0 where there is none."""
        return sum(part.weight for part in self.parts if type(part.term) is kind)

    def __mul__(self, factor: float) -> Objective:
        return Objective(tuple(WeightedTerm(factor * p.weight, p.term) for p in self.parts))

    __rmul__ = __mul__

    def __add__(self, other: Term | Objective | float) -> Objective:
        if isinstance(other, Objective):
            return Objective(self.parts + other.parts)
        if isinstance(other, Term):
            return Objective((*self.parts, WeightedTerm(1.0, other)))
        if isinstance(other, Real) and other == 0:  # sum() starts from 0
            return self
        return NotImplemented

    __radd__ = __add__

    def __repr__(self) -> str:
        return " + ".join(f"{part.weight:g} * {part.term!r}" for part in self.parts)
