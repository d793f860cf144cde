"""Base classes of terms and constraints, and the weighted sum of terms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import cvxpy as cp
import numpy as np
import pandas as pd
from cvxpy.atoms.atom import Atom
from cvxpy.constraints import Equality, Inequality, Zero
from cvxpy.expressions.leaf import Leaf

from convexmarket.checks import as_float, check_positive, is_number, labels_of, shown
from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.terms.records import Record, Written, times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from convexmarket.terms.costs import PrivacyCost
    from convexmarket.terms.form import MarketNumbers

__all__ = ["Constraint", "Objective", "Piece", "Quantities", "Term", "WeightedTerm"]


Parameter: TypeAlias = cp.Parameter
#: A number, or an expression in parameters.
Number: TypeAlias = float | cp.Expression


def value_of(number: Any) -> Any:
    """Return a number or a vector, or the present value of an expression in parameters."""
    if not isinstance(number, cp.Expression):
        return number
    for parameter in number.parameters():
        if parameter.value is None:
            raise ParameterError(
                f"the parameter {parameter.name()!r} has no value; set its value, or use sweep"
            )
    value = np.asarray(number.value, dtype=float)
    return value if value.ndim else float(value)


@dataclass(frozen=True)
class Quantities:
    """The quantities of a term, as CVXPY expressions (or constants, to evaluate it).

    Attributes
    ----------
    weights, epsilon : cvxpy.Expression, shape (m,)
        The weights a, and the guarantees eps = eta * a.
    inverse_eta : cvxpy.Expression, scalar
    virtual_costs : ndarray or cvxpy.Parameter, shape (m,)

    Examples
    --------
    >>> quantities = Quantities.at(np.array([0.5, 0.5]), 2.0, np.array([0.1, 0.2]))
    >>> quantities.epsilon.value, float(quantities.inverse_eta.value)
    (array([1., 1.]), 0.5)
    """

    weights: cp.Expression
    epsilon: cp.Expression
    inverse_eta: cp.Expression
    virtual_costs: NDArray[np.float64]

    @classmethod
    def at(
        cls, weights: NDArray[np.float64], eta: float, virtual_costs: NDArray[np.float64]
    ) -> Quantities:
        """Create the quantities of a point, where terms evaluate to numbers."""
        a = np.asarray(weights)
        return cls(cp.Constant(a), cp.Constant(eta * a), cp.Constant(1.0 / eta), virtual_costs)

    @classmethod
    def unknown(cls, virtual_costs: Any) -> Quantities:
        """Create three separate variables; a piece must be convex in all three."""
        m = virtual_costs.size
        weights, epsilon = (cp.Variable(m, nonneg=True, name=x) for x in ("weights", "epsilon"))
        return cls(weights, epsilon, cp.Variable(nonneg=True, name="inverse_eta"), virtual_costs)


class Piece(Record):
    """A term of an objective, or a constraint.

    Attributes that a subclass does not declare are read from its CVXPY expressions.

    Examples
    --------
    >>> import convexmarket as cm
    >>> isinstance(cm.Noise(), cm.terms.Piece), isinstance(cm.Cap(2), cm.terms.Piece)
    (True, True)
    """

    #: How reports enter: as ``psi'u(eps)`` in the objective, or as ``psi'eps`` under a budget.
    reports: ClassVar[Literal["price", "budget"] | None] = None
    #: Whether it is a sum over sellers, or a cap on each (docs/theory.md, section 9.4).
    separable: ClassVar[bool] = False
    #: Labels of the pandas columns among its arguments, by the names or places of these.
    column_labels: dict[str, pd.Index[Any]]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Store the labels of pandas arguments, to be compared with those of the sellers."""
        piece = super().__new__(cls)
        given = {**{f"argument {place}": value for place, value in enumerate(args, 1)}, **kwargs}
        labels = {name: index for name in given if (index := labels_of(given[name])) is not None}
        object.__setattr__(piece, "column_labels", labels)
        return piece

    @property
    def is_parametric(self) -> bool:
        """Whether one of its numbers is a parameter."""
        return any(isinstance(value, cp.Parameter) for value in vars(self).values())

    def quantities_used(self, n_sellers: int) -> set[str]:
        """Return the names of the :class:`Quantities` it uses; all if that cannot be read."""
        costs = cp.Parameter(n_sellers, nonneg=True, value=np.ones(n_sellers))
        quantities = Quantities.unknown(costs)
        try:
            written = getattr(self, self.definition)(quantities)
            items = written if isinstance(written, list) else [written]
            leaves = {id(x) for item in items for x in (*item.variables(), *item.parameters())}
        except Exception:  # numpy functions do not take a parameter
            return set(vars(quantities))
        return {name for name, known in vars(quantities).items() if id(known) in leaves}

    def reading(self, n_sellers: int) -> Literal["price", "budget", "unknown", "none"]:
        """Classify the dependence of the piece on the reports."""
        if self.reports:
            return self.reports
        return "unknown" if "virtual_costs" in self.quantities_used(n_sellers) else "none"

    @abstractmethod
    def sides(self, quantities: Quantities) -> list[cp.Expression]:
        """Return the expressions that have to be convex, checked."""


