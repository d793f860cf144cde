"""Tables of other libraries and in files, as DataFrames."""

from __future__ import annotations

import re
from io import BufferedReader, TextIOWrapper
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from convexmarket.data.csv_format import encoding_of, numbers_in, separator_of
from convexmarket.data.files import open_parquet, open_regular
from convexmarket.errors import DataError

__all__ = ["as_frame", "read_table"]


def as_frame(table: Any) -> pd.DataFrame:
    """Return a table as a DataFrame, with the index that it has.

    Parameters
    ----------
    table : DataFrame, mapping of str to array_like, or a table of Polars or pyarrow

    Raises
    ------
    DataError
        If it is none.

    Examples
    --------
    >>> as_frame({"age": [40, 51]}).shape
    (2, 1)
    """
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, dict):
        return pd.DataFrame(table)
    if hasattr(table, "to_pandas"):
        return as_frame(table.to_pandas())
    raise DataError(
        f"a {type(table).__name__} is no table with named columns; pass a DataFrame, or a table of"
        " Polars or pyarrow"
    )


def read_table(table: Any) -> pd.DataFrame:
    """Return a table, or that in a CSV or Parquet file, as a DataFrame.

    Parameters
    ----------
    table : path, or what :func:`as_frame` takes
        A path that ends in .parquet is read as Parquet, any other as CSV with a header, whose
        separator and decimal commas are recognised.

    Raises
    ------
    DataError
        If it is no table, or the file cannot be read as one.
    """
    if not isinstance(table, str | PathLike):
        return as_frame(table)
    path = Path(table)
    try:
        if path.suffix == ".parquet":
            with open_parquet(path) as stored:
                return stored.read().to_pandas()
        with open_regular(path) as file:
            return _csv(file)
    except DataError:
        raise
    except UnicodeError:
        raise DataError(f"{path} cannot be read as text; save it as UTF-8") from None
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}; give a CSV or Parquet file") from None
    except ValueError as error:
        at = re.search(r"line \d+", str(error))  # the rest may quote cells
        place = f"{path}: {at[0]}" if at else f"{path}"
        raise DataError(f"{place} cannot be read as CSV; give a header and one row each") from None


def _csv(file: BufferedReader) -> pd.DataFrame:
    """Return the table of a CSV file; a column in which each filled cell is a number is numbers."""
    encoding = encoding_of(file.read(4))
    file.seek(0)
    text = TextIOWrapper(file, encoding=encoding, newline="")
    separator = separator_of(text)
    text.seek(0)
    table = pd.read_csv(text, sep=separator)
    for name in table.select_dtypes(exclude=["number", "bool"]):
        filled = table[name].dropna()
        numbers = numbers_in(filled)
        if len(filled) and numbers.notna().all():
            table[name] = numbers.reindex(table.index)
    return table
