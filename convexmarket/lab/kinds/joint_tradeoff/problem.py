"""Files of kind "joint-tradeoff": error against payments, bought with a look at the data."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from convexmarket.lab.kinds.tradeoff.problem import NaiveTable, ObjectiveTable
from convexmarket.lab.problem.base import RunTable, TableModel
from convexmarket.lab.problem.classification import ClassificationMarket, TrainingTable
from convexmarket.lab.problem.joint import JointTable

__all__ = ["JointObjectiveTable", "JointTradeoffProblem", "PurchaseNoiseTable", "RemarksTable"]

Remark = Annotated[str, Field(max_length=2000)]


class JointObjectiveTable(ObjectiveTable):
    """The buyer's objective, with the spread of B, ``mu*||a||``, or of A, ``mu*||a||^2``."""

    spread: Literal["norm", "squared"] = "norm"


class PurchaseNoiseTable(JointTable):
    """The joint problem, its noise not yet drawn when model, weights and eta are chosen."""

    @field_validator("noise")
    @classmethod
    def _before_it_is_drawn(cls, noise: str) -> str:
        if noise == "realised":
            raise ValueError(
                'with "realised" each noise vector makes its own purchase, and the range of eta '
                'decides how much; files of kind "joint-sweep" study that; here choose "expected" '
                'or "worst-case"'
            )
        return noise


class RemarksTable(TableModel):
    """Why a claim of the papers was not reproduced, in free text.

    A remark is shown only where its claim is not reproduced in full.
    """

    tradeoff_independent: Remark = ""
    tradeoff_correlated: Remark = ""
    naive_independent: Remark = ""
    naive_correlated: Remark = ""
    similar: Remark = ""


class JointTradeoffProblem(ClassificationMarket):
    """The joint problem over gamma, beside the two-step mechanism and the naive model."""

    kind: Literal["joint-tradeoff"]
    objective: JointObjectiveTable
    joint: PurchaseNoiseTable = PurchaseNoiseTable()
    learner: TrainingTable
    naive: NaiveTable
    remarks: RemarksTable = RemarksTable()
    run: RunTable = RunTable()
