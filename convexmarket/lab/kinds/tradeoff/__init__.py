"""Error against payments over gamma, for a classification."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "TradeoffProblem", "run_tradeoff", "begin", "subproblems")
