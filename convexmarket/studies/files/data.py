"""Rows for a learner: data sets of the package, rows of the problem file, or a user's table."""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from convexmarket.checks import is_number
from convexmarket.data import datasets
from convexmarket.data.columns import refuse_reports
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import Missing, PublicFeatures
from convexmarket.studies.files.file_tables import (
    LONGEST_TEXT,
    MOST_ENTRIES,
    Column,
    FileName,
    Nonnegative,
    Share,
    Table,
)

__all__ = ["Data", "InlineData", "OwnData", "PackageData"]

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
        load: Any = getattr(datasets, self.source.replace("-", "_"))
        rows: MarketData | RegressionData = load(**given, random_state=self.seed)
        return rows


class Wdbc(_Drawn):
    """The Wisconsin breast-cancer data, for a classifier."""

    source: Literal["wdbc"]
    train_fraction: Sold = 0.6
    validation_fraction: Share = 0.2
    """Share of the rows that chooses parameters; the remaining rows are for the test."""
    data_norm: Norm = 1.0

    @model_validator(mode="after")
    def _rows_for_the_test(self) -> Self:
        if (total := self.train_fraction + self.validation_fraction) >= 1:
            raise ValueError(
                f"train_fraction + validation_fraction is {total:g}, which leaves no rows for the "
                "test; give fractions that sum to less than 1"
            )
        return self

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


class _Regression(_Drawn):
    is_classification = False
    data_norm: ClassVar[float] = 1.0


class Medical(_Regression):
    """Insurance charges, for a regression."""

    source: Literal["medical"]
    train_fraction: Sold = 0.8


class SyntheticRegression(_Regression):
    """Rows with a linear label, for a regression."""

    source: Literal["synthetic-regression"]
    n_rows: Annotated[int, Field(ge=2, le=1_000_000)]
    n_features: Width
    train_fraction: Sold = 0.8
    label_noise: Nonnegative = 0.0
    """Standard deviation of the noise of the labels."""


#: A data set of :mod:`convexmarket.data.datasets`.
PackageData: TypeAlias = Wdbc | Synthetic | Medical | SyntheticRegression

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
        named = {"id": self.id, "report": self.report, "label": self.label}
        for key, column in named.items():
            if column in self.features:
                raise ValueError(f"the column {column!r} is {key}, not a feature; leave it out")
            if column is not None and list(named.values()).count(column) > 1:
                raise ValueError(f"the column {column!r} is named twice among {', '.join(named)}")
        refuse_reports(list(self.features), report=self.report)
        if (total := sum(self.public_shares.values())) >= 1:
            raise ValueError(
                f"public: the shares sum to {total:g}, which leaves no rows to buy; give shares "
                "that sum to less than 1"
            )
        return self


#: A source of rows; the key ``source`` selects the class.
Data = Annotated[PackageData | InlineData | OwnData, Field(discriminator="source")]
