"""Databases of earlier versions, and the ledger within that of an online market.

A seller who accepts an offer has sold: a trigger writes the sale in the transaction of the answer.
A market of version 1 had no ledger; its tables come in one transaction, with the sales that its
answers stand for. Its model, if there is one, is charged with all that was bought for it. Databases
of version 2 had no seals; they are sealed as they are.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from convexmarket.ledger.names import MODEL
from convexmarket.ledger.seals import lay_seals
from convexmarket.ledger.tables import VERSION, lay_ledger, mark, pragma

__all__ = ["add_ledger", "up_to_date", "upgrade"]

_ACCEPTED = (
    "FROM answers AS a JOIN quotes AS q ON q.number = a.number "
    "WHERE a.answer = 'accepted' ORDER BY q.number"
)
_SALES = (
    "INSERT INTO sales SELECT row_number() OVER (ORDER BY q.number), q.id, q.epsilon, q.payment, "
    f"NULL, NULL, a.time {_ACCEPTED}"
)
#: What is stored where a market was closed without a model.
_NOTHING = '{"model": null}'
_RELEASE = (
    "INSERT INTO ledger_releases SELECT 1, ?, 'the model of the market', 'all that was sold', 0.0, "
    "'[]', time FROM releases WHERE release <> ?"
)
_CHARGES = f"INSERT INTO charges SELECT r.number, q.id, q.epsilon {_ACCEPTED}".replace(
    "FROM answers", "FROM ledger_releases AS r JOIN answers"
)
_TRIGGERS = (
    "CREATE TRIGGER answers_are_sales AFTER INSERT ON answers WHEN NEW.answer = 'accepted' "
    "BEGIN INSERT INTO sales SELECT 1 + coalesce((SELECT max(number) FROM sales), 0), q.id, "
    "q.epsilon, q.payment, NULL, NULL, NEW.time FROM quotes AS q WHERE q.number = NEW.number; END",
    "CREATE TRIGGER releases_are_charged BEFORE INSERT ON releases "
    "WHEN EXISTS (SELECT 1 FROM endings) AND NOT EXISTS (SELECT 1 FROM releases) "
    f"AND NOT EXISTS (SELECT 1 FROM ledger_releases WHERE name = '{MODEL}') "
    "BEGIN SELECT RAISE(ABORT, 'the release is not charged'); END",
)


def add_ledger(connection: sqlite3.Connection) -> None:
    """Add a ledger to the tables of a market of version 1."""
    when = connection.execute("SELECT time FROM markets").fetchall()[0][0]
    lay_ledger(connection, "basic", 0.0, when)
    for statement in (_SALES, *_TRIGGERS):
        connection.execute(statement)
    connection.execute(_RELEASE, (MODEL, _NOTHING))
    connection.execute(_CHARGES)


def upgrade(connection: sqlite3.Connection) -> bool:
    """Bring a database up to date, in the transaction that is open; say whether it was not."""
    version = pragma(connection, "user_version")
    if version == VERSION:
        return False
    if version == 1:
        add_ledger(connection)
    lay_seals(connection)
    mark(connection)
    return True


@contextlib.contextmanager
def up_to_date(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """Return what a database would be if it were brought up to date; it stays as it is."""
    if pragma(connection, "user_version") != 1:
        yield connection
        return
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as copy:
        connection.backup(copy)
        upgrade(copy)
        yield copy
