"""Cores of this machine, lent to one timed run at a time, across threads and processes."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["can_pin", "lent_core", "usable_cores"]

#: Seconds between two looks for a free core.
_PATIENCE = 0.05


def can_pin() -> bool:
    """Return whether a process can be bound to a core here."""
    return hasattr(os, "sched_setaffinity")


def usable_cores() -> list[int]:
    """Return the cores that this process may use; one without a number where none can be told."""
    return sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else [-1]


@contextmanager
def lent_core() -> Iterator[int]:
    """Lend a core that no other timed run on this machine uses; -1 where runs cannot be pinned.

    A lock on a file stands for a core. It goes with its holder, however that ends.
    """
    if not can_pin():
        yield -1
        return
    folder = Path(tempfile.gettempdir(), f"convexmarket-cores-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    files = {core: os.open(folder / str(core), os.O_RDWR | os.O_CREAT) for core in usable_cores()}
    try:
        while True:
            for core, file in files.items():
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    continue
                yield core
                return
            time.sleep(_PATIENCE)
    finally:
        for file in files.values():
            os.close(file)
