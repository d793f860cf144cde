"""The file ``results.json`` of a report: everything that the report says, its tables exactly.

A table is stored as its columns, dtypes and rows. In a column of floats NaN is null and infinities
are text. A long table is stored as Parquet in ``tables/``, with its checksum in ``results.json``.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.data.files import read_limited
from convexmarket.errors import DataError, ParameterError
from convexmarket.report.tables import Table

__all__ = [
    "RESULTS",
    "is_report",
    "plain",
    "read_bytes",
    "read_content",
    "restored_table",
    "stored_table",
    "tidy",
    "write_content",
]

RESULTS = "results.json"
FORMAT = "convexmarket-report/1"
#: Tables with more cells are stored as Parquet.
MOST_CELLS = 2_000
LARGEST_FILE = 500_000_000
_SIMPLE = ("bool", "int", "uint", "float", "str")


def is_report(folder: Path) -> bool:
    """Return whether a folder holds the ``results.json`` of a report."""
    file = folder / RESULTS
    if not file.is_file():
        return False
    with open(file, "rb") as content:
        return b'"format": "convexmarket-' in content.read(100)


def tidy(name: str, frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame with text as column names and cells that are numbers, text or missing.

    Named levels of the index become columns. Cells of other types are stored as their text.
    """
    if any(level is not None for level in frame.index.names):
        frame = frame.reset_index()
    columns = [" ".join(map(str, c)) if isinstance(c, tuple) else str(c) for c in frame]
    if len(set(columns)) < len(columns):
        raise ParameterError(f"the table {name!r} has two columns of the same name; rename one")
    frame = frame.set_axis(columns, axis=1).reset_index(drop=True)
    return frame.assign(**{c: _tidy_column(frame[c]) for c in columns})


def _tidy_column(values: pd.Series) -> pd.Series:
    if str(values.dtype).startswith(_SIMPLE):
        return values
    cells = [None if pd.api.types.is_scalar(cell) and pd.isna(cell) else cell for cell in values]
    if cells and all(isinstance(cell, bool | np.bool_) for cell in cells):
        return values.astype(bool)
    if pd.api.types.is_numeric_dtype(values.dtype):  # nullable numbers
        return values.astype(float)
    plain = [_plain_cell(cell) for cell in cells]
    kinds = {type(cell) for cell in plain if cell is not None}
    return pd.Series(plain, values.index, "str" if kinds <= {str} else object)


def _plain_cell(cell: Any) -> Any:
    cell = cell.item() if isinstance(cell, np.generic) else cell
    return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)


def _cells(values: pd.Series) -> list[Any]:
    if str(values.dtype) == "str":
        return [cell if isinstance(cell, str) else None for cell in values]
    return [_exact(cell) for cell in values.tolist()]


def _exact(cell: Any) -> Any:
    """Return a cell that strict JSON can hold."""
    if isinstance(cell, float) and not math.isfinite(cell):
        return None if math.isnan(cell) else ("Infinity" if cell > 0 else "-Infinity")
    return cell


def stored_table(table: Table, folder: Path) -> dict[str, Any]:
    """Describe a table as plain values, with its rows or the checksum of its Parquet file."""
    frame = table.frame
    described = {
        **{name: getattr(table, name) for name in ("name", "caption", "rows", "appendix")},
        **{name: dict(getattr(table, name)) for name in ("formats", "headers")},
        "private": table.private,
        "keys": list(table.keys),
        "columns": list(frame.columns),
        "dtypes": [str(dtype) for dtype in frame.dtypes],
    }
    mixed = any(str(dtype) == "object" for dtype in frame.dtypes)
    if frame.size <= MOST_CELLS or mixed:
        columns = [_cells(frame[name]) for name in frame]
        return described | {"data": [list(row) for row in zip(*columns, strict=True)]}
    packed = BytesIO()
    frame.to_parquet(packed, index=False, compression="zstd", compression_level=19)
    (folder / "tables").mkdir(exist_ok=True)
    (folder / f"tables/{table.name}.parquet").write_bytes(packed.getvalue())
    return described | {"parquet_sha256": hashlib.sha256(packed.getvalue()).hexdigest()}


def restored_table(stored: Mapping[str, Any], folder: Path) -> Table:
    """Read a table from its description.

    Raises
    ------
    DataError
        If its Parquet file is missing or was changed after it was written.
    """
    name, columns = stored["name"], stored["columns"]
    if "parquet_sha256" in stored:
        content = read_bytes(folder / f"tables/{name}.parquet")
        if hashlib.sha256(content).hexdigest() != stored["parquet_sha256"]:
            raise DataError(f"tables/{name}.parquet was changed after its checksum was stored")
        frame = pd.read_parquet(BytesIO(content))
    else:
        cells = zip(*stored["data"], strict=True) if stored["data"] else [[]] * len(columns)
        frame = pd.DataFrame(
            {
                column: _column(dtype, list(values))
                for column, dtype, values in zip(columns, stored["dtypes"], cells, strict=True)
            }
        )
    options = ("caption", "keys", "formats", "headers", "rows", "appendix", "private")
    return Table(name=name, frame=frame, **{option: stored[option] for option in options})


def _column(dtype: str, cells: list[Any]) -> pd.Series:
    if dtype.startswith("float"):
        cells = [math.nan if cell is None else float(cell) for cell in cells]
    return pd.Series(cells, dtype=dtype)


# ------------------------------------------------------------------------- the whole file


def write_content(content: dict[str, Any], folder: Path) -> None:
    """Write ``results.json``: a line for each key and for each row of a table."""
    content = {"format": FORMAT} | content
    (folder / RESULTS).write_text("".join(_lines(content)) + "\n", encoding="utf-8")


def _lines(value: Any, indent: str = "", depth: int = 4) -> Iterator[str]:
    brackets = "{}" if isinstance(value, dict) else "[]"
    if not isinstance(value, dict | list) or not value or not depth:
        yield json.dumps(value, ensure_ascii=False, allow_nan=False)
        return
    deeper = indent + " "
    for number, item in enumerate(value):
        yield f"{',' if number else brackets[0]}\n{deeper}"
        if isinstance(value, dict):
            yield f"{json.dumps(item, ensure_ascii=False)}: "
        yield from _lines(value[item] if isinstance(value, dict) else item, deeper, depth - 1)
    yield f"\n{indent}{brackets[1]}"


def plain(value: Any) -> Any:
    """Convert settings to plain values of strict JSON; other objects become their text."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return _exact(value) if value is None or isinstance(value, bool | int | float) else str(value)


def read_bytes(file: Path) -> bytes:
    """Read a file of bounded size."""
    try:
        return read_limited(file, LARGEST_FILE)
    except OSError as error:
        raise DataError(f"{file}: {error.strerror}; name the folder of a report") from None


def read_content(file: Path) -> dict[str, Any]:
    """Read ``results.json`` as plain values.

    Raises
    ------
    DataError
        If the file is missing, no JSON, or of another format.
    """
    try:
        content = json.loads(read_bytes(file))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{file} is not valid JSON ({error}); name the folder of a report"
        ) from None
    found = content.get("format") if isinstance(content, dict) else None
    if found != FORMAT:
        raise DataError(
            f"{file} has the format {found!r}, and {FORMAT!r} can be read; run the experiment again"
        )
    return dict(content)
