"""Ridge regression from perturbed statistics: its sensitivity, its guarantee, its model."""

from itertools import product

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.learners import StatisticsRidge
from convexmarket.learners.ridge_math import solve_ridge
from convexmarket.learners.ridge_statistics import statistics_sensitivity
from convexmarket.privacy import Simulation
from tests import one_in


def rows(n_rows=40, n_features=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n_rows, n_features))
    return X, np.clip(X @ np.full(n_features, 0.4), -1, 1), rng.uniform(0.5, 2.0, n_rows)


def statistics(x, y):
    return np.append(np.outer(x, x)[np.triu_indices(x.size)], y * x)


@pytest.mark.parametrize("d", [1, 2, 4])
def test_no_two_rows_differ_by_more_and_some_nearly_do(d):
    """All vertices, and the points of the diagonal against the corner of ones."""
    corners = [np.array(x, dtype=float) for x in product((0.0, 1.0), repeat=d)]
    diagonal = [np.full(d, t) for t in np.linspace(0.0, 1.0, 101)]
    rng = np.random.default_rng(0)
    others = list(rng.random((50, d)))
    every = np.array(
        [statistics(x, y) for x in corners + diagonal + others for y in (-1.0, 1.0, 0.3)]
    )
    apart = np.abs(every[:, None] - every[None]).sum(axis=2).max()
    assert 0.95 * statistics_sensitivity(d) <= apart <= statistics_sensitivity(d) * (1 + 1e-12)


def test_each_row_keeps_nearly_all_of_what_it_granted():
    X, y, epsilon = rows()
    model = StatisticsRidge(0.1).fit(X, y, epsilon=epsilon, random_state=Simulation(0))
    assert np.all(model.epsilon_ <= epsilon)
    assert np.all(model.epsilon_ >= 0.99 * epsilon)
    assert "perturbed statistics" in model.guarantee_.mechanism


def test_the_released_sums_have_the_claimed_noise_and_neighbours_no_more_than_was_sold():
    """The lattice's own numbers: what two data sets differ by, over the scale of the noise."""
    X, y, epsilon = rows(12, 1)
    learner = StatisticsRidge(0.1)
    granted = cm.learners.granted.Granted.of(X, epsilon, None)
    plan = learner._plan(granted, 1, np.random.default_rng(0))
    lattice = learner._lattice(plan, 1)
    i = int(np.argmax(epsilon))
    sums = []
    for x, label in ((1.0, 1.0), (0.5, -1.0)):
        X[i], y[i] = x, label
        sums.append(np.rint(lattice.solve(X, y, plan.weights, 0.1) / lattice.step))
    loss = float(np.abs(sums[0] - sums[1]).sum() / lattice.scale)
    assert 0.99 * epsilon[i] <= loss <= epsilon[i]


def test_without_noise_it_is_ridge_regression_and_noise_vanishes_with_many_rows():
    X, y, epsilon = rows(30_000, 3)
    exact = solve_ridge(X, y, epsilon / epsilon.sum(), 0.01)
    noisy = StatisticsRidge(0.01).fit(X, y, epsilon=epsilon, random_state=Simulation(1))
    np.testing.assert_allclose(noisy.coef_, exact, atol=0.05)
    free = StatisticsRidge(0.01).fit(X, y, epsilon=np.inf)
    np.testing.assert_allclose(free.coef_, solve_ridge(X, y, np.full(30_000, 1 / 30_000), 0.01))


@pytest.mark.campaign
@pytest.mark.parametrize("factor", one_in(2, [0.25, 1.0]))
def test_an_attack_by_draws_passes_what_is_sold_and_refutes_what_is_not(factor, monkeypatch):
    X, y, epsilon = np.full((6, 1), 0.5), np.zeros(6), np.full(6, 1.0)
    whole = statistics_sensitivity(1)
    monkeypatch.setattr(
        "convexmarket.learners.ridge_statistics.statistics_sensitivity", lambda d: factor * whole
    )
    audit = cm.audit_privacy(
        StatisticsRidge(0.5),
        X,
        y,
        epsilon=epsilon,
        rows=[0],
        draws=1000,
        replacements=([[1.0], [0.5]], [1.0, -1.0]),
        random_state=0,
    )
    assert audit.passed == (factor == 1.0)
