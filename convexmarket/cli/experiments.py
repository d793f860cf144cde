"""The commands ``convexmarket run``, ``compare``, ``report`` and ``diff``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from convexmarket.cli import consoles as ui
from convexmarket.errors import ConvexMarketError, ParameterError

if TYPE_CHECKING:
    from convexmarket.report import Report
    from convexmarket.studies.files import ProblemFile
    from convexmarket.studies.runs import Runs


def run(
    file: Annotated[Path, typer.Argument(help="Problem file, such as problems/wdbc.toml.")],
    settings: ui.Settings = None,
    folder: Annotated[ui.File, typer.Option("--out", help="Folder for the report.")] = None,
    jobs: Annotated[int | None, typer.Option(help="Parallel jobs; -1 for all cores.")] = None,
    show: ui.Open = False,
    formats: ui.Formats = "",
) -> None:
    """Run the experiment of a problem file and write its report.

    The report is a folder. Its index.html opens in any browser without a network.
    """
    from convexmarket.studies.files import load_file

    with ui.errors_in_one_line():
        workers = [] if jobs is None else [f"run.jobs={jobs}"]
        problem = load_file(file, [*(settings or ()), *workers])
        if (cores := problem.run.workers) < problem.run.jobs:
            ui.say(f"run.jobs is {problem.run.jobs}, limited to the {cores} cores", to=ui.err)
        report, page = run_file(problem, folder or Path("out", file.stem), formats=formats)
    ui.print_report(report, page, show)


def compare_command(
    problems: Annotated[list[str], typer.Argument(help="Files or problem classes such as ridge.")],
    solvers: Annotated[Any, ui.list_of(str, "CVXPY solvers, or exact for our methods.")] = "",
    formulations: Annotated[Any, ui.list_of(str, "Such as primal,dual,projection.")] = "",
    classes: Annotated[Any, ui.list_of(str, "Problem classes; all classes by default.")] = "",
    sizes: Annotated[Any, ui.list_of(int, "Numbers of sellers, rows or points.")] = "100,1000",
    draws: Annotated[int, typer.Option(help="Instances of each problem and size.")] = 3,
    folder: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path(
        "out/study"
    ),
    time_limit: Annotated[float, typer.Option(help="Time limit of a run in seconds.")] = 60.0,
    jobs: Annotated[int, typer.Option(help="Parallel runs; -1 for one per core.")] = -1,
    fresh: Annotated[bool, typer.Option("--fresh", help="Also repeat recorded runs.")] = False,
    show: ui.Open = False,
    formats: ui.Formats = "",
) -> None:
    """Compare solvers and formulations on the subproblems of problem files.

    The same command resumes an interrupted comparison, because each run is recorded next to the
    report's folder, in out/study.runs.jsonl. Problem files of kind "solvers" have more options.
    """
    from convexmarket.studies.files.loading import subproblems_of
    from convexmarket.studies.files.solvers import entries_of
    from convexmarket.studies.solver_study import DEFAULT_SOLVERS, compare_solvers

    with ui.errors_in_one_line():
        ui.check_report_folder(folder)
        work = partial(
            compare_solvers,
            entries_of(problems, subproblems_of),
            solvers=solvers or DEFAULT_SOLVERS,
            formulations=formulations,
            classes=classes,
            sizes=sizes,
            draws=draws,
            time_limit=time_limit,
            jobs=jobs,
        )
        runs = _resumable(work, folder, fresh)
        report = runs.report("Solvers compared")
        page = report.write(folder, formats)
    ui.print_report(report, page, show)


def run_file(
    problem: ProblemFile, folder: Path, *, fresh: bool = False, formats: Any = ()
) -> tuple[Report, Path]:
    """Run or resume a problem, and return its report and the written page."""
    from convexmarket.studies.files.loading import subproblems_of

    ui.check_report_folder(folder)
    runs = _resumable(partial(problem.perform, subproblems_of), folder, fresh)
    report = problem.report(runs)
    page = report.write(folder, formats)
    if not problem.keeps_journal:
        journal_of(folder).unlink(missing_ok=True)
    return report, page


def journal_of(folder: Path) -> Path:
    """Return the journal that belongs to the folder of a report."""
    return folder.parent / f"{folder.name}.runs.jsonl"


def _resumable(work: Callable[..., Runs], folder: Path, fresh: bool) -> Runs:
    """Perform runs with a journal, and print their statements or, if interrupted, how to resume."""
    journal = journal_of(folder)
    if fresh:
        journal.unlink(missing_ok=True)
    try:
        runs = work(journal=journal)
    except KeyboardInterrupt:
        if not journal.exists():
            raise
        ui.say(f"Stopped. The same command resumes with the runs in {journal}.", to=ui.err)
        raise typer.Exit(ui.INTERRUPTED) from None
    for text in runs.statements()[1:]:
        ui.say(text)
    return runs


def report_command(
    folder: Annotated[ui.File, typer.Argument(metavar="DIR", help="Folder of a report.")] = None,
    target: Annotated[ui.File, typer.Option("--out", help="Folder, or file for --audit.")] = None,
    index: Annotated[ui.File, typer.Option(help="Folder of reports to index.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Update all reports.")] = False,
    problems: Annotated[ui.File, typer.Option(help="Problem files for --all.")] = None,
    reports: Annotated[ui.File, typer.Option(help="Folder of reports for --all.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="Run every problem again.")] = False,
    audit: Annotated[bool, typer.Option("--audit", help="Attack all privacy guarantees.")] = False,
    mechanism: Annotated[list[str] | None, typer.Option(help="Mechanism for --audit.")] = None,
    formats: ui.Formats = "",
    force: ui.Force = False,
) -> None:
    """Rewrite a report, all reports or their index, or audit privacy guarantees.

    --all runs the problem files that have changed since their report. --audit takes two to three
    minutes, and its exit code is 3 if a guarantee is refuted.
    """
    from convexmarket.report import read_report, write_index

    with ui.errors_in_one_line():
        if [folder is not None, index is not None, every, audit].count(True) != 1:
            raise ParameterError("give one of: the folder of a report, --index DIR, --all, --audit")
        ui.needs("the folder of a report, or with --audit", folder or audit, out=target)
        ui.needs("--audit", audit, mechanism=mechanism)
        ui.needs("--all", every, problems=problems, reports=reports, rerun=rerun)
        if audit:
            _audit(mechanism or [], target, force)
        elif every:
            _all(problems or Path("problems"), reports or Path("reports"), rerun, force)
        elif index is not None:
            ui.say(f"Wrote {write_index(index, force=force)}")
        elif folder is not None:
            if target is not None:
                ui.check_report_folder(target, force=force)
            report = read_report(folder)  # reading a report can restore its folder
            place = target or (folder if folder.is_dir() else folder.parent)
            ui.say(f"Wrote {report.write(place, formats, force)}")


def report_names(problems: Path) -> dict[str, Path]:
    """Map names of reports to their problem files ``NAME.toml`` or ``NAME/market.toml``."""
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
    """Run changed problem files, and write the index. The exit code is 3 if any file fails."""
    from convexmarket.io import check_place
    from convexmarket.report import write_index
    from convexmarket.studies.files import load_file

    names, failed = report_names(problems), 0
    for name in ("index.html", "README.md"):
        check_place(reports / name, "--reports", force=force)
    for number, (name, file) in enumerate(names.items(), start=1):
        ui.say(f"{number} of {len(names)}: {name}", to=ui.err)
        try:
            problem = load_file(file)
            if outdated := "--rerun was given" if rerun else _outdated(problem, reports / name):
                run_file(problem, reports / name, fresh=rerun)
            ui.say(f"{name}: {f'run, because {outdated}' if outdated else 'up to date'}")
        except (ConvexMarketError, OSError, MemoryError) as error:  # continue with the other files
            failed += 1
            ui.say(f"{name}: failed: {ui.reason(error)}")
    ui.say(f"{len(names)} reports, {failed} failed. Wrote {write_index(reports, force=force)}")
    if failed:
        raise typer.Exit(ui.PARTLY)


def _outdated(problem: Any, folder: Path) -> str:
    """Explain why a report is out of date, or return an empty string."""
    from convexmarket.report import read_report

    if not folder.exists():
        return "it had no report"
    try:
        stored = read_report(folder).settings.get("problem file") or {}
    except ConvexMarketError as error:
        return str(error)
    if stored.get("text") != problem.source.text:
        return "the problem file has changed"
    return f"it was run with {', '.join(changes)}" if (changes := stored["overrides"]) else ""


def _audit(mechanisms: list[str], file: Path | None, force: bool) -> None:
    """Attack guarantees, print the measured losses, and exit with 3 if a guarantee is refuted."""
    from convexmarket.attacks.mechanisms import audit_mechanisms
    from convexmarket.io import check_place
    from convexmarket.studies.progress import ProgressLines

    if file is not None:
        ui.check_ending(file)
        check_place(file, force=force)
    table = audit_mechanisms(0, mechanisms, progress=ProgressLines())
    refuted = table[~table["passed"]]
    names = ["mechanism", "settings", "method", "claimed", "measured", "ratio", "passed"]
    ui.print_table("Audits", table, names)
    largest = f"the largest measured loss is {table['ratio'].max():.3f} of its guarantee"
    counted = f"{len(refuted)} of {len(table)} guarantees refuted; {largest}."
    ui.say("\n".join([counted, *refuted["statement"]]))
    if file is not None:
        ui.write_table(table, file, force=force)
    if len(refuted):
        raise typer.Exit(ui.PARTLY)


def diff_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a report, or results.json.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The other report.")],
    tolerance: Annotated[float, typer.Option(help="Relative tolerance for numbers.")] = 1e-9,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 on a difference.")] = False,
    as_json: ui.AsJson = False,
) -> None:
    """Print the differences between two reports in settings, versions and results, except times."""
    from convexmarket.report import compare_reports

    with ui.errors_in_one_line():
        changes = compare_reports(a, b, tolerance=tolerance)
    same = not (changes.part == "result").any()
    if as_json:
        ui.print_json({"same": same, "differences": changes})
    else:
        counts = ", ".join(f"{n:,} {part}s" for part, n in changes.part.value_counts().items())
        ui.say(f"Differences, except times: {counts or 'nothing'}.")
        ui.print_table(f"First of {len(changes):,} differences", changes.head(20), [*changes])
    if exit_code and not same:
        raise typer.Exit(1)
