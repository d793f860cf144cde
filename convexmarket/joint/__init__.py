"""The data-dependent problem: model, weights and total privacy chosen together (A, VIII; B)."""

from convexmarket.joint.certificates import (
    FirstOrderResiduals,
    convexity_constant,
    convexity_ratio,
    convexity_threshold,
    first_order_residuals,
)
from convexmarket.joint.exponential import ExponentialBlock
from convexmarket.joint.joint_allocation import JointAllocation, allocate_jointly
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.steps import best_model

__all__ = [
    "ExponentialBlock",
    "FirstOrderResiduals",
    "JointAllocation",
    "JointMarket",
    "allocate_jointly",
    "best_model",
    "convexity_constant",
    "convexity_ratio",
    "convexity_threshold",
    "first_order_residuals",
]
