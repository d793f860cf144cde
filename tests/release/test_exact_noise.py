"""Test the calibration of exact noise in releases, and coordinates of Gaussian processes."""

import math
import re
from functools import cache

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import SolverError
from convexmarket.privacy.composition import epsilon_of_moments, gaussian_epsilon, update_moments
from convexmarket.release import lattice_noise as noise_of
from convexmarket.release.lattice_noise import ARITHMETIC, Process, process_noise
from tests.release.builders import source

N_ROWS = 40


@cache
def neighbours():
    """Return two models that are trained on data sets that differ in one row."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (N_ROWS, 2))
    y = np.where(X[:, 0] > 0.05, 1, -1)
    other = y.copy()
    other[0] = -y[0]
    return tuple(
        cm.KernelERM(regularization=0.1, data_norm=1.0).fit(X, labels) for labels in (y, other)
    )


def public(n_points, seed=1):
    return np.random.default_rng(seed).uniform(-0.4, 0.4, (n_points, 2))


def step_of(release):
    """Parse the lattice step, a power of two, from the text of a guarantee."""
    printed = re.search(r"lattice with step ([^,]+),", str(release.guarantee))[1]
    return 2.0 ** round(math.log2(float(printed)))


def test_answers_are_multiples_of_the_lattice_step():
    erm, X = neighbours()[0], public(30)
    release = cm.InteractiveRelease(
        erm, 1.0, 1e-6, max_queries=30, max_updates=5, threshold=0.0, random_state=source(0)
    )
    step = step_of(release)
    answers = release.predict(X[:5])
    assert np.array_equal(answers / step, np.rint(answers / step))
    assert release.spent.updates == 5
    update = (float(erm.row_sensitivities_.max()) + step + 2 * ARITHMETIC * erm.sensitivity_) / (
        release.scale
    )
    spent = float(epsilon_of_moments(5 * update_moments(update), 1e-6))
    assert spent <= 1.0
    assert spent == pytest.approx(1.0, rel=1e-4)
    noise = 4 * release.scale * np.log(2 * 30 / 0.05)
    assert release.error_bound == pytest.approx(noise / 4 + step)


def test_coordinates_of_neighbours_are_within_the_assumed_distance():
    """The assumed distance includes the change of the model and the rounding errors."""
    models, X = neighbours(), public(200)
    X[1] = X[0]
    true = []
    for erm in models:
        plan = process_noise(erm, np.ones(N_ROWS), 1e-6)
        process = Process(erm, plan, np.random.default_rng(0))
        process.at(X[:50], erm.decision_function(X[:50]))
        process.at(X[50:], erm.decision_function(X[50:]))
        true.append(process._true)
        reproduced = process._triangle @ process._true
        assert np.abs(reproduced - erm.decision_function(X)).max() < ARITHMETIC * erm.sensitivity_
    moved = np.linalg.norm(true[0] - true[1])
    assert 0.15 * erm.sensitivity_ < moved <= erm.sensitivity_
    steps = np.rint(true[0] / plan.step) - np.rint(true[1] / plan.step)
    lost = gaussian_epsilon(np.linalg.norm(steps) / np.sqrt(plan.steps**2 - 9.0), 1e-6)
    assert lost <= plan.epsilon.max() <= 1.0


def test_inaccurate_arithmetic_is_refused(monkeypatch):
    erm, X = neighbours()[0], public(40)
    solve = noise_of.solve_triangular

    def careless(*args, **kwargs):
        return solve(*args, **kwargs) * (1 + 1e-5)

    monkeypatch.setattr(noise_of, "solve_triangular", careless)
    with pytest.raises(SolverError, match="exceeds the error that the noise covers"):
        cm.TestSetRelease(erm, X, 1.0, 1e-6)
