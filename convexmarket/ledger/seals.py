"""What tells whether a database still holds what was written to it.

Every step that adds rows adds one to ``seals`` as well: the sum, modulo 2^128, of the digests
(BLAKE2b of 128 bits) of all rows of the other tables and of the schema. A row holds its own
number, so that a row that was altered, removed, repeated, moved, or written by another program
changes the sum. What a step costs depends on what it adds, not on how much there is.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from convexmarket.errors import DataError
from convexmarket.ledger.tables import VERSION, lay_tables, pragma

__all__ = ["check_whole", "damaged", "last_seal", "lay_seals", "seal", "watch"]

_BYTES = 16
_TABLE = f"""CREATE TABLE seals (  -- one row per step
    number INTEGER PRIMARY KEY,
    sum BLOB NOT NULL CHECK (typeof(sum) = 'blob' AND length(sum) = {_BYTES})
)"""
_REFUSALS = {
    "seals": [
        (
            "NEW.number <> 1 + coalesce((SELECT max(number) FROM seals), 0)",
            "seals are numbered without gaps",
        )
    ]
}
_SCHEMA = "SELECT type, name, tbl_name, sql FROM sqlite_master"
_SEALED = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'seals'"
_HAS_SEALS = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'seals'"

#: Columns of JSON by their tables, and what each holds.
_JSON: dict[str, tuple[str, type]] = {
    "ledger_releases": ("assumptions", list),
    "releases": ("release", object),
}

#: Of a table, and then its columns.
Row = tuple[Any, ...]


def damaged(path: Path, how: str) -> DataError:
    """Return the error that says so, and what to do; ``how`` must not quote a cell."""
    return DataError(
        f"{path} is damaged {how}; bring back a backup: move the file away, with those beside it "
        'whose names begin with its own, then put the backup there (docs/ledger.md, "Backups")'
    )


def lay_seals(connection: sqlite3.Connection) -> None:
    """Seal a database that never was, as it is."""
    lay_tables(connection, (_TABLE,), _REFUSALS, "ledger")
    _add(connection, 1, _sum(_rows(connection)))


def watch(connection: sqlite3.Connection, added: list[Row]) -> None:
    """Let every row that this connection adds from now on be written down in a list too."""
    connection.create_function("added_row", -1, lambda *row: added.append(row))
    for (table,) in connection.execute(_SEALED).fetchall():
        columns = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        new = ", ".join(f"NEW.{column}" for (column,) in columns)
        connection.execute(
            f"CREATE TEMP TRIGGER {table}_added AFTER INSERT ON main.{table} "
            f"BEGIN SELECT added_row('{table}', {new}); END"
        )


def seal(connection: sqlite3.Connection, added: list[Row]) -> None:
    """End the step that is open by sealing the rows that it added."""
    if added:
        number, total = last_seal(connection)
        _add(connection, number + 1, int.from_bytes(total, "big") + _sum(added))


def last_seal(connection: sqlite3.Connection) -> tuple[int, bytes]:
    """Return the number and the sum of the seal of all that there is."""
    query = "SELECT number, sum FROM seals ORDER BY number DESC LIMIT 1"
    number, total = connection.execute(query).fetchall()[0]
    return number, total


def check_whole(connection: sqlite3.Connection, path: Path) -> None:
    """Read everything, in the transaction that is open, and compare it with its seal.

    A database of an earlier version has none; of it the structure is checked alone, and that its
    text and JSON can be read.

    Raises
    ------
    DataError
        If anything is not as it was written.
    """
    text_factory = connection.text_factory
    connection.text_factory = _any_text
    try:
        if connection.execute("PRAGMA integrity_check(1)").fetchall() != [("ok",)]:
            raise damaged(path, "(SQLite's integrity check fails)")
        sealed = connection.execute(_HAS_SEALS).fetchall() == [(1,)]
        if sealed != (pragma(connection, "user_version") == VERSION):
            raise damaged(path, "(its version is not that of its tables)")
        if sealed:
            seals = connection.execute("SELECT sum FROM seals ORDER BY number DESC LIMIT 1")
            if seals.fetchall() != [(_to_bytes(_sum(_rows(connection))),)]:
                raise damaged(path, "(its rows are not those that were written)")
        else:
            connection.text_factory = text_factory
            _check_readable(connection, path)
    finally:
        connection.text_factory = text_factory


def _check_readable(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse text that is none any more, and JSON that is none."""
    tables = {row[0] for row in _rows(connection)}
    for table, (column, kind) in _JSON.items():
        if table in tables:
            for (text,) in connection.execute(f"SELECT {column} FROM {table}").fetchall():
                try:
                    whole = isinstance(json.loads(text), kind)
                except ValueError:
                    whole = False
                if not whole:
                    raise damaged(path, "(JSON in it cannot be read)")


def _any_text(content: bytes) -> str:
    """Return stored text, also where it has become none: it is compared, and not shown."""
    return content.decode("utf-8", "surrogateescape")


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


def _add(connection: sqlite3.Connection, number: int, total: int) -> None:
    connection.execute("INSERT INTO seals VALUES (?, ?)", (number, _to_bytes(total)))
