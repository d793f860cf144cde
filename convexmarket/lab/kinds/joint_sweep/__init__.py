"""One joint problem along a sweep, averaged over paired draws."""

from convexmarket.lab.kind import Kind

__all__ = ["KIND"]

KIND = Kind(__name__, "JointSweepProblem", "run_joint_sweep", "")
