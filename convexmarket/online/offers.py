"""Offers of an online market, and checks of reports and releases."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import pandas as pd

from convexmarket.checks import check_nonnegative
from convexmarket.errors import ParameterError

__all__ = [
    "OFFERS",
    "Offer",
    "Status",
    "check_json",
    "checked_sensitivity",
    "find_offer",
    "frame_of",
    "status_of",
]

Status: TypeAlias = Literal["offered", "accepted", "declined", "nothing bought"]

#: Rows that :func:`frame_of` takes, in any order.
OFFERS = (
    "SELECT q.number, q.id, q.sensitivity, q.epsilon, q.payment, a.answer, q.plan "
    "FROM quotes AS q LEFT JOIN answers AS a ON a.number = q.number "
)


@dataclass(frozen=True)
class Offer:
    """An offer to a seller, and its status.

    Attributes
    ----------
    id : str
    number : int
        Of arrival, from 1.
    sensitivity, epsilon, payment : float
        The report, the guarantee to be bought, and the payment for it (A, Eq. 8).
    status : {"offered", "accepted", "declined", "nothing bought"}
        "nothing bought" if epsilon is 0.
    """

    id: str
    number: int
    sensitivity: float
    epsilon: float
    payment: float
    status: Status


def find_offer(connection: sqlite3.Connection, id: str) -> Offer | None:
    """Return the offer of a seller, if it was quoted."""
    rows = connection.execute(f"{OFFERS} WHERE q.id = ?", (id,)).fetchall()
    if not rows:
        return None
    number, id, sensitivity, epsilon, payment, answer, _ = rows[0]
    return Offer(id, number, sensitivity, epsilon, payment, status_of(epsilon, answer))


def status_of(epsilon: float, answer: Status | None) -> Status:
    """Return the status of an offer."""
    if epsilon == 0:
        return "nothing bought"
    return answer or "offered"


def frame_of(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    """Return rows of :data:`OFFERS` as the table that users see."""
    names = ["number", "id", "sensitivity", "epsilon", "payment", "answer", "plan"]
    frame = pd.DataFrame(rows, columns=names)
    frame["status"] = [status_of(row[3], row[5]) for row in rows]
    types = {"number": int, "plan": int, "sensitivity": float, "epsilon": float, "payment": float}
    order = ["id", "number", "sensitivity", "epsilon", "payment", "status", "plan"]
    return frame.astype(types)[order]


def check_json(result: object) -> None:
    """Check that a release is JSON text."""
    try:
        if not isinstance(result, str):
            raise ValueError(f"an object of type {type(result).__name__}")
        json.loads(result)
    except ValueError as error:
        raise ParameterError(
            f"release returned what is no JSON text ({error}), so nothing was released; return "
            "json.dumps(...) of the result, and close again"
        ) from None


def checked_sensitivity(sensitivity: float) -> float:
    """Convert a report to a float."""
    return check_nonnegative("sensitivity", sensitivity) + 0.0  # -0.0 becomes 0.0
