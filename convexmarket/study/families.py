"""The subproblems that a problem file holds, at any size: what a solver study is about.

Where a file lists candidates for a parameter, the middle one is taken. Sensitivities are drawn from
the file's prior, rows from its data; beyond the rows that there are, see
:mod:`convexmarket.study.learning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, singledispatch
from typing import Any

import numpy as np

from convexmarket.allocation import allocate
from convexmarket.data.datasets import medical, synthetic_regression
from convexmarket.errors import ConvexMarketError, ParameterError
from convexmarket.joint import JointMarket
from convexmarket.learners import ridge_risk_constants
from convexmarket.market import Market
from convexmarket.priors import Prior
from convexmarket.problems import (
    JointTradeoffProblem,
    MarketTable,
    MedicalData,
    MedicalRows,
    OnlineMarketProblem,
    OnlineStudyProblem,
    Problem,
    RegressionMarketProblem,
    RidgeComparisonProblem,
    TradeoffProblem,
    VariantsProblem,
    parse_problem,
)
from convexmarket.problems.rows import load_rows
from convexmarket.sellers import Sellers
from convexmarket.study.fits import SemiInteractiveInstance
from convexmarket.study.instances import Instance
from convexmarket.study.learning import RidgeInstance, WeightedLogisticInstance, draw_rows
from convexmarket.study.markets import (
    BudgetInstance,
    FixedEtaInstance,
    GuaranteesInstance,
    PapersInstance,
)
from convexmarket.study.z_block import ZBlockInstance
from convexmarket.terms import Cap, Noise, Payments, Spread

__all__ = ["KINDS", "Family", "build_instance", "families"]

#: Every class of subproblems.
KINDS: tuple[type[Instance], ...] = (
    PapersInstance,
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
#: Scale of the noise in the predictions of that model, whose labels are -1 and 1.
_PREDICTION_NOISE = 0.2
#: Standard deviation by which labels change where the file assumes none.
_LABEL_NOISE = 0.1


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
    for family in families(problem):
        if (family.problem_class, family.name) == (job["problem_class"], job["instance"]):
            return family.make(job["size"], np.random.default_rng(job["seed"]))
    raise ParameterError(
        f"{given['path']} has no subproblem {job['problem_class']!r} {job['instance']!r}"
    )


@singledispatch
def families(problem: Problem) -> list[Family]:
    """Return the subproblems of a problem file; none of kinds that have none of their own."""
    del problem
    return []


def _middle(values: Sequence[float]) -> float:
    return values[len(values) // 2]


def _papers_market(
    prior: Prior,
    mu: float,
    sigma: float,
    gamma: float,
    cap: float | None,
    size: int,
    rng: np.random.Generator,
) -> Market:
    sellers = Sellers(prior.sample(size, rng), prior)
    objective = mu * Spread() + sigma * Noise() + gamma * Payments()
    return Market(sellers, objective, [] if cap is None else [Cap(min(cap, size))])


def _at_best_eta(market: Market) -> PapersInstance:
    return PapersInstance(market, allocate(market).eta)


def _allocation(market_of: MarketOf) -> Family:
    """Return the papers' market at its optimal eta."""
    return Family(PapersInstance, lambda size, rng: _at_best_eta(market_of(size, rng)))


# ---------------------------------------------------------------------------------- variants


