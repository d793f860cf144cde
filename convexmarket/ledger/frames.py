"""What a ledger holds, as tables; each function is given an open transaction."""

from __future__ import annotations

import json
import sqlite3

import numpy as np
import pandas as pd

from convexmarket.ledger.entries import accountant_of

__all__ = ["balance_of", "charges_of", "releases_of", "sales_of"]

_SALES = "SELECT seller, epsilon, price, release, source, time FROM sales ORDER BY number"
_RELEASES = """
SELECT r.name, r.mechanism, r.accounting, r.delta, count(c.seller), coalesce(sum(c.epsilon), 0.0),
    coalesce(max(c.epsilon), 0.0), r.assumptions, r.time
FROM ledger_releases AS r LEFT JOIN charges AS c ON c.release = r.number
GROUP BY r.number ORDER BY r.number
"""
_CHARGES = "SELECT name, seller, epsilon FROM spending ORDER BY release, seller"
_SOLD = "SELECT seller, sum(epsilon), sum(price) FROM sales GROUP BY seller ORDER BY min(number)"
#: What was sold for one release: what that release used of it, or may still use.
_RESERVED = """
SELECT s.seller,
    sum(CASE WHEN r.number IS NULL THEN s.epsilon ELSE 0.0 END),
    sum(CASE WHEN r.number IS NULL THEN 0.0 ELSE min(s.epsilon, coalesce(c.epsilon, 0.0)) END)
FROM (
    SELECT seller, release, sum(epsilon) AS epsilon FROM sales
    WHERE release IS NOT NULL GROUP BY seller, release
) AS s
LEFT JOIN ledger_releases AS r ON r.name = s.release
LEFT JOIN charges AS c ON c.release = r.number AND c.seller = s.seller
GROUP BY s.seller
"""


def _frame(connection: sqlite3.Connection, query: str, **types: str) -> pd.DataFrame:
    rows = connection.execute(query).fetchall()
    return pd.DataFrame(rows, columns=list(types), dtype=object).astype(types)


def sales_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return the sales in the order of recording."""
    return _frame(
        connection,
        _SALES,
        id="object",
        epsilon="float64",
        price="float64",
        release="object",
        source="object",
        time="object",
    )


def releases_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return the releases in the order of charging."""
    frame = _frame(
        connection,
        _RELEASES,
        name="object",
        mechanism="object",
        accounting="object",
        delta="float64",
        sellers="int64",
        epsilon="float64",
        largest_epsilon="float64",
        assumptions="object",
        time="object",
    )
    frame["assumptions"] = [tuple(json.loads(text)) for text in frame["assumptions"]]
    return frame


def charges_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return what every release took from every seller."""
    return _frame(connection, _CHARGES, release="object", id="object", epsilon="float64")


def balance_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return what each seller sold, what of it is spent and left, and what was paid."""
    frame = _frame(connection, _SOLD, id="object", sold="float64", paid="float64")
    spent, left = np.zeros(len(frame)), np.zeros(len(frame))
    if len(frame):
        account = accountant_of(connection, frame["id"].tolist(), None)
        spent, left = account.spent, account.remaining
        places = {id: place for place, id in enumerate(frame["id"])}
        for seller, reserved, used in connection.execute(_RESERVED):
            left[places[seller]] += reserved
            spent[places[seller]] += used
    return frame.assign(spent=spent, left=left)[["id", "sold", "spent", "left", "paid"]]
