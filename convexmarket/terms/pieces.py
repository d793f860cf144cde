"""Base classes of terms and constraints, weighted sums of terms, and numeric forms of markets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

import cvxpy as cp
import numpy as np
import pandas as pd
from cvxpy.atoms.atom import Atom
from cvxpy.constraints import Equality, Inequality, Zero
from cvxpy.expressions.leaf import Leaf
from numpy.typing import NDArray

from convexmarket.checks import as_float, check_positive, is_number, labels_of, shown
from convexmarket.errors import CurvatureError, InfeasibleMarketError, ParameterError
from convexmarket.terms.records import Record, Written, written

if TYPE_CHECKING:
    from convexmarket.terms.objectives import PrivacyCost

__all__ = ["Constraint", "MarketNumbers", "Objective", "Quantities", "Term"]

Floats = NDArray[np.float64]
#: A number, or a CVXPY expression in parameters.
Number: TypeAlias = float | cp.Expression


def value_of(number: Any) -> Any:
    """Return the current value of an expression in parameters, or return a number unchanged."""
    if not isinstance(number, cp.Expression):
        return number
    for each in number.parameters():
        if each.value is None:
            raise ParameterError(f"the parameter {each.name()!r} has no value; set its value")
    value = np.asarray(number.value, dtype=float)
    return value if value.ndim else float(value)


@dataclass(frozen=True)
class Quantities:
    """Quantities on which a piece depends, as CVXPY expressions or as constants.

    The quantities are the weights a and the guarantees eps = eta * a, shape (m,), the scalar 1/eta,
    and the virtual costs psi, an array or parameter of shape (m,).

    Examples
    --------
    >>> quantities = Quantities.at(np.array([0.5, 0.5]), 2.0, np.array([0.1, 0.2]))
    >>> quantities.epsilon.value, float(quantities.inverse_eta.value)
    (array([1., 1.]), 0.5)
    """

    weights: cp.Expression
    epsilon: cp.Expression
    inverse_eta: cp.Expression
    virtual_costs: Floats

    @classmethod
    def at(cls, weights: Floats, eta: float, virtual_costs: Floats) -> Quantities:
        """Create constant quantities for the evaluation of terms."""
        a = np.asarray(weights)
        return cls(cp.Constant(a), cp.Constant(eta * a), cp.Constant(1.0 / eta), virtual_costs)

    @classmethod
    def unknown(cls, virtual_costs: Any) -> Quantities:
        """Create three separate variables, in which a piece must be jointly convex."""
        m = virtual_costs.size
        weights, epsilon = (cp.Variable(m, nonneg=True, name=x) for x in ("weights", "epsilon"))
        return cls(weights, epsilon, cp.Variable(nonneg=True, name="inverse_eta"), virtual_costs)


class Piece(Record):
    """Base class of terms and constraints, which derives undeclared attributes from expressions."""

    #: How the piece uses the reports: "price" in payments ``psi'u(eps)``, "budget" in ``psi'eps``.
    reports: ClassVar[Literal["price", "budget"] | None] = None
    #: Whether the piece is a sum over sellers or a cap on each seller (docs/theory.md, 9.4).
    separable: ClassVar[bool] = False
    #: Labels of the pandas arguments, by name or position of the argument.
    column_labels: dict[str, pd.Index[Any] | None]

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Store the labels of pandas arguments to compare them with the labels of sellers."""
        piece = super().__new__(cls)
        named = {f"argument {place}": value for place, value in enumerate(args, 1)} | kwargs
        vars(piece)["column_labels"] = {name: labels_of(value) for name, value in named.items()}
        return piece

    def quantities_used(self, n_sellers: int) -> set[str]:
        """Return the names of the :class:`Quantities` that a piece uses (all names if unknown)."""
        costs = cp.Parameter(n_sellers, nonneg=True, value=np.ones(n_sellers))
        quantities = Quantities.unknown(costs)
        try:
            items = getattr(self, self.definition)(quantities)
            items = items if isinstance(items, list) else [items]
            leaves = {id(x) for item in items for x in (*item.variables(), *item.parameters())}
        except Exception:  # NumPy functions do not accept parameters
            return set(vars(quantities))
        return {name for name, known in vars(quantities).items() if id(known) in leaves}

    def reading(self, n_sellers: int) -> Literal["price", "budget", "unknown", "none"]:
        """Classify the dependence of the piece on the reports."""
        uses_costs = not self.reports and "virtual_costs" in self.quantities_used(n_sellers)
        return self.reports or ("unknown" if uses_costs else "none")


