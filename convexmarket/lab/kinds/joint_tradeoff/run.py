"""The joint problem over gamma, beside the two-step mechanism (A and B, Fig. 2).

For every gamma each of three models tries a few parameters: the joint problem, which looks at the
data to choose from whom to buy; the two-step mechanism, which does not; and the naive model of the
papers, mu = sigma = 0. What the validation rows like best, payments included, is reported on the
test rows. The payments of all three are the expected ones, psi'eps, so that they can be compared.

Every released model is trained with noise, under the same draws for all candidates. A solve that
fails is a row that says so, and the rest goes on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.data.datasets import MarketData
from convexmarket.joint import JointAllocation, convexity_ratio, convexity_threshold
from convexmarket.joint.model_step import best_model
from convexmarket.lab.classification import Trial, best_liked, row_counts
from convexmarket.lab.kinds.joint_tradeoff.claims import compare_models, tradeoff_claims
from convexmarket.lab.kinds.joint_tradeoff.problem import JointTradeoffProblem
from convexmarket.lab.kinds.joint_tradeoff.purchases import (
    Candidate,
    Setting,
    buy_and_train,
    declare,
    plan,
    train_without,
)
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.scenarios import classification_rows, sellers_by_scenario
from convexmarket.lab.stages import Progress, Stages
from convexmarket.privacy import objective_perturbation_guarantee
from convexmarket.sellers import Sellers

__all__ = ["run_joint_tradeoff"]

Floats = NDArray[np.float64]

# The sensitivities' branch of the seed; noise and starts have others.
_SENSITIVITIES = 0
KEY = ["scenario", "model", "gamma"]

_CURVE = [
    *KEY,
    "mu",
    "sigma",
    "regularization",
    "status",
    "message",
    "eta",
    "n_bought",
    "epsilon_max",
    "guarantee_max",
    "payments",
    "validation_error",
    "error_mean",
    "error_std",
    "overall_mean",
    "overall_std",
    "objective",
    "lower_bound",
    "residual",
    "starts_spread",
    "convexity_ratio",
    "binding",
]

CAVEATS = (
    "The draws are those of the noise. The sensitivities and the split of the rows are one draw: "
    "intervals say nothing about another market, and each is for one gamma by itself.",
    "mu, sigma, Lambda and the naive model's eta were chosen on the validation rows under the "
    "noise draws that the test errors are measured with, on other rows. The two-step mechanism's "
    "guarantees hold for parameters that were fixed beforehand and do not cover this choice.",
    "Payments are expected ones, psi'eps, for all three models. Those of Eq. (8) need the global "
    "optimum for every report; the joint problem's is not certified, so that it is not known "
    "whether its sellers would report the truth. Here they do by assumption.",
    "A joint purchase is planned with the noise left out or bounded, and the released model is "
    "trained again with noise: it is not the model that was planned.",
)


@dataclass(frozen=True, eq=False)
class Choice:
    """A setting with one of its candidates."""

    setting: Setting
    candidate: Candidate


def run_joint_tradeoff(
    problem: JointTradeoffProblem, progress: Progress | None = None
) -> Result[JointTradeoffProblem]:
    """Solve the joint problem over a list of gammas, beside the two-step and the naive model.

    Parameters
    ----------
    problem : JointTradeoffProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        The same for the same problem, whatever the number of jobs; timings apart. Its tables and
        numbers:

        curve
            One row per scenario, model ("joint", "two-step", "naive") and gamma: status, message
            (of a failure); mu, sigma, regularization and eta as chosen on the validation rows;
            n_bought, epsilon_max, guarantee_max (largest total guarantee of the two-step model, the
            learner's share included; the others have none); payments (expected), error_mean,
            error_std, overall_mean and overall_std (error + gamma * payments) on the test rows over
            noise draws (of one draw the standard deviations are NaN); validation_error; objective,
            lower_bound (none known: not a number), residual, starts_spread (of the objectives that
            the starts ended with, relative), convexity_ratio (convex for a fixed eta below 1) and
            binding (ends of a range of eta that decided).
        candidates
            Everything that was tried: scenario, model, gamma, mu, sigma, regularization, status,
            message, eta, n_bought, payments, validation_error, validation_overall, residual,
            starts_spread, chosen.
        draws
            scenario, model, gamma, draw, payments (expected, of the purchase), test_error.
        comparisons
            scenario, gamma, other model, and by how much the joint model's test error, payments and
            overall error differ from that model's; low and high bound the overall difference with a
            95% interval, paired over draws, and are infinite with one draw.
        sellers
            scenario, model, gamma, id, label, sensitivity, virtual_cost, loss (under the model
            trained on the purchase without noise), weight, epsilon, expected_payment.
        baseline_error, baseline_regularization : float
            Test error of the same learner on all rows alike, without noise and payments; its
            Lambda, chosen on the validation rows.
        exponential_threshold : float
            The Lambda from which on the objective is convex in the exponential variables.

    Raises
    ------
    ProblemFileError
        If the problem and its data do not fit.
    """
    stages = Stages(progress)
    rows, people = classification_rows(problem)
    branch = problem.run.stream(_SENSITIVITIES)
    markets = sellers_by_scenario(
        problem.sellers, problem.prior, rows.X_train, rows.feature_names, branch, people
    )
    settings = _settings(problem, markets)
    regularization, baseline = _baseline(problem, rows, stages)
    found = stages.parallel(
        "buy and train",
        problem.run.workers,
        (delayed(buy_and_train)(problem, rows, setting) for setting in settings),
    )
    tried = [
        Choice(setting, candidate)
        for setting, candidates in zip(settings, found, strict=True)
        for candidate in candidates
    ]
    choices = _choose(tried)
    answered = [choice for choice in choices if choice.candidate.trial is not None]
    curve = pd.DataFrame([_curve_row(problem, rows, choice) for choice in choices], columns=_CURVE)
    draws = _concatenated([_draw_rows(choice) for choice in answered])
    return Result(
        problem=problem,
        tables={
            "curve": curve,
            "candidates": pd.DataFrame([_candidate_row(choice, choices) for choice in tried]),
            "draws": draws,
            "comparisons": compare_models(draws),
            "sellers": _concatenated([_seller_rows(problem, rows, choice) for choice in answered]),
        },
        numbers={
            "baseline_error": float(baseline.test.mean()),
            "baseline_regularization": regularization,
            "exponential_threshold": convexity_threshold(rows.X_train),
        },
        claims=tradeoff_claims(
            draws,
            list(problem.objective.gamma),
            list(problem.sellers.scenarios),
            problem.remarks.model_dump(),
        ),
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            rows=row_counts(rows),
            data=rows.description,
        ),
    )


def _settings(problem: JointTradeoffProblem, markets: dict[str, Sellers]) -> list[Setting]:
    """Return all that is tried, scenario by scenario, model by model, gamma by gamma."""
    objective, naive = problem.objective, problem.naive
    pairs = [(mu, sigma) for mu in objective.mu for sigma in objective.sigma]
    etas = np.geomspace(*naive.eta_range, naive.grid).tolist()
    gammas = sorted(objective.gamma)
    found = []
    for scenario, sellers in markets.items():
        for gamma in gammas:
            for mu, sigma in pairs:
                market = declare(problem, sellers, gamma, mu, sigma, objective.eta_range)
                found += [
                    Setting(scenario, "joint", gamma, mu, sigma, market),
                    Setting(scenario, "two-step", gamma, mu, sigma, market),
                ]
            for eta in etas:
                market = declare(problem, sellers, gamma, 0.0, 0.0, (eta, eta))
                found.append(Setting(scenario, "naive", gamma, 0.0, 0.0, market))
    return found


def _baseline(
    problem: JointTradeoffProblem, rows: MarketData, stages: Stages
) -> tuple[float, Trial]:
    """Return the Lambda that the validation rows like best without noise, and its errors."""
    values = problem.learner.regularization
    calls = (delayed(train_without)(problem, rows, value) for value in values)
    trials = stages.parallel("baseline", 1, calls)
    found: tuple[float, Trial] = best_liked(
        ("", trial.validation.mean(), value, (value, trial))
        for value, trial in zip(values, trials, strict=True)
    )[""]
    return found


def _choose(tried: list[Choice]) -> list[Choice]:
    """Take for each row of the curve what the validation rows like best.

    Where every candidate failed, the first of the largest Lambda says why.
    """
    return list(
        best_liked(
            (one.setting.key, _validation_overall(one), one.candidate.regularization, one)
            for one in tried
        ).values()
    )


def _validation_overall(choice: Choice) -> float:
    trial = choice.candidate.trial
    if trial is None:
        return np.inf
    return float(trial.validation.mean()) + choice.setting.gamma * _expected(choice).sum()


def _expected(choice: Choice) -> Floats:
    """Return the expected payment of every seller, psi_i*eps_i."""
    purchase = choice.candidate.purchase
    assert purchase is not None
    costs = choice.setting.market.sellers.virtual_costs
    return purchase.epsilon * np.where(purchase.weights > 0, costs, 0.0)


# --------------------------------------------------------------------------------- what is found


def _labels(choice: Choice) -> dict[str, Any]:
    return dict(zip(KEY, choice.setting.key, strict=True))


def _common(choice: Choice) -> dict[str, Any]:
    """Return what a candidate and a row of the curve both say."""
    setting, candidate = choice.setting, choice.candidate
    row = _labels(choice) | {
        "mu": setting.mu,
        "sigma": setting.sigma,
        "regularization": candidate.regularization,
        "status": candidate.status,
        "message": candidate.message,
    }
    purchase, trial = candidate.purchase, candidate.trial
    if purchase is None or trial is None:
        return row
    joint = purchase if isinstance(purchase, JointAllocation) else None
    return row | {
        "eta": purchase.eta,
        "n_bought": purchase.n_bought,
        "payments": float(_expected(choice).sum()),
        "validation_error": float(trial.validation.mean()),
        "residual": np.nan if joint is None else joint.residual,
        "starts_spread": np.nan if joint is None else _spread(joint),
    }


def _spread(found: JointAllocation) -> float:
    """Return how far apart the starts ended, relative to the objective."""
    scale = max(abs(found.objective), np.finfo(float).tiny)
    return (max(found.starts) - min(found.starts)) / scale


def _candidate_row(choice: Choice, choices: list[Choice]) -> dict[str, Any]:
    overall = _validation_overall(choice)
    return _common(choice) | {
        "validation_overall": overall if np.isfinite(overall) else np.nan,
        "chosen": choice in choices and choice.candidate.trial is not None,
    }


def _curve_row(problem: JointTradeoffProblem, rows: MarketData, choice: Choice) -> dict[str, Any]:
    row = _common(choice)
    purchase, trial, gamma = choice.candidate.purchase, choice.candidate.trial, choice.setting.gamma
    if purchase is None or trial is None:
        return row
    joint = plan(problem, rows, choice.setting.market, choice.candidate.regularization)
    guarantee = np.nan
    if choice.setting.model == "two-step":
        norm, value = problem.data.data_norm, choice.candidate.regularization
        guarantee = objective_perturbation_guarantee(
            purchase.weights, purchase.eta, value, norm
        ).max()
    return row | {
        "epsilon_max": float(purchase.epsilon.max()),
        "guarantee_max": float(guarantee),
        **trial.errors(gamma * row["payments"]),
        "objective": purchase.objective,
        "lower_bound": purchase.lower_bound if np.isfinite(purchase.lower_bound) else np.nan,
        "convexity_ratio": (convexity_ratio(joint) if choice.setting.model == "joint" else np.nan),
        "binding": ", ".join(purchase.binding),
    }


def _draw_rows(choice: Choice) -> pd.DataFrame:
    assert choice.candidate.trial is not None
    test = choice.candidate.trial.test
    return pd.DataFrame(
        _labels(choice)
        | {
            "draw": np.arange(test.size),
            "payments": float(_expected(choice).sum()),
            "test_error": test,
        }
    )


def _seller_rows(problem: JointTradeoffProblem, rows: MarketData, choice: Choice) -> pd.DataFrame:
    purchase, sellers = choice.candidate.purchase, choice.setting.market.sellers
    assert purchase is not None
    joint = plan(problem, rows, choice.setting.market, choice.candidate.regularization)
    if isinstance(purchase, JointAllocation):
        model = purchase.model
    else:
        model = best_model(joint, purchase.weights, purchase.eta)
    return pd.DataFrame(
        _labels(choice)
        | {
            "id": list(sellers.ids),
            "label": rows.y_train.astype(int),
            "sensitivity": np.asarray(sellers.sensitivities),
            "virtual_cost": sellers.virtual_costs,
            "loss": joint.losses(model),
            "weight": purchase.weights,
            "epsilon": purchase.epsilon,
            "expected_payment": _expected(choice),
        }
    )


def _concatenated(frames: list[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
