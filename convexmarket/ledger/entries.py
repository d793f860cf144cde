"""Tables of a ledger, and the charge of a release, in an open transaction.

Rows are only added. Rows that another program adds, changes or removes break the seal
(:mod:`convexmarket.ledger.seals`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import get_args

import numpy as np
from numpy.typing import ArrayLike

from convexmarket.checks import check_instance
from convexmarket.errors import ReleaseChargedError
from convexmarket.ledger.store import now
from convexmarket.privacy import AccountComposition, Guarantee, PrivacyAccountant
from convexmarket.privacy.guarantee import Law

__all__ = [
    "MODEL",
    "UNNAMED",
    "accountant_of",
    "charge_release",
    "charged_at",
    "check_uncharged",
    "lay_ledger",
    "next_number",
]

#: Reserved names: a prefix for releases without a name, and the model of an online market.
UNNAMED, MODEL = "unnamed-", "market-model"

_TABLES = (
    """CREATE TABLE ledgers (  -- one row
    number INTEGER PRIMARY KEY, composition TEXT NOT NULL, delta REAL NOT NULL, time TEXT NOT NULL
)""",
    """CREATE TABLE sales (
    number INTEGER PRIMARY KEY, seller TEXT NOT NULL, epsilon REAL NOT NULL, price REAL NOT NULL,
    release TEXT,  -- the only one that may use it; NULL: any
    source TEXT,  -- the list that it was read from
    time TEXT NOT NULL
)""",
    """CREATE TABLE ledger_releases (  -- a market's own "releases" holds the model
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, mechanism TEXT NOT NULL,
    accounting TEXT NOT NULL, delta REAL NOT NULL,
    law TEXT NOT NULL, failure REAL NOT NULL,  -- of the profile of the privacy loss
    assumptions TEXT NOT NULL,  -- JSON
    time TEXT NOT NULL
)""",
    """CREATE TABLE charges (
    release INTEGER NOT NULL REFERENCES ledger_releases (number), seller TEXT NOT NULL,
    epsilon REAL NOT NULL, shift REAL NOT NULL,  -- of the profile
    PRIMARY KEY (release, seller)
) WITHOUT ROWID""",
    "CREATE INDEX sales_by_seller ON sales (seller, release)",
    "CREATE INDEX sales_by_source ON sales (source) WHERE source IS NOT NULL",
    "CREATE INDEX charges_by_seller ON charges (seller)",
    # A sale for this release alone pays first, which basic composition alone allows.
    """CREATE VIEW spending AS
SELECT c.release AS release, r.name AS name, c.seller AS seller, c.epsilon AS epsilon,
    max(0.0, c.epsilon - coalesce((
        SELECT sum(s.epsilon) FROM sales AS s WHERE s.seller = c.seller AND s.release = r.name
    ), 0.0)) AS of_any, r.delta AS delta, r.law AS law, c.shift AS shift, r.failure AS failure
FROM charges AS c JOIN ledger_releases AS r ON r.number = c.release""",
)
_SOLD = """
SELECT seller, sum(epsilon) FROM sales
WHERE seller IN (SELECT value FROM json_each(?)) AND (release IS NULL OR release = ?)
GROUP BY seller
"""
_SPENT = """
SELECT seller, of_any, delta, shift, failure FROM spending
WHERE seller IN (SELECT value FROM json_each(?)) AND law = ? ORDER BY release
"""


def lay_ledger(
    connection: sqlite3.Connection, composition: AccountComposition, delta: float
) -> None:
    """Create the tables of a ledger without sales."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO ledgers VALUES (1, ?, ?, ?)", (composition, delta, now()))


def accountant_of(
    connection: sqlite3.Connection, ids: Sequence[str], release: str | None
) -> PrivacyAccountant:
    """Return the current account of these sellers, for a release of this name."""
    ((composition, delta),) = connection.execute("SELECT composition, delta FROM ledgers")
    these, places = json.dumps(list(ids)), {id: place for place, id in enumerate(ids)}
    budget = np.zeros(len(ids))
    for seller, sold in connection.execute(_SOLD, (these, release)):
        budget[places[seller]] = sold
    account = PrivacyAccountant(budget, delta, composition=composition, ids=ids)
    for law in get_args(Law):
        spent = connection.execute(_SPENT, (these, law)).fetchall()
        if spent:
            sellers, epsilon, deltas, shift, failure = zip(*spent, strict=True)
            rows = [places[seller] for seller in sellers]
            account.bring_forward(rows, epsilon, deltas, law, shift, failure)
    return account


def charged_at(connection: sqlite3.Connection, release: str) -> str | None:
    """Return the time of the charge of a release, or None."""
    rows = connection.execute("SELECT time FROM ledger_releases WHERE name = ?", (release,))
    return next((str(time) for (time,) in rows.fetchall()), None)


def check_uncharged(
    connection: sqlite3.Connection,
    release: str | None,
    why: str = "a name can be charged once only",
) -> None:
    """Raise a ReleaseChargedError if a release of this name was charged."""
    when = None if release is None else charged_at(connection, release)
    if when is not None:
        raise ReleaseChargedError(
            f"release {release!r} was charged on {when}, and {why}; charge a new release under "
            "another name"
        )


def charge_release(
    connection: sqlite3.Connection,
    ids: Sequence[str],
    guarantee: Guarantee,
    rows: ArrayLike | None,
    release: str | None,
) -> str:
    """Charge a release to these sellers, and return its name.

    Raises
    ------
    ReleaseChargedError
        If a release of this name was charged.
    BudgetExceededError, ParameterError
        As for :meth:`convexmarket.privacy.PrivacyAccountant.charge`; nothing is charged then.
    """
    check_instance("guarantee", guarantee, Guarantee)
    check_uncharged(connection, release)
    if ids:
        accountant_of(connection, ids, release).charge(guarantee, rows)
    number, profile = next_number(connection, "ledger_releases"), guarantee.profile
    name = f"{UNNAMED}{number}" if release is None else release
    about = name, guarantee.mechanism, guarantee.accounting, float(guarantee.delta), profile.law
    assumptions = json.dumps(list(guarantee.assumptions), ensure_ascii=False)
    connection.execute(
        "INSERT INTO ledger_releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (number, *about, float(profile.failure), assumptions, now()),
    )
    places = range(len(ids)) if rows is None else np.asarray(rows).tolist()
    charges = zip(places, guarantee.epsilon.tolist(), profile.shift.tolist(), strict=True)
    connection.executemany(
        "INSERT INTO charges VALUES (?, ?, ?, ?)",
        ((number, ids[place], epsilon, shift) for place, epsilon, shift in charges if epsilon > 0),
    )
    return name


def next_number(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of the next row of a table."""
    query = f"SELECT coalesce(max(number), 0) + 1 FROM {table}"
    return int(connection.execute(query).fetchall()[0][0])
