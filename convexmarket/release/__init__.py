"""Release predictions instead of a model: private learning with kernels (K)."""

from convexmarket.learners.predictor import PublicPredictor
from convexmarket.release.bounds import ErrorBounds
from convexmarket.release.function import FunctionRelease
from convexmarket.release.interactive import InteractiveRelease
from convexmarket.release.non_interactive import PublicRelease, ball_net
from convexmarket.release.semi_interactive import TestSetRelease

__all__ = [
    "ErrorBounds",
    "FunctionRelease",
    "InteractiveRelease",
    "PublicPredictor",
    "PublicRelease",
    "TestSetRelease",
    "ball_net",
]
