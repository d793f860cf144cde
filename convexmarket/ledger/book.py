"""The ledger: sales of privacy with their prices, and the releases that use them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import (
    aligned,
    check_choice,
    check_instance,
    checked_id,
    checked_numbers,
    forms_of,
    is_iterable,
)
from convexmarket.errors import DataError, NotSupportedError, ParameterError, ReleaseChargedError
from convexmarket.io import MARKET_FILE
from convexmarket.ledger.store import Kind, Store, back_up, create_database, now
from convexmarket.privacy import AccountComposition, Guarantee, PrivacyAccountant
from convexmarket.privacy.guarantee import Law, check_delta

__all__ = ["MODEL", "Ledger", "LedgerAccount", "charge_release", "charged_at", "lay_ledger"]

Floats = NDArray[np.float64]

LEDGER = Kind("ledger", None, lambda path: path, "ledger PATH --create", "Ledger")
#: Reserved names: a prefix for releases without a name, and the model of an online market.
UNNAMED, MODEL = "unnamed-", "market-model"
#: Largest sum of a seller's sales; larger sums may round to an infinite budget.
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
#: Columns of tables for users that contain floats.
_NUMBERS = {"epsilon", "price", "delta", "largest_epsilon", "sold", "spent", "left", "paid"}
_AMONG = "WHERE seller IN (SELECT value FROM json_each(?))"
_SOLD = f"""
SELECT seller, sum(epsilon) FROM sales {_AMONG} AND (release IS NULL OR release = ?) GROUP BY seller
"""
_SPENT = f"""
SELECT seller, of_any, delta, shift, failure FROM spending {_AMONG} AND law = ? ORDER BY release
"""
_TOO_MUCH = f"""
SELECT seller FROM sales {_AMONG} GROUP BY seller
HAVING NOT coalesce(max(sum(epsilon), sum(price)) <= ?, 0) LIMIT 1
"""
_SALES = "SELECT seller AS id, epsilon, price, release, source, time FROM sales ORDER BY number"
_CHARGES = "SELECT name AS release, seller AS id, epsilon FROM spending AS s ORDER BY s.release, id"
_RELEASES = """
SELECT r.name, r.mechanism, r.accounting, r.delta, r.law, count(c.seller) AS sellers,
    coalesce(sum(c.epsilon), 0.0) AS epsilon, coalesce(max(c.epsilon), 0.0) AS largest_epsilon,
    r.assumptions, r.time
FROM ledger_releases AS r LEFT JOIN charges AS c ON c.release = r.number
GROUP BY r.number ORDER BY r.number
"""
_BALANCE = """
SELECT seller AS id, sum(epsilon) AS sold, 0.0 AS spent, 0.0 AS left, sum(price) AS paid
FROM sales GROUP BY seller ORDER BY min(number)
"""
#: Sales for one release: the part that it may still use, and the part used by it.
_RESERVED = """
SELECT s.seller AS id,
    sum(CASE WHEN r.number IS NULL THEN s.epsilon ELSE 0.0 END) AS left,
    sum(CASE WHEN r.number IS NULL THEN 0.0 ELSE min(s.epsilon, coalesce(c.epsilon, 0.0)) END)
        AS spent