@families.register
def _(problem: VariantsProblem) -> list[Family]:
    """Return one subproblem for each variant; of a sweep, the market in its middle."""
    found = []
    for variant in problem.variants:
        table = variant.markets[len(variant.markets) // 2]
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

    noisy = any(term.is_noise for term in example.terms)
    if not (noisy and all(term.is_smooth for term in example.terms)):
        return None
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
        kind, make = PapersInstance, _at_best_eta
    elif form.budgets and not form.bills:
        kind = make = BudgetInstance
    else:
        kind = make = FixedEtaInstance
    try:
        make(example)
    except ConvexMarketError:  # a market that cannot be, or leaves eta no choice
        return None
    return Family(kind, lambda size, rng: make(market_of(size, rng)), name, own_size)


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


# ------------------------------------------------------------------------------ classification
# --------------------------------------------------------------- classification, regression


@families.register
def _(problem: TradeoffProblem) -> list[Family]:
    """Return the market, the training of its model, and the fit to predictions of one."""
    return _classification(problem)


@families.register
def _(problem: JointTradeoffProblem) -> list[Family]:
    """Return the same, and the z-block of the joint problem."""
    market_of = _market_of_classification(problem)
    rows = load_rows(problem.data)
    regularization = _middle(problem.learner.regularization)

    def z_block(size: int, rng: np.random.Generator) -> Instance:
        X, y = draw_rows(rows.X_train, rows.y_train, size, rng)
        joint = JointMarket(market_of(size, rng), X, y, regularization=regularization)
        return ZBlockInstance(joint)

    return [*_classification(problem), Family(ZBlockInstance, z_block)]


def _market_of_classification(problem: TradeoffProblem | JointTradeoffProblem) -> MarketOf:
    buyer = problem.objective
    return partial(
        _papers_market,
        problem.prior,
        _middle(buyer.mu),
        _middle(buyer.sigma),
        _middle(buyer.gamma),
        buyer.cap,
    )


def _classification(problem: TradeoffProblem | JointTradeoffProblem) -> list[Family]:
    market_of = _market_of_classification(problem)
    rows = load_rows(problem.data)
    regularization = _middle(problem.learner.regularization)

    def logistic(size: int, rng: np.random.Generator) -> Instance:
        allocation = allocate(market_of(size, rng))
        noise_scale = 2.0 * problem.data.data_norm / allocation.eta
        return WeightedLogisticInstance.draw(
            rows.X_train, rows.y_train, allocation.weights, regularization, noise_scale, rng
        )

    def fit(size: int, rng: np.random.Generator) -> Instance:
        return SemiInteractiveInstance.draw(
            rows.X_test,
            rows.X_train[:_MOST_PRIVATE],
            rows.y_train[:_MOST_PRIVATE],
            problem.data.data_norm / 2.0,
            regularization,
            _PREDICTION_NOISE,
            size,
            rng,
        )

    return [
        _allocation(market_of),
        Family(WeightedLogisticInstance, logistic),
        Family(SemiInteractiveInstance, fit, largest=_MOST_POINTS),
    ]


@families.register
def _(problem: RegressionMarketProblem) -> list[Family]:
    """Return the market, and the training of its model."""
    learner, buyer = problem.learner, problem.objective
    data, regularization = problem.data, _middle(learner.regularization)
    rows = (
        medical(data.train_fraction, data.split_seed)
        if isinstance(data, MedicalData)
        else synthetic_regression(
            data.n_rows, data.n_features, data.data_seed, data.train_fraction, data.label_noise
        )
    )
    mu, sigma = ridge_risk_constants(
        regularization,
        rows.X_train.shape[1],
        learner.label_noise,
        learner.failure_probability,
        learner.max_norm,
        learner.sensitivity,
    )
    market_of = partial(_papers_market, problem.prior, mu, sigma, _middle(buyer.gamma), buyer.cap)

    def ridge(size: int, rng: np.random.Generator) -> Instance:
        weights = allocate(market_of(size, rng)).weights
        X, y = rows.X_train, rows.y_train
        return RidgeInstance.draw(X, y, weights, regularization, learner.label_noise, rng)

    return [_allocation(market_of), Family(RidgeInstance, ridge)]


@families.register
def _(problem: RidgeComparisonProblem) -> list[Family]:
    """Return the training under the guarantees that rows ask for, and their use at best."""
    data, learner = problem.data, problem.learner
    rows = (
        medical(data.train_fraction, problem.run.seed, data.ranges)
        if isinstance(data, MedicalRows)
        else synthetic_regression(
            data.n_rows, data.n_features, problem.run.seed, data.train_fraction, data.label_noise
        )
    )
    noise = learner.label_noise or _LABEL_NOISE

    def ridge(size: int, rng: np.random.Generator) -> Instance:
        epsilon = problem.privacy.draw(size, rng)
        X, y = rows.X_train, rows.y_train
        weights = epsilon / epsilon.sum()
        return RidgeInstance.draw(X, y, weights, learner.regularization, noise, rng)

    def guarantees(size: int, rng: np.random.Generator) -> Instance:
        mu, sigma = ridge_risk_constants(
            learner.regularization,
            rows.X_train.shape[1],
            noise,
            learner.failure_probability,
            sensitivity=learner.sensitivity,
        )
        return GuaranteesInstance(problem.privacy.draw(size, rng), mu, sigma)

    return [Family(RidgeInstance, ridge), Family(GuaranteesInstance, guarantees)]


# ---------------------------------------------------------------------------------- online


@families.register(OnlineMarketProblem)
@families.register(OnlineStudyProblem)
def _(problem: OnlineMarketProblem | OnlineStudyProblem) -> list[Family]:
    """Return the market in hindsight."""
    buyer = problem.buyer
    numbers = (buyer.mu, buyer.sigma, buyer.gamma, buyer.cap)
    return [_allocation(partial(_papers_market, problem.prior, *numbers))]
