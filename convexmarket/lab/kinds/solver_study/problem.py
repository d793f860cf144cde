"""Files of kind "solver-study": solvers and formulations on the subproblems of other files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from convexmarket.lab.problem.base import ProblemModel, RunTable, TableModel
from convexmarket.studies.settings import SETTINGS, options_of

__all__ = [
    "LimitsTable",
    "SettingTable",
    "SolverStudyProblem",
    "SolverStudyTable",
    "StudyRunTable",
]


def _once(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(values)) < len(values):
        raise ValueError("an entry is listed twice; list each once")
    return values


def _without_files(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse options by which a solver reads or writes files: a stranger may have chosen them."""
    for name in options:
        if _OF_FILES.search(name):
            raise ValueError(f"the option {name!r} is about files, which no problem file may name")
    return options


Word = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z_-]{0,31}$")]
Integer = Annotated[int, Field(gt=-(2**63), lt=2**63)]
_OF_FILES = re.compile("file|path|folder|write|save|dump", re.IGNORECASE)

Names = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[A-Za-z][\w .-]{0,59}$")], ...],
    Field(strict=False, max_length=100),
    AfterValidator(_once),
]
Files = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=500)], ...],
    Field(strict=False, min_length=1, max_length=200),
    AfterValidator(_once),
]
Sizes = Annotated[
    tuple[Annotated[int, Field(ge=2, le=1_000_000)], ...],
    Field(strict=False, min_length=1, max_length=20),
    AfterValidator(_once),
]
Options = Annotated[
    dict[str, bool | Integer | float | Word],
    Field(max_length=50),
    AfterValidator(_without_files),
]


class SettingTable(TableModel):
    """How exactly solvers are asked to solve, and how exact an answer has to be to count.

    Attributes
    ----------
    tolerance : float
        Largest relative error of the objective, and largest relative residual, of a solved run.
    options : dict
        Of each solver, by its name in any case; those of CVXPY's :meth:`solve`.
    """

    tolerance: Annotated[float, Field(gt=0, lt=1)]
    options: Annotated[dict[str, Options], Field(max_length=50)] = Field(default_factory=dict)

    def options_of(self, solver: str) -> Options | None:
        """Return the options of a solver; None if the table names options of others only."""
        found = {name.upper(): options for name, options in self.options.items()}
        return found.get(solver.upper(), None if found else {})


class SolverStudyTable(TableModel):
    """Whose subproblems are solved, by whom, how, at which sizes, and how often.

    Attributes
    ----------
    problems : tuple of str
        Problem files, relative to this one.
    solvers : tuple of str
        In CVXPY's spelling, and "exact": the package's own methods without a conic solver. Those
        that are not installed are reported as absent.
    formulations : tuple of str
        Those to use; all where left out. A class that has none of them uses its first.
    classes : tuple of str
        Problem classes, such as "allocation" and "ridge"; all where left out.
    sizes : tuple of int
        Sellers, rows or points.
    seeds : int
        Instances drawn of each problem and size.
    settings : tuple of str
        "default" (what CVXPY asks for), "solver-default" (what solvers ask of themselves), "low",
        "mid", "high" (1e-3, 1e-6, 1e-9), or a table's name in [settings].
    """

    problems: Files
    solvers: Annotated[Names, Field(min_length=1)] = (
        "exact",
        "CLARABEL",
        "ECOS",
        "SCS",
        "OSQP",
        "HIGHS",
    )
    formulations: Names = ()
    classes: Names = ()
    sizes: Sizes = (100, 1_000)
    seeds: Annotated[int, Field(ge=1, le=1_000)] = 3
    settings: Annotated[Names, Field(min_length=1)] = ("default",)


class LimitsTable(TableModel):
    """What a run may take before it is ended: seconds, and megabytes of memory."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    megabytes: Annotated[float, Field(ge=500, le=10_000_000)] = 4_000.0


class StudyRunTable(RunTable):
    """How to run: besides, whether every timed run has a core of its own."""

    pin: bool = True


class SolverStudyProblem(ProblemModel):
    """A comparison of solvers and formulations on the subproblems of other problem files."""

    kind: Literal["solver-study"]
    study: SolverStudyTable
    limits: LimitsTable = LimitsTable()
    settings: Annotated[dict[str, SettingTable], Field(max_length=50)] = Field(default_factory=dict)
    run: StudyRunTable = StudyRunTable()

    @model_validator(mode="after")
    def _settings_are_known(self) -> Self:
        taken = next((name for name in (*SETTINGS, "reference") if name in self.settings), None)
        if taken is not None:
            raise ValueError(f"settings.{taken} has a name of ours; give it another")
        known = {**SETTINGS, **self.settings}
        unknown = [name for name in self.study.settings if name not in known]
        if unknown:
            raise ValueError(
                f"study.settings names {unknown[0]!r}, which is neither known "
                f"({', '.join(map(repr, known))}) nor a table; give [settings.{unknown[0]}] with a "
                "tolerance"
            )
        return self

    def tolerance(self, setting: str) -> float:
        """Return the largest error of a run that counts as solved."""
        return {**SETTINGS, **{name: own.tolerance for name, own in self.settings.items()}}[setting]

    def options(self, setting: str, solver: str) -> Options | None:
        """Return what a setting passes to a solver; None where it does not say."""
        own = self.settings.get(setting)
        return options_of(setting, solver) if own is None else own.options_of(solver)

    def files(self) -> dict[str, Path]:
        """Return the problem files by name: that of the file, or its path where two share that."""
        folder = Path(self.source.path).parent if self.source is not None else Path()
        paths = [Path(name).with_suffix("") for name in self.study.problems]
        alone = len({path.name for path in paths}) == len(paths)
        names = [path.name if alone else path.as_posix() for path in paths]
        return {name: folder / file for name, file in zip(names, self.study.problems, strict=True)}
