"""False rows: what they spoil, and the bound on it."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.attacks import false_rows
from convexmarket.errors import ParameterError


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.5, 0.5, (300, 3))
    return X, np.where(X[:, 0] > 0, 1, -1)


def test_many_spoil_more_than_one_and_one_no_more_than_its_epsilon(people):
    X, y = people
    epsilon = np.linspace(0.1, 2.0, 200)
    learner = cm.PrivateLogisticRegression(0.1)
    found = false_rows(
        learner, X[:200], y[:200], X[200:], y[200:], epsilon=epsilon, liars=(1, 60), draws=4
    )
    assert found.liars.tolist() == [1, 60]
    assert found.share.tolist() == pytest.approx([2.0 / epsilon.sum(), 0.49], abs=0.01)
    assert np.all(found[["flipped", "against"]].max(axis=1) <= found.bound)
    assert found.bound[0] == pytest.approx(min(1.0, found.honest[0] * np.exp(2.0)))
    assert found.against[1] > found.flipped[1] + 0.05 > found.honest[1] + 0.05
    assert abs(found.against[0] - found.honest[0]) < 0.02


def test_more_liars_than_rows_are_refused(people):
    X, y = people
    with pytest.raises(ParameterError, match="liars"):
        false_rows(cm.PrivateLogisticRegression(), X, y, X, y, epsilon=1.0, liars=(301,))
