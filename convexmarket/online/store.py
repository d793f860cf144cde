"""The database of an online market: its tables, and one durable step at a time.

What is promised. A step is one transaction. When it has returned, what it stored survives the end
of the process at any instant, SIGKILL included, and the loss of power as far as the disk keeps
what it was told to keep (fsync). When it has not returned it happened entirely or not at all; ask
again to learn which. Several processes may take steps at once; they happen one after another, in
the order of asking (:mod:`convexmarket.online.turns`). Rows are only added
(:mod:`convexmarket.online.tables`).

How. SQLite with a rollback journal that is kept and overwritten (``journal_mode=PERSIST``), synced
before and after every change of the database (``synchronous=EXTRA``). A write-ahead log would be
several times as fast, but in the versions of SQLite before 3.51.3, which most Pythons carry, two
connections that write and tidy the log in the same instant can damage the database; and where
journals are deleted instead of kept, a commit may be undone by a loss of power unless the folder
is synced too. A step that adds nothing, such as reading an offer again, syncs the journal before it
answers: another process may have been killed between its commit and its sync, and nobody is told
what could still be undone.

The folder must be on a disk of this computer: locks and syncs of network file systems are not
dependable. The database must not be copied, opened as a file or moved while a market is in use.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from convexmarket.errors import DataError
from convexmarket.online.tables import APPLICATION, VERSION, lay_tables
from convexmarket.online.turns import Turns

__all__ = ["Store", "create_database", "now"]

#: Seconds to wait for other processes.
PATIENCE = 60.0

#: Held during every step and while the process forks: a connection whose transaction is in the
#: hands of another thread must not reach a child, which would roll it back when it exits.
_STEP = threading.RLock()
#: Connections of a parent process. A child must not even close them.
_ABANDONED: list[sqlite3.Connection] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_STEP.acquire, after_in_parent=_STEP.release, after_in_child=_STEP.release
    )


def now() -> str:
    """Return the time, UTC, as ISO text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Store:
    """An existing database, and its connection of this process.

    Parameters
    ----------
    path : pathlib.Path

    Raises
    ------
    DataError
        If there is no database of ours, it is damaged, or its tables are of a newer version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._turns = Turns(path.with_name(f"{path.name}.turns"))
        _check_exists(path)
        with self.reading():
            pass

    def disconnect(self) -> None:
        """Close the connection; the next step opens another."""
        with _STEP:
            self._leave_parent()
            self._turns.close()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Take a step that adds nothing, and sees everything at one instant."""
        with self._step("BEGIN") as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Take a step of its own: no other process adds anything meanwhile."""
        with self._step("BEGIN IMMEDIATE") as connection:
            yield connection

    @contextlib.contextmanager
    def _step(self, begin: str) -> Iterator[sqlite3.Connection]:
        with _STEP:
            try:
                with self._turns.turn():
                    connection = self._connected()
                    before = connection.total_changes
                    try:
                        connection.execute(begin)
                        yield connection
                        connection.execute("COMMIT")
                    except BaseException:
                        if connection.in_transaction:
                            connection.execute("ROLLBACK")
                        raise
            except sqlite3.Error as error:
                raise _in_words(error, self.path) from error
            if connection.total_changes == before:
                _sync_journal(self.path)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the same block, for as long as it takes.

        The lock is that of another, empty database, so that it ends with the process that holds
        it and blocks no step of this one. Its file stays: others may wait for its lock.
        """
        beside = self.path.with_name(f"{self.path.name}.closing")
        try:
            lock = sqlite3.connect(beside, timeout=PATIENCE, isolation_level=None)
        except sqlite3.Error as error:
            raise _in_words(error, beside) from error
        try:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                if _name(error).startswith("SQLITE_BUSY"):
                    raise DataError(
                        f"the market in {self.path.parent} is being closed by another process; "
                        "wait until that is done, then close again to get its result"
                    ) from error
                raise _in_words(error, beside) from error
            yield
        finally:
            lock.close()

    def _leave_parent(self) -> None:
        """Forget a connection that was opened before this process was forked."""
        if self._process != os.getpid():
            if self._connection is not None:
                _ABANDONED.append(self._connection)
            self._connection, self._process = None, os.getpid()

    def _connected(self) -> sqlite3.Connection:
        self._leave_parent()
        if self._connection is None:
            self._connection = _connect(self.path)
        return self._connection


