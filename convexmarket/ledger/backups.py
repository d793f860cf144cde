"""Copies of a database, taken while others use it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from convexmarket.arguments import check_instance
from convexmarket.errors import DataError
from convexmarket.ledger.creating import place_database
from convexmarket.ledger.seals import check_whole, last_seal
from convexmarket.ledger.store import Kind, Store, connect

__all__ = ["back_up"]

BACKUP = Kind("backup", None, lambda path: path, "ledger backup", "Ledger")


def back_up(store: Store, path: str | Path) -> None:
    """Copy a database as it is at one instant, check the copy, and give it its name.

    Parameters
    ----------
    store : Store
    path : path
        Of a file that there is not, or of an earlier backup of the same database.

    Raises
    ------
    DataError
        If there is any other file, or the copy is damaged or cannot be written.
    """
    check_instance("path", path, (str, Path), "the path of a file for the backup")
    file = Path(os.path.realpath(path))

    def write(copy: sqlite3.Connection) -> None:
        connection.backup(copy)
        check_whole(copy, store.path)

    with store.reading() as connection:
        replace = file.exists()
        if replace and not _is_earlier(file, connection, store.path):
            raise DataError(
                f"{path} is no earlier backup of {store.path}, and is left as it is; name another "
                "file"
            )
        place_database(file, BACKUP, write, replace=replace)


def _is_earlier(file: Path, connection: sqlite3.Connection, path: Path) -> bool:
    """Say whether a file is another one, which holds what the database held at some time."""
    if file.samefile(path) or not file.is_file():
        return False
    try:
        with contextlib.closing(connect(file, file, BACKUP)) as copy:
            number, total = last_seal(copy)
        sums = connection.execute("SELECT sum FROM seals WHERE number = ?", (number,)).fetchall()
    except (DataError, sqlite3.Error):  # none of ours, damaged, or of an earlier version
        return False
    return sums == [(total,)]
