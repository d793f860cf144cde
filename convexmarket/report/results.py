"""Read and write ``results.json`` of a report, with texts and the exact values of tables.

A table is stored as columns, dtypes and rows. NaN is stored as null, and infinities as text. A long
table is stored as Parquet in ``tables/``, with a checksum in ``results.json``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.data.files import read_limited
from convexmarket.errors import DataError, ParameterError
from convexmarket.report.table_formats import format_cell

RESULTS = "results.json"
FORMAT = "convexmarket-report/1"
#: Number of cells above which a table is stored as Parquet, and largest file in bytes.
MOST_CELLS, LARGEST_FILE = 2_000, 500_000_000


def is_report(folder: Path) -> bool:
    """Test whether a folder contains the ``results.json`` of a report."""
    with suppress(OSError), open(folder / RESULTS, "rb") as content:
        return b'"format": "convexmarket-' in content.read(100)
    return False


def tidy(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Convert an index of names or labels to columns, and cells of other types to text."""
    if any(name is not None for name in frame.index.names) or frame.index.dtype.kind not in "iu":
        frame = frame.reset_index()
    columns = [" ".join(map(str, c)).strip() if isinstance(c, tuple) else str(c) for c in frame]
    if not columns or len(set(columns)) < len(columns):
        raise ParameterError(f"the table {name!r} has no columns, or two equal column names")
    frame = frame.set_axis(columns, axis=1).reset_index(drop=True)
    for column, dtype in frame.dtypes.items():
        if not str(dtype).startswith(("bool", "int", "uint", "float", "str")):
            cells = frame[column].astype(object).where(frame[column].notna(), None)
            frame[column] = cells.map(_plain_cell).infer_objects()
    return frame


def _plain_cell(cell: Any) -> Any:
    return cell if isinstance(cell, bool | int | float | str | None) else str(cell)


def sentence(certificate: Mapping[str, Any]) -> str:
    """Write the numbers and texts of a certificate, except times."""
    facts = {**certificate, "seconds": "", "binding": ", ".join(certificate.get("binding", ()))}
    shown = {k: v for k, v in facts.items() if isinstance(v, int | float | str) and v != ""}
    texts = [f"{name.replace('_', ' ')} {format_cell(value)}" for name, value in shown.items()]
    return f"Certificate: {'; '.join(texts)}."


def stored_frame(frame: pd.DataFrame) -> tuple[dict[str, Any], bytes]:
    """Describe a table as plain values, with its rows or the checksum of its Parquet content."""
    dtypes = [str(dtype) for dtype in frame.dtypes]
    described: dict[str, Any] = {"columns": list(frame.columns), "dtypes": dtypes}
    if frame.size <= MOST_CELLS or "object" in dtypes:
        return described | {"data": plain(frame.astype(object).to_numpy().tolist())}, b""
    packed = frame.to_parquet(index=False, compression="zstd", compression_level=19)
    return described | {"sha256": hashlib.sha256(packed).hexdigest()}, packed


def restored_frame(name: str, described: Mapping[str, Any], folder: Path) -> pd.DataFrame:
    """Restore a table from its description. Raise a DataError if its Parquet file was changed."""
    if (rows := described.get("data")) is not None:
        cells = np.array(rows, dtype=object).reshape(len(rows), len(described["columns"])).T
        named = zip(described["columns"], cells, described["dtypes"], strict=True)
        return pd.DataFrame({name: pd.Series(column, dtype=dtype) for name, column, dtype in named})
    content = read_bytes(folder / f"tables/{name}.parquet")
    if hashlib.sha256(content).hexdigest() != described["sha256"]:
        raise DataError(f"tables/{name}.parquet was changed after its checksum was stored")
    return pd.read_parquet(BytesIO(content))


def plain(value: Any) -> Any:
    """Convert settings to plain values of strict JSON. Other objects are converted to text."""
    if isinstance(value, pd.DataFrame):
        return plain(value.to_dict("records"))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return _plain_cell(value)


def read_bytes(file: Path) -> bytes:
    """Read a file of bounded size."""
    try:
        return read_limited(file, LARGEST_FILE)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; name the folder of a report") from None


def read_content(file: Path, form: str = FORMAT) -> dict[str, Any]:
    """Read ``results.json`` as plain values. Raise a DataError if it is missing or damaged."""
    text = read_bytes(file)
    try:
        content = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON ({error}); name the folder of a report") from None
    if (stored := content.get("format")) != form:
        raise DataError(f"{file} has the format {stored!r} instead of {form!r}; make it again")
    return content
