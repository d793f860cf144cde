"""Record sales of privacy with their prices, and the releases that use the sold privacy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from sqlite3 import Connection
from typing import Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import (
    LARGEST,
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
from convexmarket.privacy.active import check_order
from convexmarket.privacy.guarantee import Law, check_delta

__all__ = ["MODEL", "Ledger", "LedgerAccount", "charge_release", "charged_at", "lay_ledger"]

Floats = NDArray[np.float64]

LEDGER = Kind("ledger", "convexmarket ledger PATH --create, or Ledger.create in Python", "ledgers")
#: Reserved names: prefix of releases without a name, and name of an online market's model.
UNNAMED, MODEL = "unnamed-", "market-model"

#: Tables of a ledger. A release first uses the sales for this release, then sales for any release.
_TABLES = """CREATE TABLE ledgers (  -- one row
    number INTEGER PRIMARY KEY, composition TEXT NOT NULL, delta REAL NOT NULL, time TEXT NOT NULL
);
CREATE TABLE sales (
    number INTEGER PRIMARY KEY, seller TEXT NOT NULL, epsilon REAL NOT NULL, price REAL NOT NULL,
    release TEXT,  -- the only one that may use it, or NULL
    source TEXT,  -- the list that it was read from
    time TEXT NOT NULL
);
CREATE TABLE ledger_releases (  -- a market's own "releases" holds the model
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, mechanism TEXT NOT NULL,
    accounting TEXT NOT NULL, delta REAL NOT NULL,
    law TEXT NOT NULL, failure REAL NOT NULL,  -- of the profile of the privacy loss
    assumptions TEXT NOT NULL,  -- JSON
    time TEXT NOT NULL
);
CREATE TABLE charges (
    release INTEGER NOT NULL REFERENCES ledger_releases (number), seller TEXT NOT NULL,
    epsilon REAL NOT NULL, shift REAL NOT NULL,  -- of the profile
    PRIMARY KEY (release, seller)
) WITHOUT ROWID;
CREATE INDEX sales_by_seller ON sales (seller, release);
CREATE INDEX sales_by_source ON sales (source) WHERE source IS NOT NULL;
CREATE INDEX charges_by_seller ON charges (seller);
CREATE VIEW spending AS
SELECT c.release AS release, r.name AS name, c.seller AS seller, c.epsilon AS epsilon,
    max(0.0, c.epsilon - coalesce((
        SELECT sum(s.epsilon) FROM sales AS s WHERE s.seller = c.seller AND s.release = r.name
    ), 0.0)) AS of_any, r.delta AS delta, r.law AS law, c.shift AS shift, r.failure AS failure
FROM charges AS c JOIN ledger_releases AS r ON r.number = c.release"""
#: Columns with floating-point numbers in the tables that methods return.
_NUMBERS = {"epsilon", "price", "delta", "largest_epsilon", "sold", "spent", "left", "paid"}
_AMONG = "WHERE seller IN (SELECT value FROM json_each(?))"
_SOLD = f"""SELECT seller, sum(epsilon) FROM sales {_AMONG} AND (release IS NULL OR release = ?)
GROUP BY seller"""
_SOLD_BEFORE = """SELECT time FROM sales WHERE source IS NOT NULL
AND instr(char(10) || source || char(10), char(10) || ? || char(10)) LIMIT 1"""
_SPENT = f"""SELECT seller, of_any, delta, shift, failure FROM spending {_AMONG} AND law = ?
ORDER BY release"""
_SALES = "SELECT seller AS id, epsilon, price, release, source, time FROM sales ORDER BY number"
_TOTALS = """SELECT seller AS id, sum(epsilon) AS sold, sum(price) AS paid
FROM sales GROUP BY seller ORDER BY min(number)"""
#: Sales for one release: their sum and the charge of this release, or NULL before the release.
_BOUND = """SELECT s.seller, sum(s.epsilon), iif(r.name IS NULL, NULL, coalesce(c.epsilon, 0.0))
FROM sales AS s LEFT JOIN ledger_releases AS r ON r.name = s.release LEFT JOIN charges AS c
ON c.release = r.number AND c.seller = s.seller WHERE s.release IS NOT NULL GROUP BY s.release, 1"""
_CHARGES = "SELECT name AS release, seller AS id, epsilon FROM spending AS s ORDER BY s.release, id"
_RELEASES = """SELECT r.name, r.mechanism, r.accounting, r.delta, r.law, count(c.seller) AS sellers,
    total(c.epsilon) AS epsilon, coalesce(max(c.epsilon), 0.0) AS largest_epsilon, r.assumptions,
    r.time