FROM (
    SELECT seller, release, sum(epsilon) AS epsilon FROM sales
    WHERE release IS NOT NULL GROUP BY seller, release
) AS s
LEFT JOIN ledger_releases AS r ON r.name = s.release
LEFT JOIN charges AS c ON c.release = r.number AND c.seller = s.seller
GROUP BY s.seller
"""


class Ledger:
    """Sales and charges of privacy, in a database.

    Parameters
    ----------
    path : path or Store
        Path of a ledger created by :meth:`create`, or the folder or database of an online market.

    Attributes
    ----------
    path : pathlib.Path
    composition : {"basic", "advanced"}
        Composition of guarantees, see :class:`~convexmarket.PrivacyAccountant`.
    delta : float
        Probability with which a seller's epsilon may be exceeded.
    of_market : bool
        Whether the ledger belongs to an online market, which records the sales itself.

    Raises
    ------
    DataError
        Here and in every method: if the ledger does not exist, or its database is damaged, of
        another version, read-only, locked for too long, or on a full disk.

    Notes
    -----
    Every method is one transaction, which is durable once the method has returned. Several
    processes and threads may use a ledger at once. A ``with`` statement closes the connection.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from convexmarket.privacy import Guarantee
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(pathlib.Path(folder.name, "sold.sqlite")) as ledger:
    ...     sales = ledger.sell(["Ann", "Bob"], [1.0, 2.0], [0.5, 0.9])
    ...     guarantee = Guarantee([1.0, 0.5], 0.0, "a model", "tight", ())
    ...     ledger.account(["Ann", "Bob"], release="first").charge(guarantee)
    ...     balance = ledger.balance()
    >>> balance
        id  sold  spent  left  paid
    0  Ann   1.0    1.0   0.0   0.5
    1  Bob   2.0    0.5   1.5   0.9
    >>> folder.cleanup()
    """

    composition: AccountComposition
    delta: float

    def __init__(self, path: str | Path | Store) -> None:
        check_instance("path", path, (str, Path, Store), "the path of a ledger")
        if not isinstance(path, Store):
            file = Path(path)
            path = Store(file / MARKET_FILE if file.is_dir() else file, LEDGER)
        self._store, self.path = path, path.path
        markets = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'markets'"
        with self._store.reading() as connection:
            self.composition, self.delta = _settings(connection)
            self.of_market = bool(connection.execute(markets).fetchall())

    @classmethod
    def create(
        cls, path: str | Path, composition: AccountComposition = "basic", delta: float = 0.0
    ) -> Self:
        """Create a ledger without sales.

        Parameters
        ----------
        path : path
            Path of a new file, on a local disk.
        composition : {"basic", "advanced"}, default "basic"
            Composition of guarantees; it cannot be changed later.
        delta : float, default 0.0
            Probability with which a seller's epsilon may be exceeded; positive for "advanced".

        Raises
        ------
        DataError
            If the file exists, or cannot be written.
        ParameterError
            If composition or delta is invalid.
        """
        check_instance("path", path, (str, Path), "the path of a new file")
        check_choice("composition", composition, AccountComposition)
        advanced = composition == "advanced"
        why = " for advanced composition" if advanced else ""
        delta = check_delta(delta, positive=advanced, why=why)
        create_database(
            Path(path), LEDGER, lambda connection: lay_ledger(connection, composition, delta)
        )
        return cls(path)

    def sell(
        self,
        ids: Iterable[str],
        epsilon: ArrayLike,
        prices: ArrayLike,
        release: str | None = None,
        source: str | None = None,
    ) -> int:
        """Record sales and their prices, all or none, and return their number.

        Several sales of one seller add up. Sales of epsilon zero and price zero are left out.

        Parameters
        ----------
        ids : sequence of str, length n
            Ids of the sellers, stored in their normal form (:mod:`convexmarket.checks`).
        epsilon, prices : array_like of shape (n,), or one number
            Epsilon and payment of each seller; finite and nonnegative.
        release : str, optional
            The only release that may use the sales; any by default. Requires basic composition.
        source : str, optional
            Origin of the sales, such as a list; each source is recorded only once.

        Raises
        ------
        ParameterError
            If an argument is invalid; the message names the seller.
        ReleaseChargedError
            If the release was already charged.
        NotSupportedError
            If the sales are for one release, and composition is "advanced".
        DataError
            Also if sales of this source were recorded before.
        """
        ids, epsilon, prices = aligned(ids=ids, epsilon=epsilon, prices=prices)
        names = _checked_ids(ids)
        amounts, paid = _amounts("epsilon", epsilon, names), _amounts("prices", prices, names)
        release = _checked_release(release)
        source = None if source is None else checked_id(source, "source")
        if release is not None and self.composition != "basic":
            raise NotSupportedError(
                f"release is {release!r}, and sales for one release need a ledger with basic "
                "composition; leave release out, which lets any release use them"
            )
        sales = [
            (name, float(amount), float(price))
            for name, amount, price in zip(names, amounts, paid, strict=True)
            if amount > 0 or price > 0
        ]
        with self._store.writing() as connection:
            _check_uncharged(connection, release, "sales for it could not be used")
            before = "SELECT time FROM sales WHERE source = ? LIMIT 1"
            for (time,) in connection.execute(before, (source,)).fetchall():
                raise DataError(
                    f"sales of the source {source!r} were recorded on {time}, and would "
                    "count twice. For new sales, give another source, or none (on the command "
                    "line: --again)"
                )
            first, rest = _next_number(connection, "sales"), (release, source, now())
            connection.executemany(
                "INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?, ?)",
                ((number, *sale, *rest) for number, sale in enumerate(sales, start=first)),
            )
            sellers = json.dumps([name for name, *_ in sales])
            for (seller,) in connection.execute(_TOO_MUCH, (sellers, LARGEST_SUM)).fetchall():
                raise ParameterError(
                    f"the sales of seller {seller!r} exceed {LARGEST_SUM:g} in epsilon or in "
                    "price, so nothing was recorded; give smaller values"
                )
        return len(sales)

    def account(self, ids: Iterable[str], release: str | None = None) -> LedgerAccount:
        """Return the account of some sellers, to which a release is charged.

        Parameters
        ----------
        ids : sequence of str
            Distinct sellers, in the order of their rows.
        release : str, optional
            Name of the release, which can be charged only once. Without a name, every charge is a
            new release.

        Raises
        ------
        ParameterError
            If ids is empty or contains an id twice, or a name is invalid.
        """
        return LedgerAccount(self._store, ids, release)

    def sales(self) -> pd.DataFrame:
        """Return all sales in their order.

        The columns are id, epsilon, price, release (None: any), source and time (UTC, ISO).
        """
        with self._store.reading() as connection:
            return _frame(connection, _SALES)

    def releases(self) -> pd.DataFrame:
        """Return all releases in the order in which they were charged.

        The columns are name, mechanism, accounting, delta, law (of the privacy-loss profile),
        sellers (number charged), epsilon (in all), largest_epsilon, assumptions (a tuple) and time.
        """
        with self._store.reading() as connection:
            frame = _frame(connection, _RELEASES).astype({"sellers": "int64"})
        frame["assumptions"] = [tuple(json.loads(text)) for text in frame["assumptions"]]
        return frame

    def charges(self) -> pd.DataFrame:
        """Return the charges of all releases: columns release, id and epsilon."""
        with self._store.reading() as connection:
            return _frame(connection, _CHARGES)

    def balance(self) -> pd.DataFrame:
        """Return the balance of each seller, in the order of their first sales.

        The columns are id, sold, spent (by all releases, under the composition), left (the largest
        epsilon that may still be charged, including sales for releases to come) and paid.
        """
        with self._store.reading() as connection:
            frame = _frame(connection, _BALANCE)
            if len(frame):
                account = _accountant(connection, frame["id"].tolist(), None)
                reserved = _frame(connection, _RESERVED).set_index("id")
                reserved = reserved.reindex(frame["id"], fill_value=0.0)
                frame["left"] = account.remaining + reserved["left"].to_numpy()
                frame["spent"] = account.spent + reserved["spent"].to_numpy()
        return frame

    def backup(self, path: str | Path, *, force: bool = False) -> None:
        """Write a consistent copy of the ledger to a file; the ledger may be in use meanwhile.

        A restored copy lacks all later sales and charges: see "Backups" in docs/ledger.md.

        Parameters
        ----------
        path : path
        force : bool, default False
            Whether an existing file may be replaced by the complete and checked copy.

        Raises
        ------
        DataError
            Also if the file exists without ``force``, is the ledger itself, or cannot be written.
        """
        back_up(self._store, path, force=force)

    def disconnect(self) -> None:
        """Close the connection to the database; the next call of a method opens another."""
        self._store.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {self.composition} composition, delta {self.delta:g})"


class LedgerAccount:
    """The account of some sellers of a ledger; created by :meth:`Ledger.account`.

    Pass it as the ``accountant`` of a release or a learner. By default row k of a guarantee is the
    row of seller k. Concurrent charges of several processes are made one after the other.

    Attributes
    ----------
    ids : tuple of str
    release : str or None

    Raises
    ------
    ParameterError
        If ids is empty, or contains an id twice.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import convexmarket as cm
    >>> folder = tempfile.TemporaryDirectory()
    >>> with cm.Ledger.create(pathlib.Path(folder.name, 'sold.sqlite')) as ledger:
    ...     sales = ledger.sell(['Ann', 'Bob'], [1.0, 2.0], [0.5, 0.9])
    ...     ledger.account(['Bob']).budget
    array([2.])
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, ids: Iterable[str], release: str | None = None) -> None:
        self._store, self.ids = store, tuple(_checked_ids(ids))
        self.release = _checked_release(release)
        if not self.ids:
            raise ParameterError("ids is empty; give one seller per row")
        twice = pd.Index(self.ids)[pd.Index(self.ids).duplicated()]
        if twice.size:
            raise ParameterError(
                f"ids contains {twice[0]!r} twice; give one row per seller, or charge the sum of "
                "the guarantees of a seller's rows"
            )

    @property
    def budget(self) -> Floats:
        """Epsilon of each seller that this release may use, shape (n_rows,)."""
        return self._current().budget

    @property
    def spent(self) -> Floats:
        """Epsilon of all releases together, shape (n_rows,)."""
        return self._current().spent

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        return self._current().remaining

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release beyond the budget of a seller, without charging it.

        See :meth:`convexmarket.PrivacyAccountant.check`, with positions in :attr:`ids`. Also raises
        a ReleaseChargedError if the name was charged before.
        """
        with self._store.reading() as connection:
            _check_uncharged(connection, self.release)
            _accountant(connection, self.ids, self.release).check(guarantee, rows)

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing.

        Parameters and errors are those of :meth:`check`.
        """
        with self._store.writing() as connection:
            charge_release(connection, self.ids, guarantee, rows, self.release)

    def _current(self) -> PrivacyAccountant:
        with self._store.reading() as connection:
            return _accountant(connection, self.ids, self.release)

    def __repr__(self) -> str:
        return f"LedgerAccount({len(self.ids)} sellers of {str(self._store.path)!r})"


