"""The database of an online market: a :class:`convexmarket.ledger.store.Store` with its tables."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from convexmarket.ledger.store import Kind, Store, create_database, now
from convexmarket.online.tables import lay_market

__all__ = ["create_market", "market_store"]

MARKET = Kind("market", "markets", lambda path: path.parent, "online open", "OnlineMarket")


def market_store(path: Path) -> Store:
    """Return the store of an existing market.

    Raises
    ------
    DataError
        If there is no market, its database is damaged, or its tables are of a newer version.
    """
    return Store(path, MARKET)


def create_market(path: Path, expected: int, problem: str, policy: str, plan: str) -> None:
    """Write the database of a new market.

    Parameters
    ----------
    path : pathlib.Path
        Its folder is made if there is none.
    expected : int
        Number of sellers after which the market is full.
    problem, policy, plan : str
        What is kept as it is; the last two are JSON.

    Raises
    ------
    DataError
        If there is such a file, or it cannot be written.
    """

    def fill(connection: sqlite3.Connection) -> None:
        lay_market(connection, expected, problem, policy, plan, now())

    create_database(path, MARKET, fill)
