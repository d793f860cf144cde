"""The journal of a study: each finished run is on disk before the next one counts."""

from __future__ import annotations

import json
import os
from contextlib import AbstractContextManager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from convexmarket.errors import ParameterError
from convexmarket.io import sync_folder
from convexmarket.report.folders import lock

__all__ = ["Journal"]

#: The beginning of every line.
_BEGINNING = b'{"key": '


class Journal(AbstractContextManager["Journal"]):
    """An append-only file with one JSON object per line.

    A line that was incomplete when the machine stopped is cut off when the journal is opened
    again. Two studies cannot write the same journal; Windows has no such lock.

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
        If another process writes the file, or it is not a journal.
    """

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self._file: Any = None
        if path is None:
            return
        place = Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(place, "a+b")  # noqa: SIM115
        try:
            if not lock(self._file):
                raise ParameterError(
                    f"journal: another study is writing {path}; wait for it, or name another file"
                )
            self.records = self._read()
        except ValueError as error:
            self._file.close()
            if isinstance(error, ParameterError):
                raise
            raise ParameterError(
                f"journal: {path} is not the journal of a study ({error}); move it away"
            ) from None
        sync_folder(place.parent)

    def append(self, record: dict[str, Any]) -> None:
        """Add a record; it is on disk when this returns."""
        if self._file is not None:
            line = json.dumps(record, allow_nan=True, default=_plain)
            self._file.write((line + "\n").encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        self.records.append(record)

    def _read(self) -> list[dict[str, Any]]:
        self._file.seek(0)
        content = self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        rest = content[len(whole) :]
        records = [json.loads(line) for line in whole.splitlines()]
        if not all(
            isinstance(record, dict) and {"key", "ended"} <= set(record) for record in records
        ):
            raise ValueError("a line is not a run")
        if not (rest.startswith(_BEGINNING) or _BEGINNING.startswith(rest)):
            raise ValueError("its last line is not a run")
        if rest:
            self._file.truncate(len(whole))
        return records

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()


def _plain(value: Any) -> Any:
    """Return a NumPy value as plain numbers and lists."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} cannot be written to a journal")
