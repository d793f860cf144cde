"""Studies: markets side by side, and solvers on their subproblems."""

from convexmarket.studies.runs import Runs
from convexmarket.studies.solver_study import compare_solvers
from convexmarket.studies.study import Study

__all__ = ["Runs", "Study", "compare_solvers"]
