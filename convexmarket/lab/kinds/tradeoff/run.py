"""Error against payments over gamma: Algorithm 2 of A on a data set (the content of its Fig. 2).

For every gamma the buyer considers a few (mu, sigma), buys what is optimal under each, pays, and
trains the private model on what it bought, with a few values of Lambda. What the validation rows
like best, payments included, is reported on the test rows. The naive model of the papers, mu =
sigma = 0, chooses its eta in the same way; the baseline without privacy its Lambda.

All candidates are trained under the same noise draws, so that a choice reflects the candidates and
not their luck. Each draw comes from a seed of its own, so results do not depend on how the work
is shared out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd
from joblib import delayed
from numpy.typing import NDArray

from convexmarket.allocation import Allocation, allocate
from convexmarket.data.datasets import MarketData
from convexmarket.errors import ParameterError
from convexmarket.incentives.audit import audit_incentives
from convexmarket.incentives.rules import payments
from convexmarket.lab.audits import MISREPORTS, audit_row
from convexmarket.lab.classification import Trial, row_counts, try_out
from convexmarket.lab.kinds.tradeoff.problem import TradeoffProblem
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.scenarios import classification_rows, sellers_by_scenario
from convexmarket.lab.stages import Progress, Stages
from convexmarket.learners import PrivateLogisticRegression, PrivateSearch
from convexmarket.market import Market
from convexmarket.privacy import Simulation
from convexmarket.sellers import Sellers

__all__ = ["run_tradeoff"]

Floats = NDArray[np.float64]
Model = Literal["mechanism", "naive", "charged tuning"]

# Purposes of random numbers: each has a branch of the seed to itself.
_SENSITIVITIES, _NOISE = 0, 1

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
class Purchase:
    """One way to buy: a market of a scenario, its optimum and what it pays."""

    scenario: str
    model: Model
    gamma: float
    mu: float
    sigma: float
    market: Market
    allocation: Allocation
    payments: Floats

    @property
    def key(self) -> tuple[str, str, float]:
        """What a row of the curve is for."""
        return self.scenario, self.model, self.gamma

    @property
    def training(self) -> tuple[bytes, float]:
        """What training depends on; up to rounding, several purchases may share it."""
        return np.round(self.allocation.weights, 12).tobytes(), float(f"{self.allocation.eta:.9e}")


@dataclass(frozen=True, eq=False)
class Trained:
    """The models of one design: their errors, and what each of them guarantees every row."""

    trial: Trial
    guarantee: Floats


@dataclass(frozen=True, eq=False)
class Choice:
    """A purchase with the Lambda that the validation rows liked best for its gamma."""

    purchase: Purchase
    regularization: float
    trained: Trained

    @property
    def trial(self) -> Trial:
        """The errors of its models."""
        return self.trained.trial


def run_tradeoff(
    problem: TradeoffProblem, progress: Progress | None = None
) -> Result[TradeoffProblem]:
    """Run Algorithm 2 of A over a list of gammas, with the naive model and the baseline.

    Parameters
    ----------
    problem : TradeoffProblem
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        Its tables and numbers:

        - ``curve``: One row per scenario, model ("mechanism", "naive"; "charged tuning" where
          the file asks for it: Lambda chosen anew in each draw, within what was sold, so that
          it is NaN here) and gamma: the parameters chosen on the validation rows (mu, sigma,
          regularization, eta), n_bought, payments, error_mean and error_std on the test rows
          over noise draws (NaN with one draw), overall_mean and overall_std (error + gamma *
          payments), validation_error, objective, lower_bound, gap, epsilon_max (largest
          guarantee sold) and guarantee_max (largest total guarantee, the learner's share
          included).
        - ``draws``: scenario, model, gamma, draw, test_error.
        - ``sellers``: scenario, model, gamma, id, sensitivity, virtual_cost, weight,
          epsilon, guarantee (total), payment, surplus (payment minus cost of what was
          sold).
        - ``baseline_error``: Test error of the same learner on all rows alike, without
          noise.
        - ``baseline_regularization``: Its Lambda, chosen on the validation rows.
        - ``audits``: scenario, model, gamma, sellers_audited, max_gain, min_surplus,
          incentive_compatible and individually_rational of the mechanism's markets.

        The same for the same problem, whatever the number of jobs; timings apart.

    Raises
    ------
    ProblemFileError
        If the problem and its data do not fit.
    ConvexMarketError
        If a market has no optimum or a model cannot be trained.
    """
    stages = Stages(progress)
    rows, people = classification_rows(problem)
    branch = problem.run.stream(_SENSITIVITIES)
    markets = sellers_by_scenario(
        problem.sellers, problem.prior, rows.X_train, rows.feature_names, branch, people
    )
    purchases = _buy(problem, markets, stages)
    designs = _designs(problem, purchases)
    uniform = np.full(rows.y_train.size, 1.0 / rows.y_train.size)
    plain = [(uniform, np.inf, value) for value in problem.learner.regularization]
    trained = _train(problem, rows, [*plain, *designs.values()], stages)
    baseline = min(
        (
            (value, one.trial)
            for value, one in zip(problem.learner.regularization, trained, strict=False)
            if isinstance(one, Trained)
        ),
        key=lambda pair: (pair[1].validation.mean(), -pair[0]),
    )
    choices = _choose(problem, purchases, dict(zip(designs, trained[len(plain) :], strict=True)))
    audits = _audit(problem, choices, stages)
    certificates = [
        _labels(choice.purchase) | choice.purchase.allocation.certificate() for choice in choices
    ]
    if problem.learner.tuning == "charged":
        choices += _charge(problem, rows, choices, stages)
    return Result(
        problem=problem,
        tables={
            "curve": pd.DataFrame([_curve_row(choice) for choice in choices]),
            "draws": pd.concat([_draw_rows(choice) for choice in choices], ignore_index=True),
            "sellers": pd.concat([_seller_rows(choice) for choice in choices], ignore_index=True),
            "audits": audits,
        },
        numbers={
            "baseline_error": float(baseline[1].test.mean()),
            "baseline_regularization": baseline[0],
        },
        certificates=certificates,
        caveats=CAVEATS,
        timings=stages.timings(),
        provenance=_provenance(problem, rows, sum(isinstance(one, Trained) for one in trained)),
    )


def _buy(problem: TradeoffProblem, markets: dict[str, Sellers], stages: Stages) -> list[Purchase]:
    """Allocate and pay under every candidate, scenario by scenario, model by model."""
    objective, naive = problem.objective, problem.naive
    pairs = [(mu, sigma) for mu in objective.mu for sigma in objective.sigma]
    etas = np.geomspace(*naive.eta_range, naive.grid).tolist()
    purchases = []
    steps = len(markets) * len(objective.gamma) * (len(pairs) + len(etas))
    with stages("allocate and pay", steps) as advance:
        for scenario, sellers in markets.items():
            declared: list[tuple[Model, float, float, float, tuple[float, float] | None]] = [
                ("mechanism", gamma, *pair, objective.eta_range)
                for gamma in objective.gamma
                for pair in pairs
            ]
            declared += [
                ("naive", gamma, 0.0, 0.0, (eta, eta)) for gamma in objective.gamma for eta in etas
            ]
            for model, gamma, mu, sigma, eta_range in declared:
                market = Market.standard(
                    sellers,
                    mu=mu,
                    sigma=sigma,
                    gamma=gamma,
                    cap=objective.cap,
                    eta_range=eta_range,
                )
                allocation = allocate(market)
                paid = payments(market, allocation)
                purchases.append(
                    Purchase(scenario, model, gamma, mu, sigma, market, allocation, paid)
                )
                advance()
    return purchases


#: Weights, eta and Lambda: what is trained under, noise apart.
Design = tuple[Floats, float, float]
DesignKey = tuple[tuple[bytes, float], float]


def _designs(problem: TradeoffProblem, purchases: list[Purchase]) -> dict[DesignKey, Design]:
    """Return the different designs to train."""
    designs: dict[DesignKey, Design] = {}
    for purchase in purchases:
        for regularization in problem.learner.regularization:
            key = (purchase.training, regularization)
            design = (purchase.allocation.weights, purchase.allocation.eta, regularization)
            designs.setdefault(key, design)
    return designs


def _seeds(problem: TradeoffProblem) -> list[np.random.SeedSequence]:
    return [problem.run.stream(_NOISE, draw) for draw in range(problem.learner.draws)]


def _train(
    problem: TradeoffProblem, rows: MarketData, designs: list[Design], stages: Stages
) -> list[Trained | ParameterError]:
    """Train every design under every noise draw, in parallel."""
    seeds = _seeds(problem)
    calls = (delayed(_trained)(problem, rows, design, seeds) for design in designs)
    return stages.parallel("train", problem.run.workers, calls)


def _trained(
    problem: TradeoffProblem, rows: MarketData, design: Design, seeds: list[np.random.SeedSequence]
) -> Trained | ParameterError:
    """Train a design, or return why the learner cannot keep what was sold."""
    weights, eta, regularization = design
    sold = weights * eta if np.isfinite(eta) else np.inf
    model = _learner(problem, regularization)

    def predictor(seed: np.random.SeedSequence) -> Callable[[Floats], NDArray[Any]]:
        source = Simulation(seed)
        return model.fit(rows.X_train, rows.y_train, epsilon=sold, random_state=source).predict

    try:
        trial = try_out(map(predictor, seeds if np.isfinite(eta) else seeds[:1]), rows)
    except ParameterError as refused:
        return refused
    return Trained(trial, model.epsilon_)


def _learner(problem: TradeoffProblem, regularization: float) -> PrivateLogisticRegression:
    learner = problem.learner
    return PrivateLogisticRegression(
        regularization,
        data_norm=problem.data.data_norm,
        accounting=learner.accounting,
        calibration=learner.calibration,
        cap=problem.objective.cap,
    )


def _charge(
    problem: TradeoffProblem, rows: MarketData, choices: list[Choice], stages: Stages
) -> list[Choice]:
    """Return the mechanism's purchases again, with a Lambda whose choice they pay for.

    Purchases that leave no candidate anything to choose from are left out.
    """
    chosen = [choice for choice in choices if choice.purchase.model == "mechanism"]
    seeds = _seeds(problem)
    found = stages.parallel(
        "tune",
        problem.run.workers,
        (delayed(_searched)(problem, rows, choice, seeds) for choice in chosen),
    )
    return [choice for choice in found if choice is not None]


def _searched(
    problem: TradeoffProblem, rows: MarketData, choice: Choice, seeds: list[np.random.SeedSequence]
) -> Choice | None:
    """Choose Lambda by models that are trained on half of what was sold, anew in each draw."""
    sold = choice.purchase.allocation.epsilon
    candidates = [
        value
        for value in problem.learner.regularization
        if _keeps(_learner(problem, value), sold / 2)
    ]
    if not candidates or not sold.any():
        return None
    search = PrivateSearch(
        _learner(problem, candidates[0]),
        {"regularization": candidates},
        validation=(rows.X_validation, rows.y_validation),
        trials=float(len(candidates)),
    )

    def predictor(seed: np.random.SeedSequence) -> Callable[[Floats], NDArray[Any]]:
        source = Simulation(seed)
        return search.fit(rows.X_train, rows.y_train, epsilon=sold, random_state=source).predict

    trial = try_out(map(predictor, seeds), rows)
    purchase = replace(choice.purchase, model="charged tuning")
    return Choice(purchase, np.nan, Trained(trial, search.epsilon_))


def _keeps(model: PrivateLogisticRegression, share: Floats) -> bool:
    """Say whether a learner can keep what each row would grant; that is public."""
    try:
        model.promise(share * (1 - 1e-9))
    except ParameterError:
        return False
    return True


def _choose(
    problem: TradeoffProblem,
    purchases: list[Purchase],
    results: dict[DesignKey, Trained | ParameterError],
) -> list[Choice]:
    """Take for each row of the curve what has the smallest overall error on the validation rows.

    Ties go to the largest Lambda, whose share of the guarantee is the smallest.
    """
    best: dict[tuple[str, str, float], tuple[tuple[float, float], Choice]] = {}
    refusals: dict[tuple[str, str, float], ParameterError] = {}
    for purchase in purchases:
        for regularization in problem.learner.regularization:
            found = results[purchase.training, regularization]
            if isinstance(found, ParameterError):
                refusals[purchase.key] = found
                continue
            overall = found.trial.validation.mean() + purchase.gamma * purchase.payments.sum()
            score = (float(overall), -regularization)
            if purchase.key not in best or score < best[purchase.key][0]:
                best[purchase.key] = score, Choice(purchase, regularization, found)
    for (scenario, model, gamma), refused in refusals.items():
        if (scenario, model, gamma) not in best:
            raise ParameterError(
                f"no candidate of the {model} model at gamma = {gamma:g} ({scenario}) keeps what "
                "it bought; give larger values of learner.regularization, or of objective.sigma "
                f"(of naive.eta_range for the naive model). The last one: {refused}"
            ) from refused
    return [choice for _, choice in best.values()]


def _audit(problem: TradeoffProblem, choices: list[Choice], stages: Stages) -> pd.DataFrame:
    """Audit the incentives of the mechanism's chosen markets.

    Incentives concern reports alone, and scenarios permute the same reports: markets that differ
    in nothing else are audited once.
    """
    chosen = [choice.purchase for choice in choices if choice.purchase.model == "mechanism"]
    markets = {_reports_of(purchase): purchase.market for purchase in chosen}
    audits = stages.parallel(
        "audit",
        problem.run.workers,
        (delayed(audit_incentives)(market, misreports=MISREPORTS) for market in markets.values()),
    )
    found = dict(zip(markets, audits, strict=True))
    return pd.DataFrame(
        [_labels(purchase) | audit_row(found[_reports_of(purchase)]) for purchase in chosen]
    )


def _reports_of(purchase: Purchase) -> tuple[bytes, float, float, float]:
    """Return what the incentives of a market depend on, the sellers' names apart."""
    reports = np.sort(np.asarray(purchase.market.sellers.sensitivities))
    return reports.tobytes(), purchase.mu, purchase.sigma, purchase.gamma


