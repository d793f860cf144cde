"""Files of kind "tradeoff": error against payments, for a classification."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convexmarket.lab.problem.base import EtaRange, Positives, RunTable, TableModel
from convexmarket.lab.problem.classification import ClassificationMarket, TrainingTable
from convexmarket.lab.problem.market import BuyerTable
from convexmarket.lab.problem.purchase import Purchase, limits_of, the_one
from convexmarket.lab.problem.risk import WithRisk
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.privacy import Accounting

__all__ = ["LearnerTable", "NaiveTable", "ObjectiveTable", "TradeoffProblem"]


class ObjectiveTable(BuyerTable, WithRisk):
    """The buyer's objective: the gammas to report, candidates for mu and sigma, constraints."""

    mu: Positives
    sigma: Positives

    def n_purchases(self, naive: NaiveTable) -> int:
        """Return how often each scenario's sellers are bought from."""
        return len(self.gamma) * (len(self.mu) * len(self.sigma) + naive.grid)


class LearnerTable(TrainingTable):
    """The private logistic regression: candidates for Lambda, noise draws, accounting."""

    accounting: Accounting = "sharp"
    calibration: Literal["total", "noise"] = "total"
    tuning: Literal["free", "charged"] = "free"

    @model_validator(mode="after")
    def _charge_what_is_kept(self) -> Self:
        if self.tuning == "charged" and self.calibration == "noise":
            raise ValueError(
                "tuning must be 'free' with calibration = 'noise', got 'charged': a search keeps "
                "what was sold; take calibration = 'total'"
            )
        return self


class NaiveTable(TableModel):
    """The naive model, mu = sigma = 0: the range of eta that makes it well posed, and its grid."""

    eta_range: EtaRange
    grid: Annotated[int, Field(ge=1, le=1_000)] = 8


class TradeoffProblem(ClassificationMarket):
    """Error against payments over gamma: Algorithm 2 of A on a data set."""

    kind: Literal["tradeoff"]
    objective: ObjectiveTable
    learner: LearnerTable
    naive: NaiveTable
    run: RunTable = RunTable()

    def memory(self) -> dict[str, float]:
        """Return how many numbers a run holds at once, by the keys whose product they are."""
        return self._memory_of(self.objective.n_purchases(self.naive))

    def purchase(self) -> Purchase:
        """Return the one purchase that the file asks for: one mu, sigma and Lambda."""
        learner, data = self.learner, self.data
        model = PrivateLogisticRegression(
            the_one("learner.regularization", learner.regularization),
            data_norm=data.data_norm,
            accounting=learner.accounting,
            calibration=learner.calibration,
            cap=self.objective.cap,
            features=getattr(data, "public_features", None),
            classes=getattr(data, "classes", None),
        )
        mu = the_one("objective.mu", self.objective.mu)
        sigma = the_one("objective.sigma", self.objective.sigma)
        return Purchase(model, mu, sigma, limits_of(self.objective), self.objective.gamma)
