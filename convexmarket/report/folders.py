"""Build reports in hidden folders, and replace former reports by two renames.

The target is missing only between the two renames. If the process is killed at that time, the
hidden folder contains the complete former report. The next process that uses the report restores
the former report. Each process locks the hidden folder that it has created.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import IO


def lock(file: IO[bytes] | int, *, wait: bool = False) -> bool:
    """Lock an open file until it is closed, and return whether the lock was acquired."""
    try:
        from fcntl import LOCK_EX, LOCK_NB, flock
    except ImportError:  # Windows does not support this lock
        return True
    try:
        flock(file, LOCK_EX if wait else LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _locked(folder: Path, *, wait: bool = False) -> Iterator[bool]:
    handle = os.open(os.devnull if os.name == "nt" else folder, os.O_RDONLY)
    try:
        yield lock(handle, wait=wait)
    finally:
        os.close(handle)


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """Create a hidden folder that replaces a report unless an error is raised."""
    target.parent.mkdir(parents=True, exist_ok=True)
    put_back(target)
    try:
        with ExitStack() as owned:
            with _locked(target.parent, wait=True):
                place = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}-"))
                owned.enter_context(_locked(place))
            fresh = place / "fresh"
            fresh.mkdir()
            yield fresh
            with _locked(target.parent, wait=True):
                if target.exists():
                    os.replace(target, place / "former")
                os.replace(fresh, target)
    finally:  # an interrupt can occur after a successful rename
        put_back(target)


def put_back(target: Path) -> None:
    """Undo unfinished replacements of a report, and remove their hidden folders."""
    name = re.compile(rf"\.{re.escape(target.name)}-[a-z0-9_]{{8}}")  # names that mkdtemp creates
    with suppress(OSError):
        places = sorted(path for path in target.parent.iterdir() if name.fullmatch(path.name))
        with _locked(target.parent, wait=True) if places else nullcontext():
            for place in places:
                with _locked(place) as abandoned:
                    if abandoned and (former := place / "former").is_dir():
                        # Move the folder before the removal, so that it is not restored in part.
                        os.replace(former, place / "rest" if target.exists() else target)
                    if abandoned:
                        shutil.rmtree(place, ignore_errors=True)
