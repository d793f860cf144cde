"""Extreme inputs of releases give finite answers or typed errors that do not quote rows."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import ConvexMarketError
from convexmarket.privacy import Simulation
from convexmarket.release.calibrated_release import bounded_predictions
from tests import one_in
from tests.learners.test_border import ENDS, SEEN, entries, malformed, texts_of

POINTS = np.random.default_rng(1).uniform(-0.5, 0.5, (3, 4))


def model(first=(0.1, 0.2, 0.3, 0.4), **options):
    X = np.random.default_rng(0).uniform(-0.5, 0.5, (40, 4))
    y = np.where(X[:, 0] > 0, 1, -1)
    X[0] = first
    return cm.KernelERM(**({"regularization": 0.1} | options)).fit(X, y)


def answers(erm, kind, epsilon=1.0, delta=1e-6, points=POINTS, **options):
    source = {"random_state": Simulation(0)} | options
    if kind == "interactive":
        limits = {"max_queries": 9, "max_updates": 9, "threshold": 0.0}
        return cm.InteractiveRelease(erm, epsilon, delta, **(limits | source)).predict(points)
    if kind == "function":
        return cm.release.FunctionRelease(erm, epsilon, delta, **source).predict(points)
    if kind == "public":
        return cm.release.PublicRelease(erm, epsilon, delta, rounds=2, **source).predict(points)
    return cm.TestSetRelease(erm, points, epsilon, delta, **source).noisy_predictions


@given(st.lists(entries, min_size=4, max_size=4), st.sampled_from(["rbf", "laplacian", "cosine"]))
def test_any_finite_row_gives_finite_answers(row, kernel):
    try:
        erm = model(row, kernel=kernel)
    except ConvexMarketError:
        return
    for kind in ("interactive", "function", "test set"):
        assert np.isfinite(answers(erm, kind)).all()
    largest = erm.feature_bound_ * erm.norm_bound_
    assert np.all(np.abs(bounded_predictions(erm, POINTS)) <= largest)


@pytest.mark.parametrize("limit", one_in(5, [*ENDS[1:], 1e-99, 1e99]))
@pytest.mark.parametrize("parameter", ["regularization", "gamma", "tol", "epsilon", "delta"])
def test_any_parameter_gives_finite_answers_or_a_typed_error(parameter, limit):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("interactive", "function", "test set"):
            try:
                if parameter in ("epsilon", "delta"):
                    result = answers(model(), kind, **{parameter: limit})
                else:
                    result = answers(model(**{parameter: limit}), kind)
            except ConvexMarketError:
                continue
            assert np.isfinite(result).all(), kind


@pytest.mark.parametrize("option", ["threshold", "net_radius", "max_norm"])
@pytest.mark.parametrize("limit", one_in(3, ENDS[1:]))
def test_any_option_gives_finite_answers_or_a_typed_error(option, limit):
    kind = {"threshold": "interactive", "net_radius": "public"}.get(option, "test set")
    erm = cm.KernelERM(data_norm=1.0).fit(POINTS[:, :1], [1, -1, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = answers(erm, kind, points=POINTS[:, :1], **{option: limit})
        except ConvexMarketError:
            return
    assert np.isfinite(result).all()


@pytest.mark.parametrize("kind", ["interactive", "function", "test set"])
def test_no_error_of_a_release_quotes_a_query(kind):
    erm = model(kernel="linear", data_norm=1.0)
    for name, bad in malformed().items():
        text = ""
        try:
            answers(erm, kind, points=bad)
        except ConvexMarketError as error:  # other errors fail the test
            text = texts_of(error)
        assert not any(mark in text for mark in SEEN), name
