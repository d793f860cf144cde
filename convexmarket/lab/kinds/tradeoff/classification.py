"""A trade-off whose parameters the validation rows choose: Algorithm 2 of A (its Fig. 2).

For every gamma the buyer considers a few (mu, sigma), buys what is optimal under each, pays, and
trains the private model on what it bought, with a few values of Lambda. What the validation rows
like best, payments included, is reported on the test rows. The naive model of the papers, mu =
sigma = 0, chooses its eta in the same way; the baseline without privacy its Lambda.

All candidates are trained under the same noise draws, so that a choice reflects the candidates and
not their luck. Each draw comes from a seed of its own, so results do not depend on how the work
is shared out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.data.datasets import MarketData
from convexmarket.errors import ParameterError
from convexmarket.lab.classification import Trial, best_liked, one_class_error, row_counts, try_out
from convexmarket.lab.kinds.tradeoff.problem import LOGISTIC, ClassificationTradeoff
from convexmarket.lab.kinds.tradeoff.purchases import Measured, Plan, Purchase, Row, seeds, told_of
from convexmarket.lab.scenarios import classification_rows as rows_of
from convexmarket.lab.stages import Stages
from convexmarket.learners import PrivateSearch
from convexmarket.privacy import Guarantee

__all__ = ["measure", "plans", "rows_of"]

Floats = NDArray[np.float64]

CAVEATS = (
    "mu, sigma, Lambda and the naive model's eta were chosen with models trained on the sellers' "
    "rows. The guarantees are those of one model whose parameters were fixed beforehand; they do "
    "not cover the choice. Outside an experiment, choose on public data.",
    "Incentives are audited in each chosen market, its parameters held fixed. Letting reports "
    "decide between candidates, as the choice by total payments does here, is not truthful.",
    "Validation and test use the same noise draws on different rows, so the test error is that of "
    "the models that were chosen from.",
)


@dataclass(frozen=True, eq=False)
class Trained:
    """The models of one design: their errors, and what each of them guarantees every row."""

    trial: Trial
    guarantee: Guarantee


@dataclass(frozen=True, eq=False)
class Choice:
    """A purchase with the Lambda that the validation rows liked best for its gamma."""

    purchase: Purchase
    regularization: float
    trained: Trained

    @property
    def is_mechanism(self) -> bool:
        """Whether it is the mechanism's, and not the naive one."""
        return bool(self.purchase.plan.labels["model"] == "mechanism")

    def row(self) -> Row:
        """Return what is reported of it."""
        cost = self.purchase.plan.gamma * float(self.purchase.payments.sum())
        measured = {
            "regularization": self.regularization,
            **self.trained.trial.errors(cost),
            "guarantee_max": float(self.trained.guarantee.epsilon.max()),
        }
        return Row(self.purchase, measured, self.trained.guarantee.epsilon)

    def draws(self) -> pd.DataFrame:
        """Return the test error of each noise draw."""
        test = self.trained.trial.test
        return pd.DataFrame(
            self.purchase.labels | {"draw": np.arange(test.size), "test_error": test}
        )


def plans(problem: ClassificationTradeoff, _: MarketData) -> list[Plan]:
    """Return what the mechanism tries for each gamma, and then the naive model."""
    objective, naive = problem.objective, problem.naive

    def plan(model: str, gamma: float, mu: float, sigma: float, etas: Any) -> Plan:
        return Plan({"model": model, "gamma": gamma}, gamma, mu, sigma, objective.cap, etas)

    return [
        plan("mechanism", gamma, mu, sigma, objective.eta_range)
        for gamma in objective.gamma
        for mu in objective.mu
        for sigma in objective.sigma
    ] + [
        plan("naive", gamma, 0.0, 0.0, (eta, eta))
        for gamma in objective.gamma
        for eta in np.geomspace(*naive.eta_range, naive.grid).tolist()
    ]


