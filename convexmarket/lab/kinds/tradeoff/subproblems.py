"""What a file of trade-offs holds for a study of solvers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from convexmarket.allocation import allocate
from convexmarket.lab.kinds.tradeoff.problem import (
    ObjectiveTable,
    RegressionTradeoff,
    TradeoffProblem,
)
from convexmarket.lab.kinds.tradeoff.regression import plain_ridge, rows_of
from convexmarket.lab.problem.classification import ClassificationMarket
from convexmarket.lab.scenarios import classification_rows
from convexmarket.priors import Prior
from convexmarket.studies.subproblems.base import Instance, MarketOf
from convexmarket.studies.subproblems.families import (
    MOST_POINTS,
    MOST_PRIVATE,
    Family,
    allocation_families,
    papers_market,
)
from convexmarket.studies.subproblems.models import draw_fit, draw_logistic, draw_ridge

#: Scale of the noise in the predictions of that model, whose labels are -1 and 1.
_PREDICTION_NOISE = 0.2


def middle(values: Sequence[float]) -> float:
    """Return the candidate that stands for all of a list."""
    return values[len(values) // 2]


def subproblems(problem: TradeoffProblem) -> list[Family]:
    """Return the market, the training of its model, and the fit to predictions of a classifier."""
    if isinstance(problem, RegressionTradeoff):
        return _ridge_families(problem)
    market_of = market_of_classification(problem.prior, problem.objective)
    return classification_families(problem, market_of, middle(problem.learner.regularization))


def _ridge_families(problem: RegressionTradeoff) -> list[Family]:
    learner, buyer = problem.learner, problem.objective
    regularization, (rows, _) = middle(learner.regularization), rows_of(problem)
    mu, sigma = problem.risk(plain_ridge(problem, regularization), rows.X_train.shape[1])
    market_of = partial(papers_market, problem.prior, mu, sigma, middle(buyer.gamma), buyer.cap)

    def ridge(size: int, rng: np.random.Generator) -> Instance:
        weights = allocate(market_of(size, rng)).weights
        X, y = rows.X_train, rows.y_train
        return draw_ridge(X, y, weights, regularization, learner.label_noise, rng)

    return [*allocation_families(market_of), Family("ridge", ridge)]


def market_of_classification(prior: Prior, buyer: ObjectiveTable) -> MarketOf:
    """Return what draws the market that a model is bought in."""
    return partial(
        papers_market,
        prior,
        middle(buyer.mu),
        middle(buyer.sigma),
        middle(buyer.gamma),
        buyer.cap,
    )


def classification_families(
    problem: ClassificationMarket, market_of: MarketOf, regularization: float
) -> list[Family]:
    """Return the market, the training, and the fit to predictions."""
    rows = classification_rows(problem)[0]

    def logistic(size: int, rng: np.random.Generator) -> Instance:
        allocation = allocate(market_of(size, rng))
        noise_scale = 2.0 * problem.data.data_norm / allocation.eta
        return draw_logistic(
            rows.X_train, rows.y_train, allocation.weights, regularization, noise_scale, rng
        )

    def fit(size: int, rng: np.random.Generator) -> Instance:
        return draw_fit(
            rows.X_test,
            rows.X_train[:MOST_PRIVATE],
            rows.y_train[:MOST_PRIVATE],
            problem.data.data_norm / 2.0,
            regularization,
            _PREDICTION_NOISE,
            size,
            rng,
        )

    return [
        *allocation_families(market_of),
        Family("weighted logistic regression", logistic),
        Family("semi-interactive fit", fit, largest=MOST_POINTS),
    ]
