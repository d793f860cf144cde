"""What a file of variants holds for a study of solvers."""

from __future__ import annotations

import numpy as np

from convexmarket.errors import NotSupportedError
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.problem.declared import MarketTable
from convexmarket.market import Market
from convexmarket.studies.subproblems.families import Family, market_family


def subproblems(problem: VariantsProblem) -> list[Family]:
    """Return one subproblem for each variant; of a sweep, the market in its middle.

    Sellers of a file are private and cannot be drawn anew, so that none is made of them.
    """
    found = []
    for variant in problem.variants:
        table = variant.markets[len(variant.markets) // 2]
        if table.sellers.file is not None:
            continue
        small = _resized(table, 50)
        family = _variant(variant.name, table, (small or table).build(0), fixed=small is None)
        if family is not None:
            found.append(family)
    return found


def _variant(name: str, table: MarketTable, example: Market, *, fixed: bool) -> Family | None:
    """Return the subproblem of a market, by what kind of market it is."""
    own_size = len(example.sellers) if fixed else None

    def market_of(size: int, rng: np.random.Generator) -> Market:
        resized = _resized(table, size)
        return (table if resized is None else resized).build(int(rng.integers(2**31)))

    try:
        return market_family(example, market_of, name, own_size)
    except NotSupportedError:
        return None


def _resized(table: MarketTable, size: int) -> MarketTable | None:
    """Return a market with so many sellers, groups in proportion; None where all are given."""
    given = table.sellers
    limits = table.constraints
    each = (limits.cap, limits.max_epsilon, limits.given_epsilon)
    if any(isinstance(limit, tuple) for limit in each):
        return None
    if given.groups:
        if any(group.count is None for group in given.groups):
            return None
        counts = np.array([group.count for group in given.groups], dtype=float)
        ends = np.round(np.cumsum(counts) / counts.sum() * size).astype(int)
        shares = np.maximum(np.diff(ends, prepend=0), 1)
        groups = tuple(
            group.model_copy(update={"count": int(count)})
            for group, count in zip(given.groups, shares, strict=True)
        )
        sellers = given.model_copy(update={"groups": groups})
    elif given.count is not None:
        sellers = given.model_copy(update={"count": size})
    else:
        return None
    return table.model_copy(update={"sellers": sellers})
