"""Regression tests for leaks that guarantees do not cover and for failures after a charge."""

from __future__ import annotations

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import (
    BudgetExceededError,
    DataError,
    NotSupportedError,
    ParameterError,
    UpdatesExhaustedError,
)
from convexmarket.release.fit import KernelBasis
from convexmarket.release.lattice_noise import laplace_noise
from convexmarket.release.non_interactive import _selected
from convexmarket.release.scales import calibrate, interactive_epsilon, non_interactive_epsilon
from tests.release.builders import made_of, source

RELEASES = ["interactive", "test set", "public", "function"]


def rows(seed=0, n_rows=60):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-0.6, 0.6, (n_rows, 2))
    return X, np.where(X[:, 0] > 0, 1, -1)


def model(**options):
    return cm.KernelERM(**({"regularization": 0.1} | options)).fit(*rows())


def release(kind, erm, epsilon=1.0, delta=1e-6, **options):
    return made_of(kind, erm, epsilon=epsilon, delta=delta, **options)


@pytest.mark.parametrize("kernel", ["rbf", "laplacian", "cosine"])
def test_an_overflowing_query_reads_no_prediction(kernel):
    """The noise cannot hide an answer of inf - inf = NaN, which reveals signs of predictions."""
    erm = model(kernel=kernel)
    huge = [[1.5e308, 0.0]]
    for kind in ("interactive", "function"):
        with pytest.raises(DataError, match="overflow"):
            release(kind, erm).predict(huge)
    with pytest.raises(DataError, match="overflow"):
        cm.TestSetRelease(erm, huge, 1.0, 1e-6)
    X, y = rows()
    X[0] = huge[0]  # private rows are clipped, because an error would reveal them
    clipped = cm.KernelERM(kernel=kernel).fit(X, y)
    X[0, 0] = 1e150
    assert np.array_equal(clipped.dual_coef_, cm.KernelERM(kernel=kernel).fit(X, y).dual_coef_)
    assert np.isfinite(release("function", erm).predict([[1e150, 0.0]])).all()


@pytest.mark.parametrize("kind", ["interactive", "test set", "function"])
def test_an_epsilon_that_rounds_to_zero_still_charges_its_delta(kind):
    erm = model()
    account = cm.PrivacyAccountant(np.full(60, 1.0), delta=0.0)
    with pytest.raises(BudgetExceededError, match="delta"):
        release(kind, erm, 1e-9, 0.9, accountant=account)
    generous = cm.PrivacyAccountant(np.full(60, 1.0), delta=0.95, composition="basic")
    release(kind, erm, 1e-9, 0.9, accountant=generous)
    assert np.all(generous.spent_delta == 0.9)
    assert np.all(generous.spent > 0)


@pytest.mark.parametrize("kind", ["interactive", "function"])
def test_refitting_a_model_does_not_change_its_release(kind):
    queries = rows(2, 4)[0]
    first, second = (release(kind, model(), random_state=source(0)) for _ in range(2))
    erm = model()
    third = release(kind, erm, random_state=source(0))
    erm.set_params(regularization=1e-6).fit(*rows(5))
    assert np.array_equal(first.predict(queries), third.predict(queries))
    second.predict(queries)
    assert np.array_equal(first.predict(queries), second.predict(queries))


@pytest.mark.parametrize("kind", ["interactive", "function"])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_releases_cannot_be_copied_with_their_noise(kind, copied):
    with pytest.raises(NotSupportedError, match="copied"):
        copied(release(kind, model()))


def test_threads_share_one_budget_of_updates():
    created = cm.InteractiveRelease(
        model(), 1.0, 1e-6, max_queries=200, max_updates=3, threshold=0.0
    )

    def query(seed):
        try:
            return len(created.predict(rows(seed, 1)[0]))
        except UpdatesExhaustedError:
            return 0

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(query, range(60))) == 3
    assert created.spent.updates == 3


def test_threads_share_one_draw_of_the_function():
    created = release("function", model())
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda seed: created.predict(rows(seed, 3)[0]), range(40)))
    assert np.isfinite(np.concatenate(answers)).all()
    assert len(created.predictor.points) == 120


def test_too_many_rounds_are_refused_before_any_charge():
    account = cm.PrivacyAccountant(np.full(60, 9.0), delta=0.1)
    with pytest.raises(NotSupportedError, match="GB"):
        cm.release.PublicRelease(
            model(data_norm=1.0), 1.0, 1e-6, rounds=10**9, net_radius=0.3, accountant=account
        )
    assert not account.spent.any()


