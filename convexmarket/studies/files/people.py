"""Rows for a learner: data sets of the package, rows of the problem file, or a user's table.

Of a table only the columns that the problem file names are read, and messages never show the text
of a cell unless the user asks for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from convexmarket.checks import is_number
from convexmarket.data import datasets
from convexmarket.data.columns import refuse_reports
from convexmarket.data.csv_rows import numbers_in, read_texts
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import OTHER, Missing, PublicFeatures
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
from convexmarket.studies.files.file_tables import (
    LONGEST_TEXT,
    MOST_ENTRIES,
    Column,
    FileName,
    Share,
    Table,
)

Floats = NDArray[np.float64]

#: The part with the rows for sale.
SOLD = "sold"
#: The branch of the seed that draws the public rows.
_PUBLIC = 1_000

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Width = Annotated[int, Field(ge=1, le=10_000, description="Features of a row.")]
Sold = Annotated[float, Field(gt=0, lt=1, description="Share of the rows that is sold.")]
Norm = Annotated[float, Field(gt=0, description="Public bound on the norm of a row.")]


class _Drawn(Table):
    """A data set of the package; each training row belongs to a seller."""

    is_classification: ClassVar[bool] = True

    source: str
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the split, or of the rows that are drawn."""

    def rows(self) -> MarketData | RegressionData:
        """Return the rows: training rows, which are sold, and public rows."""
        given = self.model_dump(exclude={"source", "seed"})
        load: Any = getattr(datasets, self.source)
        rows: MarketData | RegressionData = load(**given, random_state=self.seed)
        return rows


class Wdbc(_Drawn):
    """The Wisconsin breast-cancer data, for a classifier."""

    source: Literal["wdbc"]
    train_fraction: Sold = 0.6
    validation_fraction: Share = 0.2
    """Share of the rows that chooses parameters; the remaining rows are for the test."""
    data_norm: Norm = 1.0

    def rows(self) -> MarketData:
        """Return the rows in three parts."""
        train, validation = self.train_fraction, self.validation_fraction
        parts = train, validation, 1.0 - train - validation
        return datasets.wdbc(self.seed, fractions=parts, data_norm=self.data_norm)


class Synthetic(_Drawn):
    """Gaussian rows with a linear boundary, for a classifier."""

    source: Literal["synthetic"]
    n_sellers: Count
    n_features: Width
    n_validation: Count = 500
    n_test: Count = 2000
    data_norm: Norm = 1.0


class Medical(_Drawn):
    """Insurance charges, for a regression."""

    is_classification = False
    data_norm: ClassVar[float] = 1.0

    source: Literal["medical"]
    train_fraction: Sold = 0.8


#: A data set of :mod:`convexmarket.data.datasets`.
PackageData: TypeAlias = Wdbc | Synthetic | Medical

_Row = Annotated[tuple[float, ...], Field(strict=False, min_length=1, max_length=10_000)]
_Labels = tuple[Literal[-1, 1], ...]


class InlineData(Table):
    """Rows in the problem file; the sellers' rows validate and test as well."""

    is_classification: ClassVar[bool] = True

    source: Literal["inline"]
    features: Annotated[tuple[_Row, ...], Field(strict=False, min_length=1, max_length=10_000)]
    """One row per seller."""
    labels: Annotated[_Labels, Field(strict=False, min_length=1, max_length=10_000)]
    """One label per seller."""
    data_norm: Norm = 1.0

    @model_validator(mode="after")
    def _rows_have_one_shape(self) -> Self:
        lengths = {len(row) for row in self.features}
        if len(lengths) > 1:
            raise ValueError(f"the rows of features have {sorted(lengths)} entries; give as many")
        if len(self.features) != len(self.labels):
            raise ValueError(
                f"there are {len(self.features)} rows of features and {len(self.labels)} labels; "
                "give one label for each row"
            )
        return self

    def rows(self) -> MarketData:
        """Return the rows, three times."""
        rows = np.array(self.features), np.array(self.labels, dtype=float)
        names = tuple(f"x{column}" for column in range(len(self.features[0])))
        text = "Rows of the problem file; the sellers' rows validate and test as well."
        return MarketData(
            *rows * 3, feature_names=names, data_norm=self.data_norm, description=text
        )


# ------------------------------------------------------------------------------ a user's table


def _classes(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list) and len(value) == 2 and value[0] != value[1]:
        texts = [isinstance(label, str) for label in value]
        if all(texts) or (not any(texts) and all(map(is_number, value))):
            return tuple(value)
    raise ValueError(f"{value!r} is not [negative, positive], two different texts or numbers")


