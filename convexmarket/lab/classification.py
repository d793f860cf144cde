"""The errors of classifiers on the rows of a problem file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convexmarket.data.datasets import MarketData

__all__ = ["Trial", "row_counts", "try_out"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trial:
    """The errors of one design (weights, eta and Lambda), one entry per noise draw."""

    validation: Floats
    test: Floats

    @property
    def test_deviation(self) -> float:
        """The standard deviation of the test errors; one draw has none, and it is NaN."""
        return float(self.test.std(ddof=1)) if self.test.size > 1 else np.nan


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
