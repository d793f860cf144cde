r"""Residuals of the optimality conditions at a returned point, independent of the solver's status.

For multipliers nu of equations ``h(x) = 0`` and lambda of inequalities ``g(x) <= 0``, clipped at
zero, :func:`kkt_residuals` measures ``|h|`` and ``g_+`` relative to the sides of the constraint;
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

    The problem is convex, has equations, inequalities and variables with signs or bounds, and is
    differentiable at the point. ``least`` replaces the size of a smaller objective.
    """
    variables = problem.variables()
    unknown: list[Any] = [
        x for x in variables if {n for n, v in x.attributes.items() if v} - _BOUNDS
    ]
    unknown += [item for item in problem.constraints if not isinstance(item, Equality | Inequality)]
    if unknown:
        raise NotSupportedError(
            "residuals are known for equations, inequalities, and variables with signs or bounds, "
            f"not for the {type(unknown[0]).__name__} {unknown[0]}; write it as one of them"
        )
    if any(x.value is None or not np.isfinite(x.value).all() for x in variables):
        return Residuals(np.inf, np.inf, np.inf, np.inf)
    objective = problem.objective.expr
    flip = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    scale = max(abs(float(objective.value)), least, float(np.finfo(float).tiny))
    worst, complementarity = {True: 0.0, False: 0.0}, 0.0  # of equations, and of inequalities
    gradients = [_gradient(objective, np.array([flip]))]
    for item in problem.constraints:
        excess, equation = _flat(item.expr.value), isinstance(item, Equality)
        size = max(_largest(side.value) for side in item.args) or 1.0
        outside = excess if equation else np.maximum(excess, 0.0)
        worst[equation] = max(worst[equation], _largest(outside) / size)
        if item.variables():
            given = item.dual_value
            nu = np.full(excess.size, np.nan) if given is None else _flat(given)
            nu = nu if equation else np.maximum(nu, 0.0)
            complementarity += float(np.abs(nu * excess).sum())
            gradients.append(_gradient(item.expr, nu))
    terms = objective.args if isinstance(objective, AddExpression) else [objective]
    slopes, dual = [_gradient(term, np.ones(1)) for term in terms], 0.0
    for x in variables:
        point = _flat(x.value)
        ends: Any = x.get_bounds()
        low, high = (_flat(np.broadcast_to(end, x.shape)) for end in ends)
        outside = point - np.clip(point, low, high)
        worst[False] = max(worst[False], _largest(outside) / (_largest(point) or 1.0))
        slope = np.zeros(x.size) + sum(gradient.get(x, 0.0) for gradient in gradients)
        # The multiplier of a bound is the part of the slope with the sign of the bound.
        bound = np.where(slope > 0, low, high)
        bounded = np.isfinite(bound)
        complementarity += float(np.abs(slope * (point - bound))[bounded].sum())
        length = float(np.linalg.norm(point))
        steepest = max(float(np.linalg.norm(term.get(x, 0.0))) for term in slopes)
        size = max(steepest, scale / length if length > 0 else 0.0) or 1.0
        dual = max(dual, float(np.linalg.norm(np.where(bounded, 0.0, slope))) / size)
        dual = dual if np.isfinite(slope).all() else np.inf
    gap = complementarity / scale
    if not np.isfinite(scale + dual + gap):
        dual = gap = np.inf
    return Residuals(worst[True], worst[False], dual, gap)


def _flat(value: Any) -> Floats:
    return np.asarray(value, dtype=float).ravel(order="F")


def _largest(value: Any) -> float:
    return float(np.abs(_flat(value)).max(initial=0.0))


def _gradient(expression: cp.Expression, multiplier: Floats) -> dict[cp.Variable, Floats]:
    """Return the gradient of multiplier'expression; NaN without a gradient."""
    try:
        slopes = expression.grad
    except (TypeError, ValueError):  # of an entropy at 0
        slopes = dict.fromkeys(expression.variables())
    products = dict[cp.Variable, Floats]()
    for x, slope in slopes.items():
        if slope is None:
            products[x] = np.full(x.size, np.nan)
        else:  # CVXPY returns a number where both sizes are 1
            matrix: Any = slope if sparse.issparse(slope) else np.reshape(slope, (x.size, -1))
            products[x] = matrix @ multiplier
    return products
