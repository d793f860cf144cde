"""Test the sensitivity and the guarantee of ridge regression with perturbed statistics."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.learners import ridge_math
from convexmarket.learners.domain import Granted
from convexmarket.learners.ridge_math import statistics_sensitivity
from convexmarket.privacy import Simulation
from convexmarket.privacy.composition import gaussian_epsilon
from tests import one_in


def ridge(regularization=0.1, **options) -> cm.PersonalizedRidge:
    return cm.PersonalizedRidge(regularization, perturbation="statistics", **options)


def rows(n_rows=40, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, n_features))
    return X, np.clip(X @ np.full(n_features, 0.4), -1, 1), rng.uniform(0.5, 2.0, n_rows)


def statistics(x, y, centred):
    x = np.append(x - 0.5, 1.0) if centred else x
    return np.append(np.outer(x, x)[np.triu_indices(x.size)], y * x)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("d", [1, 2, 4])
def test_the_sensitivity_is_valid_and_nearly_attained(d, centred):
    """Compare the bound with pairs of corners, midpoints, diagonal points and random points."""
    points = [np.array(x, dtype=float) for x in product((0.0, 0.5, 1.0), repeat=d)]
    points += [np.full(d, t) for t in np.linspace(0.0, 1.0, 41)]
    points += list(np.random.default_rng(0).random((50, d)))
    every = np.array([statistics(x, y, centred) for x in points for y in (-1.0, 1.0, 0.3)])
    for order in (1, 2) if centred else (1,):
        bound = statistics_sensitivity(d, centred=centred, order=order)
        apart = np.linalg.norm(every[:, None] - every[None], order, axis=2).max()
        assert 0.95 * bound <= apart <= bound * (1 + 1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.booleans())
def test_a_search_finds_no_worse_pair_of_centred_rows(seed, d, rounded):
    """Maximise the change of the statistics by a coordinate search from a random pair."""
    rng = np.random.default_rng(seed)
    pair = rng.choice([0.0, 0.5, 1.0], (2, d)) if rounded else rng.random((2, d))
    labels = rng.choice([-1.0, 1.0], 2)
    for order in (1, 2):
        best = 0.0
        for _ in range(60):
            moved, signs = pair.copy(), labels.copy()
            moved[rng.integers(2), rng.integers(d)] = rng.choice([0.0, 0.5, 1.0, rng.random()])
            signs[rng.integers(2)] *= rng.choice([-1.0, 1.0])
            change = statistics(moved[0], signs[0], True) - statistics(moved[1], signs[1], True)
            if np.linalg.norm(change, order) >= best:
                pair, labels, best = moved, signs, float(np.linalg.norm(change, order))
        assert best <= statistics_sensitivity(d, centred=True, order=order) * (1 + 1e-12)


@pytest.mark.parametrize(
    "options", [{}, {"fit_intercept": False}, {"delta": 1e-6}, {"weighting": "equal"}]
)
def test_the_granted_epsilons_are_kept_and_nearly_used(options):
    X, y, epsilon = rows()
    model = ridge(**options).fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    assert np.all(model.epsilon_ <= epsilon)
    floor = epsilon.min() if "weighting" in options else epsilon
    assert np.all(model.epsilon_ >= 0.99 * floor)
    assert "perturbed statistics" in model.guarantee_.mechanism
    assert model.guarantee_.delta == options.get("delta", 0.0)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_neighbours_on_the_lattice_satisfy_the_granted_epsilon(delta):
    """The privacy loss is the L1 difference of the statistics, divided by the noise scale."""
    X, y, epsilon = rows(12, 1)
    learner = ridge(delta=delta)
    domain = learner._domain(1)
    plan = learner._plan(Granted(epsilon), 1, domain)
    i = int(np.argmax(epsilon))
    sums = []
    for x, label in ((1.0, 1.0), (0.5, -1.0)):
        X[i], y[i] = x, label
        sums.append(np.rint(plan.sums(domain.rows.rows(X), y) / plan.step))
    if delta:
        shift = np.linalg.norm(sums[0] - sums[1]) / np.sqrt(plan.scale**2 - 9.0)
        loss = float(gaussian_epsilon([shift], delta)[0])
    else:
        loss = float(np.abs(sums[0] - sums[1]).sum() / plan.scale)
    assert 0.8 * epsilon[i] <= loss <= epsilon[i]


@pytest.mark.campaign
@pytest.mark.parametrize("factor", one_in(2, [0.25, 1.0]))
def test_a_statistical_audit_accepts_the_claim_and_refutes_too_little_noise(factor, monkeypatch):
    X, y, epsilon = np.full((6, 1), 0.5), np.zeros(6), np.full(6, 1.0)
    monkeypatch.setattr(
        ridge_math,
        "statistics_sensitivity",
        lambda d, **options: factor * statistics_sensitivity(d, **options),
    )
    replacements = [[1.0], [0.5]], [1.0, -1.0]
    audit = cm.audit_privacy(
        ridge(0.5, fit_intercept=False), X, y, epsilon=epsilon, rows=[0], draws=1000,
        replacements=replacements, random_state=0,
    )  # fmt: skip
    assert audit.passed == (factor == 1.0)


def test_fits_with_a_delta_are_composed_as_gaussian_mechanisms(tmp_path):
    """Check that an account with a delta admits more fits if the fits have a delta, too."""
    X, y, _ = rows(200)
    budget = np.full(200, 1.0)
    counts = {}
    for delta in (0.0, 1e-6):
        for composition in ("advanced", "basic"):
            account = cm.PrivacyAccountant(budget, delta=1e-5, composition=composition)
            model, fits = ridge(delta=delta), 0
            while fits < 60:
                try:
                    model.fit(X, y, epsilon=0.1, accountant=account, random_state=Simulation(fits))
                except cm.errors.BudgetExceededError:
                    break
                fits += 1
            counts[delta, composition] = fits
    assert counts[1e-6, "advanced"] >= 3 * counts[1e-6, "basic"]
    assert counts[1e-6, "advanced"] > 2 * counts[0.0, "advanced"]
    path = cm.learners.save_model(model, tmp_path / "model.json", guarantee="rows")
    loaded = cm.learners.load_model(path)
    for guarantee in (model.guarantee_, model.promise(np.full(200, 0.1), 2), loaded.guarantee_):
        assert guarantee.profile.law == "gaussian"
        assert guarantee.profile.failure == 0.0
        assert gaussian_epsilon(guarantee.profile.shift, 1e-6) == pytest.approx(0.1, rel=1e-2)


def test_fits_without_a_delta_are_composed_as_pure_mechanisms():
    X, y, epsilon = rows()
    for learner in (ridge(), cm.PersonalizedRidge(), cm.PersonalizedRidge(perturbation="output")):
        guarantee = learner.fit(X, y, epsilon=epsilon, random_state=Simulation(0)).guarantee_
        assert guarantee.profile.law == "pure"
        assert np.array_equal(guarantee.profile.shift, guarantee.epsilon)
