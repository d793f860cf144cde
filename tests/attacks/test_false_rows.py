"""The guarantee bounds the effect of false rows on the test error."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.privacy import Simulation


def errors(X, y, epsilon, n_false):
    """Compute the mean test error with true rows, with flipped labels and with adversarial rows."""

    def fit(rows, labels, granted, seed=0):
        learner = cm.PrivateLogisticRegression(0.1)
        return learner.fit(rows, labels, epsilon=granted, random_state=Simulation(seed))

    def error(rows, labels):
        models = [fit(rows, labels, epsilon, seed) for seed in range(4)]
        return np.mean([model.predict(X[200:]) != y[200:] for model in models])

    rows, labels = X[:200], y[:200]
    model = fit(rows, labels, np.inf).coef_
    adversarial = model / np.linalg.norm(model) * np.linalg.norm(rows, axis=1).max()
    is_false = np.isin(np.arange(200), np.argsort(-epsilon)[:n_false])
    flipped = error(rows, np.where(is_false, -labels, labels))
    worst = np.where(is_false[:, None], adversarial, rows), np.where(is_false, -1, labels)
    return error(rows, labels), flipped, error(*worst)


@pytest.fixture(scope="module")
def people():
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (300, 3))
    return X, np.where(X[:, 0] > 0, 1, -1), np.linspace(0.1, 2.0, 200)


def test_the_effect_of_false_rows_grows_with_their_number_and_is_bounded(people):
    original, flipped, adversarial = errors(*people, n_false=60)
    assert adversarial > flipped + 0.05 > original + 0.05
    original, flipped, adversarial = errors(*people, n_false=1)
    assert max(flipped, adversarial) <= original * np.exp(2.0)
    assert abs(adversarial - original) < 0.02
