"""Where results come from: versions, platform and interpreter."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from convexmarket.problems import Problem

__all__ = ["package_version", "problem_file", "versions"]

_LIBRARIES = ("numpy", "scipy", "pandas", "scikit-learn", "cvxpy")
_SOLVERS = ("clarabel", "ecos", "highspy", "osqp", "scs")


@cache
def package_version(name: str = "convexmarket") -> str:
    """Return the installed version of a distribution, or say that it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def versions() -> dict[str, Any]:
    """Return what a result depends on beside its problem, as plain values for JSON."""
    return {
        "convexmarket": package_version(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: package_version(name) for name in _LIBRARIES + _SOLVERS},
    }


def problem_file(problem: Problem) -> dict[str, Any] | None:
    """Return the file that a problem was loaded from, if any, as plain values for JSON."""
    source = problem.source
    if source is None:
        return None
    return {
        "path": source.path,
        "sha256": source.sha256,
        "overrides": list(source.overrides),
        "text": source.text,
    }
