"""A table of people in a file of the user's own, as a problem file names it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, PlainSerializer, PlainValidator, WithJsonSchema, model_validator

from convexmarket.checks import is_number
from convexmarket.data.columns import refuse_reports
from convexmarket.data.features import Missing, PublicFeatures
from convexmarket.lab.problem.base import Positive, Share, TableModel
from convexmarket.lab.problem.limits import LONGEST_KEY, LONGEST_TEXT, MOST_ENTRIES, MOST_KEYS

__all__ = [
    "ColumnName",
    "FileName",
    "Label",
    "OwnClasses",
    "OwnClassification",
    "OwnRegression",
    "OwnTable",
    "check_classes",
]

ColumnName = Annotated[str, Field(min_length=1, max_length=LONGEST_KEY)]
FileName = Annotated[str, Field(min_length=1, max_length=500)]


def _label(value: Any) -> str | int | float:
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        return value
    raise ValueError(f"{value!r} is no label; give a text or a number")


Label = Annotated[
    str | int | float,
    PlainValidator(_label),
    WithJsonSchema({"type": ["string", "number"], "maxLength": LONGEST_TEXT}),
]
Classes = Annotated[tuple[Label, Label], Field(strict=False)]


def check_classes(classes: tuple[Any, Any]) -> None:
    """Refuse two labels that are one, or of which one is a text and one a number."""
    if classes[0] == classes[1]:
        raise ValueError(f"classes are twice {classes[0]!r}; give [negative, positive]")
    if isinstance(classes[0], str) != isinstance(classes[1], str):
        raise ValueError(
            f"classes are {classes[0]!r} and {classes[1]!r}; give two texts or two numbers"
        )


#: What is public of a column: the range of a number, or the categories of a word.
PublicColumn: TypeAlias = tuple[float, float] | tuple[str, ...]


def _public_column(value: Any) -> PublicColumn:
    if isinstance(value, list | tuple) and value:
        if len(value) == 2 and all(map(is_number, value)):
            low, high = map(float, value)
            if -math.inf < low < high < math.inf:
                return low, high
        elif all(isinstance(word, str) for word in value):
            words = tuple(word.strip() for word in value)
            if len(set(words)) == len(words):
                return words
    raise ValueError(
        f"{value!r} says nothing public of a column; give the range of a number, [low, high] with "
        'low < high, or the categories of a word, ["no", "yes"], each once'
    )


_PublicEntry = Annotated[
    PublicColumn,
    PlainValidator(_public_column),
    PlainSerializer(list),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
                {
                    "type": "array",
                    "items": {"type": "string", "maxLength": LONGEST_TEXT},
                    "minItems": 1,
                    "maxItems": MOST_ENTRIES,
                    "uniqueItems": True,
                },
            ]
        }
    ),
]


class OwnTable(TableModel):
    """People in a CSV or Parquet file: who they are, what they report, and what is public of them.

    The file lies where the problem file says, relative to itself. ``report`` is the column of the
    sellers' own reports; without it reports are drawn from the prior. ``features`` says of every
    column of features the range of its numbers, ``[low, high]``, or its categories, among which
    "other" stands for all that are not declared; other columns are not read. ``missing`` and
    ``intercept`` are those of :class:`convexmarket.PublicFeatures`. Public rows, which are not
    bought, are shares of the file (``public``), drawn by the run's seed, or stand in files of their
    own.
    """

    source: Literal["csv", "parquet"]
    file: FileName
    id: ColumnName | None = None
    report: ColumnName | None = None
    label: ColumnName
    features: Annotated[dict[ColumnName, _PublicEntry], Field(min_length=1, max_length=MOST_KEYS)]
    missing: Missing = "error"
    intercept: bool = True

    @property
    def public_shares(self) -> dict[str, float]:
        """The share of the file's rows that is public, by what it is for; empty with files."""
        public = getattr(self, "public", None)
        return {} if public is None else dict(public)

    @property
    def public_files(self) -> dict[str, str]:
        """Files of public rows, by what they are for; empty with shares."""
        parts = ("validation", "test")
        files = {part: getattr(self, part, None) for part in parts}
        return {part: name for part, name in files.items() if name is not None}

    @property
    def public_features(self) -> PublicFeatures:
        """What makes rows of the table, without a look at it."""
        columns: dict[str, Any] = {
            name: public if is_number(public[0]) else list(public)
            for name, public in self.features.items()
        }
        norm: float | None = getattr(self, "data_norm", None)
        return PublicFeatures(
            columns, missing=self.missing, intercept=self.intercept, data_norm=norm
        )

    @model_validator(mode="before")
    @classmethod
    def _without_groups(cls, table: Any) -> Any:
        for key in ("group", "quota"):
            if isinstance(table, Mapping) and key in table:
                raise ValueError(
                    f"{key}: a market of this kind knows no groups and quotas; leave {key} out, "
                    "and see --group-column of convexmarket buy and price"
                )
        return table

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        named = {"id": self.id, "report": self.report, "label": self.label}
        for key, column in named.items():
            if column in self.features:
                raise ValueError(f"the column {column!r} is {key}, and so no feature; leave it out")
            if column is not None and list(named.values()).count(column) > 1:
                raise ValueError(f"the column {column!r} is named twice among {', '.join(named)}")
        refuse_reports(list(self.features), report=self.report)
        return self

    @model_validator(mode="after")
    def _something_public(self) -> Self:
        if "public" not in type(self).model_fields:  # bought without a trial before
            return self
        files = [part for part in ("validation", "test") if part in type(self).model_fields]
        given = list(self.public_files)
        if bool(self.public_shares) == bool(given) or (given and given != files):
            shares = ", ".join(f"{part} = 0.2" for part in files)
            raise ValueError(
                "say which rows are public, and so not bought: shares of the file, public = "
                f"{{ {shares} }}, or files of their own, {' and '.join(files)}"
            )
        return self


class PublicParts(TableModel):
    """Shares of the rows that are public: for choosing parameters, and for the test."""

    validation: Share
    test: Share

    @model_validator(mode="after")
    def _leave_rows_to_buy(self) -> Self:
        if self.validation + self.test >= 1:
            raise ValueError(
                f"validation + test is {self.validation + self.test:g}; leave rows to be bought; "
                "give shares that sum to less than 1"
            )
        return self


class PublicTest(TableModel):
    """The share of the rows that is public, for the test."""

    test: Share


class OwnClasses(OwnTable):
    """A table whose labels are one of two classes, [negative, positive]."""

    classes: Classes
    data_norm: Positive = 1.0
    test: FileName | None = None

    @model_validator(mode="after")
    def _two_classes(self) -> Self:
        check_classes(self.classes)
        return self


class OwnClassification(OwnClasses):
    """A table of two classes, of which public rows choose parameters and measure errors."""

    public: PublicParts | None = None
    validation: FileName | None = None


class OwnRegression(OwnTable):
    """A table whose labels are numbers of the learner's ``target_range``."""

    public: PublicTest | None = None
    test: FileName | None = None
