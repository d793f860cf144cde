"""CSV lists for an online market: arrivals to quote, and answers to record.

A list is checked as a whole before the first step, because a step cannot be undone. Steps that were
done before stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import pandas as pd

from convexmarket.data.columns import ID_NAMES
from convexmarket.data.csv_rows import read_texts
from convexmarket.data.lists import (
    blame,
    blank,
    checked_ids,
    clipped,
    column_named,
    read_list,
)
from convexmarket.errors import DataError, MarketClosedError
from convexmarket.online.online_market import OnlineMarket

__all__ = ["QuotedList", "answer_list", "quote_list"]

Answer = Literal["accepted", "declined"]
#: Called with the stage, the steps done and the steps in all.
Progress: TypeAlias = Callable[[str, int, int], None]
#: Status of a seller with an offer of zero.
NOTHING = "nothing bought"
#: Sellers of a list in one transaction.
TOGETHER = 10_000


@dataclass(frozen=True, eq=False)
class QuotedList:
    """Offers to a list of arrivals, and numbers of sellers quoted before and turned away."""

    offers: pd.DataFrame
    repeated: int
    turned_away: int


def quote_list(
    market: OnlineMarket,
    path: str | Path,
    id_column: str | None = None,
    sensitivity_column: str | None = None,
    progress: Progress | None = None,
) -> QuotedList:
    """Quote the sellers of a CSV file, in its order; sellers quoted before keep their terms.

    Without names, the columns are recognised by common names. ``progress`` is called with the
    stage, the steps done and all steps. A list with a bad row is a DataError that names the lines.

    Raises
    ------
    MarketClosedError
        If the market was closed and the list has sellers that were not quoted before.
    """
    place = f"{path}: line"
    listed = read_list(path, market.policy.prior, id_column, sensitivity_column)
    known = _known(market)
    _check_terms(listed, known, place)
    new = listed[~listed["id"].isin(known.index)]
    if len(new) and market.is_closed:
        raise MarketClosedError(
            f"the market in {market.folder} was closed, and {len(new)} sellers of {path} were not "
            f"quoted before ({new['id'].iloc[0]}, for one); quote them in another market"
        )
    repeated, total = len(listed) - len(new), len(listed)
    done = repeated
    if progress is not None:
        progress("quote", done, total)
    try:
        stream = zip(new["id"].tolist(), new["sensitivity"].tolist(), strict=True)
        for done, _ in enumerate(market.quote_many(stream, TOGETHER), start=repeated + 1):
            if progress is not None:
                progress("quote", done, total)
    except MarketClosedError:
        pass  # the market is full; the database has the quotes
    known = _known(market)
    offers = known.reindex(listed["id"][listed["id"].isin(known.index)]).reset_index()
    columns = ["id", "number", "sensitivity", "epsilon", "payment", "status"]
    return QuotedList(offers[columns], repeated, len(listed) - len(offers))


def answer_list(
    market: OnlineMarket,
    path: str | Path,
    answer: Answer,
    id_column: str | None = None,
    progress: Progress | None = None,
) -> int:
    """Record the same answer of every seller of a CSV file; return the number of sellers.

    Sellers with the status "nothing bought" in the file are passed over.

    Raises
    ------
    DataError
        If the list cannot be read, or a seller cannot give this answer; the message names the
        lines. No answer was recorded then.
    """
    table = read_texts(path)
    ids = table[column_named(table, id_column, ID_NAMES, "--id-column")]
    ids = ids[~blank(ids)]
    if ids.empty:
        raise DataError(f"{path}: no id in the list; give one row per seller")
    if "status" in table:
        ids = ids[table["status"].loc[ids.index] != NOTHING]
    if ids.empty:
        raise DataError(
            f"{path}: no seller in the list was offered anything, so there is nothing to answer"
        )
    lines, place = ids.index.to_numpy(), f"{path}: line"
    ids = checked_ids(ids, place)
    statuses = ids.map(_known(market)["status"])
    other = "declined" if answer == "accepted" else "accepted"
    checks: list[tuple[pd.Series[bool], str]] = [
        (statuses.isna(), "was not quoted; quote the seller first"),
        (statuses == NOTHING, "was offered nothing, so there is nothing to answer"),
        (statuses == other, f"has {other} already, and an answer cannot be taken back"),
    ]
    if market.is_closed:
        checks.append((statuses == "offered", "did not answer before the market was closed"))
    for wrong, why in checks:
        bad = np.flatnonzero(wrong)
        if bad.size:
            raise DataError(blame(place, lines[bad], clipped(ids.iloc[bad[0]]), why))
    for start in range(0, len(ids), TOGETHER):
        together = ids.iloc[start : start + TOGETHER]
        market.answer(together, answer)
        if progress is not None:
            progress("answer", start + len(together), len(ids))
    return len(ids)


def _known(market: OnlineMarket) -> pd.DataFrame:
    """Return all offers by id."""
    return market.offers().set_index("id")


def _check_terms(listed: pd.DataFrame, known: pd.DataFrame, place: str) -> None:
    """Refuse sellers who were quoted at another report, with their lines."""
    before = listed["id"].map(known["sensitivity"])
    bad = np.flatnonzero(before.notna() & (before != listed["sensitivity"]))
    if bad.size:
        raise DataError(
            blame(
                place,
                listed.index.to_numpy()[bad],
                clipped(listed["id"].iloc[bad[0]]),
                "reports another sensitivity here than it was quoted at; a seller is quoted once",
            )
        )
