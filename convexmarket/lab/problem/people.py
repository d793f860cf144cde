"""People in a CSV or Parquet file of the user's own: read, checked, and the public ones told apart.

Only the columns that the problem file names are looked at, and nothing of what stands in a cell is
ever said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.data.csv_rows import numbers_in, read_texts
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import OTHER, PublicFeatures
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
from convexmarket.lab.problem.base import RunTable
from convexmarket.lab.problem.own import OwnTable
from convexmarket.priors import Prior

__all__ = [
    "REPORTED",
    "SOLD",
    "People",
    "ProblemWithTable",
    "check_file",
    "read_columns",
    "read_people",
    "read_public",
]

Floats = NDArray[np.float64]

#: What the scenario of the sellers' own reports is called, and the part that is bought from.
REPORTED, SOLD = "reported", "sold"
#: The branch of the seed that draws the public rows; kinds count theirs from 0.
_PUBLIC = 1_000


class ProblemWithTable(Protocol):
    """A problem whose data are a table of the user's own, as far as reading it goes."""

    data: Any
    prior: Any
    run: RunTable

    def place(self, name: str) -> Path:
        """Return the path of a file that the problem names."""


@dataclass(frozen=True, eq=False)
class People:
    """Those of a file who sell, and the public rows.

    Attributes
    ----------
    path : pathlib.Path
        Of the file.
    parts : dict of str to DataFrame
        "sold", and "validation" and "test" where there are such rows: the columns of features and
        of the label. The index of "sold" holds the sellers' ids.
    label : str
        The column of labels.
    classes : tuple of two labels, or None
    reports : ndarray of shape (n_sold,), or None
        What the sellers report; None where the file does not say.
    groups : ndarray of shape (n_sold,), or None
        Of the sellers, where a column of groups was named.
    features : PublicFeatures
    description : str
    """

    path: Path
    parts: dict[str, pd.DataFrame]
    label: str
    classes: tuple[Any, Any] | None
    reports: Floats | None
    groups: NDArray[Any] | None
    features: PublicFeatures
    description: str

    @property
    def ids(self) -> list[str]:
        """Who sells, in the order of the file."""
        return self.parts[SOLD].index.tolist()

    @property
    def feature_names(self) -> tuple[str, ...]:
        """What the features of a row are called."""
        return tuple(map(str, self.features.get_feature_names_out()))

    def signed_rows(self, part: str) -> tuple[Floats, Floats]:
        """Return rows of a ball, and labels -1 and 1, of the sellers or of public rows."""
        table, positive = self.parts[part], None if self.classes is None else self.classes[1]
        is_positive = (table[self.label] == positive).to_numpy(bool)
        return self.features.transform(table), np.where(is_positive, 1.0, -1.0)

    def classification(self) -> MarketData:
        """Return rows of a ball with labels -1 and 1."""
        norm = self.features.data_norm or 1.0
        return MarketData(
            *self.signed_rows(SOLD),
            *self.signed_rows("validation"),
            *self.signed_rows("test"),
            feature_names=self.feature_names,
            data_norm=norm,
            description=self.description,
        )

    def regression(self) -> RegressionData:
        """Return rows of the unit box with labels as they are."""

        def part(name: str) -> tuple[Floats, Floats]:
            table = self.parts[name]
            return self.features.transform_to_box(table), table[self.label].to_numpy(np.float64)

        return RegressionData(
            *part(SOLD),
            *part("test"),
            feature_names=self.feature_names,
            description=self.description,
        )


def read_people(
    problem: ProblemWithTable,
    group: str | None = None,
    na_values: Sequence[str] = (),
    show_cells: bool = False,
) -> People:
    """Read the table of a problem whose data are the user's own.

    Parameters
    ----------
    problem : Problem
        Its ``data`` is an :class:`OwnTable`.
    group : str, optional
        The column of the sellers' groups.
    na_values, show_cells
        As for :func:`convexmarket.data.lists.read_list`.

    Raises
    ------
    DataError
        If a file cannot be read, or holds a bad row; the message names the lines and ids.
    """
    data: OwnTable = problem.data
    learner = getattr(problem, "learner", None)
    path = problem.place(data.file)
    table = _Table.read(data, path, data.id, data.report, group, na_values=na_values)
    ids = table.ids(data.id)
    reports = None
    if data.report is not None:
        reports = table.reports(data.report, problem.prior, ids, show_cells)
    people = table.people(data, ids, getattr(learner, "target_range", None))
    groups = None if group is None else table.words(group, "the group", ids)
    parts = _drawn(people, data.public_shares, problem.run.seed, path) | read_public(
        problem, na_values
    )
    sold = people.index.isin(parts[SOLD].index)
    return People(
        path=path,
        parts=parts,
        label=data.label,
        classes=getattr(data, "classes", None),
        reports=None if reports is None else reports[sold],
        groups=None if groups is None else groups[sold],
        features=data.public_features,
        description=(
            f"Rows of {data.file}; features have the ranges and categories that the problem file "
            "declares, and nothing about them was computed from the rows."
        ),
    )


