"""The rows that a problem file names."""

from __future__ import annotations

import numpy as np

from convexmarket.data.datasets import MarketData, synthetic, wdbc
from convexmarket.lab.problem.classification import ClassificationData, InlineData, SyntheticData

__all__ = ["load_rows"]


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
