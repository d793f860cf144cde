"""Test the predictions, corrections and files of public predictors."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import DataError
from convexmarket.learners.predictor import Kernel
from convexmarket.privacy import Guarantee
from convexmarket.release import PublicPredictor
from tests.release.builders import QUERIES, made_of, model

GUARANTEE = Guarantee(np.array([0.3, 0.3]), 1e-6, "a release", "tight", ("noise is secret",))
RBF = Kernel("rbf", gamma=0.7, data_norm=1.0)


def predictor(kernel=RBF, n_points=4, classes=None, seed=0, guarantee=GUARANTEE):
    rng = np.random.default_rng(seed)
    points = rng.uniform(-0.6, 0.6, (n_points, 2))
    return PublicPredictor(kernel, points, rng.standard_normal(n_points), guarantee, classes)


def test_labels_follow_the_sign_of_the_prediction():
    linear = predictor(Kernel("linear", data_norm=1.0), classes=("no", "yes"))
    X = np.random.default_rng(1).uniform(-1, 1, (40, 2))
    expected = np.where(linear.predict(X) > 0, "yes", "no")
    assert linear.classify(X).tolist() == expected.tolist()
    assert len(set(expected)) == 2
    with pytest.raises(DataError, match="predict"):
        predictor().classify(X)


@given(
    seed=st.integers(0, 2**32),
    kernel=st.sampled_from(["rbf", "linear", "poly"]),
    max_norm=st.floats(0.05, 20.0),
    noise=st.floats(-3.0, 3.0),
)
def test_a_correction_reduces_the_distance_to_any_function_in_the_ball(
    seed, kernel, max_norm, noise
):
    domain = Kernel(kernel, gamma=0.7, degree=2, data_norm=1.0)
    truth, before = predictor(domain, 5, seed=seed), predictor(domain, 3, seed=seed + 1)
    share = max_norm / max(truth.norm, max_norm)
    truth = replace(truth, coefficients=truth.coefficients * share)
    point = np.random.default_rng(seed).uniform(-0.7, 0.7, 2)
    value, prediction = truth.predict(point)[0], before.predict(point)[0]
    after = before.corrected(point, value + noise, max_norm)
    square = domain.diagonal(point[None, :])[0]
    decrease = distance(truth, before) - distance(truth, after)
    assert decrease >= ((value - prediction) ** 2 - noise**2) / square - 1e-7 * (
        1 + distance(truth, before)
    )
    assert after.norm <= max_norm * (1.0 + 1e-9)
    assert len(after.points) == 4


def distance(first, second):
    points = np.vstack([first.points, second.points])
    coefficients = np.concatenate([first.coefficients, -second.coefficients])
    return float(coefficients @ first.kernel(points, points) @ coefficients)


@pytest.mark.parametrize("kind", ["interactive", "test set", "public", "function"])
def test_published_predictors_are_unchanged_by_a_round_trip(kind, tmp_path):
    erm, X = model(), QUERIES
    release = made_of(kind, erm, **({"threshold": 0.0} if kind == "interactive" else {}))
    release.predict(X)
    published = release.predictor
    path = cm.save_model(published, tmp_path / "p.json", guarantee="rows")
    loaded = cm.load_model(path)
    assert np.abs(published.predict(X)).max() > 0.0
    assert np.array_equal(loaded.predict(X), published.predict(X))
    assert loaded.classes == (-1, 1)
    assert loaded.guarantee.statement() == release.guarantee.statement()
    # the file contains no private rows
    points = json.loads(path.read_text())["points"]
    assert not any(row.tolist() in points for row in erm.pivots_)
