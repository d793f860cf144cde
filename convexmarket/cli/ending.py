"""How a command ends: the exit codes, and one line instead of a traceback.

docs/failures.md says what each code means and what a command leaves behind.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = [
    "BUG",
    "DONE",
    "INTERRUPTED",
    "PARTLY",
    "READER_GONE",
    "WRONG",
    "interrupts_as_usual",
    "memory_ended",
    "reason",
    "run_to_the_end",
]

DONE = 0
BUG = 1
WRONG = 2
PARTLY = 3
INTERRUPTED = 130
READER_GONE = 141

DEFECT = (
    "This is a defect of convexmarket, not of your input. Please report it to its developers, as "
    "an issue of the project: the command, the lines above, and what 'convexmarket --version' says."
)


def reason(error: OSError) -> str:
    """Say in a line what the system refused, and where if it told."""
    why = error.strerror or str(error) or type(error).__name__
    line = f"{error.filename}: {why}" if error.filename else why
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def memory_ended(error: MemoryError) -> str:
    """Say in a line that there was not enough memory, and what to do."""
    asked = f" ({error})" if str(error) else ""
    return f"not enough memory{asked}; use fewer rows, sellers, draws or jobs, or a larger machine"


def run_to_the_end(command: Callable[[], Any]) -> NoReturn:
    """Run the command line, and exit with the code that says how it ended."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    _settle_streams()
    output = _output()
    try:
        command()
        code: Any = DONE
    except SystemExit as ended:
        code = ended.code
        if _output() != output:  # Typer and Rich put another in its place when its reader goes away
            _forget_output()
            code = READER_GONE
    except KeyboardInterrupt:
        code = INTERRUPTED
    except OSError as error:  # a command handles those of its files: this is of what it prints
        code = _of_output(error)
    except MemoryError as error:
        print(f"error: {memory_ended(error)}", file=sys.stderr)
        code = WRONG
    except Exception:
        sys.excepthook(*sys.exc_info())
        print(DEFECT, file=sys.stderr)
        code = BUG
    sys.exit(_flushed(code))


def interrupts_as_usual() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again, once a command has loaded what it needs."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    """End the process: libraries that are interrupted while they load raise other errors."""
    try:
        os.write(2, b"stopped while loading; nothing was done\n")
    finally:
        os._exit(INTERRUPTED)


def _output() -> tuple[int, ...]:
    """Return what tells one standard output from another: the object, and the file behind it."""
    try:
        file = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError, AttributeError):  # nothing behind it
        return (id(sys.stdout),)
    return id(sys.stdout), file.st_dev, file.st_ino


def _settle_streams() -> None:
    """Let every character be printed, and printing go nowhere where a stream is closed."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _of_output(error: OSError) -> int:
    _forget_output()
    if isinstance(error, BrokenPipeError):
        return READER_GONE
    where = "" if error.filename else "standard output: "
    print(f"error: {where}{reason(error)}", file=sys.stderr)
    return WRONG


def _flushed(code: Any) -> Any:
    """Print what is left; a command that did all but that has not said that it did."""
    try:
        sys.stdout.flush()
    except OSError as error:
        ended = _of_output(error)
        return ended if code == DONE else code
    return code


def _forget_output() -> None:
    """Let nothing be printed any more, also not when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(nowhere)
