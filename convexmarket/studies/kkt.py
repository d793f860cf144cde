r"""Residuals of the optimality conditions at a returned point, whatever its solver says of it.

For ``min f(x)`` under ``h(x) = 0``, ``g(x) <= 0`` and bounds of variables, a solver returns x with
multipliers nu of the equations and lambda of the inequalities. With ``lambda`` cut off at zero and
the gradient of the Lagrangian :math:`r = \nabla f + J_h^\top\nu + J_g^\top\lambda_+`, four numbers
say how far that is from the Karush-Kuhn-Tucker conditions, all without units:

- ``primal``: the largest ``|h|``, relative to the sides of its equation;
- ``violation``: the largest ``g_+``, likewise, or by how much a variable leaves its bounds;
- ``dual``: ``||r||`` of each variable, relative to the largest gradient among the terms of f, or to
  ``|f|/||x||`` where that is larger (one term alone has no gradient at its minimum);
- ``gap``: ``sum |nu*h| + sum |lambda_+*g|`` over ``|f|``, what the bound that the multipliers prove
  falls short of f by.

None of them changes if f, a constraint or x is measured in other units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import norm

from convexmarket.errors import NotSupportedError

__all__ = ["Residuals", "kkt_residuals"]

Floats = NDArray[np.float64]

_EQUATIONS = (cp.constraints.Equality, cp.constraints.Zero)
_COMPARISONS = (cp.constraints.Inequality, cp.constraints.NonPos, cp.constraints.NonNeg)
_SIGNS = {
    "nonneg": (0.0, np.inf),
    "pos": (0.0, np.inf),
    "nonpos": (-np.inf, 0.0),
    "neg": (-np.inf, 0.0),
}


@dataclass(frozen=True)
class Residuals:
    """How far a point and its multipliers are from the optimality conditions, all relative.

    Infinite where something has no value: a variable, a multiplier, a gradient.
    """

    primal: float
    violation: float
    dual: float
    gap: float

    @property
    def largest(self) -> float:
        """The worst of the four."""
        return max(self.primal, self.violation, self.dual, self.gap)


@np.errstate(all="ignore")  # what has no value counts as infinite
def kkt_residuals(problem: cp.Problem, least: float = 0.0) -> Residuals:
    """Return the residuals at the values that the variables and multipliers have now.

    Parameters
    ----------
    problem : cvxpy.Problem
        Convex, of equations, inequalities and variables with signs or bounds, differentiable at
        the point.
    least : float
        What the objective counts as where it is smaller; an optimum may be zero.

    Raises
    ------
    NotSupportedError
        If a constraint or an attribute of a variable is of another kind.
    """
    _check(problem)
    variables = problem.variables()
    if any(x.value is None or not np.isfinite(x.value).all() for x in variables):
        return Residuals(np.inf, np.inf, np.inf, np.inf)
    points = {x: np.asarray(x.value, dtype=float).ravel(order="F") for x in variables}
    flip = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    value = float(problem.objective.expr.value)
    scale = max(abs(value), least, float(np.finfo(float).tiny))
    primal = violation = complementarity = 0.0
    zero: dict[cp.Variable, Floats] = {x: np.zeros(x.size) for x in variables}
    gradient = _plus(zero, problem.objective.expr, np.array([flip]))
    for item in problem.constraints:
        sides, excess = _sides(item)
        size = max((float(np.abs(side).max(initial=0.0)) for side in sides), default=0.0) or 1.0
        if isinstance(item, _EQUATIONS):
            primal = max(primal, float(np.abs(excess).max(initial=0.0)) / size)
        else:
            violation = max(violation, float(excess.max(initial=0.0)) / size)
        if not item.variables():
            continue
        multiplier = _multiplier(item)
        if multiplier is None:
            gradient = None
            continue
        complementarity += float(np.abs(multiplier * excess).sum())
        sign = -1.0 if isinstance(item, cp.constraints.NonNeg) else 1.0
        gradient = _plus(gradient, _expression(item), sign * multiplier)
    for x, point in points.items():
        low, high = _bounds(x)
        size = float(np.abs(point).max(initial=0.0)) or 1.0
        outside = np.maximum(low - point, point - high)
        violation = max(violation, float(outside.max(initial=0.0)) / size)
    if gradient is None or not np.isfinite(value):
        return Residuals(primal, violation, np.inf, np.inf)
    dual = 0.0
    for x, slope in gradient.items():
        # The multiplier of a bound is the part of the slope that has its sign.
        low, high = _bounds(x)
        bounded = np.where(slope > 0, np.isfinite(low), np.isfinite(high))
        slack = points[x] - np.where(slope > 0, low, high)
        complementarity += float(np.abs(slope * slack)[bounded].sum())
        slope = np.where(bounded, 0.0, slope)
        length = float(np.linalg.norm(points[x]))
        size = max(_largest_piece(problem.objective.expr, x), scale / length if length > 0 else 0.0)
        dual = max(dual, float(np.linalg.norm(slope)) / (size or 1.0))
    return Residuals(primal, violation, dual, complementarity / scale)


def _bounds(x: cp.Variable) -> tuple[Floats, Floats]:
    """Return the bounds that a variable is declared with, flat; infinite if there is none."""
    signs = (bounds for name, bounds in _SIGNS.items() if x.attributes[name])
    given: Any = x.attributes["bounds"]
    low, high = given or next(signs, (-np.inf, np.inf))
    sides = (np.broadcast_to(np.asarray(side, dtype=float), x.shape) for side in (low, high))
    first, second = (side.ravel(order="F") for side in sides)
    return first, second


def _largest_piece(objective: cp.Expression, x: cp.Variable) -> float:
    """Return the largest norm of a term's gradient."""
    terms = objective.args if isinstance(objective, AddExpression) else [objective]
    slopes = [term.grad[x] for term in terms if x in term.grad]
    return max((float(norm(_matrix(slope, x))) for slope in slopes), default=0.0)


