"""A market that runs for real: sellers are quoted as they come, and nothing is forgotten.

A seller who was quoted gets the same terms again, one who accepted stays accepted, and the model
is released once, whatever happens to the processes. A seller who accepts has sold, which its
ledger writes down in the same instant. :mod:`convexmarket.ledger.store` says what is promised and
how it is kept.
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
from convexmarket.ledger.store import back_up, now
from convexmarket.online.adaptive import AdaptivePolicy, policy_from_dict
from convexmarket.online.closing import all_that_was_sold, attempt, charge_model
from convexmarket.online.offers import OFFERS, Offer, checked_sensitivity, frame_of
from convexmarket.online.policy import OnlinePolicy
from convexmarket.online.steps import (
    Quoting,
    answer_offer,
    end_quoting,
    known_offer,
    policy_json,
    released_text,
    stored_policy,
)
from convexmarket.online.store import create_market, market_store
from convexmarket.privacy import Guarantee

__all__ = ["MarketPlan", "OnlineMarket"]


class MarketPlan(NamedTuple):
    """By which policy the sellers after the first so many were quoted.

    Attributes
    ----------
    number : int
        From 1.
    after : int
        Number of sellers quoted before.
    policy : OnlinePolicy
    """

    number: int
    after: int
    policy: OnlinePolicy


class OnlineMarket:
    """An existing market in a folder; several processes may use it at once.

    Parameters
    ----------
    folder : path
        Where :meth:`create` made it.

    Attributes
    ----------
    folder : pathlib.Path
    policy : OnlinePolicy or AdaptivePolicy
    problem : str
        Text of the problem file, as it was given.

    Raises
    ------
    DataError
        Here and in every method: if there is no market in the folder, its database is damaged or
        of a newer version, may not be written, has no room, or is in use for too long.

    Notes
    -----
    Every method is one transaction. Once it has returned, what it says survives the end of the
    process at any instant; see :mod:`convexmarket.ledger.store`. A market may be used from several
    threads, and in a forked child, which opens a connection of its own. It can be used as a
    context manager, which closes the connection at the end.

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
        self._store = market_store(self.folder / MARKET_FILE)
        with self._store.reading() as connection:
            row = connection.execute("SELECT expected, problem, policy FROM markets").fetchall()[0]
        self._expected, self.problem = int(row[0]), str(row[1])
        self.policy = stored_policy(row[2], self._store.path, policy_from_dict)
        self._quoting = Quoting(self.policy, self._expected, self._store.path)

    @classmethod
    def create(
        cls, folder: str | Path, policy: OnlinePolicy | AdaptivePolicy, problem: str = ""
    ) -> Self:
        """Make a market in a folder that has none.

        Parameters
        ----------
        folder : path
            Made if it does not exist; on a disk of this computer.
        policy : OnlinePolicy or AdaptivePolicy
        problem : str, optional
            Text to be kept with it, such as that of a problem file.

        Raises
        ------
        DataError
            If there is a market already, or none can be written.
        ParameterError
            If an argument is of another kind.
        """
        policies = (OnlinePolicy, AdaptivePolicy)
        check_instance("policy", policy, policies, "an OnlinePolicy or an AdaptivePolicy")
        check_instance("problem", problem, str, "the text of a problem file")
        create_market(
            Path(folder) / MARKET_FILE,
            policy.expected_sellers,
            problem,
            policy_json(policy),
            policy_json(policy.opening),
        )
        return cls(folder)

    # ------------------------------------------------------------------ quotes and answers

    def quote(self, id: str, sensitivity: float) -> Offer:
        """Return the offer of a seller: a new one, or the one it already has.

        Parameters
        ----------
        id : str
            Who it is; up to 200 characters, compared in Unicode's form NFC.
        sensitivity : float
            What it reports, in the support of the prior.

        Raises
        ------
        OfferError
            If the seller was quoted at another report.
        MarketClosedError
            If the seller is new, and as many as expected came or the market was closed.
        PriorError
            If the report is outside the support of the prior.
        ParameterError
            If the id or the report cannot be one.
        """
        id, sensitivity = checked_id(id), checked_sensitivity(sensitivity)
        with self._quoting_step() as connection:
            return self._quoting.quote(connection, id, sensitivity)

    def quote_many(self, reports: Iterable[tuple[str, float]], batch: int = 100) -> Iterator[Offer]:
        """Quote a stream of sellers, several in one step, in their order.

        Parameters
        ----------
        reports : iterable of (id, sensitivity)
        batch : int, default 100
            How many sellers to wait for before they are quoted together.

        Yields
        ------
        Offer
            Only once it is stored. An error, as of :meth:`quote`, is raised after the offers of
            all sellers before the one that it is about.

        Raises
        ------
        ParameterError
            If batch is not a whole number >= 1.
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
        """Take down that a seller accepts its offer; again, if it was taken down before.

        Raises
        ------
        OfferError
            If the seller was not quoted, nothing was bought from it, or it declined.
        """
        return self.answer([id], "accepted")[0]

    def decline(self, id: str) -> Offer:
        """Take down that a seller declines its offer; again, if it was taken down before.

        Raises
        ------
        OfferError
            If the seller was not quoted, nothing was bought from it, or it accepted.
        """
        return self.answer([id], "declined")[0]

    def answer(self, ids: Iterable[str], answer: Literal["accepted", "declined"]) -> list[Offer]:
        """Take down the same answer of several sellers in one step: all of them, or none.

        Parameters
        ----------
        ids : iterable of str
        answer : {"accepted", "declined"}

        Raises
        ------
        OfferError
            As of :meth:`accept` and :meth:`decline`, for one of the sellers.
        ParameterError
            If the answer is neither, or an id cannot be one.
        """
        if answer not in ("accepted", "declined"):
            raise ParameterError(f"answer must be 'accepted' or 'declined', got {answer!r}")
        checked = forms_of(list(ids))
        with self._store.writing() as connection:
            return [answer_offer(connection, id, answer) for id in checked]

    def offer(self, id: str) -> Offer:
        """Return the offer of a seller who was quoted.

        Raises
        ------
        OfferError
            If it was not.
        """
        id = checked_id(id)
        with self._store.reading() as connection:
            return known_offer(connection, id)

    # ------------------------------------------------------------------ what there is

    def offers(self) -> pd.DataFrame:
        """Return all offers in the order of arrival.

        Returns
        -------
        DataFrame
            Columns id, number, sensitivity, epsilon, payment, status, and plan, the number of the
            plan that the seller was quoted by.
        """
        with self._store.reading() as connection:
            return frame_of(connection.execute(f"{OFFERS} ORDER BY q.number").fetchall())

    def plans(self) -> list[MarketPlan]:
        """Return the plans that were made so far, the first one included."""
        with self._store.reading() as connection:
            rows = connection.execute("SELECT number, after, policy FROM plans ORDER BY number")
            return [
                MarketPlan(
                    number, after, stored_policy(text, self._store.path, OnlinePolicy.from_dict)
                )
                for number, after, text in rows
            ]

    def counts(self) -> dict[str, int]:
        """Return how many sellers were quoted, and what became of their offers.

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
            answers = dict(rows.fetchall())
        accepted, declined = answers.get("accepted", 0), answers.get("declined", 0)
        return {
            "quoted": quoted,
            "offered": bought - accepted - declined,
            "accepted": accepted,
            "declined": declined,
            "nothing bought": quoted - bought,
            "expected": self._expected,
        }

    @property
    def is_closed(self) -> bool:
        """Whether no more sellers are quoted because :meth:`close` was called."""
        with self._store.reading() as connection:
            return bool(connection.execute("SELECT count(*) FROM endings").fetchall()[0][0])

    @property
    def released(self) -> str | None:
        """What :meth:`close` returned, or nothing before."""
        with self._store.reading() as connection:
            return released_text(connection)

    # ------------------------------------------------------------------ the end

    def close(
        self,
        release: Callable[[pd.DataFrame], str],
        lapse: bool = False,
        guarantee: Callable[[pd.DataFrame], Guarantee] = all_that_was_sold,
    ) -> str:
        """End the market, and release what is made of the guarantees that were sold: once.

        Parameters
        ----------
        release : callable
            From the accepted offers, as of :meth:`offers`, to JSON text, such as the weights of a
            private model. It may raise a DataError, ParameterError or ProblemFileError only as long
            as it has drawn no noise.
        lapse : bool, default False
            Whether offers that are unanswered count as declined.
        guarantee : callable, optional
            From the accepted offers to what the release will guarantee each of their rows, worked
            out without looking at any row. It must not use the market. By default everything that
            was sold counts as used.

        Returns
        -------
        str
            What was released: the result of ``release``, or the stored one, without calling it,
            if there is one.

        Raises
        ------
        OfferError
            If offers are unanswered, unless ``lapse`` is set.
        BudgetExceededError
            If a seller sold less than the guarantee, or other releases used too much of it. The
            market stays as it was.
        ParameterError
            If ``release`` returns anything but JSON text.
        DataError
            Also if another process is closing the market and takes too long.

        Notes
        -----
        First all that is stored is checked, quoting ends and the guarantee is charged, in one step;
        nothing can change from then on. Then ``release`` is called, by one process at a time, and
        its result is stored. If it fails or is killed nothing was released, what was charged stays
        charged, the market takes no more sellers, and it can be closed again.

        After a kill, an interrupt (Ctrl-C), or an error that refuses the input before noise is
        drawn (a file of rows that is missing, say), that is charged only as far as it guarantees
        less than the attempts before, because one result at most is ever stored. After any other
        error, or a result that is no JSON text, it is charged in full, because such a failure may
        depend on the rows: who drew again for free would choose among noises by it. Where the
        sellers have no more to spend, a market that failed so ends without a model.
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
        """What was sold to the market, and what of it is spent; in the same database."""
        return Ledger(self._store)

    def backup(self, path: str | Path, *, force: bool = False) -> None:
        """Copy the market as it is at this instant into a file, while others may use it.

        Put in place of ``market.sqlite`` the copy is the market again, which knows nothing of what
        came after it: see "Backups" in docs/ledger.md before that is done.

        Parameters
        ----------
        path : path
        force : bool, default False
            Whether an existing file may be replaced, once the copy is complete, checked and on
            disk.

        Raises
        ------
        DataError
            Also if the file exists without ``force``, is the market itself, or cannot be written.
        ParameterError
            If it is no path.
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
