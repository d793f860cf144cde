"""Files of kind "market" with ridge regression: mu and sigma follow from Theorem 3.6 of R.

Lambda is fixed in advance. Test errors are exact expectations over the noise of the release.
"""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd
from pydantic import Field
from sklearn.metrics import root_mean_squared_error

from convexmarket import errors, learners
from convexmarket.allocation import allocate
from convexmarket.data.datasets import RegressionData
from convexmarket.learners.ridge_math import RidgeErrorBound, ridge_error_bound
from convexmarket.market import Market
from convexmarket.privacy.sensitivity import ridge_sensitivity
from convexmarket.sellers import Sellers
from convexmarket.studies.files import file_tables as tables
from convexmarket.studies.files.learning import (
    CAVEATS,
    Frame,
    LearnerTable,
    LearningFile,
    Measured,
    offers,
)
from convexmarket.studies.files.market_page import MECHANISM
from convexmarket.studies.study import Study

_KEY = ["scenario", "gamma", "regularization"]
_CURVE = ["marked", "mu", "sigma", "eta", "n_bought", "payments"]
_CAVEATS = (
    *CAVEATS,
    "Theorem 3.6 bounds coefficients in the worst case and assumes a linear label with Gaussian "
    "noise. Truthfulness and privacy do not depend on this; the quality of the purchase does.",
    "The expected errors are computed from the sold rows, without a guarantee.",
)


class RidgeTable(LearnerTable):
    """PersonalizedRidge, which maps labels from ``target_range`` to [-1, 1].

    Other keys are arguments of its constructor.
    """

    name: Literal["PersonalizedRidge"]
    regularization: tables.Several[tables.Positive]
    """Candidates for lambda."""
    label_noise: tables.Nonnegative
    """Standard deviation of the labels' noise, an estimate on that scale."""
    coef_norm: tables.Nonnegative
    """Norm of the true coefficients, an estimate on that scale."""
    smallest_eigenvalue: tables.Nonnegative = 0.0
    """Bound on the eigenvalues of the rows' second moments."""
    failure_probability: tables.Share = 0.05
    """Probability that the error bound fails."""


class UnitsTable(tables.Table):
    """The unit of the labels."""

    label: Annotated[str, Field(min_length=1, max_length=50)] = "units of the label"
    """Its name."""
    per_label: tables.Positive = 1.0
    """Number of units that a label of 1 represents."""


