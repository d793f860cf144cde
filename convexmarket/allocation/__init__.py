"""Allocations: formulations in CVXPY, exact solvers, certified searches, the dispatch."""

from convexmarket.allocation.convex import ConvexProgram, sweep
from convexmarket.allocation.declaration import declare
from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.allocation.result import Allocation, SolveRecord

__all__ = [
    "Allocation",
    "ConvexProgram",
    "SolveRecord",
    "allocate",
    "declare",
    "sweep",
    "weights_for_guarantees",
]
