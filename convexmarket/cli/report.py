"""The command ``convexmarket report``: reports from the results that are stored in them."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.markup import escape
from rich.table import Table

from convexmarket.cli.compare import run_file
from convexmarket.cli.consoles import Force, Formats, err, errors_in_one_line, out, progress_bars
from convexmarket.cli.ending import BUG, DONE, PARTLY, memory_ended, reason
from convexmarket.errors import ConvexMarketError, DataError, ParameterError

__all__ = ["REPORT_EXAMPLES", "report_command"]

REPORT_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket report out/wdbc

  convexmarket report out/wdbc --formats csv,pdf --out somewhere/else

  convexmarket report --index reports --force

  convexmarket report --all --force

The first two write a report again from its results.json, without running anything; the second \
with its tables as CSV and its figures as PDF. The last one \
does so for every problem file, and runs those whose file has changed, or which have no report yet.
"""

#: What a folder with data calls its problem file; its report has the folder's name.
IN_FOLDER = "market.toml"
#: From so many reports on, rendering side by side is worth the start of other processes.
MANY_REPORTS = 8


@dataclass(frozen=True)
class Outcome:
    """What became of one problem's report."""

    name: str
    done: Literal["rendered", "run", "failed"]
    why: str
    seconds: float
    code: int = DONE


def report_command(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of a report.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for the report.", show_default="where it is"),
    ] = None,
    index: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write an index of the reports in a folder."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Write the reports of all problem files, and an index.")
    ] = False,
    problems: Annotated[
        Path | None, typer.Option(help="Where the problem files are.", show_default="problems")
    ] = None,
    reports: Annotated[
        Path | None, typer.Option(help="Where the reports are.", show_default="reports")
    ] = None,
    rerun: Annotated[
        bool | None, typer.Option("--rerun", help="Run every problem again.", show_default=False)
    ] = None,
    formats: Formats = "",
    force: Force = False,
) -> None:
    """Write reports again from their results, without running what gave them."""
    from convexmarket.io import check_place
    from convexmarket.lab.report.index import write_index
    from convexmarket.lab.report.render import check_replaceable

    with errors_in_one_line():
        if [folder is not None, index is not None, everything].count(True) != 1:
            raise ParameterError("give one of: the folder of a report, --index DIR, --all")
        if folder is None and target is not None:
            raise ParameterError("--out goes with the folder of a report")
        if folder is not None and force:
            raise ParameterError("--force goes with --index and --all")
        for name, given in (("problems", problems), ("reports", reports), ("rerun", rerun)):
            if given is not None and not everything:
                raise ParameterError(f"--{name} goes with --all")
        if everything:
            _all(problems or Path("problems"), reports or Path("reports"), bool(rerun), force)
            return
        if target is not None:
            check_replaceable(target.resolve())
            check_place(target, folder=True)
        if folder is not None:
            page = _rewrite(folder, target, formats)
        elif index is not None:
            page = write_index(index, force=force)
    out.print(f"Wrote {page}", highlight=False, soft_wrap=True, markup=False)


# ------------------------------------------------------------------------------- all of them


def report_names(problems: Path) -> dict[str, Path]:
    """Return every problem file of a folder by the name of its report.

    A file is named after itself, ``wdbc.toml``; with data next to it, after the folder they are
    in, ``online-clinic/market.toml``.

    Raises
    ------
    ParameterError
        If there is none, or two have the same name.
    """
    files = sorted([*problems.glob("*.toml"), *problems.glob(f"*/{IN_FOLDER}")])
    names: dict[str, Path] = {}
    for file in files:
        name = file.parent.name if file.name == IN_FOLDER else file.stem
        if name in names:
            raise ParameterError(f"{names[name]} and {file} would have the same report, {name}")
        names[name] = file
    if not names:
        raise ParameterError(f"there are no problem files in {problems}; give --problems DIR")
    return names


def _all(problems: Path, reports: Path, rerun: bool, force: bool) -> None:
    """Write all reports and their index; what fails is told at the end, and by the exit code."""
    from convexmarket.io import check_place
    from convexmarket.lab.report.index import write_index

    names = report_names(problems)
    for name in ("index.html", "README.md"):
        check_place(reports / name, "--reports", force=force)
    rendered = {} if rerun else _rendered(names, reports)
    outcomes = []
    for number, (name, file) in enumerate(names.items(), start=1):
        err.print(f"{number} of {len(names)}: {escape(name)}", highlight=False)
        outcomes.append(rendered.get(name) or _one(name, file, reports / name, rerun))
    page = write_index(reports, force=force)
    out.print(_outcome_table(outcomes))
    done = [outcome.done for outcome in outcomes]
    out.print(
        f"{len(done)} reports: {done.count('rendered')} rendered, {done.count('run')} run, "
        f"{done.count('failed')} failed.",
        highlight=False,
    )
    out.print(f"Wrote {page}", highlight=False, soft_wrap=True, markup=False)
    codes = {outcome.code for outcome in outcomes}
    if codes != {DONE}:
        raise typer.Exit(BUG if BUG in codes else PARTLY)


