"""The tables of a ledger, and the steps on them; each function is given an open transaction.

Rows are only added. The steps check what they add. Rows that another program adds, changes or
removes break the seal (:mod:`convexmarket.ledger.seals`).
"""

from __future__ import annotations

import json
import sqlite3
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_instance, checked_id, forms_of, is_iterable
from convexmarket.errors import DataError, NotSupportedError, ParameterError, ReleaseChargedError
from convexmarket.ledger.store import now
from convexmarket.privacy import AccountComposition, Guarantee, PrivacyAccountant
from convexmarket.privacy.guarantee import Law

__all__ = [
    "MODEL",
    "Settings",
    "accountant_of",
    "balance_of",
    "charge_release",
    "charged_at",
    "charges_of",
    "check_uncharged",
    "checked_ids",
    "checked_release",
    "keeps_market",
    "lay_ledger",
    "record_sales",
    "releases_of",
    "sales_of",
    "settings_of",
]

Floats = NDArray[np.float64]

#: Names that a ledger gives: to releases without one, and to the model of an online market.
UNNAMED, MODEL = "unnamed-", "market-model"
#: Of a seller's sales together; beyond it rounding may make an infinite budget.
LARGEST_SUM = 1.7e308

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
_OF = "seller IN (SELECT value FROM json_each(?))"
_SOLD = (
    f"SELECT seller, sum(epsilon) FROM sales WHERE {_OF} AND (release IS NULL OR release = ?) "
    "GROUP BY seller"
)
_TOO_MUCH = (
    f"SELECT seller FROM sales WHERE {_OF} GROUP BY seller "
    "HAVING NOT coalesce(max(sum(epsilon), sum(price)) <= ?, 0) LIMIT 1"
)
_SPENT = (
    f"SELECT seller, of_any, delta, shift, failure FROM spending WHERE {_OF} AND law = ? "
    "ORDER BY release"
)
_RELEASES = """
SELECT r.name, r.mechanism, r.accounting, r.delta, r.law, count(c.seller),
    coalesce(sum(c.epsilon), 0.0), coalesce(max(c.epsilon), 0.0), r.assumptions, r.time
FROM ledger_releases AS r LEFT JOIN charges AS c ON c.release = r.number
GROUP BY r.number ORDER BY r.number
"""
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


class Settings(NamedTuple):
    """Composition of guarantees, and the probability with which an epsilon may be exceeded."""

    composition: AccountComposition
    delta: float


def lay_ledger(
    connection: sqlite3.Connection, composition: AccountComposition, delta: float
) -> None:
    """Make the tables of a ledger without sales."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO ledgers VALUES (1, ?, ?, ?)", (composition, delta, now()))


def checked_ids(ids: Iterable[str]) -> list[str]:
    """Return ids of sellers in their stored form and in their order."""
    if isinstance(ids, str | pd.DataFrame) or not is_iterable(ids):
        raise ParameterError(f"ids must be a sequence of text, one id per seller, got {ids!r}")
    return forms_of(list(ids))


def checked_release(name: str) -> str:
    """Return the name of a release in its stored form, or raise a ParameterError."""
    form = checked_id(name, "release")
    for reserved in (UNNAMED, MODEL):
        if form.startswith(reserved):
            raise ParameterError(
                f"release {form!r} begins with {reserved!r}, as the ledger calls releases itself; "
                "give another name"
            )
    return form


def keeps_market(connection: sqlite3.Connection) -> bool:
    """Check whether the database is an online market's."""
    tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'markets'"
    return bool(connection.execute(tables).fetchall()[0][0])


def settings_of(connection: sqlite3.Connection) -> Settings:
    """Return the settings of a ledger."""
    return Settings(*connection.execute("SELECT composition, delta FROM ledgers").fetchall()[0])


