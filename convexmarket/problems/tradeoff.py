"""Files of kind "tradeoff": error against payments, for a classification."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from convexmarket.privacy import Accounting
from convexmarket.problems.base import (
    EtaRange,
    Positive,
    Positives,
    PriorTable,
    ProblemModel,
    RunTable,
    Share,
    TableModel,
)
from convexmarket.problems.market import BuyerTable, SellersTable, check_reports

__all__ = [
    "InlineData",
    "LearnerTable",
    "NaiveTable",
    "ObjectiveTable",
    "SyntheticData",
    "TradeoffProblem",
    "WdbcData",
]


class WdbcData(TableModel):
    """The Wisconsin breast-cancer data, scikit-learn's copy; the training rows are the sellers."""

    source: Literal["wdbc"]
    train_fraction: Share = 0.6
    validation_fraction: Share = 0.2
    split_seed: Annotated[int, Field(ge=0)] = 0
    data_norm: Positive = 1.0

    @model_validator(mode="after")
    def _leave_rows_for_the_test(self) -> Self:
        if self.train_fraction + self.validation_fraction >= 1:
            raise ValueError(
                f"train_fraction + validation_fraction is "
                f"{self.train_fraction + self.validation_fraction:g}; leave rows for the test: "
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
    data_seed: Annotated[int, Field(ge=0)] = 0
    data_norm: Positive = 1.0


class InlineData(TableModel):
    """Rows written in the file itself; they serve as validation and test rows as well."""

    source: Literal["inline"]
    features: Annotated[
        tuple[Annotated[tuple[float, ...], Field(strict=False, min_length=1)], ...],
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


class ObjectiveTable(BuyerTable):
    """The buyer's objective: the gammas to report, candidates for mu and sigma, constraints."""

    mu: Positives
    sigma: Positives


class LearnerTable(TableModel):
    """The private logistic regression: candidates for Lambda, noise draws, accounting."""

    regularization: Positives
    draws: Annotated[int, Field(ge=1, le=10_000)] = 15
    accounting: Accounting = "tight"
    calibration: Literal["noise", "total"] = "noise"


class NaiveTable(TableModel):
    """The naive model, mu = sigma = 0: the range of eta that makes it well posed, and its grid."""

    eta_range: EtaRange
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8


class TradeoffProblem(ProblemModel):
    """Error against payments over gamma: Algorithm 2 of A on a data set."""

    kind: Literal["tradeoff"]
    data: Annotated[WdbcData | SyntheticData | InlineData, Field(discriminator="source")]
    prior: PriorTable
    sellers: SellersTable = SellersTable()
    objective: ObjectiveTable
    learner: LearnerTable
    naive: NaiveTable
    run: RunTable = RunTable()

    @field_validator("sellers")
    @classmethod
    def _reports_fit(cls, sellers: SellersTable, info: ValidationInfo) -> SellersTable:
        """Check given sensitivities against the prior and against the rows of inline data."""
        data = check_reports(sellers, info).get("data")
        given = sellers.sensitivities
        if given and isinstance(data, InlineData) and len(given) != len(data.labels):
            raise ValueError(
                f"there are {len(given)} sensitivities for {len(data.labels)} rows of data; "
                "give one for each"
            )
        return sellers
