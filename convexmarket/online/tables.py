"""The tables of an online market: what they hold, and what they refuse.

Rows are only added, as in a ledger (:mod:`convexmarket.ledger.tables`), whose tables stand beside
these (:mod:`convexmarket.ledger.markets`).
"""

from __future__ import annotations

import sqlite3

from convexmarket.ledger.markets import add_ledger
from convexmarket.ledger.tables import lay_tables

__all__ = ["lay_market"]

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


def lay_market(
    connection: sqlite3.Connection, expected: int, problem: str, policy: str, plan: str, when: str
) -> None:
    """Make the tables of a new market, with its ledger and its first plan."""
    lay_tables(connection, _TABLES, _REFUSALS, "market")
    connection.execute(
        "INSERT INTO markets VALUES (1, ?, ?, ?, ?)", (expected, problem, policy, when)
    )
    connection.execute("INSERT INTO plans VALUES (1, 0, ?, ?)", (plan, when))
    add_ledger(connection)
