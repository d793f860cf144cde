"""What the model of an online market costs its sellers: charged before it is trained."""

from __future__ import annotations

import sqlite3

import numpy as np
import pandas as pd

from convexmarket.ledger.entries import charge_release, charged_at
from convexmarket.ledger.names import MODEL
from convexmarket.privacy import Guarantee

__all__ = ["all_that_was_sold", "charge_model"]

_CHARGED = (
    "SELECT seller, sum(epsilon) FROM spending "
    f"WHERE name = '{MODEL}' OR name LIKE '{MODEL}-%' GROUP BY seller"
)


def all_that_was_sold(accepted: pd.DataFrame) -> Guarantee:
    """Return the largest guarantee that a model of these offers may have."""
    epsilon = accepted["epsilon"].to_numpy(dtype=float)
    return Guarantee(epsilon, 0.0, "the model of the market", "all that was sold", ())


def charge_model(
    connection: sqlite3.Connection, accepted: pd.DataFrame, guarantee: Guarantee
) -> None:
    """Charge the model of a market, but for what earlier attempts at it were charged.

    At most one of the attempts is ever stored, so that all of them together cost each seller what
    the dearest of them does.

    Raises
    ------
    BudgetExceededError
        If a seller has not that much left; nothing is charged then.
    ParameterError
        If the guarantee has another number of rows.
    """
    ids = accepted["id"].tolist()
    if charged_at(connection, MODEL) is None:
        charge_release(connection, ids, guarantee, None, MODEL)
        return
    charged = dict(connection.execute(_CHARGED).fetchall())
    before = np.array([charged.get(id, 0.0) for id in ids])
    more = Guarantee(
        np.maximum(guarantee.epsilon - before, 0.0),
        guarantee.delta,
        guarantee.mechanism,
        guarantee.accounting,
        guarantee.assumptions,
    )
    if not more.epsilon.any():
        return
    (attempts,) = connection.execute(
        f"SELECT count(*) FROM ledger_releases WHERE name = '{MODEL}' OR name LIKE '{MODEL}-%'"
    ).fetchall()[0]
    charge_release(connection, ids, more, None, f"{MODEL}-{attempts + 1}")
