"""Markets as CVXPY expressions, jointly in the weights and 1/eta, or at a fixed eta."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any, Self

import cvxpy as cp
import numpy as np
from cvxpy.problems.problem import Cache
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.allocation.minorants import ROUNDED, Computed, Hints, Lifted
from convexmarket.allocation.simplex import ROUNDING
from convexmarket.checks import check_positive, shown
from convexmarket.errors import AllocationError, ParameterError
from convexmarket.market import Market
from convexmarket.terms import Constraint, Quantities, Term
from convexmarket.terms.pieces import Number, value_of

__all__ = ["DeclaredMarket", "FixedEta", "MarketExpressions", "inverse_of", "numbers", "spread_out"]

Floats = NDArray[np.float64]


def numbers(expression: cp.Expression, status: Any = None) -> Floats:
    """Return the value of an expression after a solve, or raise an AllocationError."""
    if (value := expression._value_impl()) is None:
        raise AllocationError(f"the problem has no solution (status {status}); call solve() first")
    return np.asarray(value, dtype=float)


def spread_out(expression: cp.Expression, sellers: NDArray[np.bool_]) -> cp.Expression:
    """Extend an expression for the sellers in a mask to shape (m,), with zeros elsewhere."""
    if sellers.all():
        return expression
    return sparse.eye_array(sellers.size, format="csc")[:, sellers] @ expression


def inverse_of(eta: cp.Parameter, unit: float = 1.0) -> Computed:
    """Return a parameter with the value ``1/(eta*unit)``, where eta is also a parameter."""
    return Computed((1.0 / (unit * eta))._value_impl, pos=True, name="inverse_eta")


class MarketExpressions:
    """Objective and constraints over three unknowns: weights, guarantees and 1/eta.

    A piece that does not use the guarantees is jointly convex in the weights and 1/eta. The
    variables are ``m*a`` and 1/eta in units of ``inverse_scale``, which are of order one. Sellers
    outside the mask ``active`` have weight zero. The constraints are CVXPY equalities and
    inequalities, and include the domains of the terms.

    Parameters are replaced by their values, unless ``parametric``.
    """

    def __init__(
        self, market: Market, inverse_scale: float = 1.0, parametric: bool = False
    ) -> None:
        self.market, self.inverse_scale, self.parametric = market, inverse_scale, parametric
        self.active = market.form.active
        m = self.active.size
        self.scaled_weights = cp.Variable(int(self.active.sum()), nonneg=True, name="m*a")
        self.scaled_inverse = cp.Variable(nonneg=True, name="scaled_inverse_eta")
        self.epsilon = cp.Variable(m, nonneg=True, name="epsilon")
        self.unknowns = self.scaled_weights, self.epsilon, self.scaled_inverse
        costs: Any = market.sellers.cost_parameter
        if costs is None or not parametric:
            costs = np.where(self.active, market.sellers.virtual_costs, 0.0)
        self.quantities = Quantities(
            weights=spread_out(self.scaled_weights, self.active) / m,
            epsilon=self.epsilon,
            inverse_eta=inverse_scale * self.scaled_inverse,
            virtual_costs=costs,
        )
        self.terms: list[tuple[Number, Term, cp.Expression]] = []
        self.constraints: list[tuple[Constraint | Term, list[cp.Constraint]]] = [
            (p, [type(x)(*map(self._settled, x.args)) for x in p.constraints(self.quantities)])
            for p in market.constraints
        ]
        for part in market.objective.parts:
            weight: Number = part.weight if parametric else part.value
            if isinstance(weight, cp.Expression) or weight > 0:
                expression = self._settled(part.term.weighted(weight, self.quantities))
                self.terms.append((weight, part.term, expression))
                # The domain of the term, such as eps <= 1 for log(1 - eps).
                domain = [item for item in expression.domain if self._restricts(item)]
                if domain:
                    self.constraints.append((part.term, domain))

    def _restricts(self, item: cp.Constraint) -> bool:
        """Whether the domain of a term restricts the unknowns."""
        unequal = isinstance(item, cp.constraints.Inequality)
        able = unequal and item.variables() and not item.expr.is_nonpos()
        return bool(able and (not self.bounds_epsilon(item) or item.variables() == [self.epsilon]))

    def _settled(self, expression: cp.Expression) -> cp.Expression:
        """Return the expression for solvers, where parameters are replaced by their values."""
        if self.parametric:
            return expression
        leaves = {id(each): cp.Constant(value_of(each)) for each in expression.parameters()}
        return Lifted(leaves, kinks=False)(expression)

    def bounds_epsilon(self, item: cp.Constraint | cp.Expression) -> bool:
        """Whether a constraint or an expression contains the guarantees."""
        return any(variable is self.epsilon for variable in item.variables())

    @property
    def simplex(self) -> list[cp.Constraint]:
        """The constraint ``sum a = 1``, where the variable is nonnegative."""
        return [cp.sum(self.scaled_weights) == self.active.size]

    def flat_constraints(self) -> list[cp.Constraint]:
        """Return the constraints of all pieces."""
        return [item for _, items in self.constraints for item in items]

    def objective(self) -> cp.Expression:
        """Return the objective."""
        return cp.sum(cp.hstack([0.0, *(expression for _, _, expression in self.terms)]))

    def program(self) -> tuple[cp.Minimize, list[cp.Constraint]] | None:
        """Return the market as one convex program in (a, 1/eta), or None if it uses guarantees."""
        items: list[Any] = [*(part for _, _, part in self.terms), *self.flat_constraints()]
        if any(self.bounds_epsilon(item) for item in items):
            return None
        return cp.Minimize(self.objective()), [*self.simplex, *self.flat_constraints()]

    def around(
        self, point: Any, low: float, high: float
    ) -> tuple[cp.Variable, list[cp.Constraint]]:
        """Return the constraints if ``eps = eta*a`` is linearised about a point.

        Also return the ratio of eta to its value at the point, which is between low and high. 1/eta
        is between its curve and its chord.
        """
        eta, weights = point.eta, point.weights
        ratio, inverse = cp.Variable(nonneg=True), 1.0 / (eta * self.inverse_scale)
        chord = inverse / (low * high) * ((low + high) * (1 + 1e-9) - ratio)
        sold = eta * self.quantities.weights + eta * weights * (ratio - 1)
        items = [*self.simplex, *self.flat_constraints(), self.epsilon == sold, ratio >= low]
        items += [ratio <= high, self.scaled_inverse >= inverse * cp.inv_pos(ratio)]
        return ratio, [*items, self.scaled_inverse <= chord]

    def place(self, weights: Floats, eta: float) -> None:
        """Set the values of the unknowns to those at a point, without CVXPY's slow checks."""
        scaled, epsilon = self.active.size * weights[self.active], eta * weights
        if not min(scaled.min(), epsilon.min()) >= -ROUNDED:
            raise ValueError("negative weights")
        self.scaled_weights.save_value(scaled)
        self.scaled_inverse.save_value(np.float64(1.0 / (eta * self.inverse_scale)))
        self.epsilon.save_value(epsilon)

    def parts(self, weights: Floats, eta: float) -> list[float]:
        """Evaluate the weighted terms at weights, shape (m,), and eta."""
        self.place(weights, eta)
        with np.errstate(all="ignore"):  # the value is NaN outside a domain
            return [float(numbers(expression)) for _, _, expression in self.terms]

    def size(self, weights: Floats, eta: float) -> float:
        """Sum the absolute weighted terms, to which gaps are relative."""
        return sum(map(abs, self.parts(weights, eta))) or 1.0


