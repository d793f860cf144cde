"""The ledger: sales of privacy with their prices, and the releases that use them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import (
    aligned,
    check_choice,
    check_instance,
    checked_id,
    forms_of,
    is_iterable,
)
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.io import MARKET_FILE
from convexmarket.ledger.entries import (
    MODEL,
    UNNAMED,
    accountant_of,
    charge_release,
    check_uncharged,
    lay_ledger,
    next_number,
)
from convexmarket.ledger.store import Kind, Store, back_up, create_database, now
from convexmarket.privacy import AccountComposition, Guarantee, PrivacyAccountant
from convexmarket.privacy.guarantee import check_delta

__all__ = ["Ledger", "LedgerAccount"]

Floats = NDArray[np.float64]

LEDGER = Kind("ledger", None, lambda path: path, "ledger PATH --create", "Ledger")
#: Largest sum of a seller's sales; larger sums may round to an infinite budget.
LARGEST_SUM = 1.7e308

_TOO_MUCH = """
SELECT seller FROM sales WHERE seller IN (SELECT value FROM json_each(?)) GROUP BY seller
HAVING NOT coalesce(max(sum(epsilon), sum(price)) <= ?, 0) LIMIT 1
"""
_RELEASES = """
SELECT r.name, r.mechanism, r.accounting, r.delta, r.law, count(c.seller),
    coalesce(sum(c.epsilon), 0.0), coalesce(max(c.epsilon), 0.0), r.assumptions, r.time
FROM ledger_releases AS r LEFT JOIN charges AS c ON c.release = r.number
GROUP BY r.number ORDER BY r.number
"""
#: Sales for one release: the part used by it, and the part it may still use.
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
    Rows are only added; a changed or removed row breaks the seal. Every method is one transaction,
    which is durable once the method has returned. Several processes and threads may use a ledger
    at once. A ``with`` statement closes the connection at the end.

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
        self._store = path if isinstance(path, Store) else Store(_database(Path(path)), LEDGER)
        self.path = self._store.path
        with self._store.reading() as connection:
            settings = connection.execute("SELECT composition, delta FROM ledgers").fetchall()
            self.composition, self.delta = settings[0]
            markets = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'markets'"
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
        """Record sales and their prices, all or none of them.

        Several sales of one seller add up. Sales of epsilon zero and price zero are left out.

        Parameters
        ----------
        ids : sequence of str, length n
            Ids of the sellers, stored in their normal form (:mod:`convexmarket.checks`).
        epsilon, prices : array_like of shape (n,), or one number
            Epsilon and payment of each seller; finite and nonnegative.
        release : str, optional
            The only release that may use the sales; any by default.
        source : str, optional
            Origin of the sales, such as a list; each source is recorded only once.

        Returns
        -------
        int
            Number of sales.

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
        amounts = _amounts("epsilon", epsilon, names)
        paid = _amounts("prices", prices, names)
        purpose = None if release is None else _checked_release(release)
        origin = None if source is None else checked_id(source, "source")
        sold = np.flatnonzero((amounts > 0) | (paid > 0)).tolist()
        if purpose is not None and self.composition != "basic":
            raise NotSupportedError(
                f"release is {purpose!r}, and sales for one release need a ledger with basic "
                "composition; leave release out, which lets any release use them"
            )
        with self._store.writing() as connection:
            check_uncharged(connection, purpose, "sales for it could not be used")
            before = "SELECT time FROM sales WHERE source = ? LIMIT 1"
            for (time,) in connection.execute(before, (origin,)).fetchall():
                raise DataError(
                    f"sales of the source {origin!r} were recorded on {time}, and would "
                    "count twice. For new sales, give another source, or none (on the command "
                    "line: --again)"
                )
            first, rest = next_number(connection, "sales"), (purpose, origin, now())
            connection.executemany(
                "INSERT INTO sales VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    (number, names[place], float(amounts[place]), float(paid[place]), *rest)
                    for number, place in enumerate(sold, start=first)
                ),
            )
            sellers = json.dumps([names[place] for place in sold])
            for (seller,) in connection.execute(_TOO_MUCH, (sellers, LARGEST_SUM)).fetchall():
                raise ParameterError(
                    f"the sales of seller {seller!r} exceed {LARGEST_SUM:g} in epsilon or in "
                    "price, so nothing was recorded; give smaller values"
                )
        return len(sold)

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

        Returns
        -------
        DataFrame
            Columns id, epsilon, price, release (None: any), source and time (UTC, ISO).
        """
        query = "SELECT seller, epsilon, price, release, source, time FROM sales ORDER BY number"
        return self._frame(query, "id epsilon price release source time", "epsilon price")

    def releases(self) -> pd.DataFrame:
        """Return all releases in the order in which they were charged.

        Returns
        -------
        DataFrame
            Columns name, mechanism, accounting, delta, law (of the privacy-loss profile), sellers
            (number charged), epsilon (in all), largest_epsilon, assumptions (a tuple) and time.
        """
        numbers = "delta epsilon largest_epsilon"
        names = "name mechanism accounting delta law sellers epsilon largest_epsilon"
        frame = self._frame(_RELEASES, f"{names} assumptions time", numbers)
        frame["assumptions"] = [tuple(json.loads(text)) for text in frame["assumptions"]]
        return frame.astype({"sellers": "int64"})

    def charges(self) -> pd.DataFrame:
        """Return the charges of all releases: columns release, id and epsilon."""
        query = "SELECT name, seller, epsilon FROM spending ORDER BY release, seller"
        return self._frame(query, "release id epsilon", "epsilon")

    def balance(self) -> pd.DataFrame:
        """Return the balance of each seller, in the order of their first sales.

        Returns
        -------
        DataFrame
            Columns id, sold, spent (by all releases, under the composition), left (the largest
            epsilon that may still be charged, including sales for releases to come) and paid.
        """
        query = "SELECT seller, sum(epsilon), sum(price) FROM sales GROUP BY seller"
        with self._store.reading() as connection:
            sold = connection.execute(f"{query} ORDER BY min(number)").fetchall()
            frame = _framed(sold, "id sold paid", "sold paid").set_index("id", drop=False)
            frame["spent"] = frame["left"] = 0.0
            if len(frame):
                account = accountant_of(connection, frame["id"].tolist(), None)
                rows = connection.execute(_RESERVED).fetchall()
                for_one = _framed(rows, "id left spent", "left spent").set_index("id")
                for_one = for_one.reindex(frame.index, fill_value=0.0)
                frame["left"] = account.remaining + for_one["left"]
                frame["spent"] = account.spent + for_one["spent"]
        return frame.reset_index(drop=True)[["id", "sold", "spent", "left", "paid"]]

    def _frame(self, query: str, names: str, numbers: str) -> pd.DataFrame:
        with self._store.reading() as connection:
            return _framed(connection.execute(query).fetchall(), names, numbers)

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
        ParameterError
            If path is not a path.
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
    row of seller k. A charge is durable when it returns, and concurrent charges of several
    processes are made one after the other.

    Attributes
    ----------
    ids : tuple of str
        Distinct sellers, in the order of their rows.
    release : str or None
        Name of the release, which can be charged only once.

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
    ...     account = ledger.account(['Bob'])
    ...     budget = account.budget
    >>> budget
    array([2.])
    >>> folder.cleanup()
    """

    def __init__(self, store: Store, ids: Iterable[str], release: str | None = None) -> None:
        self._store, self.ids = store, tuple(_checked_ids(ids))
        self.release = None if release is None else _checked_release(release)
        if not self.ids:
            raise ParameterError("ids is empty; give one seller per row")
        if len(set(self.ids)) < len(self.ids):
            twice = next(id for id in self.ids if self.ids.count(id) > 1)
            raise ParameterError(
                f"ids contains {twice!r} twice; give one row per seller, or charge the sum of the "
                "guarantees of a seller's rows"
            )

    @property
    def budget(self) -> Floats:
        """Epsilon of each seller that this release may use, shape (n_rows,)."""
        return self._accountant().budget

    @property
    def spent(self) -> Floats:
        """Epsilon of all releases together, shape (n_rows,)."""
        return self._accountant().spent

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        return self._accountant().remaining

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release beyond the budget of a seller, without charging it.

        Parameters and errors are those of :meth:`~convexmarket.PrivacyAccountant.check`, with
        positions in :attr:`ids`, and a ReleaseChargedError if the name was charged before.
        """
        with self._store.reading() as connection:
            check_uncharged(connection, self.release)
            accountant_of(connection, self.ids, self.release).check(guarantee, rows)

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full, or refuse it and charge nothing.

        Parameters and errors are those of :meth:`check`.
        """
        with self._store.writing() as connection:
            charge_release(connection, self.ids, guarantee, rows, self.release)

    def _accountant(self) -> PrivacyAccountant:
        with self._store.reading() as connection:
            return accountant_of(connection, self.ids, self.release)

    def __repr__(self) -> str:
        return f"LedgerAccount({len(self.ids)} sellers of {str(self._store.path)!r})"


