"""Sellers in a CSV or Parquet file: their reports and rows, and the public rows.

Only the columns that the problem file names are read, and messages never show the text of a cell
unless the user asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.data.csv_rows import numbers_in, read_texts
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import OTHER
from convexmarket.data.lists import (
    blame,
    blank,
    checked_ids,
    clipped,
    columns_listed,
    is_class,
    report_faults,
)
from convexmarket.data.tables import read_parquet
from convexmarket.errors import DataError
from convexmarket.studies.files.data import OwnData

__all__ = ["SOLD", "People", "check_file", "read_columns", "read_people", "read_public"]

Floats = NDArray[np.float64]

#: The part with the rows for sale.
SOLD = "sold"
#: The branch of the seed that draws the public rows.
_PUBLIC = 1_000


@dataclass(frozen=True, eq=False)
class People:
    """The sellers of a file, with reports and groups if the file has them, and the public rows.

    The parts are "sold", whose index holds the sellers' ids, and those of public rows.
    """

    data: OwnData
    path: Path
    parts: dict[str, pd.DataFrame]
    reports: NDArray[Any] | None
    groups: NDArray[Any] | None

    @property
    def ids(self) -> list[str]:
        """The sellers, in the order of the file."""
        return self.parts[SOLD].index.tolist()

    @property
    def facts(self) -> dict[str, Any]:
        """Names of the features and a description, as data sets have them."""
        names = self.data.public_features.get_feature_names_out()
        text = f"Rows of {self.data.file}, with the ranges and categories of the problem file."
        return {"feature_names": tuple(map(str, names)), "description": text}

    def signed_rows(self, part: str) -> tuple[Floats, Floats]:
        """Return rows of a ball, and labels -1 and 1, of a part."""
        table, classes = self.parts[part], self.data.classes or (None, None)
        positive = (table[self.data.label] == classes[1]).to_numpy(bool)
        return self.data.public_features.transform(table), np.where(positive, 1.0, -1.0)

    def rows(self) -> MarketData | RegressionData:
        """Return rows of a ball with labels -1 and 1, or of the unit box with labels as given."""
        arrays: list[Any] = []
        if self.data.is_classification:
            for part in (SOLD, "validation", "test"):
                arrays += self.signed_rows(part)
            facts = self.facts | {"data_norm": self.data.data_norm}
            return MarketData(*arrays, **facts)
        for part in (SOLD, "test"):
            table = self.parts[part]
            arrays.append(self.data.public_features.transform_to_box(table))
            arrays.append(table[self.data.label].to_numpy(np.float64))
        return RegressionData(*arrays, **self.facts)


def read_people(
    problem: Any,
    group: str | None = None,
    na_values: Sequence[str] = (),
    show_cells: bool = False,
) -> People:
    """Read the sellers and the public rows of a problem with a prior and :class:`OwnData`.

    ``group`` is the column of the sellers' groups; errors name lines and ids.
    """
    data: OwnData = problem.data
    path = problem.place(data.file)
    table = _own_table(problem, {group: "--group-column"}, na_values)
    frame, reports, groups = table.frame, None, None
    table.ids = [f"{table.unit}-{line}" for line in frame.index]
    if data.id is not None:
        table.ids = checked_ids(_texts(frame[data.id]), table.place).tolist()
    if data.report is not None:
        reports = numbers_in(frame[data.report])
        for wrong, why in report_faults(reports, problem.prior):
            shown = ""
            if show_cells and wrong.any():
                shown = f" {clipped(frame[data.report][wrong].iloc[0])}"
            table.refuse(wrong, f"the report{shown}", why)
    rows = table.rows(data, getattr(problem.learner, "options", {}).get("target_range"))
    rows = rows.set_axis(pd.Series(table.ids, dtype=object))
    if group is not None:
        groups = _texts(frame[group])
        table.refuse(blank(groups), f"the group (column {group!r})", "is missing")
    parts = drawn(rows, data.public_shares, problem.run.seed, path) | read_public(
        problem, na_values
    )
    sold = rows.index.isin(parts[SOLD].index)
    columns = (None if column is None else column.to_numpy()[sold] for column in (reports, groups))
    return People(data, path, parts, *columns)


def check_file(problem: Any) -> None:
    """Check that the file of rows, if it exists, has the declared columns."""
    if os.path.lexists(problem.place(problem.data.file)):
        _own_table(problem)


def read_public(problem: Any, na_values: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """Read the files of public rows, by purpose."""
    data: OwnData = problem.data
    return {
        part: _Table(data, problem.place(name), {}, na_values).rows(data)
        for part, name in data.public.items()
        if isinstance(name, str)
    }


def drawn(
    rows: pd.DataFrame, shares: Mapping[str, float], seed: int, path: Path
) -> dict[str, pd.DataFrame]:
    """Split the file into rows for sale and drawn public rows, in the order of the file."""
    stream = np.random.SeedSequence(seed, spawn_key=(_PUBLIC,))
    order = np.random.default_rng(stream).permutation(len(rows))
    ends = np.cumsum([round(share * len(rows)) for share in shares.values()], dtype=int)
    chosen = zip([*shares, SOLD], np.split(order, ends), strict=True)
    parts = {part: rows.iloc[np.sort(places)] for part, places in chosen}
    if few := [part for part, taken in parts.items() if not len(taken)]:
        raise DataError(
            f"{path}: {len(rows)} rows are too few: no rows are left for {few[0]!r}; give other "
            "shares (data.public), or more rows"
        )
    return parts


class _Table:
    """Columns of a file: those of features and label, and others by their keys.

    The index counts the lines; ``ids`` names the sellers in errors.
    """

    def __init__(
        self,
        data: OwnData,
        path: Path,
        others: Mapping[str | None, str],
        na_values: Sequence[str] = (),
    ) -> None:
        columns = {data.label: "data.label", **others}
        keys = {column: key for column, key in columns.items() if column is not None}
        keys |= {column: f"data.features.{column}" for column in data.features}
        parquet = data.source == "parquet"
        self.unit = "row" if parquet else "line"
        self.place = f"{path}: {self.unit}"
        self.ids: list[str] | None = None
        self.frame = read_columns(path, parquet, keys, na_values)
        if self.frame.empty:
            raise DataError(f"{path}: the file has no rows; give one row per seller")

    def rows(self, data: OwnData, target_range: Any = None) -> pd.DataFrame:
        """Check features and labels, and return them in the form of the learner."""
        columns = dict(self._features(data))
        return pd.DataFrame({**columns, data.label: self._labels(data, target_range)})

    def _features(self, data: OwnData) -> Iterator[tuple[str, Any]]:
        for name, public in data.features.items():
            cells, cell = self.frame[name], f"the cell of the column {name!r}"
            empty = blank(cells)
            if data.missing == "error":
                why = 'is empty; leave such rows out, or give data.missing, "indicator" or "middle"'
                self.refuse(empty, cell, why)
            if isinstance(public, tuple):
                values = numbers_in(cells)
                why = "is not a finite number; leave the cell of a missing number empty"
                self.refuse(~np.isfinite(values) & ~empty, cell, why)
                yield name, values.where(~empty, np.nan).to_numpy()
                continue
            texts = _texts(cells)
            if set(public) == {"False", "True"}:  # other programs write "true" or "TRUE"
                texts = texts.str.capitalize()
            if OTHER not in public:
                why = (
                    f"is not among its categories (data.features.{name}); declare it there as "
                    f"the file writes it, or {OTHER!r}, the category of all undeclared values"
                )
                self.refuse(~texts.isin(public) & ~empty, cell, why)
            yield name, texts.where(~empty, None).to_numpy()

    def _labels(self, data: OwnData, target_range: Any) -> NDArray[Any]:
        cells, cell = self.frame[data.label], f"the cell of the column {data.label!r}"
        if data.classes is None:
            numbers = numbers_in(cells)
            why = "is not a finite number; leave rows without a label out"
            self.refuse(~np.isfinite(numbers), cell, why)
            if target_range is not None:
                low, high = target_range
                why = f"is outside learner.target_range, [{low:g}, {high:g}]; declare a wider one"
                self.refuse(~numbers.between(low, high), cell, why)
            return numbers.to_numpy()
        classes = np.array(data.classes, object)
        negative, positive = (is_class(_texts(cells), known) for known in data.classes)
        why = f"is neither of the classes {classes[0]!r} and {classes[1]!r}"
        self.refuse(~(negative | positive), cell, why)
        return classes[positive.astype(int)]

    def refuse(self, wrong: Any, what: str, why: str) -> None:
        """Raise an error that names the lines, and the id of the first."""
        bad = np.flatnonzero(wrong)
        if bad.size:
            owner = "" if self.ids is None else f" of {clipped(self.ids[bad[0]])}"
            raise DataError(blame(self.place, self.frame.index.to_numpy()[bad], what + owner, why))


def _own_table(
    problem: Any, others: Mapping[str | None, str] | None = None, na_values: Sequence[str] = ()
) -> _Table:
    data = problem.data
    keys = {data.id: "data.id", data.report: "data.report", **(others or {})}
    return _Table(data, problem.place(data.file), keys, na_values)


def _texts(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells in the form of a CSV file, without outer blanks; empty if missing."""

    def text(value: Any) -> str:
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value).strip()

    return cells.astype(object).map(text, na_action="ignore").where(cells.notna(), "")


def read_columns(
    path: Path, parquet: bool, keys: dict[str, str], na_values: Sequence[str] = ()
) -> pd.DataFrame:
    """Read columns of a file by their keys; the index counts lines of CSV, or rows."""

    def choose(columns: list[str]) -> list[str]:
        for column, key in keys.items():
            if column not in columns:
                raise DataError(
                    f"{path}: no column is called {column!r}; {columns_listed(columns)}. Name "
                    f"one of them ({key})"
                )
        return list(keys)

    return read_parquet(path, choose) if parquet else read_texts(path, choose, na_values)
