"""Read CSV lists of sellers, and quote them or record their answers.

The whole list is checked before the first transaction, because a commit cannot be undone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias, get_args

import pandas as pd

from convexmarket.data.columns import ID_NAMES
from convexmarket.data.csv_rows import read_texts
from convexmarket.data.lists import blame, blank, checked_ids, clipped, column_named, read_list
from convexmarket.errors import DataError, MarketClosedError
from convexmarket.online.online_market import Answer, OnlineMarket

#: Type of a callback with a stage, the number of finished steps and the number of all steps.
Progress: TypeAlias = Callable[[str, int, int], None]
#: Number of sellers of a file that are quoted, or answer, in one transaction.
TOGETHER = 10_000


def quote_list(
    market: OnlineMarket,
    path: str | Path,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    progress: Progress = lambda *_: None,
) -> tuple[pd.DataFrame, int, int]:
    """Quote the sellers of a CSV file in file order. Earlier quotes do not change.

    Return the offers, the number of sellers who were quoted before, and the number of sellers who
    were turned away. A DataError lists the lines of invalid rows and changed reports.
    """
    listed = read_list(path, market.policy.prior, id_column, sensitivity_column)
    known = market.offers().set_index("id")
    before = listed["id"].map(known["sensitivity"])
    differs = before.notna() & (before != listed["sensitivity"])
    why = "has a different sensitivity in its quote; each seller is quoted only once"
    _refuse(listed["id"][differs], f"{path}: line", why)
    new = listed[~listed["id"].isin(known.index)]
    if len(new) and market.is_closed:
        raise MarketClosedError(
            f"the market in {market.folder} was closed, and {len(new)} sellers of {path} were not "
            f"quoted before (such as {new['id'].iloc[0]}); quote them in another market"
        )
    repeated, total = len(listed) - len(new), len(listed)
    progress("quote", repeated, total)
    with suppress(MarketClosedError):  # the market is full, and all quotes are stored
        stream = zip(new["id"].tolist(), new["sensitivity"].tolist(), strict=True)
        for done, _ in enumerate(market.quote_many(stream, TOGETHER), start=repeated + 1):
            progress("quote", done, total)
    known = market.offers().set_index("id")
    offers = known.reindex(listed["id"][listed["id"].isin(known.index)]).reset_index()
    columns = ["id", "number", "sensitivity", "epsilon", "payment", "status"]
    return offers[columns], repeated, total - len(offers)


def answer_list(
    market: OnlineMarket,
    path: str | Path,
    answer: Answer,
    id_column: str | None = None,
    progress: Progress = lambda *_: None,
) -> int:
    """Record the same answer for all sellers of a CSV file, and return the number of sellers.

    Sellers with the status "nothing bought" in the file are skipped. If a seller cannot give this
    answer, a DataError with the line numbers is raised, and no answer is recorded.
    """
    table, place = read_texts(path), f"{path}: line"
    ids = table[column_named(table, id_column, ID_NAMES, "--id-column")]
    ids = ids[~blank(ids)]
    if "status" in table:
        ids = ids[table["status"].loc[ids.index] != "nothing bought"]
    if ids.empty:
        raise DataError(f"{path}: no seller in the list has an offer to answer")
    ids = checked_ids(ids, place)
    statuses = ids.map(market.offers().set_index("id")["status"])
    _refuse(ids[statuses.isna()], place, "was not quoted; quote the seller first")
    faults = {"nothing bought": "was offered nothing, so there is nothing to answer"}
    for given in get_args(Answer):
        faults[given] = f"has {given} already, and an answer cannot be changed"
    if market.is_closed:
        faults["offered"] = "did not answer before the market was closed"
    for status, why in faults.items():
        _refuse(ids[(statuses == status) & (statuses != answer)], place, why)
    for start in range(0, len(ids), TOGETHER):
        together = ids.iloc[start : start + TOGETHER]
        market.answer(together, answer)
        progress("answer", start + len(together), len(ids))
    return len(ids)


def _refuse(ids: pd.Series[Any], place: str, why: str) -> None:
    """Raise an error with the lines of the ids, unless ``ids`` is empty."""
    if len(ids):
        raise DataError(blame(place, ids.index.to_numpy(), clipped(ids.iloc[0]), why))
