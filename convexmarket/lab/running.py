"""From a problem to its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from convexmarket.errors import ParameterError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.problem.base import ProblemModel

__all__ = ["run_problem"]


def run_problem(
    problem: ProblemModel, progress: Callable[[str, int, int], None] | None = None
) -> Any:
    """Run the experiment that a problem describes.

    Parameters
    ----------
    problem : Problem
        From :func:`convexmarket.lab.load_problem`.
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    object
        The result of its kind, for :func:`convexmarket.lab.report_of`.

    Raises
    ------
    ParameterError
        If it is no problem.
    """
    if not isinstance(problem, ProblemModel):
        raise ParameterError(
            f"no experiment runs a {type(problem).__name__}; give what load_problem returned"
        )
    return KINDS[problem.kind].run(problem, progress)
