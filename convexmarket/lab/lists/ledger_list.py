"""Sales that a list says: the offers that ``convexmarket price`` wrote, written into a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from convexmarket.data.columns import ID_NAMES
from convexmarket.data.csv_format import numbers_in
from convexmarket.errors import DataError
from convexmarket.lab.lists.reading import (
    blame,
    checked_ids,
    column_named,
    digest,
    read_reports,
)
from convexmarket.ledger import Ledger

__all__ = ["read_sales", "record_list"]

EPSILON_NAMES, PRICE_NAMES = ("epsilon", "eps"), ("payment", "price")


def read_sales(
    path: str | Path,
    id_column: str | None = None,
    epsilon_column: str | None = None,
    price_column: str | None = None,
) -> pd.DataFrame:
    """Return what a CSV file says was sold; nothing is recorded.

    Parameters
    ----------
    path : path of a CSV file
    id_column, epsilon_column, price_column : str, optional
        Their columns, where they are not called id, epsilon and payment or price.

    Returns
    -------
    DataFrame
        Columns id, epsilon and price; the index holds the lines.

    Raises
    ------
    DataError
        If the file cannot be read, holds a bad row, or offers that were not accepted; the message
        names the lines.
    """
    table, place = read_reports(path), f"{path}: line"
    if table.empty:
        raise DataError(f"{path}: there is no seller in it; give one row per seller")
    status = next((name for name in table if str(name).strip().lower() == "status"), None)
    if status is not None:
        open_offers = np.flatnonzero(table[status].str.strip().str.lower() != "accepted")
        if open_offers.size:
            lines = table.index.to_numpy()[open_offers]
            why = "is not 'accepted': only what was accepted is sold; leave the others out"
            raise DataError(blame(place, lines, f"the cell of the column {status!r}", why))
    ids = checked_ids(table[column_named(table, id_column, ID_NAMES, "--id-column")], place)
    columns = {
        "epsilon": _amounts(table, epsilon_column, EPSILON_NAMES, "--epsilon-column", place),
        "price": _amounts(table, price_column, PRICE_NAMES, "--price-column", place),
    }
    return pd.DataFrame({"id": ids, **columns})


def record_list(
    ledger: Ledger,
    path: str | Path,
    release: str | None = None,
    *,
    again: bool = False,
    id_column: str | None = None,
    epsilon_column: str | None = None,
    price_column: str | None = None,
) -> tuple[int, int]:
    """Write down all sales of a CSV file, or none.

    Parameters
    ----------
    ledger : Ledger
    path : path of a CSV file
        As for :func:`read_sales`.
    release : str, optional
        The only release that may use what was sold.
    again : bool, default False
        Whether a list with the very same bytes may have been recorded before.
    id_column, epsilon_column, price_column : str, optional
        As for :func:`read_sales`.

    Returns
    -------
    sales, rows : int
        How many sellers sold something, of how many.

    Raises
    ------
    DataError
        As :func:`read_sales`, or if the list was recorded before, or the ledger is a market's.
    """
    if ledger.of_market:
        raise DataError(
            f"{ledger.path} is an online market's, which writes a sale when an offer is accepted:"
            " record lists in a ledger of their own"
        )
    table = read_sales(path, id_column, epsilon_column, price_column)
    source = None if again else f"sha256:{digest(Path(path))}"
    columns = table["id"].tolist(), table["epsilon"].to_numpy(), table["price"].to_numpy()
    return ledger.sell(*columns, release=release, source=source), len(table)


def _amounts(
    table: pd.DataFrame, given: str | None, names: tuple[str, ...], option: str, place: str
) -> pd.Series[Any]:
    """Return a column of finite numbers >= 0, or say which lines hold others."""
    texts = table[column_named(table, given, names, option)]
    numbers = numbers_in(texts)
    bad = np.flatnonzero(~(np.isfinite(numbers) & (numbers >= 0)))
    if bad.size:
        cell = f"the cell of the column {texts.name!r}"
        why = "is no finite number >= 0"
        raise DataError(blame(place, table.index.to_numpy()[bad], cell, why))
    return numbers
