"""Rows for a learner: data sets of the package, rows of the problem file, or a user's table.

Only the columns of a table that the problem file names are read. Messages never show the text
of a cell unless the user asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from convexmarket.checks import is_number
from convexmarket.data import datasets, lists
from convexmarket.data.columns import refuse_reports
from convexmarket.data.csv_rows import numbers_in, read_texts
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import WRONG_NUMBER, Missing, PublicFeatures
from convexmarket.data.tables import read_parquet
from convexmarket.errors import DataError
from convexmarket.studies.files import file_tables as tables

Floats = NDArray[np.float64]
#: Rows by part: rows for sale, indexed by the sellers' ids, and public rows of each purpose.
Parts = dict[str, pd.DataFrame]

#: Name of the part with the rows for sale.
SOLD = "sold"
#: Branch of the seed from which public rows are drawn.
_PUBLIC = 1_000

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Norm = Annotated[float, Field(gt=0, description="Public bound on the norm of a row.")]
_Sold = Annotated[float, Field(gt=0, lt=1, description="Share of the rows that is sold.")]


class _Drawn(tables.Table):
    """A data set of the package; each training row belongs to a seller."""

    is_classification: ClassVar[bool] = True

    source: str
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the split, or of the rows that are drawn."""

    def rows(self) -> MarketData | RegressionData:
        """Return the rows: training rows, which are sold, and public rows."""
        load: Any = getattr(datasets, self.source)
        rows: MarketData | RegressionData = load(**self._arguments(), random_state=self.seed)
        return rows

    def _arguments(self) -> dict[str, Any]:
        return self.model_dump(exclude={"source", "seed"})


class Wdbc(_Drawn):
    """The Wisconsin breast-cancer data, for a classifier."""

    source: Literal["wdbc"]
    train_fraction: _Sold = 0.6
    validation_fraction: tables.Share = 0.2
    """Share of the rows used to choose parameters; the remaining rows are the test set."""
    data_norm: Norm = 1.0

    def _arguments(self) -> dict[str, Any]:
        train, validation = self.train_fraction, self.validation_fraction
        parts = train, validation, 1.0 - train - validation
        return {"fractions": parts, "data_norm": self.data_norm}


class Synthetic(_Drawn):
    """Gaussian rows with a linear boundary, for a classifier."""

    source: Literal["synthetic"]
    n_sellers: Count
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    n_validation: Count = 500
    n_test: Count = 2000
    data_norm: Norm = 1.0


class Medical(_Drawn):
    """Insurance charges, for a regression."""

    is_classification = False
    data_norm: ClassVar[float] = 1.0

    source: Literal["medical"]
    train_fraction: _Sold = 0.8


class InlineData(tables.Table):
    """Rows in the problem file; the sellers' rows are also the validation and test sets."""

    is_classification: ClassVar[bool] = True

    source: Literal["inline"]
    features: tables.Many[tables.Many[float]]
    """One row per seller."""
    labels: tables.Many[Literal[-1, 1]]
    """One label per seller."""
    data_norm: Norm = 1.0

    @model_validator(mode="after")
    def _rows_have_one_shape(self) -> Self:
        lengths = {len(row) for row in self.features}
        if len(lengths) > 1 or len(self.features) != len(self.labels):
            raise ValueError(
                f"there are {len(self.features)} rows of features with {sorted(lengths)} entries, "
                f"and {len(self.labels)} labels; give rows of one length, and a label for each"
            )
        return self

    def rows(self) -> MarketData:
        """Return the rows as training, validation and test sets."""
        rows = np.array(self.features), np.array(self.labels, dtype=float)
        names = tuple(f"x{column}" for column in range(rows[0].shape[1]))
        text = "Rows of the problem file, which are also the validation and test sets."
        return MarketData(*rows * 3, names, self.data_norm, text)


#: A data set of :mod:`convexmarket.data.datasets`, or rows of the problem file.
GivenData: TypeAlias = Wdbc | Synthetic | Medical | InlineData

# ------------------------------------------------------------------------------ a user's table


def _classes(value: Any) -> tuple[Any, ...]:
    pair = value if isinstance(value, list) and len(value) == 2 else [0, 0]
    alike = all(isinstance(label, str) for label in pair) or all(map(is_number, pair))
    if alike and pair[0] != pair[1]:
        return tuple(pair)
    raise ValueError(f"{value!r} is not [negative, positive], two different texts or numbers")


def _public_column(value: Any) -> tuple[float, float] | list[str]:
    """Return the range of a number as a tuple, or the categories of a word as a list."""
    if isinstance(value, list) and len(value) == 2 and all(map(is_number, value)):
        if -math.inf < value[0] < value[1] < math.inf:
            return float(value[0]), float(value[1])
    elif isinstance(value, list) and all(isinstance(word, str | bool) for word in value):
        words = [str(word).strip() for word in value]
        if len(set(words)) == len(words) > 0:
            return words
    raise ValueError(
        f"{value!r} is not a public fact of a column; give the range of a number, [low, high] "
        'with low < high, or the categories of a word, ["no", "yes"], each once'
    )