def _labels(purchase: Purchase) -> dict[str, Any]:
    return dict(zip(("scenario", "model", "gamma"), purchase.key, strict=True))


def _curve_row(choice: Choice) -> dict[str, Any]:
    purchase = choice.purchase
    allocation, paid = purchase.allocation, float(purchase.payments.sum())
    error, spread = float(choice.trial.test.mean()), choice.trial.test_deviation
    return _labels(purchase) | {
        "mu": purchase.mu,
        "sigma": purchase.sigma,
        "regularization": choice.regularization,
        "eta": allocation.eta,
        "n_bought": allocation.n_bought,
        "payments": paid,
        "error_mean": error,
        "error_std": spread,
        "overall_mean": error + purchase.gamma * paid,
        "overall_std": spread,
        "validation_error": float(choice.trial.validation.mean()),
        "objective": allocation.objective,
        "lower_bound": allocation.lower_bound,
        "gap": allocation.gap,
        "epsilon_max": float(allocation.epsilon.max()),
        "guarantee_max": float(choice.trained.guarantee.max()),
    }


def _draw_rows(choice: Choice) -> pd.DataFrame:
    test = choice.trial.test
    return pd.DataFrame(
        _labels(choice.purchase) | {"draw": np.arange(test.size), "test_error": test}
    )


def _seller_rows(choice: Choice) -> pd.DataFrame:
    purchase = choice.purchase
    sellers, allocation = purchase.market.sellers, purchase.allocation
    reports = np.asarray(sellers.sensitivities)
    return pd.DataFrame(
        _labels(purchase)
        | {
            "id": list(sellers.ids),
            "sensitivity": reports,
            "virtual_cost": sellers.virtual_costs,
            "weight": allocation.weights,
            "epsilon": allocation.epsilon,
            "guarantee": choice.trained.guarantee,
            "payment": purchase.payments,
            "surplus": purchase.payments - reports * allocation.epsilon,
        }
    )


def _provenance(problem: TradeoffProblem, rows: MarketData, designs: int) -> dict[str, Any]:
    return provenance_of(
        problem,
        rows=row_counts(rows),
        data=rows.description,
        designs_trained=designs,
    )
