r"""The matrices that a solver gets, and the residuals in which qpbenchmark measures its answer.

.. math:: \min_x\; \tfrac12 x^\top P x + q^\top x \quad\text{s.t.}\quad A x + s = b,\; s \in K

with K made of zeros, nonnegative numbers, second-order cones and exponential cones, in this order.
A point x with multipliers y has a residual of the primal (by how much ``b - A*x`` leaves K), one of
the dual (the largest entry of ``P*x + q + A'y``, and by how much y leaves the dual cone) and a gap
``|x'Px + q'x + b'y|``, all in the units of the matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from cvxpy.reductions.solvers.utilities import expcone_permutor
from numpy.typing import NDArray
from scipy import sparse

__all__ = ["ABSOLUTE", "MatrixProblem", "returned_point"]

Floats = NDArray[np.float64]

#: The residuals, in the order in which they are returned.
ABSOLUTE = ("absolute_primal", "absolute_dual", "absolute_gap")

_TINY = float(np.finfo(float).tiny)


@dataclass(frozen=True, eq=False)
class MatrixProblem:
    """A problem in matrices.

    Attributes
    ----------
    P, A : sparse array, shape (n, n) and (m, n)
    q, b : ndarray, shape (n,) and (m,)
    zero, nonneg, exp : int
        Rows that are equations, rows that are inequalities, exponential cones of three rows.
    soc : tuple of int
        Rows of each second-order cone.
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
        """Take what CVXPY hands to a solver of quadratic or conic programs.

        Parameters
        ----------
        data : dict
            Of :meth:`cvxpy.Problem.get_problem_data`.
        exp_order : list of int, optional
            The solver's order of the rows of an exponential cone.
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
        P = data.get("P")
        n = (q.size, q.size)
        return cls(
            sparse.csc_array(n if P is None else P), q, sparse.csc_array(A), b,
            dims.zero, dims.nonneg, tuple(dims.soc), dims.exp,
        )  # fmt: skip

    @np.errstate(all="ignore")  # what has no value is NaN
    def residuals(self, x: Floats, y: Floats) -> tuple[float, float, float]:
        """Return the residuals of primal and dual, and the gap."""
        curved = self.P @ x
        slack, slope = self.b - self.A @ x, curved + self.q + self.A.T @ y
        gap = abs(float(x @ curved + self.q @ x + self.b @ y))
        primal = max(float(np.abs(slack[: self.zero]).max(initial=0.0)), self._outside(slack))
        dual = max(float(np.abs(slope).max(initial=0.0)), self._outside(y, dual=True))
        return primal, dual, gap

    def _outside(self, rows: Floats, *, dual: bool = False) -> float:
        """Return by how much rows leave their cones, equations apart."""
        start = self.zero + self.nonneg
        worst = float(np.maximum(-rows[self.zero : start], 0.0).max(initial=0.0))
        for size in self.soc:
            worst = max(worst, float(np.linalg.norm(rows[start + 1 : start + size]) - rows[start]))
            start += size
        x, y, z = rows[start:].reshape(-1, 3).T
        if dual:  # of -x*exp(y/x) <= e*z, how far y is from it
            positive, other = np.maximum(-x, _TINY), np.maximum(z, _TINY)
            broken = [x, -z, -positive * (1.0 + np.log(other / positive)) - y]
        else:  # of y*exp(x/y) <= z, how far x is from it
            positive, other = np.maximum(y, _TINY), np.maximum(z, _TINY)
            broken = [-y, -z, x - positive * np.log(other / positive)]
        return max(worst, *(float(part.max(initial=0.0)) for part in broken))


def returned_point(solver: Any, raw: Any, inverse: Any) -> tuple[Floats, Floats]:
    """Return x and y as a solver left them, from its answer and CVXPY's data of the inversion."""
    found = solver.invert(raw, inverse)
    (x,) = found.primal_vars.values()
    duals = [found.dual_vars[item.id] for name in ("eq_constr", "other_constr")
             for item in inverse[name]]  # fmt: skip
    flat = [np.asarray(part, dtype=float).ravel(order="F") for part in duals]
    return np.asarray(x, dtype=float).ravel(order="F"), np.concatenate(flat)