def check_file(problem: ProblemWithTable) -> None:
    """Check that the file of rows, if it exists, is a table with the columns that are declared.

    Raises
    ------
    DataError
        If it is anything else.
    """
    path = problem.place(problem.data.file)
    if os.path.lexists(path):
        _Table.read(problem.data, path, problem.data.id, problem.data.report)


def read_public(
    problem: ProblemWithTable, na_values: Sequence[str] = ()
) -> dict[str, pd.DataFrame]:
    """Read the public rows that stand in files of their own, by what they are for.

    Raises
    ------
    DataError
        As :func:`read_people`.
    """
    data: OwnTable = problem.data
    parts = {}
    for part, name in data.public_files.items():
        table = _Table.read(data, problem.place(name), na_values=na_values)
        parts[part] = table.people(data, None, None)
    return parts


def _drawn(
    people: pd.DataFrame, shares: dict[str, float], seed: int, path: Path
) -> dict[str, pd.DataFrame]:
    """Return who sells, and the public rows that are drawn; all in the order of the file."""
    order = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(_PUBLIC,))).permutation(
        len(people)
    )
    parts, begin = {}, 0
    for part, share in shares.items():
        end = begin + round(share * len(people))
        parts[part] = people.iloc[np.sort(order[begin:end])]
        begin = end
    parts[SOLD] = people.iloc[np.sort(order[begin:])]
    few = [part for part, rows in parts.items() if not len(rows)]
    if few:
        raise DataError(
            f"{path}: {len(people)} rows are too few: none is left for {few[0]!r}; give other "
            "shares (data.public), or more rows"
        )
    return parts


