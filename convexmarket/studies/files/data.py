"""Rows for a learner: data sets of the package, rows of the problem file, or a user's table."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from convexmarket.checks import is_number
from convexmarket.data import datasets
from convexmarket.data.columns import refuse_reports
from convexmarket.data.datasets import MarketData, RegressionData
from convexmarket.data.features import Missing, PublicFeatures
from convexmarket.studies.files.base import (
    LONGEST_TEXT,
    MOST_ENTRIES,
    Column,
    Count,
    FileName,
    Nonnegative,
    Positive,
    Seed,
    Share,
    Table,
)

__all__ = ["Data", "InlineData", "OwnData", "PackageData"]

#: The keys of each data set of the package; those without a default of its function are required.
_KEYS: dict[str, set[str]] = {
    "wdbc": {"seed", "train_fraction", "validation_fraction", "data_norm"},
    "synthetic": {"seed", "n_sellers", "n_features", "n_validation", "n_test", "data_norm"},
    "medical": {"seed", "train_fraction"},
    "synthetic-regression": {"seed", "n_rows", "n_features", "train_fraction", "label_noise"},
}
_REQUIRED = {"n_sellers", "n_features", "n_rows"}


class PackageData(Table):
    """A data set of :mod:`convexmarket.data.datasets`; each training row belongs to a seller.

    Attributes
    ----------
    source : str
        "wdbc" (breast cancer) and "synthetic" (a linear boundary) for classifiers, "medical"
        (insurance charges) and "synthetic-regression" for regressions.
    seed : int
        Seed of the split, or of the rows that are drawn.
    train_fraction, validation_fraction : float
        Shares of the rows that are sold, and that choose parameters; the other rows test.
    n_sellers, n_rows, n_features, n_validation, n_test : int
        Sizes of drawn data: sellers, rows in all, features, public rows.
    label_noise : float
        Standard deviation of the noise of drawn labels.
    data_norm : float
        Public bound on the norm of a row of a classification.
    """

    source: Literal["wdbc", "synthetic", "medical", "synthetic-regression"]
    seed: Seed = 0
    train_fraction: Share | None = None
    validation_fraction: Share = 0.2
    n_sellers: Count | None = None
    n_rows: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    n_features: Annotated[int, Field(ge=1, le=10_000)] | None = None
    n_validation: Count = 500
    n_test: Count = 500
    label_noise: Nonnegative = 0.0
    data_norm: Positive = 1.0

    @property
    def is_classification(self) -> bool:
        """Whether labels are classes."""
        return self.source in ("wdbc", "synthetic")

    @model_validator(mode="after")
    def _keys_of_the_source(self) -> Self:
        known, defaults = _KEYS[self.source], type(self).model_fields
        given = {
            key for key in self.model_fields_set if getattr(self, key) != defaults[key].default
        }
        if other := given - known - {"source"}:
            raise ValueError(
                f"{sorted(other)[0]} is not a key of the source {self.source!r}; known are "
                f"{', '.join(sorted(known))}"
            )
        if missing := (known & _REQUIRED) - given:
            raise ValueError(f"{sorted(missing)[0]} is missing, for the source {self.source!r}")
        total = (self.train_fraction or 0.6) + self.validation_fraction
        if self.source == "wdbc" and total >= 1:
            raise ValueError(
                f"train_fraction + validation_fraction is {total:g}, which leaves no rows for the "
                "test; give fractions that sum to less than 1"
            )
        return self

    def rows(self) -> MarketData | RegressionData:
        """Return the rows: training rows, which are sold, and public rows."""
        given = self.model_dump(include=_KEYS[self.source], exclude_defaults=True)
        given["random_state"] = given.pop("seed", 0)
        if self.source == "wdbc":
            train, validation = self.train_fraction or 0.6, self.validation_fraction
            given.pop("train_fraction", None), given.pop("validation_fraction", None)
            given["fractions"] = train, validation, 1.0 - train - validation
        load: Callable[..., Any] = getattr(datasets, self.source.replace("-", "_"))
        rows: MarketData | RegressionData = load(**given)
        return rows


_Row = Annotated[tuple[float, ...], Field(strict=False, min_length=1, max_length=10_000)]
_Labels = tuple[Literal[-1, 1], ...]


class InlineData(Table):
    """Rows in the problem file; the sellers' rows validate and test as well.

    Attributes
    ----------
    source : str
        "inline".
    features : list of lists
        One row per seller.
    labels : list of int
        -1 or 1, one per seller.
    data_norm : float
        Public bound on the norm of a row.
    """

    source: Literal["inline"]
    features: Annotated[tuple[_Row, ...], Field(strict=False, min_length=1, max_length=10_000)]
    labels: Annotated[_Labels, Field(strict=False, min_length=1, max_length=10_000)]
    data_norm: Positive = 1.0

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

    @property
    def is_classification(self) -> bool:
        """Whether labels are classes."""
        return True

    def rows(self) -> MarketData:
        """Return the rows, three times."""
        rows = np.array(self.features), np.array(self.labels, dtype=float)
        names = tuple(f"x{column}" for column in range(len(self.features[0])))
        text = "Rows of the problem file; the sellers' rows validate and test as well."
        return MarketData(
            *rows * 3, feature_names=names, data_norm=self.data_norm, description=text
        )


# ------------------------------------------------------------------------------ a user's table


def _label(value: Any) -> str | int | float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} cannot be a label; give a text or a number")


_Label = Annotated[
    str | int | float,
    PlainValidator(_label),
    WithJsonSchema({"type": ["string", "number"], "maxLength": LONGEST_TEXT}),
]

#: What is public of a column: the range of a number, or the categories of a word.
_Public = tuple[float, float] | tuple[str, ...]


def _public_column(value: Any) -> _Public:
    if isinstance(value, list | tuple) and value:
        if len(value) == 2 and all(map(is_number, value)):
            low, high = map(float, value)
            if -math.inf < low < high < math.inf:
                return low, high
        elif all(isinstance(word, str | bool) for word in value):
            words = tuple(str(word).strip() for word in value)
            if len(set(words)) == len(words):
                return words
    raise ValueError(
        f"{value!r} declares nothing public of a column; give the range of a number, [low, high] "
        'with low < high, or the categories of a word, ["no", "yes"], each once'
    )


_numbers = {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}
_words = {
    "type": "array",
    "items": {"type": ["string", "boolean"], "maxLength": LONGEST_TEXT},
    "minItems": 1,
    "maxItems": MOST_ENTRIES,
    "uniqueItems": True,
}
_PublicEntry = Annotated[
    _Public,
    PlainValidator(_public_column),
    PlainSerializer(list),
    WithJsonSchema({"oneOf": [_numbers, _words]}),
]


_Purpose = Literal["validation", "test"]


class OwnData(Table):
    """Sellers in a CSV or Parquet file, each with a row.

    Attributes
    ----------
    source : str
        "csv" or "parquet".
    file : str
        The file of rows, relative to the problem file.
    id : str
        Column of the sellers' ids; by default sellers are named by their lines.
    report : str
        Column of what sellers ask per unit of epsilon; by default reports are drawn from the prior.
    label : str
        Column of the labels.
    classes : list
        The two labels of a classification, [negative, positive]: public.
    features : table
        The range of each column of numbers, [low, high], or its categories, among which "other"
        stands for all that are not declared. Other columns are not read.
    missing : str
        What an empty cell means: "error", "middle" of the range, or "indicator", a feature.
    intercept : bool
        Whether a constant is added to the features.
    data_norm : float
        Public bound on the norm of a row of a classification.
    public : table
        Rows that are public, and so not sold: "validation" rows choose the parameters of a
        classifier, and "test" rows test. Each is a share of the file, drawn by the run's seed, or a
        file.
    """

    source: Literal["csv", "parquet"]
    file: FileName
    id: Column | None = None
    report: Column | None = None
    label: Column
    classes: Annotated[tuple[_Label, _Label], Field(strict=False)] | None = None
    features: Annotated[dict[Column, _PublicEntry], Field(min_length=1, max_length=1_000)]
    missing: Missing = "error"
    intercept: bool = True
    data_norm: Positive = 1.0
    public: dict[_Purpose, Share | FileName] = Field(default_factory=dict)

    @property
    def public_shares(self) -> dict[str, float]:
        """Shares of the file that are public, by purpose."""
        return {part: share for part, share in self.public.items() if not isinstance(share, str)}

    @property
    def public_files(self) -> dict[str, str]:
        """Files of public rows, by purpose."""
        return {part: name for part, name in self.public.items() if isinstance(name, str)}

    @property
    def is_classification(self) -> bool:
        """Whether labels are classes."""
        return self.classes is not None

    @property
    def public_features(self) -> PublicFeatures:
        """The transformer from the table to rows, from declared facts alone."""
        columns: dict[str, Any] = {
            name: public if is_number(public[0]) else list(public)
            for name, public in self.features.items()
        }
        return PublicFeatures(
            columns,
            missing=self.missing,
            intercept=self.intercept,
            data_norm=None if self.classes is None else self.data_norm,
        )

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        named = {"id": self.id, "report": self.report, "label": self.label}
        for key, column in named.items():
            if column in self.features:
                raise ValueError(f"the column {column!r} is {key}, not a feature; leave it out")
            if column is not None and list(named.values()).count(column) > 1:
                raise ValueError(f"the column {column!r} is named twice among {', '.join(named)}")
        refuse_reports(list(self.features), report=self.report)
        return self

    @model_validator(mode="after")
    def _rows_to_buy(self) -> Self:
        if (total := sum(self.public_shares.values())) >= 1:
            raise ValueError(
                f"public: the shares sum to {total:g}, which leaves no rows to buy; give shares "
                "that sum to less than 1"
            )
        return self

    @model_validator(mode="after")
    def _two_classes(self) -> Self:
        if self.classes is not None:
            negative, positive = self.classes
            if negative == positive or isinstance(negative, str) != isinstance(positive, str):
                raise ValueError(
                    f"classes are {negative!r} and {positive!r}; give [negative, positive], two "
                    "different texts or numbers"
                )
        return self


#: Where the rows come from: ``source`` decides.
Data = Annotated[PackageData | InlineData | OwnData, Field(discriminator="source")]
