"""A trade-off whose mu and sigma follow from a theorem: private ridge regression.

The buyer's mu and sigma are not tuned: they are the constants of Theorem 3.6 of Acharya et al. for
a regularisation that was fixed in advance. So the objective bounds the distance between the
released and the true coefficients, and gamma is the price of money in units of that distance.

Every regularisation of the problem is reported. The one that is marked for a gamma has the best
bound in a market whose reports are the quantiles of the prior, so that the mark depends neither on
reports nor on rows.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray
from sklearn.base import clone

from convexmarket.allocation import Allocation, allocate
from convexmarket.data.datasets import RegressionData, medical, synthetic_regression
from convexmarket.lab.kinds.tradeoff.problem import MedicalData, RegressionTradeoff
from convexmarket.lab.kinds.tradeoff.purchases import (
    Measured,
    Plan,
    Purchase,
    Row,
    market_of,
    seeds,
    told_of,
)
from convexmarket.lab.problem.own import OwnRegression
from convexmarket.lab.problem.people import People, read_people
from convexmarket.lab.stages import Stages
from convexmarket.learners import PersonalizedRidge, expected_loss
from convexmarket.learners.ridge_math import RidgeErrorBound, ridge_error_bound
from convexmarket.privacy import Guarantee, Simulation, ridge_sensitivity
from convexmarket.sellers import Sellers

__all__ = ["measure", "plain_ridge", "plans", "rows_of"]

Floats = NDArray[np.float64]

# Of the simulated releases: what the band around the error shows.
_BAND = (0.1, 0.9)

CAVEATS = (
    "Each row of the table is a market of its own, with its own release. Releasing the models of "
    "several rows would add up their guarantees, and so would the draws of a simulation.",
    "The regularisation has to be fixed before reports and rows are seen. The one with the "
    "smallest error on the test rows is visible here, and no guarantee covers choosing it "
    "afterwards.",
    "Theorem 3.6 bounds coefficients in the worst case and assumes a linear label with Gaussian "
    "noise. Truthfulness and privacy hold without that; how good the purchase is does not.",
    "The noise of this experiment comes from the seed of the problem file, which is no secret. A "
    "release that is meant to protect anybody draws fresh noise.",
    "The expected errors are computed from the rows that were sold, without a guarantee: they are "
    "for an experiment on public data, and not a part of what would be released.",
)


@dataclass(frozen=True, eq=False)
class Trial:
    """The test error of what was bought and of the naive purchase, and the guarantee kept."""

    errors: dict[str, float]
    guarantee: Guarantee


def rows_of(problem: RegressionTradeoff) -> tuple[RegressionData, People | None]:
    """Return the rows of a market, and whose they are where the file is the user's own."""
    data = problem.data
    if isinstance(data, OwnRegression):
        people = read_people(problem)
        return people.regression(), people
    if isinstance(data, MedicalData):
        return medical(data.train_fraction, data.split_seed), None
    drawn = synthetic_regression(
        data.n_rows, data.n_features, data.data_seed, data.train_fraction, data.label_noise
    )
    return drawn, None


def _rmse(residuals: Floats) -> float:
    return float(np.sqrt(np.mean(residuals**2)))


# ------------------------------------------------------------------- the regularisation, in public


def plans(problem: RegressionTradeoff, rows: RegressionData) -> list[Plan]:
    """Return a plan for every gamma and regularisation, from public things alone.

    With it goes what Theorem 3.6 promises in a market at the prior's quantiles: its bias, and that
    with the objective; the best of a gamma is marked.
    """
    n_sellers, n_features = rows.X_train.shape
    quantiles = problem.prior.quantile((np.arange(n_sellers) + 0.5) / n_sellers)
    typical, buyer, found = Sellers(quantiles, problem.prior), problem.objective, []
    for gamma in buyer.gamma:
        promised = []
        for value in problem.learner.regularization:
            mu, sigma = problem.risk(plain_ridge(problem, value), n_features)
            labels = {"gamma": gamma, "regularization": value}
            plan = Plan(labels, gamma, mu, sigma, buyer.cap, buyer.eta_range)
            allocation = allocate(market_of(plan, typical))
            bias = _bound(problem, allocation, value, n_features).bias
            promised.append((bias + allocation.objective, bias, plan))
        best = min(promised, key=lambda promise: promise[0])[2]
        found += [
            replace(
                plan,
                marks={"marked": plan is best},
                promised={"bias": bias, "expected_objective": expected},
            )
            for expected, bias, plan in promised
        ]
    return found


def _bound(
    problem: RegressionTradeoff,
    allocation: Allocation,
    regularization: float,
    n_features: int,
) -> RidgeErrorBound:
    """Return the terms of Theorem 3.6 for what was bought."""
    learner = problem.learner
    kappa = ridge_sensitivity(regularization, n_features, learner.max_norm, learner.sensitivity)
    return ridge_error_bound(
        allocation.weights,
        allocation.eta / kappa,
        regularization,
        n_features=n_features,
        coef_norm=learner.coef_norm,
        label_noise=learner.label_noise,
        failure_probability=learner.failure_probability,
        smallest_eigenvalue=learner.smallest_eigenvalue,
    )


# ---------------------------------------------------------------------------- training and errors


