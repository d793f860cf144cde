"""Solvers and formulations on the subproblems of other problem files."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "SolverStudyProblem", "run_solver_study", "")
