"""The errors of classifiers on the rows of a problem file."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from convexmarket.data.datasets import MarketData
from convexmarket.privacy import Simulation

__all__ = ["Trial", "best_liked", "one_class_error", "row_counts", "try_out"]

Floats = NDArray[np.float64]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, eq=False)
class Trial:
    """The errors of one design (weights, eta and Lambda), one entry per noise draw."""

    validation: Floats
    test: Floats

    @property
    def test_deviation(self) -> float:
        """The standard deviation of the test errors; one draw has none, and it is NaN."""
        return float(self.test.std(ddof=1)) if self.test.size > 1 else np.nan

    def errors(self, cost: float) -> dict[str, float]:
        """Return what a curve says of them; the overall error adds what the payments cost."""
        error, spread = float(self.test.mean()), self.test_deviation
        return {
            "error_mean": error,
            "error_std": spread,
            "overall_mean": error + cost,
            "overall_std": spread,
            "validation_error": float(self.validation.mean()),
        }


def best_liked(candidates: Iterable[tuple[Key, float, float, Any]]) -> dict[Key, Any]:
    """Return for each key the candidate that the validation rows like best.

    Parameters
    ----------
    candidates : iterable of (key, overall error on the validation rows, Lambda, candidate)
        Ties go to the largest Lambda, whose share of a guarantee is the smallest, and then to the
        first.
    """
    best: dict[Key, tuple[tuple[float, float], Any]] = {}
    for key, overall, regularization, candidate in candidates:
        score = float(overall), -regularization
        if key not in best or score < best[key][0]:
            best[key] = score, candidate
    return {key: candidate for key, (_, candidate) in best.items()}


def try_out(
    model: Any, rows: MarketData, sold: Floats | float, seeds: Iterable[np.random.SeedSequence]
) -> Trial:
    """Train a learner under each seed; return the shares of public rows that it gets wrong."""
    known = "random_state" in signature(model.fit).parameters
    errors = []
    for seed in seeds:
        source = {"random_state": Simulation(seed)} if known else {}
        model.fit(rows.X_train, rows.y_train, epsilon=sold, **source)
        errors.append(
            (
                np.mean(model.predict(rows.X_validation) != rows.y_validation),
                np.mean(model.predict(rows.X_test) != rows.y_test),
            )
        )
    validation, test = np.array(errors).T
    return Trial(validation, test)


def one_class_error(labels: NDArray[Any]) -> float:
    """Return the share of rows that are wrong when the more common label is always predicted."""
    return float(1 - np.unique(labels, return_counts=True)[1].max() / len(labels))


def row_counts(rows: MarketData) -> dict[str, int]:
    """Return how many rows are for what."""
    return {
        "train": int(rows.y_train.size),
        "validation": int(rows.y_validation.size),
        "test": int(rows.y_test.size),
    }