def measure(
    problem: RegressionTradeoff,
    rows: RegressionData,
    purchases: list[Purchase],
    stages: Stages,
) -> Measured:
    """Train on everything that was bought, and report it all."""
    calls = (delayed(_trial)(problem, rows, purchase) for purchase in purchases)
    trials: list[Trial] = stages.parallel("train", problem.run.workers, calls)
    typical = problem.learner.typical_label
    constant = float(np.mean(problem.learner.target_range)) if typical is None else typical
    constant_rmse = _rmse(rows.y_test - constant)
    return Measured(
        rows=[
            Row(
                purchase,
                _measured(problem, rows, purchase, trial, constant_rmse),
                trial.guarantee.epsilon,
            )
            for purchase, trial in zip(purchases, trials, strict=True)
        ],
        certified=purchases,
        audited=purchases,
        tables={
            "choices": _choices(purchases),
            "baselines": _baselines(problem, rows),
        },
        numbers={
            "constant": constant,
            "constant_rmse": constant_rmse,
            **told_of(trials[0].guarantee),
        },
        caveats=CAVEATS,
        provenance={
            "rows": {"train": int(rows.y_train.size), "test": int(rows.y_test.size)},
            "features": list(rows.feature_names),
            "data": rows.description,
        },
    )


def plain_ridge(
    problem: RegressionTradeoff, regularization: float, **arguments: Any
) -> PersonalizedRidge:
    """Return the learner with noise in plain floating point, which Theorem 3.6 is of."""
    return problem.learner_of(regularization, rounding=None, **arguments)


def _trial(problem: RegressionTradeoff, rows: RegressionData, purchase: Purchase) -> Trial:
    """Train under what was sold, on the rows that sold it, and measure on the test rows."""
    epsilon = purchase.allocation.epsilon
    X, y = rows.X_train, rows.y_train
    regularization = purchase.plan.labels["regularization"]
    ridge = plain_ridge(problem, regularization, weighting=purchase.allocation.weights)
    exact = expected_loss(ridge, X, y, rows.X_test, rows.y_test, epsilon=epsilon)
    models = [
        clone(ridge).fit(X, y, epsilon=epsilon, random_state=Simulation(seed))
        for seed in seeds(problem.run, problem.learner.draws)
    ]
    losses = np.array(
        [np.mean((model.predict(rows.X_test) - rows.y_test) ** 2) for model in models]
    )
    low, high = np.sqrt(np.quantile(losses, _BAND))
    errors = {
        "loss_mean": exact.mean,
        "loss_std": exact.std,
        "rmse": float(np.sqrt(exact.mean)),
        "rmse_low": float(low),
        "rmse_high": float(high),
        "simulated_loss": float(losses.mean()),
        "simulated_error": float(losses.std(ddof=1) / np.sqrt(losses.size)),
    }
    return Trial(errors | _uniform_errors(problem, rows, purchase), models[0].guarantee_)


def _uniform_errors(
    problem: RegressionTradeoff, rows: RegressionData, purchase: Purchase
) -> dict[str, float]:
    """Spend the same on everybody alike, at the one price per unit that nobody refuses.

    Without an upper end of the prior's support there is no such price.
    """
    price = problem.prior.support[1]
    epsilon = float(purchase.payments.sum()) / (rows.y_train.size * price)
    if not (np.isfinite(price) and epsilon > 0):
        return {"uniform_epsilon": np.nan, "uniform_rmse": np.nan}
    loss = expected_loss(
        plain_ridge(problem, purchase.plan.labels["regularization"]),
        rows.X_train,
        rows.y_train,
        rows.X_test,
        rows.y_test,
        epsilon=epsilon,
    )
    return {"uniform_epsilon": epsilon, "uniform_rmse": float(np.sqrt(loss.mean))}


def _choices(purchases: list[Purchase]) -> pd.DataFrame:
    """Return what was promised of every plan, before any report was known."""
    first = [one.plan for one in purchases if one.scenario == purchases[0].scenario]
    return pd.DataFrame(
        [
            plan.labels | {"mu": plan.mu, "sigma": plan.sigma} | plan.promised | plan.marks
            for plan in first
        ]
    )


def _baselines(problem: RegressionTradeoff, rows: RegressionData) -> pd.DataFrame:
    """Return the error without noise, on all rows alike."""
    measured = []
    for value in problem.learner.regularization:
        model = problem.learner_of(value, weighting="equal", epsilon=np.inf)
        predicted = model.fit(rows.X_train, rows.y_train).predict(rows.X_test)
        measured.append({"regularization": value, "rmse": _rmse(predicted - rows.y_test)})
    return pd.DataFrame(measured)


def _measured(
    problem: RegressionTradeoff,
    rows: RegressionData,
    purchase: Purchase,
    trial: Trial,
    constant_rmse: float,
) -> dict[str, Any]:
    """Return what a row of the curve says of the errors, and of the bound on them."""
    allocation, regularization = purchase.allocation, purchase.plan.labels["regularization"]
    bound = _bound(problem, allocation, regularization, rows.X_train.shape[1])
    return (
        {"epsilon_mean": allocation.eta / len(purchase.market.sellers)}
        | trial.errors
        | {"explained": 1.0 - trial.errors["loss_mean"] / constant_rmse**2}
        | asdict(bound)
        | {"bound": bound.total}
    )
