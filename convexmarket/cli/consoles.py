"""Options, output, errors and exit codes of all commands (see docs/failures.md)."""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
import webbrowser
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.text import Text as Words

from convexmarket.errors import ConvexMarketError, ParameterError

if TYPE_CHECKING:
    import pandas as pd

    from convexmarket.report import Report

DONE, BUG, WRONG, PARTLY, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 130, 141
_DEFECT = (
    "This is a defect of convexmarket, not of your input. Please report it as an issue of the "
    "project, with the command, the lines above, and the output of 'convexmarket --version'."
)
#: Optional formats of tables and figures in a report.
_FORMATS = ("csv", "tex", "svg", "pdf")


def list_of(kind: Callable[[str], Any], help: str) -> Any:
    """Create an option for a comma-separated list."""

    def parse(text: str) -> list[Any]:
        try:
            return [kind(part.strip()) for part in text.split(",") if part.strip()]
        except ValueError:
            raise typer.BadParameter(f"give numbers such as 100,1000, not {text!r}") from None

    return typer.Option(parser=parse, metavar="A,B,...", help=help)


def _format(name: str) -> str:
    if name not in _FORMATS:
        raise typer.BadParameter(f"{name!r} is not one of {', '.join(_FORMATS)}")
    return name


_SET = typer.Option("--set", metavar="KEY=VALUE", help="Replace a value of the file. Repeatable.")
_ID = typer.Option(help="Column of the ids.", show_default="id, seller, ...")
_REPORTS = typer.Option(help="Column of the reports.", show_default="sensitivity, cost, ...")
Formats = Annotated[Any, list_of(_format, "Also write csv, tex, svg or pdf.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")]
Settings = Annotated[list[str] | None, _SET]
IdColumn = Annotated[str | None, _ID]
SensitivityColumn = Annotated[str | None, _REPORTS]
File = Path | None
Text = str | None

_out, err = Console(), Console(stderr=True)


def say(text: object, *, to: Console = _out, style: str = "") -> None:
    """Print a line without markup, line breaks or control characters."""
    from convexmarket.report import printable

    to.print(Words(printable(str(text)), style), soft_wrap=True)


def stages(status: Any) -> Callable[[str], None]:
    """Return a function that shows the current stage or, without a terminal, prints long stages."""

    def show(stage: str) -> None:
        status.update(f"{stage} ...")
        if not err.is_terminal and "about" in stage:  # the stage takes more than ten seconds
            say(f"{stage} ...", to=err)

    return show


def print_json(results: Any) -> None:
    """Print results as JSON, for ``--json``."""
    from convexmarket.report.results import plain

    typer.echo(json.dumps(plain(results), indent=2, allow_nan=False))


def print_pairs(pairs: Mapping[str, object]) -> None:
    """Print labels and their values, one pair on each line."""
    from convexmarket.report.table_formats import format_cell

    width = max(map(len, pairs))
    for label, value in pairs.items():
        say(f"  {label:<{width}}  {format_cell(value):>12}")


def print_table(title: str, rows: pd.DataFrame | Sequence[Any], names: Sequence[str]) -> None:
    """Print columns of a table, unless the table is empty."""
    import pandas as pd

    from convexmarket.report.table_formats import format_cell

    if len(frame := pd.DataFrame(rows)):
        shown = frame[list(names)].map(format_cell)
        say(f"\n{title}\n{shown.to_string(index=False, max_colwidth=60)}")


def print_report(report: Report, page: Path, show: bool = False) -> None:
    """Print the title, finding, claims and path of a report, and open the report on request."""
    say("\n".join(filter(None, (report.title, report.finding))))
    for claim in report.claims.itertuples():
        say(f"- {claim.claim}: {claim.verdict}. {claim.detail}")
    say(f"The report:\n{page}")
    if show:
        webbrowser.open(page.resolve().as_uri())


def write_table(table: pd.DataFrame, file: Path, *, force: bool) -> None:
    """Write a table as JSON or CSV, depending on the file extension, and print its path."""
    from convexmarket.data.csv_cells import write_csv
    from convexmarket.io import Content, write_together
    from convexmarket.report.results import plain

    content: Content = partial(write_csv, table)
    if file.suffix.lower() == ".json":
        content = (json.dumps(plain(table.to_dict("records")), indent=2) + "\n").encode()
    write_together({file: content}, private=True, force=force)
    say(f"Wrote {file}")


def check_ending(file: Path, option: str = "--out") -> None:
    """Raise an error if the name of an output file ends in neither .csv nor .json."""
    if file.suffix.lower() not in (".csv", ".json"):
        raise ParameterError(f"{option} {file} is neither .csv nor .json; choose one of them")


