"""Rows for a learner: data sets of the package, rows of the problem file, or a user's table.

Only the columns of a table that the problem file names are read. Messages never show the text
of a cell unless the user asks for it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from convexmarket.data.features import OTHER, Missing, PublicFeatures
from convexmarket.data.tables import read_parquet
from convexmarket.errors import DataError
from convexmarket.studies.files import file_tables as tables

Floats = NDArray[np.float64]

#: The part with the rows for sale.
SOLD = "sold"
#: The branch of the seed that draws the public rows.
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
    """Share of the rows that chooses parameters; the remaining rows are for the test."""
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


#: A data set of :mod:`convexmarket.data.datasets`.
PackageData: TypeAlias = Wdbc | Synthetic | Medical

_Some = Field(strict=False, min_length=1, max_length=10_000)


class InlineData(tables.Table):
    """Rows in the problem file; the sellers' rows validate and test as well."""

    is_classification: ClassVar[bool] = True

    source: Literal["inline"]
    features: Annotated[tuple[Annotated[tuple[float, ...], _Some], ...], _Some]
    """One row per seller."""
    labels: Annotated[tuple[Literal[-1, 1], ...], _Some]
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
        """Return the rows, three times."""
        rows = np.array(self.features), np.array(self.labels, dtype=float)
        names = tuple(f"x{column}" for column in range(rows[0].shape[1]))
        text = "Rows of the problem file; the sellers' rows validate and test as well."
        return MarketData(
            *rows * 3, feature_names=names, data_norm=self.data_norm, description=text
        )


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


def _list_of(least: int, most: int, *types: str) -> WithJsonSchema:
    items = {"type": list(types), "maxLength": tables.LONGEST_TEXT}
    return WithJsonSchema({"type": "array", "items": items, "minItems": least, "maxItems": most})


_Classes = Annotated[Any, PlainValidator(_classes), _list_of(2, 2, "string", "number")]
_Range = _list_of(1, tables.MOST_ENTRIES, "number", "string", "boolean")
_PublicColumn = Annotated[Any, PlainValidator(_public_column), _Range]


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
    classes: _Classes | None = None
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
        """Transformer from the table to rows, which depends only on declared facts."""
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

    The parts are "sold", whose index holds the sellers' ids, and the parts of public rows.
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
        """The prices that the sellers ask."""
        name = self.data.report
        return None if name is None else self.parts[SOLD][name].to_numpy(np.float64)

    @property
    def facts(self) -> dict[str, Any]:
        """Names of the features and a description, as data sets have them."""
        names = self.data.public_features.get_feature_names_out()
        text = f"Rows of {self.data.file}, with the ranges and categories of the problem file."
        return {"feature_names": tuple(map(str, names)), "description": text}

    def rows_of(self, part: str) -> tuple[Floats, Floats]:
        """Return rows of a ball with labels -1 and 1, or of the unit box with labels as given."""
        table, data = self.parts[part], self.data
        labels, features = table[data.label], data.public_features
        if data.classes is None:
            return features.transform_to_box(table), labels.to_numpy(np.float64)
        return features.transform(table), np.where(labels == data.classes[1], 1.0, -1.0)

    def rows(self) -> MarketData | RegressionData:
        """Return all rows as a data set."""
        if self.data.is_classification:
            arrays: list[Any] = [
                each for part in (SOLD, "validation", "test") for each in self.rows_of(part)
            ]
            return MarketData(*arrays, **(self.facts | {"data_norm": self.data.data_norm}))
        return RegressionData(*self.rows_of(SOLD), *self.rows_of("test"), **self.facts)


def read_people(
    problem: Any, group: str | None = None, na_values: Sequence[str] = (), show_cells: bool = False
) -> People:
    """Read the sellers and the public rows of a problem with a prior and :class:`OwnData`.

    ``group`` is the column of the sellers' groups; errors name lines and ids.
    """
    data: OwnData = problem.data
    rows = _read(problem, data.file, na_values, group, show_cells)
    path = problem.place(data.file)
    parts = drawn(rows, data.public_shares, problem.run.seed, path)
    return People(data, path, parts | read_public(problem, na_values))


def read_public(problem: Any, na_values: Sequence[str] = ()) -> dict[str, pd.DataFrame]:
    """Read the files of public rows, by purpose."""
    return {
        part: _read(problem, name, na_values, public=True).reset_index(drop=True)
        for part, name in problem.data.public.items()
        if isinstance(name, str)
    }


def check_file(problem: Any) -> None:
    """Check that the file of rows, if it exists, has the declared columns."""
    if os.path.lexists(problem.place(problem.data.file)):
        _cells(problem, problem.data.file, (), None, public=False)


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


