"""What all commands share: consoles, errors in one line, and progress bars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.segment import Segment

from convexmarket.cli.ending import INTERRUPTED, WRONG, interrupts_as_usual, reason
from convexmarket.errors import ConvexMarketError

__all__ = [
    "REPORTS_TELL",
    "AsJson",
    "Force",
    "Formats",
    "err",
    "errors_in_one_line",
    "out",
    "print_json",
    "progress_bars",
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

AsJson = Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")]


class PlainConsole(Console):
    """A console that shows texts from files: every command prints through it."""

    def render(self, *arguments: Any, **options: Any) -> Iterator[Segment]:
        """Go through what is shown, without characters of its texts that a terminal would obey."""
        from convexmarket.lab.report.words import printable

        for text, style, control in super().render(*arguments, **options):
            yield Segment(text if control else printable(text), style, control)


out = PlainConsole()
err = PlainConsole(stderr=True)


def print_json(found: Any) -> None:
    """Print what a command found for programs: ``--json`` of every command that has it."""
    from convexmarket.lab.report.results import plain

    typer.echo(json.dumps(plain(found), indent=2, ensure_ascii=True, allow_nan=False))


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
