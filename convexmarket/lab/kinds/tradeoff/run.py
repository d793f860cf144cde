"""Error against payments over gamma: buy under each plan, pay, train under what was sold, measure.

What the plans are, and what is measured, is the learner's: :mod:`.classification` chooses the
buyer's parameters on validation rows, :mod:`.regression` takes them from a theorem.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from convexmarket.lab.kinds.tradeoff import classification, regression
from convexmarket.lab.kinds.tradeoff.problem import RegressionTradeoff, TradeoffProblem
from convexmarket.lab.kinds.tradeoff.purchases import Measured, audited, bought, curve_of
from convexmarket.lab.provenance import provenance_of
from convexmarket.lab.result import Result
from convexmarket.lab.scenarios import sellers_by_scenario
from convexmarket.lab.stages import Progress, Stages

__all__ = ["run_tradeoff"]

#: The branch of the seed that sensitivities are drawn from.
_SENSITIVITIES = 0


def run_tradeoff(problem: TradeoffProblem, progress: Progress | None = None) -> Result[Any]:
    """Buy privacy for a learner over a list of gammas, pay, train and measure.

    Parameters
    ----------
    problem : ClassificationTradeoff or RegressionTradeoff
    progress : callable, optional
        Called with the stage, the steps done and the steps in all.

    Returns
    -------
    Result
        Its tables and numbers; a row is about a scenario, a model ("mechanism", "naive"; "charged
        tuning" where the file asks for it: Lambda chosen anew in each draw, within what was sold,
        so that it is NaN) and a gamma, or about a scenario, a gamma and a regularization.

        - ``curve``: mu, sigma, regularization and eta; n_bought, payments, objective, lower_bound,
          gap and epsilon_max (largest guarantee sold). Of a classification also error_mean and
          error_std on the test rows over noise draws (NaN with one draw), overall_mean and
          overall_std (error + gamma * payments), validation_error and guarantee_max (largest total
          guarantee, the learner's share included). Of a regression whether the public bound marks
          the row (``marked``), epsilon_mean over all sellers, and the test error over the noise:
          loss_mean and loss_std (exact, squared units of the label), rmse (root of the mean),
          rmse_low and rmse_high (10% and 90% quantiles of simulated releases), simulated_loss and
          simulated_error (its standard error), explained (share of the constant's squared error
          that is removed); uniform_epsilon and uniform_rmse of one price for all; bias, privacy,
          labels and bound of Theorem 3.6.
        - ``sellers``: id, sensitivity, virtual_cost, weight, epsilon (sold), guarantee (total, of
          the model), payment, surplus (payment minus cost of what was sold).
        - ``audits``: sellers_audited, max_gain, min_surplus, incentive_compatible and
          individually_rational of the mechanism's markets.
        - ``draws``: draw, test_error (classification).
        - ``baseline_error``, ``baseline_regularization``: Test error of the same classifier on all
          rows alike, without noise; its Lambda, chosen on the validation rows. ``one_class_error``:
          that of always predicting the more common label.
        - ``choices``: gamma, regularization, mu, sigma, bias, expected_objective (bias and
          objective in the market at the prior's quantiles) and marked (regression).
        - ``baselines``: regularization and rmse without noise, on all rows alike (regression).
        - ``constant``, ``constant_rmse``: What is predicted without a model, public, and its error.
        - ``guarantee``: mechanism, accounting and assumptions of the model of the first row of
          ``curve``, in words (not of the logistic regression, whose page knows them).

        The same for the same problem, whatever the number of jobs; timings apart.

    Raises
    ------
    ProblemFileError
        If the problem and its data do not fit.
    ConvexMarketError
        If a market has no optimum, a model cannot be trained or data violate their public ranges.
    """
    stages = Stages(progress)
    found = _measured(problem, stages)
    return Result(
        problem=problem,
        tables={
            "curve": curve_of(found.rows),
            "sellers": pd.concat([row.of_sellers() for row in found.rows], ignore_index=True),
            "audits": audited(found.audited, problem.run.workers, stages),
            **found.tables,
        },
        numbers=found.numbers,
        certificates=[one.labels | one.allocation.certificate() for one in found.certified],
        caveats=found.caveats,
        timings=stages.timings(),
        provenance=provenance_of(problem, **found.provenance),
    )


def _measured(problem: TradeoffProblem, stages: Stages) -> Measured:
    side: Any = regression if isinstance(problem, RegressionTradeoff) else classification
    rows, people = side.rows_of(problem)
    markets = sellers_by_scenario(
        problem.sellers,
        problem.prior,
        rows.X_train,
        rows.feature_names,
        problem.run.stream(_SENSITIVITIES),
        people,
    )
    purchases = bought(markets, side.plans(problem, rows), stages)
    measured: Measured = side.measure(problem, rows, purchases, stages)
    return measured
