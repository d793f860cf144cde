"""The model that an online market releases when it closes, under the guarantees sold."""

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

#: The release of a market that was closed without a model.
WITHOUT_MODEL = '{"model": null}'
#: Largest number of ids in a message.
_MOST_NAMES = 5
ASSUMPTIONS = (
    "who came, what was reported and who accepted does not depend on the rows: weights and eta "
    "follow from reports and answers alone",
)


@dataclass(frozen=True, eq=False)
class MarketRows:
    """Private rows by the id of their owner, and public rows for tests, possibly none.

    Labels are -1 or 1, and ``classes`` are the original labels. ``data_norm`` is the public bound
    on the Euclidean norm of every row, ``description`` the source of the rows, ``reports`` are
    those of the owners from the same file, and ``features`` is the preprocessing of a file.
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
        """Return the rows of owners in their order; a missing row is a DataError."""
        places = pd.Index(self.ids).get_indexer(pd.Index(ids))
        missing = [owner for owner, place in zip(ids, places, strict=True) if place < 0]
        if missing:
            first = ", ".join(missing[:_MOST_NAMES]) + ", ..." * (len(missing) > _MOST_NAMES)
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
    """Check that a market can close with a model; nothing is trained, and it stays open.

    ``rows`` reads the rows of the sellers, after the check of what they have left.

    Raises
    ------
    BudgetExceededError
        If the model would cost a seller more than it has left.
    """
    offers = market.offers()
    accepted = offers[offers["status"] == "accepted"]
    guarantee = model_guarantee(learner, accepted, leave_out)
    market.ledger.account(accepted["id"].tolist()).check(guarantee)
    rows().of(_usable(accepted, leave_out)["id"].tolist())


def close_without_model(market: OnlineMarket, *, lapse: bool = False) -> None:
    """Close a market and train nothing; the payments of accepted offers stay due.

    Raises
    ------
    MarketClosedError
        If the market was closed with a model.
    """
    if market.close(lambda _: WITHOUT_MODEL, lapse, _nothing) != WITHOUT_MODEL:
        raise MarketClosedError(
            f"the market in {market.folder} was closed, and its model was released; close it "
            "without --without-model to see that again"
        )


def _nothing(accepted: pd.DataFrame) -> Guarantee:
    return Guarantee(np.zeros(len(accepted)), 0.0, "no model", "nothing is trained", ())


def model_guarantee(
    learner: PrivateLogisticRegression, accepted: pd.DataFrame, leave_out: Sequence[str] = ()
) -> Guarantee:
    """Compute the guarantee of the model for each accepted offer, without reading a row.

    It includes the Jacobian and the second noise, and is zero for sellers who are left out.

    Raises
    ------
    ParameterError
        If no offer was accepted, or eta is too small for the regularisation.
    """
    used = accepted["id"].isin(_usable(accepted, leave_out)["id"]).to_numpy()
    if not used.any():
        raise ParameterError(
            "no seller accepted an offer, so there is nothing to train on and the market stays as "
            "it is; quote more sellers, record their answers with accept, or close with "
            "--without-model"
        )
    epsilon = np.zeros(len(accepted))
    try:
        promised = learner.promise(accepted["epsilon"].to_numpy(dtype=float)[used])
    except ParameterError as error:
        raise ParameterError(
            f"{error} Nothing was trained; close with another --regularization (regularization "
            "in Python), chosen without looking at the rows"
        ) from None
    epsilon[used] = promised.epsilon
    return Guarantee(epsilon, 0.0, promised.mechanism, promised.accounting, ASSUMPTIONS)


def _usable(accepted: pd.DataFrame, leave_out: Sequence[str]) -> pd.DataFrame:
    """Return the accepted offers without the sellers to leave out, who must have accepted."""
    wrong = [who for who in leave_out if who not in set(accepted["id"])]
    if wrong:
        raise ParameterError(
            f"leave_out has {wrong[0]!r}, who accepted no offer; name sellers who accepted and "
            "whose rows are missing"
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
    """Train on the rows of the sellers who accepted, under the guarantees sold; return JSON text.

    The text has the coefficients, the classes of ``rows``, the guarantees and their assumptions,
    and the error on public rows. A ``seed`` of the noise is for experiments.
    """
    used = _usable(accepted, leave_out)
    ids, sold = used["id"].tolist(), used["epsilon"].to_numpy(dtype=float)
    X, y = rows.of(ids)
    model = clone(learner).set_params(classes=tuple(rows.classes))
    source = None if seed is None else Simulation(seed)
    paid = PrivacyAccountant(np.full(len(ids), np.inf))  # charged to the market's ledger
    labels = np.asarray(rows.classes)[(y > 0).astype(int)]
    model.fit(X, labels, epsilon=sold, accountant=paid, random_state=source)
    plain = None
    if seed is not None:  # coefficients without noise, for simulations
        none = np.zeros(X.shape[1])
        objective = PerturbedObjective(X, y, sold / sold.sum(), none, model.regularization_)
        plain = minimise(objective, 1e-9)
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
        "test": _measured(model, rows, plain),
        "to_publish": "features, coef and classes are what the guarantees cover; what single "
        "sellers sold, below, is not",
        "guarantees": dict(zip(ids, model.epsilon_.tolist(), strict=True)),
    }
    return model_text(released)


def model_text(released: dict[str, Any]) -> str:
    """Write a released model as JSON text."""
    return json.dumps(released, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _measured(
    model: PrivateLogisticRegression, rows: MarketRows, plain: Floats | None
) -> dict[str, Any] | None:
    """Compute errors and AUC on public rows: of the model, of one class, and without noise."""
    positive = rows.y_test > 0
    if not positive.size:
        return None

    def of(coef: Floats) -> dict[str, float | None]:
        scores, both = rows.X_test @ coef, bool(positive.any() and not positive.all())
        auc = float(roc_auc_score(positive, scores)) if both else None
        return {"error": float(np.mean((scores > 0) != positive)), "auc": auc}

    share = float(positive.mean())
    measured: dict[str, Any] = {"rows": int(positive.size), **of(model.coef_)}
    measured["error_of_one_class"] = min(share, 1.0 - share)
    if plain is not None:
        measured["without_noise"] = of(plain)
    return measured
