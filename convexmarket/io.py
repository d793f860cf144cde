"""Write several files atomically. Either all files are written, or no file changes.

Each file is written and synced under a hidden name in its folder, and then renamed. Even if the
process is killed, either the complete old file or the complete new file exists. A killed process
can leave hidden files, ``.NAME.xxxxxxxx.new`` and ``.old``, which are never read. A new file has
the mode of the old file.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from convexmarket.errors import DataError, ParameterError

#: Content of a file: bytes, or a function that writes to the open text file.
Content: TypeAlias = bytes | Callable[[Any], Any]
#: Name of the database in the folder of an online market.
MARKET_FILE = "market.sqlite"


def write_together(
    contents: Mapping[Path, Content], *, private: bool = False, force: bool = True
) -> None:
    """Write several files. If an error is raised, no file has changed."""
    mark = secrets.token_hex(4)
    fresh = {path: path.with_name(f".{path.name}.{mark}.new") for path in contents}
    former = {path: path.with_name(f".{path.name}.{mark}.old") for path in contents}
    replaced: list[Path] = []
    place = Path()
    try:
        for place, content in contents.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            _write(fresh[place], content, 0o600 if private else 0o666)
            _check_free(place, str(place), force=force)
            keep_access(place, fresh[place])
        for place in contents:
            if place.is_file():
                try:  # make a hard link, or a copy if the file system has no hard links
                    os.link(place, former[place])
                except OSError:
                    shutil.copy2(place, former[place])
            replaced.append(place)
            os.replace(fresh[place], place)
    except BaseException as error:
        for path in replaced:
            with suppress(OSError):
                if former[path].exists():
                    os.replace(former[path], path)
                else:
                    path.unlink(missing_ok=True)
        if isinstance(error, OSError):  # the original message contains the name of the hidden file
            why = error.strerror or error
            raise DataError(f"{place}: {why}; nothing was written") from error
        raise
    finally:
        for path in [*fresh.values(), *former.values()]:
            with suppress(OSError):
                path.unlink(missing_ok=True)
    for folder in {path.parent for path in contents}:
        sync_folder(folder)


def _write(path: Path, content: Content, mode: int) -> None:
    how: Any = {"encoding": "utf-8", "newline": ""} if callable(content) else {}
    how["opener"] = lambda name, flags: os.open(name, flags, mode)
    with open(path, "x" if callable(content) else "xb", **how) as file:
        content(file) if callable(content) else file.write(content)
        file.flush()
        os.fsync(file.fileno())


def check_place(
    path: Path, option: str = "--out", *, folder: bool = False, force: bool = False
) -> None:
    """Raise an error in advance if a path cannot be written."""
    if not folder:
        if path.is_dir():
            raise ParameterError(f"{option} {path} is a folder; name a file in it")
        _check_free(path, f"{option} {path}", force=force)
    place = path.resolve() if folder else path.absolute()
    for where in (place, place.parent) if place.is_dir() else (place.parent,):
        while not os.path.lexists(where):
            where = where.parent
        try:
            tempfile.TemporaryFile(dir=where).close()
        except OSError as error:
            why = f"nothing can be written in {where} ({error.strerror or error})"
            remedy = "choose a folder in which you may write"
            raise ParameterError(f"{option} {path}: {why}; {remedy}") from error


def _check_free(path: Path, place: str, *, force: bool) -> None:
    """Raise an error if a path is a device or a pipe, or a file exists without ``force``."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ParameterError(f"{place} is a device or a pipe; name a file")
    if not force and os.path.lexists(path):
        raise ParameterError(f"{place} exists; pass --force (force=True in Python) to replace it")


def keep_access(former: Path, fresh: Path) -> None:
    """Copy the mode of ``former``, but without group access if the owner or group differs."""
    with suppress(FileNotFoundError):
        before, now = former.stat(), fresh.stat()
        same = (before.st_uid, before.st_gid) == (now.st_uid, now.st_gid)
        fresh.chmod(stat.S_IMODE(before.st_mode) & (0o777 if same else 0o707))


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder, if the system supports this operation."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
