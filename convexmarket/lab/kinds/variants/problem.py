"""Files of kind "variants": a market without a learner, and changes to it, side by side.

The file states a market: sellers, prior, objective, constraints. Each variant says what it changes,
and is checked as the complete market that comes of it, so that an error names the variant's key.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
)

from convexmarket.lab.problem.base import (
    PriorTable,
    ProblemModel,
    RunTable,
    TableModel,
)
from convexmarket.lab.problem.completing import merged, plain, with_value
from convexmarket.lab.problem.declared import (
    AuditTable,
    MarketTable,
    Name,
    PaymentAccuracyTable,
    ReportsTable,
    SolveTable,
    SweptKey,
)
from convexmarket.lab.problem.pieces import ConstraintsTable, TermsTable

__all__ = ["VariantTable", "VariantsProblem"]


class VariantTable(TableModel):
    """What a variant changes: tables are merged key by key, and ``false`` removes an entry.

    ``sellers``, ``prior``, and a term of another kind under the same label, replace what was there.
    """

    completed_as: ClassVar[type[TableModel]] = MarketTable

    name: Name
    sweep: SweptKey | None = None
    sellers: dict[str, Any] = Field(default_factory=dict)
    prior: dict[str, Any] = Field(default_factory=dict)
    objective: dict[str, Any] = Field(default_factory=dict)
    constraints: dict[str, Any] = Field(default_factory=dict)
    solve: dict[str, Any] = Field(default_factory=dict)
    payments: Any = Field(default_factory=dict)
    audit: Any = Field(default_factory=dict)

    _markets: tuple[MarketTable, ...] = PrivateAttr(default=())

    @property
    def markets(self) -> tuple[MarketTable, ...]:
        """The complete market; of a sweep, one for each value."""
        return self._markets

    @property
    def values(self) -> tuple[float | None, ...]:
        """What the swept key is in each of the markets; None where nothing is swept."""
        return (None,) if self.sweep is None else self.sweep.values


_BASE = tuple(MarketTable.model_fields)


def _complete(variant: VariantTable, info: ValidationInfo) -> VariantTable:
    """Check the market that the changes make of the base, at every value of a sweep."""
    if any(name not in info.data for name in ("run", *_BASE)):
        return variant  # the base has errors of its own, which are reported
    base = {name: found for name in _BASE if (found := plain(info.data[name]))}
    changes = {name: value for name in _BASE if (value := getattr(variant, name)) != {}}
    whole = merged(base, changes)
    swept = variant.sweep.key if variant.sweep is not None else ""
    if "sellers" in base and "sellers" not in changes and not swept.startswith("sellers."):
        whole["sellers"] = info.data["sellers"]  # one list of reports for all markets
    seed = info.data["run"].seed
    markets = []
    for value in variant.values:
        table = whole if variant.sweep is None else with_value(whole, variant.sweep.key, value)
        markets.append(MarketTable.model_validate(table))
        markets[-1].check(seed)
    variant._markets = tuple(markets)
    return variant


class VariantsProblem(ProblemModel):
    """A market and variants of it, solved side by side."""

    kind: Literal["variants"]
    sellers: ReportsTable | None = None
    prior: PriorTable | None = None
    objective: TermsTable = Field(default_factory=dict)
    constraints: ConstraintsTable = ConstraintsTable()
    solve: SolveTable = SolveTable()
    payments: PaymentAccuracyTable | None = None
    audit: AuditTable | None = None
    run: RunTable = RunTable()
    variants: Annotated[
        tuple[Annotated[VariantTable, AfterValidator(_complete)], ...],
        Field(strict=False, min_length=1, max_length=50),
    ]

    @field_validator("variants")
    @classmethod
    def _named_once(cls, variants: tuple[VariantTable, ...]) -> tuple[VariantTable, ...]:
        names = [variant.name for variant in variants]
        if len(set(names)) < len(names):
            raise ValueError("two variants have the same name; give each its own")
        return variants
