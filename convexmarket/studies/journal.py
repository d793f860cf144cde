"""The journal of a study: every finished run is on disk before the next one counts."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from convexmarket.errors import ParameterError
from convexmarket.io import sync_folder

__all__ = ["Journal"]


#: The beginning of every line.
_BEGINNING = b'{"key": '


class Journal(AbstractContextManager["Journal"]):
    """A file of one JSON object per line, only ever added to.

    A line that was incomplete when the machine stopped is cut off when the journal is opened
    again. Two studies cannot write the same journal.

    Parameters
    ----------
    path : path, optional
        Created with its folder if it does not exist. Without a path records are kept in memory.

    Attributes
    ----------
    records : list of dict
        The records of the file when it was opened, and those added since.

    Raises
    ------
    ParameterError
        If another process writes it, it is a symbolic link, or it is not a journal.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self._file: Any = None
        if path is None:
            return
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = not self.path.exists()
        self._file = open(self.path, "a+b", opener=_no_link)  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ParameterError(
                f"journal: another study is writing {path}; wait for it, or name another file"
            ) from None
        try:
            self.records = self._read()
        except ValueError as error:
            self._file.close()
            raise ParameterError(
                f"journal: {path} is not the journal of a study ({error}); move it away"
            ) from None
        if new:
            sync_folder(self.path.parent)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        if self._file is not None:
            line = json.dumps(record, allow_nan=True, default=_plain)
            self._file.write((line + "\n").encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        self.records.append(record)

    def close(self) -> None:
        """Release the file for other processes."""
        if self._file is not None:
            self._file.close()

    def _read(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        rest = content[len(whole) :]
        records = [json.loads(line) for line in whole.splitlines()]
        if not all(isinstance(item, dict) and {"key", "session"} <= set(item) for item in records):
            raise ValueError("a line is not a run")
        if not (rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)):
            raise ValueError("its last line is not a run")
        if rest:
            self._file.truncate(len(whole))
        return records

    def __exit__(self, *error: object) -> None:
        self.close()


def _plain(value: Any) -> Any:
    """Return a NumPy value as plain numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be written to a journal")


def _no_link(path: str, flags: int) -> int:
    """Open a regular file; a symbolic link could lead to any file."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ParameterError(
                f"journal: {path} is a symbolic link; remove the link, or name another file"
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ParameterError(f"journal: {path} is a pipe or a device; name a file")
    return handle
