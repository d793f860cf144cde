"""Writing several files at once: all of them appear, or none of them changes.

Each file is written next to its place, under a hidden name, and synced; only then is it renamed. A
file that was there before keeps its name until the new one takes it, so that at every instant, also
when the process is killed, there is a complete file, the former or the new one. What a killed
process leaves are hidden files, ``.NAME.xxxxxxxx.new`` and ``.old``, which nothing reads.

Nothing is written over what is not of its own kind, nor among the files of a database. A file that
takes another's place takes its mode and owner, too.
"""

from __future__ import annotations

import codecs
import csv
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import Any, TypeAlias

from convexmarket.errors import DataError, ParameterError

__all__ = [
    "CSV",
    "JSON",
    "MARKET_FILE",
    "PARQUET",
    "Content",
    "check_place",
    "keep_access",
    "kind_of",
    "sync_folder",
    "write_together",
]

#: Of a file: bytes, or a function that is given the open text file.
Content: TypeAlias = bytes | Callable[[Any], Any]


#: Kinds of files, as messages call them.
CSV, JSON, PARQUET = "a CSV table", "JSON", "a Parquet table"
#: What files that are no text begin with.
_BEGINNINGS = {
    b"SQLite format 3\0": "an SQLite database",
    b"\x89PNG": "a PNG picture",
    b"\x1f\x8b": "a gzip archive",
    b"PK\x03\x04": "a ZIP archive",
    b"%PDF": "a PDF document",
    b"PAR1": PARQUET,
}
_FIRST_BYTES = 8_192
_SEPARATORS = ",;\t|"
#: JSON that is more to its owner than another file of JSON.
_FORMAT = re.compile(r'\{\s*"format":\s*"(convexmarket-(?:model|results))\b')
#: The database of an online market; the folder that it lies in is the market's own.
MARKET_FILE = "market.sqlite"
#: What SQLite, and this package, call the files next to a database.
_BESIDE_A_DATABASE = re.compile(r"(.+)(-journal|-wal|-shm|\.turns|\.closing)", re.DOTALL)
#: Of a file that only its owner may read.
_PRIVATE = 0o600


