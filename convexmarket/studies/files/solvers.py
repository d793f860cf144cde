"""Files of kind "solvers": solvers and formulations on the subproblems of other files."""

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
    """CVXPY's names, and "exact": the package's methods without a conic solver."""
    formulations: _Names = ()
    """Formulations; all by default. A class that has none of these uses its first."""
    classes: _Names = ()
    """Classes of subproblems, such as "allocation" and "ridge"; all by default."""
    sizes: tables.Several[Annotated[int, Field(ge=2, le=1_000_000)]] = (100, 1_000)
    """Numbers of sellers, rows or points."""
    draws: Annotated[int, Field(ge=1, le=1_000)] = 3
    """Number of instances drawn of each problem and size."""
    settings: tables.Several[Literal["default"]] = ("default",)
    """Options that CVXPY passes to solvers; :func:`compare_solvers` takes other settings."""


class LimitsTable(tables.Table):
    """Limits of each run."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    megabytes: Annotated[float, Field(ge=500, le=10_000_000)] = 4_000.0


class SolversFile(tables.ProblemFile):
    """A comparison of solvers and formulations on the subproblems of other problem files."""

    kind: Literal["solvers"]
    study: ComparisonTable
    limits: LimitsTable = LimitsTable()

    keeps_journal: ClassVar[bool] = True

    def _performed(self, load: Callable[[Path], Problem], options: dict[str, Any]) -> Runs:
        """Run :func:`compare_solvers` with the values of the file."""
        folder = self.place("")
        return compare_solvers(
            entries_of(self.study.problems, lambda name: load(folder / name)),
            **self.study.model_dump(exclude={"problems", "settings"}),
            time_limit=self.limits.seconds,
            memory_limit=self.limits.megabytes,
            seed=self.run.seed,
            **options,
        )


def entries_of(problems: Sequence[str], load: Callable[[str], Problem]) -> Mapping[str, Any]:
    """Build the entries for :func:`compare_solvers`: classes and loaded files, by short names."""
    stems = [Path(name).stem for name in problems]
    whole = [name in CLASSES or stems.count(Path(name).stem) > 1 for name in problems]
    names = [name if each else Path(name).stem for name, each in zip(problems, whole, strict=True)]
    entries = [name if name in CLASSES else load(name) for name in problems]
    return dict(zip(names, entries, strict=True))
