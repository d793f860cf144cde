"""What all commands share: consoles, errors in one line, and progress bars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from convexmarket.cli.ending import INTERRUPTED, WRONG, interrupts_as_usual, reason
from convexmarket.errors import ConvexMarketError, ParameterError

if TYPE_CHECKING:
    from convexmarket.report import Report

__all__ = [
    "REPORTS_TELL",
    "AsJson",
    "Force",
    "Formats",
    "IdColumn",
    "SensitivityColumn",
    "Settings",
    "err",
    "errors_in_one_line",
    "excludes",
    "needs",
    "out",
    "pairs_table",
    "print_finding",
    "print_json",
    "progress_bars",
    "rows_table",
    "say",
]


#: What epsilons and payments reveal; docs/threat-model.md has the numbers.
REPORTS_TELL = (
    "Note: an epsilon or a payment tells what its seller reported. Where reports go with the rows,"
    " it tells of the row too, and no guarantee covers that."
)

#: What a report's folder holds only if it is asked for.
KINDS_OF_FILES = ("csv", "tex", "svg", "pdf")


def _formats(given: str) -> tuple[str, ...]:
    """Return the formats that a comma separates."""
    wanted = [part.strip().lower() for part in given.split(",") if part.strip()]
    for one in wanted:
        if one not in (*KINDS_OF_FILES, "all"):
            raise typer.BadParameter(f"{one!r} is none of {', '.join(KINDS_OF_FILES)}, all")
    return KINDS_OF_FILES if "all" in wanted else tuple(wanted)


Formats = Annotated[
    Any,
    typer.Option(
        parser=_formats,
        metavar="csv,tex,svg,pdf|all",
        help="Write tables and figures in these formats besides.",
        show_default=False,
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Replace an existing file.",
    ),
]

AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the file, written as in TOML. Repeatable.",
    ),
]
IdColumn = Annotated[
    str | None,
    typer.Option("--id-column", help="Column of the ids.", show_default="id, seller, ..."),
]
SensitivityColumn = Annotated[
    str | None,
    typer.Option(
        "--sensitivity-column",
        help="Column of the reported sensitivities.",
        show_default="sensitivity, cost, ...",
    ),
]


class PlainConsole(Console):
    """A console that shows texts from files: every command prints through it."""

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """Go through what is shown, without characters of its texts that a terminal would obey."""
        from convexmarket.report import printable

        for text, style, control in super().render(*arguments, **options):
            yield Segment(text if control else printable(text), style, control)


out = PlainConsole()
err = PlainConsole(stderr=True)


def say(text: str) -> None:
    """Print a line of text, without colours or line breaks."""
    out.print(text, highlight=False, soft_wrap=True, markup=False)


def print_json(results: Any) -> None:
    """Print results as JSON, for ``--json``."""
    from convexmarket.report.results import plain

    typer.echo(json.dumps(plain(results), indent=2, ensure_ascii=True, allow_nan=False))


def print_finding(report: Report) -> None:
    """Print the title of a report, its finding and its claims."""
    say(report.title)
    if report.finding:
        say(report.finding)
    claims = [table.frame for table in report.tables if table.name == "claims"]
    for claim in claims[0].itertuples() if claims else ():
        say(f"- {claim.claim}: {claim.verdict}. {claim.detail}")


def pairs_table(pairs: Iterable[tuple[str, str]], title: str = "") -> Table:
    """Return labels and values as a table without headings."""
    table = Table(title=Text(title), title_justify="left", show_header=False, box=SIMPLE_HEAD)
    table.add_column()
    table.add_column(justify="right")
    for label, value in pairs:
        table.add_row(Text(label), Text(value))
    return table


def rows_table(title: str, rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Table:
    """Return columns of rows as a table; numbers are aligned to the right."""
    from convexmarket.report.tables import format_cell

    table = Table(title=Text(title), title_justify="left", box=SIMPLE_HEAD)
    for name in names:
        numeric = all(isinstance(row[name], int | float) for row in rows)
        table.add_column(name.replace("_", " "), justify="right" if numeric else "left")
    for row in rows:
        values = {**row, "time": str(row.get("time", ""))[:16].replace("T", " ")}
        table.add_row(*(Text(format_cell(values[name])) for name in names))
    return table


def needs(option: str, given: object, **others: object) -> None:
    """Refuse options that have an effect only together with another one.

    Raises
    ------
    ParameterError
        Naming the first of them, if ``given`` is None or False.
    """
    for flag in _given(others) if given in (None, False) else ():
        raise ParameterError(f"{flag} goes with {option}; give that, or leave {flag} out")


def excludes(option: str, **others: object) -> None:
    """Refuse options that have no effect together with another one.

    Raises
    ------
    ParameterError
        Naming the first of them.
    """
    for flag in _given(others):
        raise ParameterError(f"{option} and {flag} exclude each other; leave one of them out")


def _given(options: Mapping[str, object]) -> list[str]:
    given = [name for name, value in options.items() if value not in (None, False)]
    return [f"--{name.replace('_', '-')}" for name in given]


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn our own errors into a message and exit code 2; others are bugs and pass."""
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
        err.print("stopped; what is on disk is complete, or as it was before", highlight=False)
        raise typer.Exit(INTERRUPTED) from None
    else:
        return
    err.print(f"[bold red]error:[/bold red] [red]{escape(message)}[/red]", soft_wrap=True)
    raise typer.Exit(WRONG)


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """Show one bar for each stage of a run, on standard error; none if that is no terminal."""
    columns = (
        TextColumn("{task.description:<18}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bars:
        tasks = {}

        def advance(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield advance
