"""``convexmarket run`` and ``convexmarket compare``: experiments, and comparisons of solvers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import (
    INTERRUPTED,
    File,
    Formats,
    Open,
    Settings,
    check_report_folder,
    err,
    errors_in_one_line,
    print_report,
    say,
)
from convexmarket.errors import ParameterError

if TYPE_CHECKING:
    from convexmarket.report import Report
    from convexmarket.studies.files import ProblemFile
    from convexmarket.studies.runs import Runs


def _list_of(kind: Callable[[str], Any], help: str) -> Any:
    """Build an option for a list separated by commas."""
    return typer.Option(
        parser=lambda text: [kind(part.strip()) for part in text.split(",") if part.strip()],
        metavar="A,B,...",
        help=help,
    )


_PLUGIN = typer.Option(metavar="NAME=module:Class", help="A custom solver. Repeatable.")


def run(
    file: Annotated[Path, typer.Argument(help="Problem file, such as problems/wdbc.toml.")],
    settings: Settings = None,
    data: Annotated[File, typer.Option(help="File of rows, in place of the file's.")] = None,
    folder: Annotated[File, typer.Option("--out", help="Folder for the report.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Parallel jobs; -1 for all cores.")] = None,
    show: Open = False,
    formats: Formats = "",
) -> None:
    """Run the experiment of a problem file and write its report.

    The report is a folder: index.html opens in any browser, without a network.
    """
    from convexmarket.studies.files import load_file

    with errors_in_one_line():
        changes = list(settings or ())
        if jobs is not None:
            changes.append(f"run.jobs={jobs}")
        if data is not None:
            seen = os.path.relpath(data.resolve(), file.parent.resolve())
            changes.append(f"data.file={json.dumps(seen, ensure_ascii=False)}")
        problem = load_file(file, changes)
        if problem.run.workers < problem.run.jobs:
            say(
                f"run.jobs is {problem.run.jobs}, limited to the {problem.run.workers} cores",
                to=err,
            )
        report, page = run_file(problem, folder or Path("out", file.stem), formats=formats)
    print_report(report, page, show)


def compare_command(
    problems: Annotated[list[str], typer.Argument(help="Problem files, or classes such as ridge.")],
    solvers: Annotated[Any, _list_of(str, "CVXPY's names, and exact for our methods.")] = "",
    formulations: Annotated[Any, _list_of(str, "Such as primal,dual,projection.")] = "",
    classes: Annotated[Any, _list_of(str, "Such as allocation,ridge; all by default.")] = "",
    sizes: Annotated[Any, _list_of(int, "Sellers, rows or points.")] = "100,1000",
    draws: Annotated[int, typer.Option(help="Instances of each problem and size.")] = 3,
    settings: Annotated[Any, _list_of(str, "default, solver-default, low, mid, high.")] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path(
        "out/study"
    ),
    time_limit: Annotated[float, typer.Option(help="Seconds of a run.")] = 60.0,
    jobs: Annotated[int, typer.Option(help="Runs at a time, -1: one per core.")] = -1,
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help="Bind each run to one core.")] = True,
    plugin: Annotated[list[str] | None, _PLUGIN] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also repeat recorded runs.")] = False,
    show: Open = False,
    formats: Formats = "",
) -> None:
    """Compare solvers and formulations on the subproblems of problem files.

    The same command resumes an interrupted comparison: each run is recorded next to the report's
    folder, in out/study.runs.jsonl. A file of kind "solvers" states these and further options.
    """
    from convexmarket.studies.files.loading import subproblems_of
    from convexmarket.studies.files.solvers import entries_of
    from convexmarket.studies.solver_study import DEFAULT_SOLVERS, compare_solvers

    with errors_in_one_line():
        chosen = {name: name for name in solvers or DEFAULT_SOLVERS}
        options: dict[str, Any] = {
            "solvers": chosen | dict(_plugin(text) for text in plugin or ()),
            "formulations": formulations,
            "classes": classes,
            "sizes": sizes,
            "draws": draws,
            "settings": settings or ("default",),
            "time_limit": time_limit,
            "jobs": jobs,
            "pin": pin,
        }

        def work(journal: Path) -> Runs:
            entries = entries_of(problems, subproblems_of)
            return compare_solvers(entries, journal=journal, **options)

        runs = _resumable(work, folder, fresh)
        report = runs.report("Solvers compared")
        page = report.write(folder, ("md", "html", *formats))
    print_report(report, page, show)


def run_file(
    problem: ProblemFile, folder: Path, *, fresh: bool = False, formats: Any = ()
) -> tuple[Report, Path]:
    """Run or resume a problem; return its report and the written page."""
    from convexmarket.studies.files.loading import subproblems_of

    runs = _resumable(lambda file: problem.perform(subproblems_of, journal=file), folder, fresh)
    report = problem.report(runs)
    page = report.write(folder, ("md", "html", *formats))
    if not problem.keeps_journal:
        journal_of(folder).unlink(missing_ok=True)
    return report, page


def journal_of(folder: Path) -> Path:
    """Return the journal that belongs to the folder of a report."""
    return folder.parent / f"{folder.name}.runs.jsonl"


def _resumable(work: Callable[[Path], Runs], folder: Path, fresh: bool) -> Runs:
    """Work with a journal, and print the findings, or after an interrupt the command to resume."""
    check_report_folder(folder)
    journal = journal_of(folder)
    if fresh:
        journal.unlink(missing_ok=True)
    try:
        runs = work(journal)
    except KeyboardInterrupt:
        if not journal.exists():
            raise
        say(f"Stopped. Finished runs are in {journal}; the same command resumes there.", to=err)
        raise typer.Exit(INTERRUPTED) from None
    for text in runs.statements()[1:]:
        say(text)
    return runs


def _plugin(text: str) -> tuple[str, Any]:
    """Parse ``NAME=module:Class``, and return the name and the solver."""
    from convexmarket.studies.plugins import load_plugin

    name, _, place = text.partition("=")
    if not name or not all(place.partition(":")):
        raise ParameterError(
            "--plugin must be NAME=module:Class, where the class is a solver interface of "
            f"CVXPY, got {text!r}"
        )
    return name, load_plugin(place)()
