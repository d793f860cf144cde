"""A database with durable transactions, which several processes can share.

Rows of a finished transaction are not lost if a process crashes. If the disk implements fsync, they
are not lost in a power failure either. The rollback journal is overwritten, because a power failure
can undo a commit if journals are deleted. No write-ahead log is used, because concurrent
checkpoints of SQLite before 3.51.3 can damage the database. The journal is also synced after a
transaction without new rows, because another process could have crashed before its sync.
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
from typing import NamedTuple

from convexmarket.checks import check_instance
from convexmarket.errors import DataError
from convexmarket.io import sync_folder
from convexmarket.ledger.seals import Row, check_whole, damaged, lay_seals, seal, watch

__all__ = ["Kind", "Store", "back_up", "create_database", "now"]

#: Application id of the SQLite databases of this package, in ASCII "cmkt".
APPLICATION = 0x636D6B74
#: Version of the tables. Databases of other versions are not read.
VERSION = 4
#: Longest time to wait for other processes, in seconds.
PATIENCE = 60.0

#: Lock that prevents forks during transactions, because an exiting child would roll them back.
_STEP = threading.RLock()
#: Connections of a parent process. A child process must not close these connections.
_ABANDONED: list[sqlite3.Connection | None] = []

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_STEP.acquire, after_in_parent=_STEP.release, after_in_child=_STEP.release
    )

#: Description and remedy for each primary error name of SQLite.
_ERRORS = {
    "SQLITE_BUSY": (
        f"has been in use by other processes for more than {PATIENCE:g} seconds",
        "try again",
    ),
    "SQLITE_READONLY": ("is read-only", "allow writing to the file and its folder"),
    "SQLITE_FULL": ("has no space left on its disk", "free some space, then try again"),
    "SQLITE_CANTOPEN": ("or its journal cannot be opened", "allow reading and writing"),
    "SQLITE_IOERR": (
        "could not be read or written",
        "check the disk, then repeat the step with the same id",
    ),
}
_UNKNOWN = "refused a step", "please report this error"
_DAMAGE = "SQLITE_CORRUPT", "SQLITE_NOTADB", "SQLITE_FORMAT", "SQLITE_ERROR"


def now() -> str:
    """Return the current UTC time in ISO 8601 format."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class Kind(NamedTuple):
    """Name and required table of a database schema, and a remedy if the database is missing."""

    name: str
    create: str  # remedy if the database is missing
    table: str = ""  # name of a table in every database with this schema


