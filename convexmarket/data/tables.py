"""Tables of other libraries, as DataFrames."""

from __future__ import annotations

from typing import Any

import pandas as pd

from convexmarket.errors import DataError

__all__ = ["as_frame"]


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
