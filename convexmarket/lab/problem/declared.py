"""A complete market as a file declares it, and a key of it that takes several values."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pydantic import Field, field_validator, model_validator

from convexmarket.lab.problem.base import Nonnegative, PriorTable, SolverName, TableModel
from convexmarket.lab.problem.own import ColumnName, FileName
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
    """Who sells: so many drawn from the prior, given sensitivities, groups of either, or a file.

    The file, CSV or Parquet (.parquet), holds the sellers' own reports and lies where the problem
    file says, relative to itself. ``id``, ``report`` and ``group`` are its columns; an id and a
    report that are called as such are found without.
    """

    count: Count | None = None
    sensitivities: Reports | None = None
    groups: Annotated[tuple[GroupTable, ...], Field(strict=False, max_length=50)] = ()
    file: FileName | None = None
    id: ColumnName | None = None
    report: ColumnName | None = None
    group: ColumnName | None = None

    @field_validator("groups")
    @classmethod
    def _named_once(cls, groups: tuple[GroupTable, ...]) -> tuple[GroupTable, ...]:
        names = [group.name for group in groups]
        if len(set(names)) < len(names):
            raise ValueError("two groups have the same name; give each its own")
        return groups

    @model_validator(mode="after")
    def _one_source(self) -> ReportsTable:
        sources = (self.count, self.sensitivities, self.groups or None, self.file)
        if sum(source is not None for source in sources) != 1:
            raise ValueError("give one of count, sensitivities, groups and file")
        columns = [name for name in (self.id, self.report, self.group) if name is not None]
        if columns and self.file is None:
            raise ValueError(
                "id, report and group are columns of a file; give file, or none of them"
            )
        if len(set(columns)) < len(columns):
            raise ValueError("a column is named twice among id, report and group")
        return self

    @property
    def size(self) -> int:
        """How many sellers there are; 0 for a file, whose sellers are counted when it is read."""
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
        """The group of each seller, where the problem file says it."""
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

    def build_sellers(self, seed: int, listed: pd.DataFrame | None = None) -> Sellers:
        """Return the sellers; what is not given, or listed in a file, is drawn.

        The k-th seller has the same quantile of its prior for every prior, so that variants which
        differ in their prior are compared on the same draws.
        """
        if listed is not None:
            groups = listed["group"].astype(str) if "group" in listed else None
            return Sellers(
                listed["sensitivity"].to_numpy(),
                self._prior_or(None),
                ids=listed["id"].tolist(),
                groups=None if groups is None else groups.to_numpy(dtype=np.str_),
            )
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

    def check(self, seed: int) -> None:
        """Refuse a market that cannot be stated; of sellers in a file, as far as is known unread.

        Raises
        ------
        ValueError
        """
        if self.sellers.file is None:
            self.build(seed)
        elif self.priors and self.sellers.group is None:
            objective_of(self.objective)
            self.constraints.build()

    def build(self, seed: int, listed: pd.DataFrame | None = None) -> Market:
        """Return the market that the table states.

        Parameters
        ----------
        seed : int
            Of the sensitivities that are drawn.
        listed : DataFrame, optional
            The sellers of the file that the table names: id, sensitivity and, where a column of
            them is named, group.
        """
        sellers = self.build_sellers(seed, listed)
        groups = self.groups if listed is None else sellers.groups
        return Market(sellers, objective_of(self.objective, groups), self.constraints.build(groups))

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
