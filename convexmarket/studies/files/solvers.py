"""Files of kind "solvers": solvers and formulations on the subproblems of other files."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.runs import Runs
from convexmarket.studies.solver_study import DEFAULT_SOLVERS, Problem, compare_solvers
from convexmarket.studies.subproblems.problem_classes import CLASSES


def _without_files(options: dict[str, Any]) -> dict[str, Any]:
    """Refuse options for reading or writing files, because the problem file may be untrusted."""
    for name in options:
        if re.search("file|path|folder|write|save|dump", name, re.IGNORECASE):
            raise ValueError(f"the option {name!r} concerns files; a problem file cannot name them")
    return options


_Solver = Annotated[str, Field(pattern=r"^[A-Za-z][\w .-]{0,59}$")]
_Names = tables.Several[_Solver]
_Word = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z_-]{0,31}$")]
_Options = Annotated[
    dict[str, bool | tables.Integer | float | _Word],
    Field(max_length=50),
    AfterValidator(_without_files),
]


class SettingTable(tables.Table):
    """Tolerances of the solvers, and the largest error of a correct answer."""

    tolerance: tables.Share
    """Largest relative error of the objective, and largest relative residual, of a solved run."""
    options: Annotated[dict[str, _Options], Field(max_length=50)] = Field(default_factory=dict)
    """Options of CVXPY's ``solve`` for each solver, by its name in any case."""


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
    settings: _Names = ("default",)
    """Names of tables in [settings], or "default": the options that CVXPY passes to solvers."""


class LimitsTable(tables.Table):
    """Limits of each run."""

    seconds: Annotated[float, Field(gt=0, le=86_400)] = 60.0
    megabytes: Annotated[float, Field(ge=500, le=10_000_000)] = 4_000.0


class SolversFile(tables.ProblemFile):
    """A comparison of solvers and formulations on the subproblems of other problem files."""

    kind: Literal["solvers"]
    study: ComparisonTable
    limits: LimitsTable = LimitsTable()
    settings: Annotated[dict[str, SettingTable], Field(max_length=50)] = Field(default_factory=dict)
    """Settings with tolerances and options, by name."""

    keeps_journal: ClassVar[bool] = True

    def _performed(self, load: Callable[[Path], Problem], options: dict[str, Any]) -> Runs:
        """Run :func:`compare_solvers` with the values of the file."""
        folder = self.place("")
        given = {name: table.model_dump() for name, table in self.settings.items()}
        return compare_solvers(
            entries_of(self.study.problems, lambda name: load(folder / name)),
            **self.study.model_dump(exclude={"problems", "settings"}),
            settings={name: given.get(name) for name in self.study.settings},
            time_limit=self.limits.seconds,
            memory_limit=self.limits.megabytes,
            seed=self.run.seed,
            **options,
        )


def entries_of(problems: Sequence[str], load: Callable[[str], Problem]) -> Mapping[str, Any]:
    """Build the entries for :func:`compare_solvers`: classes and loaded files, by short names."""
    stems = [Path(name).stem for name in problems]
    entries: dict[str, Any] = {}
    for name, stem in zip(problems, stems, strict=True):
        whole = name in CLASSES or stems.count(stem) > 1
        entries[name if whole else stem] = name if name in CLASSES else load(name)
    return entries
