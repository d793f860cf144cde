"""``convexmarket compare``: solvers and formulations, side by side."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import Formats, err, errors_in_one_line, out, progress_bars
from convexmarket.errors import ParameterError

if TYPE_CHECKING:
    from convexmarket.report import Report
    from convexmarket.studies.files import ProblemFile
    from convexmarket.studies.runs import Runs


__all__ = ["COMPARE_EXAMPLES", "compare", "journal_of", "run_file"]

COMPARE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket compare problems/wdbc.toml

  convexmarket compare allocation ridge --solvers exact,CLARABEL,ECOS,SCS,OSQP,HIGHS \
--formulations primal,dual,projection --sizes 100,1000,10000 --draws 5 \
--settings default,low,high --out out/study

  convexmarket compare problems/wdbc.toml --classes allocation --plugin MINE=mypackage.solver:Mine

The same command resumes an interrupted comparison: each run is recorded next to the report's \
folder, in out/study.runs.jsonl. A file of kind "solvers" states the same options; run it with \
[bold]convexmarket run[/bold].
"""


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _integers(option: str, text: str) -> list[int]:
    try:
        return [int(name) for name in _names(text)]
    except ValueError:
        raise ParameterError(
            f"{option} must be whole numbers with commas between them: 100,1000, got {text!r}"
        ) from None


def _plugins(given: Sequence[str]) -> dict[str, Any]:
    """Return the solvers that ``NAME=module:Class`` names."""
    from convexmarket.studies.plugins import load_plugin

    solvers = {}
    for text in given:
        name, equals, place = text.partition("=")
        module, colon, attribute = place.partition(":")
        if not (equals and colon and name and module and attribute):
            raise ParameterError(
                "--plugin must be NAME=module:Class, where the class is a solver interface of "
                f"CVXPY, got {text!r}"
            )
        solvers[name] = load_plugin(place)()
    return solvers


def compare(
    problems: Annotated[
        list[str],
        typer.Argument(help="Problem files, or classes of subproblems such as allocation."),
    ],
    solvers: Annotated[
        str,
        typer.Option(
            help="CVXPY's names, and exact for the package's methods.",
            show_default="exact, CLARABEL, ECOS, SCS, OSQP, HIGHS",
        ),
    ] = "exact,CLARABEL,ECOS,SCS,OSQP,HIGHS",
    formulations: Annotated[
        str | None, typer.Option(help="Such as primal,dual,projection.", show_default="all")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Such as allocation,ridge.", show_default="all")
    ] = None,
    sizes: Annotated[str, typer.Option(help="Sellers, rows or points.")] = "100,1000",
    draws: Annotated[int, typer.Option(help="Instances of each problem and size.")] = 3,
    settings: Annotated[
        str, typer.Option(help="default (CVXPY's options), solver-default, low, mid, high.")
    ] = "default",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path(
        "out/study"
    ),
    seconds: Annotated[float, typer.Option("--time-limit", help="Seconds of a run.")] = 60.0,
    megabytes: Annotated[
        float, typer.Option("--memory-limit", help="Megabytes of a run.")
    ] = 4_000.0,
    jobs: Annotated[int, typer.Option(help="Runs at a time, -1: one per core.")] = -1,
    pin: Annotated[bool, typer.Option("--pin/--no-pin", help="Bind each run to one core.")] = True,
    seed: Annotated[int, typer.Option(help="Of the instances and of the order of runs.")] = 0,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Solvers compared",
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=module:Class", help="A solver of your own. Repeatable."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Repeat all runs, also those recorded.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
    formats: Formats = "",
) -> None:
    """Compare solvers and formulations on the subproblems of problem files."""
    from convexmarket.io import check_place
    from convexmarket.report.document import check_folder
    from convexmarket.studies.files.loading import subproblems_of
    from convexmarket.studies.files.solvers import entries_of
    from convexmarket.studies.solvers import compare_solvers

    with errors_in_one_line():
        chosen = {name: name for name in _names(solvers)} | _plugins(plugin or [])
        check_folder(folder)
        check_place(folder, folder=True)
        entries = entries_of(tuple(problems), subproblems_of)
        with _resumable(folder, fresh) as journal, progress_bars() as advance:
            runs = compare_solvers(
                entries,
                solvers=chosen,
                formulations=_names(formulations),
                classes=_names(classes),
                sizes=_integers("--sizes", sizes),
                draws=draws,
                settings=_names(settings),
                time_limit=seconds,
                memory_limit=megabytes,
                jobs=jobs,
                pin=pin,
                seed=seed,
                journal=journal,
                progress=advance,
            )
        page = _written(runs, runs.report(title), folder, formats)
    if show:
        webbrowser.open(page.resolve().as_uri())


def run_file(problem: ProblemFile, folder: Path, *, fresh: bool = False, formats: Any = ()) -> Path:
    """Run a problem file, or resume it, and write its report.

    Parameters
    ----------
    problem : ProblemFile
    folder : pathlib.Path
    fresh : bool, default False
        Whether recorded runs are repeated.
    formats : collection of str

    Returns
    -------
    pathlib.Path
        The page.
    """
    from convexmarket.io import check_place
    from convexmarket.report.document import check_folder
    from convexmarket.studies.files.loading import subproblems_of
    from convexmarket.studies.files.reports import report_of

    check_folder(folder)
    check_place(folder, folder=True)
    with _resumable(folder, fresh) as journal, progress_bars() as advance:
        runs = problem.perform(subproblems_of, journal=journal, progress=advance)
    page = _written(runs, report_of(problem, runs), folder, formats)
    if not problem.keeps_journal:
        journal_of(folder).unlink(missing_ok=True)
    return page


def journal_of(folder: Path) -> Path:
    """Return the journal that belongs to the folder of a report."""
    return folder.parent / f"{folder.name}.runs.jsonl"


class _resumable:  # noqa: N801  a context manager
    """Name the journal; say how to resume when the user interrupts."""

    def __init__(self, folder: Path, fresh: bool) -> None:
        self.journal = journal_of(folder)
        if fresh:
            self.journal.unlink(missing_ok=True)

    def __enter__(self) -> Path:
        return self.journal

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is KeyboardInterrupt:
            err.print(
                f"Stopped. Finished runs are in {self.journal}; the same command resumes there.",
                highlight=False,
                soft_wrap=True,
                markup=False,
            )
            raise typer.Exit(130) from None


def _written(runs: Runs, report: Report, folder: Path, formats: Any) -> Path:
    page = report.write(folder, ("md", "html", *formats))
    for text in runs.statements():
        out.print(text, highlight=False, soft_wrap=True, markup=False)
    out.print(f"{len(runs.tables['runs']):,} runs. The report:", highlight=False)
    out.print(page, highlight=False, soft_wrap=True, markup=False)
    return page