@given(seed=st.integers(0, 2**32))
def test_a_fit_to_huge_noise_finds_a_multiplier(seed):
    X = rows(seed, 6)[0]
    basis = KernelBasis(np.exp(-((X[:, None] - X) ** 2).sum(axis=-1)))
    beta = basis.fit(np.random.default_rng(seed).standard_normal(6) * 1e17, 1.0)
    assert np.linalg.norm(beta) == pytest.approx(1.0, rel=1e-9)


def test_a_public_release_requires_a_public_norm_bound():
    with pytest.raises(ParameterError, match="data_norm"):
        release("public", model())


@pytest.mark.parametrize("kind", RELEASES)
def test_columns_are_matched_to_the_columns_of_the_model(kind, tmp_path):
    X, y = rows()
    table = pd.DataFrame(X, columns=["age", "dose"])
    erm = cm.KernelERM(regularization=0.1, data_norm=1.0).fit(table, y)
    if kind == "test set":
        with pytest.raises(DataError, match="columns"):
            cm.TestSetRelease(erm, table[["dose", "age"]], 1.0, 1e-6)
        created = cm.TestSetRelease(erm, table.iloc[:5], 1.0, 1e-6)
    else:
        created = release(kind, erm)
    with pytest.raises(DataError, match="columns"):
        created.predict(table[["dose", "age"]].iloc[:3])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        created.predict(table.iloc[:3])
        created.predictor.predict(table.iloc[:3])
    loaded = cm.load_model(cm.save_model(created.predictor, tmp_path / "p.json"))
    assert loaded.feature_names == ("age", "dose")
    with pytest.raises(DataError, match="columns"):
        loaded.predict(table[["dose", "age"]].iloc[:3])


def test_the_published_scale_is_increased_where_it_is_insufficient():
    """At epsilon = 5,000, the exact loss of one update exceeds the claim of Theorem 9."""
    paper = interactive_epsilon(1, 0.9, "paper")
    tight = interactive_epsilon(1, 0.9, "tight")
    scale = 200.0 * np.log(4.0 / 0.9) / 5000.0
    assert tight(np.array([1.0 / scale]))[0] > 5000.0
    assert calibrate(np.ones(1), np.full(1, 5000.0), paper)[0] > scale * 1.01
    with pytest.raises(ParameterError, match="max_updates"):
        interactive_epsilon(10**13, 1e-6, "tight")


@cache
def hinge(seed):
    """Fit a linear model. Return the model and the guarantee of its function release."""
    erm = cm.KernelERM("hinge", "linear", 0.1, data_norm=1.0).fit(*rows(seed))
    return erm, release("function", erm).guarantee


@given(seed=st.integers(0, 2**32), noise=st.floats(-20, 20), divisor=st.sampled_from([1.0, 3.0]))
def test_a_noisy_answer_changes_the_model_only_slightly(seed, noise, divisor):
    """The squared distance to the true model increases by at most noise**2 / divisor."""
    rng = np.random.default_rng(seed)
    erm, guarantee = hinge(seed % 7)
    truth = erm.pivots_.T @ erm.dual_coef_
    start = cm.release.PublicPredictor(
        erm.kernel_, rng.uniform(-0.7, 0.7, (2, 2)), rng.normal(size=2), guarantee
    )
    z = rng.uniform(-0.7, 0.7, 2) * rng.choice([1.0, 0.01])
    moved = start.corrected(z, float(truth @ z) + noise, np.inf, divisor)
    before, after = (np.sum((p.points.T @ p.coefficients - truth) ** 2) for p in (start, moved))
    off = float(truth @ z) - start.predict(z)[0]
    assert after <= before - (off**2 - noise**2) / divisor + 1e-9 * (1 + before + noise**2)


def terms(rounds):
    return non_interactive_epsilon(rounds, 1e-6, "tight")


@given(seed=st.integers(0, 2**32))
def test_a_public_release_divides_by_the_bound_on_features(seed):
    erm, _ = hinge(0)
    created = cm.release.PublicRelease(
        erm, 1.0, 1e-6, rounds=1, net_radius=0.3, random_state=source(seed)
    )
    net, rng = cm.release.ball_net(2, 1.0, 0.3), np.random.default_rng(seed)
    truth = erm.decision_function(net)
    noise = laplace_noise(erm, np.ones(len(erm.row_sensitivities_)), terms(1), 1e-6)
    z = _selected(np.abs(truth), noise.step, noise.steps, rng)
    step = noise.added_to(truth[z : z + 1], rng)[0]
    shrunk = min(1.0, erm.norm_bound_ / max(abs(step) * np.linalg.norm(net[z]), 1e-300))
    if np.any(net[z]):
        assert created.predictor.coefficients == pytest.approx([step * shrunk / 2.0], rel=1e-9)
