"""Private ridge regressions side by side."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(
    __name__,
    "RidgeComparisonProblem",
    "run_ridge_comparison",
    "",
    "subproblems",
)
