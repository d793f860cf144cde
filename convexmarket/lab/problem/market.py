"""What files about a market say of its sellers and of its buyer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainValidator,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)

from convexmarket.lab.problem.base import (
    EtaRange,
    Nonnegatives,
    Positives,
    TableModel,
    without_repeats,
)
from convexmarket.lab.problem.limits import LONGEST_KEY, MOST_ENTRIES
from convexmarket.lab.problem.own import OwnTable

__all__ = [
    "BuyerTable",
    "SellersTable",
    "check_reports",
]


def _feature(value: Any) -> str | int:
    if (isinstance(value, str) and len(value) <= LONGEST_KEY) or (
        type(value) is int and 0 <= value < MOST_ENTRIES
    ):
        return value
    raise ValueError(f"{value!r} is no feature; give its name, or its position as an integer >= 0")


Feature = Annotated[
    str | int,
    PlainValidator(_feature),
    WithJsonSchema(
        {
            "type": ["string", "integer"],
            "maxLength": LONGEST_KEY,
            "exclusiveMaximum": MOST_ENTRIES,
        }
    ),
]


class SellersTable(TableModel):
    """What the sellers report, and how that relates to their data.

    Where ``sensitivities`` are left out, they are drawn from the prior. In the scenario
    "correlated" the k-th smallest goes to the row with the k-th smallest value of the feature
    ``correlated_with``, a name or a position (B, section 5).
    """

    sensitivities: Nonnegatives | None = None
    scenarios: Annotated[
        tuple[Literal["independent", "correlated"], ...],
        Field(strict=False, min_length=1, max_length=2),
    ] = ("independent",)
    correlated_with: Feature = 0

    @field_validator("scenarios")
    @classmethod
    def _once_each(cls, scenarios: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(scenarios)) < len(scenarios):
            raise ValueError("a scenario is listed twice; list each once")
        return scenarios


class BuyerTable(TableModel):
    """What the buyer decides beside the learner: the gammas to report, and constraints."""

    gamma: Positives
    cap: Annotated[float, Field(ge=1)] | None = None
    eta_range: EtaRange | None = None

    @field_validator("gamma")
    @classmethod
    def _different(cls, gamma: tuple[float, ...]) -> tuple[float, ...]:
        return without_repeats(gamma)


def check_reports(sellers: SellersTable, info: ValidationInfo) -> dict[str, Any]:
    """Check that sellers report once, and fit the prior; return the tables that were valid."""
    data = info.data.get("data")
    told = sellers != SellersTable()
    if told and isinstance(data, OwnTable) and data.report is not None:
        raise ValueError(
            f"the sellers' reports are those of the file (data.report, {data.report!r}), and "
            "nothing is drawn; leave one of the two out"
        )
    if sellers.sensitivities is not None and "prior" in info.data:
        info.data["prior"].check_reports(sellers.sensitivities)
    return info.data
