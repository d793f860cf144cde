"""Charges for the model of an online market, before it is trained."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import numpy as np
import pandas as pd

from convexmarket.errors import BudgetExceededError, DataError, ParameterError, ProblemFileError
from convexmarket.ledger.entries import MODEL, charge_release, charged_at
from convexmarket.ledger.store import Store
from convexmarket.online.steps import check_json
from convexmarket.privacy import Guarantee

__all__ = ["all_that_was_sold", "attempt", "charge_model"]

#: What an attempt is called that failed where the rows may have decided that it does.
_FAILED = f"{MODEL}-failed-"
_FAILURES = f"FROM ledger_releases WHERE name LIKE '{_FAILED}%'"
#: Of the attempts since then, among which the rows had no choice.
_CHARGED = (
    "SELECT seller, sum(epsilon) FROM spending "
    f"WHERE (name = '{MODEL}' OR name LIKE '{MODEL}-%') "
    f"AND release > (SELECT coalesce(max(number), 0) {_FAILURES}) GROUP BY seller"
)
#: Raised by a release that refuses its input: no noise was drawn yet.
_NOTHING_DRAWN = (DataError, ParameterError, ProblemFileError)


def all_that_was_sold(accepted: pd.DataFrame) -> Guarantee:
    """Return the largest guarantee of a model of these offers."""
    epsilon = accepted["epsilon"].to_numpy(dtype=float)
    return Guarantee(epsilon, 0.0, "the model of the market", "all that was sold", ())


def charge_model(
    connection: sqlite3.Connection, accepted: pd.DataFrame, guarantee: Guarantee
) -> None:
    """Charge the model of a market, less the charges of attempts since the last failure.

    At most one attempt is stored. Attempts that were killed, or that refused their input before
    noise was drawn, cost each seller together as much as the most expensive of them. The charge of
    a failed attempt stays, because the failure may depend on the rows and the noise: free
    repetitions would choose among noises.

    Raises
    ------
    BudgetExceededError
        If a seller has not that much left; nothing is charged then.
    """
    ids = accepted["id"].tolist()
    if charged_at(connection, MODEL) is None:
        charge_release(connection, ids, guarantee, None, MODEL)
        return
    charged = dict(connection.execute(_CHARGED).fetchall())
    before = np.array([charged.get(id, 0.0) for id in ids])
    epsilon = np.maximum(guarantee.epsilon - before, 0.0)
    kept = guarantee.mechanism, guarantee.accounting, guarantee.assumptions
    more = Guarantee(epsilon, guarantee.delta, *kept)
    if not more.epsilon.any():
        return
    failures = _failures(connection)
    (entries,) = connection.execute(
        f"SELECT count(*) FROM ledger_releases WHERE name = '{MODEL}' OR name LIKE '{MODEL}-%'"
    ).fetchall()[0]
    try:
        charge_release(connection, ids, more, None, f"{MODEL}-{entries - failures + 1}")
    except BudgetExceededError as error:
        if not failures:
            raise
        raise BudgetExceededError(
            f"{error} An attempt at the model failed before, which may depend on the rows, so that "
            "it stays charged and another is charged in full; to end the market without a model, "
            "use close_without_model (on the command line: --without-model)"
        ) from None


def attempt(store: Store, release: Callable[[pd.DataFrame], str], accepted: pd.DataFrame) -> str:
    """Call ``release``, and record a failure that may depend on the rows.

    Every error counts, except refusals of the input. A process that is killed or interrupted
    records nothing.
    """
    returned = False
    try:
        result = release(accepted)
        returned = True
        check_json(result)
    except Exception as error:
        if returned or not isinstance(error, _NOTHING_DRAWN):
            with store.writing() as connection:
                _record_failure(connection)
        raise
    return result


def _failures(connection: sqlite3.Connection) -> int:
    return int(connection.execute(f"SELECT count(*) {_FAILURES}").fetchall()[0][0])


def _record_failure(connection: sqlite3.Connection) -> None:
    nothing = Guarantee(np.zeros(0), 0.0, "a failed attempt", "charged before", ())
    charge_release(connection, [], nothing, None, f"{_FAILED}{_failures(connection) + 1}")