class Summand(Written, ABC):
    """Base class of terms and objectives, whose weighted sums are objectives."""

    __array_ufunc__ = None  # NumPy delegates products with NumPy numbers to this class
    #: The weighted terms.
    parts: tuple[WeightedTerm, ...]

    def __mul__(self, factor: Any) -> Objective:
        return Objective(tuple(part.times(factor) for part in self.parts))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Objective:
        return self * (1.0 / check_positive("the divisor of a term", divisor))

    def __add__(self, other: Summand | float) -> Objective:
        if isinstance(other, Summand):
            return Objective(self.parts + other.parts)
        if is_number(other) and other == 0:  # sum() starts from 0
            return Objective(self.parts)
        raise ParameterError(
            f"{other!r} cannot be added to {self!r}: omit constants, and pass constraints to "
            "Market(...)"
        )

    __radd__ = __add__

    def __neg__(self) -> Objective:
        return -1 * self

    def __sub__(self, other: Summand) -> Objective:
        return self + (-other if isinstance(other, Summand) else other)

    def __float__(self) -> float:  # CVXPY calls this method in ``parameter * term``
        raise ParameterError(f"{self!r} is not a number; write term * parameter, in this order")


class Term(Piece, Summand):
    """A convex term of a buyer's objective.

    A subclass defines :meth:`expression`, which must not use other variables or random numbers.
    Objectives are sums of ``weight * term`` and ``term * parameter``.

    Examples
    --------
    >>> class Largest(Term):
    ...     def expression(self, quantities):
    ...         return cp.max(quantities.epsilon)
    >>> print(2 * Largest())
    2 Largest
    """

    definition = "expression"
    #: Name of the field of :class:`MarketNumbers` to which the weight of the term is added.
    adds_to: str | None = None
    #: The privacy cost of the sellers, or None for a term without payments.
    privacy_cost: PrivacyCost | None = None
    #: Whether the term is a strictly convex norm of the weights.
    is_norm: bool = False
    #: Whether weights of a solver can be refined from the term's gradient.
    is_smooth: bool = True

    @abstractmethod
    def expression(self, quantities: Quantities) -> cp.Expression:
        """Return the term as a scalar, convex CVXPY expression.

        Parameters
        ----------
        quantities : Quantities
        """

    def _sides(self, quantities: Quantities) -> list[cp.Expression]:
        """Check that the expression is scalar and convex, and return it in a list."""
        plain = self.expression(quantities)
        if not (isinstance(plain, cp.Expression) and plain.is_scalar()):
            raise ParameterError(f"{shown(self)} returned {shown(plain)}; give a scalar expression")
        if not plain.is_convex():
            fault = f"{shown(self)} is {plain.curvature.lower()}"
            raise CurvatureError(f"{fault}; a term must be convex in its quantities")
        return [plain]

    def weighted(self, weight: Number, quantities: Quantities) -> cp.Expression:
        """Return ``weight * term``, scaled for a solver."""
        return weight * self.expression(quantities)

    def numbers(self, weight: float, form: MarketNumbers) -> MarketNumbers | None:
        """Add this term to a market in numbers, or return None if it has no numeric form."""
        name = self.adds_to
        return replace(form, **{name: getattr(form, name) + weight}) if name else None

    def simplex_minimum(self, weight: float, costs: Floats) -> Floats | None:
        """Minimise ``weight * term + costs'a`` over the simplex, or return None if unknown.

        A certificate uses the exact minimum for one term. ``costs`` has shape (..., m).
        """
        return None

    @property
    def parts(self) -> tuple[WeightedTerm, ...]:  # type: ignore[override]
        """The term with weight 1, in a tuple."""
        return (WeightedTerm(1.0, self),)


