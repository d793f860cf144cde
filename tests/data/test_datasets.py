"""Splits are disjoint, norms of rows are bounded, and private rows do not affect other rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.datasets import load_breast_cancer

import convexmarket as cm
from convexmarket.data.columns import feature_columns
from convexmarket.data.datasets import correlate, scale_rows, synthetic, wdbc
from convexmarket.errors import DataError, ParameterError

PARTS = ("train", "validation", "test")

matrices = hnp.arrays(
    float, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=st.floats(-1e6, 1e6)
)


@given(matrices, st.floats(1e-3, 1e3))
def test_scale_rows_projects_rows_onto_the_ball(X, data_norm) -> None:
    scaled = scale_rows(X, data_norm)
    norms, lengths = np.linalg.norm(X, axis=1), np.linalg.norm(scaled, axis=1)
    assert np.all(lengths <= data_norm * (1 + 1e-12))
    assert lengths == pytest.approx(np.minimum(norms, data_norm), rel=1e-12)
    inside = norms <= data_norm
    assert np.array_equal(scaled[inside], X[inside])
    assert scaled * norms[:, None] == pytest.approx(X * lengths[:, None], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("data_norm", [0.0, -1.0, np.nan, np.inf])
def test_an_invalid_norm_bound_is_refused(data_norm) -> None:
    for call in (
        lambda: scale_rows([[1.0]], data_norm),
        lambda: wdbc(data_norm=data_norm),
        lambda: synthetic(3, 2, data_norm=data_norm),
    ):
        with pytest.raises(ParameterError, match="data_norm"):
            call()


@pytest.mark.parametrize("X", [[1.0, 2.0], [[np.nan]], [[np.inf]]])
def test_scale_rows_refuses_inputs_other_than_finite_matrices(X) -> None:
    with pytest.raises(DataError, match="finite"):
        scale_rows(X)


def test_a_private_row_affects_no_other_row(monkeypatch) -> None:
    original = load_breast_cancer()
    before = wdbc(0)
    order = np.random.default_rng(0).permutation(569)
    changed = load_breast_cancer()
    changed.data[order[0]] = 1e6 * np.arange(1, 31)
    monkeypatch.setattr("sklearn.datasets.load_breast_cancer", lambda: changed)
    after = wdbc(0)
    assert not np.array_equal(after.X_train[0], before.X_train[0])
    assert np.array_equal(after.X_train[1:], before.X_train[1:])
    assert np.array_equal(after.X_validation, before.X_validation)
    assert np.array_equal(after.X_test, before.X_test)
    assert after.description == before.description
    assert not np.array_equal(original.data, changed.data)


@pytest.mark.parametrize("fractions", [(0.5, 0.5, 0.5), (1.0, 0.0, 0.0), (0.5, 0.5), (-1, 1, 1)])
def test_invalid_fractions_are_refused(fractions) -> None:
    with pytest.raises(ParameterError, match="fractions"):
        wdbc(0, fractions=fractions)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.randoms())
def test_correlate_orders_values_like_the_column(values, random) -> None:
    X = np.array([[random.random(), random.random()] for _ in values])
    correlated = correlate(values, X, column=1)
    assert sorted(correlated) == sorted(values)
    assert np.all(np.diff(correlated[np.argsort(X[:, 1], kind="stable")]) >= 0)


def test_correlate_refuses_invalid_arguments() -> None:
    with pytest.raises(ParameterError, match="rows"):
        correlate([1.0], [[1.0], [2.0]], 0)
    with pytest.raises(ParameterError, match="column 2"):
        correlate([1.0], [[1.0, 2.0]], 2)


COLUMNS = ["id", "age", "Sensitivity", "ill", "group"]


def test_columns_of_the_market_are_not_features() -> None:
    assert feature_columns(COLUMNS, "ill") == ("age",)
    assert feature_columns(COLUMNS, "ill", ["age", "group"]) == ("age", "group")
    with pytest.raises(ParameterError, match="'Sensitivity' is the sellers' report"):
        feature_columns(COLUMNS, "ill", ["age", "Sensitivity"])
    other = feature_columns(COLUMNS, "ill", ["Sensitivity"], report="age")
    assert other == ("Sensitivity",)
    with pytest.raises(ParameterError, match="'ill' is the label"):
        feature_columns(COLUMNS, "ill", ["ill"])
    with pytest.raises(DataError, match="no feature column"):
        feature_columns(["id", "ill"], "ill")


def test_epsilons_reveal_labels_that_are_correlated_with_reports():
    """Check the accuracies in docs/threat-model.md. Independent reports do not reveal labels."""
    data, prior = wdbc(), cm.Uniform(np.exp(-4), 5 * np.exp(-4))
    reports = prior.sample(data.y_train.size, np.random.default_rng(0))
    sorted_by_size = correlate(reports, data.X_train, list(data.feature_names).index("mean radius"))
    majority = max(np.mean(data.y_train == label) for label in (-1, 1))
    for correlated, accuracy in ((reports, majority), (sorted_by_size, 0.8886)):
        market = cm.Market.standard(cm.Sellers(correlated, prior), mu=1, sigma=10, gamma=0.001)
        allocation = cm.allocate(market)
        for published in (allocation.epsilon, cm.payments(market, allocation)):
            order = data.y_train[np.argsort(published)]
            sums = np.concatenate([[0], np.cumsum(order)])  # sum of the first k labels
            best = (np.abs(2 * sums - sums[-1]).max() / order.size + 1) / 2
            assert best == pytest.approx(accuracy, abs=0.01 if accuracy == majority else 1e-4)
