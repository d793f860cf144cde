"""Text in the cells of the CSV files that are written, and read back as it was.

A spreadsheet runs a cell that begins with one of a few signs as a formula, and one that takes
another sign for the separator finds cells within a text. So all text is quoted, and where a formula
could begin there stands one apostrophe more, which :func:`unguarded` takes away.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["guarded", "may_be_guarded", "unguarded", "write_csv"]

#: Rows that are written at a time.
PIECE = 100_000
#: With which a formula begins, also in their full width.
_SIGNS = "=+@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH COMMERCIAL AT}"
_SIGNS += "\N{FULLWIDTH HYPHEN-MINUS}-"
_ANY_SIGN = re.compile(f"[{_SIGNS}]")
#: Where a cell begins, or would for whom another sign separates cells; apostrophes; a sign.
_BEGINNING = re.compile(rf"""((?:^|[,;|])[\s"]*)('*)(?=[{_SIGNS}])""")
#: Tabs and what ends a line, somewhere.
_TEARS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
#: What :func:`guarded` changes, and little else, as pyarrow searches columns for it.
_RISKY = (
    rf"""(?:^|[,;|])[\s\pZ\x1c-\x1f\x{{85}}"]*'*[{_SIGNS}]"""
    r"|[\t\n\v\f\r\x1c-\x1e\x{85}\x{2028}\x{2029}]"
)


def guarded(text: str) -> str:
    r"""Return text that no spreadsheet runs, in one line.

    What ends a line becomes a blank.

    Examples
    --------
    >>> guarded("=A1"), guarded("a-5"), guarded("x;=A1"), guarded("Ann\rB")
    ("'=A1", 'a-5', "x;'=A1", 'Ann B')
    """
    text = _TEARS.sub(" ", text)
    return _BEGINNING.sub(r"\1'\2", text) if _ANY_SIGN.search(text) else text


def unguarded(text: str) -> str:
    """Return what :func:`guarded` was given, but for the ends of lines.

    Examples
    --------
    >>> [unguarded(guarded(text)) for text in ("=A1", "'=A1", "-5", "x;=A1", "O'Neil")]
    ['=A1', "'=A1", '-5', 'x;=A1', "O'Neil"]
    """
    return _BEGINNING.sub(lambda found: found[1] + found[2][1:], text) if "'" in text else text


def may_be_guarded(column: Any) -> bool:
    """Whether :func:`unguarded` may change a text of this column of pyarrow."""
    return bool(pc.any(pc.match_substring_regex(column, f"'[{_SIGNS}]")).as_py())


def write_csv(table: pd.DataFrame, file: TextIO) -> None:
    """Write a table without its index; numbers are bare, text is quoted and guarded.

    Missing values are empty.
    """
    if len(table) >= PIECE and all(map(_is_plain, table.dtypes)):
        _write_columns(table, file)
        return
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([guarded(str(name)) for name in table.columns])
    for start in range(0, len(table), PIECE):
        piece = table.iloc[start : start + PIECE]
        columns = [_cells(piece.iloc[:, place]) for place in range(piece.shape[1])]
        writer.writerows(zip(*columns, strict=True))


def _is_plain(kind: Any) -> bool:
    return isinstance(kind, pd.StringDtype) or kind in ("float64", "int64")


def _write_columns(table: pd.DataFrame, file: TextIO) -> None:
    """Write a long table of numbers and texts by pyarrow."""
    import pyarrow.csv

    for start in range(0, len(table), PIECE):
        piece = pa.Table.from_pandas(table.iloc[start : start + PIECE], preserve_index=False)
        for place, column in enumerate(piece.columns):
            if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
                piece = piece.set_column(place, piece.field(place).name, _all_guarded(column))
        piece = piece.rename_columns([guarded(str(name)) for name in piece.column_names])
        text = pa.BufferOutputStream()
        header = pyarrow.csv.WriteOptions(include_header=start == 0)
        pyarrow.csv.write_csv(piece, text, header)
        file.write(str(text.getvalue(), "utf-8"))


def _all_guarded(column: Any) -> Any:
    column = column.combine_chunks()
    risky = pc.match_substring_regex(column, _RISKY)
    if not pc.any(risky).as_py():
        return column
    safe = [guarded(text) for text in column.filter(risky).to_pylist()]
    return pc.replace_with_mask(column, risky, pa.array(safe, column.type))


def _cells(column: pd.Series[Any]) -> Iterator[Any]:
    missing = column.isna().tolist() if column.hasnans else [False] * len(column)
    for value, absent in zip(column.tolist(), missing, strict=True):
        if absent:
            yield None
        else:
            yield value if isinstance(value, int | float) else guarded(str(value))
