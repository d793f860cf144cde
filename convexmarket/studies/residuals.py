r"""Residuals of the optimality conditions at a returned point, independent of the solver's status.

For ``min f(x)`` under ``h(x) = 0``, ``g(x) <= 0`` and bounds of variables, a solver returns x with
multipliers nu of the equations and lambda of the inequalities. With ``lambda`` cut off at zero and
the gradient of the Lagrangian :math:`r = \nabla f + J_h^\top\nu + J_g^\top\lambda_+`, four numbers
measure the distance from the Karush-Kuhn-Tucker conditions (:func:`kkt_residuals`):

- ``primal``: the largest ``|h|``, relative to the sides of its equation;
- ``violation``: the largest ``g_+``, likewise, or by how much a variable leaves its bounds;
- ``dual``: ``||r||`` of each variable, relative to the largest gradient among the terms of f, or to
  ``|f|/||x||`` where that is larger (one term alone has no gradient at its minimum);
- ``gap``: ``sum |nu*h| + sum |lambda_+*g|`` over ``|f|``.

None of them changes if f, a constraint or x is measured in other units. A solver that was given an
absolute tolerance is measured in the units of its matrices instead, as qpbenchmark does
(:class:`MatrixProblem`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import cvxpy as cp
import numpy as np
from cvxpy.atoms.affine.add_expr import AddExpression
from cvxpy.reductions.solvers.utilities import expcone_permutor
from numpy.typing import NDArray
from scipy import sparse

from convexmarket.errors import NotSupportedError

__all__ = ["ABSOLUTE", "MatrixProblem", "Residuals", "kkt_residuals", "returned_point"]

Floats = NDArray[np.float64]

#: Residuals in the units of the matrices, as columns.
ABSOLUTE = ("absolute_primal", "absolute_dual", "absolute_gap")

_TINY = float(np.finfo(float).tiny)
_EQUATIONS = (cp.constraints.Equality, cp.constraints.Zero)
_COMPARISONS = (cp.constraints.Inequality, cp.constraints.NonPos, cp.constraints.NonNeg)
_SIGNS = {
    "nonneg": (0.0, np.inf),
    "pos": (0.0, np.inf),
    "nonpos": (-np.inf, 0.0),
    "neg": (-np.inf, 0.0),
}


class Residuals(NamedTuple):
    """Relative distance of a point and its multipliers from the optimality conditions.

    Infinite where a variable, a multiplier or a gradient has no value.
    """

    primal: float
    violation: float
    dual: float
    gap: float


@np.errstate(all="ignore")  # expressions without a value count as infinite
def kkt_residuals(problem: cp.Problem, least: float = 0.0) -> Residuals:
    """Return the residuals at the present values of variables and multipliers.

    Parameters
    ----------
    problem : cvxpy.Problem
        Convex, of equations, inequalities and variables with signs or bounds, differentiable at
        the point.
    least : float
        Replaces the size of the objective where that is smaller; an optimum may be zero.

    Raises
    ------
    NotSupportedError
        If a constraint or an attribute of a variable is of another kind.
    """
    _check(problem)
    variables = problem.variables()
    if any(x.value is None or not np.isfinite(x.value).all() for x in variables):
        return Residuals(np.inf, np.inf, np.inf, np.inf)
    flip = -1.0 if isinstance(problem.objective, cp.Maximize) else 1.0
    objective = problem.objective.expr
    value = float(objective.value)
    scale = max(abs(value), least, _TINY)
    primal = violation = complementarity = 0.0
    gradients = [_gradient(objective, np.array([flip]))]
    for item in problem.constraints:
        sign = -1.0 if isinstance(item, cp.constraints.NonNeg) else 1.0
        excess = sign * _flat(item.expr.value)
        size = max(float(np.abs(_flat(side.value)).max(initial=0.0)) for side in item.args) or 1.0
        if equation := isinstance(item, _EQUATIONS):
            primal = max(primal, float(np.abs(excess).max(initial=0.0)) / size)
        else:
            violation = max(violation, float(excess.max(initial=0.0)) / size)
        if item.variables():
            given = item.dual_value
            nu = np.full(excess.size, np.nan) if given is None else _flat(given)
            nu = nu if equation else np.maximum(nu, 0.0)
            complementarity += float(np.abs(nu * excess).sum())
            gradients.append(_gradient(item.expr, sign * nu))
    dual = 0.0
    for x in variables:
        point, (low, high) = _flat(x.value), _bounds(x)
        outside = float(np.maximum(low - point, point - high).max(initial=0.0))
        violation = max(violation, outside / (float(np.abs(point).max(initial=0.0)) or 1.0))
        slope = sum((gradient.get(x, 0.0) for gradient in gradients), np.zeros(x.size))
        # The multiplier of a bound is the part of the slope that has its sign.
        bounded = np.where(slope > 0, np.isfinite(low), np.isfinite(high))
        slack = point - np.where(slope > 0, low, high)
        complementarity += float(np.abs(slope * slack)[bounded].sum())
        length = float(np.linalg.norm(point))
        size = max(_largest_slope(objective, x), scale / length if length > 0 else 0.0) or 1.0
        rest = float(np.linalg.norm(np.where(bounded, 0.0, slope))) / size
        dual = max(dual, rest if np.isfinite(slope).all() else np.inf)
    gap = complementarity / scale
    if not np.isfinite(value + dual + gap):
        dual = gap = np.inf
    return Residuals(primal, violation, dual, gap)


def _flat(value: Any) -> Floats:
    return np.asarray(value, dtype=float).ravel(order="F")


def _bounds(x: cp.Variable) -> tuple[Floats, Floats]:
    """Return the declared bounds of a variable, flat; infinite without bounds."""
    signs = (bounds for name, bounds in _SIGNS.items() if x.attributes[name])
    given: Any = x.attributes["bounds"]
    low, high = given or next(signs, (-np.inf, np.inf))
    return _flat(np.broadcast_to(low, x.shape)), _flat(np.broadcast_to(high, x.shape))


def _largest_slope(objective: cp.Expression, x: cp.Variable) -> float:
    """Return the largest norm of a term's gradient."""
    terms = objective.args if isinstance(objective, AddExpression) else [objective]
    slopes = [_gradient(term, np.ones(1)) for term in terms]
    return max(float(np.linalg.norm(slope.get(x, 0.0))) for slope in slopes)


