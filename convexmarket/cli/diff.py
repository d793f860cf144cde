"""``convexmarket diff``: the differences between two reports."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convexmarket.cli.consoles import (
    AsJson,
    File,
    Formats,
    check_report_folder,
    errors_in_one_line,
    print_json,
    say,
)
from convexmarket.errors import ParameterError

#: Rows of a table that the terminal shows.
_ROWS = 10


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
                more = f", the first {_ROWS} of {len(frame):,}" if len(frame) > _ROWS else ""
                text = frame.head(_ROWS).to_string(index=False, max_colwidth=40)
                say(f"\n{title}{more}:\n{text}")
        if folder is not None:
            say(f"Wrote {page}")
    if exit_code and not changes.same:
        raise typer.Exit(1)
