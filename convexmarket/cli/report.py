"""``convexmarket report`` and ``diff``: reports, their index and differences; privacy audits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from convexmarket.cli.compare import run_file
from convexmarket.cli.consoles import (
    PARTLY,
    AsJson,
    File,
    Force,
    Formats,
    check_ending,
    check_report_folder,
    err,
    errors_in_one_line,
    needs,
    print_json,
    print_table,
    reason,
    say,
    write_table,
)
from convexmarket.errors import ConvexMarketError, ParameterError


def report_command(
    folder: Annotated[File, typer.Argument(metavar="DIR", help="Folder of a report.")] = None,
    target: Annotated[File, typer.Option("--out", help="Folder, or file for --audit.")] = None,
    index: Annotated[File, typer.Option(help="Write an index of the reports in a folder.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Reports of all problem files.")
    ] = False,
    problems: Annotated[File, typer.Option(help="With --all: the problem files.")] = None,
    reports: Annotated[File, typer.Option(help="With --all: the reports.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run every problem again.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Attack all privacy guarantees.")] = False,
    seed: Annotated[int | None, typer.Option(help="With --audit: of the attacks.", min=0)] = None,
    mechanism: Annotated[list[str] | None, typer.Option(help="With --audit: only this.")] = None,
    formats: Formats = "",
    force: Force = False,
) -> None:
    """Rewrite one report, all reports or their index from results; or audit guarantees.

    --all runs the problem files that have changed since their report. --audit takes two to three
    minutes; its exit code is 3 if a guarantee was refuted.
    """
    from convexmarket.report import read_report, write_index

    with errors_in_one_line():
        if [folder is not None, index is not None, everything, audit].count(True) != 1:
            raise ParameterError("give one of: the folder of a report, --index DIR, --all, --audit")
        needs("the folder of a report, or with --audit", folder or audit, out=target)
        needs("--audit", audit, seed=seed, mechanism=mechanism)
        needs("--all", everything, problems=problems, reports=reports, rerun=rerun)
        if audit:
            _audit(seed or 0, mechanism or [], target, force)
        elif everything:
            _all(problems or Path("problems"), reports or Path("reports"), rerun, force)
        elif index is not None:
            say(f"Wrote {write_index(index, force=force)}")
        elif folder is not None:
            if target is not None:
                check_report_folder(target, force=force)
            report = read_report(folder)  # it may restore the folder
            place = target or (folder if folder.is_dir() else folder.parent)
            say(f"Wrote {report.write(place, ('md', 'html', *formats), force)}")


def report_names(problems: Path) -> dict[str, Path]:
    """List the problem files of a folder by the names of their reports.

    These are ``wdbc`` for ``wdbc.toml``, and ``clinic`` for ``clinic/market.toml`` with its data.
    """
    names: dict[str, Path] = {}
    for file in sorted([*problems.glob("*.toml"), *problems.glob("*/market.toml")]):
        name = file.stem if file.parent == problems else file.parent.name
        if name in names:
            raise ParameterError(f"{names[name]} and {file} would have the same report, {name}")
        names[name] = file
    if not names:
        raise ParameterError(f"{problems} has no problem files; give --problems DIR")
    return names


def _all(problems: Path, reports: Path, rerun: bool, force: bool) -> None:
    """Run the problem files that changed and write the index; failures decide the exit code."""
    from convexmarket.io import check_place
    from convexmarket.report import write_index
    from convexmarket.studies.files import load_file

    names, failed = report_names(problems), 0
    for name in ("index.html", "README.md"):
        check_place(reports / name, "--reports", force=force)
    for number, (name, file) in enumerate(names.items(), start=1):
        say(f"{number} of {len(names)}: {name}", to=err)
        try:
            problem = load_file(file)
            outdated = "--rerun was given" if rerun else _outdated(problem, reports / name)
            if outdated:
                run_file(problem, reports / name, fresh=rerun)
            say(f"{name}: {f'run, as {outdated}' if outdated else 'up to date'}")
        except (ConvexMarketError, OSError, MemoryError) as error:  # the others are still written
            failed += 1
            say(f"{name}: failed: {reason(error)}")
    say(f"{len(names)} reports, {failed} failed. Wrote {write_index(reports, force=force)}")
    if failed:
        raise typer.Exit(PARTLY)


def _outdated(problem: Any, folder: Path) -> str:
    """Explain why a report is older than its problem file, or return an empty string."""
    from convexmarket.report import read_report

    if not folder.exists():
        return "it had no report"
    try:
        stored = read_report(folder).settings.get("problem file") or {}
    except ConvexMarketError as error:
        return str(error)
    if stored.get("text") != problem.source.text:
        return "the problem file has changed"
    changes = ", ".join(stored.get("overrides", ()))
    return f"it was run with {changes}" if changes else ""


def _audit(seed: int, mechanisms: list[str], file: Path | None, force: bool) -> None:
    """Attack the guarantees and print the measured losses; exit with 3 if one was refuted."""
    from convexmarket.attacks.mechanisms import audit_mechanisms
    from convexmarket.io import check_place
    from convexmarket.studies.progress import ProgressLines

    if file is not None:
        check_ending(file, "--out")
        check_place(file, force=force)
    table = audit_mechanisms(seed, mechanisms, progress=ProgressLines())
    refuted = table[~table["passed"]]
    names = ["mechanism", "settings", "method", "claimed", "measured", "ratio", "passed"]
    print_table("Audits", table, names)
    say(
        f"{len(refuted)} of {len(table)} guarantees refuted; the largest measured loss is "
        f"{table['ratio'].max():.3f} of its guarantee."
    )
    for statement in refuted["statement"]:
        say(statement)
    if file is not None:
        write_table(table, file, force=force)
    if len(refuted):
        raise typer.Exit(PARTLY)


def diff_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a report, or results.json.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    folder: Annotated[File, typer.Option("--out", help="Folder for a report.")] = None,
    tolerance: Annotated[float, typer.Option(help="Relative difference of equal numbers.")] = 1e-9,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if they differ.")
    ] = False,
    as_json: AsJson = False,
    formats: Formats = "",
) -> None:
    """Print the differences between two reports: settings, versions and results.

    Times and memory are compared by ratios and never count as a difference.
    """
    from convexmarket.report import compare_reports

    with errors_in_one_line():
        if folder is not None:
            for source in (a, b):
                place = source if source.is_dir() else source.parent
                if folder.resolve().is_relative_to(place.resolve()) or folder == source:
                    raise ParameterError(
                        f"--out {folder} is, or lies in, a compared report; name another one"
                    )
            check_report_folder(folder)
        changes = compare_reports(a, b, tolerance=tolerance)
        if folder is not None:
            page = changes.report({"a": a, "b": b}).write(folder, ("md", "html", *formats))
    if as_json:
        print_json(changes.as_data())
    else:
        say("\n".join(changes.statements()))
        for title, frame in (("Cells", changes.cells), ("Rows", changes.rows)):
            if len(frame):
                more = f", the first 10 of {len(frame):,}" if len(frame) > 10 else ""
                text = frame.head(10).to_string(index=False, max_colwidth=40)
                say(f"\n{title}{more}:\n{text}")
        if folder is not None:
            say(f"Wrote {page}")
    if exit_code and not changes.same:
        raise typer.Exit(1)
