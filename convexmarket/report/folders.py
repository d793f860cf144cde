"""The hidden folder in which a report is built before it takes its place at once.

The place is empty between two renames only. If the process is killed there, the former report is
complete in the hidden folder. The next process that writes or reads the report puts it back and
removes the hidden folder. Its owner holds a lock on a file in it until it ends.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

_LOCK = "owner.lock"
_FORMER = "former"


def lock(file: IO[bytes]) -> bool:
    """Lock an open file until it is closed; return whether no other process holds the lock."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows has no such lock
        return True
    try:
        flock(file, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Make a hidden folder that takes the place of a report at the end, or leaves it unchanged."""
    target.parent.mkdir(parents=True, exist_ok=True)
    put_back(target)
    place = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
    fresh, former = place / "fresh", place / _FORMER
    try:
        with open(place / f"{_LOCK}.new", "xb") as file:
            lock(file)
            os.rename(file.name, place / _LOCK)  # other processes wait for the lock from here on
            fresh.mkdir()
            yield fresh
            if target.exists():
                os.replace(target, former)
            os.replace(fresh, target)
    finally:  # an interrupt may come after a rename that took effect
        put_back(target)
        if not (place / _LOCK).exists():
            shutil.rmtree(place, ignore_errors=True)


def put_back(target: Path) -> None:
    """Undo unfinished replacements of a report by killed processes."""
    name = re.compile(rf"\.{re.escape(target.name)}-[a-z0-9_]{{8}}")  # as mkdtemp makes them
    places: list[Path] = []
    with suppress(OSError):
        places = sorted(path for path in target.parent.iterdir() if name.fullmatch(path.name))
    for place in places:
        with suppress(OSError), open(place / _LOCK, "rb") as file:
            if lock(file):
                if not target.exists() and (place / _FORMER).is_dir():
                    os.rename(place / _FORMER, target)
                _remove(place)


def _remove(place: Path) -> None:
    """Remove a hidden folder, its lock last, so that another process can complete the removal.

    The former report is renamed first: a part of it must not be put back.
    """
    with suppress(OSError):
        if (place / _FORMER).is_dir():
            os.rename(place / _FORMER, place / "rest")
        for part in place.iterdir():
            if part.is_dir():
                shutil.rmtree(part)
        shutil.rmtree(place)
