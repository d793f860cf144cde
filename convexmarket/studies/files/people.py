"""Rows for a learner, from a data set of the package, the problem file, or a user's table.

Error messages contain the text of table cells only if the user requests it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from convexmarket.checks import is_number
from convexmarket.data import datasets, lists
from convexmarket.data.columns import feature_columns
from convexmarket.data.csv_rows import numbers_in, read_texts
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import Missing, PublicFeatures
from convexmarket.data.tables import read_parquet
from convexmarket.errors import DataError, ParameterError
from convexmarket.studies.files import file_tables as tables

Floats = NDArray[np.float64]
#: Rows for sale, indexed by the sellers' ids, and public rows by purpose.
Parts = dict[str, pd.DataFrame]

SOLD = "sold"
#: Index of the random stream that selects public rows.
_PUBLIC = 1_000

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Norm = Annotated[float, Field(gt=0, description="Public bound on the norm of a row.")]
_Sold = Annotated[float, Field(gt=0, lt=1, description="Share of the rows that is sold.")]


class Loaded(NamedTuple):
    """Rows for a learner. For a user's table, also the ids and the reports of the sellers."""

    rows: Any
    ids: list[str] | None = None
    reports: Floats | None = None


class _Drawn(tables.Table):
    """Data set of the package, in which each training row belongs to a seller."""

    is_classification: ClassVar[bool] = True

    source: str
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the random split, or of the generated rows."""

    def load(self, _problem: Any) -> Loaded:
        """Load the training rows, which are sold, and the public rows."""
        return Loaded(getattr(datasets, self.source)(**self._arguments(), random_state=self.seed))

    def _arguments(self) -> dict[str, Any]:
        return self.model_dump(exclude={"source", "seed"})


class Wdbc(_Drawn):
    """Wisconsin breast-cancer data, for a classifier."""

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
    """Gaussian rows with a linear boundary between the classes, for a classifier."""

    source: Literal["synthetic"]
    n_sellers: Count
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    n_validation: Count = 500
    n_test: Count = 2000
    data_norm: Norm = 1.0


class Medical(_Drawn):
    """Medical insurance charges, for a regression."""

    is_classification = False
    data_norm: ClassVar[float] = 1.0

    source: Literal["medical"]
    train_fraction: _Sold = 0.8


class InlineData(tables.Table):
    """Rows in the problem file, which are also the validation and test sets."""

    is_classification: ClassVar[bool] = True

    source: Literal["inline"]
    features: tables.Many[tables.Many[float]]
    """Features, with one row for each seller."""
    labels: tables.Many[Literal[-1, 1]]
    """Labels, one for each seller."""
    data_norm: Norm = 1.0

    @model_validator(mode="after")
    def _rows_have_one_shape(self) -> Self:
        lengths = sorted({len(row) for row in self.features})
        if len(lengths) > 1 or len(self.features) != len(self.labels):
            sizes = f"{len(self.features)} rows of {lengths} features and {len(self.labels)} labels"
            raise ValueError(f"{sizes}; give rows of one length, and one label for each row")
        return self

    def load(self, _problem: Any) -> Loaded:
        """Return the rows as training, validation and test sets."""
        rows = np.array(self.features), np.array(self.labels, dtype=float)
        names = tuple(f"x{column}" for column in range(rows[0].shape[1]))
        text = "Rows of the problem file, which are also the validation and test sets."
        return Loaded(MarketData(*rows * 3, names, self.data_norm, text))


def _classes(value: Any) -> tuple[Any, ...]:
    pair = tuple(value) if isinstance(value, list) else ()
    alike = all(isinstance(label, str) for label in pair) or all(map(is_number, pair))
    if not (alike and len(pair) == 2 and pair[0] != pair[1]):
        raise ValueError(f"{value!r} is not [negative, positive], two different texts or numbers")
    return pair


def _public_column(value: Any) -> Any:
    if isinstance(value, list):
        words = [str(word).strip() if isinstance(word, str | bool) else word for word in value]
        value = tuple(value) if any(map(is_number, value)) else words
    with suppress(ParameterError):
        PublicFeatures({"": value}).fit()
        return value
    text = "give the range of a number, [low, high] with low < high of moderate size, or categories"
    raise ValueError(f'{value!r:.60} is not valid; {text} such as ["no", "yes"], each once')


_LIST = WithJsonSchema({"type": "array", "minItems": 1, "maxItems": tables.MOST_ENTRIES})
_PublicColumn = Annotated[Any, PlainValidator(_public_column), _LIST]
Classes: TypeAlias = Annotated[Any, PlainValidator(_classes), _LIST]


class OwnData(tables.Table):
    """Sellers in a CSV or Parquet file, with one row for each seller."""

    source: Literal["csv", "parquet"]
    file: tables.FileName
    """File of rows, relative to the problem file."""
    id: tables.Column | None = None
    """Column of the sellers' ids; by default, the ids are line numbers."""
    report: tables.Column | None = None
    """Column of prices asked per unit of epsilon; by default, reports are drawn from the prior."""
    label: tables.Column
    """Column of the labels."""
    classes: Classes = None
    """Public labels of the two classes of a classification, as [negative, positive]."""
    features: Annotated[dict[tables.Column, _PublicColumn], Field(min_length=1, max_length=1_000)]
    """Public range [low, high] of each numeric column, or list of categories of each other column.
    The category "other" represents all undeclared values. Undeclared columns are not used."""
    missing: Missing = "error"
    """Treatment of empty cells: "error", "middle" of the range, or "indicator" (a new feature)."""
    na_values: tables.Many[tables.Name] = ()
    """Texts that mark an empty cell of a CSV file, such as "k.A.", apart from outer blanks."""
    intercept: bool = True
    """Whether a constant is added to the features."""
    data_norm: Norm = 1.0
    public: dict[Literal["validation", "test"], tables.Share | tables.FileName] = Field({})
    """Public rows, which are not sold. The parameters of a classifier are chosen on "validation"
    rows, and errors are measured on "test" rows. Each value is a file, or a share of the rows,
    drawn with the seed of the run."""

    @model_validator(mode="after")
    def _one_role_each(self) -> Self:
        if self.id is not None and self.id == self.report:
            raise ValueError(f"column {self.id!r} is both id and report; name different columns")
        feature_columns([], self.label, list(self.features), report=self.report, id=self.id)
        return self

    @property
    def is_classification(self) -> bool:
        """Whether labels are classes."""
        return self.classes is not None

    @property
    def public_features(self) -> PublicFeatures:
        """Transformer of tables to feature arrays, which depends only on the problem file."""
        norm = self.data_norm if self.is_classification else None
        options: Any = {"missing": self.missing, "intercept": self.intercept, "data_norm": norm}
        return PublicFeatures(self.features, **options)

    def load(self, problem: Any) -> Loaded:
        """Read all rows, and scale them to a ball or, for a regression, to the unit box."""
        parts, features = read_people(problem), self.public_features
        text = f"Rows of {self.file}, with the ranges and categories of the problem file."
        names = tuple(map(str, features.get_feature_names_out()))
        facts: Any = {"feature_names": names, "description": text}
        sold, arrays = parts[SOLD], list[Any]()
        public = [parts.get(part, sold[:0]) for part in ("validation", "test")]
        if self.classes is None:
            for table in (sold, public[1]):
                arrays += features.transform_to_box(table), table[self.label].to_numpy(np.float64)
            rows: Any = RegressionData(*arrays, **facts)
        else:
            for table in (sold, *public):
                is_positive = table[self.label] == self.classes[1]
                arrays += features.transform(table), np.where(is_positive, 1.0, -1.0)
            rows = MarketData(*arrays, **facts | {"data_norm": self.data_norm})
        reports = None if self.report is None else sold[self.report].to_numpy()
        return Loaded(rows, sold.index.tolist(), reports)


