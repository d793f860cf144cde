"""A kind of experiment: one folder, registered once; all else about it is found from there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from pydantic import TypeAdapter

from convexmarket.lab.problem.base import ProblemModel

__all__ = ["Kind"]


@dataclass(frozen=True)
class Kind:
    """What a problem file of one ``kind`` may say, what is done then, and what is told of it.

    The names are those of objects in modules of the folder; each module is imported when it is
    needed.

    Attributes
    ----------
    package : str
        The folder's, ``__name__`` in its ``__init__``; its last part is the kind's name.
    problem_class : str
        In ``problem``: a model of the file, or a union of models.
    run_function : str
        In ``run``: from the problem and a callback for progress to a result. Its annotations say
        what the result is.
    page_function : str
        In ``page``: a function that adds to a report what only this kind shows; without one its
        report lists the tables.
    subproblems_function : str, optional
        In ``subproblems``: from the problem to the optimisation problems that it holds, for a
        study of solvers.
    """

    package: str
    problem_class: str
    run_function: str
    page_function: str = ""
    subproblems_function: str = ""

    @property
    def name(self) -> str:
        """What a problem file calls it."""
        return self.package.rpartition(".")[2].replace("_", "-")

    @property
    def problem(self) -> Any:
        """The model of its problem files, or a union of models with a discriminator."""
        return self._of("problem", self.problem_class)

    def parse(self, table: Any) -> ProblemModel:
        """Return the problem that a table describes, or raise pydantic's error."""
        problem: ProblemModel = TypeAdapter(self.problem).validate_python(table)
        return problem

    @property
    def run(self) -> Callable[..., Any]:
        """What runs a problem."""
        return self._of("run", self.run_function)

    def page(self, result: Any, report: Any) -> None:
        """Add to a report what only this kind shows of a result."""
        if self.page_function:
            self._of("page", self.page_function)(result, report)

    def subproblems(self, problem: ProblemModel) -> list[Any]:
        """Return the optimisation problems that a problem file holds; there may be none."""
        if not self.subproblems_function:
            return []
        return self._of("subproblems", self.subproblems_function)(problem)

    def _of(self, module: str, name: str) -> Any:
        return getattr(import_module(f"{self.package}.{module}"), name)
