"""A market for ridge regression: buy privacy, pay for it, train under exactly what was bought.

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
from convexmarket.incentives.audit import audit_incentives
from convexmarket.incentives.rules import payments
from convexmarket.lab.audits import MISREPORTS, audit_row
from convexmarket.lab.kinds.regression_market.problem import MedicalData, RegressionMarketProblem
from convexmarket.lab.lists.people import People, read_people
from convexmarket.lab.problem.own import OwnRegression
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.scenarios import sellers_by_scenario
from convexmarket.lab.stages import Progress, Stages
from convexmarket.learners import NonPrivateRidge, PersonalizedRidge, expected_loss
from convexmarket.learners.ridge_math import (
    RidgeErrorBound,
    ridge_error_bound,
    ridge_risk_constants,
)
from convexmarket.market import Market
from convexmarket.privacy import Guarantee, Simulation, ridge_sensitivity
from convexmarket.sellers import Sellers

__all__ = ["regression_rows", "run_regression_market"]

Floats = NDArray[np.float64]

# Purposes of random numbers: each has a branch of the seed to itself.
_SENSITIVITIES, _NOISE = 0, 1

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


@dataclass(frozen=True)
class Offer:
    """What the buyer asks for at a gamma and a regularisation; from public things alone."""

    gamma: float
    regularization: float
    mu: float
    sigma: float
    bias: float
    expected_objective: float
    marked: bool


@dataclass(frozen=True, eq=False)
class Sale:
    """An offer to the sellers of a scenario: the market, its optimum and what it pays."""

    scenario: str
    offer: Offer
    market: Market
    allocation: Allocation
    payments: Floats

    @property
    def labels(self) -> dict[str, Any]:
        """What a row of a table is about."""
        return {
            "scenario": self.scenario,
            "gamma": self.offer.gamma,
            "regularization": self.offer.regularization,
        }


@dataclass(frozen=True, eq=False)
class Trial:
    """The test error of what was bought and of the naive purchase, and the guarantee kept."""

    errors: dict[str, float]
    guarantee: Guarantee
    kept: Floats
    n_features: int


def run_regression_market(
    problem: RegressionMarketProblem, progress: Progress | None = None
) -> Result[RegressionMarketProblem]:
    """Buy privacy for a ridge regression at every gamma, pay, train and measure.

    Parameters
    ----------
    problem : RegressionMarketProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        Its tables and numbers:

        - ``curve``: One row per scenario, gamma and regularization: whether the public
          bound marks it (``marked``); mu and sigma; eta, n_bought, payments, epsilon_mean
          over all sellers, epsilon_max; the test error over the noise, as loss_mean and
          loss_std (exact, squared units of the label), rmse (root of the mean), rmse_low
          and rmse_high (10% and 90% quantiles of simulated releases), simulated_loss and
          simulated_error (its standard error), explained (share of the constant's squared
          error that is removed); uniform_epsilon and uniform_rmse of the naive purchase;
          bias, privacy, labels and bound of Theorem 3.6; objective, lower_bound and gap.
        - ``choices``: gamma, regularization, mu, sigma, bias, expected_objective (bias and
          objective in the market at the prior's quantiles) and marked.
        - ``baselines``: regularization and rmse without noise, on all rows alike.
        - ``constant``: What is predicted without a model, public.
        - ``constant_rmse``: Its error on the test rows.
        - ``sellers``: scenario, gamma, regularization, marked, id, sensitivity,
          virtual_cost, weight, epsilon (sold), guarantee (of the model that was trained),
          payment, surplus.
        - ``audits``: scenario, gamma, regularization, sellers_audited, max_gain,
          min_surplus, incentive_compatible, individually_rational.
        - ``guarantee``: mechanism, accounting and assumptions of the model of the first row of
          ``curve``, in words.

        The same for the same problem, whatever the number of jobs; timings apart.

    Raises
    ------
    ProblemFileError
        If the problem and its data do not fit.
    ConvexMarketError
        If a market has no optimum or the data violate their public ranges.
    """
    stages = Stages(progress)
    rows, people = regression_rows(problem)
    branch = problem.run.stream(_SENSITIVITIES)
    markets = sellers_by_scenario(
        problem.sellers, problem.prior, rows.X_train, rows.feature_names, branch, people
    )
    offers = _offers(problem, *rows.X_train.shape)
    sales = _sell(problem, markets, offers, stages)
    seeds = [problem.run.stream(_NOISE, draw) for draw in range(problem.learner.draws)]
    trials: list[Trial] = stages.parallel(
        "train",
        problem.run.workers,
        (delayed(_trial)(problem, rows, sale, seeds) for sale in sales),
    )
    constant_rmse = _rmse(rows.y_test - _constant(problem))
    pairs = list(zip(sales, trials, strict=True))
    return Result(
        problem=problem,
        tables={
            "curve": pd.DataFrame([_curve_row(problem, *pair, constant_rmse) for pair in pairs]),
            "choices": pd.DataFrame([asdict(offer) for offer in offers]),
            "baselines": _baselines(problem, rows),
            "sellers": pd.concat([_seller_rows(*pair) for pair in pairs], ignore_index=True),
            "audits": _audits(problem, sales, stages),
        },
        numbers={
            "constant": _constant(problem),
            "constant_rmse": constant_rmse,
            "guarantee": {
                name: getattr(trials[0].guarantee, name)
                for name in ("mechanism", "accounting", "assumptions")
            },
        },
        certificates=[sale.labels | sale.allocation.certificate() for sale in sales],
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=provenance_of(
            problem,
            rows={"train": int(rows.y_train.size), "test": int(rows.y_test.size)},
            features=list(rows.feature_names),
            data=rows.description,
        ),
    )


def regression_rows(problem: RegressionMarketProblem) -> tuple[RegressionData, People | None]:
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


def _constant(problem: RegressionMarketProblem) -> float:
    """Return what is predicted without a model: public."""
    typical = problem.learner.typical_label
    return float(np.mean(problem.learner.target_range)) if typical is None else typical


def _rmse(residuals: Floats) -> float:
    return float(np.sqrt(np.mean(residuals**2)))


# ------------------------------------------------------------------- the regularisation, in public


def _offers(problem: RegressionMarketProblem, n_sellers: int, n_features: int) -> list[Offer]:
    """Return what Theorem 3.6 promises for every gamma and regularisation, from public things."""
    quantiles = problem.prior.quantile((np.arange(n_sellers) + 0.5) / n_sellers)
    typical = Sellers(quantiles, problem.prior)
    offers = []
    for gamma in problem.objective.gamma:
        promised = [
            _offer(problem, typical, gamma, value, n_features)
            for value in problem.learner.regularization
        ]
        best = min(promised, key=lambda offer: offer.expected_objective)
        offers += [replace(offer, marked=offer is best) for offer in promised]
    return offers


def _offer(
    problem: RegressionMarketProblem,
    typical: Sellers,
    gamma: float,
    regularization: float,
    n_features: int,
) -> Offer:
    learner = problem.learner
    mu, sigma = ridge_risk_constants(
        regularization,
        n_features,
        learner.label_noise,
        learner.failure_probability,
        learner.max_norm,
        learner.sensitivity,
    )
    allocation = allocate(_market(problem, typical, gamma, mu, sigma))
    bias = _bound(problem, allocation, regularization, n_features).bias
    return Offer(gamma, regularization, mu, sigma, bias, bias + allocation.objective, marked=False)


def _bound(
    problem: RegressionMarketProblem,
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


def _market(
    problem: RegressionMarketProblem, sellers: Sellers, gamma: float, mu: float, sigma: float
) -> Market:
    return Market.standard(
        sellers,
        mu=mu,
        sigma=sigma,
        gamma=gamma,
        cap=problem.objective.cap,
        eta_range=problem.objective.eta_range,
    )


# --------------------------------------------------------------------------- buying and training


def _sell(
    problem: RegressionMarketProblem,
    markets: dict[str, Sellers],
    offers: list[Offer],
    stages: Stages,
) -> list[Sale]:
    """Allocate and pay, scenario by scenario."""
    sales = []
    with stages("allocate and pay", len(markets) * len(offers)) as advance:
        for scenario, sellers in markets.items():
            for offer in offers:
                market = _market(problem, sellers, offer.gamma, offer.mu, offer.sigma)
                allocation = allocate(market)
                paid = payments(market, allocation)
                sales.append(Sale(scenario, offer, market, allocation, paid))
                advance()
    return sales


def _ridge(problem: RegressionMarketProblem, sale: Sale, **arguments: Any) -> PersonalizedRidge:
    learner = problem.learner
    return PersonalizedRidge(
        sale.offer.regularization,
        max_norm=learner.max_norm,
        sensitivity=learner.sensitivity,
        target_range=learner.target_range,
        rounding=None,  # Theorem 3.6 is of this noise
        **arguments,
    )


def _trial(
    problem: RegressionMarketProblem,
    rows: RegressionData,
    sale: Sale,
    seeds: list[np.random.SeedSequence],
) -> Trial:
    """Train under what was sold, on the rows that sold it, and measure on the test rows."""
    epsilon = sale.allocation.epsilon
    X, y = rows.X_train, rows.y_train
    ridge = _ridge(problem, sale, weights=sale.allocation.weights)
    exact = expected_loss(ridge, X, y, rows.X_test, rows.y_test, epsilon=epsilon)
    models = [
        clone(ridge).fit(X, y, epsilon=epsilon, random_state=Simulation(seed)) for seed in seeds
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
    return Trial(
        errors | _uniform_errors(problem, rows, sale),
        models[0].guarantee_,
        models[0].epsilon_,
        X.shape[1],
    )


def _uniform_errors(
    problem: RegressionMarketProblem, rows: RegressionData, sale: Sale
) -> dict[str, float]:
    """Spend the same on everybody alike, at the one price per unit that nobody refuses.

    Without an upper end of the prior's support there is no such price.
    """
    price = problem.prior.support[1]
    epsilon = float(sale.payments.sum()) / (rows.y_train.size * price)
    if not (np.isfinite(price) and epsilon > 0):
        return {"uniform_epsilon": np.nan, "uniform_rmse": np.nan}
    loss = expected_loss(
        _ridge(problem, sale),
        rows.X_train,
        rows.y_train,
        rows.X_test,
        rows.y_test,
        epsilon=epsilon,
    )
    return {"uniform_epsilon": epsilon, "uniform_rmse": float(np.sqrt(loss.mean))}


def _baselines(problem: RegressionMarketProblem, rows: RegressionData) -> pd.DataFrame:
    """Return the error without noise, on all rows alike."""
    measured = []
    for value in problem.learner.regularization:
        model = NonPrivateRidge(value, target_range=problem.learner.target_range)
        predicted = model.fit(rows.X_train, rows.y_train).predict(rows.X_test)
        measured.append({"regularization": value, "rmse": _rmse(predicted - rows.y_test)})
    return pd.DataFrame(measured)


# ------------------------------------------------------------------------------------ what is found


def _curve_row(
    problem: RegressionMarketProblem,
    sale: Sale,
    trial: Trial,
    constant_rmse: float,
) -> dict[str, Any]:
    allocation = sale.allocation
    bound = _bound(problem, allocation, sale.offer.regularization, trial.n_features)
    return (
        sale.labels
        | {
            "marked": sale.offer.marked,
            "mu": sale.offer.mu,
            "sigma": sale.offer.sigma,
            "eta": allocation.eta,
            "n_bought": allocation.n_bought,
            "payments": float(sale.payments.sum()),
            "epsilon_mean": allocation.eta / len(sale.market.sellers),
            "epsilon_max": float(allocation.epsilon.max()),
        }
        | trial.errors
        | {"explained": 1.0 - trial.errors["loss_mean"] / constant_rmse**2}
        | asdict(bound)
        | {
            "bound": bound.total,
            "objective": allocation.objective,
            "lower_bound": allocation.lower_bound,
            "gap": allocation.gap,
        }
    )


def _seller_rows(sale: Sale, trial: Trial) -> pd.DataFrame:
    sellers, allocation = sale.market.sellers, sale.allocation
    reports = np.asarray(sellers.sensitivities)
    return pd.DataFrame(
        sale.labels
        | {
            "marked": sale.offer.marked,
            "id": list(sellers.ids),
            "sensitivity": reports,
            "virtual_cost": sellers.virtual_costs,
            "weight": allocation.weights,
            "epsilon": allocation.epsilon,
            "guarantee": trial.kept,
            "payment": sale.payments,
            "surplus": sale.payments - reports * allocation.epsilon,
        }
    )


def _audits(problem: RegressionMarketProblem, sales: list[Sale], stages: Stages) -> pd.DataFrame:
    """Audit every market; scenarios permute the same reports, so one of each is enough."""
    markets = {
        (sale.offer.gamma, sale.offer.regularization): sale.market for sale in reversed(sales)
    }
    found = stages.parallel(
        "audit",
        problem.run.workers,
        (delayed(audit_incentives)(market, misreports=MISREPORTS) for market in markets.values()),
    )
    audits = dict(zip(markets, found, strict=True))
    return pd.DataFrame(
        [
            sale.labels | audit_row(audits[sale.offer.gamma, sale.offer.regularization])
            for sale in sales
        ]
    )
