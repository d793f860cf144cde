"""The tables of a ledger.

Rows are only added: triggers refuse to change or remove any. The steps of a ledger check what they
add (:mod:`convexmarket.ledger.entries`); rows of other programs break the seal
(:mod:`convexmarket.ledger.seals`).
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from convexmarket.privacy import AccountComposition

__all__ = ["APPLICATION", "VERSION", "lay_ledger", "lay_tables", "mark", "pragma"]

#: "cmkt": marks an SQLite database as one of ours.
APPLICATION = 0x636D6B74
#: Version of the tables; no other is read.
VERSION = 3

_AMOUNT = "REAL NOT NULL CHECK (typeof({0}) = 'real' AND {0} >= 0 AND {0} < 9e999)"
_TABLES = (
    """CREATE TABLE ledgers (  -- one row
    number INTEGER PRIMARY KEY CHECK (number = 1),
    composition TEXT NOT NULL CHECK (composition IN ('basic', 'advanced')),
    delta REAL NOT NULL CHECK (typeof(delta) = 'real' AND delta >= 0 AND delta < 1),
    time TEXT NOT NULL
)""",
    f"""CREATE TABLE sales (
    number INTEGER PRIMARY KEY,
    seller TEXT NOT NULL CHECK (typeof(seller) = 'text' AND seller <> ''),
    epsilon {_AMOUNT.format("epsilon")},
    price {_AMOUNT.format("price")},
    release TEXT CHECK (release <> ''),  -- the only one that may use it; NULL: any
    source TEXT,  -- the list that it was read from
    time TEXT NOT NULL
)""",
    f"""CREATE TABLE ledger_releases (  -- a market's own "releases" holds the model
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE CHECK (typeof(name) = 'text' AND name <> ''),
    mechanism TEXT NOT NULL,
    accounting TEXT NOT NULL,
    delta {_AMOUNT.format("delta")},
    assumptions TEXT NOT NULL,  -- JSON
    time TEXT NOT NULL
)""",
    f"""CREATE TABLE charges (
    release INTEGER NOT NULL REFERENCES ledger_releases (number),
    seller TEXT NOT NULL CHECK (typeof(seller) = 'text'),
    epsilon {_AMOUNT.format("epsilon")} CHECK (epsilon > 0),
    PRIMARY KEY (release, seller)
) WITHOUT ROWID""",
    "CREATE INDEX sales_by_seller ON sales (seller, release)",
    "CREATE INDEX sales_by_source ON sales (source) WHERE source IS NOT NULL",
    "CREATE INDEX charges_by_seller ON charges (seller)",
    # What a seller sold for this release alone pays first; the rest is what it sold for any.
    """CREATE VIEW spending AS
SELECT c.release AS release, r.name AS name, c.seller AS seller, c.epsilon AS epsilon,
    max(0.0, c.epsilon - coalesce((
        SELECT sum(s.epsilon) FROM sales AS s WHERE s.seller = c.seller AND s.release = r.name
    ), 0.0)) AS of_any, r.delta AS delta
FROM charges AS c JOIN ledger_releases AS r ON r.number = c.release""",
)


def lay_tables(connection: sqlite3.Connection, statements: Sequence[str]) -> None:
    """Make empty tables, and triggers that let rows be added only."""
    for statement in statements:
        connection.execute(statement)
    for table in re.findall(r"CREATE TABLE (\w+)", "\n".join(statements)):
        for event in ("UPDATE", "DELETE"):
            connection.execute(
                f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'rows are only added'); END"
            )


def lay_ledger(
    connection: sqlite3.Connection, composition: AccountComposition, delta: float, when: str
) -> None:
    """Make the tables of a ledger without sales."""
    lay_tables(connection, _TABLES)
    connection.execute("INSERT INTO ledgers VALUES (1, ?, ?, ?)", (composition, delta, when))


def mark(connection: sqlite3.Connection) -> None:
    """Mark a database as one of ours, of this version."""
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def pragma(connection: sqlite3.Connection, text: str) -> object:
    """Return the value of a pragma."""
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]
