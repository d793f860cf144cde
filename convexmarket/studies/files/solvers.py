"""Problem files of kind "solvers", which compare solvers and formulations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.runs import Runs
from convexmarket.studies.solver_study import DEFAULT_SOLVERS, Problem, compare_solvers
from convexmarket.studies.subproblems.problem_classes import CLASSES

_Names = tables.Several[Annotated[str, Field(pattern=r"^[A-Za-z][\w .-]{0,59}$")]]


class ComparisonTable(tables.Table):
    """Problems, formulations, solvers, sizes and draws of a comparison."""

    problems: tables.Several[tables.FileName]
    """Problem files, relative to this file, or names of classes of subproblems."""
    solvers: _Names = DEFAULT_SOLVERS
    """Names of solvers in CVXPY, or "exact" for the package's methods without a conic solver."""
    formulations: _Names = ()
    """Formulations, by default all. A class without any of them uses its first formulation."""
    classes: _Names = ()
    """Classes of subproblems, such as "allocation" and "ridge"; by default, all classes."""
    sizes: tables.Several[Annotated[int, Field(ge=2, le=1_000_000)]] = (100, 1_000)
    """Sizes of the instances, in numbers of sellers, rows or points."""
    draws: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Number of random instances of each problem and size."""


class LimitsTable(tables.Table):
    """Limits of each run."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    megabytes: Annotated[float, Field(ge=500, le=10_000_000)] = 4_000.0


class SolversFile(tables.ProblemFile):
    """Comparison of solvers and formulations on the subproblems of other problem files."""

    kind: Literal["solvers"]
    study: ComparisonTable
    limits: LimitsTable = LimitsTable()

    keeps_journal: ClassVar[bool] = True

    def _performed(self, load: Callable[[Path], Problem], options: dict[str, Any]) -> Runs:
        folder = self.place("")
        return compare_solvers(
            entries_of(self.study.problems, lambda name: load(folder / name)),
            **self.study.model_dump(exclude={"problems"}),
            time_limit=self.limits.seconds,
            memory_limit=self.limits.megabytes,
            seed=self.run.seed,
            **options,
        )


def entries_of(problems: Sequence[str], load: Callable[[str], Problem]) -> Mapping[str, Any]:
    """Map short names to the classes and files that :func:`compare_solvers` compares."""
    stems = [Path(name).stem for name in problems]
    whole = [name in CLASSES or stems.count(Path(name).stem) > 1 for name in problems]
    names = [name if each else Path(name).stem for name, each in zip(problems, whole, strict=True)]
    entries = [name if name in CLASSES else load(name) for name in problems]
    return dict(zip(names, entries, strict=True))
