"""The command ``convexmarket report``: reports, their index, and audits of the guarantees."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from convexmarket.cli.audit import write_audit
from convexmarket.cli.compare import run_file
from convexmarket.cli.consoles import Force, Formats, err, errors_in_one_line, progress_bars, say
from convexmarket.cli.ending import PARTLY, memory_ended, reason
from convexmarket.errors import ConvexMarketError, ParameterError

__all__ = ["REPORT_EXAMPLES", "report_command"]

REPORT_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket report out/wdbc --formats csv,tex --out somewhere/else

  convexmarket report --index reports --force

  convexmarket report --all --force

  convexmarket report --audit

  convexmarket report --audit --seed 7 --mechanism PersonalizedRidge --out audit.json

The first one writes a report again from its results.json, without running anything. --all \
runs every problem file in problems/ that has changed since its report, and writes the index.

--audit runs every learner and release on the Wisconsin breast-cancer data under attack, which \
takes two to three minutes: the largest measured privacy loss, and the guarantee. An audit \
refutes a guarantee, or it does not; it never proves one. The exit code is 3 where a guarantee was \
refuted. For a mechanism of your own: convexmarket.audit_privacy.
"""

#: The name of a problem file next to its data; its report has the folder's name.
IN_FOLDER = "market.toml"


def report_command(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="Folder of a report.", show_default=False)
    ] = None,
    target: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Folder for the report, or CSV or JSON file for --audit.",
            show_default="where it is",
        ),
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
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Attack the privacy guarantees of learners and releases."),
    ] = False,
    seed: Annotated[
        int | None,
        typer.Option(help="Of the attacks: weights, starts and noise.", min=0, show_default="0"),
    ] = None,
    mechanisms: Annotated[
        list[str] | None,
        typer.Option(
            "--mechanism",
            metavar="NAME",
            help="Audit only this learner or release. Repeatable.",
            show_default="all",
        ),
    ] = None,
    formats: Formats = "",
    force: Force = False,
) -> None:
    """Write reports again from their results, all reports, or their index; or audit guarantees."""
    from convexmarket.io import check_place
    from convexmarket.report import read_report, write_index
    from convexmarket.report.document import check_folder

    with errors_in_one_line():
        if [folder is not None, index is not None, everything, audit].count(True) != 1:
            raise ParameterError("give one of: the folder of a report, --index DIR, --all, --audit")
        if folder is None and not audit and target is not None:
            raise ParameterError("--out goes with the folder of a report, or with --audit")
        if not audit and (seed is not None or mechanisms):
            name = "--seed" if seed is not None else "--mechanism"
            raise ParameterError(f"{name} goes with --audit")
        for name, given in (("problems", problems), ("reports", reports), ("rerun", rerun)):
            if given is not None and not everything:
                raise ParameterError(f"--{name} goes with --all")
        if audit:
            write_audit(seed or 0, target, mechanisms or (), force)
            return
        if everything:
            _all(problems or Path("problems"), reports or Path("reports"), bool(rerun), force)
            return
        if index is not None:
            page = write_index(index, force=force)
        elif folder is not None:
            if target is not None:
                check_folder(target, force=force)
                check_place(target, folder=True)
            report = read_report(folder)
            place = target or (folder if folder.is_dir() else folder.parent)
            check_folder(place, force=force)
            page = report.write(place, ("md", "html", *formats), force)
    say(f"Wrote {page}")


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
    """Run the problem files that changed and write the index; failures decide the exit code."""
    from convexmarket.io import check_place
    from convexmarket.report import write_index

    names = report_names(problems)
    for name in ("index.html", "README.md"):
        check_place(reports / name, "--reports", force=force)
    failed = 0
    for number, (name, file) in enumerate(names.items(), start=1):
        err.print(f"{number} of {len(names)}: {escape(name)}", highlight=False)
        try:
            problem = _load(file)
            outdated = "--rerun was given" if rerun else _outdated(problem, reports / name)
            if outdated:
                _run(problem, reports / name, rerun)
            say(f"{name}: {f'run, as {outdated}' if outdated else 'up to date'}")
        except (ConvexMarketError, OSError, MemoryError) as error:  # the others are still written
            failed += 1
            why = memory_ended(error) if isinstance(error, MemoryError) else str(error)
            say(f"{name}: failed: {reason(error) if isinstance(error, OSError) else why}")
    say(f"{len(names)} reports, {failed} failed. Wrote {write_index(reports, force=force)}")
    if failed:
        raise typer.Exit(PARTLY)


def _load(file: Path) -> Any:
    from convexmarket.lab import load_problem
    from convexmarket.studies.files.loading import KINDS, kind_of, load_file

    return load_file(file) if kind_of(file) in KINDS else load_problem(file)


def _run(problem: Any, folder: Path, fresh: bool) -> None:
    from convexmarket.lab import report_of, run_problem
    from convexmarket.report.document import check_folder
    from convexmarket.studies.files import ProblemFile

    check_folder(folder)
    if isinstance(problem, ProblemFile):
        run_file(problem, folder, fresh=fresh)
        return
    with progress_bars() as advance:
        result = run_problem(problem, advance)
    report_of(result).write(folder)


def _outdated(problem: Any, folder: Path) -> str:
    """Return why the report in a folder is not of this very problem file, or nothing.

    Data files that a problem names are not compared.
    """
    from convexmarket.report import read_report

    if not folder.exists():
        return "it had no report"
    try:
        stored = read_report(folder).settings.get("problem file") or {}
    except ConvexMarketError as error:
        return str(error)
    if problem.source is None or stored.get("text") != problem.source.text:
        return "the problem file has changed"
    if stored.get("overrides"):
        return f"it was run with {', '.join(stored['overrides'])}"
    return ""
