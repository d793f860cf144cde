"""Tables of other libraries and in files, as DataFrames."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

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
        A path that ends in .parquet is read as Parquet, any other as CSV with a header.

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
            return pd.read_parquet(path)
        return pd.read_csv(path)
    except (OSError, ValueError, ImportError) as error:
        raise DataError(f"{path} cannot be read as a table: {error}") from error