def write_together(
    contents: Mapping[Path, Content], *, private: bool = False, force: bool = False
) -> None:
    """Write several files so that all of them appear, or none of them changes.

    Parameters
    ----------
    contents : mapping of pathlib.Path to bytes or callable
    private : bool, default False
        Whether only their owner may read files that were not there before. The others keep their
        mode and owner.
    force : bool, default False
        Whether files of another kind may be replaced, and files written among those of a database.

    Raises
    ------
    ParameterError
        If a file of another kind is in the place of one, or a database's are around it.
    DataError
        If the disk is full, or a file may not be written; everything is as it was before.
    """
    mark = secrets.token_hex(4)
    fresh = {path: path.with_name(f".{path.name}.{mark}.new") for path in contents}
    former = {path: path.with_name(f".{path.name}.{mark}.old") for path in contents}
    replaced: list[Path] = []
    try:
        for path, content in contents.items():
            with _naming(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(fresh[path], content, private)
                _check_free(path, kind_of(fresh[path]), force=force)
                keep_access(path, fresh[path])
        for path in contents:
            with _naming(path):
                if path.is_file():
                    _keep(path, former[path])
                replaced.append(path)
                os.replace(fresh[path], path)
    except BaseException:
        for path in replaced:
            with suppress(OSError):
                _bring_back(path, former[path])
        raise
    finally:
        for path in [*fresh.values(), *former.values()]:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        sync_folder(folder)


def check_place(
    path: Path,
    option: str = "--out",
    *,
    folder: bool = False,
    kind: str | None = None,
    force: bool = False,
) -> None:
    """Refuse, before any work, what could not be written in the end; leave nothing behind.

    Parameters
    ----------
    path : pathlib.Path
        A file that will be written.
    option : str
        Where it was named.
    folder : bool
        Whether it is a folder instead that will be replaced whole.
    kind : str, optional
        What the file will be, :data:`CSV` or :data:`JSON`.
    force : bool, default False
        As for :func:`write_together`.

    Raises
    ------
    ParameterError
        If the path is that of a folder and no folder is to be written, a file of another kind is
        there, it lies among the files of a database, or a file cannot be made where its folder is,
        or would be.
    """
    if path.is_dir() and not folder:
        raise ParameterError(f"{option} {path} is a folder; name a file in it")
    if folder:
        _check_apart(path, f"{option} {path}", "name another folder", force=force)
    else:
        _check_free(path, kind, option, force=force)
    place = path.resolve() if folder else path.absolute()
    for where in (place, place.parent) if place.is_dir() else (place.parent,):
        while not os.path.lexists(where):
            where = where.parent
        try:
            tempfile.TemporaryFile(dir=where).close()
        except OSError as error:
            raise ParameterError(
                f"{option} {path}: nothing can be written in {where} "
                f"({error.strerror or error}); name a place in a folder where you may write"
            ) from error


def kind_of(path: Path) -> str:
    """Say what the first bytes of a file show it to be; nothing of an empty file, or of none.

    Raises
    ------
    OSError
        If it cannot be read.
    """
    try:
        with open(path, "rb") as file:
            start = file.read(_FIRST_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    if not start:
        return ""
    for beginning, kind in _BEGINNINGS.items():
        if start.startswith(beginning):
            return kind
    try:
        # What is cut off may be within a character.
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start).lstrip()
    except UnicodeDecodeError:
        return "no text"
    if "\0" in text:
        return "no text"
    if text.startswith(("{", "[")):
        found = _FORMAT.match(text)
        return f"JSON of the format {found[1]!r}" if found else JSON
    if text.startswith("<"):
        return "HTML or XML"
    return CSV if _is_table(text, whole=len(start) < _FIRST_BYTES) else "text that is no table"


def _is_table(text: str, whole: bool) -> bool:
    """Say whether the rows of a text have two fields or more, all of them as many."""
    for separator in _SEPARATORS:
        try:
            rows = [
                row for row in csv.reader(StringIO(text, newline=""), delimiter=separator) if row
            ]
        except csv.Error:
            continue
        widths = {len(row) for row in (rows if whole or len(rows) < 2 else rows[:-1])}
        if len(widths) == 1 and widths.pop() > 1:
            return True
    return False


def _check_free(path: Path, kind: str | None, option: str = "", *, force: bool) -> None:
    """Refuse a place where something else is than what will be written."""
    place = f"{option} {path}".strip()
    remedy = "name another file, or give --force" if option else "name another file"
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ParameterError(f"{place} is a device or a pipe; name a file")
    _check_apart(path, place, remedy, force=force)
    if force:
        return
    found = kind_of(path)
    if kind and found and found != kind:
        raise ParameterError(f"{place} is {found}, and {kind} would take its place; {remedy}")
    beside = _BESIDE_A_DATABASE.fullmatch(path.name)
    if beside and kind_of(path.with_name(beside[1])) == "an SQLite database":
        raise ParameterError(f"{place} belongs to the database {beside[1]}; {remedy}")


def _check_apart(path: Path, place: str, remedy: str, *, force: bool) -> None:
    """Refuse the folder of an online market."""
    folders = path.absolute().parent, path.resolve().parent
    if not force and any((folder / MARKET_FILE).exists() for folder in folders):
        raise ParameterError(
            f"{place} lies in the folder of an online market, which is the market's own; {remedy}"
        )


def keep_access(former: Path, fresh: Path) -> None:
    """Give what takes the place of a file or folder its mode and owner, where it has one.

    Where the owner or group cannot be given, it is not opened to those of ours instead.
    """
    try:
        before = former.stat()
    except FileNotFoundError:
        return
    mode, now = stat.S_IMODE(before.st_mode) & 0o777, fresh.stat()
    if (before.st_uid, before.st_gid) != (now.st_uid, now.st_gid):
        try:
            os.chown(fresh, before.st_uid, before.st_gid)
        except PermissionError:
            mode &= 0o707
    fresh.chmod(mode)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Say which of the files failed; those that are being written have names of no use."""
    try:
        yield
    except OSError as error:
        place = error.filename
        hidden = place is None or Path(str(place)).parent == path.parent
        raise DataError(
            f"{path if hidden else place}: {error.strerror or error}; nothing was written"
        ) from error


def _write(path: Path, content: Content, private: bool) -> None:
    def create(name: str, flags: int) -> int:
        return os.open(name, flags, _PRIVATE if private else 0o666)

    if isinstance(content, bytes):
        with open(path, "xb", opener=create) as raw:
            raw.write(content)
            raw.flush()
            os.fsync(raw.fileno())
        return
    with open(path, "x", encoding="utf-8", newline="", opener=create) as file:
        content(file)
        file.flush()
        os.fsync(file.fileno())


def _keep(path: Path, former: Path) -> None:
    """Give a file a second name, or copy it where the disk knows no second names."""
    try:
        os.link(path, former)
    except OSError:
        shutil.copy2(path, former)


def _bring_back(path: Path, former: Path) -> None:
    if former.exists():
        os.replace(former, path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Ask the disk to keep the names in a folder, where the system can be asked."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
