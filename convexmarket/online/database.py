"""The tables of an online market; its database holds those of a ledger, too."""

from __future__ import annotations

import sqlite3

from convexmarket.ledger.book import lay_ledger
from convexmarket.ledger.store import Kind

__all__ = ["MARKET", "lay_market"]

#: The kind of database that :class:`convexmarket.ledger.store.Store` opens.
MARKET = Kind("market", "markets", lambda path: path.parent, "online open", "OnlineMarket")

_TABLES = (
    """CREATE TABLE markets (  -- one row
    number INTEGER PRIMARY KEY CHECK (number = 1),
    expected INTEGER NOT NULL CHECK (expected >= 1),
    problem TEXT NOT NULL,
    policy TEXT NOT NULL,
    time TEXT NOT NULL
)""",
    """CREATE TABLE plans (  -- by which sellers after the first so many are quoted
    number INTEGER PRIMARY KEY,
    after INTEGER NOT NULL UNIQUE,
    policy TEXT NOT NULL,
    time TEXT NOT NULL
)""",
    """CREATE TABLE quotes (  -- number: of arrival
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sensitivity REAL NOT NULL CHECK (typeof(sensitivity) = 'real' AND sensitivity >= 0),
    epsilon REAL NOT NULL CHECK (typeof(epsilon) = 'real' AND epsilon >= 0 AND epsilon < 9e999),
    payment REAL NOT NULL CHECK (typeof(payment) = 'real' AND payment >= 0 AND payment < 9e999),
    plan INTEGER NOT NULL REFERENCES plans (number),
    time TEXT NOT NULL
)""",
    """CREATE TABLE answers (
    number INTEGER PRIMARY KEY REFERENCES quotes (number),
    answer TEXT NOT NULL CHECK (answer IN ('accepted', 'declined')),
    time TEXT NOT NULL
)""",
    """CREATE TABLE endings (  -- one row, once no more sellers are quoted
    number INTEGER PRIMARY KEY CHECK (number = 1),
    time TEXT NOT NULL
)""",
    """CREATE TABLE releases (  -- one row, once the model is trained
    number INTEGER PRIMARY KEY CHECK (number = 1),
    release TEXT NOT NULL,
    time TEXT NOT NULL
)""",
)

#: A seller who accepts has sold: the sale is written in the transaction of the answer.
_ANSWERS_ARE_SALES = """CREATE TRIGGER answers_are_sales AFTER INSERT ON answers
WHEN NEW.answer = 'accepted' BEGIN
    INSERT INTO sales SELECT 1 + coalesce((SELECT max(number) FROM sales), 0), q.id, q.epsilon,
        q.payment, NULL, NULL, NEW.time FROM quotes AS q WHERE q.number = NEW.number;
END"""


def lay_market(
    connection: sqlite3.Connection, expected: int, problem: str, policy: str, plan: str, when: str
) -> None:
    """Make the tables of a new market, with its ledger and its first plan."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute(
        "INSERT INTO markets VALUES (1, ?, ?, ?, ?)", (expected, problem, policy, when)
    )
    connection.execute("INSERT INTO plans VALUES (1, 0, ?, ?)", (plan, when))
    lay_ledger(connection, "basic", 0.0)
    connection.execute(_ANSWERS_ARE_SALES)