def _checked_ids(ids: Iterable[str]) -> list[str]:
    """Return the ids in their stored form."""
    if isinstance(ids, str | pd.DataFrame) or not is_iterable(ids):
        raise ParameterError(f"ids must be a sequence of text, one id per seller, got {ids!r}")
    return forms_of(list(ids))


def _checked_release(name: str) -> str:
    """Return the name of a release in its stored form."""
    form = checked_id(name, "release")
    for reserved in (UNNAMED, MODEL):
        if form.startswith(reserved):
            raise ParameterError(
                f"release {form!r} begins with the reserved prefix {reserved!r}; give another name"
            )
    return form


def _framed(rows: list[tuple[Any, ...]], names: str, numbers: str) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=names.split(), dtype=object)
    return frame.astype(dict.fromkeys(numbers.split(), "float64"))


def _database(path: Path) -> Path:
    return path / MARKET_FILE if path.is_dir() else path


def _amounts(name: str, values: ArrayLike, ids: list[str]) -> NDArray[np.float64]:
    """Return one finite number >= 0 per seller, or raise a ParameterError."""
    given: NDArray[Any] = np.asarray(values)
    if given.dtype.kind not in "fiu":
        raise ParameterError(f"{name} must contain numbers, got {values!r}")
    if given.ndim and given.shape != (len(ids),):
        raise ParameterError(
            f"{name} has shape {given.shape}, but there are {len(ids)} ids; give one number per id"
        )
    amounts = np.broadcast_to(given.astype(np.float64), len(ids))
    bad = np.flatnonzero(~(np.isfinite(amounts) & (amounts >= 0)))
    if bad.size:
        raise ParameterError(
            f"{name} of seller {ids[bad[0]]!r} must be a finite number >= 0, got {amounts[bad[0]]}"
        )
    return amounts + 0.0  # -0.0 becomes 0.0
