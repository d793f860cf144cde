"""Where results come from: versions, platform and interpreter."""

from __future__ import annotations

from typing import Any

from convexmarket.deal import versions
from convexmarket.errors import DataError
from convexmarket.lab.problem.base import ProblemModel, ProblemSource

__all__ = ["problem_file", "problem_source", "provenance_of"]


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
