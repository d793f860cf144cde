r"""Residuals of the optimality conditions at a point, independent of the solver's status.

Equations ``h(x) = 0`` have multipliers nu, and inequalities ``g(x) <= 0`` have multipliers lambda.
The primal residual ``|h|`` and the violation ``g_+`` are relative to the larger side of the
constraint. The dual residual :math:`\nabla f + J_h^\top\nu + J_g^\top\lambda_+` is relative to the
largest gradient of a term of f, or to ``|f|/||x||`` if this ratio is larger. The ratio is needed
because the gradient of a single term is zero at its minimum. The gap, relative to ``|f|``, is
``sum |nu*h| + sum |lambda_+*g|``. The units of f, x and the constraints do not affect residuals.
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
    """Relative residuals of the optimality conditions, infinite if a required value is missing."""

    primal: float
    violation: float
    dual: float
    gap: float


@np.errstate(all="ignore")  # residuals of undefined expressions are infinite
def kkt_residuals(problem: cp.Problem, least: float = 0.0) -> Residuals:
    """Compute the residuals of a convex problem at the values of its variables and multipliers.

    The problem must be differentiable at the point. Residuals relative to the objective are divided
    by its absolute value, or by ``least`` if the absolute value is smaller.
    """
    variables, objective = problem.variables(), problem.objective.expr
    others: Any = [x for x in variables if {n for n, v in x.attributes.items() if v} - _BOUNDS]
    others += [item for item in problem.constraints if not isinstance(item, Equality | Inequality)]
    if others:
        needed = "equations, inequalities, and variables with signs or bounds"
        raise NotSupportedError(f"residuals support only {needed}; rewrite {others[0]}")
    if any(x.value is None or not np.isfinite(x.value).all() for x in variables):
        return Residuals(np.inf, np.inf, np.inf, np.inf)
    scale = max(abs(float(objective.value)), least, float(np.finfo(float).tiny))
    worst, complementarity, dual = {Equality: 0.0, Inequality: 0.0}, 0.0, 0.0
    flip = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    terms = objective.args if isinstance(objective, AddExpression) else [objective]
    gradients = [_gradient(term, np.array([flip])) for term in terms]
    for item in problem.constraints:
        size = max(_largest(side.value) for side in item.args) or 1.0
        worst[type(item)] = max(worst[type(item)], _largest(item.residual) / size)
        if item.variables():
            given, excess = item.dual_value, _flat(item.expr.value)
            nu = np.full(excess.size, np.nan) if given is None else _flat(given)
            nu = nu if isinstance(item, Equality) else np.maximum(nu, 0.0)
            complementarity += float(np.abs(nu * excess).sum())
            gradients.append(_gradient(item.expr, nu))
    for x in variables:
        point = _flat(x.value)
        ends: Any = x.get_bounds()
        low, high = (_flat(np.broadcast_to(end, x.shape)) for end in ends)
        outside = point - np.clip(point, low, high)
        violation = _largest(outside) / (_largest(point) or 1.0)
        worst[Inequality] = max(worst[Inequality], violation)
        slope = np.zeros(x.size) + sum(gradient.get(x, 0.0) for gradient in gradients)
        # Positive slopes are multipliers of lower bounds, and negative slopes of upper bounds.
        bound = np.where(slope > 0, low, high)
        bounded = np.isfinite(bound)
        complementarity += float(np.abs(slope * (point - bound))[bounded].sum())
        length = float(np.linalg.norm(point))
        steepest = max(float(np.linalg.norm(g.get(x, 0.0))) for g in gradients[: len(terms)])
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
    try:
        slopes: dict[cp.Variable, Any] = expression.grad
    except (TypeError, ValueError):  # no gradient exists, as for an entropy at 0
        slopes = dict.fromkeys(expression.variables())
    for x, slope in slopes.items():
        # CVXPY returns a number if both sizes are 1, and None outside the domain.
        whole = np.full((x.size, multiplier.size), np.nan) if slope is None else slope
        matrix: Any = whole if sparse.issparse(whole) else np.reshape(whole, (x.size, -1))
        slopes[x] = matrix @ multiplier
    return slopes
