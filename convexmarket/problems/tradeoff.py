"""Files of kind "tradeoff": error against payments, for a classification."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, field_validator

from convexmarket.privacy import Accounting
from convexmarket.problems.base import (
    EtaRange,
    Positives,
    PriorTable,
    ProblemModel,
    RunTable,
    TableModel,
)
from convexmarket.problems.classification import ClassificationData, InlineData
from convexmarket.problems.market import BuyerTable, SellersTable, check_reports

__all__ = ["LearnerTable", "NaiveTable", "ObjectiveTable", "TradeoffProblem"]


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
    data: ClassificationData
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
