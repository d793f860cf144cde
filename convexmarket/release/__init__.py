"""Releases of predictions instead of a model: private learning with kernels (K)."""

from convexmarket.learners.predictor import PublicPredictor
from convexmarket.release.bounds import (
    SemiInteractiveBound,
    function_error_bound,
    interactive_error_bound,
    non_interactive_error_bound,
    semi_interactive_error_bound,
    suggest_rounds,
    suggest_test_size,
    suggest_updates,
)
from convexmarket.release.fit import ConstrainedFit, FitFormulation, KernelBasis, declare_fit
from convexmarket.release.function import FunctionRelease
from convexmarket.release.interactive import InteractiveRelease, Remaining, Spent
from convexmarket.release.net import ball_net, net_size
from convexmarket.release.non_interactive import PublicRelease
from convexmarket.release.semi_interactive import TestSetRelease

__all__ = [
    "ConstrainedFit",
    "FitFormulation",
    "FunctionRelease",
    "InteractiveRelease",
    "KernelBasis",
    "PublicPredictor",
    "PublicRelease",
    "Remaining",
    "SemiInteractiveBound",
    "Spent",
    "TestSetRelease",
    "ball_net",
    "declare_fit",
    "function_error_bound",
    "interactive_error_bound",
    "net_size",
    "non_interactive_error_bound",
    "semi_interactive_error_bound",
    "suggest_rounds",
    "suggest_test_size",
    "suggest_updates",
]