def _public_column(value: Any) -> tuple[float, float] | list[str]:
    """Return the range of a number as a tuple, or the categories of a word as a list."""
    if isinstance(value, list) and value:
        if len(value) == 2 and all(map(is_number, value)):
            low, high = map(float, value)
            if -math.inf < low < high < math.inf:
                return low, high
        elif all(isinstance(word, str | bool) for word in value):
            words = [str(word).strip() for word in value]
            if len(set(words)) == len(words):
                return words
    raise ValueError(
        f"{value!r} is not a public fact of a column; give the range of a number, [low, high] "
        'with low < high, or the categories of a word, ["no", "yes"], each once'
    )


def _list_of(least: int, most: int, *types: str) -> WithJsonSchema:
    items = {"type": list(types), "maxLength": LONGEST_TEXT}
    return WithJsonSchema({"type": "array", "items": items, "minItems": least, "maxItems": most})


_Classes = Annotated[Any, PlainValidator(_classes), _list_of(2, 2, "string", "number")]
_PublicColumn = Annotated[
    Any, PlainValidator(_public_column), _list_of(1, MOST_ENTRIES, "number", "string", "boolean")
]


class OwnData(Table):
    """Sellers in a CSV or Parquet file, each with a row."""

    source: Literal["csv", "parquet"]
    file: FileName
    """The file of rows, relative to the problem file."""
    id: Column | None = None
    """Column of the sellers' ids; by default ids are line numbers."""
    report: Column | None = None
    """Column of prices asked per unit of epsilon; by default reports are drawn from the prior."""
    label: Column
    """Column of the labels."""
    classes: _Classes | None = None
    """The two labels of a classification, [negative, positive]: public."""
    features: Annotated[dict[Column, _PublicColumn], Field(min_length=1, max_length=1_000)]
    """The range of each column of numbers, [low, high], or its categories, in which "other" stands
    for all undeclared values. Other columns are not read."""
    missing: Missing = "error"
    """Meaning of an empty cell: "error", "middle" of the range, or "indicator", a feature."""
    intercept: bool = True
    """Whether a constant is added to the features."""
    data_norm: Norm = 1.0
    public: dict[Literal["validation", "test"], Share | FileName] = Field(default_factory=dict)
    """Public rows, which are not sold: "validation" rows choose the parameters of a classifier,
    "test" rows measure its error. Each is a share of the file, drawn by the run's seed, or a
    file."""

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
        """Transformer from the table to rows, which depends on declared facts alone."""
        norm = self.data_norm if self.is_classification else None
        options: Any = {"missing": self.missing, "intercept": self.intercept, "data_norm": norm}
        return PublicFeatures(self.features, **options)

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


#: A source of rows; the key ``source`` selects the class.
Data = Annotated[PackageData | InlineData | OwnData, Field(discriminator="source")]

# ----------------------------------------------------------------------- reading a user's table


@dataclass(frozen=True, eq=False)
class People:
    """The sellers of a file, with their reports and groups if it has them, and the public rows.

    The parts are "sold", whose index holds the sellers' ids, and those of public rows.
    """

    data: OwnData
    path: Path
    parts: dict[str, pd.DataFrame]

    @property
    def ids(self) -> list[str]:
        """The sellers, in the order of the file."""
        return self.parts[SOLD].index.tolist()

    @property
    def reports(self) -> Floats | None:
        """What the sellers ask."""
        name = self.data.report
        return None if name is None else self.parts[SOLD][name].to_numpy(np.float64)

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
    problem: Any, group: str | None = None, na_values: Sequence[str] = (), show_cells: bool = False
) -> People:
    """Read the sellers and the public rows of a problem with a prior and :class:`OwnData`.

    ``group`` is the column of the sellers' groups; errors name lines and ids.
    """
    data: OwnData = problem.data
    table = _Table(problem, data.file, na_values, group)
    frame, more = table.frame, {}
    table.ids = [f"{table.unit}-{line}" for line in frame.index]
    if data.id is not None:
        table.ids = checked_ids(_texts(frame[data.id]), table.place).tolist()
    if data.report is not None:
        more[data.report] = reports = numbers_in(frame[data.report])
        for wrong, why in report_faults(reports, problem.prior):
            shown = ""
            if show_cells and wrong.any():
                shown = f" {clipped(frame[data.report][wrong].iloc[0])}"
            table.refuse(wrong, f"the report{shown}", why)
    if group is not None:
        more[group] = _texts(frame[group])
        table.refuse(blank(more[group]), f"the group (column {group!r})", "is missing")
    rows = table.rows().assign(**more).set_axis(pd.Series(table.ids, dtype=object))
    path = problem.place(data.file)
    parts = drawn(rows, data.public_shares, problem.run.seed, path)
    return People(data, path, parts | read_public(problem, na_values))


