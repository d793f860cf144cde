"""A database that is shared: one durable step at a time.

What is promised. A step is one transaction. When it has returned, what it stored survives the end
of the process at any instant, SIGKILL included, and the loss of power as far as the disk keeps
what it was told to keep (fsync). When it has not returned it happened entirely or not at all; ask
again to learn which. Several processes may take steps at once; they happen one after another: each
waits for SQLite's lock for up to a minute. Rows are only added
(:mod:`convexmarket.ledger.tables`), and all that was written is checked when a database is opened,
when a market closes and when a backup is made (:mod:`convexmarket.ledger.seals`).

How. SQLite with a rollback journal that is kept and overwritten (``journal_mode=PERSIST``), synced
before and after every change of the database (``synchronous=EXTRA``). A write-ahead log would be
several times as fast, but in the versions of SQLite before 3.51.3, which most Pythons carry, two
connections that write and tidy the log in the same instant can damage the database; and where
journals are deleted instead of kept, a commit may be undone by a loss of power unless the folder
is synced too. A step that adds nothing, such as reading an offer again, syncs the journal before it
answers: another process may have been killed between its commit and its sync, and nobody is told
what could still be undone.

The folder must be on a disk of this computer: locks and syncs of network file systems are not
dependable. The database must not be copied, opened as a file or moved while it is in use
(:mod:`convexmarket.ledger.backups` copies it). Where its name is a symbolic link, the files beside
it lie beside what the link leads to.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from convexmarket.errors import DataError
from convexmarket.ledger.seals import Row, check_whole, damaged, seal, watch
from convexmarket.ledger.tables import APPLICATION, VERSION, pragma

__all__ = ["Kind", "Store", "connect", "in_words", "now", "sync"]

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


@dataclass(frozen=True)
class Kind:
    """What a database is to those who open it.

    Attributes
    ----------
    name : str
        "market", for example.
    table : str or None
        One that it must have; None where any database of ours will do.
    place : callable
        From the path to what users call it: its folder, or itself.
    command, in_python : str
        The command that makes one, and the class that does.
    """

    name: str
    table: str | None
    place: Callable[[Path], Path]
    command: str
    in_python: str


class Store:
    """An existing database, and its connection of this process.

    Parameters
    ----------
    path : pathlib.Path
    kind : Kind

    Raises
    ------
    DataError
        If there is no such database, it is damaged, or its tables are of a newer version.
    """

    def __init__(self, path: Path, kind: Kind) -> None:
        self.path, self.kind = path, kind
        self._file = Path(os.path.realpath(path))
        self._connection: sqlite3.Connection | None = None
        self._added: list[Row] = []
        self._process = os.getpid()
        _check_exists(self._file, path, kind)
        with self.reading():
            pass

    def disconnect(self) -> None:
        """Close the connection; the next step opens another."""
        with _STEP:
            self._leave_parent()
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
        """Take a step that adds rows; no other process adds any meanwhile."""
        with self._step("BEGIN IMMEDIATE") as connection:
            yield connection
            seal(connection, self._added)

    @contextlib.contextmanager
    def _step(self, begin: str) -> Iterator[sqlite3.Connection]:
        with _STEP:
            try:
                connection = self._connected()
                before = connection.total_changes
                self._added.clear()
                try:
                    connection.execute(begin)
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise in_words(error, self.path) from error
            if connection.total_changes == before:
                self._sync_journal()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes out of the same block, for as long as it takes.

        The lock is that of another, empty database, so that it ends with the process that holds
        it and blocks no step of this one. Its file stays: others may wait for its lock.
        """
        beside = self._file.with_name(f"{self._file.name}.closing")
        if beside.is_symlink():  # it could lead to any file
            raise DataError(
                f"{beside} is a symbolic link, and a file of the database must lie there; nothing "
                "was written: remove the link, and check who made it"
            )
        try:
            lock = sqlite3.connect(beside, timeout=PATIENCE, isolation_level=None)
        except sqlite3.Error as error:
            raise in_words(error, beside) from error
        try:
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.Error as error:
                if _name(error).startswith("SQLITE_BUSY"):
                    raise DataError(
                        f"the {self.kind.name} in {self.kind.place(self.path)} is being closed by "
                        "another process; wait until that is done, then close again to get its "
                        "result"
                    ) from error
                raise in_words(error, beside) from error
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
            connection = connect(self._file, self.path, self.kind)
            watch(connection, self._added)
            self._connection = connection
        return self._connection

    def _sync_journal(self) -> None:
        """Make the last commit final, if the process that made it could not.

        Opening and closing the database itself by hand would drop SQLite's locks; the journal has
        none.
        """
        try:
            sync(self._file.with_name(f"{self._file.name}-journal"))
        except (FileNotFoundError, PermissionError):
            pass  # nothing was ever written, or this process may only read
        except OSError as error:
            raise DataError(
                f"the disk of {self.path} does not confirm what was stored ({error}); nothing is "
                "lost yet: check the disk, then ask again"
            ) from error


