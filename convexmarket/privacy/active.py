"""Open accounts in a ``with`` block, and account for all releases of the process."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from numbers import Real
from os import getpid
from threading import RLock
from typing import Any, Self
from weakref import WeakSet

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import check_instance, checked_numbers, forms_of, warn_user
from convexmarket.errors import ParameterError, PrivacyLeakWarning, WeakGuaranteeWarning
from convexmarket.privacy.accountant import Account, PrivacyAccountant
from convexmarket.privacy.guarantee import WEAK, Guarantee, odds_in_words
from convexmarket.privacy.random_sources import RandomSource, Simulation

__all__ = ["RowAccount", "account", "check_order", "names_of", "reserve"]

Floats = NDArray[np.float64]
Budget = float | pd.Series

BUDGET = "one number for all rows, or a Series indexed by the names of the rows"
OTHERS = "without a name"  # id that represents all rows that were not charged by name


class RowAccount(PrivacyAccountant):
    """Account of the privacy loss of each row while the account is open; see :func:`account`.

    The index of a DataFrame identifies its rows. If a release has no row names, its largest epsilon
    is charged to every row. A release is charged to all nested accounts, or an error is raised and
    no account is charged. Threads can use the account in a copy of the context
    (:func:`contextvars.copy_context`), but worker processes cannot. The first entry of :attr:`ids`
    represents all rows that were not charged by name.

    Examples
    --------
    >>> with account(budget=2.0) as clinic:
    ...     reserve(Guarantee.pure([0.5, 0.75]))()
    >>> clinic.spent_unnamed
    0.75
    """

    def __init__(self, budget: Budget, delta: float) -> None:
        names: list[str] = []
        if isinstance(budget, pd.Series):
            names = forms_of(budget.index.tolist(), "budget.index[{}]".format)
            budget = np.r_[0.0, checked_numbers("budget", budget.to_numpy())]
        else:
            check_instance("budget", budget, Real, BUDGET)
        super().__init__(np.atleast_1d(budget), delta, ids=[OTHERS, *names])
        self._limited = bool(np.isfinite(self.budget).any())
        if self._limited:
            _BUDGETS.add(self)

    @property
    def spent(self) -> pd.Series:
        """Total epsilon of all releases for each row that was charged by name."""
        with _LOCK:
            return pd.Series(self._spent(), self.ids, name="spent")[1:]

    @property
    def spent_unnamed(self) -> float:
        """Total epsilon of all releases for each row that was not charged by name."""
        return float(self._spent()[0])

    def charge(self, guarantee: Guarantee, rows: pd.Index | None = None) -> None:
        """Charge a release to the rows with these names, or raise an error and charge no row."""
        if rows is not None:
            new = rows[(guarantee.epsilon > 0) & (self.ids.get_indexer(rows) < 0)]
            # A new name gets the budget and the charges of unnamed rows.
            self.ids, more = self.ids.append(new), np.zeros(self.budget.size + len(new), dtype=int)
            more[: self.budget.size] = np.arange(self.budget.size)
            self.budget = self.budget[more]
            self._sums = type(self._sums)(*(total[more] for total in self._sums))
            self._limits = type(self._limits)(*(limit[more] for limit in self._limits))
        super().charge(guarantee, rows)

    def _after(self, guarantee: Guarantee, rows: pd.Index | None) -> Any:
        leaks = any(text.startswith("VIOLATED") for text in guarantee.assumptions)
        if leaks and self._limited:
            raise ParameterError(
                f"{guarantee.mechanism} uses a parameter that was computed from the private rows "
                "without a guarantee, so it cannot be charged to an account with a budget. Pass "
                "the parameter as a public argument"
            )
        places: Any = slice(None) if rows is None else np.maximum(self.ids.get_indexer(rows), 0)

        def spread(values: Floats) -> Floats:
            if leaks:
                values = np.where(values > 0, np.inf, 0.0)
            every = np.zeros_like(self.budget)
            np.maximum.at(every, places, values if rows is not None else values.max())
            return every

        profile = replace(guarantee.profile, shift=spread(guarantee.profile.shift))
        every = replace(guarantee, epsilon=spread(guarantee.epsilon), profile=profile)
        return super()._after(every, None)

    def __enter__(self) -> Self:
        _BUDGETS.add(self)
        _OPEN.set((*_OPEN.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        opened = list(_OPEN.get())
        del opened[max(place for place, each in enumerate(opened) if each is self)]
        _OPEN.set(tuple(opened))
        if self not in opened:
            _BUDGETS.discard(self)


def account(budget: Budget | None = None, delta: float = 0.0) -> RowAccount:
    """Create an account with a budget, or return the default account.

    Parameters
    ----------
    budget : float or Series, optional
        Largest epsilon of each row, in nats. A Series maps names of rows to budgets, and the budget
        of all other rows is zero. If omitted, the innermost open account of this context or,
        without one, the account of the process is returned.
    delta : float, default 0.0
        Probability with which the budget can be exceeded.

    Returns
    -------
    RowAccount
        A new account can be opened by ``with`` several times.

    Examples
    --------
    >>> with account(budget=0.9) as clinic:
    ...     reserve(Guarantee.pure([0.5, 0.4]), names=pd.Index(["Ann", "Bob"]))()
    >>> clinic.spent.to_dict()
    {'Ann': 0.5, 'Bob': 0.4}
    """
    if budget is None:
        return (_TOTAL, *_OPEN.get())[-1]
    return RowAccount(budget, delta)


def names_of(X: Any) -> pd.Index | None:
    """Return the names of the rows of a table as an Index of normalised ids.

    The result is None for an array, an index of positions, or labels that are invalid as ids.
    """
    index = X if isinstance(X, pd.Index) else getattr(X, "index", None)
    if not isinstance(index, pd.Index) or isinstance(index, pd.RangeIndex):
        return None
    try:
        names = pd.Index(forms_of(index.tolist()), dtype=object)
    except ParameterError:
        return None
    positions = "0" in names and set(names) == set(map(str, range(len(names))))
    return names if names.is_unique and not positions else None


def check_order(name: str, labelled: Any, ids: pd.Index, rows: ArrayLike | None = None) -> None:
    """Raise an error if labels contain an id, but are not the ids (of some rows) in their order."""
    labels: Any = names_of(labelled)
    order: Any = None if labels is None else names_of(ids)
    known = order is not None and labels.isin(order).any()
    if known and not labels.equals(order if rows is None else order[np.asarray(rows)]):
        cause = f"the labels of {name} are not the ids of the account in their order; give"
        raise ParameterError(f"{cause} .loc[list(ids)], or .set_axis(list(ids)) to rename them")


def reserve(
    guarantee: Guarantee,
    accountant: Account | None = None,
    rows: ArrayLike | None = None,
    *,
    names: Any = None,
    random_state: RandomSource = None,
) -> Callable[[], None]:
    """Check a release against the budgets, and return a function that charges the release.

    Call ``reserve`` before the rows are read, and the returned function before noise is drawn.

    Parameters
    ----------
    guarantee : Guarantee
        Guarantee of the release. It must be computed from public quantities only.
    accountant : Account, optional
        The account to charge. The default is all open accounts, or no account for a
        :class:`Simulation`.
    rows : array_like of int, optional
        Positions of the guarantee's rows in the accountant. The default is all rows.
    names : DataFrame or Index, optional
        Index, or DataFrame with an index, that names the guarantee's rows in open accounts.
    random_state : None, Simulation or another source, optional

    Returns
    -------
    callable

    Raises
    ------
    BudgetExceededError
        If the release would exceed the budget of a row.
    ParameterError
        If the rows, or the order of their names, do not match the accountant.

    Warns
    -----
    WeakGuaranteeWarning
        If a row's epsilon is above 10 and finite, unless the release is a simulation.

    Examples
    --------
    >>> accountant = PrivacyAccountant([1.0])
    >>> reserve(Guarantee.pure([0.5]), accountant)()  # now noise can be drawn
    >>> accountant.spent
    array([0.5])
    """
    simulated = isinstance(random_state, Simulation)
    largest = float(guarantee.epsilon.max(initial=0.0, where=np.isfinite(guarantee.epsilon)))
    if not simulated and largest > WEAK:
        odds = f"a reader who knows all other rows {odds_in_words(largest, guarantee.delta)}"
        warn_user(
            f"{guarantee.mechanism} has epsilon = {largest:.4g}, a weak guarantee: {odds}. Add a"
            " convexmarket.MaxEpsilon to the market, or buy less privacy.",
            WeakGuaranteeWarning,
        )
    if accountant is not None:
        check_instance("accountant", accountant, Account, "a PrivacyAccountant or account")
        accountant.check(guarantee, rows)
        if not isinstance(accountant, RowAccount):
            check_order("the rows", names, pd.Index(getattr(accountant, "ids", ())), rows)
        return partial(accountant.charge, guarantee, rows)
    if rows is not None:
        raise ParameterError("rows are positions in an accountant; also pass accountant=")
    if simulated or not guarantee.epsilon.any():
        return lambda: None
    names = names_of(names)
    with _LOCK:
        for each in _OPEN.get():
            each.check(guarantee, names)
    return partial(_charge_open, guarantee, names)


def _charge_open(guarantee: Guarantee, names: pd.Index | None) -> None:
    """Charge a release to the open accounts and the total, or raise an error and charge nothing."""
    opened, problem = dict.fromkeys(_OPEN.get()), ""
    if getpid() != _PROCESS or parent_process() is not None:
        problem = (
            "a release in a worker process is not charged to the accounts of the main process; pass"
            " the account of a convexmarket.Ledger as accountant=, or use one process (n_jobs=1)."
        )
    elif _BUDGETS and not opened:
        problem = (
            "an account with a budget was created but never opened in this context, so"
            f" {guarantee.mechanism} is not charged to it: release within 'with account:', and run"
            " threads in a contextvars.copy_context()."
        )
    if problem:
        warn_user(problem, PrivacyLeakWarning)
    with _LOCK:
        for each in opened:
            each.check(guarantee, names)
        for each in (_TOTAL, *opened):
            each.charge(guarantee, names)


_LOCK = RLock()
#: Accounts with a budget that are open in some context or have never been opened.
_BUDGETS: WeakSet[RowAccount] = WeakSet()
_OPEN: ContextVar[tuple[RowAccount, ...]] = ContextVar("accounts that are open", default=())
_TOTAL = RowAccount(np.inf, 0.0)
_PROCESS = getpid()
