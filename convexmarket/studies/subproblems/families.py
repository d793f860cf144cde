"""Subproblems at any size: of a market, of a function that returns markets, or of a class name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from convexmarket.allocation import allocate
from convexmarket.data.datasets import medical, wdbc
from convexmarket.errors import ConvexMarketError, NotSupportedError, ParameterError
from convexmarket.joint import JointMarket
from convexmarket.learners import ridge_risk_constants
from convexmarket.market import Market
from convexmarket.priors import Prior, Uniform
from convexmarket.sellers import Sellers
from convexmarket.studies.subproblems.base import Instance
from convexmarket.studies.subproblems.fits import SemiInteractiveInstance
from convexmarket.studies.subproblems.joint import ZBlockInstance
from convexmarket.studies.subproblems.learning import (
    RidgeInstance,
    WeightedLogisticInstance,
    draw_rows,
)
from convexmarket.studies.subproblems.markets import (
    BudgetInstance,
    FixedEtaInstance,
    GuaranteesInstance,
    PapersInstance,
    SearchInstance,
)
from convexmarket.terms import (
    Budget,
    Cap,
    MaxEpsilon,
    Noise,
    Payments,
    PowerCost,
    Spread,
)

__all__ = [
    "CLASSES",
    "Family",
    "allocation_families",
    "at_best_eta",
    "families_of_class",
    "families_of_market",
    "market_family",
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

#: Private rows that the model behind a fit is trained on, and points that it predicts, at most.
_MOST_PRIVATE, _MOST_POINTS = 500, 1_000


@dataclass(frozen=True, eq=False)
class Family:
    """One subproblem, at any size.

    Attributes
    ----------
    kind : type of Instance
    make : callable
        From a size and a generator to an instance.
    name : str
        Distinguishes it from others of its class in the same problem.
    own_size : int, optional
        The only size, if it is fixed.
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
        """Its name in studies."""
        return self.kind.problem_class

    def sizes(self, wanted: Iterable[int]) -> list[int]:
        """Return the sizes among those wanted that it has."""
        if self.own_size is not None:
            return [self.own_size]
        return [size for size in wanted if self.largest is None or size <= self.largest]


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
    """Return the papers' market at its optimal eta, and the search for that eta."""
    return [
        Family(kind, lambda size, rng, kind=kind: at_best_eta(market_of(size, rng), kind))  # type: ignore[misc]
        for kind in (PapersInstance, SearchInstance)
    ]


# ---------------------------------------------------------------------------------- of markets


def families_of_market(example: Market, market_of: MarketOf | None = None) -> list[Family]:
    """Return the subproblems of a market.

    Parameters
    ----------
    example : Market
        Its pieces decide the class of the subproblem.
    market_of : callable, optional
        From a size and a generator to a market of the same pieces; without it the example is the
        only market, at its size.

    Raises
    ------
    NotSupportedError
        If it has no subproblem that a study can solve.
    """
    of = market_of or (lambda _size, _rng: example)
    own_size = None if market_of else len(example.sellers)
    first = market_family(example, of, own_size=own_size)
    if first.kind is not PapersInstance:
        return [first]
    search = Family(
        SearchInstance,
        lambda size, rng: at_best_eta(of(size, rng), SearchInstance),
        own_size=own_size,
    )
    return [first, search]


def market_family(
    example: Market, market_of: MarketOf, name: str = "", own_size: int | None = None
) -> Family:
    """Return the subproblem of a market at a fixed eta, under guarantees, or with a budget.

    Raises
    ------
    NotSupportedError
        If the market has no noise term or a term that is not smooth, or leaves eta no choice.
    """
    if not any(term.is_noise for term in example.terms):
        raise NotSupportedError(
            f"{example!r} has no Noise term, and studies compare markets with one; add sigma * "
            "Noise()"
        )
    if rough := [term for term in example.terms if not term.is_smooth]:
        raise NotSupportedError(
            f"{rough[0]!r} is not smooth, so that residuals cannot be computed from its gradient; "
            "leave it out"
        )
    form = example.form
    if form.granted is not None:

        def under_guarantees(size: int, rng: np.random.Generator) -> Instance:
            epsilon = market_of(size, rng).form.granted
            assert epsilon is not None
            return GuaranteesInstance(epsilon, form.mu, form.sigma)

        return Family(GuaranteesInstance, under_guarantees, name, own_size)
    make: Callable[[Market], Instance]
    kind: type[Instance]
    if form.standard is not None and form.mu > 0:
        kind, make = PapersInstance, at_best_eta
    elif form.budgets and not form.bills:
        kind = make = BudgetInstance
    else:
        kind = make = FixedEtaInstance
    try:
        make(example)
    except ConvexMarketError as error:
        raise NotSupportedError(f"{example!r} has no subproblem to compare: {error}") from None
    return Family(kind, lambda size, rng: make(market_of(size, rng)), name, own_size)


