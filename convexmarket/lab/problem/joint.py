"""What files about the joint problem have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from convexmarket.lab.problem.base import Positive, Share, TableModel

__all__ = ["ClaimTable", "JointTable"]

Shape = Literal["rises", "falls", "falls, then rises", "vanishes", "does not change"]


class JointTable(TableModel):
    """How the noise counts when model, weights and eta are chosen, and how many descents to make.

    The keys are those of :class:`convexmarket.JointMarket`; ``starts`` is that of
    :func:`convexmarket.allocate_jointly`.
    """

    noise: Literal["expected", "worst-case", "realised"] = "expected"
    failure_probability: Share = 0.05
    max_norm: Positive | None = None
    starts: Annotated[int, Field(ge=1, le=100)] = 3


class ClaimTable(TableModel):
    """What a paper says of a curve, and a remark on what we find."""

    source: Annotated[str, Field(min_length=1, max_length=100)]
    says: Annotated[str, Field(min_length=1, max_length=500)]
    measure: str
    shape: Shape
    remark: Annotated[str, Field(max_length=2000)] = ""