class Constraint(Piece):
    """A constraint on a market, convex in the weights a and 1/eta, or in the guarantees eps.

    Write a linear bound on the guarantees, such as ``eps_i <= e``, as ``a_i <= e * inverse_eta``. A
    market without payments then remains one convex program.

    Examples
    --------
    >>> class FirstHalf(Constraint):
    ...     def constraints(self, quantities):
    ...         return [quantities.weights[0] <= 0.5]
    >>> print(FirstHalf())
    FirstHalf
    """

    definition = "constraints"
    #: Group of each seller and bounds on group shares, or None for other constraints.
    shares: tuple[NDArray[np.intp], Floats, Floats] | None = None

    @abstractmethod
    def constraints(self, quantities: Quantities) -> list[cp.Constraint]:
        """Return the constraint as a list of CVXPY constraints.

        Parameters
        ----------
        quantities : Quantities
        """

    def _sides(self, quantities: Quantities) -> list[cp.Expression]:
        """Check that the constraints ``h <= 0`` and ``h = 0`` are convex, and return each ``h``."""
        items = self.constraints(quantities)
        factors = {id(quantities.weights), id(quantities.inverse_eta)}
        for item in items if isinstance(items, list | tuple) else [[items]]:
            if isinstance(item, cp.FiniteSet):
                raise CurvatureError(f"{shown(self)} returned {shown(item, str)}; {_MIXED_INTEGER}")
            if not isinstance(item, Inequality | Equality | Zero):
                raise ParameterError(
                    f"{shown(self)} returned {shown(items)}; return a list of comparisons of CVXPY "
                    "expressions, such as [quantities.weights <= 0.1]"
                )
            used = {id(variable) for variable in item.variables()}
            mixed = id(quantities.epsilon) in used and used & factors
            if mixed or not item.is_dcp():
                fault = "mixes epsilon and weights or 1/eta" if mixed else "is not convex (DCP)"
                remedy = "eps <= e as weights <= e * inverse_eta" if mixed else "convex <= concave"
                raise CurvatureError(f"{shown(self)} {fault}: {shown(item, str)}; write {remedy}")
        return [item.expr for item in items]

    def numbers(self, form: MarketNumbers) -> MarketNumbers | None:
        """Add this constraint to a market in numbers, or return None if it has no numeric form."""
        return None

    def shadow_prices(self, multipliers: list[Any]) -> Any:
        """Convert multipliers of the CVXPY constraints to shadow prices of the bounds."""
        return multipliers


_ONE_EXPRESSION = "replace the variable by one CVXPY expression, such as log_sum_exp or sum_largest"
_MIXED_INTEGER = (
    "integer variables make a market nonconvex: add the restriction to the constraints of "
    "declare(market, eta), whose `quantities` are expressions, and use a mixed-integer solver"
)


@dataclass(frozen=True)
class WeightedTerm(Written):
    """A term with its weight, a nonnegative number or a parameter."""

    weight: Number
    term: Term

    def __post_init__(self) -> None:
        weight, name = self.weight, f"the weight of {shown(self.term)}"
        number = as_float(weight)
        if isinstance(weight, cp.Expression):
            fits = weight.is_scalar() and weight.is_constant() and weight.is_nonneg()
            number = 1.0 if fits else np.nan
        if not np.isfinite(number):
            raise ParameterError(
                f"{name} must be a finite number >= 0, or a scalar cvxpy.Parameter(nonneg=True), "
                f"got {weight!r}"
            )
        if number < 0:
            raise CurvatureError(
                f"{name} is {weight!r}: a negative multiple of a convex term is concave, so the "
                "market would not be convex; give a weight >= 0, or bound the term in a Constraint"
            )

    @property
    def value(self) -> float:
        """The current weight."""
        return value_of(self.weight)

    @property
    def is_idle(self) -> bool:
        """Whether the weight is zero and not a parameter."""
        return not isinstance(self.weight, cp.Expression) and self.weight == 0

    def times(self, factor: Any) -> WeightedTerm:
        """Multiply the weight by a factor."""
        first = WeightedTerm(factor, self.term)  # checks the factor
        weight: Any = self.weight
        plain = not isinstance(weight, cp.Expression) and weight == 1
        return first if plain else replace(self, weight=weight * factor)

    @property
    def formula(self) -> str:
        factor, formula = written(self.weight, "w"), self.term.formula
        if formula.startswith("1/"):
            return factor + formula[1:]
        return formula if factor == "1" else f"{factor} {formula}"

    def __repr__(self) -> str:
        weight = self.weight if isinstance(self.weight, cp.Expression) else f"{self.weight:g}"
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
        """Return the whole objective as a CVXPY expression."""
        pieces = [part.weight * part.term.expression(quantities) for part in self.parts]
        return cp.sum(cp.hstack(pieces)) if pieces else cp.Constant(0.0)

    def value(self, weights: Floats, eta: float, virtual_costs: Floats) -> float:
        """Evaluate the objective at weights (shape (m,)) and total privacy ``eta``."""
        return value_of(self.expression(Quantities.at(weights, eta, virtual_costs)))

    @property
    def without_noise(self) -> Objective:
        """The objective without its noise term."""
        return Objective(tuple(part for part in self.parts if part.term.adds_to != "sigma"))

    @property
    def formula(self) -> str:
        return " + ".join(part.formula for part in self.parts) or "0"

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


def _strange(expression: Any, known: set[int]) -> list[Any]:
    if isinstance(expression, Atom):
        return [each for side in expression.args for each in _strange(side, known)]
    allowed = id(expression) in known or not isinstance(expression, cp.Variable)
    return [] if isinstance(expression, Leaf) and allowed else [expression]


