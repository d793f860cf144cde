"""What a file of variants holds for a study of solvers."""

from __future__ import annotations

import numpy as np

from convexmarket.errors import NotSupportedError
from convexmarket.lab.kinds.variants.problem import VariantsProblem
from convexmarket.lab.problem.declared import MarketTable
from convexmarket.lab.problem.sellers import Lists, market_of, read_lists
from convexmarket.market import Market
from convexmarket.studies.subproblems.families import Family, market_family


def subproblems(problem: VariantsProblem) -> list[Family]:
    """Return one subproblem for each variant; of a sweep, the market in its middle.

    Sellers of a file are those of the file, at their number.
    """
    tables = [variant.markets[len(variant.markets) // 2] for variant in problem.variants]
    lists = read_lists(problem, tables)
    families = (
        _variant(variant.name, table, lists)
        for variant, table in zip(problem.variants, tables, strict=True)
    )
    return [family for family in families if family is not None]


def _variant(name: str, table: MarketTable, lists: Lists) -> Family | None:
    """Return the subproblem of a market, by what kind of market it is."""
    small = _resized(table, 50)
    example = market_of(small or table, 0, lists)

    def sized(size: int, rng: np.random.Generator) -> Market:
        seed = int(rng.integers(2**31))
        return example if small is None else (_resized(table, size) or table).build(seed)

    try:
        own_size = len(example.sellers) if small is None else None
        return market_family(example, sized, name, own_size)
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
