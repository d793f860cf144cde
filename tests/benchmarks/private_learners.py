"""Compare default with tuned settings of private learners, for ``docs/private-learners.md``.

``python -m tests.benchmarks.private_learners [--draws N] [NAME ...]`` prints the page for all data
sets or the named data sets. Ranges, norms and label sets are computed once from the whole data set
and are treated as public.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.base import clone

import convexmarket as cm
from convexmarket.privacy import Simulation

EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
FACTORS = 4.0 ** np.arange(-3, 4)
#: Upper limit on the total number of training rows in the fits of one candidate.
MOST_ROWS = 100_000
INTRODUCTION = """# Private learners by default

This page compares the default settings of `PersonalizedRidge()` and `PrivateLogisticRegression()`
with the best of 7 regularizations. Consecutive regularizations differ by a factor of 4. For ridge
regression, each regularization is combined with two perturbations. The best setting is selected on
the test rows, which a private procedure must not use. The error of a regression is the squared test
error divided by the variance of the labels. The error of a classification is the fraction of wrong
labels. With mixed guarantees, the epsilon of each row is multiplied by one third or five thirds at
random.

The rules for the regularization and for the Huber threshold were chosen on synthetic data. Of the
data sets below, wdbc, wine and digits influenced the exponent of one quarter in the rule for
Lambda. On synthetic data, the errors for exponents from one quarter to one half differ by at most
1.5 per cent. On wdbc, an exponent of one quarter gives smaller errors than the larger exponents.
The minimum of lambda and the value of tol were chosen after runs on the linear set. The Friedman
and diabetes data were also used during development, so no data set is held out.

The features of wdbc are nearly collinear. The models of wdbc have larger norms than the rule
assumes, so the optimal Lambda is about a quarter of the rule's Lambda. The public inputs of the
rule do not reveal this property. On a single split of wdbc at epsilon 1, the ratio of the default
error to the best error was 1.67 for a constant scale s of 2.5, and 1.46 for a constant scale of
3.5. Compared with a scale of 2.5, a scale of 3.5 increases the error by at most 9 per cent on wine.
On digits, "made 6000" and three synthetic sets, the increase is at most 4 per cent. The synthetic
sets have 20 independent, 80 independent or 20 redundant features. For a scale proportional to the
square root of the number n of features, the ratio was 1.43 for wdbc, but 1.51 for 80 independent
features. The rule therefore uses s = 0.72 sqrt(min(n, 32)).

In the following table, the ratio is the default error divided by the error of the best setting. The
geometric mean of the ratios is {mean:.3f}, and the largest ratio is {worst:.2f}. Errors are means
of up to {draws} draws of the split and of the noise. The same draws are used for the default and
for the other settings. The last column is the standard error of the ratio. In the ratio, errors
below the error of one wrong test row are replaced by this error.

"""


def regressions() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the features and the numeric labels of each data set for regression."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(125_000, 5))
    return {
        "friedman 10^4": datasets.make_friedman1(12_500, 10, noise=1.0, random_state=0),
        "friedman 10^3": datasets.make_friedman1(1_250, 10, noise=1.0, random_state=1),
        "linear 10^5": (X, X @ [1, -1, 0.5, 2, 0] + rng.normal(0, 0.3, len(X))),
        "diabetes": datasets.load_diabetes(return_X_y=True),
    }


def classifications() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the features and the labels -1 and 1 of each data set for classification."""
    made = datasets.make_classification(6_000, 12, n_informative=6, random_state=4)
    digits, wine = datasets.load_digits(), datasets.load_wine()
    return {
        "made 6000": (made[0], 2 * made[1] - 1),
        "digits": (digits.data, np.where(digits.target % 2, 1, -1)),
        "wdbc": (datasets.load_breast_cancer().data, 2 * datasets.load_breast_cancer().target - 1),
        "wine": (wine.data, np.where(wine.target == 0, 1, -1)),
    }