def lay_ledger(
    connection: sqlite3.Connection, composition: AccountComposition, delta: float
) -> None:
    """Create the tables of a ledger without sales, in an open transaction."""
    for statement in _TABLES:
        connection.execute(statement)
    connection.execute("INSERT INTO ledgers VALUES (1, ?, ?, ?)", (composition, delta, now()))


def charge_release(
    connection: sqlite3.Connection,
    ids: Sequence[str],
    guarantee: Guarantee,
    rows: ArrayLike | None,
    release: str | None,
) -> None:
    """Charge a release to these sellers in an open transaction, or refuse it.

    The errors are those of :meth:`LedgerAccount.check`.
    """
    check_instance("guarantee", guarantee, Guarantee)
    _check_uncharged(connection, release)
    if ids:
        _accountant(connection, ids, release).charge(guarantee, rows)
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


def charged_at(connection: sqlite3.Connection, release: str | None) -> str | None:
    """Return the time of the charge of a release, or None."""
    rows = connection.execute("SELECT time FROM ledger_releases WHERE name = ?", (release,))
    return next((str(time) for (time,) in rows.fetchall()), None)


def _check_uncharged(
    connection: sqlite3.Connection,
    release: str | None,
    why: str = "a name can be charged once only",
) -> None:
    when = charged_at(connection, release)
    if when is not None:
        raise ReleaseChargedError(
            f"release {release!r} was charged on {when}, and {why}; charge a new release under "
            "another name"
        )


