"""Allocations: formulations in CVXPY, the exact solver, the certified search, the dispatch."""

from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.formulations import declare
from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.allocation.result import Allocation, SolveRecord

__all__ = ["Allocation", "SolveRecord", "allocate", "declare", "weights_for_guarantees"]
