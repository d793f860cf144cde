"""An online market whose quotes, answers and release are stored in a database.

The ledger of the market records each acceptance as a sale in the same transaction.
:mod:`convexmarket.ledger.store` describes the guarantees of the database.
"""

from __future__ import annotations

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, TypeAlias, get_args

import numpy as np
import pandas as pd

from convexmarket.checks import (
    check_choice,
    check_count,
    check_instance,
    check_nonnegative,
    checked_id,
    forms_of,
)
from convexmarket.errors import ConvexMarketError, MarketClosedError, OfferError
from convexmarket.io import MARKET_FILE
from convexmarket.ledger import Ledger
from convexmarket.ledger.book import lay_ledger
from convexmarket.ledger.seals import check_whole, damaged
from convexmarket.ledger.store import Kind, Store, back_up, create_database, now
from convexmarket.online.closing import all_that_was_sold, attempt, charge_model
from convexmarket.online.policy import AdaptivePolicy, OnlinePolicy, policy_from_dict
from convexmarket.privacy import Guarantee

Answer: TypeAlias = Literal["accepted", "declined"]
Status: TypeAlias = Literal["offered", "accepted", "declined", "nothing bought"]

#: Largest number of ids of unanswered offers that an error message lists.
_SHOWN = 5
_HEAD = (
    "SELECT coalesce((SELECT max(number) FROM quotes), 0), (SELECT max(number) FROM plans), "
    "EXISTS (SELECT 1 FROM endings)"
)
_UNANSWERED = "FROM quotes WHERE epsilon > 0 AND number NOT IN (SELECT number FROM answers)"
_OFFERS = (
    "SELECT q.id, q.number, q.sensitivity, q.epsilon, q.payment, "
    "CASE WHEN q.epsilon = 0 THEN 'nothing bought' ELSE coalesce(a.answer, 'offered') END "
    "AS status, q.plan "
    "FROM quotes AS q LEFT JOIN answers AS a ON a.number = q.number "
)
_COLUMNS = ["id", "number", "sensitivity", "epsilon", "payment", "status", "plan"]
_TYPES = {"number": int, "sensitivity": float, "epsilon": float, "payment": float, "plan": int}

#: Description of market databases for :class:`convexmarket.ledger.store.Store`.
_MARKET = Kind("market", "convexmarket online open, or OnlineMarket.create in Python", "markets")

_TABLES = (
    """CREATE TABLE markets (  -- one row
    number INTEGER PRIMARY KEY CHECK (number = 1),
    expected INTEGER NOT NULL CHECK (expected >= 1),
    problem TEXT NOT NULL,
    policy TEXT NOT NULL,
    time TEXT NOT NULL
)""",
    """CREATE TABLE plans (  -- each quotes the sellers after the first ``after`` sellers
    number INTEGER PRIMARY KEY,
    after INTEGER NOT NULL UNIQUE,
    policy TEXT NOT NULL,
    time TEXT NOT NULL
)""",
    """CREATE TABLE quotes (  -- in the order of arrival
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    sensitivity REAL NOT NULL CHECK (typeof(sensitivity) = 'real' AND sensitivity >= 0),
    epsilon REAL NOT NULL CHECK (typeof(epsilon) = 'real' AND epsilon >= 0 AND epsilon < 9e999),
    payment REAL NOT NULL CHECK (typeof(payment) = 'real' AND payment >= 0 AND payment < 9e999),
    plan INTEGER NOT NULL REFERENCES plans (number),
    time TEXT NOT NULL
)""",
    """CREATE TABLE answers (
    number INTEGER PRIMARY KEY REFERENCES quotes (number),
    answer TEXT NOT NULL CHECK (answer IN ('accepted', 'declined')),
    time TEXT NOT NULL
)""",
    """CREATE TABLE endings (  -- one row after the end of quoting
    number INTEGER PRIMARY KEY CHECK (number = 1),
    time TEXT NOT NULL
)""",
    """CREATE TABLE releases (  -- one row after the release
    number INTEGER PRIMARY KEY CHECK (number = 1),
    release TEXT NOT NULL,
    time TEXT NOT NULL
)""",
)

