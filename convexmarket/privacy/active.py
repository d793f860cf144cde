"""The account of those who passed none: open from the start, and in nobody's way until told to.

What a fit or a release costs the rows is charged to an account. Where none is passed, it is
charged to the accounts that are open: that of the process, which counts and refuses nothing, and
those that a ``with`` statement opened. So what has been spent on which rows can always be asked.
"""

from __future__ import annotations

import os
from multiprocessing import parent_process
from threading import Lock, RLock
from typing import Any, Self
from weakref import WeakSet

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.checks import checked_numbers, forms_of, is_number, warn_user
from convexmarket.display import Shown
from convexmarket.errors import ParameterError, PrivacyLeakWarning
from convexmarket.privacy.accountant import PrivacyAccountant
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["RowAccount", "account", "charge_open", "check_open", "has_charged", "names_of"]

Floats = NDArray[np.float64]
Budget = float | pd.Series

OTHERS = 0  # the place of all rows that were never charged by a name


class _Rows(PrivacyAccountant):
    """An account to which rows are added that stand as the others do."""

    def __init__(self, budget: Floats, delta: float, names: pd.Index) -> None:
        super().__init__(budget, delta)
        self.names = names

    def add(self, names: pd.Index) -> None:
        """Tell rows apart that were among the others until now."""
        self.names = self.names.append(names)
        self._repeat(OTHERS, len(names))

    def _name(self, row: int) -> str:
        return "a row without a name" if row == OTHERS else f"row {self.names[row - 1]!r}"


class RowAccount(Shown):
    """What has been spent on which rows, by all fits and releases while the account is open.

    Rows are identified by the index of their DataFrame, in the normal form of ids: 1 and "1" are
    one row, and so are two Unicode spellings of one name. Rows without names (:func:`names_of`) may
    be any rows: a release on them costs every row its largest epsilon. Equal names in different
    tables are one row. Both err on the safe side; where that is too much, open an account for each
    table. Made by :func:`account`.

    Notes
    -----
    An open account holds for the whole process and all of its threads, and of accounts within each
    other a release is charged to all or to none. Worker processes have accounts of their own, and
    warn: there, pass ``accountant=``, the account of a :class:`~convexmarket.Ledger`.
    """

    def __init__(self, budget: Budget, delta: float) -> None:
        names, epsilon = _checked_budget(budget)
        self._budget = budget
        self._rows = _Rows(epsilon, delta, names)
        self._releases: list[tuple[str, float, float]] = []
        if not self._counts_only:
            _NEVER_OPENED.add(self)

    @property
    def budget(self) -> Budget:
        """What each row may lose: one number for all, or a Series by name."""
        return self._budget

    @property
    def delta(self) -> float:
        """Probability with which a row's epsilon may be exceeded."""
        return self._rows.delta

    @property
    def spent(self) -> pd.Series:
        """Epsilon of all releases together, by name, of the rows that were charged by one."""
        with _LOCK:
            return pd.Series(self._rows.spent[1:], index=self._rows.names, name="spent")

    @property
    def spent_unnamed(self) -> float:
        """Epsilon of all releases together, of any other row."""
        return float(self._rows.spent[OTHERS])

    @property
    def releases(self) -> tuple[tuple[str, float, float], ...]:
        """What was charged: the mechanism, its largest epsilon, its delta."""
        return tuple(self._releases)

    def to_frame(self) -> pd.DataFrame:
        """Return one line for each row that was charged by a name: what it has spent."""
        return self.spent.to_frame()

    def _has_charged(self, names: pd.Index | None) -> bool:
        if names is None:
            return bool(self._releases)
        return bool(np.any(self._places(names) != OTHERS))

    def _check(self, guarantee: Guarantee, names: pd.Index | None) -> None:
        """Refuse a release that a row cannot pay."""
        if self._counts_only:
            return
        if _leaks(guarantee):
            raise ParameterError(
                f"{guarantee.mechanism} would use what is computed from the private rows, which no "
                "guarantee covers and no account with a budget can be charged for; pass it as a "
                "public argument"
            )
        self._rows.check(self._price(guarantee, names))

    def _charge(self, guarantee: Guarantee, names: pd.Index | None) -> None:
        """Charge a release, or refuse it and charge nothing."""
        if names is not None:
            new = (self._places(names) == OTHERS) & (guarantee.epsilon > 0)
            if new.any():
                self._rows.add(names[new])
        price = self._price(guarantee, names)
        if self._counts_only:
            used = np.flatnonzero(price.epsilon)
            epsilon = np.where(_leaks(guarantee), np.inf, price.epsilon[used])
            self._rows.bring_forward(used, epsilon, np.full(used.size, price.delta))
        else:
            self._rows.charge(price)
        self._releases.append((price.mechanism, float(price.epsilon.max()), price.delta))

    @property
    def _counts_only(self) -> bool:
        return is_number(self._budget) and bool(np.isinf(self._budget))

    def _places(self, names: pd.Index) -> NDArray[np.intp]:
        return self._rows.names.get_indexer(names) + 1

    def _price(self, guarantee: Guarantee, names: pd.Index | None) -> Guarantee:
        """Return what a release costs each row of the account."""
        epsilon = np.zeros_like(self._rows.budget)
        if names is None:
            epsilon += guarantee.epsilon.max()
        else:
            np.maximum.at(epsilon, self._places(names), guarantee.epsilon)
        return Guarantee(epsilon, guarantee.delta, guarantee.mechanism, guarantee.accounting, ())

    def __enter__(self) -> Self:
        with _LOCK:
            _OPEN.append(self)
            _NEVER_OPENED.discard(self)
        return self

    def __exit__(self, *exception: object) -> None:
        with _LOCK:
            del _OPEN[max(place for place, opened in enumerate(_OPEN) if opened is self)]

    def __repr__(self) -> str:
        limit = f"{self._budget:g}" if is_number(self._budget) else "its budget"
        return (
            f"<RowAccount: {len(self._releases)} releases have spent at most"
            f" {self._rows.spent.max():.6g} of {limit} on a row, {self.spent_unnamed:.6g} on rows"
            " without names>"
        )