FROM ledger_releases AS r LEFT JOIN charges AS c ON c.release = r.number
GROUP BY r.number ORDER BY r.number"""


class Ledger:
    """A database of sales of privacy and of charges for releases.

    Each method runs a single transaction, which is durable when the method returns. Several
    processes and threads can share a ledger. The connection is closed after a ``with`` block.

    Parameters
    ----------
    path : path or Store
        Path of a ledger created by :meth:`create`, or the folder or database of an online market.

    Attributes
    ----------
    path : pathlib.Path
    composition : {"basic", "advanced"}
        Composition of guarantees; see :class:`~convexmarket.PrivacyAccountant`.
    delta : float
        Probability with which the epsilon of a seller can be exceeded.
    of_market : bool
        Whether an online market records its sales in this ledger.

    Raises
    ------
    DataError
        If the ledger does not exist, or its database is damaged, has another version, is read-only,
        is locked for too long, or is on a full disk. Every method can raise this error.

    Examples
    --------
    >>> import tempfile
    >>> from convexmarket.privacy import Guarantee
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(folder.name + "/sold.sqlite") as ledger:
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
            Path of a new file on a local disk.
        composition : {"basic", "advanced"}, default "basic"
            Composition of guarantees. It cannot be changed later.
        delta : float, default 0.0
            Probability with which the epsilon of a seller can be exceeded. Positive for "advanced".
        """
        check_instance("path", path, (str, Path), "the path of a new file")
        check_choice("composition", composition, AccountComposition)
        advanced = composition == "advanced"
        delta = check_delta(delta, positive=advanced, why=" for advanced composition" * advanced)
        fill = partial(lay_ledger, composition=composition, delta=delta)
        create_database(Path(path), LEDGER, fill)
        return cls(path)

    def sell(
        self,
        ids: Iterable[str],
        epsilon: ArrayLike,
        prices: ArrayLike,
        release: str | None = None,
        source: str | tuple[str | None, ...] | None = None,
        again: bool = False,
    ) -> int:
        """Record sales and their prices in one transaction, and return the number of sales.

        Several sales by one seller add up. A sale is not recorded if epsilon and price are zero.

        Parameters
        ----------
        ids : sequence of str, length n
            Ids of the sellers, which are stored in normalised form (:mod:`convexmarket.checks`).
        epsilon, prices : array_like of shape (n,), or one number
            Epsilon and payment of each seller.
        release : str, optional
            The only release that can use the sales. Requires basic composition. By default, any
            release can use the sales.
        source : str or tuple of str, optional
            Origins, such as files, whose sales are recorded again only if ``again`` is True.

        Raises
        ------
        ParameterError
            If an argument is invalid.
        ReleaseChargedError
            If the release was already charged.
        NotSupportedError
            If a release is given, but the ledger does not have basic composition.
        DataError
            If sales of this source were already recorded.
        """
        ids, epsilon, prices = aligned(ids=ids, epsilon=epsilon, prices=prices)
        names = _checked_ids(ids)
        amounts, paid = _amounts("epsilon", epsilon, names), _amounts("prices", prices, names)
        release = _checked_release(release)
        given = source if isinstance(source, tuple) else (source,)
        sources = [checked_id(each, "source") for each in given if each is not None]
        if release is not None and self.composition != "basic":
            cause = f"sales for one release, {release!r}, need a ledger with basic composition"
            raise NotSupportedError(f"{cause}; omit release to record sales for all releases")
        with self._store.writing() as connection:
            _check_uncharged(connection, release)
            for each in () if again else sources:
                for (time,) in connection.execute(_SOLD_BEFORE, (each,)).fetchall():
                    raise DataError(
                        f"sales of the source {each!r} were recorded on {time}, and would count "
                        "twice. To record them again, pass --again (again=True in Python)"
                    )
            rest = release, "\n".join(sources) or None, now()
            every = zip(names, amounts.tolist(), paid.tolist(), strict=True)
            sales = [(*sale, *rest) for sale in every if any(sale[1:])]
            connection.executemany("INSERT INTO sales VALUES (NULL, ?, ?, ?, ?, ?, ?)", sales)
        return len(sales)

    def account(self, ids: Iterable[str], release: str | None = None) -> LedgerAccount:
        """Return an account of the given sellers, to which releases can be charged.

        Parameters
        ----------
        ids : sequence of str
            Distinct ids of the sellers, in the order of the rows.
        release : str, optional
            Name of a release that can be charged once. If omitted, each charge is a new release.
        """
        return LedgerAccount(self._store, ids, release)

    def sales(self) -> pd.DataFrame:
        """Return all sales in the order in which they were recorded.

        The columns are id, epsilon, price, release (None for any release), source and time (UTC).
        """
        with self._store.reading() as connection:
            return _frame(connection, _SALES)

    def releases(self) -> pd.DataFrame:
        """Return all releases in the order in which they were charged.

        The columns are name, mechanism, accounting, delta, law of the privacy-loss profile, number
        of sellers, total epsilon, largest_epsilon, assumptions (as tuples) and time.
        """
        with self._store.reading() as connection:
            frame = _frame(connection, _RELEASES).astype({"sellers": "int64"})
        return frame.assign(assumptions=frame["assumptions"].map(lambda x: tuple(json.loads(x))))

    def charges(self) -> pd.DataFrame:
        """Return the charges of all releases with the columns release, id and epsilon."""
        with self._store.reading() as connection:
            return _frame(connection, _CHARGES)

    def balance(self) -> pd.DataFrame:
        """Return the balance of each seller in the order of first sales.

        The columns are id, sold, spent (total epsilon of all releases), left (largest epsilon that
        later releases can still charge) and paid.
        """
        with self._store.reading() as connection:
            frame, bound = _frame(connection, _TOTALS), connection.execute(_BOUND).fetchall()
            account = _accountant(connection, frame["id"].tolist(), None) if len(frame) else None
        spent, left = (account.spent + 0, account.remaining + 0) if account else np.empty((2, 0))
        places = {id: place for place, id in enumerate(frame["id"])}
        # Sales for one release count as spent, up to its charge, or as left before it is charged.
        for seller, sold, used in bound:
            column, amount = (left, sold) if used is None else (spent, min(sold, used))
            column[places[seller]] += amount
        frame = frame.assign(spent=spent, left=left).astype({"id": "str"})
        return frame[["id", "sold", "spent", "left", "paid"]]

    def backup(self, path: str | Path, *, force: bool = False) -> None:
        """Write a consistent copy of the ledger to a file, even while the ledger is in use.

        A restored copy lacks later sales and charges (see "Backups" in docs/ledger.md).

        Parameters
        ----------
        path : path
        force : bool, default False
            Whether an existing file is replaced. The ledger itself cannot be replaced.
        """
        back_up(self._store, path, force=force)

    def disconnect(self) -> None:
        """Close the connection to the database. The next method call opens a new connection."""
        self._store.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r}, {self.composition} composition, delta {self.delta:g})"


class LedgerAccount:
    """An account of sellers in a ledger, created by :meth:`Ledger.account`.

    Pass the account as the ``accountant`` of a release or a learner. Row k belongs to seller k.

    Attributes
    ----------
    ids : tuple of str
    release : str or None

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(folder.name + "/sold.sqlite") as ledger:
    ...     sales = ledger.sell(["Ann", "Bob"], [1.0, 2.0], [0.5, 0.9])
    ...     ledger.account(["Bob"]).budget
    array([2.])
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, ids: Iterable[str], release: str | None = None) -> None:
        self._store, self.ids = store, tuple(_checked_ids(ids, distinct=True))
        self.release = _checked_release(release)

    @property
    def budget(self) -> Floats:
        """Epsilon of each seller that this release can use, shape (n_rows,)."""
        return self._current().budget

    @property
    def spent(self) -> Floats:
        """Total epsilon of all releases, shape (n_rows,)."""
        return self._current().spent

    @property
    def remaining(self) -> Floats:
        """Largest epsilon allowed for another release of delta zero, shape (n_rows,)."""
        return self._current().remaining

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Raise an error if a release exceeds a budget, or if its name was already charged.

        See :meth:`convexmarket.PrivacyAccountant.check`. ``rows`` are positions in :attr:`ids`.
        """
        with self._store.reading() as connection:
            _check_uncharged(connection, self.release)
            _accountant(connection, self.ids, self.release).check(guarantee, rows)

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release to all its sellers, or raise an error and charge no seller.

        The parameters and errors are those of :meth:`check`.
        """
        with self._store.writing() as connection:
            charge_release(connection, self.ids, guarantee, rows, self.release)

    def _current(self) -> PrivacyAccountant:
        with self._store.reading() as connection:
            return _accountant(connection, self.ids, self.release)

    def __repr__(self) -> str:
        return f"LedgerAccount({len(self.ids)} sellers of {str(self._store.path)!r})"