class Store:
    """An existing, undamaged database of this version, and the connection of this process."""

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
        """Close the connection. The next transaction opens a new connection."""
        with _STEP:
            self._leave_parent()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @contextlib.contextmanager
    def reading(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """Open a read-only transaction on a consistent state."""
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
        """Open a transaction that can add rows. Other processes cannot write until it ends."""
        with self.reading("BEGIN IMMEDIATE") as connection:
            yield connection
            seal(connection, self._added)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude other processes from a block by locking a second, empty database."""
        lock_file = self._file.with_name(f"{self._file.name}.closing")
        if lock_file.is_symlink():  # a link could refer to any file
            raise DataError(
                f"{lock_file} is a symbolic link instead of a file of the database; nothing was "
                "written: remove the link, and check its origin"
            )
        with _in_words(lock_file):
            lock = sqlite3.connect(lock_file, timeout=PATIENCE, isolation_level=None)
        busy = (
            f"the {self.kind.name} in {self.path} is being closed by another process; wait until "
            "that process has finished, then close again to get the result"
        )
        with contextlib.closing(lock):
            with _in_words(lock_file, busy):
                lock.execute("BEGIN EXCLUSIVE")
            yield

    def _leave_parent(self) -> None:
        if self._process != os.getpid():
            _ABANDONED.append(self._connection)
            self._connection, self._process = None, os.getpid()

    def _connect(self) -> sqlite3.Connection:
        if not self._file.is_file():  # opening a pipe or a device can block
            raise DataError(
                f"there is no {self.kind.name} in {self.path}; check the path, or create one:"
                f" {self.kind.create}"
            )
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
            connection.execute("PRAGMA fullfsync = ON")  # on macOS, fsync does not flush the disk
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN")
            check_whole(connection, self.path)
            connection.execute("COMMIT")
            watch(connection, self._added)
        except BaseException:
            connection.close()
            raise
        return connection

    def _check_ours(self, connection: sqlite3.Connection) -> None:
        """Check the schema and version of the database, and set its journal mode."""
        tables = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        ours = connection.execute(tables, (self.kind.table,)).fetchall()
        ((application,),) = connection.execute("PRAGMA application_id").fetchall()
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        if not ours or application != APPLICATION:
            raise DataError(
                f"{self.path} is an SQLite database without the tables of a {self.kind.name}; "
                "move the file away, or choose another path"
            )
        if version != VERSION:
            raise DataError(
                f"{self.path} has tables of version {version}, but only version {VERSION} can be "
                "read; use the version of convexmarket that wrote it"
            )
        connection.execute("PRAGMA journal_mode = PERSIST")

    def _sync_journal(self) -> None:
        """Sync the journal. The database is not synced, because closing it would release locks."""
        try:  # without a journal, or without permission, nothing was written
            with contextlib.suppress(FileNotFoundError, PermissionError):
                sync(self._file.with_name(f"{self._file.name}-journal"))
        except OSError as error:
            raise DataError(
                f"the disk of {self.path} did not confirm a write: {error}; check the disk"
            ) from error


def sync(path: Path) -> None:
    """Flush a file or a folder to the disk."""
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _check_path(path: Path) -> None:
    if "\0" in str(path):
        raise DataError(f"{str(path)!r} is not a path: it has a null character; remove it")


@contextlib.contextmanager
def _in_words(path: Path, busy: str = "") -> Iterator[None]:
    """Convert SQLite errors to a DataError. ``busy`` is the message if the database is locked."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        kind = "_".join(name.split("_")[:2])
        if not name or kind in _DAMAGE:  # the message of an unnamed error can quote a value
            raise damaged(path, f"or not an SQLite database ({name or 'bad text'})") from None
        if busy and kind == "SQLITE_BUSY":
            raise DataError(busy) from error
        what, remedy = _ERRORS.get(kind, _UNKNOWN)
        raise DataError(
            f"{path} {what}; earlier steps are intact, but this step was not stored: {remedy} "
            f"({error})"
        ) from error


def create_database(path: Path, kind: Kind, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Create a database and its folder. ``fill`` creates the tables in a transaction."""
    _check_path(path)
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        fill(connection)
        lay_seals(connection)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
        _place(path, kind, connection.serialize())


def back_up(store: Store, path: str | Path, *, force: bool = False) -> None:
    """Write a consistent and checked copy of a database."""
    check_instance("path", path, (str, Path), "the path of a file for the backup")
    file = Path(os.path.realpath(path))
    if file.exists() and (not force or not file.is_file() or file.samefile(store.path)):
        raise DataError(
            f"{path} exists; give another file, or pass force (--force) to replace a file other "
            "than the database itself"
        )
    with store.reading() as connection:
        check_whole(connection, store.path)
        _place(file, Kind("backup", ""), connection.serialize(), replace=force)


def _place(path: Path, kind: Kind, content: bytes, *, replace: bool = False) -> None:
    """Write a file under a hidden name, sync the file, and rename it."""
    if not replace:
        _check_free(path, kind)
    folder = path.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}-", suffix=".new")
        fresh = Path(name)
        try:
            with open(handle, "wb") as file:
                file.write(content)
            sync(fresh)
            if replace:
                fresh.replace(path)
            else:
                os.link(fresh, path)  # unlike a rename, a link fails if the file exists
            sync_folder(folder)
            sync_folder(folder.parent)
        finally:
            fresh.unlink(missing_ok=True)
    except OSError as error:
        if not replace:
            _check_free(path, kind)
        raise DataError(
            f"the {kind.name} could not be created in {folder} ({error}); choose a writable folder "
            "on a local disk with free space and hard links"
        ) from error


def _check_free(path: Path, kind: Kind) -> None:
    """Raise an error if a file or its journal exists, because SQLite would apply the journal."""
    for taken in (path.with_name(path.name + end) for end in ("", "-journal", "-wal")):
        if taken.exists():
            raise DataError(
                f"{taken} exists from an earlier {kind.name}; open it, move the file away, or "
                "choose another path"
            )
