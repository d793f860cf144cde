"""Tables as text: the rows and cells that the page, the Markdown and LaTeX all show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.lab.report.model import Table
from convexmarket.lab.report.words import format_value

__all__ = ["Column", "ShownTable", "shown_table"]

LONGEST_WORD = 24  # characters of a cell that stay on one line
#: So many rows more than a page would show are shown, too.
FEW_MORE = 20
#: Significant digits of a column's largest and smallest number, and the most that are written.
LARGEST, SMALLEST, MOST = 4, 2, 7


@dataclass(frozen=True)
class Column:
    """One column of a table as the page shows it.

    Attributes
    ----------
    header : str
    kind : str
        "number", "word" (short, kept on one line) or "text".
    cells : list of str
    keys : list of str
        What to sort a cell by as a number; empty where that is the cell itself, or no number.
    """

    header: str
    kind: str
    cells: list[str]
    keys: list[str]


@dataclass(frozen=True)
class ShownTable:
    """A table as the page shows it: text, and how many rows there are in all."""

    name: str
    caption: str
    columns: list[Column]
    n_rows: int
    n_shown: int

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The cells, row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))


def shown_table(table: Table) -> ShownTable:
    """Turn a table into text: all of it, or if it is long its first rows."""
    few = len(table.frame) <= table.rows_shown + FEW_MORE
    frame = table.frame if few else table.frame.head(table.rows_shown)
    columns = []
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position]
        spec = table.formats.get(name) or _decimals(values)
        cells = [format_value(value, spec) for value in values]
        keys = [_key(value, cell) for value, cell in zip(values, cells, strict=True)]
        header = table.headers.get(name, str(name).replace("_", " "))
        columns.append(Column(header, _kind(values, cells), cells, keys))
    return ShownTable(table.name, table.caption, columns, len(table.frame), len(frame))


def _kind(values: pd.Series, cells: list[str]) -> str:
    dtype = values.dtype
    if pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype):
        return "number"
    return "word" if all(len(cell) <= LONGEST_WORD for cell in cells) else "text"


def _decimals(values: pd.Series) -> str:
    """Return a format with equally many decimals for a column; nothing where sizes differ much."""
    if not pd.api.types.is_float_dtype(values.dtype):
        return ""
    sizes = values[np.isfinite(values) & (values != 0)].abs().to_numpy(float)
    if not len(sizes):
        return ""
    high, low = (math.floor(math.log10(size)) for size in (sizes.max(), sizes.min()))
    decimals = max(LARGEST - 1 - high, SMALLEST - 1 - low, 0)
    short = [format(size, f".{decimals}f").rstrip("0").partition(".")[2] for size in sizes]
    decimals = max(map(len, short))
    return f",.{decimals}f" if high >= -4 and max(high, 0) + 1 + decimals <= MOST else ""


def _key(value: Any, cell: str) -> str:
    """Return a number's value where its text ("1,234", "∞") does not read as one."""
    if isinstance(value, bool | str):
        return ""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return ""
    try:
        float(cell)
    except ValueError:
        return "" if pd.isna(number) else f"{number:.10g}".replace("inf", "Infinity")
    return ""
