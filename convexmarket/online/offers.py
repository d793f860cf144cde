"""Offers of an online market: what one is, how it is read back, and what may be asked for."""

from __future__ import annotations

import json
import math
import sqlite3
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, TypeAlias

import pandas as pd

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
    """What a seller was offered, and what became of it.

    Attributes
    ----------
    id : str
    number : int
        Of arrival, from 1.
    sensitivity : float
        What the seller reported.
    epsilon : float
        The guarantee to be bought; 0 where nothing is.
    payment : float
        What is paid for it (A, Eq. 8), in the currency of the sensitivity.
    status : {"offered", "accepted", "declined", "nothing bought"}
        "nothing bought" where epsilon is 0: there is nothing to accept.
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
    """Return what has become of an offer."""
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
    """Raise a ParameterError if a release is anything but JSON text."""
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
    """Return a report as a float, or raise a ParameterError."""
    value = math.nan
    if isinstance(sensitivity, Real) and not isinstance(sensitivity, bool):
        try:
            value = float(sensitivity)
        except OverflowError:
            value = math.inf
    if not 0 <= value < math.inf:
        raise ParameterError(f"sensitivity must be a finite number >= 0, got {sensitivity!r}")
    return value + 0.0  # -0.0 becomes 0.0
