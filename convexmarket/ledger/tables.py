"""The tables of a ledger: what they hold, and what they refuse.

Rows are only added. Triggers refuse to change or remove any, and to add what would contradict the
rest, for every program: the rules hold in the database, and not only in the code that uses it. A
row cannot be replaced either, because each trigger looks for it first.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from convexmarket.privacy import AccountComposition
from convexmarket.privacy.accountant import ROUNDING

__all__ = ["APPLICATION", "VERSION", "lay_ledger", "lay_tables", "mark", "pragma"]

#: "cmkt": marks an SQLite database as one of ours.
APPLICATION = 0x636D6B74
#: Version of the tables. A market's of version 1 has no ledger, none of version 2 has seals.
VERSION = 3

#: The accountant's slack, and as much again: SQLite adds up in another order.
_SLACK = 1.0 + 2.0 * ROUNDING

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

_SOLD = (
    "(SELECT coalesce(sum(epsilon), 0.0) FROM sales WHERE seller = NEW.seller AND (release IS NULL"
    " OR release = (SELECT name FROM ledger_releases WHERE number = NEW.release)))"
)
_BASIC = "(SELECT composition FROM ledgers) = 'basic'"
_DELTA = "(SELECT delta FROM ledger_releases WHERE number = NEW.release)"

#: When no row may be added, and why; in the order in which they are asked.
_REFUSALS = {
    "ledgers": [("EXISTS (SELECT 1 FROM ledgers)", "there is a ledger already")],
    "sales": [
        (
            "NEW.number <> 1 + coalesce((SELECT max(number) FROM sales), 0)",
            "sales are numbered without gaps",
        ),
        (
            f"NEW.release IS NOT NULL AND NOT {_BASIC}",
            "sales for one release need basic composition",
        ),
        (
            "EXISTS (SELECT 1 FROM ledger_releases WHERE name = NEW.release)",
            "this release was charged already",
        ),
    ],
    "ledger_releases": [
        (
            "NEW.number <> 1 + coalesce((SELECT max(number) FROM ledger_releases), 0)",
            "releases are numbered without gaps",
        ),
        (
            "EXISTS (SELECT 1 FROM ledger_releases WHERE name = NEW.name)",
            "there is a release of this name already",
        ),
    ],
    "charges": [
        (
            "EXISTS (SELECT 1 FROM charges WHERE release = NEW.release AND seller = NEW.seller)",
            "this seller is charged already",
        ),
        (
            "NEW.release <> (SELECT max(number) FROM ledger_releases)",
            "only the latest release is charged",
        ),
        (
            f"{_BASIC} AND NEW.epsilon + (SELECT coalesce(sum(of_any), 0.0) FROM spending"
            f" WHERE seller = NEW.seller) > {_SOLD} * {_SLACK!r}",
            "the charge is beyond what was sold",
        ),
        (
            f"{_BASIC} AND {_DELTA} + (SELECT coalesce(sum(delta), 0.0) FROM spending"
            f" WHERE seller = NEW.seller) > (SELECT delta FROM ledgers) * {_SLACK!r}",
            "the charge is beyond the delta of the ledger",
        ),
    ],
}


def lay_tables(
    connection: sqlite3.Connection,
    statements: Sequence[str],
    refusals: Mapping[str, Sequence[tuple[str, str]]],
    whole: str,
) -> None:
    """Make tables, empty, with the triggers that let rows be added only.

    Parameters
    ----------
    connection : sqlite3.Connection
    statements : sequence of str
    refusals : mapping of str to sequence of (str, str)
        For each table, when no row may be added, and why.
    whole : str
        What the tables are part of: "market", for example.
    """
    for statement in statements:
        connection.execute(statement)
    for table, cases in refusals.items():
        when = " ".join(f"WHEN {case} THEN RAISE(ABORT, '{why}')" for case, why in cases)
        connection.execute(
            f"CREATE TRIGGER {table}_refuse BEFORE INSERT ON {table} "
            f"BEGIN SELECT CASE {when} END; END"
        )
        for event in ("UPDATE", "DELETE"):
            connection.execute(
                f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, 'rows of a {whole} are only added'); END"
            )


def lay_ledger(
    connection: sqlite3.Connection, composition: AccountComposition, delta: float, when: str
) -> None:
    """Make the tables of a ledger without sales."""
    lay_tables(connection, _TABLES, _REFUSALS, "ledger")
    connection.execute("INSERT INTO ledgers VALUES (1, ?, ?, ?)", (composition, delta, when))


def mark(connection: sqlite3.Connection) -> None:
    """Mark a database as one of ours, of this version."""
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")


def pragma(connection: sqlite3.Connection, text: str) -> object:
    """Return the value of a pragma."""
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]
