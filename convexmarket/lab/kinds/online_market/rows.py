"""The rows that the sellers of an online market own, matched by their ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from convexmarket.data.features import PublicFeatures
from convexmarket.errors import DataError
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem, OwnSellers
from convexmarket.lab.lists.people import SOLD, check_file, read_people, read_public
from convexmarket.lab.problem.classification import InlineData
from convexmarket.lab.problem.rows import load_rows

__all__ = ["MOST_NAMES", "MarketRows", "check_public", "owned_rows"]

Floats = NDArray[np.float64]

MOST_NAMES = 5  # ids that a message lists


@dataclass(frozen=True, eq=False)
class MarketRows:
    """Private rows by the id of their owner, and public rows to measure a model on.

    Attributes
    ----------
    ids : sequence of str
        Owners of the private rows.
    X, y : ndarray of shape (n, n_features) and (n,)
        The private rows; labels are -1 or 1.
    X_test, y_test : ndarray
        The public rows; none of them where nothing public is at hand.
    feature_names : tuple of str
    data_norm : float
        The public bound on the Euclidean norm of every row.
    description : str
        Where the rows come from.
    classes : tuple of two labels
        What -1 and 1 stand for.
    reports : ndarray of shape (n,), or None
        What the owners report, where a file says it.
    features : PublicFeatures, or None
        What made the rows of a file.
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

    def labels(self, signs: Floats) -> NDArray[Any]:
        """Return the classes that -1 and 1 stand for."""
        return np.asarray(self.classes)[(signs > 0).astype(np.intp)]

    def of(self, ids: Sequence[str]) -> tuple[Floats, Floats]:
        """Return the rows of these owners, in this order.

        Raises
        ------
        DataError
            Naming those who have no row.
        """
        places = pd.Index(self.ids).get_indexer(pd.Index(ids))
        missing = [owner for owner, place in zip(ids, places, strict=True) if place < 0]
        if missing:
            named = ", ".join(missing[:MOST_NAMES]) + (", ..." if len(missing) > MOST_NAMES else "")
            raise DataError(
                f"{len(missing)} of {len(ids)} sellers who accepted have no row ({named}); add "
                "their rows to the data, or leave them out with --leave-out; nothing was trained"
            )
        return self.X[places], self.y[places]


def owned_rows(problem: OnlineMarketProblem) -> MarketRows:
    """Return the rows that a problem names, with their owners.

    Raises
    ------
    DataError
        If a file cannot be read, or holds a bad row; the message names the lines.
    """
    data = problem.data
    if isinstance(data, OwnSellers):
        people = read_people(problem)
        X, y = people.signed_rows(SOLD)
        return MarketRows(
            people.ids,
            X,
            y,
            *(people.signed_rows("test") if data.test else (X[:0], y[:0])),
            feature_names=people.feature_names,
            data_norm=data.data_norm,
            description=people.description,
            classes=data.classes,
            reports=people.reports,
            features=people.features,
        )
    rows = load_rows(data)
    public = not isinstance(data, InlineData)  # its rows are all private
    return MarketRows(
        ids=[f"row-{number}" for number in range(rows.y_train.size)],
        X=rows.X_train,
        y=rows.y_train,
        X_test=rows.X_test if public else rows.X_test[:0],
        y_test=rows.y_test if public else rows.y_test[:0],
        feature_names=rows.feature_names,
        data_norm=rows.data_norm,
        description=rows.description if public else "Rows of the problem file.",
    )


def check_public(problem: OnlineMarketProblem) -> None:
    """Check the public rows of a market, and the file of private rows if it exists already.

    Raises
    ------
    DataError
        If a file cannot be read, or is not as declared.
    """
    if isinstance(problem.data, OwnSellers):
        read_public(problem)
        check_file(problem)
