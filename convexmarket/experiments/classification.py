"""The rows that a problem file names, for a classification, and the errors of models on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.datasets import MarketData, synthetic, wdbc
from convexmarket.problems import ClassificationData, InlineData, SyntheticData

__all__ = ["Trial", "load_rows", "row_counts", "try_out"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trial:
    """The errors of one design (weights, eta and Lambda), one entry per noise draw."""

    validation: Floats
    test: Floats


def try_out(predictors: Iterable[Callable[[Floats], NDArray[Any]]], rows: MarketData) -> Trial:
    """Return the shares of validation and test rows that each predictor gets wrong."""
    errors = [
        (
            np.mean(predict(rows.X_validation) != rows.y_validation),
            np.mean(predict(rows.X_test) != rows.y_test),
        )
        for predict in predictors
    ]
    validation, test = np.array(errors).T
    return Trial(validation, test)


def row_counts(rows: MarketData) -> dict[str, int]:
    """Return how many rows are for what."""
    return {
        "train": int(rows.y_train.size),
        "validation": int(rows.y_validation.size),
        "test": int(rows.y_test.size),
    }


def load_rows(data: ClassificationData) -> MarketData:
    """Return training rows (the sellers), validation rows and test rows."""
    if isinstance(data, InlineData):
        return _inline(data)
    if isinstance(data, SyntheticData):
        return synthetic(
            data.n_sellers,
            data.n_features,
            data.data_seed,
            data.n_validation,
            data.n_test,
            data.data_norm,
        )
    rest = 1.0 - data.train_fraction - data.validation_fraction
    fractions = (data.train_fraction, data.validation_fraction, rest)
    return wdbc(data.split_seed, fractions, data.data_norm)


def _inline(data: InlineData) -> MarketData:
    X, y = np.array(data.features), np.array(data.labels, dtype=float)
    return MarketData(
        X,
        y,
        X,
        y,
        X,
        y,
        feature_names=tuple(f"x{column}" for column in range(X.shape[1])),
        data_norm=data.data_norm,
        description="Rows of the problem file; the sellers' own rows validate and test as well.",
    )