def check_convex(pieces: Iterable[Any], costs: Floats | cp.Parameter) -> None:
    """Check that user-defined pieces are convex and deterministic in the given quantities."""
    own = [p for p in pieces if not getattr(p, p.definition).__module__.startswith(__package__)]
    if not own:
        return
    if not isinstance(costs, cp.Parameter):
        costs = np.where(np.isfinite(costs), costs, 0.0)
    quantities: Any = Quantities.unknown(costs)
    quantities.weights.value = quantities.epsilon.value = np.ones(costs.size) / costs.size
    quantities.inverse_eta.value = 1.0
    known = {id(quantity) for quantity in vars(quantities).values()}
    for piece in own:
        first, second = (piece._sides(quantities) for _ in range(2))
        for other in (each for side in first for each in _strange(side, known)):
            kinds = getattr(other, "attributes", {})
            whole = kinds.get("boolean") or kinds.get("integer")
            raise CurvatureError(
                f"{shown(piece)} uses {shown(other, str)}, but a piece depends only on its "
                f"quantities; {_MIXED_INTEGER if whole else _ONE_EXPRESSION}"
            )
        # Expressions have no value if one of their parameters has no value.
        values = [[np.array(side.value, float) for side in sides] for sides in (first, second)]
        same = [np.array_equal(x, y, equal_nan=True) for x, y in zip(*values, strict=False)]
        if len(first) != len(second) or not all(same):
            raise ParameterError(
                f"two evaluations of {shown(piece)} differ: the piece draws random numbers or "
                "keeps a state; fix its data at creation"
            )


