"""What an experiment calls a solve without an answer; why it has none, the error's message says."""

from __future__ import annotations

from convexmarket.errors import (
    ConvexMarketError,
    InfeasibleMarketError,
    NotSupportedError,
    SolverError,
    UnattainedOptimumError,
)

__all__ = ["failure_status"]

_FAILED: dict[type[ConvexMarketError], str] = {
    InfeasibleMarketError: "infeasible",
    UnattainedOptimumError: "not attained",
    SolverError: "solver failed",
    NotSupportedError: "not supported",
}


def failure_status(error: ConvexMarketError) -> str:
    """Return the status of a solve that ended in an error, in a word or two."""
    return next((words for kind, words in _FAILED.items() if isinstance(error, kind)), "failed")
