"""An online market in a database: quotes, answers and one release, each stored once.

A seller who accepts has sold, which the ledger of the market records in the same transaction.
:mod:`convexmarket.ledger.store` describes what the database guarantees.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple, Self

import pandas as pd

from convexmarket.checks import check_count, check_instance, checked_id, forms_of
from convexmarket.errors import ConvexMarketError, ParameterError
from convexmarket.io import MARKET_FILE
from convexmarket.ledger import Ledger
from convexmarket.ledger.seals import check_whole
from convexmarket.ledger.store import Store, back_up, create_database, now
from convexmarket.online.adaptive import AdaptivePolicy, policy_from_dict
from convexmarket.online.closing import all_that_was_sold, attempt, charge_model
from convexmarket.online.policy import OnlinePolicy
from convexmarket.online.steps import (
    OFFERS,
    Offer,
    Quoting,
    answer_offer,
    checked_sensitivity,
    end_quoting,
    frame_of,
    known_offer,
    policy_json,
    released_text,
    stored_policy,
)
from convexmarket.online.tables import MARKET, lay_market
from convexmarket.privacy import Guarantee

__all__ = ["MarketPlan", "OnlineMarket"]


class MarketPlan(NamedTuple):
    """The policy of the sellers after the first ``after``; ``number`` counts from 1."""

    number: int
    after: int
    policy: OnlinePolicy


class OnlineMarket:
    """An existing market in a folder; several processes may use it at once.

    Parameters
    ----------
    folder : path
        The folder that :meth:`create` made.

    Attributes
    ----------
    folder : pathlib.Path
    policy : OnlinePolicy or AdaptivePolicy
    problem : str
        Text of the problem file.

    Notes
    -----
    Every method is one transaction, and its result survives the end of the process. Each may raise
    a DataError: without a market in the folder, and if the database is damaged, of a newer version,
    read-only, full, or locked for too long. Ids are compared in Unicode form NFC. Threads and
    forked children may share a market; as a context manager it closes its connection.

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
        self._store = Store(self.folder / MARKET_FILE, MARKET)
        with self._store.reading() as connection:
            row = connection.execute("SELECT expected, problem, policy FROM markets").fetchall()[0]
        self._expected, self.problem = int(row[0]), str(row[1])
        self.policy = stored_policy(row[2], self._store.path, policy_from_dict)
        self._quoting = Quoting(self.policy, self._expected, self._store.path)

    @classmethod
    def create(
        cls, folder: str | Path, policy: OnlinePolicy | AdaptivePolicy, problem: str = ""
    ) -> Self:
        """Create a market in a folder without one, which is made if it does not exist.

        The folder is on a disk of this computer; ``problem`` is a text to store with the market.
        """
        policies = (OnlinePolicy, AdaptivePolicy)
        check_instance("policy", policy, policies, "an OnlinePolicy or an AdaptivePolicy")
        check_instance("problem", problem, str, "the text of a problem file")
        numbers = policy.expected_sellers, problem, policy_json(policy), policy_json(policy.opening)
        create_database(
            Path(folder) / MARKET_FILE,
            MARKET,
            lambda connection: lay_market(connection, *numbers, now()),
        )
        return cls(folder)

    # ------------------------------------------------------------------ quotes and answers

    def quote(self, id: str, sensitivity: float) -> Offer:
        """Return the offer to a seller for its report: a new one, or the one it already has.

        A seller quoted at another report is an OfferError, a new one after the expected number or
        the end a MarketClosedError, and a report outside the support a PriorError.
        """
        id, sensitivity = checked_id(id), checked_sensitivity(sensitivity)
        with self._quoting_step() as connection:
            return self._quoting.quote(connection, id, sensitivity)

    def quote_many(self, reports: Iterable[tuple[str, float]], batch: int = 100) -> Iterator[Offer]:
        """Quote a stream of sellers in their order, ``batch`` of them in one transaction.

        Parameters
        ----------
        reports : iterable of (id, sensitivity)
        batch : int, default 100

        Yields
        ------
        Offer
            After it is stored. An error, as of :meth:`quote`, is raised after the offers of all
            sellers before.
        """
        check_count("batch", batch)
        return self._quote_in_batches(iter(reports), batch)

    def _quote_in_batches(
        self, reports: Iterator[tuple[str, float]], batch: int
    ) -> Iterator[Offer]:
        while together := list(itertools.islice(reports, batch)):
            offers: list[Offer] = []
            wrong: ConvexMarketError | None = None
            with self._quoting_step() as connection:
                for id, sensitivity in together:
                    try:
                        checked = checked_id(id), checked_sensitivity(sensitivity)
                        offers.append(self._quoting.quote(connection, *checked))
                    except ConvexMarketError as error:  # raised before anything was stored of it
                        wrong = error
                        break
            yield from offers
            if wrong is not None:
                raise wrong

    @contextlib.contextmanager
    def _quoting_step(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._store.writing() as connection:
                yield connection
        except BaseException:
            self._quoting.forget()
            raise

    def accept(self, id: str) -> Offer:
        """Record that a seller accepts its offer; see :meth:`answer`."""
        return self.answer([id], "accepted")[0]

    def decline(self, id: str) -> Offer:
        """Record that a seller declines its offer; see :meth:`answer`."""
        return self.answer([id], "declined")[0]

    def answer(self, ids: Iterable[str], answer: Literal["accepted", "declined"]) -> list[Offer]:
        """Record the same answer of several sellers: of all, or of none.

        An answer may be repeated. A seller without a quote, without an offer to buy, or with the
        opposite answer is an OfferError.

        Raises
        ------
        ParameterError
            If the answer is neither "accepted" nor "declined".
        """
        if answer not in ("accepted", "declined"):
            raise ParameterError(f"answer must be 'accepted' or 'declined', got {answer!r}")
        checked = forms_of(list(ids))
        with self._store.writing() as connection:
            return [answer_offer(connection, id, answer) for id in checked]

    def offer(self, id: str) -> Offer:
        """Return the offer of a seller who was quoted; otherwise raise an OfferError."""
        id = checked_id(id)
        with self._store.reading() as connection:
            return known_offer(connection, id)

    # ------------------------------------------------------------------ contents

    def offers(self) -> pd.DataFrame:
        """Return all offers in the order of arrival.

        Returns
        -------
        DataFrame
            Columns id, number, sensitivity, epsilon, payment, status, and the number of the plan.
        """
        with self._store.reading() as connection:
            return frame_of(connection.execute(f"{OFFERS} ORDER BY q.number").fetchall())

    def plans(self) -> list[MarketPlan]:
        """Return the plans so far, including the first."""
        with self._store.reading() as connection:
            rows = connection.execute("SELECT number, after, policy FROM plans ORDER BY number")
            return [
                MarketPlan(
                    number, after, stored_policy(text, self._store.path, OnlinePolicy.from_dict)
                )
                for number, after, text in rows
            ]

    def counts(self) -> dict[str, int]:
        """Count the quoted sellers by the status of their offers.

        Returns
        -------
        dict
            Keys quoted, offered (unanswered), accepted, declined, nothing bought, expected.
        """
        with self._store.reading() as connection:
            quoted, bought = connection.execute(
                "SELECT count(*), coalesce(sum(epsilon > 0), 0) FROM quotes"
            ).fetchall()[0]
            rows = connection.execute("SELECT answer, count(*) FROM answers GROUP BY answer")
            answers = {"accepted": 0, "declined": 0} | dict(rows.fetchall())
        offered = bought - sum(answers.values())
        nothing = {"nothing bought": quoted - bought, "expected": self._expected}
        return {"quoted": quoted, "offered": offered, **answers, **nothing}

    @property
    def is_closed(self) -> bool:
        """Whether no more sellers are quoted because :meth:`close` was called."""
        with self._store.reading() as connection:
            return bool(connection.execute("SELECT count(*) FROM endings").fetchall()[0][0])

    @property
    def released(self) -> str | None:
        """The result of :meth:`close`; None before."""
        with self._store.reading() as connection:
            return released_text(connection)

    # ------------------------------------------------------------------ the end

    def close(
        self,
        release: Callable[[pd.DataFrame], str],
        lapse: bool = False,
        guarantee: Callable[[pd.DataFrame], Guarantee] = all_that_was_sold,
    ) -> str:
        """End the market, and release a result under the guarantees that were sold: once.

        Parameters
        ----------
        release : callable
            Returns JSON text, such as a private model, given the accepted offers as of
            :meth:`offers`. It may raise a DataError, ParameterError or ProblemFileError only as
            long as it has drawn no noise.
        lapse : bool, default False
            Whether unanswered offers count as declined; otherwise they are an OfferError.
        guarantee : callable, optional
            Returns the guarantee of the result for each accepted offer, without reading a row. By
            default everything sold counts as used. A seller who sold less, or spent too much of it
            elsewhere, is a BudgetExceededError, and the market stays open.

        Returns
        -------
        str
            The result of ``release``, or the stored one, without a call.

        Notes
        -----
        First one transaction checks the stored rows, ends quoting and charges the guarantee. Then
        one process at a time calls ``release``, and its result is stored. After a failure nothing
        is released, the charge stays, and the market can be closed again.

        After a kill, an interrupt, or an error that refuses the input before noise is drawn, the
        next attempt is charged as far as it guarantees less than those before, because at most one
        result is stored. After any other error, or a result that is not JSON text, it is charged in
        full: the failure may depend on the rows, and free repetitions would choose among noises.
        """
        stored = self.released
        if stored is not None:
            return stored
        with self._store.alone():
            with self._store.writing() as connection:
                stored = released_text(connection)
                if stored is None:
                    check_whole(connection, self._store.path)
                    end_quoting(connection, lapse)
                    rows = connection.execute(
                        f"{OFFERS} WHERE a.answer = 'accepted' ORDER BY q.number"
                    ).fetchall()
                    accepted = frame_of(rows)
                    charge_model(connection, accepted, guarantee(accepted))
            if stored is not None:
                return stored
            result = attempt(self._store, release, accepted)
            with self._store.writing() as connection:
                connection.execute("INSERT INTO releases VALUES (1, ?, ?)", (result, now()))
        return result

    @property
    def ledger(self) -> Ledger:
        """The ledger of sales to the market and of spending, in the same database."""
        return Ledger(self._store)

    def backup(self, path: str | Path, *, force: bool = False) -> None:
        """Copy the market into a file, while others may use it; docs/ledger.md explains restoring.

        With ``force`` an existing file is replaced, after the copy is complete, checked and on
        disk.
        """
        back_up(self._store, path, force=force)

    def disconnect(self) -> None:
        """Close the connection to the database; the next call of a method opens another."""
        self._store.disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        return f"OnlineMarket({str(self.folder)!r}, {self._expected} sellers expected)"