@dataclass(frozen=True, eq=False)
class MarketNumbers:
    """Numeric form of a market, without terms of weight 0.

    ``mu``, ``mu_squared``, ``sigma`` and ``gamma`` are the weights of ``||a||``, ``||a||^2``, 1/eta
    and ``psi'eps``, and ``payments`` contains the weights of ``psi'u(eps)`` with other functions u.
    ``losses`` are costs per unit of weight. Bounds are numbers or have shape (m,). A missing bound
    is ``inf``, 0 or 1. ``other_terms`` and ``other_constraints`` are pieces that cannot be
    expressed by numbers. In a ``parametric`` market, some numbers are current values of parameters.

    Examples
    --------
    >>> MarketNumbers(np.array([0.2, 0.4]), sigma=2.0, max_weight=0.5).limit(1.0)
    np.float64(0.5)
    """

    virtual_costs: Floats = field(default_factory=lambda: np.zeros(0))
    mu: float = 0.0
    sigma: float = 0.0
    gamma: float = 0.0
    max_weight: Any = 1.0
    eta_low: float = 0.0
    eta_high: float = np.inf
    max_epsilon: Any = np.inf
    mu_squared: float = 0.0
    losses: float | Floats = 0.0
    payments: tuple[tuple[float, PrivacyCost], ...] = ()
    budgets: tuple[Number, ...] = ()
    other_terms: tuple[Term, ...] = ()
    other_constraints: tuple[Constraint, ...] = ()
    parametric: bool = False

    def plus(
        self, parts: Iterable[WeightedTerm] = (), constraints: Iterable[Constraint] = ()
    ) -> MarketNumbers:
        """Return this form with additional weighted terms and constraints."""
        form, given = self, list[Any]()
        for part in parts:
            given += [part.weight, *vars(part.term).values()]
            if part.value > 0:
                added = part.term.numbers(part.value, form)
                form = added or replace(form, other_terms=(*form.other_terms, part.term))
        for piece in constraints:
            given += vars(piece).values()
            added = piece.numbers(form)
            form = added or replace(form, other_constraints=(*form.other_constraints, piece))
        changing = self.parametric or any(isinstance(value, cp.Expression) for value in given)
        return replace(form, parametric=changing)

    @property
    def rest(self) -> tuple[Piece, ...]:
        """The terms and constraints that cannot be expressed by numbers."""
        return self.other_terms + self.other_constraints

    @property
    def standard(self) -> StandardForm | None:
        """The form if it represents the papers' problem (A, Eq. 11), or None otherwise."""
        return None if self.is_bounded else self.exact

    @property
    def exact(self) -> StandardForm | None:
        """The form if it is the papers' problem, possibly with one bound on all guarantees."""
        others = self.rest or self.mu_squared or self.payments or np.any(self.losses)
        each = np.ndim(self.max_weight) or np.ndim(self.max_epsilon) or not self.max_epsilon
        unsolved = others or self.budgets or each or not self.gamma
        return None if unsolved or (self.is_bounded and not self.mu) else self

    def expected_cost(self, weights: Floats) -> float:
        """Compute psi'a, the expected payment per unit of privacy bought."""
        return float(np.where(weights > 0, self.virtual_costs, 0.0) @ weights)  # avoids 0 * inf

    def objective(self, weights: Floats, eta: float) -> float:
        """Evaluate the terms with a numeric form at weights, shape (m,), and eta > 0."""
        square, paid = float(weights @ weights), self.gamma * eta * self.expected_cost(weights)
        spread = self.mu * np.sqrt(square) + self.mu_squared * square
        return float(spread + self.sigma / eta + paid + np.sum(self.losses * weights))

    @property
    def epsilon_caps(self) -> Floats | None:
        """Largest guarantees, shape (m,), if the other pieces are ``Spread(2)`` and ``Noise``."""
        paid = self.total_gamma or self.budgets or self.mu_squared or np.any(self.losses)
        limited = np.min(self.max_weight) < 1 or self.eta_range != (0, np.inf)
        able = np.all(np.isfinite(self.virtual_costs)) and np.max(self.max_epsilon) > 0
        if self.rest or paid or limited or self.sigma == 0 or not (self.is_bounded and able):
            return None
        return np.zeros(self.virtual_costs.size) + self.max_epsilon

    @property
    def is_budgeted(self) -> bool:
        """Whether a budget is the only limit on privacy and every seller has a positive cost."""
        others = self.rest or self.total_gamma or self.eta_range != (0, np.inf)
        free = np.any(self.virtual_costs == 0) or np.any(np.isfinite(self.max_epsilon))
        return bool(self.budgets and self._has_one_spread and not others and not free)

    @property
    def is_projectable(self) -> bool:
        """Whether the market has one spread with payments or bounds, as projections require."""
        others = self.rest or self.payments or self.budgets
        return self._has_one_spread and not others and (self.gamma > 0 or self.is_bounded)

    @property
    def _has_one_spread(self) -> bool:
        return (self.mu > 0) != (self.mu_squared > 0)

    @property
    def eta_range(self) -> tuple[float, float]:
        """The range of eta, or (0, inf) without bounds."""
        return self.eta_low, self.eta_high

    @property
    def is_limited(self) -> bool:
        """Whether the market has a constraint other than a range of eta."""
        others = self.other_constraints or self.budgets or self.is_bounded
        return bool(others or np.min(self.max_weight) < 1)

    @property
    def is_bounded(self) -> bool:
        """Whether every guarantee is bounded."""
        return bool(np.all(np.isfinite(self.max_epsilon)))

    @property
    def total_gamma(self) -> float:
        """The total weight of the payments."""
        return self.gamma + sum(weight for weight, _ in self.payments)

    @property
    def budget(self) -> float:
        """The smallest budget, or inf without a budget."""
        return min((check_positive("a budget", value_of(x)) for x in self.budgets), default=np.inf)

    @property
    def active(self) -> NDArray[np.bool_]:
        """Mask of the sellers with a finite virtual cost and a positive bound, shape (m,)."""
        largest = np.minimum(self.max_weight, self.max_epsilon)
        active = np.isfinite(self.virtual_costs) & (largest > 0)
        if not active.any():
            raise InfeasibleMarketError(
                "every seller has an infinite virtual cost or a zero bound; allow a seller to sell"
            )
        return active

    def restricted(self) -> tuple[MarketNumbers, NDArray[np.bool_]]:
        """Return the numbers restricted to the active sellers, and the mask of these sellers."""
        active = self.active
        vectors: Any = {name: v for name, v in vars(self).items() if isinstance(v, np.ndarray)}
        return replace(self, **{name: v[active] for name, v in vectors.items()}), active

    def limit(self, eta: float) -> float | Floats:
        """Compute the upper bound on each weight for a given eta."""
        return np.minimum(self.max_weight, self.max_epsilon / eta)

    @property
    def natural_eta(self) -> float:
        """The order of magnitude of eta in the constraints, used to scale 1/eta."""
        if ends := [end for end in self.eta_range if 0 < end < np.inf]:
            return float(np.exp(np.mean(np.log(ends))))
        costs = self.virtual_costs
        paid = costs[np.isfinite(costs) & (costs > 0)]
        limits = [costs.size * float(np.mean(self.max_epsilon))]
        limits += [self.budget / float(paid.mean())] if paid.size else []
        return min([limit for limit in limits if 0 < limit < np.inf], default=float(costs.size))


#: Numeric form of the papers' problem, possibly with one bound on all guarantees.
StandardForm = MarketNumbers
