"""Offers of an online market, and its steps inside an open transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

import numpy as np
import pandas as pd

from convexmarket.checks import check_nonnegative
from convexmarket.errors import (
    ConvexMarketError,
    MarketClosedError,
    OfferError,
    ParameterError,
)
from convexmarket.ledger.seals import damaged
from convexmarket.ledger.store import now
from convexmarket.online.adaptive import AdaptivePolicy
from convexmarket.online.policy import History, OnlinePolicy

Policy = TypeVar("Policy")

#: Unanswered ids that an error names.
_SHOWN = 5
#: Costs the same however many quotes there are.
_HEAD = (
    "SELECT coalesce((SELECT max(number) FROM quotes), 0), (SELECT max(number) FROM plans), "
    "EXISTS (SELECT 1 FROM endings)"
)
_UNANSWERED = "FROM quotes WHERE epsilon > 0 AND number NOT IN (SELECT number FROM answers)"
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


class Quoting:
    """Quotes of a policy for the expected number of sellers, with the latest plan in memory."""

    def __init__(self, policy: OnlinePolicy | AdaptivePolicy, expected: int, path: Path) -> None:
        self._policy, self._expected, self._path = policy, expected, path
        self._stages = frozenset(policy.stages)
        self._latest: tuple[int, OnlinePolicy] | None = None

    def quote(self, connection: sqlite3.Connection, id: str, sensitivity: float) -> Offer:
        """Return a seller's offer, its stored one or a new one; nothing is stored on an error."""
        stored = find_offer(connection, id)
        if stored is not None:
            if stored.sensitivity != sensitivity:
                raise OfferError(
                    f"seller {id!r} was quoted at the sensitivity {stored.sensitivity!r}, and now "
                    f"reports {sensitivity!r}; a seller is quoted once; ask with its first report"
                )
            return stored
        quoted, plan, ended = connection.execute(_HEAD).fetchall()[0]
        if ended:
            raise MarketClosedError(
                f"seller {id!r} comes too late: the market was closed after {quoted} sellers; make "
                "a new market for further sellers"
            )
        if quoted >= self._expected:
            raise MarketClosedError(
                f"seller {id!r} is number {quoted + 1}, but {self._expected} sellers were expected "
                "and the market stops after them; close it, and make a new market for further "
                "sellers"
            )
        if quoted in self._stages:
            self._policy.opening.quote(sensitivity)  # refuses the report before a plan is stored
            plan = self._replan(connection, quoted, plan)
        epsilon, payment = self._policy_of(connection, plan).quote(sensitivity)
        offer = Offer(id, quoted + 1, sensitivity, epsilon, payment, status_of(epsilon, None))
        connection.execute(
            "INSERT INTO quotes VALUES (?, ?, ?, ?, ?, ?, ?)",
            (offer.number, id, sensitivity, epsilon, payment, plan, now()),
        )
        return offer

    def forget(self) -> None:
        """Drop the plan in memory, as its transaction may be undone."""
        self._latest = None

    def _replan(self, connection: sqlite3.Connection, quoted: int, latest: int) -> int:
        """Return the number of the plan for the next seller; store a new plan at a stage."""
        made = connection.execute("SELECT number FROM plans WHERE after = ?", (quoted,)).fetchall()
        if made:
            return int(made[0][0])
        rows = connection.execute(
            "SELECT q.sensitivity, q.epsilon, q.payment, a.answer IS 'declined' FROM quotes AS q "
            "LEFT JOIN answers AS a ON a.number = q.number ORDER BY q.number"
        ).fetchall()
        table = np.array(rows, dtype=float)
        kept = 1.0 - table[:, 3]
        history = History(table[:, 0].copy(), table[:, 1] * kept, table[:, 2] * kept)
        policy = self._policy.replanned(history)
        connection.execute(
            "INSERT INTO plans VALUES (?, ?, ?, ?)",
            (latest + 1, quoted, policy_json(policy), now()),
        )
        return latest + 1

    def _policy_of(self, connection: sqlite3.Connection, plan: int) -> OnlinePolicy:
        """Return the stored policy of a plan, the same in every process."""
        if self._latest is None or self._latest[0] != plan:
            rows = connection.execute("SELECT policy FROM plans WHERE number = ?", (plan,))
            text = rows.fetchall()[0][0]
            self._latest = plan, stored_policy(text, self._path, OnlinePolicy.from_dict)
        return self._latest[1]


def known_offer(connection: sqlite3.Connection, id: str) -> Offer:
    """Return the offer of a seller who was quoted."""
    stored = find_offer(connection, id)
    if stored is None:
        raise OfferError(f"seller {id!r} was never quoted; check the id, or quote it first")
    return stored


def answer_offer(
    connection: sqlite3.Connection, id: str, answer: Literal["accepted", "declined"]
) -> Offer:
    """Record an answer, unless it is recorded."""
    offer = known_offer(connection, id)
    if offer.status == answer:
        return offer
    if offer.status == "nothing bought":
        raise OfferError(
            f"nothing is bought from seller {id!r} at the sensitivity {offer.sensitivity!r}, so "
            f"there is nothing to be {answer}; leave it out"
        )
    if offer.status != "offered":
        raise OfferError(
            f"seller {id!r} has {offer.status} its offer, which cannot be {answer} any more; the "
            "first answer stands"
        )
    connection.execute("INSERT INTO answers VALUES (?, ?, ?)", (offer.number, answer, now()))
    return replace(offer, status=answer)


def end_quoting(connection: sqlite3.Connection, lapse: bool) -> None:
    """End quoting, unless it has ended; afterwards every offer is answered."""
    if connection.execute("SELECT count(*) FROM endings").fetchall()[0][0]:
        return
    unanswered = connection.execute(f"SELECT count(*) {_UNANSWERED}").fetchall()[0][0]
    if unanswered and not lapse:
        rows = connection.execute(f"SELECT id {_UNANSWERED} ORDER BY number LIMIT {_SHOWN}")
        first = ", ".join(repr(row[0]) for row in rows.fetchall())
        more = ", ..." if unanswered > _SHOWN else ""
        raise OfferError(
            f"offers are unanswered: {unanswered} ({first}{more}); accept or decline them, or "
            "close with lapse=True, which counts them as declined"
        )
    when = now()
    connection.execute(
        f"INSERT INTO answers SELECT number, 'declined', ? {_UNANSWERED} ORDER BY number", (when,)
    )
    connection.execute("INSERT INTO endings VALUES (1, ?)", (when,))


def released_text(connection: sqlite3.Connection) -> str | None:
    """Return the release, if there is one."""
    rows = connection.execute("SELECT release FROM releases").fetchall()
    return str(rows[0][0]) if rows else None


def policy_json(policy: OnlinePolicy | AdaptivePolicy) -> str:
    """Write a policy as JSON text."""
    return json.dumps(policy.to_dict(), allow_nan=False)


def stored_policy(text: str, path: Path, from_dict: Callable[[Any], Policy]) -> Policy:
    """Read a policy from JSON text; a database without a seal may be damaged."""
    try:
        return from_dict(json.loads(text))
    except (ConvexMarketError, ValueError):
        raise damaged(path, "(a policy in it cannot be read)") from None