#: Sources of rows: data sets of :mod:`convexmarket.data.datasets`, the problem file, or a table.
ForClassifiers: TypeAlias = Wdbc | Synthetic | InlineData
Data: TypeAlias = ForClassifiers | Medical | OwnData


def read_people(
    problem: Any, group: str | None = None, na_values: Sequence[str] = (), show_cells: bool = False
) -> Parts:
    """Read the rows for sale, with the column ``group`` if it is given, and the public rows."""
    data, path = problem.data, problem.place(problem.data.file)
    roles = {data.id: "id", data.report: "sensitivity", group: "group"}
    sellers = _read(problem, data.file, roles, na_values, show_cells)
    shares = {part: share for part, share in data.public.items() if not isinstance(share, str)}
    return drawn(sellers, shares, problem.run.seed, path) | read_public(problem, na_values)


def read_public(problem: Any, na_values: Sequence[str] = ()) -> Parts:
    """Read the public rows that are stored in separate files, and return them by purpose."""
    files = {part: file for part, file in problem.data.public.items() if isinstance(file, str)}
    rows = {part: _read(problem, file, {}, na_values, False) for part, file in files.items()}
    return {part: table.reset_index(drop=True) for part, table in rows.items()}


def drawn(rows: pd.DataFrame, shares: Mapping[str, float], seed: int, path: Path) -> Parts:
    """Split rows at random into rows for sale and public rows, without changing their order."""
    stream = np.random.SeedSequence(seed, spawn_key=(_PUBLIC,))
    order = np.random.default_rng(stream).permutation(len(rows))
    ends = np.cumsum([round(share * len(rows)) for share in shares.values()], dtype=int)
    chosen = zip([*shares, SOLD], np.split(order, ends), strict=True)
    parts = {part: rows.iloc[np.sort(places)] for part, places in chosen}
    if few := [part for part, taken in parts.items() if taken.empty]:
        text = f"{path}: {len(rows)} rows are too few: no rows are left for {few[0]!r}"
        raise DataError(f"{text}; give other shares (data.public), or more rows")
    return parts


