"""The two formats of a saved model as bytes, read with suspicion.

``.json`` is text, one number per line, and every float comes back exactly. ``.npz`` holds the
arrays in NumPy's format and the rest as JSON text, uncompressed, so that what is read is never
larger than the file. Nothing that is read is run: there are no pickles, and an array of anything
but numbers is refused before it is made.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable, Iterable
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
TEXT = "document"
#: Where the arrays of an NPZ file stand in the document.
ARRAYS = {
    "coefficients": ("model", "coefficients"),
    "points": ("model", "points"),
    "epsilon": ("guarantee", "epsilon"),
}
_MOST_DIGITS = 20  # of an integer
_LONGEST_HEADER = 1_000  # of an array, characters
_DTYPES = (np.dtype("<f8"), np.dtype("u1"))


class Format(NamedTuple):
    """How a document becomes bytes, and comes back as plain values and arrays."""

    pack: Callable[[Document], bytes]
    unpack: Callable[[bytes], dict[str, Any]]


def packed(document: Document, path: Path) -> bytes:
    """Return a document in the format that the suffix of a path names.

    Raises
    ------
    ParameterError
        If the suffix names none.
    DataError
        If the file would be too large to be read again.
    """
    pack = _format(path).pack
    try:
        content = pack(document)
    except ValueError as error:
        raise DataError(
            f"{path} could not be read again: {error}; save as .npz, with guarantee='summary', or "
            "a model with fewer points"
        ) from error
    if len(content) > LARGEST_FILE:
        raise DataError(
            f"{path} would have {len(content):,} bytes, and at most {LARGEST_FILE:,} are read "
            "again; save as .npz, with guarantee='summary', or a model with fewer points"
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
        If the suffix of the path names no format.
    DataError
        If the content is not well formed.
    """
    unpack = _format(path).unpack
    try:
        return unpack(content)
    except Exception as error:  # zipfile and NumPy raise what comes, and a file is a stranger's
        raise DataError(
            f"{path} is damaged, or no saved model ({_one_line(error)}): get it again from where "
            "it was saved"
        ) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _format(path: Path) -> Format:
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        raise ParameterError(
            f"path is {str(path)!r}, and its suffix says the format; use .json or .npz"
        ) from None


# -------------------------------------------------------------------------------------- JSON


def _to_json(document: Document) -> bytes:
    content = {**document.model_dump(mode="json"), CHECKSUM: document.checksum()}
    return _text(content, indent=1)


def _text(content: dict[str, Any], indent: int | None = None) -> bytes:
    text = json.dumps(content, indent=indent, ensure_ascii=False, allow_nan=False)
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


# --------------------------------------------------------------------------------------- NPZ


def _to_npz(document: Document) -> bytes:
    arrays = {
        name: getattr(getattr(document, table), key, None) for name, (table, key) in ARRAYS.items()
    }
    text = document.model_dump(
        mode="json", exclude={"model": {"coefficients", "points"}, "guarantee": {"epsilon"}}
    )
    text[CHECKSUM] = document.checksum()
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, array in {TEXT: np.frombuffer(_text(text), dtype="u1"), **arrays}.items():
            if array is None:
                continue
            member = BytesIO()
            np.lib.format.write_array(
                member, np.ascontiguousarray(array), version=(1, 0), allow_pickle=False
            )
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), member.getvalue())
    return buffer.getvalue()


def _from_npz(content: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        members = archive.infolist()
        _check_members(members, len(content))
        arrays = {
            member.filename.removesuffix(".npy"): _array(archive.read(member)) for member in members
        }
    if TEXT not in arrays or arrays[TEXT].dtype != np.uint8 or arrays[TEXT].ndim != 1:
        raise ValueError(f"{TEXT}.npy, which holds text, is missing")
    found = _from_json(arrays.pop(TEXT).tobytes())
    for name, array in arrays.items():
        table, key = ARRAYS[name]
        if not isinstance(found.get(table), dict) or found[table].get(key) is not None:
            raise ValueError(f"{name}.npy has no place in the document")
        found[table][key] = array
    return found


def _check_members(members: list[zipfile.ZipInfo], size: int) -> None:
    """Refuse what an archive of ours does not have, before anything of it is read."""
    names = [member.filename for member in members]
    unknown = sorted(set(names) - {f"{name}.npy" for name in (TEXT, *ARRAYS)})
    if unknown or len(set(names)) < len(names):
        raise ValueError(f"it holds {[*unknown, 'a file twice'][0]:.60}")
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ValueError("it is compressed, and saved models are not")
    if sum(member.file_size for member in members) > size:
        raise ValueError("it says to hold more than the file has")


def _array(content: bytes) -> NDArray[Any]:
    """Read an array of numbers whose header says just what follows it."""
    stream = BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array is of another version of NumPy's format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(
        stream, max_header_size=_LONGEST_HEADER
    )
    if dtype not in _DTYPES or fortran or len(shape) > 2:
        raise ValueError(f"an array is of {dtype}, order or dimension that are never written")
    rest = content[stream.tell() :]
    if math.prod(shape) * dtype.itemsize != len(rest):
        raise ValueError(f"an array of shape {shape} has {len(rest)} bytes")
    native = np.float64 if dtype.kind == "f" else np.uint8
    return np.frombuffer(rest, dtype=dtype).reshape(shape).astype(native)


FORMATS = {".json": Format(_to_json, _from_json), ".npz": Format(_to_npz, _from_npz)}
