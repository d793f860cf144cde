"""A complete market as a file declares it, and a key of it that takes several values."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from convexmarket.lab.problem.base import Nonnegative, PriorTable, SolverName, TableModel
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
]

_MOST_SELLERS = 100_000
Count = Annotated[int, Field(ge=1, le=_MOST_SELLERS)]
Reports = Annotated[
    tuple[Nonnegative, ...], Field(strict=False, min_length=1, max_length=_MOST_SELLERS)
]
Name = Annotated[str, Field(min_length=1, max_length=60)]


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
