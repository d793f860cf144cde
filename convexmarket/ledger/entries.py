"""What happens inside the steps of a ledger; each function is given an open transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_instance
from convexmarket.errors import DataError, NotSupportedError, ParameterError, ReleaseChargedError
from convexmarket.ledger.names import UNNAMED, check_text
from convexmarket.ledger.store import now
from convexmarket.privacy import AccountComposition, Guarantee, PrivacyAccountant

__all__ = [
    "Settings",
    "accountant_of",
    "charge_release",
    "charged_at",
    "check_uncharged",
    "keeps_market",
    "record_sales",
    "settings_of",
]

Floats = NDArray[np.float64]

#: Of a seller's sales together; beyond it rounding may make an infinite budget.
LARGEST_SUM = 1.7e308

_OF = "seller IN (SELECT value FROM json_each(?))"
_SOLD = (
    f"SELECT seller, sum(epsilon) FROM sales WHERE {_OF} AND (release IS NULL OR release = ?) "
    "GROUP BY seller"
)
_TOO_MUCH = (
    f"SELECT seller FROM sales WHERE {_OF} GROUP BY seller "
    "HAVING NOT coalesce(max(sum(epsilon), sum(price)) <= ?, 0) LIMIT 1"
)
_SPENT = f"SELECT seller, of_any, delta FROM spending WHERE {_OF} ORDER BY release"


class Settings(NamedTuple):
    """How guarantees add up, and the probability with which an epsilon may be exceeded."""

    composition: AccountComposition
    delta: float


def keeps_market(connection: sqlite3.Connection) -> bool:
    """Say whether the database is an online market's."""
    tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'markets'"
    return bool(connection.execute(tables).fetchall()[0][0])


def settings_of(connection: sqlite3.Connection) -> Settings:
    """Return what a ledger was made with."""
    return Settings(*connection.execute("SELECT composition, delta FROM ledgers").fetchall()[0])


def record_sales(
    connection: sqlite3.Connection,
    ids: Sequence[str],
    epsilon: Floats,
    prices: Floats,
    release: str | None,
    source: str | None,
) -> None:
    """Write down sales, all at the same time.

    Raises
    ------
    ReleaseChargedError
        If the release that they are for is charged.
    NotSupportedError
        If they are for one release, and the composition is advanced.
    DataError
        If there are sales of the same source.
    ParameterError
        If a seller's sales together are too large to be a number.
    """
    if release is not None:
        check_uncharged(connection, release, "what is sold for it could never be used")
        if settings_of(connection).composition != "basic":
            raise NotSupportedError(
                f"release is {release!r}, and sales for one release need a ledger with basic "
                "composition; leave release out, which lets any release use them"
            )
    if source is not None:
        rows = connection.execute("SELECT time FROM sales WHERE source = ? LIMIT 1", (source,))
        for (time,) in rows.fetchall():
            raise DataError(
                f"sales of the source {source!r} were recorded on {time}; recorded again they "
                "would count twice. If they were sold again, give another source, or none (on the "
                "command line: --again)"
            )
    (first,) = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM sales").fetchall()[0]
    when = now()
    connection.executemany(
        "INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            (number, id, amount, price, release, source, when)
            for number, (id, amount, price) in enumerate(
                zip(ids, epsilon.tolist(), prices.tolist(), strict=True), start=first
            )
        ),
    )
    for (seller,) in connection.execute(_TOO_MUCH, (json.dumps(list(ids)), LARGEST_SUM)).fetchall():
        raise ParameterError(
            f"the sales of seller {seller!r} come to more than {LARGEST_SUM:g} in epsilon or in "
            "price, which is no amount any more; nothing was recorded; give smaller ones"
        )


def accountant_of(
    connection: sqlite3.Connection, ids: Sequence[str], release: str | None
) -> PrivacyAccountant:
    """Return the account of these sellers as it stands, for a release of this name."""
    settings, places = settings_of(connection), {id: place for place, id in enumerate(ids)}
    these = json.dumps(list(ids))
    budget = np.zeros(len(ids))
    for seller, sold in connection.execute(_SOLD, (these, release)):
        budget[places[seller]] = sold
    account = PrivacyAccountant(
        budget, settings.delta, composition=settings.composition, ids=tuple(ids)
    )
    spent = connection.execute(_SPENT, (these,)).fetchall()
    account.bring_forward(
        [places[row[0]] for row in spent], [row[1] for row in spent], [row[2] for row in spent]
    )
    return account


def charged_at(connection: sqlite3.Connection, release: str) -> str | None:
    """Return when a release was charged, if it was."""
    rows = connection.execute("SELECT time FROM ledger_releases WHERE name = ?", (release,))
    return next((str(time) for (time,) in rows.fetchall()), None)


def check_uncharged(connection: sqlite3.Connection, release: str | None, why: str) -> None:
    """Raise a ReleaseChargedError if there is a release of this name."""
    when = None if release is None else charged_at(connection, release)
    if when is not None:
        raise ReleaseChargedError(
            f"release {release!r} was charged on {when}, and {why}; if it was not published, "
            "charge another attempt under another name"
        )


def _check_texts(guarantee: Guarantee) -> None:
    """Refuse a description that cannot be stored."""
    if not isinstance(guarantee.assumptions, tuple | list):
        raise ParameterError(f"assumptions must be a tuple of texts, got {guarantee.assumptions!r}")
    check_text("mechanism", guarantee.mechanism)
    check_text("accounting", guarantee.accounting)
    for assumption in guarantee.assumptions:
        check_text("an assumption", assumption)


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
        If there is a release of this name.
    BudgetExceededError, ParameterError
        As :meth:`convexmarket.privacy.PrivacyAccountant.charge` says; nothing is charged then.
    """
    check_instance("guarantee", guarantee, Guarantee)
    _check_texts(guarantee)
    check_uncharged(connection, release, "a second one would be charged as if it were the first")
    if ids:
        accountant_of(connection, ids, release).charge(guarantee, rows)
    (number,) = connection.execute(
        "SELECT coalesce(max(number), 0) + 1 FROM ledger_releases"
    ).fetchall()[0]
    name = f"{UNNAMED}{number}" if release is None else release
    connection.execute(
        "INSERT INTO ledger_releases VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            name,
            guarantee.mechanism,
            guarantee.accounting,
            float(guarantee.delta),
            json.dumps(list(guarantee.assumptions), ensure_ascii=False),
            now(),
        ),
    )
    places = range(len(ids)) if rows is None else np.asarray(rows).tolist()
    connection.executemany(
        "INSERT INTO charges VALUES (?, ?, ?)",
        (
            (number, ids[place], epsilon)
            for place, epsilon in zip(places, guarantee.epsilon.tolist(), strict=True)
            if epsilon > 0
        ),
    )
    return name
