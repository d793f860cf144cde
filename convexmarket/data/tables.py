"""Convert files, and tables of other libraries, to DataFrames."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from convexmarket.data.csv_rows import MOST_CELLS, numbers_in, read_texts
from convexmarket.data.files import open_parquet
from convexmarket.errors import DataError

__all__ = ["as_frame", "read_parquet", "read_rows", "read_table"]


def as_frame(table: Any) -> pd.DataFrame:
    """Convert a dictionary, or a table of pandas, Polars or pyarrow, to a DataFrame.

    Raises
    ------
    DataError
        If the table has another type.
    """
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, dict):
        return pd.DataFrame(table)
    if hasattr(table, "to_pandas"):
        return as_frame(table.to_pandas())
    raise DataError(
        f"a {type(table).__name__} is not a table with named columns; pass a DataFrame, or a table"
        " of Polars or pyarrow"
    )


def read_table(table: Any, na_values: str | Sequence[str] = ()) -> pd.DataFrame:
    """Convert a table to a DataFrame, or read a CSV or Parquet file into a DataFrame.

    A path that ends in .parquet is read as Parquet, and any other path as CSV with a header. The
    separator and decimal commas of a CSV file are detected. A CSV column is numeric if each filled
    cell is a number. Columns without a name are skipped. In a CSV file, texts in ``na_values`` mark
    empty cells.
    """
    return read_rows(table, na_values)[0]


def read_rows(
    table: Any, na_values: str | Sequence[str] = (), texts: Sequence[str] = ()
) -> tuple[pd.DataFrame, pd.Index[int], str]:
    """Read a table like :func:`read_table`. Also return row numbers, and their prefix in messages.

    The columns ``texts`` of a CSV file are not converted.
    """
    if not isinstance(table, str | PathLike):
        rows, place = as_frame(table), "row"
    elif (path := Path(table)).suffix == ".parquet":
        with open_parquet(path) as stored:
            rows, place = stored.read().to_pandas(), f"{path}: row"
    else:
        written = read_texts(path, na_values=na_values)
        columns = {
            name: written[name] if name in texts else _typed(written[name])
            for name in written
            if name
        }
        rows = pd.DataFrame(columns, index=written.index).reset_index(drop=True)
        return rows, written.index, f"{path}: line"
    return rows, pd.RangeIndex(1, len(rows) + 1), place


def _typed(texts: pd.Series[Any]) -> pd.Series[Any]:
    """Convert a text column to numbers if each filled cell is a number. Empty cells are missing."""
    filled = texts[texts.str.strip() != ""]
    numbers = numbers_in(filled)
    if filled.empty or numbers.isna().any():
        return filled.reindex(texts.index)
    if len(filled) == len(texts) and filled.str.fullmatch(r"\s*-?[0-9]{1,18}\s*").all():
        return filled.astype("int64")
    return numbers.reindex(texts.index)


def read_parquet(path: str | Path, choose: Callable[[list[str]], Sequence[str]]) -> pd.DataFrame:
    """Read the columns of a Parquet file that ``choose`` returns. Rows are numbered from 1.

    Raises
    ------
    DataError
        If the file cannot be read, or is too large for memory.
    """
    with open_parquet(path) as stored:
        names = list(choose(stored.schema_arrow.names))
        if stored.metadata.num_rows * len(names) > MOST_CELLS:
            raise DataError(
                f"{path}: a table that is held in memory has at most {MOST_CELLS:,} cells"
            )
        frame = stored.read(columns=names).to_pandas(ignore_metadata=True)[names]
    return frame.set_axis(pd.RangeIndex(1, len(frame) + 1))
