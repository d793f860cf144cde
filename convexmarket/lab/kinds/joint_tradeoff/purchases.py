"""Three ways to buy for the same buyer: with a look at the data, without, and naively.

"joint" chooses model, weights and eta together (A, Eq. 17; B, Eq. 10), "two-step" allocates from
the reports alone (A, Algorithm 2), and "naive" is the joint problem with mu = sigma = 0 and a
given eta. Whatever was bought, the model that is released is trained on it with noise.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from convexmarket.allocation import Allocation, allocate
from convexmarket.data.datasets import MarketData
from convexmarket.errors import ConvexMarketError
from convexmarket.joint import JointAllocation, JointMarket, allocate_jointly
from convexmarket.lab.classification import Trial, try_out
from convexmarket.lab.failures import failure_status
from convexmarket.lab.kinds.joint_tradeoff.problem import JointTradeoffProblem
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.market import Market
from convexmarket.sellers import Sellers
from convexmarket.terms import Cap, Constraint, EtaRange, Noise, Payments, Spread, SquaredSpread

__all__ = ["Candidate", "Model", "Setting", "buy_and_train", "declare", "plan", "train_without"]

Model = Literal["joint", "two-step", "naive"]

# Purposes of random numbers: each has a branch of the seed to itself.
_NOISE, _STARTS = 1, 2
#: Relative gap up to which an allocation counts as the global optimum.
_GLOBAL = 1e-6


@dataclass(frozen=True, eq=False)
class Setting:
    """What a buyer with one price of money tries: a model, a market and its parameters."""

    scenario: str
    model: Model
    gamma: float
    mu: float
    sigma: float
    market: Market

    @property
    def key(self) -> tuple[str, Model, float]:
        """What a row of the curve is for."""
        return self.scenario, self.model, self.gamma


@dataclass(frozen=True, eq=False)
class Candidate:
    """A purchase for one Lambda and the errors of what was trained on it, or why there is none."""

    regularization: float
    status: str
    message: str = ""
    purchase: Allocation | JointAllocation | None = None
    trial: Trial | None = None


def declare(
    problem: JointTradeoffProblem,
    sellers: Sellers,
    gamma: float,
    mu: float,
    sigma: float,
    eta_range: tuple[float, float] | None,
) -> Market:
    """Return the market of one setting."""
    objective = problem.objective
    spread = SquaredSpread() if objective.spread == "squared" else Spread()
    constraints: list[Constraint] = []
    if objective.cap is not None and objective.cap < len(sellers):
        constraints.append(Cap(objective.cap))
    if eta_range is not None:
        constraints.append(EtaRange(*eta_range))
    return Market(sellers, mu * spread + sigma * Noise() + gamma * Payments(), constraints)


def plan(
    problem: JointTradeoffProblem, rows: MarketData, market: Market, regularization: float
) -> JointMarket:
    """Return the joint problem, its noise not yet drawn."""
    table = problem.joint
    return JointMarket(
        market,
        rows.X_train,
        rows.y_train,
        regularization=regularization,
        noise=table.noise,
        failure_probability=table.failure_probability,
        max_norm=table.max_norm,
    )


def buy_and_train(
    problem: JointTradeoffProblem, rows: MarketData, setting: Setting
) -> list[Candidate]:
    """Return a candidate for each Lambda of the problem."""
    return [_candidate(problem, rows, setting, value) for value in problem.learner.regularization]


def _candidate(
    problem: JointTradeoffProblem, rows: MarketData, setting: Setting, regularization: float
) -> Candidate:
    try:
        joint = plan(problem, rows, setting.market, regularization)
        purchase = _buy(problem, setting.model, joint)
        seeds = [problem.run.stream(_NOISE, draw) for draw in range(problem.learner.draws)]
        trial = try_out(_learner(problem, regularization), rows, purchase.epsilon, seeds)
    except ConvexMarketError as error:
        return Candidate(regularization, failure_status(error), str(error))
    return Candidate(regularization, _status(purchase), "", purchase, trial)


def _status(purchase: Allocation | JointAllocation) -> str:
    """Return what is known of a purchase's optimality."""
    if isinstance(purchase, JointAllocation):
        return purchase.status
    return "global" if purchase.gap <= _GLOBAL else "a gap is left"


def _buy(
    problem: JointTradeoffProblem, model: Model, joint: JointMarket
) -> Allocation | JointAllocation:
    if model == "two-step":
        return allocate(joint.market)
    seed = problem.run.stream(_STARTS)
    found = allocate_jointly(
        joint, starts=problem.joint.starts, random_state=np.random.default_rng(seed)
    )
    return replace(found, trace=())


def _learner(problem: JointTradeoffProblem, regularization: float) -> PrivateLogisticRegression:
    """Return the learner of Algorithm 1 as printed: what was bought sets the noise.

    ``joint.max_norm`` bounds the model that is planned; a shortened model predicts the same.
    """
    return PrivateLogisticRegression(
        regularization,
        data_norm=problem.data.data_norm,
        calibration="noise",
        minimum_epsilon=None,
        tol=1e-9,
    )


def train_without(problem: JointTradeoffProblem, rows: MarketData, regularization: float) -> Trial:
    """Train on all rows alike, without noise: the baseline, which pays nobody."""
    return try_out(_learner(problem, regularization), rows, np.inf, [problem.run.stream(_NOISE, 0)])
