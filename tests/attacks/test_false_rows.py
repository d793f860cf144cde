"""The guarantee bounds the effect of false rows on the test error."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.privacy import Simulation


def errors(X, y, epsilon, liars):
    """Compute the mean test errors with true rows, flipped labels and adversarial rows."""

    def fit(rows, labels, granted, seed=0):
        learner = cm.PrivateLogisticRegression(0.1)
        return learner.fit(rows, labels, epsilon=granted, random_state=Simulation(seed))

    def error(rows, labels):
        models = [fit(rows, labels, epsilon, seed) for seed in range(4)]
        return np.mean([model.predict(X[200:]) != y[200:] for model in models])

    rows, labels = X[:200], y[:200]
    model = fit(rows, labels, np.inf).coef_
    against = model / np.linalg.norm(model) * np.linalg.norm(rows, axis=1).max()
    lying = np.isin(np.arange(200), np.argsort(-epsilon)[:liars])
    flipped = error(rows, np.where(lying, -labels, labels))
    worst = np.where(lying[:, None], against, rows), np.where(lying, -1, labels)
    return error(rows, labels), flipped, error(*worst)


@pytest.fixture(scope="module")
def people():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (300, 3))
    return X, np.where(X[:, 0] > 0, 1, -1), np.linspace(0.1, 2.0, 200)


def test_the_effect_of_false_rows_grows_with_their_number_and_is_bounded(people):
    honest, flipped, against = errors(*people, liars=60)
    assert against > flipped + 0.05 > honest + 0.05
    honest, flipped, against = errors(*people, liars=1)
    assert max(flipped, against) <= honest * np.exp(2.0)
    assert abs(against - honest) < 0.02
