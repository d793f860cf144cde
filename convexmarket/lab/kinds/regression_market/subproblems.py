"""What a file of a regression market holds for a study of solvers."""

from __future__ import annotations

from functools import partial

import numpy as np

from convexmarket.allocation import allocate
from convexmarket.lab.kinds.regression_market.problem import RegressionMarketProblem
from convexmarket.lab.kinds.regression_market.run import regression_rows
from convexmarket.lab.study.families import Family, allocation_families, middle, papers_market
from convexmarket.lab.study.instances import Instance
from convexmarket.lab.study.learning import RidgeInstance
from convexmarket.learners import ridge_risk_constants


def subproblems(problem: RegressionMarketProblem) -> list[Family]:
    """Return the market, and the training of its model."""
    learner, buyer = problem.learner, problem.objective
    regularization, (rows, _) = middle(learner.regularization), regression_rows(problem)
    mu, sigma = ridge_risk_constants(
        regularization,
        rows.X_train.shape[1],
        learner.label_noise,
        learner.failure_probability,
        learner.max_norm,
        learner.sensitivity,
    )
    market_of = partial(papers_market, problem.prior, mu, sigma, middle(buyer.gamma), buyer.cap)

    def ridge(size: int, rng: np.random.Generator) -> Instance:
        weights = allocate(market_of(size, rng)).weights
        X, y = rows.X_train, rows.y_train
        return RidgeInstance.draw(X, y, weights, regularization, learner.label_noise, rng)

    return [*allocation_families(market_of), Family(RidgeInstance, ridge)]
