"""The data-dependent problem: model, weights and total privacy chosen together (A, VIII; B)."""

from convexmarket.joint.certificates import (
    FirstOrderResiduals,
    convexity_constant,
    convexity_ratio,
    convexity_threshold,
    first_order_residuals,
)
from convexmarket.joint.dispatch import allocate_jointly
from convexmarket.joint.gradient import descent_path
from convexmarket.joint.model_step import best_model
from convexmarket.joint.problem import JointMarket
from convexmarket.joint.result import JointAllocation, TracePoint
from convexmarket.joint.truthful import audit_joint_reports, joint_payments

__all__ = [
    "FirstOrderResiduals",
    "JointAllocation",
    "JointMarket",
    "TracePoint",
    "allocate_jointly",
    "audit_joint_reports",
    "best_model",
    "convexity_constant",
    "convexity_ratio",
    "convexity_threshold",
    "descent_path",
    "first_order_residuals",
    "joint_payments",
]
