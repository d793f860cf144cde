"""Experiments: what a problem file describes, run from data to result."""

from collections.abc import Callable
from functools import singledispatch
from typing import Any

from convexmarket.errors import ParameterError
from convexmarket.experiments.joint_methods import JointMethodsResult, run_joint_methods
from convexmarket.experiments.joint_sweep import JointSweepResult, run_joint_sweep
from convexmarket.experiments.joint_tradeoff import JointTradeoffResult, run_joint_tradeoff
from convexmarket.experiments.offers import Offers, price_offers
from convexmarket.experiments.online_market import (
    OnlineMarketResult,
    close_market,
    online_policy,
    open_market,
)
from convexmarket.experiments.online_simulation import run_online_market
from convexmarket.experiments.online_stream import QuotedList, answer_list, quote_list
from convexmarket.experiments.online_study import OnlineStudyResult, run_online_study
from convexmarket.experiments.regression_market import (
    RegressionMarketResult,
    run_regression_market,
)
from convexmarket.experiments.release_comparison import (
    ReleaseComparisonResult,
    run_release_comparison,
)
from convexmarket.experiments.ridge import RidgeComparisonResult, run_ridge_comparison
from convexmarket.experiments.solver_study import (
    SolverStudyResult,
    compare_solvers,
    run_solver_study,
)
from convexmarket.experiments.tradeoff import TradeoffResult, run_tradeoff
from convexmarket.experiments.variants import VariantsResult, run_variants
from convexmarket.problems import (
    JointMethodsProblem,
    JointSweepProblem,
    JointTradeoffProblem,
    OnlineMarketProblem,
    OnlineStudyProblem,
    RegressionMarketProblem,
    ReleaseComparisonProblem,
    RidgeComparisonProblem,
    SolverStudyProblem,
    TradeoffProblem,
    VariantsProblem,
)

__all__ = [
    "JointMethodsResult",
    "JointSweepResult",
    "JointTradeoffResult",
    "Offers",
    "OnlineMarketResult",
    "OnlineStudyResult",
    "QuotedList",
    "RegressionMarketResult",
    "ReleaseComparisonResult",
    "RidgeComparisonResult",
    "SolverStudyResult",
    "TradeoffResult",
    "VariantsResult",
    "answer_list",
    "close_market",
    "compare_solvers",
    "online_policy",
    "open_market",
    "price_offers",
    "quote_list",
    "run_joint_methods",
    "run_joint_sweep",
    "run_joint_tradeoff",
    "run_online_market",
    "run_online_study",
    "run_problem",
    "run_regression_market",
    "run_release_comparison",
    "run_ridge_comparison",
    "run_solver_study",
    "run_tradeoff",
    "run_variants",
]


@singledispatch
def run_problem(problem: Any, progress: Callable[[str, int, int], None] | None = None) -> Any:  # noqa: ARG001
    """Run the experiment that a problem describes; each kind registers its own.

    Parameters
    ----------
    problem : Problem
        From :func:`convexmarket.problems.load_problem`.
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.
    """
    raise ParameterError(
        f"no experiment runs a {type(problem).__name__}; give what load_problem returned"
    )


run_problem.register(TradeoffProblem, run_tradeoff)
run_problem.register(JointTradeoffProblem, run_joint_tradeoff)
run_problem.register(RegressionMarketProblem, run_regression_market)
run_problem.register(ReleaseComparisonProblem, run_release_comparison)
run_problem.register(RidgeComparisonProblem, run_ridge_comparison)
run_problem.register(VariantsProblem, run_variants)
run_problem.register(JointMethodsProblem, run_joint_methods)
run_problem.register(JointSweepProblem, run_joint_sweep)
run_problem.register(OnlineMarketProblem, run_online_market)
run_problem.register(OnlineStudyProblem, run_online_study)
run_problem.register(SolverStudyProblem, run_solver_study)
