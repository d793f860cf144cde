"""Files of kind "pareto": a market, and one or two of its keys that take several values."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from convexmarket.lab.problem.base import ProblemModel, RunTable
from convexmarket.lab.problem.completing import plain, with_value
from convexmarket.lab.problem.declared import MarketTable, SweptKey

__all__ = ["ParetoProblem"]

_MOST_POINTS = 2_000


class ParetoProblem(ProblemModel):
    """A market at all values of one or two of its keys, and which of them nothing dominates."""

    kind: Literal["pareto"]
    market: MarketTable
    sweep: Annotated[tuple[SweptKey, ...], Field(strict=False, min_length=1, max_length=2)]
    run: RunTable = RunTable()

    _markets: dict[tuple[float, ...], MarketTable] = PrivateAttr(default_factory=dict)

    @property
    def axes(self) -> dict[str, tuple[float, ...]]:
        """The values of each swept key."""
        return {swept.key: swept.values for swept in self.sweep}

    @property
    def markets(self) -> dict[tuple[float, ...], MarketTable]:
        """The complete market at each point."""
        return self._markets

    @field_validator("sweep")
    @classmethod
    def _few_and_different(cls, sweep: tuple[SweptKey, ...]) -> tuple[SweptKey, ...]:
        if len({swept.key for swept in sweep}) < len(sweep):
            raise ValueError("a key is swept twice; sweep each once")
        if (points := prod(len(swept.values) for swept in sweep)) > _MOST_POINTS:
            raise ValueError(f"{points:,} points are too many; {_MOST_POINTS:,} may be asked for")
        return sweep

    @model_validator(mode="after")
    def _complete(self) -> ParetoProblem:
        """Check the market at every point."""
        base: dict[str, Any] = plain(self.market)
        for values in product(*self.axes.values()):
            table = base
            for number, (key, value) in enumerate(zip(self.axes, values, strict=True)):
                table = with_value(table, key, value, ("sweep", str(number), "key"))
            market = MarketTable.model_validate(table)
            market.check(self.run.seed)
            self._markets[values] = market
        return self