class Summand(Written, ABC):
    """A term or an objective; weights and sums of these are objectives."""

    __array_ufunc__ = None  # numpy leaves products with its numbers to this class
    #: The weighted terms.
    parts: tuple[WeightedTerm, ...]

    def __mul__(self, factor: Number) -> Objective:
        return Objective(tuple(part.times(factor) for part in self.parts))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Objective:
        check_positive("the divisor of an objective", divisor)
        return Objective(tuple(WeightedTerm(p.weight / divisor, p.term) for p in self.parts))

    def __add__(self, other: Summand | float) -> Objective:
        if isinstance(other, Summand):
            return Objective(self.parts + other.parts)
        if is_number(other) and other == 0:  # sum() starts from 0
            return Objective(self.parts)
        raise ParameterError(
            f"{other!r} cannot be added to {self!r}: an objective is a sum of weighted terms; "
            "leave constants out, and give constraints to Market(...)"
        )

    __radd__ = __add__

    def __neg__(self) -> Objective:
        raise CurvatureError(
            f"{self!r} is subtracted: a negative multiple of a convex term is concave, so the "
            "market would not be convex; add it with a weight >= 0, or bound it in a Constraint"
        )

    def __sub__(self, other: Summand) -> Objective:
        return self + (-other if isinstance(other, Summand) else other)

    def __rsub__(self, other: object) -> Objective:
        return -self

    def __float__(self) -> float:  # CVXPY calls it in ``parameter * term``
        raise ParameterError(f"{self!r} is not a number; write term * parameter, in this order")


