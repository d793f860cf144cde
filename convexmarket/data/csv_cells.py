"""Quote the text in the cells of CSV files so that it is read back unchanged.

A spreadsheet evaluates a cell that begins with certain characters as a formula. A spreadsheet that
assumes another separator splits a text into several cells. Therefore, all text is quoted, and an
apostrophe is inserted where a formula could begin. :func:`unguarded` removes the apostrophes.
"""

from __future__ import annotations

import re
from typing import Any, TextIO

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["guarded", "may_be_guarded", "unguarded", "write_csv"]

#: Number of rows that are written at a time.
PIECE = 100_000
#: Characters that start a formula, and their full-width forms.
_SIGNS = "=+@\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH COMMERCIAL AT}"
_SIGNS += "\N{FULLWIDTH HYPHEN-MINUS}-"
_ANY_SIGN = re.compile(f"[{_SIGNS}]")
#: Pattern of the start of a cell, and of the apostrophes before a character that starts a formula.
_BEGINNING = re.compile(rf"""((?:^|[,;|])[\s"]*)('*)(?=[{_SIGNS}])""")
#: Pattern of tabs and line breaks in a text.
_TEARS = re.compile("[\t\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")
#: Pyarrow pattern that matches every text that :func:`guarded` changes, and a few other texts.
_RISKY = (
    rf"""(?:^|[,;|])[\s\pZ\x1c-\x1f\x{{85}}"]*'*[{_SIGNS}]"""
    r"|[\t\n\v\f\r\x1c-\x1e\x{85}\x{2028}\x{2029}]"
)


def guarded(text: str) -> str:
    r"""Convert a text so that no spreadsheet evaluates it as a formula.

    Line breaks are replaced by spaces.

    Examples
    --------
    >>> guarded("=A1"), guarded("a-5"), guarded("x;=A1"), guarded("Ann\rB")
    ("'=A1", 'a-5', "x;'=A1", 'Ann B')
    """
    text = _TEARS.sub(" ", text)
    return _BEGINNING.sub(r"\1'\2", text) if _ANY_SIGN.search(text) else text


def unguarded(text: str) -> str:
    """Invert :func:`guarded`, except for line breaks.

    Examples
    --------
    >>> [unguarded(guarded(text)) for text in ("=A1", "'=A1", "-5", "x;=A1", "O'Neil")]
    ['=A1', "'=A1", '-5', 'x;=A1', "O'Neil"]
    """
    return _BEGINNING.sub(lambda match: match[1] + match[2][1:], text) if "'" in text else text


def may_be_guarded(column: Any) -> bool:
    """Test whether :func:`unguarded` can change a text of this pyarrow column."""
    return bool(pc.any(pc.match_substring_regex(column, f"'[{_SIGNS}]")).as_py())


def write_csv(table: pd.DataFrame, file: TextIO) -> None:
    """Write a table without its index as CSV. Quote text, and protect it by :func:`guarded`.

    Missing values are written as empty cells.
    """
    import pyarrow.csv

    names = [guarded(str(name)) for name in table.columns]
    for start in range(0, max(len(table), 1), PIECE):
        piece = table.iloc[start : start + PIECE]
        columns = [_cells(piece.iloc[:, place]) for place in range(len(names))]
        text = pa.BufferOutputStream()
        header = pyarrow.csv.WriteOptions(include_header=start == 0)
        pyarrow.csv.write_csv(pa.Table.from_arrays(columns, names), text, header)
        file.write(str(text.getvalue(), "utf-8"))


def _cells(column: pd.Series[Any]) -> Any:
    """Convert a column to a pyarrow array of numbers or of guarded text."""
    if pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column):
        return pa.array(column, from_pandas=True)
    if not isinstance(column.dtype, pd.StringDtype):
        missing = zip(column.tolist(), column.isna().tolist(), strict=True)
        column = pd.Series([None if absent else str(value) for value, absent in missing])
    cells = pa.array(column, pa.large_string())
    risky = pc.match_substring_regex(cells, _RISKY)
    if not pc.any(risky).as_py():
        return cells
    safe = [guarded(text) for text in cells.filter(risky).to_pylist()]
    return pc.replace_with_mask(cells, risky, pa.array(safe, cells.type))