def warn_of_reports() -> None:
    """Warn that epsilons and payments reveal reports (see docs/threat-model.md)."""
    note = "Note: an epsilon or a payment reveals the report of its seller and, if reports depend"
    say(f"{note} on rows, information about the row. No guarantee covers this leak.", to=err)


def check_other_place(
    file: Path, source: Path, what: str, option: str = "--out", *, force: bool
) -> None:
    """Raise an error for an output file that cannot be written, or that is the input file."""
    from convexmarket.io import check_place

    if file.exists() and source.exists() and file.samefile(source):
        raise ParameterError(f"{option} {file} is {what}; name another file")
    check_place(file, option, force=force)


def check_report_folder(folder: Path, *, force: bool = False) -> None:
    """Raise an error in advance if a report cannot be written to a folder."""
    from convexmarket.io import check_place
    from convexmarket.report.document import check_folder

    check_folder(folder, force=force)
    check_place(folder, folder=True)


def needs(option: str, given: object, **others: object) -> None:
    """Raise an error if options are given without the option on which they depend."""
    for flag in _given(others) if given in (None, False) else ():
        raise ParameterError(f"{flag} requires {option}; add {option}, or remove {flag}")


def excludes(option: str, **others: object) -> None:
    """Raise an error if options are given together with an option that excludes them."""
    for flag in _given(others):
        raise ParameterError(f"{option} and {flag} exclude each other; omit one of them")


def _given(options: Mapping[str, object]) -> list[str]:
    given = [name for name, value in options.items() if value not in (None, False, [])]
    return [f"--{name.replace('_', '-')}" for name in given]


def reason(error: BaseException) -> str:
    """Describe an error in one line. For an OSError, give the path and the reason."""
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}); use fewer rows, sellers, draws or jobs"
    line = "; ".join(str(error).splitlines())
    if isinstance(error, OSError):
        why = error.strerror or line or type(error).__name__
        line = f"{error.filename}: {why}" if error.filename else why
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """Convert errors of the package to a message and exit code 2. Other errors are raised."""
    if signal.getsignal(signal.SIGINT) is _stop_loading:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except BrokenPipeError:  # error of standard output, which run_to_the_end handles
        raise
    except (ConvexMarketError, OSError) as error:
        say(f"error: {reason(error)}", to=err, style="red")
        raise typer.Exit(WRONG) from None
    except KeyboardInterrupt:
        say("stopped; the files are complete or unchanged", to=err)
        raise typer.Exit(INTERRUPTED) from None


def run_to_the_end(command: Callable[[], Any]) -> NoReturn:
    """Run a command, and exit with the exit code of this command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _stop_loading)
    for name in ("stdout", "stderr"):  # escape unencodable characters, and replace a closed stream
        stream = getattr(sys, name) or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
        setattr(sys, name, stream)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    warnings.formatwarning = _in_one_line(warnings.formatwarning)
    output, code = _output(), DONE
    try:
        try:
            command()
        except SystemExit as ended:
            code = int(ended.code or DONE)
            if _output() != output:  # Typer and Rich replace the output of a closed pipe
                raise BrokenPipeError from None
        except KeyboardInterrupt:
            code = INTERRUPTED
        sys.stdout.flush()  # a command that cannot print its last lines has failed
    except MemoryError as error:
        print(f"error: {reason(error)}", file=sys.stderr)
        code = WRONG
    except OSError as error:  # standard output failed; commands handle errors of files
        code = code or WRONG
        if isinstance(error, BrokenPipeError):
            code = READER_GONE
        else:
            print(f"error: standard output: {reason(error)}", file=sys.stderr)
        _discard_output()
    except Exception:
        sys.excepthook(*sys.exc_info())
        print(_DEFECT, file=sys.stderr)
        code = BUG
    sys.exit(code)


def _in_one_line(usual: Callable[..., str]) -> Callable[..., str]:
    """Return a formatter that omits the line of code for warnings of the package."""

    def form(message: Any, category: type[Warning], *place: Any, **more: Any) -> str:
        ours = category.__module__ == ConvexMarketError.__module__
        return f"warning: {message}\n" if ours else usual(message, category, *place, **more)

    return form


def _stop_loading(*_: object) -> None:
    """End the process, because an interrupted import of a library can raise another error."""
    try:
        os.write(2, b"stopped while loading; nothing was done\n")
    finally:
        os._exit(INTERRUPTED)


def _output() -> tuple[object, ...]:
    """Return numbers that identify the object and, if possible, the file of the standard output."""
    try:
        file = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):
        return (id(sys.stdout),)
    return id(sys.stdout), file.st_dev, file.st_ino


def _discard_output() -> None:
    """Discard all further output, including the output at the exit of Python."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(nowhere)
