"""Sellers in a file of the user's own, for markets that a problem file declares whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from convexmarket.data.lists import read_list
from convexmarket.errors import DataError
from convexmarket.lab.problem.base import ProblemModel
from convexmarket.lab.problem.declared import MarketTable, ReportsTable
from convexmarket.market import Market
from convexmarket.priors import Prior

__all__ = ["Lists", "market_of", "read_lists"]

#: What a list's errors call a column, and the key of the problem file that names it.
_KEYS = {
    "--id-column (id in Python)": "sellers.id",
    "--sensitivity-column (ask in Python)": "sellers.report",
    "--group-column (group in Python)": "sellers.group",
}
#: The sellers of each file, as they are checked against each prior.
Lists = Mapping[tuple[ReportsTable, Prior | None], pd.DataFrame]


def read_lists(problem: ProblemModel, tables: Iterable[MarketTable]) -> Lists:
    """Read the files that markets name, each once for each prior.

    Raises
    ------
    DataError
        If a file cannot be read, or holds a bad row; the message names the lines.
    """
    lists: dict[tuple[ReportsTable, Prior | None], pd.DataFrame] = {}
    for table in tables:
        named = table.sellers
        if named.file is None:
            continue
        key = named, table.prior
        if key not in lists:
            lists[key] = _read(problem.file(named.file), named, table.priors[""])
    return lists


def _read(path: Path, named: ReportsTable, prior: Prior) -> pd.DataFrame:
    try:
        return read_list(path, prior, named.id, named.report, named.group)
    except DataError as error:
        words = str(error)
        for option, key in _KEYS.items():
            words = words.replace(option, key)
        raise DataError(words) from None


def market_of(table: MarketTable, seed: int, lists: Lists) -> Market:
    """Return the market of a table, with the sellers of its file where it names one."""
    return table.build(seed, lists.get((table.sellers, table.prior)))
