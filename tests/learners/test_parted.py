"""Test that rows in partitions give the same model as rows in memory."""

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import convexmarket as cm
from convexmarket import PrivacyAccountant
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners import PrivateLogisticRegression
from convexmarket.learners.domain import Ball
from convexmarket.learners.losses import LogisticLoss
from convexmarket.learners.minimiser import PartedObjective, PartedRows, PerturbedObjective
from convexmarket.learners.ridge_math import row_sum
from convexmarket.partitions import rows
from convexmarket.privacy import Simulation
from tests.learners.builders import output_ridge

da = pytest.importorskip("dask.array")


@pytest.fixture(autouse=True, scope="module")
def at_once():
    """Run Dask synchronously, in the thread of the test."""
    with dask.config.set(scheduler="synchronous"):
        yield


def in_parts(array, chunks):
    return rows(da.from_array(array, chunks=chunks))


def rows_of(n_rows, n_features=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.5, 0.5, (n_rows, n_features))
    y = np.where(X[:, 0] + 0.2 * rng.standard_normal(n_rows) > 0, 1, -1)
    return X, y, rng.choice([0.0, 0.5, 1.0], n_rows)


def fitted(X, y, epsilon, **wanted):
    model = PrivateLogisticRegression(0.1, solver_epsilon=None, **wanted)
    return model.fit(X, y, epsilon=epsilon, random_state=Simulation(7))


@pytest.mark.parametrize(("n_rows", "chunks"), [(60, (7, 2)), (12_000, (5_000, 3))])
def test_any_partitions_give_the_same_model_within_the_tolerance(n_rows, chunks):
    X, y, epsilon = rows_of(n_rows)
    whole = fitted(X, y, epsilon)
    X[epsilon == 0] = np.nan  # these values must not be read
    parts = fitted(in_parts(X, chunks), da.from_array(y, chunks=n_rows), epsilon)
    assert parts.gradient_norm_ <= 1e-9
    apart = np.linalg.norm(parts.coef_ - whole.coef_)
    assert apart <= (parts.gradient_norm_ + whole.gradient_norm_) / whole.regularization
    assert (parts.eta_, parts.n_features_in_) == (whole.eta_, 3)
    np.testing.assert_array_equal(parts.epsilon_, whole.epsilon_)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 99))
def test_sums_over_partitions_equal_sums_over_all_rows(sizes, seed):
    X, targets, epsilon = rows_of(sum(sizes) + 3, seed=seed)
    used = epsilon > 0
    used[-3:] = True
    weights = np.random.default_rng(seed).random(used.sum())
    w, shift = np.array([0.3, -2.0, 1.0]), np.array([0.1, 0.0, -0.2])
    rest = targets[used].astype(float), weights, shift, 0.1, LogisticLoss()
    whole = PerturbedObjective(X[used], *rest)
    array = in_parts(X, ((*sizes, 3), (3,)))
    parts = PartedObjective(PartedRows(array, used, Ball(1.0).rows).fetched(), *rest)
    for single, other in ((whole, parts), (whole.regularized(2.0), parts.regularized(2.0))):
        assert other.value_and_gradient(w)[0] == pytest.approx(single.value_and_gradient(w)[0])
        np.testing.assert_allclose(other.gradient(w), single.gradient(w), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(other.hessian(w), single.hessian(w), rtol=1e-12)
        assert other.gradient_norm(w) == pytest.approx(single.gradient_norm(w), rel=1e-9)


@pytest.mark.parametrize("make", [PrivateLogisticRegression, cm.PersonalizedRidge])
def test_invalid_rows_are_refused_before_any_charge(make):
    X, y, _ = rows_of(20)
    X = np.abs(X)
    accountant = PrivacyAccountant(np.full(20, 1.0))
    for bad, words in (
        (np.nan, "partition 2 of X: a row contains NaN"),
        (3.0, "2 of X: 1 of 6 rows"),
    ):
        changed = X.copy()
        changed[14] = bad
        with pytest.raises(DataError, match=words):
            make().fit(in_parts(changed, (6, 3)), y, epsilon=0.5, accountant=accountant)
    parts = in_parts(X, (6, 3))
    with pytest.raises(DataError, match="give one label per row"):
        make().fit(parts, y[1:], epsilon=0.5, accountant=accountant)
    labels = np.where(y > 0, np.nan, y)
    with pytest.raises(DataError, match=r"NaN|not in the public classes"):
        make().fit(parts, labels, epsilon=0.5, accountant=accountant)
    assert not accountant.spent.any()
    bound = make()._public[0]
    with pytest.raises(ParameterError, match=f"public {bound}"):
        make(**{bound: None}).fit(parts, y, epsilon=0.5)


def test_rows_that_do_not_match_the_partitions_are_refused():
    X, y, epsilon = rows_of(20)
    epsilon[:] = 0.5
    array = da.from_array(X, chunks=(6, 3))
    for table in (array, array.to_dask_dataframe()):
        with pytest.raises(DataError, match=r"pass convexmarket\.partitions\.rows\(X\)"):
            fitted(table, y, epsilon)
    for wrong in (array[array[:, 0] > 0], array.to_dask_dataframe(), array[:, 0]):
        with pytest.raises(DataError, match="matrix of numbers, after X"):
            rows(wrong)
    with pytest.raises(NotSupportedError, match="KernelERM needs its rows in memory"):
        cm.KernelERM().fit(rows(array), y, epsilon=epsilon, random_state=Simulation(0))
    with pytest.raises(NotSupportedError, match="at least as many rows"):
        fitted(rows(array[:2]), y[:2], 10 * epsilon[:2])
    with pytest.raises(NotSupportedError, match="too small for rows in partitions"):
        output_ridge(1e-9, rounding=None).fit(
            rows(array + 0.5), y, epsilon=epsilon, random_state=Simulation(0)
        )


RIDGES = [
    output_ridge(0.1),
    output_ridge(0.1, rounding=None),
    output_ridge(0.1, weighting="equal", fit_intercept=True),
    cm.PersonalizedRidge(0.1, perturbation="statistics"),
]


@pytest.mark.parametrize(
    "ridge", RIDGES, ids=lambda ridge: f"{type(ridge).__name__} {ridge.rounding}"
)
@pytest.mark.parametrize(("n_rows", "chunks"), [(60, (7, 2)), (20_000, (9_000, 3))])
@pytest.mark.filterwarnings("ignore::convexmarket.errors.PrivacyLeakWarning")
def test_any_partitions_give_the_same_ridge_regression(ridge, n_rows, chunks):
    X, _, epsilon = rows_of(n_rows)
    X, y = X + 0.5, 0.6 * X[:, 0] - 0.2 * X[:, 1]
    options = {"epsilon": epsilon, "random_state": Simulation(7)}
    whole = clone(ridge).fit(X, y, **options)
    X[epsilon == 0] = np.nan  # these values must not be read
    parts = clone(ridge).fit(in_parts(X, chunks), da.from_array(y, chunks=50), **options)
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(parts.epsilon_, whole.epsilon_)
    assert (parts.rounding_, parts.n_features_in_) == (whole.rounding_, 3)
    assert str(parts.guarantee_) == str(whole.guarantee_)


def test_sums_over_partitions_are_rounded_once():
    X = np.tile([1e100, 1.0, -1e100], 4)[:, None]
    parts = PartedRows(in_parts(X, (1, 1)), np.full(12, True), lambda rows: rows)
    assert row_sum(parts, lambda rows, ones: rows.T @ ones, np.ones(12)) == [4.0]