def _matrix(slope: Any, x: cp.Variable) -> sparse.csc_array:
    """Return a gradient of CVXPY with shape (size of x, size of the expression)."""
    given: Any = slope if sparse.issparse(slope) else np.reshape(slope, (x.size, -1))
    return sparse.csc_array(given)


def _gradient(expression: cp.Expression, multiplier: Floats) -> dict[cp.Variable, Floats]:
    """Return the gradient of multiplier'expression; NaN without a gradient."""
    try:
        slopes = expression.grad
    except (TypeError, ValueError):  # of an entropy at 0
        slopes = dict.fromkeys(expression.variables())
    return {
        x: np.full(x.size, np.nan) if slope is None else _matrix(slope, x) @ multiplier
        for x, slope in slopes.items()
    }


def _check(problem: cp.Problem) -> None:
    for item in problem.constraints:
        if not isinstance(item, _EQUATIONS + _COMPARISONS):
            raise NotSupportedError(
                f"residuals are known for equations and inequalities, not for a "
                f"{type(item).__name__}; write {item} as one"
            )
    for x in problem.variables():
        allowed = (*_SIGNS, "bounds")
        if others := [
            name for name, given in x.attributes.items() if given and name not in allowed
        ]:
            raise NotSupportedError(
                f"the variable {x.name()} is declared {others[0]}; residuals are known for "
                "signs and bounds; write it as a constraint"
            )


@dataclass(frozen=True, eq=False)
class MatrixProblem:
    r"""The matrices of a solver's problem, and the residuals of its answer as in qpbenchmark.

    .. math:: \min_x\; \tfrac12 x^\top P x + q^\top x \quad\text{s.t.}\quad A x + s = b,\; s \in K

    with K made of ``zero`` equations, ``nonneg`` inequalities, second-order cones with the numbers
    of rows ``soc``, and ``exp`` exponential cones of three rows, in this order.
    """

    P: sparse.csc_array
    q: Floats
    A: sparse.csc_array
    b: Floats
    zero: int
    nonneg: int
    soc: tuple[int, ...]
    exp: int

    @classmethod
    def of(cls, data: dict[str, Any], exp_order: list[int] | None = None) -> Self:
        """Build from the data of :meth:`cvxpy.Problem.get_problem_data`.

        ``exp_order`` is the solver's order of the rows of an exponential cone.
        """
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
        P: Any = data.get("P")
        P = sparse.csc_array((q.size, q.size) if P is None else P)
        return cls(P, q, A.tocsc(), b, dims.zero, dims.nonneg, tuple(dims.soc), dims.exp)

    @np.errstate(all="ignore")  # NaN without a value
    def residuals(self, x: Floats, y: Floats) -> tuple[float, float, float]:
        """Return the residuals of a point and its multipliers, and their gap.

        Of the primal, by how much ``b - A*x`` leaves K; of the dual, the largest entry of
        ``P*x + q + A'y``, and by how much y leaves the dual cone; and ``|x'Px + q'x + b'y|``.
        """
        curved = self.P @ x
        slack, slope = self.b - self.A @ x, curved + self.q + self.A.T @ y
        gap = abs(float(x @ curved + self.q @ x + self.b @ y))
        primal = max(float(np.abs(slack[: self.zero]).max(initial=0.0)), self._outside(slack))
        dual = max(float(np.abs(slope).max(initial=0.0)), self._outside(y, dual=True))
        return primal, dual, gap

    def _outside(self, rows: Floats, *, dual: bool = False) -> float:
        """Compute the distances of rows from their cones, without equations."""
        start = self.zero + self.nonneg
        worst = float(np.maximum(-rows[self.zero : start], 0.0).max(initial=0.0))
        for size in self.soc:
            worst = max(worst, float(np.linalg.norm(rows[start + 1 : start + size]) - rows[start]))
            start += size
        x, y, z = rows[start:].reshape(-1, 3).T
        if dual:  # of -x*exp(y/x) <= e*z, the distance of y
            positive, other = np.maximum(-x, _TINY), np.maximum(z, _TINY)
            broken = [x, -z, -positive * (1.0 + np.log(other / positive)) - y]
        else:  # of y*exp(x/y) <= z, the distance of x
            positive, other = np.maximum(y, _TINY), np.maximum(z, _TINY)
            broken = [-y, -z, x - positive * np.log(other / positive)]
        return max(worst, *(float(part.max(initial=0.0)) for part in broken))


def returned_point(solver: Any, raw: Any, inverse: Any) -> tuple[Floats, Floats]:
    """Extract x and y from a solver's answer, with CVXPY's data of the inversion."""
    solution = solver.invert(raw, inverse)
    (x,) = solution.primal_vars.values()
    items = [item for name in ("eq_constr", "other_constr") for item in inverse[name]]
    return _flat(x), np.concatenate([_flat(solution.dual_vars[item.id]) for item in items])
