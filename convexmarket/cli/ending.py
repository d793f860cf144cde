"""The ends of commands: exit codes (docs/failures.md), and one line instead of a traceback."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

__all__ = ["interrupts_as_usual", "memory_ended", "reason", "run_to_the_end"]

DONE, BUG, WRONG, PARTLY, INTERRUPTED, READER_GONE = 0, 1, 2, 3, 130, 141

_DEFECT = (
    "This is a defect of convexmarket, not of your input. Please report it to its developers, as "
    "an issue of the project: the command, the lines above, and what 'convexmarket --version' says."
)


def reason(error: OSError) -> str:
    """Describe in a line what the system refused, and where."""
    why = error.strerror or str(error) or type(error).__name__
    line = f"{error.filename}: {why}" if error.filename else why
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)


def memory_ended(error: MemoryError) -> str:
    """Describe in a line a lack of memory, and the remedy."""
    asked = f" ({error})" if str(error) else ""
    return f"not enough memory{asked}; use fewer rows, sellers, draws or jobs, or a larger machine"


def run_to_the_end(command: Callable[[], Any]) -> NoReturn:
    """Run the command line, and exit with the code of its end."""
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
        print(_DEFECT, file=sys.stderr)
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
    """Identify the standard output: the object, and the file behind it."""
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
    """Flush what is left to print; a command that cannot do so has failed."""
    try:
        sys.stdout.flush()
    except OSError as error:
        ended = _of_output(error)
        return ended if code == DONE else code
    return code


def _forget_output() -> None:
    """Print nothing any more, also not when Python ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.__stdout__.fileno() if sys.__stdout__ else 1)
    os.close(nowhere)