class DeclaredMarket(cp.Problem):
    """A :class:`cvxpy.Problem` for copying and pickling, with an expression for the weights a.

    A copy is independent of its original. A problem must not be solved in several threads
    concurrently: each solve sets the variables.
    """

    _weights: cp.Expression

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without compiled data, for copying and pickling."""
        return {**self.__dict__, "_cache": Cache(), "_solver_cache": {}}

    def __deepcopy__(self, memo: Any = None) -> Self:
        """Return an independent copy of the problem."""
        return pickle.loads(pickle.dumps(self))

    __copy__ = __deepcopy__

    @property
    def weights(self) -> Floats:
        """Weights a of the last solve, nonnegative and summing to one, shape (m,)."""
        weights = np.maximum(self.raw_weights, 0.0)
        return weights / weights.sum()

    @property
    def raw_weights(self) -> Floats:
        """Weights of the last solve as returned by the solver, shape (m,)."""
        return numbers(self._weights, self.status)


class FixedEta(DeclaredMarket):
    """A market at a given eta, as a :class:`cvxpy.Problem` that is compiled once for all eta.

    Made by :func:`convexmarket.declare`. In a search, ``scale`` is the unit of the objective, and
    with ``kinks`` the arguments of atoms with kinks are variables, for :meth:`proof`.

    Attributes
    ----------
    quantities : Quantities
        Weights, guarantees and 1/eta as expressions, for further constraints of any kind.
    """

    formulation = "primal"

    def __init__(
        self, view: MarketExpressions, eta: float, scale: float = 1.0, kinks: bool = False
    ) -> None:
        self.parameter = cp.Parameter(pos=True, name="eta")
        epsilon = self.parameter * view.quantities.weights
        inverse = inverse_of(self.parameter, view.inverse_scale)
        lifted = Lifted({id(view.epsilon): epsilon, id(view.scaled_inverse): inverse}, kinks)
        self._weights, self.scale = view.quantities.weights, scale
        self.quantities = replace(
            view.quantities, epsilon=epsilon, inverse_eta=view.inverse_scale * inverse
        )
        self._pieces = [(p, list(map(lifted.constraint, items))) for p, items in view.constraints]
        self.copies = [item for _, items in self._pieces for item in items]
        # A bound on only eta is an inequality between numbers, which has no interior.
        bounds = [item for item in self.copies if item.variables()]
        terms = [lifted(expression) / scale for _, _, expression in view.terms]
        self.links, self.hints = lifted.links, lifted.hints
        super().__init__(
            cp.Minimize(cp.sum(cp.hstack([0.0, *terms]))), [*view.simplex, *bounds, *self.links]
        )
        self.parameter.value = eta

    @property
    def eta(self) -> float:
        """Total privacy. Setting this attribute changes the parameters without compiling again."""
        return float(numbers(self.parameter))

    @eta.setter
    def eta(self, eta: float) -> None:
        check_positive("eta", eta)
        self.parameter.value = eta
        for piece, items in self._pieces:
            if not all(item.value(tolerance=ROUNDING) for item in items if not item.variables()):
                raise ParameterError(f"eta is {eta!r}, outside what {shown(piece)} allows")

    def proof(self) -> tuple[list[Floats | None], Hints]:
        """Return the multipliers of the constraints, and of the links of atoms with kinks.

        The multiplier of a constraint without variables is None.
        """
        return [multiplier(item, self.scale) for item in self.copies], self.hints(self.scale)


def multiplier(item: cp.Constraint, scale: float) -> Floats | None:
    """Return the scaled multiplier of a solved constraint, or None if it has no variable."""
    if not item.variables() or item.dual_value is None:
        return None
    dual = np.asarray(item.dual_value, dtype=float)
    return scale * dual.reshape(item.expr.shape, order="F")
