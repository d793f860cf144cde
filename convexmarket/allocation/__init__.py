"""Allocations: formulations in CVXPY, the exact solver, the certified search, the dispatch."""
