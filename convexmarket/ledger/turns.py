"""First come, first served, among processes that want the same file.

SQLite gives its lock to the process that asks at the right instant. Where a sync is slow, a
busy process holds it nearly always, and another may wait for minutes. Here each process draws a
number and waits for the one before it. Numbers are locked bytes of a file, so that a process that
is killed gives up its place. The order is a courtesy: SQLite's own lock keeps steps apart.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

from convexmarket.errors import DataError

if sys.platform != "win32":
    import fcntl

__all__ = ["Turns", "link_refused"]

#: Seconds to wait for the one before; one that sleeps must not hold up all others for ever.
_PATIENCE = 5.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5e-5, 2e-3
#: The first byte is locked to draw a number, the ones from here on stand for numbers.
_NUMBERS, _N_NUMBERS = 16, 1 << 30


class Turns:
    """A queue of processes; a process may wait in it once at a time.

    Parameters
    ----------
    path : pathlib.Path
        A file beside the one that is wanted. Where there can be none, nobody waits; a symbolic link
        is refused with a DataError, because it could lead to any file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for those who came earlier, and let those who come later wait."""
        number = self._draw()
        if number is None:
            yield
            return
        own, previous = _byte(number), _byte(number - 1)
        try:
            if self._lock(previous):
                self._unlock(previous)
            yield
        finally:
            self._unlock(own)

    def close(self) -> None:
        """Close the file, as happens to one that is forgotten too; the next turn opens it again."""
        if self._file is not None:
            self._close()
            self._file = None

    def _draw(self) -> int | None:
        """Return the next number, its byte locked; none where files cannot be locked."""
        if sys.platform == "win32":
            return None
        try:
            if self._file is None:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self._path, flags, 0o600)
                self._close = weakref.finalize(self, os.close, self._file)
            if not self._lock(0):
                return None
            try:
                number = int.from_bytes(os.pread(self._file, 8, 0), "little") % _N_NUMBERS
                os.pwrite(self._file, (number + 1).to_bytes(8, "little"), 0)
                return number if self._lock(_byte(number)) else None
            finally:
                self._unlock(0)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise link_refused(self._path) from None
            return None

    def _lock(self, byte: int) -> bool:
        """Lock a byte; say whether that was possible in time."""
        if sys.platform == "win32" or self._file is None:
            return False
        pause, end = _SHORTEST_PAUSE, time.monotonic() + _PATIENCE
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, byte)
            except (BlockingIOError, PermissionError):
                if time.monotonic() > end:
                    return False
                time.sleep(pause)
                pause = min(1.1 * pause, _LONGEST_PAUSE)
            else:
                return True

    def _unlock(self, byte: int) -> None:
        if sys.platform != "win32" and self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)


def link_refused(path: Path) -> DataError:
    """Return the error that a file beside a database is a symbolic link."""
    return DataError(
        f"{path} is a symbolic link, and a file of the database must lie there; nothing was "
        "written: remove the link, and find out who made it"
    )


def _byte(number: int) -> int:
    return _NUMBERS + number % _N_NUMBERS
