"""Where results come from: versions, platform and interpreter."""

from __future__ import annotations

import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from convexmarket.errors import DataError
from convexmarket.lab.problem.base import ProblemModel, ProblemSource

__all__ = ["package_version", "problem_file", "problem_source", "provenance_of", "versions"]

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


def problem_file(problem: ProblemModel) -> dict[str, Any] | None:
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


def provenance_of(problem: ProblemModel, **more: Any) -> dict[str, Any]:
    """Return where the result of a problem comes from, as plain values for JSON.

    Parameters
    ----------
    problem : Problem
    **more
        What a kind says besides, or in place of ``versions`` and ``seed``.
    """
    always = {"versions": versions(), "seed": problem.run.seed}
    return {**always, **more, "problem_file": problem_file(problem)}


def problem_source(described: Any) -> ProblemSource:
    """Return the file that :func:`problem_file` described.

    Raises
    ------
    DataError
        If it is not described, or its text is not the one that was described.
    """
    try:
        path, text, overrides = (described[key] for key in ("path", "text", "overrides"))
        source = ProblemSource(str(path), str(text), tuple(map(str, overrides)))
        intact = source.sha256 == described["sha256"]
    except (KeyError, TypeError):
        intact = False
    if not intact:
        raise DataError("provenance.problem_file: the text is not the one whose sha256 is given")
    return source
