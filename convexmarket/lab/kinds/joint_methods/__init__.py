"""The ways to solve the joint problem, side by side."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "JointMethodsProblem", "run_joint_methods", "")