def _cells(
    problem: Any, name: str, na_values: Sequence[str], group: str | None, *, public: bool
) -> tuple[pd.DataFrame, str]:
    """Read the declared columns of a file; return them, and the place that their index counts."""
    data, path = problem.data, problem.place(name)
    keys = {} if public else {data.id: "data.id", data.report: "data.report"}
    keys |= {group: "--group-column", data.label: "data.label"}
    keys |= {column: f"data.features.{column}" for column in data.features}
    keys.pop(None, None)

    def choose(columns: list[str]) -> list[str]:
        for column, key in keys.items():
            if column not in columns:
                raise DataError(
                    f"{path}: no column is called {column!r}; {lists.columns_listed(columns)}. "
                    f"Name one of them ({key})"
                )
        return list(keys)

    parquet = data.source == "parquet"
    frame = read_parquet(path, choose) if parquet else read_texts(path, choose, na_values)
    if frame.empty:
        raise DataError(f"{path}: the file has no rows; give one row per seller")
    return frame, f"{path}: {'row' if parquet else 'line'}"


def _read(
    problem: Any,
    name: str,
    na_values: Sequence[str],
    group: str | None = None,
    show_cells: bool = False,
    *,
    public: bool = False,
) -> pd.DataFrame:
    """Read and check rows: features and label in the form of the learner, reports and groups.

    The index holds the ids of sellers, which are lines if the file has none.
    """
    data: OwnData = problem.data
    frame, place = _cells(problem, name, na_values, group, public=public)
    lines = frame.index.to_numpy()
    unit = place.rpartition(" ")[2]
    ids = pd.Series([f"{unit}-{line}" for line in lines], frame.index, object)
    if data.id is not None and not public:
        ids = lists.checked_ids(_texts(frame[data.id]), place)

    def refuse(wrong: Any, what: str, why: str) -> None:
        if len(bad := np.flatnonzero(wrong)):
            owner = "" if public else f" of {lists.clipped(ids.iloc[bad[0]])}"
            raise DataError(lists.blame(place, lines[bad], what + owner, why))

    columns: dict[str, Any] = {}
    if not public and data.report is not None:
        columns[data.report] = reports = numbers_in(frame[data.report])
        for wrong, why in lists.report_faults(reports, problem.prior):
            cell = frame[data.report][wrong].iloc[:1] if show_cells else ()
            refuse(wrong, " ".join(["the report", *map(lists.clipped, cell)]), why)
    if group is not None:
        columns[group] = _texts(frame[group])
        refuse(lists.blank(columns[group]), f"the group (column {group!r})", "is missing")
    for column, declared in data.features.items():
        columns[column], *faults = _feature(frame[column], column, declared, data.missing)
        for wrong, why in faults:
            refuse(wrong, f"the cell of the column {column!r}", why)
    target_range = getattr(problem.learner, "options", {}).get("target_range")
    columns[data.label], *faults = _labels(frame[data.label], data.classes, target_range)
    for wrong, why in faults:
        refuse(wrong, f"the cell of the column {data.label!r}", why)
    return pd.DataFrame(columns, frame.index).set_axis(pd.Index(ids.tolist(), dtype=object))


def _feature(cells: pd.Series[Any], name: str, declared: Any, missing: str) -> Iterator[Any]:
    """Yield a feature in the form of PublicFeatures, then its wrong cells with reasons."""
    empty, texts = lists.blank(cells), _texts(cells)
    if isinstance(declared, tuple):
        numbers = numbers_in(cells)
        yield numbers.where(~empty, np.nan)
        why = "is not a finite number; leave the cell of a missing number empty"
        yield ~np.isfinite(numbers) & ~empty, why
    else:
        if set(declared) == {"False", "True"}:  # other programs write "true" or "TRUE"
            texts = texts.str.capitalize()
        yield texts.where(~empty, None)
        if OTHER not in declared:
            why = (
                f"is not among its categories (data.features.{name}); declare it there as "
                f"the file writes it, or {OTHER!r}, the category of all undeclared values"
            )
            yield ~texts.isin(declared) & ~empty, why
    if missing == "error":
        yield empty, 'is empty; leave such rows out, or give data.missing, "indicator" or "middle"'


def _labels(cells: pd.Series[Any], classes: Any, target_range: Any) -> Iterator[Any]:
    """Yield the labels, then the wrong cells with reasons."""
    if classes is None:
        numbers = numbers_in(cells)
        yield numbers
        yield ~np.isfinite(numbers), "is not a finite number; leave rows without a label out"
        low, high = target_range or (-np.inf, np.inf)
        why = f"is outside learner.target_range, [{low:g}, {high:g}]; declare a wider one"
        yield ~numbers.between(low, high), why
        return
    negative, positive = (lists.is_class(_texts(cells), known) for known in classes)
    yield np.array(classes, object)[positive.astype(int)]
    yield ~(negative | positive), f"is neither of the classes {classes[0]!r} and {classes[1]!r}"


def _texts(cells: pd.Series[Any]) -> pd.Series[Any]:
    """Return cells in the form of a CSV file, without outer blanks; empty if missing."""

    def text(value: Any) -> str:
        whole = isinstance(value, float) and value.is_integer()
        return str(int(value) if whole else value).strip()

    return cells.astype(object).map(text, na_action="ignore").where(cells.notna(), "")
