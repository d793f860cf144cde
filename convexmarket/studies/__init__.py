"""Studies that compare markets, or solvers on subproblems of markets."""

from convexmarket.studies.runs import Runs
from convexmarket.studies.solver_study import compare_solvers
from convexmarket.studies.study import Study

__all__ = ["Runs", "Study", "compare_solvers"]
