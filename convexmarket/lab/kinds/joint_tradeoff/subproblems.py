"""What a file of joint trade-offs holds for a study of solvers."""

from __future__ import annotations

import numpy as np

from convexmarket.joint import JointMarket
from convexmarket.lab.kinds.joint_tradeoff.problem import JointTradeoffProblem
from convexmarket.lab.kinds.tradeoff.subproblems import (
    classification_families,
    market_of_classification,
    middle,
)
from convexmarket.lab.scenarios import classification_rows
from convexmarket.studies.subproblems.base import Instance
from convexmarket.studies.subproblems.families import Family
from convexmarket.studies.subproblems.joint import ZBlockInstance
from convexmarket.studies.subproblems.learning import draw_rows


def subproblems(problem: JointTradeoffProblem) -> list[Family]:
    """Return the same, and the z-block of the joint problem."""
    market_of = market_of_classification(problem.prior, problem.objective)
    rows = classification_rows(problem)[0]
    regularization = middle(problem.learner.regularization)

    def z_block(size: int, rng: np.random.Generator) -> Instance:
        X, y = draw_rows(rows.X_train, rows.y_train, size, rng)
        joint = JointMarket(market_of(size, rng), X, y, regularization=regularization)
        return ZBlockInstance(joint)

    own = classification_families(problem, market_of, regularization)
    return [*own, Family(ZBlockInstance, z_block)]
