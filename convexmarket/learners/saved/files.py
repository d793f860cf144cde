"""A saved model as JSON text, read with suspicion.

Every float comes back exactly. Nothing that is read is run, and sizes are checked before parsing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from convexmarket.arguments import shown
from convexmarket.errors import DataError, ParameterError
from convexmarket.learners.saved.document import Document

__all__ = ["LARGEST_FILE", "packed", "read", "unpacked"]

#: Bytes; a larger file is neither written nor read.
LARGEST_FILE = 200_000_000
#: Of the text, which takes far more memory once it is parsed: bytes, lists or objects, and commas.
LARGEST_TEXT = 50_000_000
MOST_LISTS = 20_000
MOST_VALUES = 3_000_000
CHECKSUM = "sha256"
_MOST_DIGITS = 20  # of an integer


def packed(document: Document, path: Path) -> bytes:
    """Return a document as the content of a file.

    Raises
    ------
    ParameterError
        If the suffix is another.
    DataError
        If the file would be too large to be read again.
    """
    _check_suffix(path)
    try:
        content = _to_json(document)
    except ValueError as error:
        raise DataError(
            f"{path} could not be read again: {error}; save with guarantee='summary', or "
            "a model with fewer points"
        ) from error
    if len(content) > LARGEST_FILE:
        raise DataError(
            f"{path} would have {len(content):,} bytes, and at most {LARGEST_FILE:,} are read "
            "again; save with guarantee='summary', or a model with fewer points"
        )
    return content


def read(path: Path) -> bytes:
    """Return a file's bytes, unless it is no file or too large.

    Raises
    ------
    DataError
        If it is.
    """
    content = None
    try:
        if path.is_file():
            with open(path, "rb") as file:
                content = file.read(LARGEST_FILE + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"{path}: {reason}; give the path that save_model returned") from None
    if content is None:
        raise DataError(f"{path} is no file; give the path that save_model returned")
    if len(content) > LARGEST_FILE:
        raise DataError(
            f"{path} has more than {LARGEST_FILE:,} bytes, so it is no saved model; give another"
        )
    return content


def unpacked(content: bytes, path: Path) -> dict[str, Any]:
    """Return what a file says, before any of it is believed.

    Raises
    ------
    ParameterError
        If the suffix of the path is another.
    DataError
        If the content is not well formed.
    """
    _check_suffix(path)
    try:
        return _from_json(content)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is damaged, or no saved model ({shown(error, str)}): get it again from where "
            "it was saved"
        ) from None


def _check_suffix(path: Path) -> None:
    if path.suffix.lower() != ".json":
        raise ParameterError(
            f"path is {str(path)!r}; saved models are JSON, so use the suffix .json"
        )


def _to_json(document: Document) -> bytes:
    content = {**document.model_dump(mode="json"), CHECKSUM: document.checksum()}
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    encoded = f"{text}\n".encode()
    _check_text(encoded)
    return encoded


def _check_text(text: bytes) -> None:
    """Refuse text that would take much time and memory, before it is parsed."""
    if len(text) > LARGEST_TEXT:
        raise ValueError(f"its text has {len(text):,} bytes, and at most {LARGEST_TEXT:,} are read")
    lists = text.count(b"[") + text.count(b"{")
    if lists > MOST_LISTS:
        raise ValueError(f"its text has {lists:,} brackets, and at most {MOST_LISTS:,} are read")
    values = text.count(b",")
    if values > MOST_VALUES:
        raise ValueError(f"its text has {values:,} commas, and at most {MOST_VALUES:,} are read")


def _from_json(content: bytes) -> dict[str, Any]:
    _check_text(content)
    found = json.loads(
        content.decode("utf-8"),
        object_pairs_hook=_without_duplicates,
        parse_constant=_no_constant,
        parse_float=_finite,
        parse_int=_short,
    )
    if not isinstance(found, dict):
        raise ValueError("a JSON object was expected")
    return found


def _without_duplicates(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"the key {key[:40]!r} is there twice")
        found[key] = value
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _short(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"the number {text[:_MOST_DIGITS]}... has too many digits")
    return int(text)
