"""What all commands share: consoles, errors in one line, and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from convexmarket.errors import ConvexMarketError

__all__ = ["err", "errors_in_one_line", "out", "progress_bars"]

out = Console()
err = Console(stderr=True)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Turn the package's own errors into a message and exit code 2; others are bugs and pass."""
    try:
        yield
    except ConvexMarketError as error:
        message = str(error)
    except OSError as error:
        message = f"{error.filename}: {error.strerror}"
    else:
        return
    err.print(f"[bold red]error:[/bold red] [red]{escape(message)}[/red]", soft_wrap=True)
    raise typer.Exit(2)


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