def _check_exists(file: Path, path: Path, kind: Kind) -> None:
    if not file.exists():
        raise DataError(
            f"there is no {kind.name} in {kind.place(path)} (no file {path.name}); check the path, "
            f"or make one: convexmarket {kind.command}, or {kind.in_python}.create in Python"
        )
    if not file.is_file():  # reading a pipe or a device could wait for ever
        raise DataError(f"{path} is not a file; give the path of a {kind.name}")


def connect(file: Path, path: Path, kind: Kind) -> sqlite3.Connection:
    """Return a connection to a database all of which was read and found as it was written.

    ``path`` is what messages call the file.
    """
    _check_exists(file, path, kind)
    connection = sqlite3.connect(
        f"{file.as_uri()}?mode=rw",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _check_ours(connection, path, kind)
        mode = pragma(connection, "journal_mode = PERSIST")
        if mode != "persist":
            raise DataError(
                f"{path} has the journal mode {mode!r}, and it cannot be changed to 'persist'; "
                "end the other programs that use it, and try again"
            )
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.execute("PRAGMA fullfsync = ON")  # macOS: fsync alone does not reach the disk
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("BEGIN")
        check_whole(connection, path)
        connection.execute("COMMIT")
    except (sqlite3.OperationalError, UnicodeDecodeError) as error:
        connection.close()
        # The schema is not ours any more, or has become what SQLite cannot even be quoted about.
        if isinstance(error, UnicodeDecodeError) or _name(error) == "SQLITE_ERROR":
            raise damaged(path, "(its tables cannot be read)") from None
        raise
    except BaseException:
        connection.close()
        raise
    return connection


def _check_ours(connection: sqlite3.Connection, path: Path, kind: Kind) -> None:
    ours = pragma(connection, "application_id") == APPLICATION
    version = pragma(connection, "user_version")
    if ours and kind.table is not None:
        tables = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = ?"
        ours = bool(connection.execute(tables, (kind.table,)).fetchall()[0][0])
    if not ours or not isinstance(version, int) or version < 1:
        raise DataError(
            f"{path} is an SQLite database, but not a {kind.name}'s; move it away, or choose "
            "another path"
        )
    if version != VERSION:
        raise DataError(
            f"{path} has tables of version {version}, and only version {VERSION} is read; "
            "use the convexmarket that wrote it"
        )


def sync(path: str | Path) -> None:
    """Ask the disk to keep a file, or the names in a folder."""
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def in_words(error: sqlite3.Error, path: Path) -> DataError:
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
        return damaged(path, f"or no SQLite database ({name})")
    elif not name and isinstance(error, sqlite3.OperationalError):  # Python's, which quotes a cell
        return damaged(path, "(a text in it cannot be read)")
    else:
        text = f"refused a step; {kept}: this should not happen, please report it"
    return DataError(f"{path} {text} ({error})")
