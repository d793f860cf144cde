"""Test the accounting, the limit on the number of steps, and audits of noisy descent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.checks import row_norms
from convexmarket.errors import ParameterError
from convexmarket.privacy.composition import gaussian_epsilon, gaussian_shift
from convexmarket.privacy.lattice import LENGTH_ROUNDING, clipped_steps
from tests.learners.builders import noisy_descent

NoisyDescent = noisy_descent()
DEVIATION = 2.0**36
DELTAS = st.floats(1e-12, 0.1)


@given(st.floats(1e-6, 100.0), DELTAS)
def test_a_shift_has_the_stated_epsilon(epsilon, delta):
    shift = gaussian_shift(epsilon, delta)
    assert gaussian_epsilon([shift], delta)[0] == pytest.approx(epsilon, rel=1e-5)
    assert gaussian_epsilon([shift * (1 - LENGTH_ROUNDING)], delta)[0] <= epsilon


def learner_and_parameters(hidden, seed):
    learner = NoisyDescent(hidden, clip=0.3)
    return learner, np.random.default_rng(seed).normal(size=learner.size(3)) * 10.0 ** (seed % 4)


@given(st.sampled_from([0, 4]), st.integers(0, 10**6), st.floats(-200, 200))
def test_no_row_moves_a_step_beyond_its_guarantee(hidden, seed, size):
    learner, parameters = learner_and_parameters(hidden, seed)
    rows = np.random.default_rng(seed).normal(size=(2, 3)) * 10.0**size
    granted = np.array([0.5, 2.0])
    radii = learner.radii(granted, parameters.size, True)
    gradients = learner.gradients(rows, np.array([1.0, -1.0]), parameters)
    sums = clipped_steps(gradients, learner.clip, radii)
    longest, lengths = radii + np.sqrt(parameters.size) / 2, np.linalg.norm(sums, axis=1)
    assert np.all(lengths <= longest * (1 + LENGTH_ROUNDING))
    clipped = row_norms(gradients) >= learner.clip
    assert np.all((lengths + np.sqrt(parameters.size) / 2 >= radii * (1 - 1e-6))[clipped])
    spent = np.sqrt(learner.steps) * 2 * longest / np.sqrt(DEVIATION**2 - 9.0)
    epsilon = gaussian_epsilon(spent, learner.delta)
    assert np.all(epsilon <= granted)
    assert epsilon == pytest.approx(granted, rel=1e-4)


@pytest.mark.parametrize("hidden", [0, 4])
def test_gradients_equal_those_of_the_loss(hidden):
    learner, parameters = learner_and_parameters(hidden, 4)
    rng = np.random.default_rng(0)
    X, signs = rng.normal(size=(5, 3)), np.array([1.0, -1, 1, 1, -1])

    def losses(at):
        return np.logaddexp(0, -signs * learner.margins(X, at)[0])

    result = learner.gradients(X, signs, parameters)
    for j, unit in enumerate(np.eye(parameters.size) * 1e-6):
        slope = (losses(parameters + unit) - losses(parameters - unit)) / 2e-6
        assert result[:, j] == pytest.approx(slope, abs=1e-8)


@pytest.mark.campaign  # statistical audits are slow
def test_an_audit_refutes_insufficient_noise(monkeypatch):
    X, y = np.full((4, 1), 0.5), np.array([1, -1, 1, -1])
    options = {
        "replacements": ([[1.0], [1.0]], [-1, 1]), "rows": [0], "epsilon": 2.0, "draws": 150,
        "random_state": 0,
    }  # fmt: skip
    learner = NoisyDescent(steps=2, delta=1e-3)
    honest = cm.audit_privacy(learner, X, y, **options)
    assert honest.passed, honest.statement()
    names = NoisyDescent.descend.__globals__
    draw = names["discrete_gaussian"]
    monkeypatch.setitem(names, "discrete_gaussian", lambda scale, *rest: draw(scale // 20, *rest))
    assert not cm.audit_privacy(learner, X, y, **options).passed


def test_invalid_options_are_refused():
    X, y = np.zeros((2, 1)), [-1, 1]
    with pytest.raises(ParameterError, match="too little"):
        NoisyDescent(delta=1e-12).fit(X, y, epsilon=1e-12)
