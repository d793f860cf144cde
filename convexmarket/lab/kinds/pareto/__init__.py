"""Any market, one or two keys swept: the frontier of error, payments and largest epsilon."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "ParetoProblem", "run_pareto", "")
