"""Accounts that are open in a context, and the total of all releases.

A fit or a release without an account is charged to the accounts opened by ``with`` statements in
its context (:mod:`contextvars`). A total of the process counts every release and refuses none.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from multiprocessing import parent_process
from os import getpid
from threading import RLock
from typing import Any, Self
from weakref import WeakSet

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from convexmarket.checks import checked_numbers, forms_of, is_number, warn_user
from convexmarket.display import Shown
from convexmarket.errors import ParameterError, PrivacyLeakWarning, WeakGuaranteeWarning
from convexmarket.privacy.accountant import Account, PrivacyAccountant
from convexmarket.privacy.guarantee import WEAK, Guarantee, odds_in_words
from convexmarket.privacy.random_sources import RandomSource, Simulation

__all__ = ["RowAccount", "account", "names_of", "reserve"]

Floats = NDArray[np.float64]
Budget = float | pd.Series

OTHERS = "without a name"  # the first row of an account: all rows not yet charged by name


class RowAccount(Shown):
    """Privacy spent on each row while the account is open; made by :func:`account`.

    The index of a DataFrame identifies its rows, in the normal form of ids. A release on rows
    without names (:func:`names_of`) costs every row its largest epsilon. Nested accounts are all
    charged, or none is. Accounts are not visible in other threads, unless these run in a copy of
    the context (:func:`contextvars.copy_context`), or in worker processes; releases there warn.

    Attributes
    ----------
    budget : float or Series
        Epsilon that each row may lose: one number for all, or one by name.
    delta : float
        Probability with which a row's epsilon may be exceeded.

    Raises
    ------
    ParameterError
        If budget is not one number or a Series of numbers, or names a row twice.

    Examples
    --------
    >>> with account(budget=2.0) as clinic:
    ...     reserve(Guarantee([0.5, 0.75], 0.0, "a sum", "exact", ()))()
    >>> clinic.spent_unnamed
    0.75
    """

    def __init__(self, budget: Budget, delta: float) -> None:
        names: list[str] = []
        if isinstance(budget, pd.Series):
            names = forms_of(budget.index.tolist(), "budget.index[{}]".format)
            if len(set(names)) < len(names):
                raise ParameterError("budget contains a name twice; give one number per row")
            epsilon = np.r_[0.0, checked_numbers("budget", budget.to_numpy())]
        elif is_number(budget):
            epsilon = np.array([float(budget)])
        else:
            raise ParameterError(
                "budget must be one number for all rows, or a Series by the names of the rows, got "
                f"{budget!r}; for rows by position, pass accountant=PrivacyAccountant(...) to fit"
            )
        self.budget, self.delta = budget, delta
        self._rows = PrivacyAccountant(epsilon, delta, ids=[OTHERS, *names])
        self._limited = bool(np.isfinite(epsilon).any())
        self._times_open = 0
        if self._limited:
            _BUDGETS.add(self)

    @property
    def spent(self) -> pd.Series:
        """Epsilon of all releases together, by name, of the rows that were charged by name."""
        with _LOCK:
            return pd.Series(self._rows.spent, self._rows.ids, name="spent")[1:]

    @property
    def spent_unnamed(self) -> float:
        """Epsilon of all releases together, of any other row."""
        return float(self._rows.spent[0])

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """Charged releases: the mechanism, its largest epsilon, its delta."""
        return self._rows.releases

    def to_frame(self) -> pd.DataFrame:
        """Return one line for each row that was charged by name: the epsilon spent."""
        return self.spent.to_frame()

    def _check(self, guarantee: Guarantee, names: pd.Index | None) -> None:
        """Refuse a release beyond the budget of a row."""
        if self._limited and _leaks(guarantee):
            raise ParameterError(
                f"{guarantee.mechanism} uses a parameter computed from the private rows, which no "
                "guarantee covers; an account with a budget refuses it. Pass the parameter as a "
                "public argument"
            )
        self._rows.check(self._price(guarantee, names))

    def _charge(self, guarantee: Guarantee, names: pd.Index | None) -> None:
        """Charge a release, or refuse it and charge nothing."""
        if names is not None:
            new = (guarantee.epsilon > 0) & (self._rows.ids.get_indexer(names) < 0)
            self._rows.add_rows(names[new])
        self._rows.charge(self._price(guarantee, names))

    def _price(self, guarantee: Guarantee, names: pd.Index | None) -> Guarantee:
        """Compute the guarantee of a release for each row of the account."""

        def spread(values: Floats) -> Floats:
            if _leaks(guarantee):
                values = np.where(values > 0, np.inf, 0.0)
            if names is None:
                return np.full_like(self._rows.budget, values.max())
            all_rows = np.zeros_like(self._rows.budget)
            np.maximum.at(all_rows, np.maximum(self._rows.ids.get_indexer(names), 0), values)
            return all_rows

        profile = replace(guarantee.profile, shift=spread(guarantee.profile.shift))
        epsilon = spread(guarantee.epsilon)
        return replace(guarantee, epsilon=epsilon, assumptions=(), profile=profile)

    def __enter__(self) -> Self:
        with _LOCK:
            self._times_open += 1
            _BUDGETS.add(self)
        _OPEN.set((*_OPEN.get(), self))
        return self

    def __exit__(self, *exception: object) -> None:
        opened = list(_OPEN.get())
        del opened[max(place for place, each in enumerate(opened) if each is self)]
        _OPEN.set(tuple(opened))
        with _LOCK:
            self._times_open -= 1
            if not self._times_open:
                _BUDGETS.discard(self)

    def __repr__(self) -> str:
        limit = f"{self.budget:g}" if is_number(self.budget) else "its budget"
        return (
            f"<RowAccount: {len(self.releases)} releases have spent at most"
            f" {self._rows.spent.max():.6g} of {limit} on a row, {self.spent_unnamed:.6g} on rows"
            " without names>"
        )


def account(budget: Budget | None = None, delta: float = 0.0) -> RowAccount:
    """Return the account that is charged by default, or create one with a budget.

    Parameters
    ----------
    budget : float or Series, optional
        Epsilon that each row may lose while the account is open, in nats. A Series gives it by the
        names of the rows; other rows may lose nothing. An infinite budget refuses nothing. Without
        a budget, return the innermost open account of this context, or the total of the process.
    delta : float, default 0.0
        Probability with which the budget may be exceeded, see :class:`PrivacyAccountant`.

    Returns
    -------
    RowAccount
        With a budget it is opened by ``with``, any number of times; see there for errors.

    Examples
    --------
    >>> two, three = (Guarantee([0.5] * n, 0.0, "a sum", "exact", ()) for n in (2, 3))
    >>> with account(budget=0.9) as clinic:
    ...     reserve(two, names=pd.Index(["Ann", "Bob"]))()
    >>> clinic.spent.to_dict()
    {'Ann': 0.5, 'Bob': 0.5}
    >>> with clinic:
    ...     reserve(three, names=pd.Index(["Ann", "Bob", "Eve"]))()
    Traceback (most recent call last):
        ...
    convexmarket.errors.BudgetExceededError: a sum would exceed the budget of 2 of ...
    """
    if budget is None:
        return (_TOTAL, *_OPEN.get())[-1]
    return RowAccount(budget, delta)


def names_of(X: Any) -> pd.Index | None:
    """Compute the names of the rows of a table in the normal form of ids.

    Parameters
    ----------
    X : DataFrame, Index or array_like

    Returns
    -------
    Index of str, or None
        None for an array, for positions 0, 1, ..., n - 1 in any order, for labels that are neither
        text nor integers, and for two labels with the same normal form.

    Examples
    --------
    >>> list(names_of(pd.DataFrame({"age": [59]}, index=["Ann"])))
    ['Ann']
    >>> names_of(pd.DataFrame({"age": [59]})) is None
    True
    """
    index = X if isinstance(X, pd.Index) else getattr(X, "index", None)
    if not isinstance(index, pd.Index) or isinstance(index, pd.RangeIndex):
        return None
    try:
        forms = forms_of(index.tolist())
    except ParameterError:
        return None
    distinct = set(forms)
    positions = "0" in distinct and distinct == set(map(str, range(len(forms))))
    if positions or len(distinct) < len(forms):
        return None
    return pd.Index(forms, dtype=object)


def reserve(
    guarantee: Guarantee,
    accountant: Account | None = None,
    rows: ArrayLike | None = None,
    *,
    names: pd.Index | None = None,
    random_state: RandomSource = None,
) -> Callable[[], None]:
    """Refuse a release beyond the budget of a row, and return the function that charges it.

    Call it before the rows are read, and call the returned function before noise is drawn; that
    call charges the release in full, or refuses it and charges nothing.

    Parameters
    ----------
    guarantee : Guarantee
        Guarantee of the release, computed from public quantities only.
    accountant : Account, optional
        By default the accounts that are open, unless ``random_state`` is a :class:`Simulation`.
    rows : array_like of int, optional
        Positions, in the accountant, of the rows of the guarantee; all rows by default.
    names : Index, optional
        Names of the rows of the guarantee, for open accounts.
    random_state : None, Simulation or another source, optional
        Source of the noise.

    Returns
    -------
    callable

    Raises
    ------
    BudgetExceededError, ParameterError
        If the release would exceed a row's budget, the accountant is not an account, or the rows
        are not those of the accountant.

    Warns
    -----
    WeakGuaranteeWarning
        If a row's epsilon is above 10 and finite, unless the release is a simulation.

    Examples
    --------
    >>> accountant = PrivacyAccountant([1.0, 2.0])
    >>> charge = reserve(Guarantee([0.5, 0.5], 0.0, "a sum", "exact", ()), accountant)
    >>> charge()  # now the noise may be drawn
    >>> accountant.spent
    array([0.5, 0.5])
    """
    simulated = isinstance(random_state, Simulation)
    largest = float(guarantee.epsilon.max(initial=0.0, where=np.isfinite(guarantee.epsilon)))
    if not simulated and largest > WEAK:
        warn_user(
            f"{guarantee.mechanism} has epsilon = {largest:.4g}, a weak guarantee: a reader who"
            f" knows all other rows {odds_in_words(largest, guarantee.delta)}. Add a"
            " convexmarket.MaxEpsilon to the market, or buy less privacy.",
            WeakGuaranteeWarning,
        )
    if accountant is not None:
        if not isinstance(accountant, Account):
            raise ParameterError(
                "accountant must be a PrivacyAccountant, or a ledger's account, got "
                f"{accountant!r}; an account opened by 'with' is charged without this argument"
            )
        accountant.check(guarantee, rows)
        return partial(accountant.charge, guarantee, rows)
    if rows is not None:
        raise ParameterError("rows are positions in an accountant; pass accountant= as well")
    if simulated or not guarantee.epsilon.any():
        return lambda: None
    names = names_of(names)
    with _LOCK:
        for each in _OPEN.get():
            each._check(guarantee, names)
    return partial(_charge_open, guarantee, names)


def _charge_open(guarantee: Guarantee, names: pd.Index | None) -> None:
    """Charge a release to the open accounts and the total, or refuse it and charge none."""
    opened = tuple(dict.fromkeys(_OPEN.get()))
    if getpid() != _PROCESS or parent_process() is not None:
        warn_user(
            "a release in a worker process is not charged to the accounts of the main process; pass"
            " the account of a convexmarket.Ledger as accountant=, or use one process (n_jobs=1).",
            PrivacyLeakWarning,
        )
    elif _BUDGETS and not opened:
        warn_user(
            "an account with a budget was created but never opened in this context, so"
            f" {guarantee.mechanism} is not charged to it: release within 'with account:', and run"
            " threads in a contextvars.copy_context().",
            PrivacyLeakWarning,
        )
    with _LOCK:
        for each in opened:
            each._check(guarantee, names)
        for each in (_TOTAL, *opened):
            each._charge(guarantee, names)


def _leaks(guarantee: Guarantee) -> bool:
    return any(assumption.startswith("VIOLATED") for assumption in guarantee.assumptions)


_LOCK = RLock()
#: Accounts with a budget that are open in some context, or were never opened.
_BUDGETS: WeakSet[RowAccount] = WeakSet()
_OPEN: ContextVar[tuple[RowAccount, ...]] = ContextVar("accounts that are open", default=())
_TOTAL = RowAccount(np.inf, 0.0)
_PROCESS = getpid()
