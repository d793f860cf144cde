"""Copies of a database, taken while others use it."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from convexmarket.checks import check_instance
from convexmarket.errors import DataError
from convexmarket.ledger.creating import place_database
from convexmarket.ledger.seals import check_whole
from convexmarket.ledger.store import Kind, Store

__all__ = ["back_up"]

BACKUP = Kind("backup", None, lambda path: path, "ledger PATH --backup", "Ledger")


def back_up(store: Store, path: str | Path, *, force: bool = False) -> None:
    """Copy a database as it is at one instant, check the copy, and rename it to its place.

    Parameters
    ----------
    store : Store
    path : path
    force : bool, default False
        Whether an existing file may be replaced.

    Raises
    ------
    DataError
        If the file exists without ``force``, is the database itself, or cannot be written.
    """
    check_instance("path", path, (str, Path), "the path of a file for the backup")
    file = Path(os.path.realpath(path))
    if file.exists() and (not force or not file.is_file() or file.samefile(store.path)):
        raise DataError(
            f"{path} exists; name another file, or pass force (--force) to replace one that is "
            "not the database itself"
        )

    def write(copy: sqlite3.Connection) -> None:
        connection.backup(copy)
        check_whole(copy, store.path)

    with store.reading() as connection:
        place_database(file, BACKUP, write, replace=force)
