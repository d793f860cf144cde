"""Seals that detect changes of a database by other programs.

Each transaction that adds rows also adds a seal. The seal is the sum of the BLAKE2b digests of the
schema and of all rows in the other tables, modulo 2^128.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from convexmarket.errors import DataError

__all__ = ["check_whole", "damaged", "lay_seals", "seal", "source_of", "watch"]

_BYTES = 16
_LAST = "SELECT sum FROM seals ORDER BY number DESC LIMIT 1"
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master"
_SEALED = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'seals'"

#: Name of a table, followed by the values of one row of this table.
Row = tuple[Any, ...]


def damaged(path: Path, how: str) -> DataError:
    """Create the error for a damaged database. ``how`` must not quote values of rows."""
    return DataError(
        f"{path} is damaged {how}; restore a backup: move away the file and all files next to it "
        'with the same prefix, then put the backup there (docs/ledger.md, "Backups")'
    )


def lay_seals(connection: sqlite3.Connection) -> None:
    """Add the first seal of a new database."""
    connection.execute("CREATE TABLE seals (number INTEGER PRIMARY KEY, sum BLOB NOT NULL)")
    _add(connection, _sum(_rows(connection)))


def watch(connection: sqlite3.Connection, added: list[Row]) -> None:
    """Append each row that this connection adds to the list ``added``."""
    connection.create_function("added_row", -1, lambda *row: added.append(row))
    for (table,) in connection.execute(_SEALED).fetchall():
        columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        new = ", ".join(f"NEW.{column}" for (column,) in columns)
        connection.execute(
            f"CREATE TEMP TRIGGER {table}_added AFTER INSERT ON main.{table} "
            f"BEGIN SELECT added_row('{table}', {new}); END"
        )


def seal(connection: sqlite3.Connection, added: list[Row]) -> None:
    """Add a seal if the open transaction added rows."""
    if added:
        ((total,),) = connection.execute(_LAST).fetchall()
        _add(connection, int.from_bytes(total, "big") + _sum(added))


def source_of(*columns: Iterable[Any]) -> str:
    """Return a name for the rows of a list of sales, which does not depend on their order."""
    return f"rows:{_to_bytes(_sum(zip(*columns, strict=True))).hex()}"


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Raise a DataError if the database does not match its last seal."""
    if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
        raise damaged(path, "(SQLite's integrity check fails)")
    if connection.execute(_LAST).fetchall() != [(_to_bytes(_sum(_rows(connection))),)]:
        raise damaged(path, "(its rows were changed by another program)")


def _rows(connection: sqlite3.Connection) -> Iterator[Row]:
    for row in connection.execute(_SCHEMA).fetchall():
        yield ("", *row)
    for (table,) in connection.execute(_SEALED).fetchall():
        for row in connection.execute(f"SELECT * FROM {table}"):
            yield (table, *row)


def _sum(rows: Iterable[Row]) -> int:
    return sum(
        int.from_bytes(blake2b(ascii(row).encode(), digest_size=_BYTES).digest(), "big")
        for row in rows
    )


def _to_bytes(total: int) -> bytes:
    return (total % (1 << 8 * _BYTES)).to_bytes(_BYTES, "big")


def _add(connection: sqlite3.Connection, total: int) -> None:
    connection.execute("INSERT INTO seals VALUES (NULL, ?)", (_to_bytes(total),))
