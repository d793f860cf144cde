"""Allocate privacy: formulations in CVXPY, exact solvers and certified searches."""

from convexmarket.allocation.allocation_result import Allocation, SolveRecord, Together
from convexmarket.allocation.choose_method import allocate
from convexmarket.allocation.formulations import ConvexProgram, declare
from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.allocation.partitioned_sellers import PartedAllocation
from convexmarket.allocation.together import allocate_together

__all__ = [
    "Allocation",
    "ConvexProgram",
    "PartedAllocation",
    "SolveRecord",
    "Together",
    "allocate",
    "allocate_together",
    "declare",
    "weights_for_guarantees",
]