def lay_ledger(connection: Connection, composition: AccountComposition, delta: float) -> None:
    """Create the empty tables of a ledger in an open transaction."""
    for statement in _TABLES.split(";"):
        connection.execute(statement)
    connection.execute("INSERT INTO ledgers VALUES (1, ?, ?, ?)", (composition, delta, now()))


def charge_release(
    connection: Connection,
    ids: Sequence[str],
    guarantee: Guarantee,
    rows: ArrayLike | None,
    release: str | None,
) -> None:
    """Charge a release to sellers in an open transaction, or raise an error."""
    check_instance("guarantee", guarantee, Guarantee)
    _check_uncharged(connection, release)
    if ids:
        _accountant(connection, ids, release).charge(guarantee, rows)
    profile = guarantee.profile
    about = guarantee.mechanism, guarantee.accounting, float(guarantee.delta), profile.law
    assumptions = json.dumps(list(guarantee.assumptions), ensure_ascii=False)
    number = connection.execute(
        f"INSERT INTO ledger_releases SELECT NULL, coalesce(?, '{UNNAMED}' || (1 + count(*))),"
        " ?, ?, ?, ?, ?, ?, ? FROM ledger_releases",
        (release, *about, float(profile.failure), assumptions, now()),
    ).lastrowid
    used = np.flatnonzero(guarantee.epsilon)
    places = used if rows is None else np.asarray(rows)[used]
    amounts = guarantee.epsilon[used].tolist(), profile.shift[used].tolist()
    sellers = [ids[place] for place in places.tolist()]
    charges = [(number, *charge) for charge in zip(sellers, *amounts, strict=True)]
    connection.executemany("INSERT INTO charges VALUES (?, ?, ?, ?)", charges)


