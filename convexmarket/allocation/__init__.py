"""Allocations: formulations in CVXPY, exact solvers, certified searches, the dispatch."""

from convexmarket.allocation.convex import ConvexProgram, sweep
from convexmarket.allocation.declaration import declare
from convexmarket.allocation.dispatch import allocate
from convexmarket.allocation.guarantees import weights_for_guarantees
from convexmarket.allocation.limits import LossLimit, loss_limit
from convexmarket.allocation.parted import PartedAllocation
from convexmarket.allocation.recommendation import Recommendation, recommend
from convexmarket.allocation.result import Allocation, SolveRecord
from convexmarket.allocation.together import Together, allocate_together

__all__ = [
    "Allocation",
    "ConvexProgram",
    "LossLimit",
    "PartedAllocation",
    "Recommendation",
    "SolveRecord",
    "Together",
    "allocate",
    "allocate_together",
    "declare",
    "loss_limit",
    "recommend",
    "sweep",
    "weights_for_guarantees",
]
