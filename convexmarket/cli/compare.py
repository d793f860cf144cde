"""``convexmarket run`` and ``convexmarket compare``: experiments, and comparisons of solvers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import (
    File,
    Formats,
    Open,
    Settings,
    err,
    errors_in_one_line,
    print_report,
    say,
)
from convexmarket.cli.ending import INTERRUPTED
from convexmarket.errors import ParameterError

if TYPE_CHECKING:
    from convexmarket.report import Report
    from convexmarket.studies.files import ProblemFile

__all__ = ["compare_command", "journal_of", "run", "run_file"]

_STUDY = Path("out/study")
_PLUGIN = typer.Option(metavar="NAME=module:Class", help="A solver of your own. Repeatable.")


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
        workers = problem.run.workers
        if workers < problem.run.jobs:
            say(f"run.jobs is {problem.run.jobs}, limited to the {workers} cores", to=err)
        report, page = run_file(problem, folder or Path("out", file.stem), formats=formats)
    print_report(report, page, show)


def compare_command(
    problems: Annotated[list[str], typer.Argument(help="Problem files, or classes such as ridge.")],
    solvers: Annotated[str, typer.Option(help="CVXPY's names, and exact for our methods.")] = "",
    formulations: Annotated[str, typer.Option(help="Such as primal,dual,projection.")] = "",
    classes: Annotated[str, typer.Option(help="Such as allocation,ridge; all by default.")] = "",
    sizes: Annotated[str, typer.Option(help="Sellers, rows or points.")] = "100,1000",
    draws: Annotated[int, typer.Option(help="Instances of each problem and size.")] = 3,
    settings: Annotated[str, typer.Option(help="default, solver-default, low, mid, high.")] = "",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = _STUDY,
    time_limit: Annotated[float, typer.Option(help="Seconds of a run.")] = 60.0,
    memory_limit: Annotated[float, typer.Option(help="Megabytes of a run.")] = 4_000.0,
    jobs: Annotated[int, typer.Option(help="Runs at a time, -1: one per core.")] = -1,
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help="Bind each run to one core.")] = True,
    seed: Annotated[int, typer.Option(help="Of the instances and of the order of runs.")] = 0,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Solvers compared",
    plugin: Annotated[list[str] | None, _PLUGIN] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also repeat recorded runs.")] = False,
    show: Open = False,
    formats: Formats = "",
) -> None:
    """Compare solvers and formulations on the subproblems of problem files.

    The same command resumes an interrupted comparison: each run is recorded next to the report's
    folder, in out/study.runs.jsonl. A file of kind "solvers" states the same options.
    """
    from convexmarket.studies.files.loading import subproblems_of
    from convexmarket.studies.files.solvers import entries_of
    from convexmarket.studies.solvers import DEFAULT_SOLVERS, compare_solvers

    with errors_in_one_line():
        chosen = {name: name for name in _names(solvers) or DEFAULT_SOLVERS} | _plugins(
            plugin or []
        )
        _check_folder(folder)
        entries = entries_of(tuple(problems), subproblems_of)
        with _resumable(folder, fresh) as journal:
            runs = compare_solvers(
                entries,
                solvers=chosen,
                formulations=_names(formulations),
                classes=_names(classes),
                sizes=_integers("--sizes", sizes),
                draws=draws,
                settings=_names(settings) or ("default",),
                time_limit=time_limit,
                memory_limit=memory_limit,
                jobs=jobs,
                pin=pin,
                seed=seed,
                journal=journal,
            )
        for text in runs.statements()[1:]:
            say(text)
        report = runs.report(title)
        page = report.write(folder, ("md", "html", *formats))
    print_report(report, page, show)


def run_file(
    problem: ProblemFile, folder: Path, *, fresh: bool = False, formats: Any = ()
) -> tuple[Report, Path]:
    """Run a problem, or resume it; return its report and the page that is written."""
    from convexmarket.studies.files.loading import subproblems_of
    from convexmarket.studies.files.reports import report_of

    _check_folder(folder)
    with _resumable(folder, fresh) as journal:
        runs = problem.perform(subproblems_of, journal=journal)
    for text in runs.statements()[1:]:
        say(text)
    report = report_of(problem, runs)
    page = report.write(folder, ("md", "html", *formats))
    if not problem.keeps_journal:
        journal_of(folder).unlink(missing_ok=True)
    return report, page


def journal_of(folder: Path) -> Path:
    """Return the journal that belongs to the folder of a report."""
    return folder.parent / f"{folder.name}.runs.jsonl"


@contextmanager
def _resumable(folder: Path, fresh: bool) -> Iterator[Path]:
    """Name the journal; print how to resume when the user interrupts."""
    journal = journal_of(folder)
    if fresh:
        journal.unlink(missing_ok=True)
    try:
        yield journal
    except KeyboardInterrupt:
        if not journal.exists():
            raise
        say(f"Stopped. Finished runs are in {journal}; the same command resumes there.", to=err)
        raise typer.Exit(INTERRUPTED) from None


def _check_folder(folder: Path) -> None:
    from convexmarket.io import check_place
    from convexmarket.report.document import check_folder

    check_folder(folder)
    check_place(folder, folder=True)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(name) for name in _names(text)]
    except ValueError:
        raise ParameterError(
            f"{option} must be whole numbers with commas between them: 100,1000, got {text!r}"
        ) from None


def _plugins(given: list[str]) -> dict[str, Any]:
    """Return the solvers that ``NAME=module:Class`` names."""
    from convexmarket.studies.plugins import load_plugin

    solvers = {}
    for text in given:
        name, _, place = text.partition("=")
        module, _, attribute = place.partition(":")
        if not (name and module and attribute):
            raise ParameterError(
                "--plugin must be NAME=module:Class, where the class is a solver interface of "
                f"CVXPY, got {text!r}"
            )
        solvers[name] = load_plugin(place)()
    return solvers
