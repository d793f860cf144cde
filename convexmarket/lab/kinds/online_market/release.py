"""The model that an online market releases when it closes: trained once, under what was sold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from convexmarket.errors import ParameterError
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.lab.kinds.online_market.rows import MarketRows, owned_rows
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.privacy import (
    Guarantee,
    PrivacyAccountant,
    Simulation,
)

__all__ = [
    "Purchase",
    "Training",
    "model_guarantee",
    "model_text",
    "prepare",
    "release_model",
    "usable",
]

Floats = NDArray[np.float64]

ASSUMPTIONS = (
    "who came, what was reported and who accepted does not depend on the rows: weights and eta "
    "follow from reports and answers alone",
)


@dataclass(frozen=True, eq=False)
class Purchase:
    """What was sold, and what follows from it without any row."""

    sold: Floats
    regularization: float

    @property
    def weights(self) -> Floats:
        """Weight of each row: its share of what was sold."""
        return self.sold / self.total

    @property
    def total(self) -> float:
        """Total privacy sold, the sum of the guarantees."""
        return float(self.sold.sum())

    def learner(
        self, problem: OnlineMarketProblem, classes: Sequence[Any]
    ) -> PrivateLogisticRegression:
        """Return what is trained, unless there is no row."""
        return PrivateLogisticRegression(
            self.regularization,
            data_norm=problem.data.data_norm,
            classes=tuple(classes),
            accounting=problem.learner.accounting,
            calibration=problem.learner.calibration,
        )

    def guarantee(self, problem: OnlineMarketProblem) -> Guarantee:
        """Return what is promised to each seller, the Jacobian and the second noise included.

        Raises
        ------
        ParameterError
            If eta is too small for the regularisation.
        """
        try:
            return self.learner(problem, (-1, 1)).promise(self.sold)
        except ParameterError as error:
            raise ParameterError(
                f"{error} Nothing was trained; close with another --regularization (regularization "
                "in Python), chosen without looking at the rows"
            ) from None


@dataclass(frozen=True, eq=False)
class Training(Purchase):
    """Everything that a release needs, checked, before any noise is drawn."""

    rows: MarketRows
    ids: list[str]
    X: Floats
    y: Floats


def _purchase(
    problem: OnlineMarketProblem, accepted: pd.DataFrame, regularization: float | None
) -> Purchase:
    """Return what was sold by those who accepted.

    Raises
    ------
    ParameterError
        If nobody did.
    """
    if accepted.empty:
        raise ParameterError(
            "nobody accepted an offer, so there is nothing to train on and the market stays as it "
            "is; quote more sellers, record their answers with accept, or close with "
            "--without-model"
        )
    lam = problem.learner.regularization if regularization is None else regularization
    return Purchase(accepted["epsilon"].to_numpy(dtype=float), lam)


def model_guarantee(
    problem: OnlineMarketProblem,
    accepted: pd.DataFrame,
    *,
    leave_out: Sequence[str] = (),
    regularization: float | None = None,
) -> Guarantee:
    """Return what the model will guarantee those who accepted; no row is read.

    Parameters
    ----------
    problem, accepted, leave_out, regularization
        As for :func:`release_model`.

    Returns
    -------
    Guarantee
        One row per accepted offer; zero for those who are left out.

    Raises
    ------
    ParameterError
        If nobody accepted, or eta is too small for the regularisation.
    """
    used = accepted["id"].isin(usable(accepted, leave_out)["id"]).to_numpy()
    epsilon = np.zeros(len(accepted))
    promised = _purchase(problem, accepted[used], regularization).guarantee(problem)
    epsilon[used] = promised.epsilon
    return Guarantee(epsilon, 0.0, promised.mechanism, promised.accounting, ASSUMPTIONS)


def prepare(
    problem: OnlineMarketProblem, accepted: pd.DataFrame, regularization: float | None = None
) -> Training:
    """Check that a model can be trained on what was sold; nothing is drawn, nothing released.

    Parameters
    ----------
    problem : OnlineMarketProblem
    accepted : DataFrame
        Columns id and epsilon of the sellers who accepted.
    regularization : float, optional
        Lambda, where it is not the one of the problem.

    Raises
    ------
    ParameterError
        If nobody accepted, or eta is too small for the regularisation.
    DataError
        If the rows cannot be read, or a seller has none.
    """
    purchase = _purchase(problem, accepted, regularization)
    purchase.guarantee(problem)
    rows = owned_rows(problem)
    ids = accepted["id"].tolist()
    return Training(purchase.sold, purchase.regularization, rows, ids, *rows.of(ids))


def usable(accepted: pd.DataFrame, leave_out: Sequence[str]) -> pd.DataFrame:
    """Return those who accepted, without the ones whose rows never came.

    Raises
    ------
    ParameterError
        If one of these did not accept.
    """
    wrong = [who for who in leave_out if who not in set(accepted["id"])]
    if wrong:
        raise ParameterError(
            f"leave_out has {wrong[0]!r}, who accepted no offer; name sellers who accepted and "
            "whose rows are missing"
        )
    return accepted[~accepted["id"].isin(list(leave_out))]


def release_model(
    problem: OnlineMarketProblem,
    accepted: pd.DataFrame,
    *,
    leave_out: Sequence[str] = (),
    regularization: float | None = None,
    seed: np.random.SeedSequence | None = None,
) -> str:
    """Train on the rows of those who accepted, under what each of them sold.

    Parameters
    ----------
    problem, accepted, regularization
        As for :func:`prepare`.
    leave_out : sequence of str
        Sellers who accepted and whose rows are not used.
    seed : SeedSequence, optional
        Of the noise, for experiments; by default fresh from the operating system.

    Returns
    -------
    str
        The released model as JSON: coefficients, classes, the guarantee of each seller, what it
        rests on, and its error on public rows where there are some.

    Raises
    ------
    ParameterError, DataError
        As :func:`prepare`.
    SolverError
        If the minimiser is not found; nothing is released then.
    """
    training = prepare(problem, usable(accepted, leave_out), regularization)
    rows, ids = training.rows, training.ids
    model = training.learner(problem, rows.classes)
    source = None if seed is None else Simulation(seed)
    labels = rows.labels(training.y)
    paid = PrivacyAccountant(np.full(len(ids), np.inf))  # by the market, in its own ledger
    model.fit(training.X, labels, epsilon=training.sold, accountant=paid, random_state=source)
    excess = float(np.max(model.epsilon_ - training.sold))
    released = {
        "model": "logistic regression without an intercept; predict classes[1] where the sum of "
        "coef times features is above 0",
        "features": list(rows.feature_names),
        **({} if rows.features is None else {"public_features": rows.features.get_params()}),
        "coef": model.coef_.tolist(),
        "classes": list(rows.classes),
        "data_norm": rows.data_norm,
        "regularization": training.regularization,
        "eta": training.total,
        "eta_of_the_noise": model.eta_,
        "epsilon_of_the_second_noise": model.minimum_epsilon_,
        "sellers": len(ids),
        "left_out": list(leave_out),
        "rows_not_used": len(rows.ids) - len(ids),
        "statement": model.guarantee_.statement(),
        "data": rows.description,
        "mechanism": model.guarantee_.mechanism,
        "accounting": model.guarantee_.accounting,
        "assumptions": [*model.guarantee_.assumptions, *ASSUMPTIONS],
        "largest_excess_over_sold": excess,
        "test": _measured(model, rows, None if seed is None else _without_noise(training)),
        "to_publish": "features, coef and classes are what the guarantees cover; what single "
        "sellers sold, below, is not",
        "guarantees": dict(zip(ids, model.epsilon_.tolist(), strict=True)),
    }
    return model_text(released)


def model_text(released: dict[str, Any]) -> str:
    """Return a released model as it is stored, and as ``model.json`` holds it."""
    return json.dumps(released, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _without_noise(training: Training) -> Floats:
    """Return the coefficients that the noise hides; only a simulation may know them."""
    X, y = training.X, training.y
    none = np.zeros(X.shape[1])
    objective = PerturbedObjective(X, y, training.weights, none, training.regularization)
    return minimise(objective, training.rows.data_norm, 1e-9)


def _measured(
    model: PrivateLogisticRegression, rows: MarketRows, plain: Floats | None
) -> dict[str, Any] | None:
    """Return errors and AUC on public rows: of the model, of one class, and without noise."""
    if not rows.y_test.size:
        return None
    positive = float(np.mean(rows.y_test > 0))
    measured: dict[str, Any] = {
        "rows": int(rows.y_test.size),
        **_on_public_rows(model.coef_, rows),
        "error_of_one_class": min(positive, 1.0 - positive),
    }
    if plain is not None:
        measured["without_noise"] = _on_public_rows(plain, rows)
    return measured


def _on_public_rows(coef: Floats, rows: MarketRows) -> dict[str, float | None]:
    scores, positive = rows.X_test @ coef, rows.y_test > 0
    both = bool(positive.any() and not positive.all())
    return {
        "error": float(np.mean((scores > 0) != positive)),
        "auc": float(roc_auc_score(positive, scores)) if both else None,
    }
