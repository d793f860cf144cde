"""May this release be paid for? Asked before the rows are looked at."""

from __future__ import annotations

from numpy.typing import ArrayLike

from convexmarket.errors import ParameterError
from convexmarket.privacy.accountant import Account
from convexmarket.privacy.guarantee import Guarantee

__all__ = ["check_account"]


def check_account(
    accountant: Account | None, guarantee: Guarantee, rows: ArrayLike | None = None
) -> None:
    """Refuse a release that some row cannot pay, without charging it.

    Parameters
    ----------
    accountant : Account or None
        What the release will be charged to; ``None`` where nobody keeps count.
    guarantee : Guarantee
        Of the release, computed from public quantities only.
    rows : array_like of int, optional
        Positions, in the account, of the rows of the guarantee; all rows by default.

    Raises
    ------
    BudgetExceededError
        If the release would exceed a row's budget.
    ParameterError
        If the accountant is none, or the rows are not those of the accountant.
    """
    if accountant is None:
        if rows is not None:
            raise ParameterError("rows are positions in an accountant: pass accountant= as well.")
        return
    if not isinstance(accountant, Account):
        raise ParameterError(
            f"accountant must be a PrivacyAccountant, or a ledger's account, not {accountant!r}."
        )
    accountant.check(guarantee, rows)
