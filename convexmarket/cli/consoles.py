"""Consoles, options and errors that all commands share."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from convexmarket.cli.ending import INTERRUPTED, WRONG, interrupts_as_usual, reason
from convexmarket.errors import ConvexMarketError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from convexmarket.report import Report

__all__ = [
    "AsJson",
    "File",
    "Force",
    "Formats",
    "IdColumn",
    "Open",
    "SensitivityColumn",
    "Settings",
    "Text",
    "check_ending",
    "err",
    "errors_in_one_line",
    "excludes",
    "needs",
    "print_json",
    "print_pairs",
    "print_report",
    "print_table",
    "say",
    "warn_of_reports",
    "write_table",
]

#: Formats of tables and figures that a report holds on request.
_FORMATS = ("csv", "tex", "svg", "pdf")


def _formats(given: str) -> tuple[str, ...]:
    wanted = [part.strip().lower() for part in given.split(",") if part.strip()]
    if unknown := set(wanted) - {*_FORMATS, "all"}:
        raise typer.BadParameter(f"{min(unknown)!r} is none of {', '.join(_FORMATS)}, all")
    return _FORMATS if "all" in wanted else tuple(wanted)


_ALSO = "Also write tables and figures in these formats."
_FORMAT = typer.Option(parser=_formats, metavar="csv,tex,svg,pdf|all", help=_ALSO)
Formats = Annotated[Any, _FORMAT]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")]
_SET = typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the file. Repeatable.")
Settings = Annotated[list[str] | None, _SET]
_ID = typer.Option(help="Column of the ids.", show_default="id, seller, ...")
IdColumn = Annotated[str | None, _ID]
_REPORTS = typer.Option(help="Column of the reports.", show_default="sensitivity, cost, ...")
SensitivityColumn = Annotated[str | None, _REPORTS]
File = Path | None
Text = str | None


_out, err = Console(), Console(stderr=True)


def say(text: object, *, to: Console = _out) -> None:
    """Print a line without colours, line breaks and characters that a terminal obeys."""
    from convexmarket.report import printable

    to.print(printable(str(text)), highlight=False, soft_wrap=True, markup=False)


def print_json(results: Any) -> None:
    """Print results as JSON, for ``--json``."""
    from convexmarket.report.results import plain

    typer.echo(json.dumps(plain(results), indent=2, ensure_ascii=True, allow_nan=False))


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print labels and values below one another."""
    from convexmarket.report.tables import format_cell

    width = max(map(len, pairs))
    for label, value in pairs.items():
        say(f"  {label:<{width}}  {format_cell(value):>12}")


def print_table(title: str, rows: pd.DataFrame | Sequence[Any], names: Sequence[str]) -> None:
    """Print columns of a table; nothing if it has no rows."""
    import pandas as pd

    from convexmarket.report.tables import format_cell

    frame = pd.DataFrame(rows)
    if len(frame):
        shown = frame[list(names)].map(format_cell)
        say(f"\n{title}\n{shown.to_string(index=False, max_colwidth=60)}")


def print_report(report: Report, page: Path, show: bool = False) -> None:
    """Print the title of a report, its finding, its claims and its place; open it on request."""
    say(report.title)
    if report.finding:
        say(report.finding)
    claims = [table.frame for table in report.tables if table.name == "claims"]
    for claim in claims[0].itertuples() if claims else ():
        say(f"- {claim.claim}: {claim.verdict}. {claim.detail}")
    say("The report:")
    say(page)
    if show:
        webbrowser.open(page.resolve().as_uri())


def write_table(table: pd.DataFrame, file: Path, *, force: bool) -> None:
    """Write a table as JSON, if the name of the file ends so, or as CSV; print its path."""
    from convexmarket.data.csv_cells import write_csv
    from convexmarket.io import Content, write_together
    from convexmarket.report.results import plain

    content: Content = lambda opened: write_csv(table, opened)  # noqa: E731
    if file.suffix.lower() == ".json":
        rows = plain(table.to_dict("records"))
        content = (json.dumps(rows, indent=2, ensure_ascii=False) + "\n").encode()
    write_together({file: content}, private=True, force=force)
    say(f"Wrote {file}")


def check_ending(file: Path, option: str) -> None:
    """Refuse a name of a file that ends in neither .csv nor .json."""
    if file.suffix.lower() not in (".csv", ".json"):
        raise ParameterError(f"{option} {file} is neither .csv nor .json; name such a file")


def warn_of_reports() -> None:
    """Print what epsilons and payments reveal; docs/threat-model.md has the numbers."""
    say(
        "Note: an epsilon or a payment reveals the report of its seller. If reports depend on the "
        "rows, it also reveals something of the row, which no guarantee covers.",
        to=err,
    )


def needs(option: str, given: object, **others: object) -> None:
    """Refuse options that have an effect only together with another one."""
    for flag in _given(others) if given in (None, False) else ():
        raise ParameterError(f"{flag} goes with {option}; give that, or leave {flag} out")


def excludes(option: str, **others: object) -> None:
    """Refuse options that have no effect together with another one."""
    for flag in _given(others):
        raise ParameterError(f"{option} and {flag} exclude each other; leave one of them out")


def _given(options: Mapping[str, object]) -> list[str]:
    given = [name for name, value in options.items() if value not in (None, False, [])]
    return [f"--{name.replace('_', '-')}" for name in given]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn errors of the package into a message and exit code 2; others are defects and pass."""
    interrupts_as_usual()
    try:
        yield
    except ConvexMarketError as error:
        message = str(error)
    except BrokenPipeError:  # of what is printed; the command ends as it does for any output
        raise
    except OSError as error:
        message = reason(error)
    except KeyboardInterrupt:
        say("stopped; what is on disk is complete, or as it was before", to=err)
        raise typer.Exit(INTERRUPTED) from None
    else:
        return
    from convexmarket.report import printable

    text = escape(printable(message))
    err.print(f"[bold red]error:[/bold red] [red]{text}[/red]", soft_wrap=True)
    raise typer.Exit(WRONG)
