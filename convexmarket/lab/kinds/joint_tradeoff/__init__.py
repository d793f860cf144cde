"""Error against payments over gamma, bought with a look at the data."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "JointTradeoffProblem", "run_joint_tradeoff", "", "subproblems")