_LIST = WithJsonSchema({"type": "array", "minItems": 1, "maxItems": tables.MOST_ENTRIES})
_PublicColumn = Annotated[Any, PlainValidator(_public_column), _LIST]


class OwnData(tables.Table):
    """Sellers in a CSV or Parquet file, each with a row."""

    source: Literal["csv", "parquet"]
    file: tables.FileName
    """The file of rows, relative to the problem file."""
    id: tables.Column | None = None
    """Column of the sellers' ids; by default ids are line numbers."""
    report: tables.Column | None = None
    """Column of prices asked per unit of epsilon; by default reports are drawn from the prior."""
    label: tables.Column
    """Column of the labels."""
    classes: Annotated[Any, PlainValidator(_classes), _LIST] = None
    """The two labels of a classification, [negative, positive]: public."""
    features: Annotated[dict[tables.Column, _PublicColumn], Field(min_length=1, max_length=1_000)]
    """The range of each column of numbers, [low, high], or its categories, in which "other" stands
    for all undeclared values. Other columns are not read."""
    missing: Missing = "error"
    """Meaning of an empty cell: "error", "middle" of the range, or "indicator", a feature."""
    intercept: bool = True
    """Whether a constant is added to the features."""
    data_norm: Norm = 1.0
    public: dict[Literal["validation", "test"], tables.Share | tables.FileName] = Field(
        default_factory=dict
    )
    """Public rows, which are not sold: "validation" rows to choose the parameters of a classifier,
    "test" rows to measure its error. The value is a share of the file, drawn by the run's seed, or
    a file."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        named = [self.id, self.report, self.label, *self.features]
        for column in named[:3]:
            if column is not None and named.count(column) > 1:
                raise ValueError(
                    f"the column {column!r} is named twice among id, report, label and features"
                )
        refuse_reports(list(self.features), report=self.report)
        return self

    @property
    def public_shares(self) -> dict[str, float]:
        """Public shares of the file, by purpose."""
        return {part: share for part, share in self.public.items() if not isinstance(share, str)}

    @property
    def is_classification(self) -> bool:
        """Whether labels are classes."""
        return self.classes is not None

    @property
    def public_features(self) -> PublicFeatures:
        """Transformer from the table to rows; it depends only on declared facts."""
        norm = self.data_norm if self.is_classification else None
        options: Any = {"missing": self.missing, "intercept": self.intercept, "data_norm": norm}
        return PublicFeatures(self.features, **options)

    @property
    def facts(self) -> dict[str, Any]:
        """Names of the features and a description, as in data sets."""
        names = self.public_features.get_feature_names_out()
        text = f"Rows of {self.file}, with the ranges and categories of the problem file."
        return {"feature_names": tuple(map(str, names)), "description": text}

    def rows_of(self, table: pd.DataFrame) -> tuple[Floats, Floats]:
        """Return rows in a ball with labels -1 and 1, or in the unit box with the given labels."""
        labels, features = table[self.label], self.public_features
        if self.classes is None:
            return features.transform_to_box(table), labels.to_numpy(np.float64)
        return features.transform(table), np.where(labels == self.classes[1], 1.0, -1.0)

    def rows(self, parts: Parts) -> MarketData | RegressionData:
        """Return all rows as a data set."""
        purposes = ("validation", "test") if self.is_classification else ("test",)
        arrays: Any = [each for part in (SOLD, *purposes) for each in self.rows_of(parts[part])]
        if self.is_classification:
            return MarketData(*arrays, **(self.facts | {"data_norm": self.data_norm}))
        return RegressionData(*arrays, **self.facts)


# ----------------------------------------------------------------------- reading a user's table


def read_people(
    problem: Any, group: str | None = None, na_values: Sequence[str] = (), show_cells: bool = False
) -> Parts:
    """Read the sellers and the public rows of a problem with a prior and :class:`OwnData`.

    ``group`` is the column of the sellers' groups; errors name lines.
    """
    data: OwnData = problem.data
    roles = {data.id: "id", data.report: "sensitivity", group: "group"}
    sellers = _read(problem, data.file, roles, na_values, show_cells)
    path, seed = problem.place(data.file), problem.run.seed
    return drawn(sellers, data.public_shares, seed, path) | read_public(problem, na_values)


def read_public(problem: Any, na_values: Sequence[str] = ()) -> Parts:
    """Read the public rows that are in files; return them by purpose."""
    files = {part: file for part, file in problem.data.public.items() if isinstance(file, str)}
    rows = {part: _read(problem, file, {}, na_values) for part, file in files.items()}
    return {part: table.reset_index(drop=True) for part, table in rows.items()}


def drawn(rows: pd.DataFrame, shares: Mapping[str, float], seed: int, path: Path) -> Parts:
    """Split the file at random into rows for sale and public rows, in the order of the file."""
    stream = np.random.SeedSequence(seed, spawn_key=(_PUBLIC,))
    order = np.random.default_rng(stream).permutation(len(rows))
    ends = np.cumsum([round(share * len(rows)) for share in shares.values()], dtype=int)
    chosen = zip([*shares, SOLD], np.split(order, ends), strict=True)
    parts = {part: rows.iloc[np.sort(places)] for part, places in chosen}
    if few := [part for part, taken in parts.items() if taken.empty]:
        raise DataError(
            f"{path}: {len(rows)} rows are too few: no rows are left for {few[0]!r}; give other "
            "shares (data.public), or more rows"
        )
    return parts


def read_cells(
    problem: Any, name: str, more: Sequence[str] = (), na_values: Sequence[str] = ()
) -> tuple[pd.DataFrame, str]:
    """Read the label, the features and ``more`` columns of a file as text without outer blanks.

    Missing cells are empty. Also return the prefix of a place in messages: "rows.csv: line".
    """
    data, path = problem.data, problem.place(name)
    wanted = [*more, data.label, *data.features]

    def choose(columns: list[str]) -> list[str]:
        for column in wanted:
            if column not in columns:
                raise DataError(
                    f"{path}: no column is called {column!r}; {lists.columns_listed(columns)}. "
                    "Name one of them in [data]"
                )
        return list(dict.fromkeys(wanted))

    if data.source == "parquet":
        frame, unit = read_parquet(path, choose), "row"
        frame = frame.convert_dtypes().astype("str").fillna("")
    else:
        frame, unit = read_texts(path, choose, na_values), "line"
    if frame.empty:
        raise DataError(f"{path}: the file has no rows; give one row per seller")
    return frame.apply(lambda cells: cells.str.strip()), f"{path}: {unit}"


def _read(
    problem: Any,
    name: str,
    roles: dict[str | None, str],
    na_values: Sequence[str],
    show_cells: bool = False,
) -> pd.DataFrame:
    """Read and check rows: reports, groups, and features and label in the form of the learner.

    The index holds the ids of sellers, which are line numbers in a file without ids.
    """
    data: OwnData = problem.data
    roles = {column: role for column, role in roles.items() if column is not None}
    cells, place = read_cells(problem, name, [str(column) for column in roles], na_values)
    unit = place.rpartition(" ")[2]
    ids, columns = [f"{unit}-{line}" for line in cells.index], {}
    if roles:
        listed = cells[list(roles)].rename(columns=roles)
        options: Any = {"show_cells": show_cells, "is_csv": True}
        listed = lists.checked_list(listed, problem.prior, place, data.id, **options)
        columns = {column: listed[role] for column, role in roles.items()}
        ids = listed["id"].tolist() if "id" in listed else ids
    for column, declared in data.features.items():
        columns[column] = texts = cells[column].where(cells[column] != "", None)
        if isinstance(declared, tuple):
            numbers = numbers_in(texts.dropna())
            what = f"the cell of the column {column!r}"
            lists.refuse(place, ~np.isfinite(numbers), WRONG_NUMBER, what)
            columns[column] = numbers.reindex(texts.index)
        elif set(declared) == {"False", "True"}:  # other programs write "true" or "TRUE"
            columns[column] = texts.str.capitalize()
    data.public_features.transform(pd.DataFrame(columns).rename_axis(index=place))  # a check
    target_range = getattr(problem.learner, "options", {}).get("target_range")
    columns[data.label] = _labels(cells[data.label], data.classes, target_range, place)
    return pd.DataFrame(columns).set_axis(pd.Index(ids, dtype=object))


def _labels(texts: pd.Series[Any], classes: Any, target_range: Any, place: str) -> Any:
    """Return the labels; raise an error for an invalid cell."""
    what = f"the cell of the column {texts.name!r}"
    if classes is None:
        numbers = numbers_in(texts)
        why = "is not a finite number; leave rows without a label out"
        lists.refuse(place, ~np.isfinite(numbers), why, what)
        low, high = target_range or (-np.inf, np.inf)
        why = f"is outside learner.target_range, [{low:g}, {high:g}]; declare a wider one"
        lists.refuse(place, ~numbers.between(low, high), why, what)
        return numbers
    first, second = (pd.Series(lists.is_class(texts, known), texts.index) for known in classes)
    why = f"is neither of the classes {classes[0]!r} and {classes[1]!r}"
    lists.refuse(place, ~(first | second), why, what)
    return np.array(classes, object)[second.astype(int)]
