"""Where results come from: versions, platform and interpreter."""

from __future__ import annotations

from typing import Any

from convexmarket.deal import versions
from convexmarket.lab.problem.base import ProblemModel

__all__ = ["problem_file", "provenance_of"]


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
