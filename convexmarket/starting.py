"""Ctrl-C while the command line loads: nothing has been done yet, so it ends at once.

To import this package takes a second or more, and libraries that are interrupted in the middle of
that show tracebacks. Where the process is the command line, and only there, Ctrl-C therefore ends
it until the command begins. This module imports nothing that Python has not loaded.
"""

import os
import signal
import sys
from itertools import pairwise

__all__ = ["INTERRUPTED", "interrupts_as_usual", "interrupts_end_at_once"]

#: Exit code after Ctrl-C.
INTERRUPTED = 130
NAME = "convexmarket"


def interrupts_end_at_once() -> None:
    """Let Ctrl-C end this process in one line, if it is the command line that is loading.

    What ignores Ctrl-C, as a shell's job in the background does, ignores it still.
    """
    program = (getattr(sys, "argv", None) or [""])[0]
    given = sys.orig_argv  # of this very process; workers of the command line inherit only argv
    as_script = os.path.basename(program) == NAME and program in given
    as_module = program == "-m" and ("-m", NAME) in pairwise(given)
    usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if usual and (as_script or as_module):
        signal.signal(signal.SIGINT, _end)


def interrupts_as_usual() -> None:
    """Let Ctrl-C raise KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    try:
        os.write(2, b"stopped while loading; nothing was done\n")
    finally:
        os._exit(INTERRUPTED)