@dataclass(frozen=True, eq=False)
class _Table:
    """The columns of a file that are read; the index counts its lines."""

    path: Path
    place: str
    frame: pd.DataFrame

    @classmethod
    def read(
        cls, data: OwnTable, path: Path, *others: str | None, na_values: Sequence[str] = ()
    ) -> _Table:
        """Read the columns of features and label, and others."""
        keys = {data.label: "data.label"}
        for key, column in zip(("data.id", "data.report", "--group-column"), others, strict=False):
            if column is not None:
                keys[column] = key
        keys |= {column: f"data.features.{column}" for column in data.features}
        frame = read_columns(path, data.source == "parquet", keys, na_values)
        if frame.empty:
            raise DataError(f"{path}: there are no rows in it; give one row per seller")
        unit = "row" if data.source == "parquet" else "line"
        return cls(path, f"{path}: {unit}", frame)

    def ids(self, column: str | None) -> list[str]:
        """Return the sellers' ids; those of their lines where they have none."""
        if column is None:
            unit = self.place.rpartition(" ")[2]
            return [f"{unit}-{line}" for line in self.frame.index]
        texts = _texts(self.frame[column])
        self._refuse(blank(texts), f"the id (column {column!r})", "is missing", None)
        return checked_ids(texts, self.place).tolist()

    def reports(
        self, column: str, prior: Prior, ids: Sequence[str], show_cells: bool = False
    ) -> Floats:
        """Return what the sellers report."""
        numbers = numbers_in(self.frame[column])
        for wrong, why in report_faults(numbers, prior):
            what = "the report"
            if show_cells and wrong.any():
                what += f" {clipped(self.frame[column][wrong].iloc[0])}"
            self._refuse(wrong, what, why, ids)
        return np.asarray(numbers, dtype=np.float64)

    def words(self, column: str, what: str, ids: Sequence[str] | None) -> NDArray[Any]:
        """Return a column of words without empty cells."""
        texts = _texts(self.frame[column])
        self._refuse(blank(texts), f"{what} (column {column!r})", "is missing", ids)
        return texts.to_numpy()

    def people(
        self,
        data: OwnTable,
        ids: Sequence[str] | None,
        target_range: tuple[float, float] | None,
    ) -> pd.DataFrame:
        """Return features and labels as the learner takes them."""
        columns: dict[str, Any] = dict(self._features(data, ids))
        columns[data.label] = self._labels(data, ids, target_range)
        people = pd.DataFrame(columns)
        return people if ids is None else people.set_axis(pd.Series(ids, dtype=object))

    def _features(
        self, data: OwnTable, ids: Sequence[str] | None
    ) -> Iterator[tuple[str, NDArray[Any]]]:
        for name, public in data.features.items():
            cells, cell = self.frame[name], f"the cell of the column {name!r}"
            empty = blank(cells)
            if data.missing == "error":
                why = 'is empty; leave such rows out, or give data.missing, "indicator" or "middle"'
                self._refuse(empty, cell, why, ids)
            if isinstance(public[0], str):
                texts = _texts(cells).where(~empty, None)
                if OTHER not in public:
                    why = (
                        f"is none of its categories (data.features.{name}); declare it there as "
                        f"the file writes it, or {OTHER!r}, which stands for all that are not "
                        "declared"
                    )
                    self._refuse(~texts.isin(list(public)) & ~empty, cell, why, ids)
                yield name, texts.to_numpy()
            else:
                numbers = numbers_in(cells)
                why = "is no finite number; leave the cell empty where there is none"
                self._refuse(~np.isfinite(numbers) & ~empty, cell, why, ids)
                yield name, numbers.where(~empty, np.nan).to_numpy()

    def _labels(
        self,
        data: OwnTable,
        ids: Sequence[str] | None,
        target_range: tuple[float, float] | None,
    ) -> NDArray[Any]:
        cells, cell = self.frame[data.label], f"the cell of the column {data.label!r}"
        classes: tuple[Any, Any] | None = getattr(data, "classes", None)
        if classes is None:
            numbers = numbers_in(cells)
            why = "is no finite number; leave rows without a label out"
            self._refuse(~np.isfinite(numbers), cell, why, ids)
            if target_range is not None:
                low, high = target_range
                why = f"is outside learner.target_range, [{low:g}, {high:g}]; declare a wider one"
                self._refuse(~numbers.between(low, high), cell, why, ids)
            return numbers.to_numpy()
        negative, positive = (is_class(_texts(cells), known) for known in classes)
        why = f"is none of the classes {classes[0]!r} and {classes[1]!r}"
        self._refuse(~(negative | positive), cell, why, ids)
        return np.where(positive, np.array(classes[1], object), np.array(classes[0], object))

    def _refuse(self, wrong: Any, what: str, why: str, ids: Sequence[str] | None) -> None:
        bad = np.flatnonzero(wrong)
        if bad.size:
            whose = "" if ids is None else f" of {clipped(ids[bad[0]])}"
            raise DataError(blame(self.place, self.frame.index.to_numpy()[bad], what + whose, why))


def _texts(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells as a CSV file writes them, without blanks around; empty where there is none."""

    def text(value: Any) -> str:
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value).strip()

    missing = cells.isna()
    values = zip(cells.tolist(), missing.tolist(), strict=True)
    texts = ["" if absent else text(value) for value, absent in values]
    return pd.Series(texts, index=cells.index, dtype=object)


def read_columns(
    path: Path, parquet: bool, keys: dict[str, str], na_values: Sequence[str] = ()
) -> pd.DataFrame:
    """Read some columns of a file; the index counts its lines, or rows from 1.

    Parameters
    ----------
    path : pathlib.Path
    parquet : bool
        Whether it is a Parquet file, and not CSV.
    keys : dict of str to str
        Where each column was named, for the error if there is none such.
    na_values : sequence of str, optional
        Texts that mark an empty cell of a CSV file.

    Raises
    ------
    DataError
        If the file cannot be read, is too large to be held in memory, or has no such column.
    """

    def choose(columns: list[str]) -> list[str]:
        for column, key in keys.items():
            if column not in columns:
                raise DataError(
                    f"{path}: no column is called {column!r}; {columns_listed(columns)}. Say "
                    f"which one it is ({key})"
                )
        return list(keys)

    return read_parquet(path, choose) if parquet else read_texts(path, choose, na_values)
