"""Files of kind "variants": a market without a learner, and changes to it, side by side.

The file states a market: sellers, prior, objective, constraints. Each variant says what it changes,
and is checked as the complete market that comes of it, so that an error names the variant's key.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    AfterValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_validator,
    model_validator,
)

from convexmarket.lab.problem.base import (
    Nonnegative,
    PriorTable,
    ProblemModel,
    RunTable,
    SolverName,
    TableModel,
)
from convexmarket.lab.problem.completing import merged, plain, with_value
from convexmarket.lab.problem.limits import PER_SELLER
from convexmarket.lab.problem.pieces import ConstraintsTable, Number, TermsTable, objective_of
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers

__all__ = [
    "AuditTable",
    "GroupTable",
    "MarketTable",
    "PaymentAccuracyTable",
    "ReportsTable",
    "SolveTable",
    "SweptKey",
    "VariantTable",
    "VariantsProblem",
]

_MOST_SELLERS = 100_000
Count = Annotated[int, Field(ge=1, le=_MOST_SELLERS)]
Reports = Annotated[
    tuple[Nonnegative, ...], Field(strict=False, min_length=1, max_length=_MOST_SELLERS)
]
Name = Annotated[str, Field(min_length=1, max_length=60)]


# ------------------------------------------------------------------------------------ a market


class GroupTable(TableModel):
    """A group of sellers: how many, or what they report, and their prior if it is their own."""

    name: Name
    count: Count | None = None
    sensitivities: Reports | None = None
    prior: PriorTable | None = None

    @model_validator(mode="after")
    def _one_source(self) -> GroupTable:
        if (self.count is None) == (self.sensitivities is None):
            raise ValueError("give either count, to draw so many from the prior, or sensitivities")
        return self


class ReportsTable(TableModel):
    """Who sells: so many drawn from the prior, given sensitivities, or groups of either."""

    count: Count | None = None
    sensitivities: Reports | None = None
    groups: Annotated[tuple[GroupTable, ...], Field(strict=False, max_length=50)] = ()

    @field_validator("groups")
    @classmethod
    def _named_once(cls, groups: tuple[GroupTable, ...]) -> tuple[GroupTable, ...]:
        names = [group.name for group in groups]
        if len(set(names)) < len(names):
            raise ValueError("two groups have the same name; give each its own")
        return groups

    @model_validator(mode="after")
    def _one_source(self) -> ReportsTable:
        given = [self.count is not None, self.sensitivities is not None, bool(self.groups)]
        if sum(given) != 1:
            raise ValueError("give one of count, sensitivities and groups")
        return self

    @property
    def size(self) -> int:
        """How many sellers there are."""
        return sum(map(_size, self.groups or (self,)))


class SolveTable(TableModel):
    """How the markets are solved: by which of CVXPY's solvers, and to which relative gap."""

    solver: SolverName = "CLARABEL"
    gap: Annotated[float, Field(gt=0, lt=1)] = 1e-6


class PaymentAccuracyTable(TableModel):
    """How accurately payments are estimated where there is no exact rule, relative to them."""

    tol: Annotated[float, Field(gt=0, lt=1)] = 1e-2


class AuditTable(TableModel):
    """How many sellers the audit of incentives takes, and how many misreports it tries of each."""

    sellers: Count = 5
    misreports: Annotated[int, Field(ge=2, le=1_000)] = 12


class MarketTable(TableModel):
    """A complete market, as a file states it."""

    sellers: ReportsTable
    prior: PriorTable | None = None
    objective: Annotated[TermsTable, Field(min_length=1)]
    constraints: ConstraintsTable = ConstraintsTable()
    solve: SolveTable = SolveTable()
    payments: PaymentAccuracyTable | None = None
    audit: AuditTable | None = None

    @property
    def groups(self) -> NDArray[np.str_] | None:
        """The group of each seller, where there are groups."""
        if not self.sellers.groups:
            return None
        return np.repeat(
            [group.name for group in self.sellers.groups],
            [_size(group) for group in self.sellers.groups],
        )

    @property
    def priors(self) -> dict[str, Prior]:
        """The prior of each group; of all sellers together, under "", where there are none."""
        if not self.sellers.groups:
            return {"": self._prior_or(None)}
        return {group.name: self._prior_or(group) for group in self.sellers.groups}

    def build_sellers(self, seed: int) -> Sellers:
        """Return the sellers; what is not given is drawn.

        The k-th seller has the same quantile of its prior for every prior, so that variants which
        differ in their prior are compared on the same draws.
        """
        tables: tuple[GroupTable | ReportsTable, ...] = self.sellers.groups or (self.sellers,)
        priors = list(self.priors.values())
        levels = np.random.default_rng(seed).random(sum(map(_size, tables)))
        starts = np.cumsum([0, *map(_size, tables)])
        reports = [
            prior.quantile(levels[start : start + _size(table)])
            if table.sensitivities is None
            else np.array(table.sensitivities)
            for table, prior, start in zip(tables, priors, starts[:-1], strict=True)
        ]
        reported = np.concatenate(reports)
        if self.groups is None:
            return Sellers(reported, priors[0])
        return Sellers(reported, self.priors, groups=self.groups)

    def build(self, seed: int) -> Market:
        """Return the market that the table states.

        Parameters
        ----------
        seed : int
            Of the sensitivities that are drawn.
        """
        return Market(
            self.build_sellers(seed),
            objective_of(self.objective, self.groups),
            self.constraints.build(self.groups),
        )

    def _prior_or(self, group: GroupTable | None) -> Prior:
        found = self.prior if group is None or group.prior is None else group.prior
        if found is None:
            whose = "the sellers" if group is None else f"the group {group.name!r}"
            raise ValueError(f"{whose} have no prior; give [prior]")
        return found


def _size(table: GroupTable | ReportsTable) -> int:
    return table.count or len(table.sensitivities or ())


# ------------------------------------------------------------------------------------ its variants


class SweptKey(TableModel):
    """A key of the market that takes several values: the variant is a curve, not a point."""

    key: Annotated[str, Field(pattern=r"^\w[\w-]*(\.\w[\w-]*)+$")]
    values: Annotated[tuple[Number, ...], Field(strict=False, min_length=2, max_length=200)]

    @field_validator("values")
    @classmethod
    def _rising(cls, values: tuple[float, ...]) -> tuple[float, ...]:
        if any(low >= high for low, high in pairwise(values)):
            raise ValueError("the values do not rise; list each once, in increasing order")
        return values


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
        markets[-1].build(seed)
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

    def memory(self) -> dict[str, float]:
        """Return how many numbers a run holds at once, by the keys whose product they are."""
        markets = [table for variant in self.variants for table in variant.markets]
        n_sellers = sum(table.sellers.size for table in markets)
        return {"sellers x variants x sweep.values": 4 * PER_SELLER * n_sellers}

    @field_validator("variants")
    @classmethod
    def _named_once(cls, variants: tuple[VariantTable, ...]) -> tuple[VariantTable, ...]:
        names = [variant.name for variant in variants]
        if len(set(names)) < len(names):
            raise ValueError("two variants have the same name; give each its own")
        return variants