def _settings(connection: sqlite3.Connection) -> tuple[AccountComposition, float]:
    ((composition, delta),) = connection.execute("SELECT composition, delta FROM ledgers")
    return composition, delta


def _accountant(
    connection: sqlite3.Connection, ids: Sequence[str], release: str | None
) -> PrivacyAccountant:
    """Return the current account of these sellers, for a release of this name."""
    composition, delta = _settings(connection)
    these, places = json.dumps(list(ids)), {id: place for place, id in enumerate(ids)}
    budget = np.zeros(len(ids))
    for seller, sold in connection.execute(_SOLD, (these, release)):
        budget[places[seller]] = sold
    account = PrivacyAccountant(budget, delta, composition=composition, ids=ids)
    for law in get_args(Law):
        spent = connection.execute(_SPENT, (these, law)).fetchall()
        if spent:
            sellers, *charges = zip(*spent, strict=True)
            account.bring_forward([places[seller] for seller in sellers], law, *charges)
    return account


def _next_number(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of the next row of a table."""
    query = f"SELECT coalesce(max(number), 0) + 1 FROM {table}"
    return int(connection.execute(query).fetchall()[0][0])


def _checked_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids in their stored form."""
    if isinstance(ids, str | pd.DataFrame) or not is_iterable(ids):
        raise ParameterError(f"ids must be a sequence of text, one id per seller, got {ids!r}")
    return forms_of(list(ids))


def _checked_release(name: str | None) -> str | None:
    """Return the name of a release in its stored form."""
    if name is None:
        return None
    form = checked_id(name, "release")
    for reserved in (UNNAMED, MODEL):
        if form.startswith(reserved):
            raise ParameterError(
                f"release {form!r} begins with the reserved prefix {reserved!r}; give another name"
            )
    return form


def _frame(connection: sqlite3.Connection, query: str) -> pd.DataFrame:
    cursor = connection.execute(query)
    columns = [name for name, *_ in cursor.description]
    frame = pd.DataFrame(cursor.fetchall(), columns=columns, dtype=object)
    return frame.astype({name: "float64" for name in columns if name in _NUMBERS})


def _amounts(name: str, values: ArrayLike, ids: list[str]) -> Floats:
    """Return one finite number >= 0 per seller."""
    given = checked_numbers(name, values)
    if given.ndim and given.shape != (len(ids),):
        raise ParameterError(
            f"{name} has shape {given.shape}, but there are {len(ids)} ids; give one number per id"
        )
    amounts = np.broadcast_to(given, len(ids))
    bad = np.flatnonzero(~(np.isfinite(amounts) & (amounts >= 0)))
    if bad.size:
        raise ParameterError(
            f"{name} of seller {ids[bad[0]]!r} must be a finite number >= 0, got {amounts[bad[0]]}"
        )
    return amounts + 0.0  # -0.0 becomes 0.0