class Term(Piece, Summand):
    """One term of a buyer's objective, convex in the quantities it uses.

    Subclass it and write :meth:`expression`; ``weight * term``, ``term * parameter`` and ``+`` then
    build objectives. The expression must not contain other variables or random numbers.

    Examples
    --------
    >>> class Largest(Term):
    ...     def expression(self, quantities):
    ...         return cp.max(quantities.epsilon)
    >>> print(2 * Largest())
    2 Largest
    """

    definition = "expression"
    #: Name of the one of the :class:`MarketNumbers` that its weight is added to.
    adds_to: str | None = None
    #: The privacy cost of the sellers; None for a term that pays nothing.
    privacy_cost: PrivacyCost | None = None
    #: Whether it is money for the sellers.
    pays: ClassVar[bool] = False
    #: Whether it is a strictly convex norm of the weights.
    is_norm: bool = False
    #: Whether its gradient measures the distance of weights from the optimum.
    is_smooth: bool = True

    @abstractmethod
    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the term as a scalar, convex CVXPY expression.

        Parameters
        ----------
        quantities : Quantities
        """

    def sides(self, quantities: Quantities) -> list[cp.Expression]:
        """Return the expression, checked to be scalar and convex.

        Raises
        ------
        CurvatureError, ParameterError
        """
        plain = self.expression(quantities)
        if not isinstance(plain, cp.Expression) or not plain.is_scalar():
            what = f"shape {plain.shape}" if isinstance(plain, cp.Expression) else shown(plain)
            raise ParameterError(
                f"the expression of {shown(self)} is {what}; return a scalar CVXPY expression"
            )
        if not plain.is_convex():
            raise CurvatureError(
                f"{shown(self)} is {plain.curvature.lower()}, but a term must be convex in the "
                "weights, epsilon and 1/eta"
            )
        return [plain]

    def weighted(self, weight: float, quantities: Quantities) -> cp.Expression:
        """Return ``weight * term``, scaled for a solver."""
        return weight * self.expression(quantities)

    def numbers(self, weight: float, form: MarketNumbers) -> MarketNumbers | None:
        """Add this term to a market in numbers; None if that cannot express it."""
        name = self.adds_to
        return replace(form, **{name: getattr(form, name) + weight}) if name else None

    def simplex_minimum(
        self, weight: float, costs: NDArray[np.float64]
    ) -> NDArray[np.float64] | None:
        """Compute the minimum of ``weight * term + costs'a`` over a >= 0, sum a = 1, or None.

        A certificate keeps the curvature of one such term, and replaces the others by tangents. The
        weight is positive, ``costs`` has shape (..., m), and the result has shape (...).
        """
        return None

    @property
    def parts(self) -> tuple[WeightedTerm, ...]:  # type: ignore[override]
        return (WeightedTerm(1.0, self),)


class Constraint(Piece):
    """One restriction on a market, convex in the weights a and 1/eta, or in the guarantees eps.

    Write a linear bound on the guarantees, such as ``eps_i <= e``, as ``a_i <= e * inverse_eta``:
    a market without payments then stays one convex program.

    Examples
    --------
    >>> import convexmarket as cm
    >>> class FirstHalf(Constraint):
    ...     def constraints(self, quantities):
    ...         return [quantities.weights[0] <= 0.5]
    >>> sellers = cm.Sellers([0.1, 0.2, 0.4], cm.Uniform(0, 1))
    >>> market = cm.Market(sellers, cm.Spread() + cm.Noise() + 9 * cm.Payments(), [FirstHalf()])
    >>> cm.allocate(market).weights.round(2)
    array([0.5, 0.5, 0. ])
    """

    definition = "constraints"
    #: Groups of the sellers, and bounds on their shares; None if it is no bound on shares.
    shares: tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]] | None = None

    @abstractmethod
    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return the restriction as CVXPY constraints.

        Parameters
        ----------
        quantities : Quantities
        """

    def comparisons(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return the restriction as comparisons, whose violation can be measured.

        Raises
        ------
        CurvatureError, ParameterError
        """
        items = self.constraints(quantities)
        listed = isinstance(items, list | tuple)
        for item in items if listed else (items,):
            if isinstance(item, cp.FiniteSet):
                raise CurvatureError(f"{shown(self)} returned {shown(item, str)}, {MIXED_INTEGER}")
            if not (listed and isinstance(item, Inequality | Equality | Zero)):
                raise ParameterError(
                    f"{shown(self)} returned {shown(item)}; return a list of comparisons of CVXPY "
                    "expressions, such as [quantities.weights <= 0.1]"
                )
        return items

    def sides(self, quantities: Quantities) -> list[cp.Expression]:
        """Return ``h`` of each restriction ``h <= 0`` or ``h = 0``, checked to be convex.

        Raises
        ------
        CurvatureError
        """
        items = self.comparisons(quantities)
        factors = {id(quantities.weights), id(quantities.inverse_eta)}
        for item in items:
            if not item.is_dcp():
                sides = " and ".join(side.curvature.lower() for side in item.args)
                raise CurvatureError(
                    f"{shown(self)} is not a convex constraint: in {shown(item, str)} the sides "
                    f"are {sides}"
                )
            variables = {id(variable) for variable in item.variables()}
            if id(quantities.epsilon) in variables and variables & factors:
                raise CurvatureError(
                    f"{shown(self)} binds epsilon = eta * weights together with one of its "
                    "factors, which is not convex; write it only with the weights and 1/eta, for "
                    "example eps <= e as weights <= e * inverse_eta"
                )
        return [item.expr for item in items]

    def numbers(self, form: MarketNumbers) -> MarketNumbers | None:
        """Add this constraint to a market in numbers; None if that cannot express it."""
        return None

    def shadow_prices(self, multipliers: list[Any]) -> Any:
        """Return the prices of the constraint's numbers, given its comparisons' multipliers."""
        return multipliers


MIXED_INTEGER = (
    "and with it the market is not convex; add that restriction to the constraints of "
    "declare(market, eta), whose `quantities` are expressions, and solve it with a mixed-integer "
    "solver"
)


@dataclass(frozen=True)
class WeightedTerm(Written):
    """A term with its weight, a nonnegative number or a parameter.

    Examples
    --------
    >>> import convexmarket as cm
    >>> (part,) = (2 * cm.Noise()).parts
    >>> part.weight, part.term
    (2, Noise())
    """

    weight: Number
    term: Term

    def __post_init__(self) -> None:
        weight, name = self.weight, f"the weight of {shown(self.term)}"
        if isinstance(weight, cp.Expression):
            good = weight.is_scalar() and weight.is_constant() and weight.is_nonneg()
        else:
            good = bool(np.isfinite(as_float(weight)))
        if not good:
            raise ParameterError(
                f"{name} must be a finite number >= 0, or a scalar cvxpy.Parameter(nonneg=True), "
                f"got {weight!r}"
            )
        if not isinstance(weight, cp.Expression) and weight < 0:
            raise CurvatureError(
                f"{name} is {weight!r}: a negative multiple of a convex term is concave, so the "
                "market would not be convex; give a weight >= 0"
            )

    @property
    def is_parametric(self) -> bool:
        return isinstance(self.weight, cp.Expression)

    @property
    def value(self) -> float:
        return value_of(self.weight)

    @property
    def is_idle(self) -> bool:
        return not self.is_parametric and self.value == 0

    def weighted(self, weight: Number, quantities: Quantities) -> cp.Expression:
        (plain,) = self.term.sides(quantities)
        costs: Any = quantities.virtual_costs
        if isinstance(weight, cp.Expression) or isinstance(costs, cp.Expression):
            return weight * plain
        return self.term.weighted(weight, quantities)

    def times(self, factor: Any) -> WeightedTerm:
        checked = WeightedTerm(factor, self.term)
        plain = not self.is_parametric and self.weight == 1
        return checked if plain else WeightedTerm(self.weight * factor, self.term)

    @property
    def formula(self) -> str:
        return times(self.weight, self.term.formula)

    def __repr__(self) -> str:
        weight = self.weight if self.is_parametric else f"{self.weight:g}"
        return f"{weight} * {self.term!r}"


@dataclass(frozen=True)
class Objective(Summand):
    """A weighted sum of terms, to be minimised.

    Examples
    --------
    >>> import convexmarket as cm
    >>> [part.weight for part in (cm.Spread() + 2 * cm.Noise()).parts]
    [1.0, 2]
    """

    parts: tuple[WeightedTerm, ...]

    def expression(self, quantities: Quantities) -> cp.Expression:
        pieces = [part.weight * part.term.sides(quantities)[0] for part in self.parts]
        return cp.sum(cp.hstack(pieces)) if pieces else cp.Constant(0.0)

    def value(
        self, weights: NDArray[np.float64], eta: float, virtual_costs: NDArray[np.float64]
    ) -> float:
        """Evaluate the objective at weights (shape (m,)) and total privacy ``eta``."""
        return value_of(self.expression(Quantities.at(weights, eta, virtual_costs)))

    @property
    def without_noise(self) -> Objective:
        return Objective(tuple(part for part in self.parts if part.term.adds_to != "sigma"))

    @property
    def formula(self) -> str:
        return " + ".join(part.formula for part in self.parts) or "0"

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


def check_convex(pieces: Iterable[Piece], costs: NDArray[np.float64] | cp.Parameter) -> None:
    """Check user-defined pieces, as certificates require.

    Each must be convex in the weights, guarantees and 1/eta, have no other variable, and return
    the same expression each time.
    """
    if not isinstance(costs, cp.Parameter):
        costs = np.where(np.isfinite(costs), costs, 0.0)
    quantities: Any = Quantities.unknown(costs)
    quantities.weights.value = quantities.epsilon.value = np.ones(costs.size) / costs.size
    quantities.inverse_eta.value = 1.0
    known = {id(quantity) for quantity in vars(quantities).values()}
    for piece in pieces:
        if piece.owner().__module__.startswith(__package__):
            continue
        first, second = (piece.sides(quantities) for _ in range(2))
        for variable in (each for side in first for each in side.variables()):
            if id(variable) not in known:
                whole = variable.attributes["boolean"] or variable.attributes["integer"]
                remedy = MIXED_INTEGER if whole else "but a piece depends only on its quantities"
                raise CurvatureError(
                    f"{shown(piece)} uses the {'integer ' * bool(whole)}variable "
                    f"{variable.name()!r}, {remedy}"
                )
        if hidden := [side for side in first if not _is_tree(side)]:
            raise CurvatureError(
                f"{shown(piece)} hides a problem inside {type(hidden[0]).__name__}, but a piece "
                "depends only on its quantities; write its optimal value as one expression, such "
                "as log_sum_exp or sum_largest"
            )
        # A parameter may have no value: then the expression has none either.
        values = [[np.array(side.value, float) for side in sides] for sides in (first, second)]
        same = [np.array_equal(x, y, equal_nan=True) for x, y in zip(*values, strict=False)]
        if len(first) != len(second) or not all(same):
            raise ParameterError(
                f"{shown(piece)} has another value each time: it draws random numbers or keeps a "
                "state; fix its data at creation"
            )


def _is_tree(expression: cp.Expression) -> bool:
    """Test whether an expression consists of atoms and leaves."""
    atoms = isinstance(expression, Atom) and all(map(_is_tree, expression.args))
    return atoms or isinstance(expression, Leaf)