#: Trigger that records each acceptance as a sale in the transaction of the answer.
_ANSWERS_ARE_SALES = """CREATE TRIGGER answers_are_sales AFTER INSERT ON answers
WHEN NEW.answer = 'accepted' BEGIN
    INSERT INTO sales SELECT 1 + coalesce((SELECT max(number) FROM sales), 0), q.id, q.epsilon,
        q.payment, NULL, NULL, NEW.time FROM quotes AS q WHERE q.number = NEW.number;
END"""


@dataclass(frozen=True)
class Offer:
    """An offer to buy ``epsilon`` from a seller for a ``payment`` (A, Eq. 8).

    ``number`` counts arrivals from 1. The status is "nothing bought" if epsilon is 0.

    Examples
    --------
    >>> from convexmarket.online import Offer
    >>> offer = Offer('Ann', 1, sensitivity=0.2, epsilon=0.5, payment=0.3, status='offered')
    >>> offer.payment >= offer.sensitivity * offer.epsilon
    True
    """

    id: str
    number: int
    sensitivity: float
    epsilon: float
    payment: float
    status: Status


class MarketPlan(NamedTuple):
    """Policy for the sellers who follow the first ``after`` sellers. Plan numbers start at 1."""

    number: int
    after: int
    policy: OnlinePolicy