def account(budget: Budget | None = None, delta: float = 0.0) -> RowAccount:
    """Return the account that is charged where none is passed, or make one with a budget.

    Parameters
    ----------
    budget : float or Series, optional
        What each row may lose while the account is open, in nats; a Series gives it by the names of
        the rows, and others have none. Infinity counts, and refuses nothing. Without it, the
        account that is open is returned: the innermost one, or that of the process.
    delta : float, default 0.0
        Probability with which that may be exceeded, see :class:`PrivacyAccountant`.

    Returns
    -------
    RowAccount
        One with a budget is opened by ``with``, as often as you like.

    Raises
    ------
    ParameterError
        If budget or delta is out of its range.

    Examples
    --------
    >>> import pandas as pd
    >>> from convexmarket import PersonalizedRidge
    >>> table = pd.DataFrame({"age": [0.1, 0.5, 0.9]}, index=["Ann", "Bob", "Eve"])
    >>> learner = PersonalizedRidge(feature_range=(0.0, 1.0), target_range=(0.0, 1.0))
    >>> with account(budget=1.0) as clinic:
    ...     _ = learner.fit(table[:2], [0.2, 0.4], epsilon=[0.5, 1.0])
    >>> clinic.spent.round(2).to_dict()  # exact noise leaves a little
    {'Ann': 0.5, 'Bob': 1.0}
    >>> with clinic:
    ...     _ = learner.fit(table, [0.2, 0.4, 0.8], epsilon=0.5)
    Traceback (most recent call last):
        ...
    convexmarket.errors.BudgetExceededError: ridge regression ... would exceed ... row 'Bob' has...
    """
    if budget is None:
        with _LOCK:
            return _OPEN[-1]
    return RowAccount(budget, delta)


def names_of(X: Any) -> pd.Index | None:
    """Compute the names of the rows of a table in the normal form of ids.

    Parameters
    ----------
    X : DataFrame, Index or array_like

    Returns
    -------
    Index of str, or None
        None for an array, and where the index does not identify rows: a RangeIndex or another
        order of 0, 1, ..., n - 1, which are positions; labels that are neither text nor whole
        numbers, such as dates and tuples; two labels with the same normal form.

    Examples
    --------
    >>> import pandas as pd
    >>> from convexmarket.privacy import names_of
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


def check_open(guarantee: Guarantee, names: pd.Index | None) -> None:
    """Refuse a release that a row cannot pay from some account that is open."""
    if not guarantee.epsilon.any():
        return
    with _LOCK:
        for opened in _distinct():
            opened._check(guarantee, names)


def charge_open(guarantee: Guarantee, names: pd.Index | None) -> None:
    """Charge a release to all accounts that are open, or refuse it and charge none."""
    if not guarantee.epsilon.any():
        return
    if os.getpid() != _PROCESS or parent_process() is not None:
        warn_user(
            "this is a worker process: what it releases is charged to an account that the process"
            " that started it cannot see; pass accountant=, the account of a convexmarket.Ledger,"
            " or release in one process (n_jobs=1).",
            PrivacyLeakWarning,
        )
    if _NEVER_OPENED and len(_OPEN) == 1:
        warn_user(
            "an account with a budget was made and never opened, so it neither pays for"
            f" {guarantee.mechanism} nor refuses it: release within 'with account:'.",
            PrivacyLeakWarning,
        )
    with _LOCK:
        check_open(guarantee, names)
        for opened in _distinct():
            opened._charge(guarantee, names)


def has_charged(names: pd.Index | None) -> bool:
    """Say whether an account that is open has charged any of these rows by name.

    Of rows without names it says whether anything was charged.
    """
    with _LOCK:
        return any(opened._has_charged(names) for opened in _OPEN)


def _distinct() -> list[RowAccount]:
    return list(dict.fromkeys(_OPEN))


def _leaks(guarantee: Guarantee) -> bool:
    return any(assumption.startswith("VIOLATED") for assumption in guarantee.assumptions)


def _checked_budget(budget: Budget) -> tuple[pd.Index, Floats]:
    """Return the names of rows with a budget of their own, and the budgets, others first."""
    if isinstance(budget, pd.Series):
        forms = forms_of(budget.index.tolist(), "budget.index[{}]".format)
        if len(set(forms)) < len(forms):
            raise ParameterError("budget has a name twice; give one number per row")
        each = checked_numbers("budget", budget.to_numpy())
        return pd.Index(forms, dtype=object), np.r_[0.0, each]
    if not is_number(budget):
        raise ParameterError(
            "budget must be one number for all rows, or a Series by the names of the rows, got "
            f"{budget!r}; for rows by position, pass accountant=PrivacyAccountant(...) to fit"
        )
    return pd.Index([], dtype=object), np.array([float(budget)])


def _start_again() -> None:
    """Free what another thread held when this process was forked."""
    global _LOCK
    _LOCK = RLock()
    for opened in _OPEN:
        opened._rows._lock = Lock()


_LOCK = RLock()
_NEVER_OPENED: WeakSet[RowAccount] = WeakSet()
_OPEN = [RowAccount(np.inf, 0.0)]
_PROCESS = os.getpid()
os.register_at_fork(after_in_child=_start_again)