def measure(
    problem: ClassificationTradeoff, rows: MarketData, purchases: list[Purchase], stages: Stages
) -> Measured:
    """Train on what was bought, and report what the validation rows like best."""
    values = problem.learner.regularization
    designs = {
        (_training(purchase), value): (purchase.allocation.weights, purchase.allocation.eta, value)
        for purchase in reversed(purchases)  # of those that train alike, the first
        for value in values
    }
    uniform = np.full(rows.y_train.size, 1.0 / rows.y_train.size)
    plain = [(uniform, np.inf, value) for value in values]
    calls = (delayed(_trained)(problem, rows, one) for one in [*plain, *designs.values()])
    trained = stages.parallel("train", problem.run.workers, calls)
    baseline = best_liked(
        ("", one.trial.validation.mean(), value, (value, one.trial))
        for value, one in zip(values, trained, strict=False)
        if isinstance(one, Trained)
    )
    if not baseline:
        raise trained[0]
    value, trial = baseline[""]
    choices = _choose(values, purchases, dict(zip(designs, trained[len(plain) :], strict=True)))
    mechanism = [choice for choice in choices if choice.is_mechanism]
    charged: list[Choice] = []
    if problem.learner.tuning == "charged":
        calls = (delayed(_searched)(problem, rows, choice) for choice in mechanism)
        found = stages.parallel("tune", problem.run.workers, calls)
        charged = [choice for choice in found if choice is not None]
    reported = [*choices, *charged]
    return Measured(
        rows=[choice.row() for choice in reported],
        certified=[choice.purchase for choice in choices],
        audited=[choice.purchase for choice in mechanism],
        tables={"draws": pd.concat([choice.draws() for choice in reported], ignore_index=True)},
        numbers={
            "baseline_error": float(trial.test.mean()),
            "baseline_regularization": value,
            "one_class_error": one_class_error(rows.y_test),
        }
        | ({} if problem.learner.name == LOGISTIC else told_of(choices[0].trained.guarantee)),
        caveats=CAVEATS,
        provenance={
            "rows": row_counts(rows),
            "data": rows.description,
            "designs_trained": sum(isinstance(one, Trained) for one in trained),
        },
    )


#: Weights, eta and Lambda: what is trained under, noise apart.
Design = tuple[Floats, float, float]
DesignKey = tuple[tuple[bytes, float], float]


def _training(purchase: Purchase) -> tuple[bytes, float]:
    """Return what training depends on; up to rounding, several purchases may share it."""
    allocation = purchase.allocation
    return np.round(allocation.weights, 12).tobytes(), float(f"{allocation.eta:.9e}")


def _trained(
    problem: ClassificationTradeoff, rows: MarketData, design: Design
) -> Trained | ParameterError:
    """Train a design under every noise draw, or return why the learner cannot keep what it owes."""
    weights, eta, regularization = design
    sold = weights * eta if np.isfinite(eta) else np.inf
    model, draws = problem.learner_of(regularization), problem.learner.draws
    try:
        trial = try_out(model, rows, sold, seeds(problem.run, draws if np.isfinite(eta) else 1))
    except ParameterError as refused:
        return refused
    return Trained(trial, model.guarantee_)


def _searched(problem: ClassificationTradeoff, rows: MarketData, choice: Choice) -> Choice | None:
    """Choose Lambda by models that are trained on half of what was sold, anew in each draw.

    A purchase that leaves nothing to choose from has no answer.
    """
    sold = choice.purchase.allocation.epsilon
    values = problem.learner.regularization
    candidates = [value for value in values if _keeps(problem.learner_of(value), sold / 2)]
    if not candidates or not sold.any():
        return None
    search = PrivateSearch(
        problem.learner_of(candidates[0]),
        {"regularization": candidates},
        validation=(rows.X_validation, rows.y_validation),
        trials=float(len(candidates)),
    )
    trial = try_out(search, rows, sold, seeds(problem.run, problem.learner.draws))
    plan = choice.purchase.plan
    plan = replace(plan, labels=plan.labels | {"model": "charged tuning"})
    purchase = replace(choice.purchase, plan=plan)
    return Choice(purchase, np.nan, Trained(trial, search.guarantee_))


def _keeps(model: Any, share: Floats) -> bool:
    """Say whether a learner can keep what each row would grant; that is public."""
    try:
        model.promise(share * (1 - 1e-9))
    except ParameterError:
        return False
    return True


def _choose(
    values: tuple[float, ...],
    purchases: list[Purchase],
    results: dict[DesignKey, Trained | ParameterError],
) -> list[Choice]:
    """Take for each row of the curve what the validation rows like best."""
    tried, refusals = [], {}
    for purchase in purchases:
        key, cost = tuple(purchase.labels.values()), purchase.plan.gamma * purchase.payments.sum()
        for value in values:
            found = results[_training(purchase), value]
            if isinstance(found, ParameterError):
                refusals[key] = found
            else:
                overall = found.trial.validation.mean() + cost
                tried.append((key, overall, value, Choice(purchase, value, found)))
    best = best_liked(tried)
    for (scenario, model, gamma), refused in refusals.items():
        if (scenario, model, gamma) not in best:
            raise ParameterError(
                f"no candidate of the {model} model at gamma = {gamma:g} ({scenario}) keeps what "
                "it bought; give larger values of learner.regularization, or of objective.sigma "
                f"(of naive.eta_range for the naive model). The last one: {refused}"
            ) from refused
    return list(best.values())
