"""May this release be paid for? Asked before the rows are looked at, charged before the noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from convexmarket.checks import warn_user
from convexmarket.errors import ParameterError, WeakGuaranteeWarning
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.active import charge_open, check_open, names_of
from convexmarket.privacy.guarantee import WEAK, Guarantee, odds_in_words
from convexmarket.privacy.noise import RandomSource, Simulation

__all__ = ["admit"]


def admit(
    guarantee: Guarantee,
    accountant: Account | None = None,
    rows: ArrayLike | None = None,
    *,
    names: pd.Index | None = None,
    random_state: RandomSource = None,
) -> Callable[[], None]:
    """Refuse a release that some row cannot pay, and return what charges it.

    Call it before the rows are looked at, and what it returns before noise is drawn.

    Parameters
    ----------
    guarantee : Guarantee
        Of the release, computed from public quantities only.
    accountant : Account, optional
        What the release is charged to; by default the accounts that are open, :func:`account`,
        unless it is a :class:`Simulation`.
    rows : array_like of int, optional
        Positions, in the accountant, of the rows of the guarantee; all rows by default.
    names : Index, optional
        Of the rows of the guarantee; open accounts identify rows by :func:`names_of` of it.
    random_state : None, Simulation or another source, optional
        Of the noise.

    Returns
    -------
    callable
        Without arguments; charges the release in full, or refuses it and charges nothing.

    Raises
    ------
    BudgetExceededError
        If the release would exceed a row's budget.
    ParameterError
        If the accountant is none, or the rows are not those of the accountant.

    Warns
    -----
    WeakGuaranteeWarning
        If a row's epsilon is above 10 and finite, and it is no simulation.

    Examples
    --------
    >>> import numpy as np
    >>> import convexmarket as cm
    >>> accountant = cm.privacy.PrivacyAccountant([1.0, 2.0])
    >>> guarantee = cm.privacy.Guarantee(np.array([0.5, 0.5]), 0.0, "mine", "tight", ())
    >>> charge = cm.privacy.admit(guarantee, accountant)
    >>> charge()  # now the noise may be drawn
    >>> accountant.spent
    array([0.5, 0.5])
    """
    simulated = isinstance(random_state, Simulation)
    if not simulated:
        _warn_if_weak(guarantee)
    if accountant is not None:
        if not isinstance(accountant, Account):
            raise ParameterError(
                "accountant must be a PrivacyAccountant, or a ledger's account, got "
                f"{accountant!r}; one that is opened by 'with' is charged without it"
            )
        accountant.check(guarantee, rows)
        return partial(accountant.charge, guarantee, rows)
    if rows is not None:
        raise ParameterError("rows are positions in an accountant; pass accountant= as well")
    if simulated:
        return lambda: None
    names = names_of(names)
    check_open(guarantee, names)
    return partial(charge_open, guarantee, names)


def _warn_if_weak(guarantee: Guarantee) -> None:
    largest = float(guarantee.epsilon.max(initial=0.0, where=np.isfinite(guarantee.epsilon)))
    if largest > WEAK:
        known = odds_in_words(largest, guarantee.delta)
        warn_user(
            f"{guarantee.mechanism} promises a row no more than epsilon = {largest:.4g}: a reader"
            f" who knows all other rows {known}. Have a convexmarket.MaxEpsilon in the"
            " market, or sell less.",
            WeakGuaranteeWarning,
        )