def split(X: Any, y: Any, seed: int = 0) -> list[np.ndarray]:
    """Scale features to [0, 1], and split rows into 80 % for training and 20 % for tests."""
    low, high = X.min(axis=0), X.max(axis=0)
    unit = np.clip((X - low) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
    order = np.random.default_rng(seed).permutation(len(y))
    cut = len(y) * 4 // 5
    return [unit[order[:cut]], y[order[:cut]], unit[order[cut:]], y[order[cut:]]]


def granted(kind: str, mean: float, n_rows: int) -> np.ndarray:
    """Return equal epsilons, or epsilons that are 1/3 or 5/3 of the mean at random."""
    spread = np.random.default_rng(1).choice([1 / 3, 5 / 3], n_rows)
    return np.full(n_rows, mean) if kind == "equal" else mean * spread


def candidates(default: Any, epsilon: np.ndarray, data: list[np.ndarray]) -> Iterator[Any]:
    """Yield the default learner and learners with other settings."""
    yield default
    variants = [clone(default)]
    if isinstance(default, cm.PersonalizedRidge):
        variants.append(clone(default).set_params(perturbation="statistics"))
    for variant in variants:
        model = clone(variant).fit(*data[:2], epsilon=epsilon, random_state=Simulation(0))
        for factor in FACTORS:
            yield clone(variant).set_params(regularization=model.regularization_ * factor)


def error(learner: Any, epsilon: np.ndarray, data: list[np.ndarray], seed: int) -> float:
    """Compute the relative squared error of a regression, or the error rate of a classification."""
    X, y, X_test, y_test = data
    try:
        model = clone(learner).fit(X, y, epsilon=epsilon, random_state=Simulation(seed))
    except cm.ConvexMarketError:  # the regularization is too small for these guarantees
        return np.inf
    predicted = model.predict(X_test)
    if isinstance(learner, cm.PersonalizedRidge):
        return float(np.mean((predicted - y_test) ** 2) / y_test.var())
    return float(np.mean(predicted != y_test))


def cells(names: list[str], draws: int) -> Iterator[dict[str, Any]]:
    """Compute a row of the table for each data set, kind of guarantees and epsilon."""
    tasks = [(name, *rows, True) for name, rows in regressions().items()]
    tasks += [(name, *rows, False) for name, rows in classifications().items()]
    for name, features, labels, numeric in tasks:
        if names and name not in names:
            continue
        count = max(2, min(draws, MOST_ROWS * 5 // (4 * len(labels))))
        splits = [split(features, labels, seed) for seed in range(count)]
        if numeric:
            default: Any = cm.PersonalizedRidge(
                target_range=(float(labels.min()), float(labels.max()))
            )
        else:
            for data in splits:
                for place in (0, 2):
                    rows = 2.0 * data[place] - 1.0
                    data[place] = np.column_stack([rows, np.ones(len(rows))])
            norm = max(np.linalg.norm(part, axis=1).max() for part in splits[0][::2])
            default = cm.PrivateLogisticRegression(data_norm=float(norm))
        plain = clone(default).set_params(regularization=1e-6)
        free = np.mean([error(plain, np.inf, data, 0) for data in splits])
        for kind in ("equal", "mixed"):
            for mean in EPSILONS:
                epsilon = granted(kind, mean, len(splits[0][1]))
                result = [
                    [error(learner, epsilon, data, seed) for seed, data in enumerate(splits)]
                    for learner in candidates(default, epsilon, splits[0])
                ]
                means = np.mean(result, axis=1)
                best = float(means.min())
                apart = np.array(result[0]) - np.array(result[int(means.argmin())])
                yield {
                    "data": name,
                    "guarantees": kind,
                    "epsilon": mean,
                    "no noise": free,
                    "default": means[0],
                    "best tuned": best,
                    "ratio": means[0] / max(best, 1.0 / len(splits[0][3])),
                    "error of ratio": apart.std() / np.sqrt(count) / max(best, 1e-9),
                }


def page(table: pd.DataFrame, draws: int) -> str:
    """Return the text of the page, which contains an introduction and a table of the errors."""
    mean = np.exp(np.log(table["ratio"]).mean())
    text = table.round(3).astype(str)
    lines = [" | ".join(text.columns), " | ".join(["---"] * text.shape[1])]
    lines += [" | ".join(row) for row in text.itertuples(index=False)]
    rows = "\n".join(f"| {line} |" for line in lines)
    return INTRODUCTION.format(mean=mean, worst=table["ratio"].max(), draws=draws) + rows + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--draws", type=int, default=20)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(page(pd.DataFrame(cells(given.names, given.draws)), given.draws), end="")


if __name__ == "__main__":
    main()
