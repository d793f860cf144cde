"""A market without a learner, and changes to it, side by side."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "VariantsProblem", "run_variants", "begin", "subproblems")