class OnlineMarket:
    """An existing market in a folder that several processes can use concurrently.

    Parameters
    ----------
    folder : path
        Folder created by :meth:`create`.

    Attributes
    ----------
    folder : pathlib.Path
    policy : OnlinePolicy or AdaptivePolicy
    problem : str
        Text of the problem file.

    Notes
    -----
    Methods write in transactions. Committed transactions persist if the process crashes. A
    DataError is raised if the folder contains no market, or if its database is damaged, read-only,
    full, too new, or locked for too long. Ids are compared in the Unicode form NFC. Threads and
    forked processes can share a market object. A ``with`` statement closes the connection.

    Examples
    --------
    >>> import tempfile
    >>> import convexmarket as cm
    >>> policy = cm.OnlinePolicy(cm.Uniform(1, 5), 100, mu=1, sigma=1, gamma=1)
    >>> folder = tempfile.TemporaryDirectory()
    >>> with cm.OnlineMarket.create(folder.name, policy) as market:
    ...     offer = market.quote("s17", 1.1)
    ...     again = market.quote("s17", 1.1)
    ...     answer = market.accept("s17")
    >>> offer.number, offer.status, offer == again, answer.status
    (1, 'offered', True, 'accepted')
    >>> folder.cleanup()
    """

    folder: Path
    policy: OnlinePolicy | AdaptivePolicy
    problem: str

    def __init__(self, folder: str | Path) -> None:
        check_instance("folder", folder, (str, Path), "the path of a market's folder")
        self.folder = Path(folder)
        self._store = Store(self.folder / MARKET_FILE, _MARKET)
        with self._store.reading() as connection:
            row = _first(connection, "SELECT expected, problem, policy FROM markets")
        self._expected, self.problem, policy = row
        self.policy = self._stored(policy)

    @classmethod
    def create(
        cls, folder: str | Path, policy: OnlinePolicy | AdaptivePolicy, problem: str = ""
    ) -> Self:
        """Create a market in a folder on a local disk. The folder must not contain a market.

        Parameters
        ----------
        folder : path
            The folder, created if it does not exist.
        policy : OnlinePolicy or AdaptivePolicy
        problem : str, optional
            Text of the problem file, stored with the market.
        """
        policies = (OnlinePolicy, AdaptivePolicy)
        check_instance("policy", policy, policies, "an OnlinePolicy or an AdaptivePolicy")
        check_instance("problem", problem, str, "the text of a problem file")

        def lay(connection: sqlite3.Connection) -> None:
            for statement in _TABLES:
                connection.execute(statement)
            row = policy.expected_sellers, problem, _json(policy), now()
            connection.execute("INSERT INTO markets VALUES (1, ?, ?, ?, ?)", row)
            opening = _json(policy.opening)
            connection.execute("INSERT INTO plans VALUES (1, 0, ?, ?)", (opening, now()))
            lay_ledger(connection, "basic", 0.0)
            connection.execute(_ANSWERS_ARE_SALES)

        create_database(Path(folder) / MARKET_FILE, _MARKET, lay)
        return cls(folder)

    def _stored(self, text: str) -> Any:
        """Read a policy from JSON text, or raise the error for a damaged database."""
        try:
            return _policy_of(text)
        except (ConvexMarketError, ValueError):
            raise damaged(self._store.path, "(a policy in it cannot be read)") from None

    def quote(self, id: str, sensitivity: float) -> Offer:
        """Compute and store the offer to a new seller, or return the stored offer.

        An OfferError is raised if the report has changed, and a PriorError if it is outside the
        support. After quoting has ended, a MarketClosedError is raised for a new seller.

        Parameters
        ----------
        id : str
        sensitivity : float
            Reported cost per unit of privacy lost.
        """
        return next(self.quote_many([(id, sensitivity)]))

    def quote_many(self, reports: Iterable[tuple[str, float]], batch: int = 100) -> Iterator[Offer]:
        """Quote sellers in the given order, with ``batch`` sellers per transaction.

        Parameters
        ----------
        reports : iterable of (id, sensitivity)
        batch : int, default 100

        Yields
        ------
        Offer
            The offer to each seller. If :meth:`quote` raises an error for a seller, the offers to
            all earlier sellers are yielded first.
        """
        check_count("batch", batch)
        remaining = iter(reports)
        while together := list(itertools.islice(remaining, batch)):
            offers: list[Offer] = []
            fault: ConvexMarketError | None = None
            with self._store.writing() as connection:
                for id, sensitivity in together:
                    try:
                        offers.append(self._quote(connection, id, sensitivity))
                    except ConvexMarketError as error:  # the seller was not stored
                        fault = error
                        break
            yield from offers
            if fault is not None:
                raise fault

    def _quote(self, connection: sqlite3.Connection, id: str, sensitivity: float) -> Offer:
        """Return the stored offer of a seller, or store and return a new offer."""
        id = checked_id(id)
        sensitivity = check_nonnegative("sensitivity", sensitivity) + 0.0  # -0.0 becomes 0.0
        if (stored := _offer_to(connection, id)) is not None:
            if stored.sensitivity != sensitivity:
                raise OfferError(
                    f"seller {id!r} was quoted at the sensitivity {stored.sensitivity!r}, and now "
                    f"reports {sensitivity!r}; each seller is quoted once; use the first report"
                )
            return stored
        quoted, plan, ended = _first(connection, _HEAD)
        if ended:
            raise MarketClosedError(
                f"seller {id!r} arrives too late: the market was closed after {quoted} sellers; "
                "create a new market for more sellers"
            )
        if quoted >= self._expected:
            raise MarketClosedError(
                f"seller {id!r} is number {quoted + 1}, but the market ends after the "
                f"{self._expected} expected sellers; create a new market for more sellers"
            )
        if quoted in self.policy.stages:
            self.policy.opening.quote(sensitivity)  # check the report before storing a plan
            plan = self._replan(connection, quoted, plan + 1)
        (policy,) = _first(connection, "SELECT policy FROM plans WHERE number = ?", plan)
        epsilon, payment = self._stored(policy).quote(sensitivity)
        row = quoted + 1, id, sensitivity, epsilon, payment, plan, now()
        connection.execute("INSERT INTO quotes VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        status: Status = "offered" if epsilon > 0 else "nothing bought"
        return Offer(id, quoted + 1, sensitivity, epsilon, payment, status)

    def _replan(self, connection: sqlite3.Connection, quoted: int, number: int) -> int:
        """Compute and store a new plan after ``quoted`` sellers, and return its number."""
        rows = connection.execute(
            "SELECT q.sensitivity, iif(a.answer IS 'declined', 0.0, q.epsilon) FROM quotes AS q "
            "LEFT JOIN answers AS a ON a.number = q.number ORDER BY q.number"
        ).fetchall()
        policy = self.policy.replanned(*np.array(rows, dtype=float).T.copy())
        row = number, quoted, _json(policy), now()
        connection.execute("INSERT INTO plans VALUES (?, ?, ?, ?)", row)
        return number

    def accept(self, id: str) -> Offer:
        """Record that a seller accepts its offer; see :meth:`answer`.

        Parameters
        ----------
        id : str
        """
        return self.answer([id], "accepted")[0]

    def decline(self, id: str) -> Offer:
        """Record that a seller declines its offer; see :meth:`answer`.

        Parameters
        ----------
        id : str
        """
        return self.answer([id], "declined")[0]

    def answer(self, ids: Iterable[str], answer: Answer) -> list[Offer]:
        """Record the same answer for several sellers in one transaction.

        Repeating an answer has no effect. If a seller has no offer, or gave the opposite answer, an
        OfferError is raised and no answer is recorded.

        Parameters
        ----------
        ids : sequence of str
        answer : {"accepted", "declined"}

        Raises
        ------
        ParameterError
            If the answer is neither "accepted" nor "declined".
        """
        check_choice("answer", answer, Answer)
        checked = forms_of(list(ids))
        with self._store.writing() as connection:
            return [self._answer(connection, id, answer) for id in checked]

    def _answer(self, connection: sqlite3.Connection, id: str, answer: Answer) -> Offer:
        offer = _offer_to(connection, id)
        if offer is None:
            raise OfferError(f"seller {id!r} was never quoted; check the id, or quote the seller")
        if offer.status == answer:
            return offer
        if offer.status == "nothing bought":
            raise OfferError(
                f"nothing is bought from seller {id!r} at the sensitivity {offer.sensitivity!r}, "
                f"so no offer can be {answer}; omit this seller"
            )
        if offer.status != "offered":
            raise OfferError(
                f"seller {id!r} has {offer.status} its offer, so it cannot be {answer}; the first "
                "answer is final"
            )
        connection.execute("INSERT INTO answers VALUES (?, ?, ?)", (offer.number, answer, now()))
        return replace(offer, status=answer)

    def offers(self) -> pd.DataFrame:
        """Return a table of all offers in the order of arrival."""
        with self._store.reading() as connection:
            return _frame_of(connection)

    def plans(self) -> list[MarketPlan]:
        """Return all plans that the market has used."""
        with self._store.reading() as connection:
            rows = connection.execute("SELECT number, after, policy FROM plans ORDER BY number")
            return [MarketPlan(number, after, self._stored(text)) for number, after, text in rows]

    def counts(self) -> dict[str, int]:
        """Count the sellers by the status of their offers, and the quoted and expected sellers."""
        with self._store.reading() as connection:
            rows = connection.execute(f"SELECT status, count(*) FROM ({_OFFERS}) GROUP BY status")
            counts = dict.fromkeys(get_args(Status), 0) | dict(rows.fetchall())
        return {"quoted": sum(counts.values()), **counts, "expected": self._expected}

    @property
    def is_closed(self) -> bool:
        """Whether :meth:`close` has ended the quoting of new sellers."""
        with self._store.reading() as connection:
            return bool(_first(connection, _HEAD)[2])

    @property
    def released(self) -> str | None:
        """The result of :meth:`close`, or None if no result is stored."""
        with self._store.reading() as connection:
            return _released(connection)

    def close(
        self,
        release: Callable[[pd.DataFrame], str],
        lapse: bool = False,
        guarantee: Callable[[pd.DataFrame], Guarantee] = all_that_was_sold,
    ) -> str:
        """Close the market, and release one result under the guarantees that were sold.

        Parameters
        ----------
        release : callable
            Function from the table of accepted offers to JSON text, such as a private model. It may
            raise DataError, ParameterError or ProblemFileError only before it draws noise.
        lapse : bool, default False
            Whether unanswered offers count as declined. If False, an OfferError is raised for them.
        guarantee : callable, optional
            Function that computes the guarantee of the result for each accepted offer without
            reading rows. The default is the guarantee sold. If the guarantee exceeds the unspent
            epsilon of a seller, a BudgetExceededError is raised, and the market remains open.

        Returns
        -------
        str
            The result of ``release``, or the stored result of an earlier call.

        Notes
        -----
        One transaction checks the stored rows, ends quoting and charges the guarantee. Then one
        process at a time calls ``release`` and stores the result. If ``release`` fails, the charge
        remains, and this method can be called again. If an attempt is killed, is interrupted, or
        rejects its input before noise is drawn, the next attempt is charged only for the epsilon
        that exceeds the earlier charges. After any other error, including a result that is not JSON
        text, the next attempt is charged in full.
        """
        if (stored := self.released) is not None:
            return stored
        with self._store.alone():
            with self._store.writing() as connection:
                stored = _released(connection)
                if stored is None:
                    check_whole(connection, self._store.path)
                    _end_quoting(connection, lapse)
                    accepted = _frame_of(connection, "WHERE a.answer = 'accepted' ")
                    charge_model(connection, accepted, guarantee(accepted))
            if stored is not None:
                return stored
            result = attempt(self._store, release, accepted)
            with self._store.writing() as connection:
                connection.execute("INSERT INTO releases VALUES (1, ?, ?)", (result, now()))
        return result

    @property
    def ledger(self) -> Ledger:
        """The ledger of sales and spending, stored in the database of the market."""
        return Ledger(self._store)

    def backup(self, path: str | Path, *, force: bool = False) -> None:
        """Copy the market, which can be in use, to a file. To restore the copy, see docs/ledger.md.

        Parameters
        ----------
        path : path
        force : bool, default False
            Whether to replace an existing file when the copy is complete and checked.
        """
        back_up(self._store, path, force=force)

    def disconnect(self) -> None:
        """Close the connection to the database. The next method call opens a new connection."""
        self._store.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        return f"OnlineMarket({str(self.folder)!r}, {self._expected} sellers expected)"


def _first(connection: sqlite3.Connection, query: str, *values: object) -> Any:
    """Return the first row of a query, or None if there is no row."""
    rows = connection.execute(query, values).fetchall()
    return rows[0] if rows else None


def _offer_to(connection: sqlite3.Connection, id: str) -> Offer | None:
    row = _first(connection, f"{_OFFERS} WHERE q.id = ?", id)
    return Offer(*row[:-1]) if row else None


def _frame_of(connection: sqlite3.Connection, which: str = "") -> pd.DataFrame:
    """Return a table of offers in the order of arrival."""
    rows = connection.execute(f"{_OFFERS} {which}ORDER BY q.number").fetchall()
    return pd.DataFrame(rows, columns=_COLUMNS).astype(_TYPES)


def _end_quoting(connection: sqlite3.Connection, lapse: bool) -> None:
    """End quoting. Decline unanswered offers if ``lapse`` is True, and raise an error otherwise."""
    if _first(connection, _HEAD)[2]:
        return
    rows = connection.execute(f"SELECT number, id {_UNANSWERED} ORDER BY number").fetchall()
    if rows and not lapse:
        first = ", ".join(id for _, id in rows[:_SHOWN]) + ", ..." * (len(rows) > _SHOWN)
        raise OfferError(
            f"offers without an answer: {len(rows)} ({first}); record the answers, or close with "
            "--lapse (lapse=True in Python), which counts them as declined"
        )
    when = now()
    declined = [(number, "declined", when) for number, _ in rows]
    connection.executemany("INSERT INTO answers VALUES (?, ?, ?)", declined)
    connection.execute("INSERT INTO endings VALUES (1, ?)", (when,))


def _released(connection: sqlite3.Connection) -> str | None:
    row = _first(connection, "SELECT release FROM releases")
    return row[0] if row else None


@lru_cache(maxsize=8)
def _policy_of(text: str) -> OnlinePolicy | AdaptivePolicy:
    return policy_from_dict(json.loads(text))


def _json(policy: OnlinePolicy | AdaptivePolicy) -> str:
    return json.dumps(policy.to_dict(), allow_nan=False)
