"""Progress of long computations on standard error, with an estimate of the remaining time."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TextIO, TypeAlias

from convexmarket.checks import check_instance

#: A function of the stage, the number of completed steps and the total number of steps.
Progress: TypeAlias = Callable[[str, int, int], None]

_ON_TERMINAL = 0.2  # seconds between updates of the line on a terminal
_ELSEWHERE = 10.0  # seconds between lines if the stream is not a terminal
_FEWEST = 3  # number of completed steps of a stage before the remaining time is estimated
_QUIET = 2.0  # seconds from the start of a stage until its first line is printed


class ProgressLines:
    """Printer of the completed steps and the remaining time. Short stages are not printed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._stage, self._first, self._start, self._last = "", 0, 0.0, 0.0

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report the number of completed steps of a stage."""
        now, terminal = time.monotonic(), self._stream.isatty()
        if stage != self._stage:
            self._stage, self._first, self._start, self._last = stage, done, now, 0.0
        elapsed, new = now - self._start, done - self._first
        ended = done >= total and self._last > 0.0
        due = now - self._last >= (_ON_TERMINAL if terminal else _ELSEWHERE)
        if not ended and (elapsed < _QUIET or not due):
            return
        text = f"{stage}: {done:,} of {total:,}"
        if ended:
            text += f", {timedelta(seconds=round(elapsed))}"
        elif new >= _FEWEST:
            left = timedelta(seconds=round(elapsed / new * (total - done)))
            text += f", about {left} left"
        begin, end = ("\r\x1b[K", "\n" if ended else "") if terminal else ("", "\n")
        print(begin + text, end=end, file=self._stream, flush=True)
        self._last = 0.0 if ended else now


def reporter(progress: bool | Progress) -> Progress:
    """Convert a ``progress`` argument to a progress function."""
    if callable(progress):
        return progress
    kinds = "True, False or a callable of (stage, done, total)"
    check_instance("progress", progress, bool, kinds)
    return ProgressLines() if progress else (lambda _stage, _done, _total: None)
