"""Ways to release predictions, side by side."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "ReleaseComparisonProblem", "run_release_comparison", "")