# ---------------------------------------------------------------------------------- by class


def families_of_class(name: str) -> list[Family]:
    """Return the subproblem of a class on the data of this package.

    Markets draw their sellers from the uniform prior of the papers' experiment; models are trained
    on its breast-cancer records, ridge regression on medical charges.

    Raises
    ------
    ParameterError
        If there is no such class.
    """
    if name not in _MAKERS:
        raise ParameterError(
            f"problems names the class {name!r}; known are {', '.join(sorted(_MAKERS))}"
        )
    kind = next(kind for kind in CLASSES if kind.problem_class == name)
    largest = _MOST_POINTS if kind is SemiInteractiveInstance else None
    return [Family(kind, _MAKERS[name], largest=largest)]


_PRIOR = Uniform(float(np.exp(-4)), float(5 * np.exp(-4)))
_REGULARIZATION = 0.03
#: Guarantees, in nats, of conservative, medium and liberal people, and their shares (R).
_GRANTS, _SHARES = ((0.01, 0.2), (0.2, 1.0), (1.0, 1.0)), (0.34, 0.43, 0.23)
_LABEL_NOISE = 0.1

_market: MarketOf = partial(papers_market, _PRIOR, 3.0, 10.0, 0.003, None)


def _grants(size: int, rng: np.random.Generator) -> Any:
    group = rng.choice(len(_GRANTS), size, p=_SHARES)
    low, high = np.array(_GRANTS).T
    return rng.uniform(low[group], high[group])


def _budget(size: int, rng: np.random.Generator) -> Instance:
    sellers = Sellers(_PRIOR.sample(size, rng), _PRIOR)
    return BudgetInstance(Market(sellers, 3.0 * Spread() + 10.0 * Noise(), [Budget(5.0)]))


def _variant(size: int, rng: np.random.Generator) -> Instance:
    sellers = Sellers(_PRIOR.sample(size, rng), _PRIOR)
    objective = 3.0 * Spread() + 10.0 * Noise() + 0.003 * Payments(PowerCost(1.5))
    return FixedEtaInstance(Market(sellers, objective, [MaxEpsilon(2.0)]))


def _guarantees(size: int, rng: np.random.Generator) -> Instance:
    rows = medical(0.8, 0)
    mu, sigma = ridge_risk_constants(1.0, rows.X_train.shape[1], _LABEL_NOISE, 0.05)
    return GuaranteesInstance(_grants(size, rng), mu, sigma)


def _logistic(size: int, rng: np.random.Generator) -> Instance:
    rows, allocation = wdbc(), allocate(_market(size, rng))
    return WeightedLogisticInstance.draw(
        rows.X_train,
        rows.y_train,
        allocation.weights,
        _REGULARIZATION,
        2.0 * rows.data_norm / allocation.eta,
        rng,
    )


def _z_block(size: int, rng: np.random.Generator) -> Instance:
    rows = wdbc()
    X, y = draw_rows(rows.X_train, rows.y_train, size, rng)
    return ZBlockInstance(JointMarket(_market(size, rng), X, y, regularization=_REGULARIZATION))


def _ridge(size: int, rng: np.random.Generator) -> Instance:
    rows, epsilon = medical(0.8, 0), _grants(size, rng)
    return RidgeInstance.draw(
        rows.X_train, rows.y_train, epsilon / epsilon.sum(), 1.0, _LABEL_NOISE, rng
    )


def _fit(size: int, rng: np.random.Generator) -> Instance:
    rows = wdbc()
    return SemiInteractiveInstance.draw(
        rows.X_test,
        rows.X_train[:_MOST_PRIVATE],
        rows.y_train[:_MOST_PRIVATE],
        rows.data_norm / 2.0,
        _REGULARIZATION,
        0.2,
        size,
        rng,
    )


_MAKERS: Mapping[str, Make] = {
    PapersInstance.problem_class: lambda size, rng: at_best_eta(_market(size, rng)),
    SearchInstance.problem_class: lambda size, rng: at_best_eta(_market(size, rng), SearchInstance),
    GuaranteesInstance.problem_class: _guarantees,
    BudgetInstance.problem_class: _budget,
    FixedEtaInstance.problem_class: _variant,
    WeightedLogisticInstance.problem_class: _logistic,
    ZBlockInstance.problem_class: _z_block,
    RidgeInstance.problem_class: _ridge,
    SemiInteractiveInstance.problem_class: _fit,
}