def charged_at(connection: Connection, release: str | None) -> str | None:
    """Return the time at which a release was charged, or None."""
    rows = connection.execute("SELECT time FROM ledger_releases WHERE name = ?", (release,))
    return next((str(time) for (time,) in rows.fetchall()), None)


def _check_uncharged(connection: Connection, release: str | None) -> None:
    if (when := charged_at(connection, release)) is not None:
        raise ReleaseChargedError(
            f"release {release!r} was charged on {when}; a name can be charged only once, and "
            "later sales for this name could not be used: give another name"
        )


def _settings(connection: Connection) -> tuple[AccountComposition, float]:
    ((composition, delta),) = connection.execute("SELECT composition, delta FROM ledgers")
    return composition, delta


def _accountant(
    connection: Connection, ids: Sequence[str], release: str | None
) -> PrivacyAccountant:
    """Compute the account of sellers for a release from the stored sales and charges."""
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


def _checked_ids(ids: Iterable[str], *, distinct: bool = False) -> list[str]:
    if isinstance(ids, str | pd.DataFrame) or not is_iterable(ids):
        raise ParameterError(f"ids must be a sequence of text, one id per seller, got {ids!r}")
    forms = forms_of(list(ids))
    if distinct and len(set(forms)) < max(len(forms), 1):
        raise ParameterError(
            f"ids must be distinct and not empty, got {forms}; give one row per seller, or charge"
            " the sum of the guarantees of a seller's rows"
        )
    return forms


def _checked_release(name: str | None) -> str | None:
    form = None if name is None else checked_id(name, "release")
    if form is not None and form.startswith((UNNAMED, MODEL)):
        raise ParameterError(
            f"release {form!r} begins with a reserved prefix, {UNNAMED!r} or {MODEL!r}; rename it"
        )
    return form


def _frame(connection: Connection, query: str) -> pd.DataFrame:
    cursor = connection.execute(query)
    kinds = {name: "float64" if name in _NUMBERS else object for name, *_ in cursor.description}
    cells = np.array(cursor.fetchall(), dtype=object).reshape(-1, len(kinds)).T
    columns = zip(kinds, cells, kinds.values(), strict=True)
    return pd.DataFrame({name: pd.Series(column, dtype=kind) for name, column, kind in columns})


def _amounts(name: str, values: ArrayLike, ids: list[str]) -> Floats:
    amounts = checked_numbers(name, values)
    if amounts.ndim and amounts.shape != (len(ids),):
        cause = f"{name} has shape {amounts.shape}, but there are {len(ids)} ids"
        raise ParameterError(f"{cause}; give one per id")
    check_order(name, values, pd.Index(ids))
    amounts = np.broadcast_to(amounts, len(ids))
    bad = np.flatnonzero(~((amounts >= 0) & (amounts <= LARGEST)))
    if bad.size:
        raise ParameterError(
            f"{name} of seller {ids[bad[0]]!r} must be a finite number from 0 to {LARGEST:g}, got"
            f" {amounts[bad[0]]}"
        )
    return amounts + 0.0  # replaces -0.0 by 0.0