def check_file(problem: Any) -> None:
    """Check that the file of rows, if it exists, has the declared columns."""
    if os.path.lexists(problem.place(problem.data.file)):
        _Table(problem, problem.data.file)


def read_public(problem: Any, na_values: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """Read the files of public rows, by purpose."""
    files = {part: name for part, name in problem.data.public.items() if isinstance(name, str)}
    return {
        part: _Table(problem, name, na_values, public=True).rows().reset_index(drop=True)
        for part, name in files.items()
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
    """Columns of a file: features, label, and those of the sellers unless the rows are public.

    The index counts the lines; ``ids`` names the sellers in errors.
    """

    def __init__(
        self,
        problem: Any,
        name: str,
        na_values: Sequence[str] = (),
        group: str | None = None,
        *,
        public: bool = False,
    ) -> None:
        self.data: OwnData = problem.data
        self.ids: list[str] | None = None
        self.target_range = getattr(problem.learner, "options", {}).get("target_range")
        path, parquet = problem.place(name), self.data.source == "parquet"
        self.unit = "row" if parquet else "line"
        self.place = f"{path}: {self.unit}"
        keys: dict[Any, str] = {self.data.label: "data.label"}
        if not public:
            own = {self.data.id: "data.id", self.data.report: "data.report"}
            keys |= own | {group: "--group-column"}
        keys |= {column: f"data.features.{column}" for column in self.data.features}
        keys.pop(None, None)

        def choose(columns: list[str]) -> list[str]:
            for column, key in keys.items():
                if column not in columns:
                    raise DataError(
                        f"{path}: no column is called {column!r}; {columns_listed(columns)}. Name "
                        f"one of them ({key})"
                    )
            return list(keys)

        self.frame = read_parquet(path, choose) if parquet else read_texts(path, choose, na_values)
        if self.frame.empty:
            raise DataError(f"{path}: the file has no rows; give one row per seller")

    def rows(self) -> pd.DataFrame:
        """Check features and labels, and return them in the form of the learner."""
        columns = {name: self._feature(name, public) for name, public in self.data.features.items()}
        return pd.DataFrame({**columns, self.data.label: self._labels()}, index=self.frame.index)

    def _feature(self, name: str, public: Any) -> Any:
        cells, cell = self.frame[name], f"the cell of the column {name!r}"
        empty = blank(cells)
        if self.data.missing == "error":
            why = 'is empty; leave such rows out, or give data.missing, "indicator" or "middle"'
            self.refuse(empty, cell, why)
        if isinstance(public, tuple):
            numbers = numbers_in(cells)
            why = "is not a finite number; leave the cell of a missing number empty"
            self.refuse(~np.isfinite(numbers) & ~empty, cell, why)
            return numbers.where(~empty, np.nan)
        texts = _texts(cells)
        if set(public) == {"False", "True"}:  # other programs write "true" or "TRUE"
            texts = texts.str.capitalize()
        if OTHER not in public:
            why = (
                f"is not among its categories (data.features.{name}); declare it there as "
                f"the file writes it, or {OTHER!r}, the category of all undeclared values"
            )
            self.refuse(~texts.isin(public) & ~empty, cell, why)
        return texts.where(~empty, None)

    def _labels(self) -> Any:
        cells, cell = self.frame[self.data.label], f"the cell of the column {self.data.label!r}"
        if self.data.classes is None:
            numbers = numbers_in(cells)
            why = "is not a finite number; leave rows without a label out"
            self.refuse(~np.isfinite(numbers), cell, why)
            low, high = self.target_range or (-np.inf, np.inf)
            why = f"is outside learner.target_range, [{low:g}, {high:g}]; declare a wider one"
            self.refuse(~numbers.between(low, high), cell, why)
            return numbers
        classes = np.array(self.data.classes, object)
        negative, positive = (is_class(_texts(cells), known) for known in self.data.classes)
        why = f"is neither of the classes {classes[0]!r} and {classes[1]!r}"
        self.refuse(~(negative | positive), cell, why)
        return classes[positive.astype(int)]

    def refuse(self, wrong: Any, what: str, why: str) -> None:
        """Raise an error that names the lines, and the id of the first."""
        bad = np.flatnonzero(wrong)
        if bad.size:
            owner = "" if self.ids is None else f" of {clipped(self.ids[bad[0]])}"
            raise DataError(blame(self.place, self.frame.index.to_numpy()[bad], what + owner, why))


def _texts(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells in the form of a CSV file, without outer blanks; empty if missing."""

    def text(value: Any) -> str:
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value).strip()

    return cells.astype(object).map(text, na_action="ignore").where(cells.notna(), "")