def _matrix(slope: Any, x: cp.Variable) -> sparse.csc_array:
    """Return a gradient as CVXPY gives it, shape (size of x, size of the expression)."""
    found: Any = slope if sparse.issparse(slope) else np.reshape(slope, (x.size, -1))
    return sparse.csc_array(found)


def _check(problem: cp.Problem) -> None:
    for item in problem.constraints:
        if not isinstance(item, _EQUATIONS + _COMPARISONS):
            raise NotSupportedError(
                f"residuals are known for equations and inequalities, not for a "
                f"{type(item).__name__}; write {item} as one"
            )
    for x in problem.variables():
        others = [
            name
            for name, given in x.attributes.items()
            if given and name not in (*_SIGNS, "bounds")
        ]
        if others:
            raise NotSupportedError(
                f"the variable {x.name()} is declared {others[0]}; residuals are known for "
                "signs and bounds; write it as a constraint"
            )


def _expression(item: cp.Constraint) -> cp.Expression:
    """Return what is zero, nonpositive, or (NonNeg) nonnegative."""
    found: cp.Expression = item.expr
    return found


def _sides(item: cp.Constraint) -> tuple[list[Floats], Floats]:
    """Return both sides of a constraint, and by how much it is broken (signed, flat)."""
    sides = [np.asarray(side.value, dtype=float) for side in item.args]
    excess = np.asarray(_expression(item).value, dtype=float).ravel(order="F")
    return sides, -excess if isinstance(item, cp.constraints.NonNeg) else excess


def _multiplier(item: cp.Constraint) -> Floats | None:
    """Return the multiplier of a constraint, flat; wrong signs of an inequality's are cut off."""
    value = item.dual_value
    if value is None or not np.isfinite(value).all():
        return None
    flat = np.asarray(value, dtype=float).ravel(order="F")
    return flat if isinstance(item, _EQUATIONS) else np.maximum(flat, 0.0)


def _plus(
    gradient: dict[cp.Variable, Floats] | None, expression: cp.Expression, multiplier: Floats
) -> dict[cp.Variable, Floats] | None:
    """Add the gradient of multiplier'expression, if there is one."""
    if gradient is None:
        return None
    try:
        slopes = expression.grad
    except (TypeError, ValueError):  # CVXPY's way to say that an entropy has none at 0
        return None
    for x, slope in slopes.items():
        if slope is None:
            return None
        gradient[x] = gradient[x] + _matrix(slope, x) @ multiplier
    return gradient if all(np.isfinite(part).all() for part in gradient.values()) else None
