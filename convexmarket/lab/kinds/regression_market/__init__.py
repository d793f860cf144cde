"""Error against payments, for a ridge regression."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(
    __name__,
    "RegressionMarketProblem",
    "run_regression_market",
    "regression_market_report",
    "subproblems",
)
