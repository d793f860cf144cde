"""The data-dependent problem: model, weights and total privacy chosen together (A, VIII; B)."""

from convexmarket.joint.certificates import (
    FirstOrderResiduals,
    convexity_constant,
    convexity_ratio,
    convexity_threshold,
    first_order_residuals,
)
from convexmarket.joint.dispatch import allocate_jointly
from convexmarket.joint.model_step import best_model
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.result import JointAllocation, TracePoint

__all__ = [
    "FirstOrderResiduals",
    "JointAllocation",
    "JointMarket",
    "TracePoint",
    "allocate_jointly",
    "best_model",
    "convexity_constant",
    "convexity_ratio",
    "convexity_threshold",
    "first_order_residuals",
]
