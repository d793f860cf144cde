r"""Residuals of the optimality conditions at a returned point, independent of the solver's status.

For multipliers nu of equations ``h(x) = 0`` and lambda of inequalities ``g(x) <= 0``, clipped at
zero, these are ``|h|`` and ``g_+`` relative to the sides of the constraint;
:math:`r = \nabla f + J_h^\top\nu + J_g^\top\lambda_+` relative to the largest gradient among the
terms of f, or to ``|f|/||x||`` if that is larger (a single term has no gradient at its
minimum); and the gap ``sum |nu*h| + sum |lambda_+*g|`` relative to ``|f|``. None changes with the
units of f, x or a constraint.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.constraints import Equality, Inequality
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.errors import NotSupportedError

Floats = NDArray[np.float64]

_BOUNDS = {"nonneg", "pos", "nonpos", "neg", "bounds"}


class Residuals(NamedTuple):
    """Relative distances from the optimality conditions; infinite without a value."""

    primal: float
    violation: float
    dual: float
    gap: float


@np.errstate(all="ignore")  # expressions without a value count as infinite
def kkt_residuals(problem: cp.Problem, least: float = 0.0) -> Residuals:
    """Return the residuals at the current values of variables and multipliers.

    The convex problem is differentiable at the point. ``least`` replaces the size of a smaller
    objective.
    """
    variables, objective = problem.variables(), problem.objective.expr
    others: list[Any] = [
        x for x in variables if {n for n, v in x.attributes.items() if v} - _BOUNDS
    ]
    others += [item for item in problem.constraints if not isinstance(item, Equality | Inequality)]
    if others:
        needed = "equations, inequalities, and variables with signs or bounds"
        raise NotSupportedError(f"residuals need {needed}; rewrite {others[0]}")
    if any(x.value is None or not np.isfinite(x.value).all() for x in variables):
        return Residuals(np.inf, np.inf, np.inf, np.inf)
    scale = max(abs(float(objective.value)), least, float(np.finfo(float).tiny))
    worst, complementarity, dual = {Equality: 0.0, Inequality: 0.0}, 0.0, 0.0
    flip = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    gradients = [_gradient(objective, np.array([flip]))]
    for item in problem.constraints:
        size = max(_largest(side.value) for side in item.args) or 1.0
        worst[type(item)] = max(worst[type(item)], _largest(item.residual) / size)
        if item.variables():
            given, excess = item.dual_value, _flat(item.expr.value)
            nu = np.full(excess.size, np.nan) if given is None else _flat(given)
            nu = nu if isinstance(item, Equality) else np.maximum(nu, 0.0)
            complementarity += float(np.abs(nu * excess).sum())
            gradients.append(_gradient(item.expr, nu))
    terms = objective.args if isinstance(objective, AddExpression) else [objective]
    slopes = [_gradient(term, np.ones(1)) for term in terms]
    for x in variables:
        point = _flat(x.value)
        ends: Any = x.get_bounds()
        low, high = (_flat(np.broadcast_to(end, x.shape)) for end in ends)
        outside = point - np.clip(point, low, high)
        violation = _largest(outside) / (_largest(point) or 1.0)
        worst[Inequality] = max(worst[Inequality], violation)
        slope = np.zeros(x.size) + sum(gradient.get(x, 0.0) for gradient in gradients)
        # The multiplier of a bound is the part of the slope with the sign of the bound.
        bound = np.where(slope > 0, low, high)
        bounded = np.isfinite(bound)
        complementarity += float(np.abs(slope * (point - bound))[bounded].sum())
        length = float(np.linalg.norm(point))
        steepest = max(float(np.linalg.norm(term.get(x, 0.0))) for term in slopes)
        size = max(steepest, scale / length if length > 0 else 0.0) or 1.0
        free = float(np.linalg.norm(np.where(bounded, 0.0, slope))) / size
        dual = max(dual, free if np.isfinite(slope).all() else np.inf)
    gap = complementarity / scale
    if not np.isfinite(scale + dual + gap):
        dual = gap = np.inf
    return Residuals(worst[Equality], worst[Inequality], dual, gap)


def _flat(value: Any) -> Floats:
    return np.asarray(value, dtype=float).ravel(order="F")


def _largest(value: Any) -> float:
    return float(np.abs(_flat(value)).max(initial=0.0))


def _gradient(expression: cp.Expression, multiplier: Floats) -> dict[cp.Variable, Floats]:
    """Return the gradient of multiplier'expression; NaN without a gradient."""
    try:
        slopes: dict[cp.Variable, Any] = expression.grad
    except (TypeError, ValueError):  # of an entropy at 0
        slopes = dict.fromkeys(expression.variables())
    for x, slope in slopes.items():
        # CVXPY returns a number where both sizes are 1, and None outside the domain.
        whole = np.full((x.size, multiplier.size), np.nan) if slope is None else slope
        matrix: Any = whole if sparse.issparse(whole) else np.reshape(whole, (x.size, -1))
        slopes[x] = matrix @ multiplier
    return slopes
