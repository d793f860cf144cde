"""The tables of an online market: what they hold, and what they refuse.

Rows are only added. Triggers refuse to change or remove any, and to add what would contradict the
rest, whoever asks: the rules of a market hold in its database, and not only in the code that uses
it. A row cannot be replaced either, because each trigger looks for it first.
"""

from __future__ import annotations

import sqlite3

__all__ = ["APPLICATION", "VERSION", "lay_tables"]

#: "cmkt": marks an SQLite database as one of ours.
APPLICATION = 0x636D6B74
#: Version of the tables below.
VERSION = 1

_TABLES = """
CREATE TABLE markets (  -- one row
    number INTEGER PRIMARY KEY CHECK (number = 1),
    expected INTEGER NOT NULL CHECK (expected >= 1),
    problem TEXT NOT NULL,
    policy TEXT NOT NULL,
    time TEXT NOT NULL
);
CREATE TABLE plans (  -- by which sellers after the first so many are quoted
    number INTEGER PRIMARY KEY,
    after INTEGER NOT NULL UNIQUE,
    policy TEXT NOT NULL,
    time TEXT NOT NULL
);
CREATE TABLE quotes (  -- number: of arrival
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sensitivity REAL NOT NULL CHECK (typeof(sensitivity) = 'real' AND sensitivity >= 0),
    epsilon REAL NOT NULL CHECK (typeof(epsilon) = 'real' AND epsilon >= 0 AND epsilon < 9e999),
    payment REAL NOT NULL CHECK (typeof(payment) = 'real' AND payment >= 0 AND payment < 9e999),
    plan INTEGER NOT NULL REFERENCES plans (number),
    time TEXT NOT NULL
);
CREATE TABLE answers (
    number INTEGER PRIMARY KEY REFERENCES quotes (number),
    answer TEXT NOT NULL CHECK (answer IN ('accepted', 'declined')),
    time TEXT NOT NULL
);
CREATE TABLE endings (  -- one row, once no more sellers are quoted
    number INTEGER PRIMARY KEY CHECK (number = 1),
    time TEXT NOT NULL
);
CREATE TABLE releases (  -- one row, once the model is trained
    number INTEGER PRIMARY KEY CHECK (number = 1),
    release TEXT NOT NULL,
    time TEXT NOT NULL
);
"""

#: When no row may be added, and why; in the order in which they are asked.
_REFUSALS = {
    "markets": [("EXISTS (SELECT 1 FROM markets)", "there is a market already")],
    "plans": [
        ("EXISTS (SELECT 1 FROM endings)", "the market is closed"),
        (
            "NEW.number <> 1 + coalesce((SELECT max(number) FROM plans), 0)",
            "plans are numbered without gaps",
        ),
        (
            "NEW.after <> coalesce((SELECT max(number) FROM quotes), 0)",
            "a plan is for the next seller",
        ),
        ("EXISTS (SELECT 1 FROM plans WHERE after = NEW.after)", "there is such a plan already"),
    ],
    "quotes": [
        ("EXISTS (SELECT 1 FROM endings)", "the market is closed"),
        (
            "NEW.number <> 1 + coalesce((SELECT max(number) FROM quotes), 0)",
            "quotes are numbered without gaps",
        ),
        ("NEW.number > (SELECT expected FROM markets)", "the market is full"),
        ("EXISTS (SELECT 1 FROM quotes WHERE id = NEW.id)", "this seller has a quote already"),
    ],
    "answers": [
        ("EXISTS (SELECT 1 FROM endings)", "the market is closed"),
        ("EXISTS (SELECT 1 FROM answers WHERE number = NEW.number)", "the answer is given already"),
        (
            "NOT EXISTS (SELECT 1 FROM quotes WHERE number = NEW.number AND epsilon > 0)",
            "there is no offer to answer",
        ),
    ],
    "endings": [
        ("EXISTS (SELECT 1 FROM endings)", "the market is closed already"),
        (
            "EXISTS (SELECT 1 FROM quotes WHERE epsilon > 0"
            " AND number NOT IN (SELECT number FROM answers))",
            "there are unanswered offers",
        ),
    ],
    "releases": [
        ("EXISTS (SELECT 1 FROM releases)", "there is a release already"),
        ("NOT EXISTS (SELECT 1 FROM endings)", "the market is open"),
    ],
}


def lay_tables(connection: sqlite3.Connection) -> None:
    """Make the tables, empty, and mark the database as a market's."""
    for statement in _TABLES.split(");\n"):
        if statement.strip():
            connection.execute(f"{statement})")
    for table, refusals in _REFUSALS.items():
        cases = " ".join(f"WHEN {when} THEN RAISE(ABORT, '{why}')" for when, why in refusals)
        connection.execute(
            f"CREATE TRIGGER {table}_refuse BEFORE INSERT ON {table} "
            f"BEGIN SELECT CASE {cases} END; END"
        )
        for event in ("UPDATE", "DELETE"):
            connection.execute(
                f"CREATE TRIGGER {table}_no_{event.lower()} BEFORE {event} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'rows of a market are only added'); END"
            )
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {VERSION}")
