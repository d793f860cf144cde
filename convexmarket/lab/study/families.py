"""The subproblems that a problem file holds, at any size: what a solver study is about.

Where a file lists candidates for a parameter, the middle one is taken. Sensitivities are drawn from
the file's prior, rows from its data; beyond the rows that there are, see
:mod:`convexmarket.lab.study.learning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convexmarket.allocation import allocate
from convexmarket.errors import ParameterError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.study.fits import SemiInteractiveInstance
from convexmarket.lab.study.instances import Instance
from convexmarket.lab.study.learning import RidgeInstance, WeightedLogisticInstance
from convexmarket.lab.study.markets import (
    BudgetInstance,
    FixedEtaInstance,
    GuaranteesInstance,
    PapersInstance,
    SearchInstance,
)
from convexmarket.lab.study.z_block import ZBlockInstance
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.sellers import Sellers
from convexmarket.terms import Cap, Noise, Payments, Spread

__all__ = [
    "CLASSES",
    "Family",
    "allocation_families",
    "at_best_eta",
    "build_instance",
    "middle",
    "papers_market",
]

#: Every class of subproblems.
CLASSES: tuple[type[Instance], ...] = (
    PapersInstance,
    SearchInstance,
    GuaranteesInstance,
    BudgetInstance,
    FixedEtaInstance,
    WeightedLogisticInstance,
    ZBlockInstance,
    RidgeInstance,
    SemiInteractiveInstance,
)

Make = Callable[[int, np.random.Generator], Instance]
MarketOf = Callable[[int, np.random.Generator], Market]


@dataclass(frozen=True, eq=False)
class Family:
    """One subproblem of a file, at any size.

    Attributes
    ----------
    kind : type of Instance
    make : callable
        Takes a size and a generator, and returns an instance.
    name : str
        Tells it from others of its class in the same file, where there are any.
    own_size : int, optional
        The only size it has, where the file fixes it.
    largest : int, optional
        Largest size that makes sense.
    """

    kind: type[Instance]
    make: Make
    name: str = ""
    own_size: int | None = None
    largest: int | None = None

    @property
    def problem_class(self) -> str:
        """What studies call it."""
        return self.kind.problem_class

    def sizes(self, wanted: Iterable[int]) -> list[int]:
        """Return those of the sizes wanted that it has."""
        if self.own_size is not None:
            return [self.own_size]
        return [size for size in wanted if self.largest is None or size <= self.largest]


def build_instance(job: dict[str, Any]) -> Instance:
    """Return the instance that a job of a study is about.

    Raises
    ------
    ParameterError
        If the problem file has no such subproblem.
    """
    given = job["problem"]
    problem = parse_problem(given["text"], given["overrides"], path=given["path"])
    for family in KINDS[problem.kind].subproblems(problem):
        if (family.problem_class, family.name) == (job["problem_class"], job["instance"]):
            return family.make(job["size"], np.random.default_rng(job["seed"]))
    raise ParameterError(
        f"{given['path']} has no subproblem {job['problem_class']!r} {job['instance']!r}"
    )


def middle(values: Sequence[float]) -> float:
    """Return the candidate that stands for all of a list."""
    return values[len(values) // 2]


def papers_market(
    prior: Prior,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None,
    size: int,
    rng: np.random.Generator,
) -> Market:
    """Return a market of sellers that are drawn from a prior."""
    sellers = Sellers(prior.sample(size, rng), prior)
    objective = mu * Spread() + sigma * Noise() + gamma * Payments()
    return Market(sellers, objective, [] if cap is None else [Cap(min(cap, size))])


def at_best_eta(market: Market, kind: type[PapersInstance] = PapersInstance) -> PapersInstance:
    """Return the market at the eta of its optimum."""
    return kind(market, allocate(market).eta)


def allocation_families(market_of: MarketOf) -> list[Family]:
    """Return the papers' market at its optimal eta, and the search for that."""
    return [
        Family(kind, lambda size, rng, kind=kind: at_best_eta(market_of(size, rng), kind))  # type: ignore[misc]
        for kind in (PapersInstance, SearchInstance)
    ]
