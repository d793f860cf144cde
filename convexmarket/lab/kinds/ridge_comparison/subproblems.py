"""What a comparison of ridge regressions holds for a study of solvers."""

from __future__ import annotations

import numpy as np

from convexmarket.data.datasets import medical, synthetic_regression
from convexmarket.lab.kinds.ridge_comparison.problem import MedicalRows, RidgeComparisonProblem
from convexmarket.learners import ridge_risk_constants
from convexmarket.studies.subproblems.base import Instance
from convexmarket.studies.subproblems.families import Family
from convexmarket.studies.subproblems.learning import RidgeInstance
from convexmarket.studies.subproblems.markets import GuaranteesInstance

#: Standard deviation by which labels change where the file assumes none.
_LABEL_NOISE = 0.1


def subproblems(problem: RidgeComparisonProblem) -> list[Family]:
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
