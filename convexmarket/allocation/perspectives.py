"""The perspective ``s*g(x/s)`` of any convex expression, as cones.

CVXPY's own knows no power cones, and takes several second-order cones for one.
"""

from __future__ import annotations

from typing import Any

import cvxpy as cp

__all__ = ["perspective"]


def perspective(
    g: cp.Expression, x: cp.Variable, at: cp.Expression, s: cp.Expression, solver: str
) -> tuple[cp.Expression, list[cp.Constraint]]:
    """Return ``s*g(at/s)`` as an expression that its least value is, under constraints.

    The epigraph of g, convex in x alone, is ``A z + b in K`` for a cone K that the solver knows,
    and that of its perspective ``A z + b s in K``.
    """
    x.value = None  # some atoms of CVXPY do not compile where it has one
    own, above = cp.Variable(x.shape), cp.Variable(g.shape)
    problem = cp.Problem(cp.Minimize(cp.sum(above)), [g <= above, x == own])
    _, chain, _ = problem.get_problem_data(solver, ignore_dpp=True)
    program: Any = problem
    for reduction in chain.reductions[:-1]:  # the last one is the solver's own order of rows
        program, _ = reduction.apply(program)
    z = cp.Variable(program.x.size)
    rows = program.A.reshape((-1, z.size + 1), order="F").tocsc()
    image = rows[:, :-1] @ z + rows[:, -1].toarray().ravel() * s

    def part(variable: cp.Variable) -> cp.Expression:
        start = program.var_id_to_col[variable.id]
        return cp.reshape(z[start : start + variable.size], variable.shape, order="F")

    cones, start = [part(own) == at], 0
    for cone in program.constraints:
        args = []
        for argument in cone.args:
            entries = image[start : start + argument.size]
            args.append(cp.reshape(entries, argument.shape, order="F"))
            start += argument.size
        cones.append(cone.copy(args))
    return part(above), cones
