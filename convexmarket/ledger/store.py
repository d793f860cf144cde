"""A database shared by several processes, with durable steps.

A step is one transaction. Once it has returned, its rows survive a crash of the process, and a loss
of power if the disk implements fsync. Steps of several processes are serial: each waits for
SQLite's lock for up to a minute. The seal is checked when a database is opened, a market closes, or
a backup is made (:mod:`convexmarket.ledger.seals`).

The rollback journal is overwritten, not deleted, and synced before and after every change, because
with deleted journals a loss of power can undo a commit. A write-ahead log would be faster, but
before SQLite 3.51.3 concurrent checkpoints can damage the database. A step that adds nothing syncs
the journal as well, because another process may have crashed between its commit and its sync.

The folder must be on a local disk: locks of network file systems are unreliable.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from convexmarket.checks import check_instance
from convexmarket.errors import DataError
from convexmarket.ledger.seals import Row, check_whole, damaged, lay_seals, seal, watch

__all__ = ["Kind", "Store", "back_up", "create_database", "now"]

#: "cmkt": the application id of our SQLite databases.
APPLICATION = 0x636D6B74
#: Version of the tables; no other is read.
VERSION = 4
#: Seconds to wait for other processes.
PATIENCE = 60.0

#: Held during every step and every fork: a child process would roll back an open transaction of
#: another thread when it exits.
_STEP = threading.RLock()
#: Connections of a parent process. A child must not even close them.
_ABANDONED: list[sqlite3.Connection | None] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_STEP.acquire, after_in_parent=_STEP.release, after_in_child=_STEP.release
    )

_STORED = "earlier steps are intact, this step was not stored"
#: Description and remedy of an error, by its name without the details.
_ERRORS = {
    "SQLITE_BUSY": f"is in use by other processes for more than {PATIENCE:g} seconds; {_STORED}:"
    " try again",
    "SQLITE_READONLY": f"is read-only; {_STORED}: allow writing to the file and its folder, or copy"
    " both",
    "SQLITE_FULL": f"has no space left on its disk; {_STORED}: free some space, then try again",
    "SQLITE_CANTOPEN": f"or its journal cannot be opened; {_STORED}: check that both may be read"
    " and written",
    "SQLITE_IOERR": "could not be read or written; earlier steps are intact: check the disk and its"
    " free space, then try again with the same id",
}


def now() -> str:
    """Return the time, UTC, as ISO text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Kind(NamedTuple):
    """Kind of a database, for messages."""

    name: str
    table: str | None  # a required table, or None
    place: Callable[[Path], Path]  # from the file to the path given by users
    command: str  # command that creates one
    in_python: str  # class


