"""Releases of predictions instead of a model: private learning with kernels (K)."""

from convexmarket.learners.predictor import PublicPredictor
from convexmarket.release.bounds import ErrorBounds, SemiInteractiveBound
from convexmarket.release.fit import KernelBasis
from convexmarket.release.function import FunctionRelease
from convexmarket.release.interactive import Counts, InteractiveRelease
from convexmarket.release.net import ball_net, net_size
from convexmarket.release.non_interactive import PublicRelease
from convexmarket.release.semi_interactive import TestSetRelease

__all__ = [
    "Counts",
    "ErrorBounds",
    "FunctionRelease",
    "InteractiveRelease",
    "KernelBasis",
    "PublicPredictor",
    "PublicRelease",
    "SemiInteractiveBound",
    "TestSetRelease",
    "ball_net",
    "net_size",
]
