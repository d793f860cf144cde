"""Where a report is built: next to its place, so that it takes that place at once.

The place is empty between two renames only. A process that is killed there, or that cannot undo
the first when the second fails, leaves the former report, complete, in its hidden workshop;
the next process that writes or reads the report finds the workshop without an owner, puts the
report back and removes the rest. The owner of a workshop holds a lock on a file in it, which ends
with the process.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from convexmarket.errors import DataError

__all__ = ["FRESH", "put_back", "replace", "workshop"]

OWNER = "owner.lock"
FRESH = "fresh"
PREVIOUS = "previous"
REST = "rest"


@contextmanager
def workshop(target: Path) -> Iterator[Path]:
    """Make a hidden folder for building a report.

    It goes in the end, unless it holds the only report.

    Parameters
    ----------
    target : pathlib.Path
        Where the report will be; its folder is made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    put_back(target)
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    try:
        with open(folder / f"{OWNER}.new", "xb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            Path(lock.name).rename(folder / OWNER)  # from here on others look at the lock
            yield folder
    finally:
        if target.exists() or not (folder / PREVIOUS).exists():
            _remove(folder)


def put_back(target: Path) -> None:
    """Undo what processes that were killed have left undone; remove what they left.

    Parameters
    ----------
    target : pathlib.Path
        The place of a report.
    """
    ours = re.compile(rf"\.{re.escape(target.name)}-[a-z0-9_]{{8}}")  # as mkdtemp makes them
    for folder in sorted(target.parent.iterdir() if target.parent.is_dir() else ()):
        if not ours.fullmatch(folder.name):
            continue  # such as that of NAME-2
        with suppress(OSError), open(folder / OWNER, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not target.exists() and (folder / PREVIOUS).is_dir():
                (folder / PREVIOUS).rename(target)
            _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a workshop: its lock last, so that another command goes on where this one stops.

    The former report first gets a name by which nobody would put back what is left of it.
    """
    previous, rest = folder / PREVIOUS, folder / REST
    with suppress(OSError):
        if previous.is_dir():
            os.rename(previous, rest)
        for part in (folder / FRESH, rest):
            if part.exists():
                shutil.rmtree(part)
        shutil.rmtree(folder)


def replace(target: Path, folder: Path) -> None:
    """Put the fresh report of a workshop in the target's place, or leave the target as it was.

    Raises
    ------
    OSError
        If the system refuses; the target is as it was.
    DataError
        If the system refuses to undo it, too; the former report is in the workshop.
    """
    fresh, previous = folder / FRESH, folder / PREVIOUS
    if not target.exists():
        fresh.rename(target)
        return
    try:
        target.rename(previous)
        fresh.rename(target)
    except BaseException:  # an interrupt may come after a rename that took effect
        if not target.exists() and previous.exists():
            try:
                previous.rename(target)
            except OSError as error:
                raise DataError(
                    f"{target}: the report could not be put there, nor the former one back "
                    f"({error.strerror or error}); that is in {previous} now, and comes back with "
                    "the next command that reads or writes this report"
                ) from error
        raise
