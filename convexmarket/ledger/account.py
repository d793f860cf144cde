"""The account that a ledger keeps for the rows of some sellers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from convexmarket.errors import ParameterError
from convexmarket.ledger.entries import accountant_of, charge_release, check_uncharged
from convexmarket.ledger.names import checked_ids, checked_release
from convexmarket.ledger.store import Store
from convexmarket.privacy import Guarantee, PrivacyAccountant

__all__ = ["LedgerAccount"]

Floats = NDArray[np.float64]


class LedgerAccount:
    """What some sellers may still lose, as their ledger has it.

    It is what a release or a learner takes as ``accountant``. Row k of a guarantee is the row of
    the k-th of these sellers, unless ``rows`` says otherwise. A charge is stored before this
    returns, and processes that charge the same sellers at once do so one after the other. Made by
    :meth:`Ledger.account`.

    Parameters
    ----------
    store : Store
    ids : iterable of str
        Different sellers, in the order of their rows.
    release : str, optional
        What the one release is called that is charged here.

    Attributes
    ----------
    ids : tuple of str
    release : str or None

    Raises
    ------
    ParameterError
        If there are no ids, or one is there twice.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from convexmarket.ledger import Ledger
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = Ledger.create(pathlib.Path(folder.name, "sold.sqlite"))
    >>> _ = ledger.sell(["Ann", "Bob"], [1.0, 2.0], [0.5, 0.9])
    >>> account = ledger.account(["Bob", "Ann"])
    >>> account.charge(Guarantee([0.5, 0.5], 0.0, "a model", "tight", ()))
    >>> account.remaining
    array([1.5, 0.5])
    >>> ledger.disconnect(); folder.cleanup()
    """

    def __init__(self, store: Store, ids: Iterable[str], release: str | None = None) -> None:
        self._store, self.ids = store, tuple(checked_ids(ids))
        self.release = None if release is None else checked_release(release)
        if not self.ids:
            raise ParameterError("ids is empty; give one seller per row")
        if len(set(self.ids)) < len(self.ids):
            twice = next(id for id in self.ids if self.ids.count(id) > 1)
            raise ParameterError(
                f"ids has {twice!r} twice; give one row per seller, or charge the rows of a seller "
                "by one guarantee that is their sum"
            )

    @property
    def budget(self) -> Floats:
        """What each seller sold that this release may use, shape (n_rows,)."""
        return self._accountant().budget

    @property
    def spent(self) -> Floats:
        """What all releases have used of it, shape (n_rows,)."""
        return self._accountant().spent

    @property
    def remaining(self) -> Floats:
        """Largest epsilon that one more release of delta zero may have, shape (n_rows,)."""
        return self._accountant().remaining

    def check(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Refuse a release that some seller cannot pay, without charging it.

        Parameters
        ----------
        guarantee : Guarantee
            Of the release, row by row. A row of epsilon zero is not used and pays nothing.
        rows : array_like of int, shape (n_used,), optional
            Positions, in :attr:`ids`, of the rows of the guarantee; all of them by default.

        Raises
        ------
        BudgetExceededError
            If the release would exceed what a seller sold; the message names it.
        ReleaseChargedError
            If there is a release of this name.
        ParameterError
            If the guarantee has another number of rows, or a row is not in the account.
        """
        with self._store.reading() as connection:
            check_uncharged(
                connection, self.release, "a second one would be charged as if it were the first"
            )
            accountant_of(connection, self.ids, self.release).check(guarantee, rows)

    def charge(self, guarantee: Guarantee, rows: ArrayLike | None = None) -> None:
        """Charge a release in full and for good, or refuse it and charge nothing.

        Parameters and errors are those of :meth:`check`.
        """
        with self._store.writing() as connection:
            charge_release(connection, self.ids, guarantee, rows, self.release)

    def _accountant(self) -> PrivacyAccountant:
        with self._store.reading() as connection:
            return accountant_of(connection, self.ids, self.release)

    def __repr__(self) -> str:
        return f"LedgerAccount({len(self.ids)} sellers of {str(self._store.path)!r})"
