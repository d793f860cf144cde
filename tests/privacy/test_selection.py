"""Test the charges of searches and of the private selection."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import convexmarket as cm
from convexmarket.errors import BudgetExceededError, DataError, ParameterError
from convexmarket.privacy import Simulation, account, private_selection

ALPHAS = [0.1, 1.0, 10.0]


def people(n=60, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.random((n, 2)), columns=["age", "dose"])
    X.index = [f"p{i}" for i in range(n)]
    return X, X["age"].to_numpy()


class Ridge(cm.PersonalizedRidge):
    """Ridge learner with a fixed epsilon, because these searches cannot pass epsilon to ``fit``."""

    def fit(self, X, y, random_state=None):
        return super().fit(X, y, epsilon=0.5, random_state=random_state)


def learner(**options):
    return Ridge(1.0, feature_range=(0.0, 1.0), target_range=(0.0, 1.0), **options)


# ----------------------------------------------------------------------------- searches


def test_every_fit_of_a_search_is_charged() -> None:
    """Check that all fits are charged, but that the best model states only its own epsilon."""
    X, y = people()
    search = GridSearchCV(learner(), {"regularization": ALPHAS}, cv=3)
    with account(budget=np.inf) as spent:
        search.fit(X, y)
    assert len(spent.releases) == 3 * len(ALPHAS) + 1
    # each row is used twice for each candidate, and again for the best candidate
    np.testing.assert_allclose(spent.spent, (2 * len(ALPHAS) + 1) * 0.5, rtol=1e-2)
    assert search.best_estimator_.guarantee_.epsilon.max() <= 0.5


# -------------------------------------------------------------------------- a private selection


def test_the_private_selection_is_charged_in_full() -> None:
    X, y = people()
    with account(budget=np.inf) as spent:
        models = [
            clone(learner()).set_params(regularization=alpha).fit(X[:40], y[:40])
            for alpha in ALPHAS
        ]
        scores = [-np.minimum(np.abs(m.predict(X[40:]) - y[40:]), 1.0).mean() for m in models]
        chosen = private_selection(scores, X[40:], epsilon=1.0, sensitivity=1 / 20)
    assert chosen in range(3)
    fits = sum(model.epsilon_.max() for model in models)
    np.testing.assert_allclose(spent.spent, np.r_[np.full(40, fits), np.ones(20)])
    with account(budget=0.5), pytest.raises(BudgetExceededError, match="a choice among 3"):
        private_selection(scores, X[40:], epsilon=1.0, sensitivity=1 / 20)


def law(scores, epsilon, sensitivity):
    """Compute the distribution of permute-and-flip by recursion over subsets."""
    chances = np.exp(epsilon * (np.array(scores) - max(scores)) / (2 * sensitivity))

    def chosen(left):
        result = np.zeros(len(scores))
        for first in left:
            result[first] += chances[first] / len(left)
            if chances[first] < 1:
                result += (1 - chances[first]) / len(left) * chosen(left - {first})
        return result

    return chosen(frozenset(range(len(scores))))


@pytest.mark.parametrize(
    ("scores", "epsilon", "sensitivity"),
    [([0.3, 0.1, 0.25, 0.3], 1.0, 0.1), ([5.0, 1.0], 2.0, 1.0), ([-1e3, -1e3 + 0.7], 1.0, 1.0)],
)
def test_choices_have_the_stated_law(scores, epsilon, sensitivity) -> None:
    rng = np.random.default_rng(3)
    draws = [
        private_selection(
            scores, [0], epsilon=epsilon, sensitivity=sensitivity, random_state=Simulation(rng)
        )
        for _ in range(800)
    ]
    expected = 800 * law(scores, epsilon, sensitivity)
    assert stats.chisquare(np.bincount(draws, minlength=len(scores)), expected).pvalue > 1e-4


@pytest.mark.parametrize(
    ("scores", "rows", "options", "error"),
    [
        ([], [0], {}, ParameterError),
        ([np.nan], [0], {}, ParameterError),
        ([1.0, np.inf], [0], {}, ParameterError),
        (1.0, [0], {}, ParameterError),
        ([1.0], [], {}, DataError),
        ([1.0], [0], {"epsilon": 0.0}, ParameterError),
        ([1.0], [0], {"sensitivity": -1.0}, ParameterError),
        ([1.0], [0], {"epsilon": np.inf}, ParameterError),
    ],
)
def test_invalid_selections_are_refused(scores, rows, options, error) -> None:
    with account(budget=np.inf) as spent, pytest.raises(error):
        private_selection(scores, rows, **({"epsilon": 1.0, "sensitivity": 1.0} | options))
    assert spent.releases == ()
