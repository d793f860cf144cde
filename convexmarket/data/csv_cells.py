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

__all__ = ["guarded", "unguarded", "write_csv"]

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


def write_csv(table: pd.DataFrame, file: TextIO) -> None:
    """Write a table without its index; numbers are bare, text is quoted and guarded.

    Missing values are empty.
    """
    writer = csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow([guarded(str(name)) for name in table.columns])
    for start in range(0, len(table), PIECE):
        piece = table.iloc[start : start + PIECE]
        columns = [_cells(piece.iloc[:, place]) for place in range(piece.shape[1])]
        writer.writerows(zip(*columns, strict=True))


def _cells(column: pd.Series[Any]) -> Iterator[Any]:
    missing = column.isna().tolist() if column.hasnans else [False] * len(column)
    for value, absent in zip(column.tolist(), missing, strict=True):
        if absent:
            yield None
        else:
            yield value if isinstance(value, int | float) else guarded(str(value))
