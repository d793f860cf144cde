"""A new database, complete from the instant that it can be seen."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import tempfile
from collections.abc import Callable
from pathlib import Path

from convexmarket.errors import DataError
from convexmarket.ledger.seals import lay_seals
from convexmarket.ledger.store import Kind, in_words, sync
from convexmarket.ledger.tables import mark

__all__ = ["create_database", "place_database"]


def create_database(path: Path, kind: Kind, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Write a new database under a name that nobody uses.

    Parameters
    ----------
    path : pathlib.Path
        Its folder is made if there is none.
    kind : Kind
    fill : callable
        Lays the tables and the first rows, in a transaction.

    Raises
    ------
    DataError
        If there is such a file, or it cannot be written.
    """

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        fill(connection)
        lay_seals(connection)
        mark(connection)
        connection.execute("COMMIT")

    place_database(path, kind, write)


def place_database(
    path: Path, kind: Kind, write: Callable[[sqlite3.Connection], None], *, replace: bool = False
) -> None:
    """Write a database under a hidden name, sync it, and give it its own.

    Parameters
    ----------
    path : pathlib.Path
        Its folder is made if there is none.
    kind : Kind
    write : callable
        Fills the database, which is empty.
    replace : bool, default False
        Whether a file of this name gives way.

    Raises
    ------
    DataError
        If there is such a file, unless it gives way, or it cannot be written.
    """
    folder = path.parent
    if not replace:
        _check_free(path, kind)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-", suffix=".new")
        os.close(handle)
        try:
            with contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
                connection.execute("PRAGMA journal_mode = MEMORY")  # nobody sees the file yet
                write(connection)
            sync(fresh)
            if replace:
                os.replace(fresh, path)
            else:
                os.link(fresh, path)  # fails where the name is taken, which a renaming would not
            if os.name == "posix":
                sync(folder)
                sync(folder.parent)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)
    except FileExistsError:
        _check_free(path, kind)
        raise DataError(f"{folder} is a file; a {kind.name} needs a folder") from None
    except OSError as error:
        raise DataError(
            f"no {kind.name} could be made in {folder} ({error}); choose a folder on a disk of "
            "this computer that may be written, has room, and knows hard links"
        ) from error
    except sqlite3.Error as error:
        raise in_words(error, path) from error


def _check_free(path: Path, kind: Kind) -> None:
    """Refuse a name that is taken, or has a journal left, which would be applied to ours."""
    leftovers = [path.with_name(path.name + end) for end in ("-journal", "-wal")]
    found = [str(leftover) for leftover in leftovers if leftover.exists()]
    place = str(kind.place(path))
    if path.exists():
        raise DataError(
            f"there is a {kind.name} in {place} already; go on with it, in Python with "
            f"{kind.in_python}({place!r}), or choose another path"
        )
    if found:
        raise DataError(
            f"{found[0]} belongs to a {kind.name} whose {path.name} is gone; bring that back, or "
            "move this file away too, or choose another path"
        )
