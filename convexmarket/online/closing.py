"""Charge the privacy cost of the model of an online market before training."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable

import numpy as np
import pandas as pd

from convexmarket.errors import BudgetExceededError, DataError, ParameterError, ProblemFileError
from convexmarket.ledger.book import MODEL, charge_release, charged_at
from convexmarket.ledger.store import Store
from convexmarket.privacy import Guarantee

#: Prefix of the names of attempts that failed for reasons that can depend on the rows.
_FAILED = f"{MODEL}-failed-"
_ENTRIES = f"SELECT count(*) FROM ledger_releases WHERE name = '{MODEL}' OR name LIKE '{MODEL}-%'"
_FAILURES = f"FROM ledger_releases WHERE name LIKE '{_FAILED}%'"
#: Query for the charges of all attempts after the last recorded failure.
_CHARGED = (
    "SELECT seller, sum(epsilon) FROM spending "
    f"WHERE (name = '{MODEL}' OR name LIKE '{MODEL}-%') "
    f"AND release > (SELECT coalesce(max(number), 0) {_FAILURES}) GROUP BY seller"
)
#: Errors that a release raises for invalid input, before it draws noise.
_NOTHING_DRAWN = (DataError, ParameterError, ProblemFileError)


def all_that_was_sold(accepted: pd.DataFrame) -> Guarantee:
    """Return the guarantee of a model that uses the full epsilon of each accepted offer."""
    epsilon = accepted["epsilon"].to_numpy(dtype=float)
    return Guarantee(epsilon, 0.0, "the model of the market", "all that was sold", ())


def charge_model(
    connection: sqlite3.Connection, accepted: pd.DataFrame, guarantee: Guarantee
) -> None:
    """Charge a model to the ledger, minus the charges of earlier attempts since the last failure.

    A market stores the result of at most one attempt. Attempts that were killed, or rejected their
    input before noise was drawn, are together charged as the most expensive of these attempts. Any
    other failure can depend on the noise, so a free repetition would allow a selection of noise.
    """
    ids, name, failures = accepted["id"].tolist(), MODEL, _failures(connection)
    if charged_at(connection, MODEL) is not None:
        charged = dict(connection.execute(_CHARGED).fetchall())
        before = np.array([charged.get(id, 0.0) for id in ids])
        described = guarantee.mechanism, guarantee.accounting, guarantee.assumptions
        epsilon = np.maximum(guarantee.epsilon - before, 0.0)
        guarantee = Guarantee(epsilon, guarantee.delta, *described)
        if not guarantee.epsilon.any():
            return
        (entries,) = connection.execute(_ENTRIES).fetchall()[0]
        name = f"{MODEL}-{entries - failures + 1}"
    try:
        charge_release(connection, ids, guarantee, None, name)
    except BudgetExceededError as error:
        if not failures:
            raise
        raise BudgetExceededError(
            f"{error}. The failure of an earlier attempt can depend on the rows, so its charge "
            "remains and another attempt is charged in full; to close the market without a "
            "model, use close_without_model (on the command line: --without-model)"
        ) from None


def attempt(store: Store, release: Callable[[pd.DataFrame], str], accepted: pd.DataFrame) -> str:
    """Call ``release``, and record every error except the rejection of an input."""
    try:
        result = release(accepted)
    except _NOTHING_DRAWN:
        raise
    except Exception:
        _record_failure(store)
        raise
    try:
        if not isinstance(result, str):
            raise ValueError(f"an object of type {type(result).__name__}")
        json.loads(result)
    except ValueError as error:
        _record_failure(store)
        raise ParameterError(
            f"release did not return JSON text ({error}), so nothing was released; apply "
            "json.dumps to the result, and close the market again"
        ) from None
    return result


def _record_failure(store: Store) -> None:
    nothing = Guarantee(np.zeros(0), 0.0, "a failed attempt", "charged before", ())
    with store.writing() as connection:
        name = f"{_FAILED}{_failures(connection) + 1}"
        charge_release(connection, [], nothing, None, name)


def _failures(connection: sqlite3.Connection) -> int:
    return int(connection.execute(f"SELECT count(*) {_FAILURES}").fetchall()[0][0])
