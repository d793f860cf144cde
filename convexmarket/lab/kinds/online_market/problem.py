"""Files of kind "online-market": sellers arrive one by one, and each is quoted on arrival."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, ValidationInfo, field_validator, model_validator

from convexmarket.lab.problem.base import Positive, PriorTable, ProblemModel, RunTable, TableModel
from convexmarket.lab.problem.classification import InlineData, SyntheticData, WdbcData
from convexmarket.lab.problem.own import ColumnName, OwnClasses
from convexmarket.lab.problem.risk import WithRisk
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.privacy import Accounting

__all__ = [
    "OnlineBuyerTable",
    "OnlineData",
    "OnlineLearnerTable",
    "OnlineMarketProblem",
    "OwnSellers",
    "PlanTable",
    "SimulationTable",
]

#: As many sellers as a market can count on.
MOST_SELLERS = 1_000_000_000


Count = Annotated[int, Field(ge=1, le=MOST_SELLERS)]


class OwnSellers(OwnClasses):
    """A table of people who may sell; they are quoted by ``id`` before their rows are read.

    The rows are read when the market closes; those of the file ``test`` are public, and are read
    when it opens. Where ``report`` is named, a simulation quotes the sellers by it, and draws none.
    """

    id: ColumnName = "id"


#: Where the rows come from: ``source`` says. Rows without names of their own are sold by sellers
#: called row-0, row-1 and so on.
OnlineData: TypeAlias = Annotated[
    WdbcData | SyntheticData | InlineData | OwnSellers, Field(discriminator="source")
]


class OnlineBuyerTable(WithRisk):
    """What the buyer counts on and wants: sellers, the weights of its objective, a cap."""

    expected_sellers: Count
    mu: Positive
    sigma: Positive
    gamma: Positive
    cap: Annotated[float, Field(gt=1)] | None = None
    rule: Literal["expectation", "algorithm-3"] = "expectation"


class PlanTable(TableModel):
    """Whether terms change on the way: from what was sold so far, from reports so far.

    New plans are made after ``first`` sellers, and again whenever their number has grown by the
    factor ``growth``; each seller's terms follow from earlier reports alone. A prior that is learnt
    starts as the one of the file, which counts as ``guess_size`` reports; nothing is bought before
    the first new plan, unless ``trust_guess`` says that the file's prior is good enough for that.
    """

    replan: bool = False
    learn: bool = False
    first: Count | None = None
    growth: Annotated[float, Field(gt=1)] | None = None
    guess_size: Count | None = None
    trust_guess: bool | None = None

    @model_validator(mode="after")
    def _something_to_plan(self) -> Self:
        if (self.first or self.growth) and not (self.replan or self.learn):
            raise ValueError(
                "first and growth say when new plans are made; set replan or learn to true, or "
                "leave them out"
            )
        if (self.guess_size or self.trust_guess is not None) and not self.learn:
            raise ValueError(
                "guess_size and trust_guess are about a prior that is learnt; set learn to true"
            )
        return self

    @property
    def is_fixed(self) -> bool:
        """Whether the terms stay those of the first plan."""
        return not (self.replan or self.learn)


class OnlineLearnerTable(TableModel):
    """How the model is trained when the market closes.

    Under the defaults the total guarantee of each seller is at most what was sold to it, and what
    is published keeps it to the last digit of the solver, as a second noise covers how far it stops
    from the minimiser.
    """

    regularization: Positive
    accounting: Accounting = "sharp"
    calibration: Literal["total", "noise"] = "total"


class SimulationTable(TableModel):
    """What ``convexmarket run`` makes up: how many arrive, and how likely one accepts."""

    arrivals: Count | None = None
    acceptance: Annotated[float, Field(gt=0, le=1)] = 1.0


class OnlineMarketProblem(ProblemModel):
    """An online market: a prior, a buyer, and what is trained on what was sold."""

    kind: Literal["online-market"]
    prior: PriorTable
    buyer: OnlineBuyerTable
    plan: PlanTable = PlanTable()
    data: OnlineData
    learner: OnlineLearnerTable
    simulation: SimulationTable = SimulationTable()
    run: RunTable = RunTable()

    @field_validator("simulation")
    @classmethod
    def _enough_rows(cls, simulation: SimulationTable, info: ValidationInfo) -> SimulationTable:
        """Check the arrivals against rows whose number the file itself says."""
        data, arrivals = info.data.get("data"), simulation.arrivals
        rows = None
        if isinstance(data, SyntheticData):
            rows = data.n_sellers
        elif isinstance(data, InlineData):
            rows = len(data.labels)
        if rows is not None and arrivals is not None and arrivals > rows:
            raise ValueError(
                f"arrivals is {arrivals}, and the data have rows of {rows} sellers; give at most "
                "as many"
            )
        return simulation

    @property
    def has_reports(self) -> bool:
        """Whether the file of rows says what the sellers report."""
        return isinstance(self.data, OwnSellers) and self.data.report is not None

    def classifier(self, regularization: float | None = None) -> PrivateLogisticRegression:
        """Return the learner of this market, with another lambda if one is given."""
        wanted = self.learner
        return PrivateLogisticRegression(
            wanted.regularization if regularization is None else regularization,
            data_norm=self.data.data_norm,
            classes=(-1, 1),
            accounting=wanted.accounting,
            calibration=wanted.calibration,
            tol=1e-9,
        )

    def policy(self) -> OnlinePolicy | AdaptivePolicy:
        """Return the policy that quotes the sellers of this market.

        Raises
        ------
        ParameterError, PriorError
            If prior, buyer and plan do not make a policy.
        """
        start = OnlinePolicy(self.prior, **self.buyer.model_dump(exclude={"risk"}))
        if self.plan.is_fixed:
            return start
        return AdaptivePolicy(start, **self.plan.model_dump(exclude_none=True))