def _rendered(names: dict[str, Path], reports: Path) -> dict[str, Outcome]:
    """Render many reports side by side where that needs no run; the others are left out."""
    from joblib import Parallel, delayed

    if len(names) < MANY_REPORTS:
        return {}
    calls = (
        delayed(_one)(name, file, reports / name, rerun=False, may_run=False)
        for name, file in names.items()
    )
    with progress_bars() as advance:
        done = []
        for outcome in Parallel(n_jobs=-1, return_as="generator")(calls):
            done.append(outcome)
            advance("reports", len(done), len(names))
    return {outcome.name: outcome for outcome in done if outcome.done == "rendered"}


def _one(name: str, file: Path, folder: Path, rerun: bool, may_run: bool = True) -> Outcome:
    start, code = time.perf_counter(), DONE
    done: Literal["rendered", "run", "failed"]
    try:
        problem = _load(file)
        outdated = "as --rerun says" if rerun else _outdated(problem, folder)
        if not outdated:
            try:
                _rewrite(folder)
            except DataError as error:  # results of another version
                outdated = str(error)
        if outdated and may_run:
            _run(problem, folder, rerun)
        done, why = "run" if outdated else "rendered", outdated or "from its results.json"
    except typer.Exit:  # stopped by hand
        raise
    except Exception as error:  # the other reports are written all the same
        done, why, code = "failed", *_failure(error)
    return Outcome(name, done, why, time.perf_counter() - start, code)


def _load(file: Path) -> Any:
    from convexmarket.lab.problem.loading import load_problem
    from convexmarket.studies.files.loading import KINDS, kind_of, load_file

    return load_file(file) if kind_of(file) in KINDS else load_problem(file)


def _rewrite(folder: Path, target: Path | None = None, formats: Any = ()) -> Path:
    """Write a report again from its results."""
    from convexmarket.lab import rewrite_report
    from convexmarket.report import read_report

    source = folder if folder.is_dir() else folder.parent
    with suppress(OSError), open(source / "results.json", "rb") as content:
        if b'"format": "convexmarket-report/' in content.read(100):
            return read_report(source).write(target or source, ("md", "html", *formats))
    return rewrite_report(folder, target, formats)


def _failure(error: Exception) -> tuple[str, int]:
    """Return what is told of a report that could not be written, and the exit code for it."""
    if isinstance(error, OSError):
        return reason(error), PARTLY
    if isinstance(error, MemoryError):
        return memory_ended(error), PARTLY
    if isinstance(error, ConvexMarketError):
        return str(error), PARTLY
    return f"{type(error).__name__}: {error} (a defect of convexmarket: please report it)", BUG


def _run(problem: Any, folder: Path, fresh: bool) -> None:
    from convexmarket.io import check_place
    from convexmarket.lab import run_problem, write_report
    from convexmarket.lab.report.render import check_replaceable
    from convexmarket.studies.files import ProblemFile

    check_replaceable(folder.resolve())
    check_place(folder, "--reports", folder=True)
    if isinstance(problem, ProblemFile):
        run_file(problem, folder, fresh=fresh)
        return
    with progress_bars() as advance:
        result = run_problem(problem, advance)
    write_report(result, folder)


def _outdated(problem: Any, folder: Path) -> str:
    """Say why the results in a folder are not those of this very problem file, if they are not.

    Data files that a problem names are not compared.
    """
    from convexmarket.lab.report.results import read_results
    from convexmarket.report import read_report
    from convexmarket.studies.files import ProblemFile

    if not folder.exists():
        return "it had no report"
    try:
        if isinstance(problem, ProblemFile):
            stored = read_report(folder).settings.get("problem file", {})
            text, overrides = stored.get("text"), stored.get("overrides")
        else:
            source = read_results(folder).problem.source
            text, overrides = (source.text, source.overrides) if source else (None, ())
    except ConvexMarketError as error:
        return str(error)
    if text is None or problem.source is None or text != problem.source.text:
        return "the problem file has changed"
    return f"it was run with {', '.join(overrides)}" if overrides else ""


def _outcome_table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Reports", title_justify="left")
    for header, justify in (("report", "left"), ("done", "left"), ("seconds", "right")):
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("why")
    for outcome in outcomes:
        style = "bold red" if outcome.done == "failed" else None
        cells = (escape(outcome.name), outcome.done, f"{outcome.seconds:.1f}", escape(outcome.why))
        table.add_row(*cells, style=style)
    return table