class Store:
    """An existing database, and its connection of this process.

    A DataError means that it does not exist, is damaged, or has tables of another version.
    """

    def __init__(self, path: Path, kind: Kind) -> None:
        _check_path(path)
        self.path, self.kind = path, kind
        self._file = Path(os.path.realpath(path))
        self._connection: sqlite3.Connection | None = None
        self._added: list[Row] = []
        self._process = os.getpid()
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
    def reading(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """Open a step that only reads, in one consistent state."""
        with _STEP, _in_words(self.path):
            self._leave_parent()
            if self._connection is None:
                self._connection = self._connect()
            connection = self._connection
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
            if connection.total_changes == before:
                self._sync_journal()

    @contextlib.contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Open a step that adds rows, while other processes wait."""
        with self.reading("BEGIN IMMEDIATE") as connection:
            yield connection
            seal(connection, self._added)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other processes from the same block.

        The lock is that of another, empty database: it ends with the process, and blocks no step.
        Its file remains, because other processes may wait for it.
        """
        lock_file = self._file.with_name(f"{self._file.name}.closing")
        if lock_file.is_symlink():  # a link could lead to any file
            raise DataError(
                f"{lock_file} is a symbolic link, in the place of a file of the database; nothing "
                "was written: remove the link, and check its origin"
            )
        with _in_words(lock_file):
            lock = sqlite3.connect(lock_file, timeout=PATIENCE, isolation_level=None)
        with contextlib.closing(lock):
            with _in_words(
                lock_file,
                f"the {self.kind.name} in {self.kind.place(self.path)} is being closed by another "
                "process; wait until that is done, then close again to get its result",
            ):
                lock.execute("BEGIN EXCLUSIVE")
            yield

    def _leave_parent(self) -> None:
        """Drop a connection that was opened before a fork."""
        if self._process != os.getpid():
            _ABANDONED.append(self._connection)
            self._connection, self._process = None, os.getpid()

    def _connect(self) -> sqlite3.Connection:
        """Open the database, and check its seal."""
        if not self._file.exists():
            raise DataError(
                f"there is no {self.kind.name} in {self.kind.place(self.path)} (no file "
                f"{self.path.name}); check the path, or create one: convexmarket "
                f"{self.kind.command}, or {self.kind.in_python}.create in Python"
            )
        if not self._file.is_file():  # reading a pipe or a device could block
            raise DataError(f"{self.path} is not a file; give the path of a {self.kind.name}")
        connection = sqlite3.connect(
            f"{self._file.as_uri()}?mode=rw",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            self._check_ours(connection)
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")  # fsync alone misses the disk on macOS
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN")
            check_whole(connection, self.path)
            connection.execute("COMMIT")
            watch(connection, self._added)
        except BaseException as error:
            connection.close()
            # The schema is damaged, perhaps to the point that SQLite's message cannot be decoded.
            if isinstance(error, UnicodeDecodeError) or (
                isinstance(error, sqlite3.OperationalError) and _name(error) == "SQLITE_ERROR"
            ):
                raise damaged(self.path, "(its tables cannot be read)") from None
            raise
        return connection

    def _check_ours(self, connection: sqlite3.Connection) -> None:
        """Check that the database is of this kind and version, and set its journal mode."""
        ours = _pragma(connection, "application_id") == APPLICATION
        if ours and self.kind.table is not None:
            tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
            ours = bool(connection.execute(tables, (self.kind.table,)).fetchall())
        version = _pragma(connection, "user_version")
        if not ours or version < 1:
            raise DataError(
                f"{self.path} is an SQLite database, but not that of a {self.kind.name}; move it "
                "away, or choose another path"
            )
        if version != VERSION:
            raise DataError(
                f"{self.path} has tables of version {version}, but only version {VERSION} can be "
                "read; use the version of convexmarket that wrote it"
            )
        mode = _pragma(connection, "journal_mode = PERSIST")
        if mode != "persist":
            raise DataError(
                f"{self.path} has the journal mode {mode!r}, and it cannot be changed to 'persist';"
                " end the other programs that use it, and try again"
            )

    def _sync_journal(self) -> None:
        """Sync the last commit, possibly of another process.

        The journal is opened because closing a handle of the database would drop SQLite's locks.
        """
        try:
            sync(self._file.with_name(f"{self._file.name}-journal"))
        except (FileNotFoundError, PermissionError):
            pass  # nothing was written, or this process may only read
        except OSError as error:
            raise DataError(
                f"the disk of {self.path} did not confirm a write ({error}); nothing is lost yet: "
                "check the disk, then try again"
            ) from error


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to the disk."""
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_path(path: Path) -> None:
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} is not a path: it has a null character; remove it")


def _pragma(connection: sqlite3.Connection, text: str) -> Any:
    return connection.execute(f"PRAGMA {text}").fetchall()[0][0]


def _name(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


@contextlib.contextmanager
def _in_words(path: Path, busy: str = "") -> Iterator[None]:
    """Describe an error of the database and its remedy; ``busy`` is for a lock."""
    try:
        yield
    except sqlite3.Error as error:
        name = _name(error)
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT")):
            raise damaged(path, f"or not an SQLite database ({name})") from error
        if not name and isinstance(error, sqlite3.OperationalError):  # its message quotes a cell
            raise damaged(path, "(a text in it cannot be read)") from error
        if busy and name.startswith("SQLITE_BUSY"):
            raise DataError(busy) from error
        unknown = f"refused a step; {_STORED}: please report this error"
        text = _ERRORS.get("_".join(name.split("_")[:2]), unknown)
        raise DataError(f"{path} {text} ({error})") from error


def create_database(path: Path, kind: Kind, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a database atomically, with its folder, or raise a DataError.

    ``fill`` creates the tables and the first rows, in a transaction.
    """

    def write(connection: sqlite3.Connection) -> None:
        connection.execute("BEGIN")
        fill(connection)
        lay_seals(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")

    _place(path, kind, write)


def back_up(store: Store, path: str | Path, *, force: bool = False) -> None:
    """Write a consistent copy of a database, check it, and rename it to its path.

    A DataError means that the file exists without ``force``, is the database itself, or cannot be
    written.
    """
    check_instance("path", path, (str, Path), "the path of a file for the backup")
    file = Path(os.path.realpath(path))
    if file.exists() and (not force or not file.is_file() or file.samefile(store.path)):
        raise DataError(
            f"{path} exists; name another file, or pass force (--force) to replace a file other "
            "than the database itself"
        )

    def write(copy: sqlite3.Connection) -> None:
        connection.backup(copy)
        check_whole(copy, store.path)

    with store.reading() as connection:
        kind = Kind("backup", None, lambda path: path, "ledger PATH --backup", "Ledger")
        _place(file, kind, write, replace=force)


def _place(
    path: Path, kind: Kind, write: Callable[[sqlite3.Connection], None], *, replace: bool = False
) -> None:
    """Write a database under a hidden name, sync it, and rename it."""
    _check_path(path)
    if not replace:
        _check_free(path, kind)
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-", suffix=".new")
        os.close(handle)
        fresh = Path(name)
        try:
            with (
                _in_words(path),
                contextlib.closing(sqlite3.connect(fresh, isolation_level=None)) as connection,
            ):
                connection.execute("PRAGMA journal_mode = MEMORY")  # the file is not seen yet
                write(connection)
            sync(fresh)
            if replace:
                fresh.replace(path)
            else:
                os.link(fresh, path)  # unlike a renaming, it fails if the name is taken
            if os.name == "posix":
                sync(folder)
                sync(folder.parent)
        finally:
            fresh.unlink(missing_ok=True)
    except FileExistsError:
        _check_free(path, kind)
        raise DataError(f"{folder} is a file; a {kind.name} needs a folder") from None
    except OSError as error:
        raise DataError(
            f"the {kind.name} could not be created in {folder} ({error}); choose a writable folder "
            "on a local disk with free space and hard links"
        ) from error


def _check_free(path: Path, kind: Kind) -> None:
    """Refuse a path that exists, or has a leftover journal that SQLite would apply."""
    place = str(kind.place(path))
    if path.exists():
        raise DataError(
            f"{place} already contains a {kind.name}; open it, in Python with "
            f"{kind.in_python}({place!r}), or choose another path"
        )
    for leftover in (path.with_name(path.name + end) for end in ("-journal", "-wal")):
        if leftover.exists():
            raise DataError(
                f"{leftover} belongs to a missing {kind.name}, {path.name}; restore it, move this "
                "file away, or choose another path"
            )
