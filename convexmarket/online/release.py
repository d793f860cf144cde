"""Train and release the model of an online market under the guarantees that were sold."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError, MarketClosedError, ParameterError
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.learners.minimiser import PerturbedObjective, minimise
from convexmarket.online.online_market import OnlineMarket
from convexmarket.privacy import Guarantee, PrivacyAccountant, Simulation

Floats = NDArray[np.float64]

#: Stored release of a market that was closed without a model.
WITHOUT_MODEL = '{"model": null}'
ASSUMPTIONS = (
    "arrivals, reports and answers do not depend on the rows: weights and eta follow from reports "
    "and answers only",
)


@dataclass(frozen=True, eq=False)
class MarketRows:
    """Private rows with the ids of their owners, and optional public rows for tests.

    Labels are -1 or 1, and ``classes`` are the original labels. ``data_norm`` is the public bound
    on the Euclidean norm of every row, and ``description`` states the source of the rows.
    ``reports`` are the reports in the same file, and ``features`` is the preprocessing of the rows.
    """

    ids: Sequence[str]
    X: Floats
    y: Floats
    X_test: Floats
    y_test: Floats
    feature_names: tuple[str, ...]
    data_norm: float
    description: str
    classes: tuple[Any, Any] = (-1, 1)
    reports: Floats | None = None
    features: PublicFeatures | None = None

    def of(self, ids: Sequence[str]) -> tuple[Floats, Floats]:
        """Return features and labels of owners in order. Raise a DataError if a row is missing."""
        places = pd.Index(self.ids).get_indexer(pd.Index(ids))
        if missing := [owner for owner, place in zip(ids, places, strict=True) if place < 0]:
            first = ", ".join(missing[:5]) + ", ..." * (len(missing) > 5)
            raise DataError(
                f"{len(missing)} of {len(ids)} sellers who accepted have no row ({first}); add "
                "their rows, or leave them out with --leave-out"
            )
        return self.X[places], self.y[places]


def check_closing(
    market: OnlineMarket,
    learner: PrivateLogisticRegression,
    rows: Callable[[], MarketRows],
    leave_out: Sequence[str] = (),
) -> None:
    """Check that a market can be closed with a model, without training the model.

    The budgets of the sellers are checked before ``rows`` reads their rows.
    """
    accepted = market.offers().query("status == 'accepted'")
    guarantee = model_guarantee(learner, accepted, leave_out)
    market.ledger.account(accepted["id"].tolist()).check(guarantee)
    rows().of(_usable(accepted, leave_out)["id"].tolist())


def close_without_model(market: OnlineMarket, *, lapse: bool = False) -> None:
    """Close a market without a model. The payments of accepted offers remain due."""

    def nothing(accepted: pd.DataFrame) -> Guarantee:
        return Guarantee(np.zeros(len(accepted)), 0.0, "no model", "nothing is trained", ())

    if market.close(lambda _: WITHOUT_MODEL, lapse, nothing) != WITHOUT_MODEL:
        raise MarketClosedError(
            f"the market in {market.folder} was closed, and its model was released; close it "
            "without --without-model to see the model again"
        )


def model_guarantee(
    learner: PrivateLogisticRegression, accepted: pd.DataFrame, leave_out: Sequence[str] = ()
) -> Guarantee:
    """Compute the guarantee of the model for each accepted offer, without reading a row.

    The guarantee includes the Jacobian term and the second noise, and is zero for omitted sellers.
    """
    used = accepted["id"].isin(_usable(accepted, leave_out)["id"]).to_numpy()
    if not used.any():
        raise ParameterError(
            "no seller accepted an offer, so no model can be trained and the market is unchanged; "
            "quote more sellers, record their answers with accept, or close with "
            "--without-model"
        )
    epsilon = np.zeros(len(accepted))
    try:
        promised = learner.promise(accepted["epsilon"].to_numpy(dtype=float)[used])
    except ParameterError as error:
        raise ParameterError(
            f"{error}. No model was trained; close with another --regularization (regularization "
            "in Python), chosen independently of the rows"
        ) from None
    epsilon[used] = promised.epsilon
    return Guarantee(epsilon, 0.0, promised.mechanism, promised.accounting, ASSUMPTIONS)


def _usable(accepted: pd.DataFrame, leave_out: Sequence[str]) -> pd.DataFrame:
    """Return the accepted offers without the sellers in ``leave_out``, who must have accepted."""
    if wrong := [seller for seller in leave_out if seller not in set(accepted["id"])]:
        raise ParameterError(
            f"leave_out contains {wrong[0]!r}, who accepted no offer; list only sellers who "
            "accepted and have no row"
        )
    return accepted[~accepted["id"].isin(list(leave_out))]


def release_model(
    learner: PrivateLogisticRegression,
    rows: MarketRows,
    accepted: pd.DataFrame,
    leave_out: Sequence[str] = (),
    *,
    seed: np.random.SeedSequence | None = None,
) -> str:
    """Train a model on the rows of sellers who accepted, and return it as JSON text.

    The text contains the coefficients, the classes of ``rows``, the guarantees and their
    assumptions, and the error on public rows. Use a ``seed`` of the noise only for experiments.
    """
    used = _usable(accepted, leave_out)
    ids, sold = used["id"].tolist(), used["epsilon"].to_numpy(dtype=float)
    X, y = rows.of(ids)
    model = clone(learner).set_params(classes=tuple(rows.classes))
    source = None if seed is None else Simulation(seed)
    paid = PrivacyAccountant(np.full(len(ids), np.inf))  # only the market's ledger is charged
    labels = np.asarray(rows.classes)[(y > 0).astype(int)]
    model.fit(X, labels, epsilon=sold, accountant=paid, random_state=source)
    test = _measured(model.coef_, rows)
    if test is not None and seed is not None:  # a simulation, so also test without noise
        none = np.zeros(X.shape[1])
        objective = PerturbedObjective(X, y, sold / sold.sum(), none, model.regularization_)
        test["without_noise"] = _measured(minimise(objective, 1e-9), rows)
    released = {
        "model": "logistic regression without an intercept; predict classes[1] where the sum of "
        "coef times features is above 0",
        "features": list(rows.feature_names),
        **({} if rows.features is None else {"public_features": rows.features.get_params()}),
        "coef": model.coef_.tolist(),
        "classes": list(rows.classes),
        "data_norm": rows.data_norm,
        "regularization": learner.regularization,
        "eta": float(sold.sum()),
        "eta_of_the_noise": model.eta_,
        "epsilon_of_the_second_noise": model.solver_epsilon_,
        "sellers": len(ids),
        "left_out": list(leave_out),
        "rows_not_used": len(rows.ids) - len(ids),
        "statement": model.guarantee_.statement(),
        "data": rows.description,
        "mechanism": model.guarantee_.mechanism,
        "accounting": model.guarantee_.accounting,
        "assumptions": [*model.guarantee_.assumptions, *ASSUMPTIONS],
        "largest_excess_over_sold": float(np.max(model.epsilon_ - sold)),
        "test": test,
        "to_publish": "the guarantees cover features, coef and classes; they do not cover the "
        "amounts that single sellers sold, listed below",
        "guarantees": dict(zip(ids, model.epsilon_.tolist(), strict=True)),
    }
    return model_text(released)


def model_text(released: dict[str, Any]) -> str:
    """Write a released model as JSON text."""
    return json.dumps(released, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _measured(coef: Floats, rows: MarketRows) -> dict[str, Any] | None:
    """Compute the error and AUC on the public rows, and the error of the majority class."""
    positive = rows.y_test > 0
    if not positive.size:
        return None
    scores, share = rows.X_test @ coef, float(positive.mean())
    return {
        "rows": int(positive.size),
        "error": float(np.mean((scores > 0) != positive)),
        "auc": float(roc_auc_score(positive, scores)) if 0 < share < 1 else None,
        "error_of_one_class": min(share, 1.0 - share),
    }
