"""The journal of a study: every finished run, on disk before the next is counted."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from convexmarket.errors import ParameterError

__all__ = ["Journal", "read_journal"]


#: How every line begins.
_BEGINNING = b'{"key": '


class Journal(AbstractContextManager["Journal"]):
    """A file of one JSON object per line, only ever added to.

    A line that was being written when the machine stopped is no run: it is cut off when the
    journal is opened again. Two studies cannot write the same journal.

    Parameters
    ----------
    path : Path
        Made with its folder if it does not exist.

    Attributes
    ----------
    records : list of dict
        What the journal held when it was opened, and what was added since.

    Raises
    ------
    ParameterError
        If another process writes it, it is a symbolic link, or it holds something else than a
        journal does.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        self._file = open(path, "a+b", opener=_no_link)  # noqa: SIM115
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise ParameterError(
                f"another study is writing {path}; wait for it, or choose another --out"
            ) from None
        try:
            self.records = self._read()
        except ValueError as error:
            self._file.close()
            raise ParameterError(
                f"{path} is not the journal of a study ({error}); move it away"
            ) from None
        if new:
            self._sync_folder()

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        self._file.write((json.dumps(record, allow_nan=True) + "\n").encode())
        self._file.flush()
        os.fsync(self._file.fileno())
        self.records.append(record)

    def clear(self) -> None:
        """Forget everything."""
        self._file.truncate(0)
        os.fsync(self._file.fileno())
        self.records.clear()

    def close(self) -> None:
        """Let others write."""
        self._file.close()

    def _read(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        rest = content[len(whole) :]
        records = [json.loads(line) for line in whole.splitlines()]
        if not all(isinstance(item, dict) and {"key", "session"} <= set(item) for item in records):
            raise ValueError("a line is no run")
        if not (rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)):
            raise ValueError("its last line is no run")
        if rest:
            self._file.truncate(len(whole))
        return records

    def _sync_folder(self) -> None:
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __exit__(self, *error: object) -> None:
        self.close()


def read_journal(path: Path) -> bytes:
    """Return what a journal holds, or raise a ParameterError if it is a symbolic link."""
    with open(path, "rb", opener=_no_link) as file:
        return file.read()


def _no_link(path: str, flags: int) -> int:
    """Open a regular file; a symbolic link could lead to any."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ParameterError(
                f"{path} is a symbolic link, and the journal of a study must lie there; remove the "
                "link, or choose another --out"
            ) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ParameterError(f"{path} is a pipe or a device, and not the journal of a study")
    return handle
