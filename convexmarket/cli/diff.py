"""The command ``convexmarket diff``: what changed from one run to another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convexmarket.cli.consoles import AsJson, Formats, errors_in_one_line, out, print_json
from convexmarket.errors import ParameterError

__all__ = ["DIFF_EXAMPLES", "diff_command"]

DIFF_EXAMPLES = """
[bold]Examples[/bold]

  convexmarket diff out/wdbc out/capped

  convexmarket diff old/results.json new/results.json --out out/what-changed

  convexmarket diff out/wdbc again --tolerance 1e-6 --exit-code

Timings and memory are never a difference: they are compared by ratios.
"""


def diff_command(
    a: Annotated[Path, typer.Argument(metavar="A", help="Folder of a report, or results.json.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another, of the same kind of problem.")],
    folder: Annotated[Path | None, typer.Option("--out", help="Folder for a report.")] = None,
    tolerance: Annotated[
        float, typer.Option(help="Relative difference up to which two numbers are the same.")
    ] = 1e-9,
    exit_code: Annotated[
        bool, typer.Option("--exit-code", help="Exit with 1 if the results differ.")
    ] = False,
    as_json: AsJson = False,
    formats: Formats = "",
) -> None:
    """Say what changed between two runs: inputs, versions and results."""
    from convexmarket.io import check_place
    from convexmarket.lab import write_report
    from convexmarket.lab.report.diff import diff_results
    from convexmarket.lab.report.diff_report import diff_summary
    from convexmarket.lab.report.render import check_replaceable

    with errors_in_one_line():
        if folder is not None:
            for source in (a, b):
                _keep_apart(folder, source)
            check_replaceable(folder.resolve())
            check_place(folder, folder=True)
        found = diff_results(a, b, tolerance)
        page = None if folder is None else write_report(found, folder, formats)
    if as_json:
        print_json(found.as_data())
    else:
        out.print(*diff_summary(found), sep="\n")
        if page is not None:
            out.print(f"Wrote {page}", highlight=False, soft_wrap=True, markup=False)
    if exit_code and not found.same_results:
        raise typer.Exit(1)


def _keep_apart(target: Path, source: Path) -> None:
    """Refuse to write over what is being compared."""
    folder = source if source.is_dir() else source.parent
    if target.resolve() == source.resolve() or target.resolve().is_relative_to(folder.resolve()):
        raise ParameterError(
            f"{target} is one of the reports compared, or in it; write somewhere else"
        )