def record_sales(
    connection: sqlite3.Connection,
    ids: Sequence[str],
    epsilon: Floats,
    prices: Floats,
    release: str | None,
    source: str | None,
) -> None:
    """Record sales, all at the same time; errors are those of ``Ledger.sell``."""
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
    first, when = _next_number(connection, "sales"), now()
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
    """Build the account of these sellers as it stands, for a release of this name."""
    settings, places = settings_of(connection), {id: place for place, id in enumerate(ids)}
    these = json.dumps(list(ids))
    budget = np.zeros(len(ids))
    for seller, sold in connection.execute(_SOLD, (these, release)):
        budget[places[seller]] = sold
    account = PrivacyAccountant(
        budget, settings.delta, composition=settings.composition, ids=tuple(ids)
    )
    for law in get_args(Law):
        spent = connection.execute(_SPENT, (these, law)).fetchall()
        sellers, epsilon, delta, shift, failure = zip(*spent, strict=True) if spent else [()] * 5
        rows = [places[seller] for seller in sellers]
        account.bring_forward(rows, epsilon, delta, law, shift, failure)
    return account


def charged_at(connection: sqlite3.Connection, release: str) -> str | None:
    """Return the time at which a release was charged, if it was."""
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
    number, profile = _next_number(connection, "ledger_releases"), guarantee.profile
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


def sales_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return the sales in the order of recording."""
    query = "SELECT seller, epsilon, price, release, source, time FROM sales ORDER BY number"
    numbers = dict.fromkeys(("epsilon", "price"), "float64")
    return _frame(connection, query, "id epsilon price release source time", numbers)


def releases_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return the releases in the order of charging."""
    names = "name mechanism accounting delta law sellers epsilon largest_epsilon assumptions time"
    numbers = dict.fromkeys(("delta", "epsilon", "largest_epsilon"), "float64")
    frame = _frame(connection, _RELEASES, names, numbers | {"sellers": "int64"})
    frame["assumptions"] = [tuple(json.loads(text)) for text in frame["assumptions"]]
    return frame


def charges_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return the charges of every release to every seller."""
    query = "SELECT name, seller, epsilon FROM spending ORDER BY release, seller"
    return _frame(connection, query, "release id epsilon", {"epsilon": "float64"})


def balance_of(connection: sqlite3.Connection) -> pd.DataFrame:
    """Return what each seller sold, what of it is spent and left, and what was paid."""
    query = (
        "SELECT seller, sum(epsilon), sum(price) FROM sales GROUP BY seller ORDER BY min(number)"
    )
    frame = _frame(connection, query, "id sold paid", {"sold": "float64", "paid": "float64"})
    spent, left = np.zeros(len(frame)), np.zeros(len(frame))
    if len(frame):
        account = accountant_of(connection, frame["id"].tolist(), None)
        spent, left = account.spent, account.remaining
        places = {id: place for place, id in enumerate(frame["id"])}
        for seller, reserved, used in connection.execute(_RESERVED):
            left[places[seller]] += reserved
            spent[places[seller]] += used
    return frame.assign(spent=spent, left=left)[["id", "sold", "spent", "left", "paid"]]


def _next_number(connection: sqlite3.Connection, table: str) -> int:
    query = f"SELECT coalesce(max(number), 0) + 1 FROM {table}"
    return int(connection.execute(query).fetchall()[0][0])


def _frame(
    connection: sqlite3.Connection, query: str, names: str, types: dict[str, str]
) -> pd.DataFrame:
    rows = connection.execute(query).fetchall()
    return pd.DataFrame(rows, columns=names.split(), dtype=object).astype(types)


def _check_texts(guarantee: Guarantee) -> None:
    """Refuse a description that cannot be stored."""
    if not isinstance(guarantee.assumptions, tuple | list):
        raise ParameterError(f"assumptions must be a tuple of texts, got {guarantee.assumptions!r}")
    texts = {"mechanism": [guarantee.mechanism], "accounting": [guarantee.accounting]}
    for name, values in (texts | {"an assumption": list(guarantee.assumptions)}).items():
        for text in values:
            if not isinstance(text, str):
                raise ParameterError(f"{name} of the guarantee must be text, got {text!r}")
            if any(unicodedata.category(c) == "Cs" for c in text):
                raise ParameterError(
                    f"{name} of the guarantee is {text!r}, which holds half of a character; leave"
                    " it away"
                )
