"""Choose the model, the weights and the total privacy jointly (A, VIII; B)."""

from convexmarket.joint.alternating import best_model
from convexmarket.joint.exponential import ExponentialBlock
from convexmarket.joint.joint_allocation import JointAllocation, allocate_jointly
from convexmarket.joint.problem import (
    JointMarket,
    convexity_ratio,
    convexity_threshold,
    first_order_residuals,
)

__all__ = [
    "ExponentialBlock",
    "JointAllocation",
    "JointMarket",
    "allocate_jointly",
    "best_model",
    "convexity_ratio",
    "convexity_threshold",
    "first_order_residuals",
]