def create_database(path: Path, expected: int, problem: str, policy: str, plan: str) -> None:
    """Write a new database, complete from the instant that it can be seen.

    Parameters
    ----------
    path : pathlib.Path
        Its folder is made if there is none.
    expected : int
        Number of sellers after which the market is full.
    problem, policy, plan : str
        What is kept as it is; the last two are JSON.

    Raises
    ------
    DataError
        If there is such a file, or it cannot be written.
    """
    folder = path.parent
    _check_free(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-", suffix=".new")
        os.close(handle)
        try:
            _write(fresh, expected, problem, policy, plan)
            _sync(fresh)
            os.link(fresh, path)  # fails where the name is taken, which a renaming would not
            if os.name == "posix":
                _sync(folder)
                _sync(folder.parent)
        finally:
            os.unlink(fresh)
    except FileExistsError:
        _check_free(path)
        raise DataError(f"{folder} is a file; a market needs a folder of its own") from None
    except OSError as error:
        raise DataError(
            f"no market could be made in {folder} ({error}); choose a folder on a disk of this "
            "computer that may be written, has room, and knows hard links"
        ) from error
    except sqlite3.Error as error:
        raise _in_words(error, path) from error


def _write(path: str, expected: int, problem: str, policy: str, plan: str) -> None:
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = MEMORY")  # nobody sees the file yet
        connection.execute("BEGIN")
        lay_tables(connection)
        when = now()
        connection.execute(
            "INSERT INTO markets VALUES (1, ?, ?, ?, ?)", (expected, problem, policy, when)
        )
        connection.execute("INSERT INTO plans VALUES (1, 0, ?, ?)", (plan, when))
        connection.execute("COMMIT")


def _check_free(path: Path) -> None:
    """Refuse a folder with a market, or with the journal of one, which would be applied to ours."""
    leftovers = [path.with_name(path.name + end) for end in ("-journal", "-wal")]
    found = [str(leftover) for leftover in leftovers if leftover.exists()]
    if path.exists():
        raise DataError(
            f"there is a market in {path.parent} already; use OnlineMarket({str(path.parent)!r}) "
            "to go on with it, or choose another folder"
        )
    if found:
        raise DataError(
            f"{found[0]} belongs to a market whose {path.name} is gone; bring that back, or move "
            "this file away too, or choose another folder"
        )


def _check_exists(path: Path) -> None:
    if not path.exists():
        raise DataError(
            f"there is no market in {path.parent} (no file {path.name}); check the folder, or make "
            "one with OnlineMarket.create"
        )


def _connect(path: Path) -> sqlite3.Connection:
    _check_exists(path)
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        ours = _pragma(connection, "application_id") == APPLICATION
        version = _pragma(connection, "user_version")
        if not ours or not isinstance(version, int) or version < 1:
            raise DataError(
                f"{path} is an SQLite database, but not a market's; move it away, or choose the "
                "folder of a market"
            )
        if version > VERSION:
            raise DataError(
                f"{path} has tables of version {version}, and this convexmarket knows them up to "
                f"{VERSION}; install a newer one"
            )
        mode = _pragma(connection, "journal_mode = PERSIST")
        if mode != "persist":
            raise DataError(
                f"{path} has the journal mode {mode!r}, and it cannot be changed to 'persist'; "
                "end the other programs that use it, and try again"
            )
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the disk
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _pragma(connection: sqlite3.Connection, text: str) -> object:
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]


def _sync(path: str | Path) -> None:
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_journal(path: Path) -> None:
    """Make the last commit final, if the process that made it could not.

    Opening and closing the database itself by hand would drop SQLite's locks; the journal has none.
    """
    try:
        _sync(path.with_name(f"{path.name}-journal"))
    except (FileNotFoundError, PermissionError):
        pass  # nothing was ever written, or this process may only read
    except OSError as error:
        raise DataError(
            f"the disk of {path} does not confirm what was stored ({error}); nothing is lost yet: "
            "check the disk, then ask again"
        ) from error


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def _in_words(error: sqlite3.Error, path: Path) -> DataError:
    """Return what went wrong with the database, and what to do about it."""
    name = _name(error)
    kept = "what was stored before is kept, this step was not stored"
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        text = f"is in use by other processes for more than {PATIENCE:g} seconds; {kept}: try again"
    elif name.startswith("SQLITE_READONLY"):
        text = f"may not be written; {kept}: allow writing to the file and its folder, or copy both"
    elif name.startswith("SQLITE_FULL"):
        text = f"has no room left on its disk; {kept}: make room, then ask again"
    elif name.startswith("SQLITE_CANTOPEN"):
        text = f"or its journal cannot be opened; {kept}: check that both may be read and written"
    elif name.startswith("SQLITE_IOERR"):
        text = (
            "could not be read or written by the disk; what was stored before is kept: check the "
            "disk and its room, then ask again with the same id, which tells what was stored"
        )
    elif name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")):
        text = "is damaged or no SQLite database; bring back a backup, and leave this file alone"
    else:
        text = f"refused a step; {kept}: this should not happen, please report it"
    return DataError(f"{path} {text} ({error})")