class RidgeFile(LearningFile):
    """A market with ridge regression: mu and sigma follow from Theorem 3.6 of R.

    Notes
    -----
    The table ``curve`` holds for each scenario, gamma and regularization: marked (the best bound at
    gamma in a market at the prior's quantiles), the purchase, loss_mean and loss_std of the test
    error over the noise, rmse, uniform_rmse (one price for all), and the terms of the bound.
    ``choices`` holds the bounds from public facts, ``baselines`` the rmse without noise.
    """

    learner: RidgeTable
    units: UnitsTable = UnitsTable()

    purposes: ClassVar[tuple[str, ...]] = ("test",)
    facts: ClassVar[Any] = {"perturbation": "output", "fit_intercept": False}

    def _plain(self, regularization: float, **arguments: Any) -> learners.PersonalizedRidge:
        """Return the learner of Theorem 3.6, with noise in floating point."""
        return self.learner_of(regularization, rounding=None, **arguments)

    def _market(self, sellers: Sellers, gamma: float, value: float, n_features: int) -> Market:
        (mu,), (sigma,) = self.weights(self._plain(value), n_features)
        return self.market(sellers, mu=mu, sigma=sigma, gamma=gamma)

    def _bound(self, weights: Any, eta: float, value: float, n_features: int) -> RidgeErrorBound:
        """Return the terms of Theorem 3.6 for a purchase."""
        learner = self._plain(value)
        kappa = ridge_sensitivity(value, n_features, learner.max_norm, learner.sensitivity)
        facts = self.learner.model_dump(exclude={"name", "regularization", *self.learner.options})
        return ridge_error_bound(weights, eta / kappa, value, n_features=n_features, **facts)

    def measured(
        self, rows: RegressionData, sellers: dict[str, Sellers], options: dict[str, Any]
    ) -> Measured:
        """Buy at every gamma and lambda, and compute the errors of the models."""
        values, (m, n_features) = self.learner.candidates, rows.X_train.shape

        def market(scenario: str, gamma: float, regularization: float) -> Market:
            return self._market(sellers[scenario], gamma, regularization, n_features)

        axes = dict(zip(_KEY, (list(sellers), self.objective.gamma, values), strict=True))
        runs = Study({MECHANISM: market}, axes=axes).run(**options)
        table, sold = runs.tables["runs"], runs.tables["sellers"]
        for row in table[table.status != "solved"].itertuples():
            raise errors.ParameterError(
                f"the market at gamma = {row.gamma:g} and regularization = {row.regularization:g} "
                f"has no optimum: {row.message}"
            )
        choices = self._choices(m, n_features)
        curve: Frame = table.merge(choices[["gamma", "regularization", "mu", "sigma", "marked"]])
        parts = [part for _, part in sold.groupby(_KEY, sort=False)]
        points = list(zip(curve.itertuples(), parts, strict=True))
        measured = pd.DataFrame([self._errors(row, part, rows) for row, part in points])
        promised = [
            self._plain(row.regularization).promise(part.epsilon).epsilon for row, part in points
        ]
        columns = [*_CURVE, *measured, "objective", "lower_bound", "gap", "epsilon_max"]
        curve = curve.join(measured)
        sold = offers(sold, _KEY, promised)
        baselines = {}
        for value in values:
            model = self.learner_of(value, weighting="equal", epsilon=np.inf)
            predicted = model.fit(rows.X_train, rows.y_train).predict(rows.X_test)
            baselines[value] = root_mean_squared_error(rows.y_test, predicted)
        plain = pd.DataFrame({"regularization": values, "rmse": baselines.values()})
        return {
            "runs": (runs.keys["runs"], table),
            "curve": (_KEY, curve[[*_KEY, *columns]]),
            "sellers": ([*_KEY, "id"], sold.merge(curve[[*_KEY, "marked"]])),
            "audits": (_KEY, runs.tables["audits"].drop(columns="market")),
            "choices": (_KEY[1:], choices),
            "baselines": (_KEY[2:], plain),
        }, {
            "constant": float(rows.y_test.mean()),  # the best constant for the public rows
            "constant_rmse": float(rows.y_test.std()),
            "caveats": _CAVEATS,
        }

    def _choices(self, m: int, n_features: int) -> Frame:
        """Return the bound at each gamma and lambda in a market at the prior's quantiles.

        The bound and the mark of the best lambda at each gamma depend only on public facts.
        """
        quantiles = Sellers(self.prior.quantile((np.arange(m) + 0.5) / m), self.prior)
        rows = []
        for gamma, value in product(self.objective.gamma, self.learner.candidates):
            market = self._market(quantiles, gamma, value, n_features)
            point, form = allocate(market), market.form
            bias = self._bound(point.weights, point.eta, value, n_features).bias
            row = {"gamma": gamma, "regularization": value, "mu": form.mu, "sigma": form.sigma}
            rows.append(row | {"bias": bias, "expected_objective": bias + point.objective})
        table = pd.DataFrame(rows)
        best = table.groupby("gamma").expected_objective.idxmin()
        return table.assign(marked=table.index.isin(best))

    def _errors(self, run: Any, sold: Frame, rows: RegressionData) -> dict[str, Any]:
        """Compute test errors of a purchase and of a uniform price, and the bound on the error."""
        arrays = rows.X_train, rows.y_train, rows.X_test, rows.y_test
        weights, value = sold.weight.to_numpy(), run.regularization
        ridge = self._plain(value, weighting=weights)
        exact = learners.expected_loss(ridge, *arrays, epsilon=sold.epsilon.to_numpy())
        uniform = run.payments / (len(sold) * self.prior.support[1])  # 0 for an unbounded support
        alike = np.nan
        if uniform > 0:
            alike = learners.expected_loss(self._plain(value), *arrays, epsilon=uniform).mean
        bound = self._bound(weights, run.eta, value, rows.X_train.shape[1])
        return {
            "epsilon_mean": run.eta / len(sold),
            "loss_mean": exact.mean,
            "loss_std": exact.std,
            "rmse": float(np.sqrt(exact.mean)),
            "uniform_epsilon": uniform or np.nan,
            "uniform_rmse": float(np.sqrt(alike)),
            **bound._asdict(),
            "bound": bound.total,
        }
