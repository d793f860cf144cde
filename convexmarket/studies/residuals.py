r"""Residuals of the optimality conditions at a returned point, independent of the solver's status.

With multipliers nu of equations ``h(x) = 0`` and lambda of inequalities ``g(x) <= 0``, cut off at
zero, :func:`kkt_residuals` measures ``|h|`` and ``g_+`` relative to the sides of the constraint;
:math:`r = \nabla f + J_h^\top\nu + J_g^\top\lambda_+` relative to the largest gradient among the
terms of f, or to ``|f|/||x||`` if that is larger (a single term has no gradient at its
minimum); and the gap ``sum |nu*h| + sum |lambda_+*g|`` relative to ``|f|``. None changes with the
units of f, x or a constraint. :class:`MatrixProblem` measures absolute tolerances of solvers.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.constraints import Equality, Inequality
from cvxpy.reductions.solvers.utilities import expcone_permutor
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.errors import NotSupportedError

Floats = NDArray[np.float64]

#: Residuals in the units of the matrices, as columns.
ABSOLUTE = ("absolute_primal", "absolute_dual", "absolute_gap")

_TINY = float(np.finfo(float).tiny)
_BOUNDS = {"nonneg", "pos", "nonpos", "neg", "bounds"}


class Residuals(NamedTuple):
    """Relative distances from the optimality conditions; infinite without a value."""

    primal: float
    violation: float
    dual: float
    gap: float


@np.errstate(all="ignore")  # expressions without a value count as infinite
def kkt_residuals(problem: cp.Problem, least: float = 0.0) -> Residuals:
    """Return the residuals at the present values of variables and multipliers.

    The problem is convex, of equations, inequalities and variables with signs or bounds, and
    differentiable at the point. ``least`` replaces the size of an objective that is smaller.
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
    value = float(objective.value)
    scale = max(abs(value), least, _TINY)
    primal = violation = dual = complementarity = 0.0
    gradients = [_gradient(objective, np.array([flip]))]
    for item in problem.constraints:
        excess, equation = _flat(item.expr.value), isinstance(item, Equality)
        size = max(_largest(side.value) for side in item.args) or 1.0
        if equation:
            primal = max(primal, _largest(excess) / size)
        else:
            violation = max(violation, _largest(np.maximum(excess, 0.0)) / size)
        if item.variables():
            given = item.dual_value
            nu = np.full(excess.size, np.nan) if given is None else _flat(given)
            nu = nu if equation else np.maximum(nu, 0.0)
            complementarity += float(np.abs(nu * excess).sum())
            gradients.append(_gradient(item.expr, nu))
    terms = objective.args if isinstance(objective, AddExpression) else [objective]
    slopes = [_gradient(term, np.ones(1)) for term in terms]
    for x in variables:
        point = _flat(x.value)
        ends: Any = x.get_bounds()
        low, high = (_flat(np.broadcast_to(end, x.shape)) for end in ends)
        outside = _largest(point - np.clip(point, low, high))
        violation = max(violation, outside / (_largest(point) or 1.0))
        slope = np.zeros(x.size) + sum(gradient.get(x, 0.0) for gradient in gradients)
        # The multiplier of a bound is the part of the slope that has its sign.
        bound = np.where(slope > 0, low, high)
        bounded = np.isfinite(bound)
        complementarity += float(np.abs(slope * (point - bound))[bounded].sum())
        length = float(np.linalg.norm(point))
        steepest = max(float(np.linalg.norm(term.get(x, 0.0))) for term in slopes)
        size = max(steepest, scale / length if length > 0 else 0.0) or 1.0
        rest = float(np.linalg.norm(slope[~bounded])) / size
        dual = max(dual, rest if np.isfinite(slope).all() else np.inf)
    gap = complementarity / scale
    if not np.isfinite(value + dual + gap):
        dual = gap = np.inf
    return Residuals(primal, violation, dual, gap)


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


class MatrixProblem(NamedTuple):
    r"""The matrices that a solver gets, and the residuals in which qpbenchmark measures its answer.

    .. math:: \min_x\; \tfrac12 x^\top P x + q^\top x \quad\text{s.t.}\quad A x + s = b,\; s \in K

    The cones K are the ``dims`` of CVXPY: equations, inequalities, second-order cones and
    exponential cones of three rows, in this order.
    """

    P: Any
    q: Floats
    A: Any
    b: Floats
    dims: Any

    @classmethod
    def of(cls, data: dict[str, Any], exp_order: list[int] | None = None) -> Self:
        """Build from CVXPY's data; ``exp_order`` is the solver's order in an exponential cone."""
        q = np.asarray(data["q" if "q" in data else "c"], dtype=float)
        first, second = ("F", "G") if "F" in data else ("G", "h")
        blocks = [data[name] for name in ("A", first) if data.get(name) is not None]
        sides = [data[name] for name in ("b", second) if data.get(name) is not None]
        dims = data["dims"]
        A, b = sparse.csr_array(sparse.vstack(blocks)), np.concatenate(sides)
        if dims.exp and exp_order is not None:
            rows, start = np.arange(b.size), b.size - 3 * dims.exp
            rows[start:] = start + expcone_permutor(dims.exp, exp_order)
            A, b = A[rows], b[rows]
        P: Any = sparse.csc_array((q.size, q.size) if data.get("P") is None else data["P"])
        return cls(P, q, A, b, dims)

    @np.errstate(all="ignore")  # NaN without a value
    def residuals(self, x: Floats, y: Floats) -> tuple[float, float, float]:
        """Return the violations of ``b - A*x in K`` and of the dual conditions, and the gap.

        The dual violation is the largest entry of ``P*x + q + A'y``, or that of the dual cone by y
        if that is larger. The gap is ``|x'Px + q'x + b'y|``.
        """
        curved = self.P @ x
        slack, slope = self.b - self.A @ x, curved + self.q + self.A.T @ y
        gap = abs(float(x @ curved + self.q @ x + self.b @ y))
        primal = max(_largest(slack[: self.dims.zero]), self._outside(slack))
        return primal, max(_largest(slope), self._outside(y, dual=True)), gap

    def _outside(self, rows: Floats, *, dual: bool = False) -> float:
        """Compute the distances of rows from their cones, separately for equations."""
        start = self.dims.zero + self.dims.nonneg
        broken = [-rows[self.dims.zero : start]]
        for size in self.dims.soc:
            cone = rows[start : start + size]
            broken.append(np.linalg.norm(cone[1:]) - cone[:1])
            start += size
        x, y, z = rows[start:].reshape(-1, 3).T
        positive, other = np.maximum(-x if dual else y, _TINY), np.maximum(z, _TINY)
        if dual:  # of -x*exp(y/x) <= e*z, the distance of y
            broken += [x, -z, -positive * (1.0 + np.log(other / positive)) - y]
        else:  # of y*exp(x/y) <= z, the distance of x
            broken += [-y, -z, x - positive * np.log(other / positive)]
        return float(np.concatenate(broken).max(initial=0.0))


def returned_point(solver: Any, raw: Any, inverse: Any) -> tuple[Floats, Floats]:
    """Extract x and y from a solver's answer, with CVXPY's data of the inversion."""
    solution = solver.invert(raw, inverse)
    (x,) = solution.primal_vars.values()
    items = [item for name in ("eq_constr", "other_constr") for item in inverse[name]]
    return _flat(x), np.concatenate([_flat(solution.dual_vars[item.id]) for item in items])