def read_cells(
    problem: Any, name: str, more: Sequence[str] = (), na_values: Sequence[str] = ()
) -> tuple[pd.DataFrame, str]:
    """Read the labels, the features and the columns ``more`` of a file as stripped text.

    The second result is the prefix of line numbers in messages, such as "rows.csv: line".
    """
    data, path = problem.data, problem.place(name)
    wanted = list(dict.fromkeys([*more, data.label, *data.features]))

    def choose(columns: list[str]) -> list[str]:
        if absent := [column for column in wanted if column not in columns]:
            text = f"{path}: no column is called {absent[0]!r}; {lists.columns_listed(columns)}"
            raise DataError(f"{text}. Name one of them in [data]")
        return wanted

    if data.source == "parquet":
        cells, unit = read_parquet(path, choose).convert_dtypes().astype("str").fillna(""), "row"
    else:
        cells, unit = read_texts(path, choose, [*na_values, *data.na_values]), "line"
    if cells.empty:
        raise DataError(f"{path}: the file has no rows; give one row per seller")
    return cells.apply(lambda column: column.str.strip()), f"{path}: {unit}"


def _read(
    problem: Any, name: str, roles: dict[Any, str], na_values: Sequence[str], show_cells: bool
) -> pd.DataFrame:
    data: OwnData = problem.data
    names = {role: column for column, role in roles.items() if column is not None}
    cells, place = read_cells(problem, name, list(names.values()), na_values)
    table = cells[list(data.features)].replace("", None)
    ids = [f"{place.rpartition(' ')[2]}-{line}" for line in cells.index]
    if names:
        listed = cells[list(names.values())].set_axis(list(names), axis=1)
        options: Any = {"show_cells": show_cells, "is_csv": True}
        listed = lists.checked_list(listed, problem.prior, place, names, **options)
        ids = listed["id"].tolist() if "id" in listed else ids
        table = table.assign(**{column: listed[role] for role, column in names.items()})
    for column, declared in data.features.items():
        if set(declared) == {"False", "True"}:  # other programs write "true" or "TRUE"
            table[column] = table[column].str.capitalize()
    data.public_features.transform(table.rename_axis(index=place))  # checks all cells
    for column, declared in data.features.items():
        if isinstance(declared, tuple):
            table[column] = numbers_in(table[column].dropna()).reindex(table.index)
    target_range = getattr(problem.learner, "options", {}).get("target_range")
    table[data.label] = _labels(cells[data.label], data.classes, target_range, place)
    return table.set_axis(pd.Index(ids, dtype=object))


def _labels(texts: pd.Series[Any], classes: Any, target_range: Any, place: str) -> Any:
    what = f"the cell in column {texts.name!r}"
    if classes is None:
        numbers = numbers_in(texts)
        low, high = target_range or (-np.inf, np.inf)
        why = "is not a finite number; omit rows without a label"
        lists.refuse(place, ~np.isfinite(numbers), why, what)
        why = f"is outside learner.target_range, [{low:g}, {high:g}]; declare a wider range"
        lists.refuse(place, ~numbers.between(low, high), why, what)
        return numbers
    first, second = (pd.Series(lists.is_class(texts, known), texts.index) for known in classes)
    why = f"is neither of the classes {classes[0]!r} and {classes[1]!r}"
    lists.refuse(place, ~(first | second), why, what)
    return np.array(classes, object)[second.astype(int)]
