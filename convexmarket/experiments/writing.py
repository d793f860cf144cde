"""Writing several files at once: all of them appear, or none of them changes."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from convexmarket.errors import DataError

__all__ = ["write_together"]


def write_together(writers: Mapping[Path, Callable[[Any], Any]]) -> None:
    """Write several files so that all of them appear, or none of them changes."""
    mark = secrets.token_hex(4)
    fresh = {path: path.with_name(f".{path.name}.{mark}.new") for path in writers}
    former = {path: path.with_name(f".{path.name}.{mark}.old") for path in writers}
    replaced: list[Path] = []
    try:
        for path, write in writers.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(fresh[path], "x", encoding="utf-8", newline="") as file:
                write(file)
        for path in writers:
            if path.is_file():
                os.replace(path, former[path])
            replaced.append(path)
            os.replace(fresh[path], path)
    except BaseException as error:
        for path in replaced:
            with suppress(OSError):
                path.unlink(missing_ok=True)
            if former[path].exists():
                os.replace(former[path], path)
        if isinstance(error, OSError):
            raise DataError(f"{error.filename}: {error.strerror}; nothing was written") from error
        raise
    finally:
        for path in [*fresh.values(), *former.values()]:
            path.unlink(missing_ok=True)
