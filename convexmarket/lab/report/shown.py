"""Tables as text: the rows and cells that the page, the Markdown and LaTeX all show."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from convexmarket.lab.report.model import Table
from convexmarket.lab.report.words import format_value

__all__ = ["Column", "ShownTable", "shown_table"]

LONGEST_WORD = 24  # characters of a cell that stay on one line


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
    """Turn the first rows of a table into text."""
    frame = table.frame.head(table.rows_shown)
    columns = []
    for position, name in enumerate(frame.columns):
        values = frame.iloc[:, position]
        spec = table.formats.get(name, "")
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
