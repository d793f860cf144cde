"""``convexmarket compare``: solvers and formulations, side by side."""

from __future__ import annotations

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli.consoles import err, errors_in_one_line, out, print_finding, progress_bars
from convexmarket.errors import ParameterError

if TYPE_CHECKING:
    from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem


__all__ = ["COMPARE_EXAMPLES", "compare", "run_study"]

JOURNAL = "runs.jsonl"

COMPARE_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket compare problems/wdbc.toml

  convexmarket compare problems/*.toml --solvers exact,CLARABEL,ECOS,SCS,OSQP,HIGHS \
--formulations primal,dual,projection --sizes 100,1000,10000 --seeds 5 \
--settings default,low,high --out out/study

  convexmarket compare problems/wdbc.toml --classes allocation --plugin MINE=mypackage.solver:Mine

The same command goes on where an interrupted study stopped: every run is on disk, in runs.jsonl, \
before the next one counts. A file of kind "solver-study" says the same as these options; run it \
with [bold]convexmarket run[/bold].
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


def _plugins(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, place = text.partition("=")
        module, colon, attribute = place.partition(":")
        if not (equals and colon and name and module and attribute):
            raise ParameterError(
                "--plugin must be NAME=module:Class, where the class is a solver interface of "
                f"CVXPY, got {text!r}"
            )
        found[name] = place
    return found


def compare(
    files: Annotated[list[Path], typer.Argument(help="Problem files whose subproblems to solve.")],
    solvers: Annotated[
        str | None,
        typer.Option(
            help="CVXPY's names, and exact for the package's own methods.",
            show_default="exact, CLARABEL, ECOS, SCS, OSQP, HIGHS",
        ),
    ] = None,
    formulations: Annotated[
        str | None, typer.Option(help="Such as primal,dual,projection.", show_default="all")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="Such as allocation,ridge.", show_default="all")
    ] = None,
    sizes: Annotated[str, typer.Option(help="Sellers, rows or points.")] = "100,1000",
    seeds: Annotated[int, typer.Option(help="Instances of each problem and size.")] = 3,
    settings: Annotated[
        str, typer.Option(help="default (what CVXPY asks), solver-default, low, mid, high.")
    ] = "default",
    folder: Annotated[Path, typer.Option("--out", help="Folder for the report.")] = Path(
        "out/study"
    ),
    seconds: Annotated[float, typer.Option("--time-limit", help="Seconds that a run has.")] = 60.0,
    megabytes: Annotated[
        float, typer.Option("--memory-limit", help="Megabytes that a run has.")
    ] = 4_000.0,
    jobs: Annotated[int, typer.Option(help="Runs at a time, -1: one per core.")] = -1,
    pin: Annotated[
        bool, typer.Option("--pin/--no-pin", help="Give every run a core of its own.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Of the instances and of the order of runs.")] = 0,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Solvers compared",
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=module:Class", help="A solver of your own. Repeatable."),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Make all runs anew, also those recorded.")
    ] = False,
    show: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the report in a browser.")
    ] = False,
) -> None:
    """Compare solvers and formulations on the subproblems of problem files."""
    from convexmarket.lab.kinds.solver_study.run import solver_study

    with errors_in_one_line():
        plugins = _plugins(plugin or [])
        problem = solver_study(
            files,
            solvers=None if solvers is None else _names(solvers),
            formulations=_names(formulations),
            classes=_names(classes),
            sizes=_integers("--sizes", sizes),
            seeds=seeds,
            settings=_names(settings),
            seconds=seconds,
            megabytes=megabytes,
            jobs=jobs,
            pin=pin,
            seed=seed,
            title=title,
        )
        page = run_study(problem, folder, plugins=plugins, fresh=fresh)
    if show:
        webbrowser.open(page.resolve().as_uri())


def run_study(
    problem: SolverStudyProblem,
    folder: Path,
    *,
    plugins: dict[str, str] | None = None,
    fresh: bool = False,
    formats: Any = (),
) -> Path:
    """Run a study, or the rest of it, with its journal in the report's folder; write the report."""
    from convexmarket.lab import report_of
    from convexmarket.lab.kinds.solver_study.run import run_solver_study
    from convexmarket.lab.study.journal import read_journal
    from convexmarket.lab.study.metrics import counted
    from convexmarket.report.document import check_folder
    from convexmarket.writing import check_place

    check_folder(folder)
    check_place(folder, folder=True)
    journal = folder / JOURNAL
    try:
        with progress_bars() as advance:
            result = run_solver_study(
                problem,
                advance,
                journal=journal,
                plugins=plugins,
                fresh=fresh,
            )
    except KeyboardInterrupt:
        err.print(
            f"Stopped. What was run is in {journal}; the same command goes on from there.",
            highlight=False,
            soft_wrap=True,
            markup=False,
        )
        raise typer.Exit(130) from None
    report = report_of(result)
    report.attach(JOURNAL, read_journal(journal))
    page = report.write(folder, ("md", "html", *formats))
    print_finding(report)
    if result.numbers["absent"]:
        out.print(
            f"Not installed, and left out: {', '.join(result.numbers['absent'])}.", markup=False
        )
    out.print(f"{len(counted(result.tables['runs'])):,} runs. The report:", highlight=False)
    out.print(page, highlight=False, soft_wrap=True, markup=False)
    return page
