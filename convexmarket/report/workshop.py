"""Where a report is built: next to its place, so that it takes that place at once.

The place is empty between two renames only. A process that is killed there leaves the former
report, complete, in its hidden workshop; whoever writes or reads the report next finds the
workshop without an owner, puts the report back and removes the rest. The owner of a workshop holds
a lock on a file in it, which ends with the process.
"""

from __future__ import annotations

import fcntl
import glob
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["FRESH", "put_back", "replace", "workshop"]

OWNER = "owner.lock"
FRESH = "fresh"
PREVIOUS = "previous"


@contextmanager
def workshop(target: Path) -> Iterator[Path]:
    """Make a hidden folder for building a report, and remove it in the end.

    Parameters
    ----------
    target : pathlib.Path
        Where the report will be; its folder is made.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    put_back(target)
    with (
        tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as name,
        open(Path(name, f"{OWNER}.new"), "xb") as lock,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        Path(lock.name).rename(Path(name, OWNER))  # from here on others look at the lock
        yield Path(name)


def put_back(target: Path) -> None:
    """Undo what processes that were killed have left undone; remove what they left.

    Parameters
    ----------
    target : pathlib.Path
        The place of a report.
    """
    pattern = glob.escape(f".{target.name}-")
    for folder in sorted(target.parent.glob(f"{pattern}*")):
        with suppress(OSError), open(folder / OWNER, "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not target.exists() and (folder / PREVIOUS).is_dir():
                (folder / PREVIOUS).rename(target)
            shutil.rmtree(folder, ignore_errors=True)


def replace(target: Path, folder: Path) -> None:
    """Put the fresh report of a workshop in the target's place, or leave the target as it was."""
    fresh, previous = folder / FRESH, folder / PREVIOUS
    if not target.exists():
        fresh.rename(target)
        return
    try:
        target.rename(previous)
        fresh.rename(target)
    except BaseException:  # an interrupt may come after a rename that took effect
        if not target.exists() and previous.exists():
            previous.rename(target)
        raise
