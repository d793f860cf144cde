"""Rows and labels for a classification, as a problem file names them, and who sells them."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from convexmarket.lab.problem.base import (
    Positive,
    Seed,
    Share,
    TableModel,
)

__all__ = [
    "ClassificationData",
    "InlineData",
    "SyntheticData",
    "WdbcData",
]


Row = Annotated[tuple[float, ...], Field(strict=False, min_length=1, max_length=10_000)]


class WdbcData(TableModel):
    """The Wisconsin breast-cancer data, scikit-learn's copy; the training rows are the sellers."""

    source: Literal["wdbc"]
    train_fraction: Share = 0.6
    validation_fraction: Share = 0.2
    split_seed: Seed = 0
    data_norm: Positive = 1.0

    @model_validator(mode="after")
    def _leave_rows_for_the_test(self) -> Self:
        if self.train_fraction + self.validation_fraction >= 1:
            raise ValueError(
                "train_fraction + validation_fraction is "
                f"{self.train_fraction + self.validation_fraction:g}; leave rows for the test; "
                "give fractions that sum to less than 1"
            )
        return self


class SyntheticData(TableModel):
    """Gaussian rows with a linear separator through the origin (A, section X)."""

    source: Literal["synthetic"]
    n_sellers: Annotated[int, Field(ge=1, le=1_000_000)]
    n_features: Annotated[int, Field(ge=1, le=10_000)]
    n_validation: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    n_test: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    data_seed: Seed = 0
    data_norm: Positive = 1.0


class InlineData(TableModel):
    """Rows written in the file itself; they serve as validation and test rows as well."""

    source: Literal["inline"]
    features: Annotated[
        tuple[Row, ...],
        Field(strict=False, min_length=1, max_length=10_000),
    ]
    labels: Annotated[
        tuple[Literal[-1, 1], ...], Field(strict=False, min_length=1, max_length=10_000)
    ]
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


#: Where the rows come from: ``source`` says.
ClassificationData: TypeAlias = Annotated[
    WdbcData | SyntheticData | InlineData, Field(discriminator="source")
]
