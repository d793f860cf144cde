"""Attack every release with its default settings."""

import math
import re
from functools import cache

import numpy as np
import pytest
from scipy import stats

import convexmarket as cm
from convexmarket.attacks.draws import loss_of_frequencies
from convexmarket.privacy import Simulation
from convexmarket.release import PublicPredictor
from convexmarket.release import lattice_noise as noise_of
from tests import one_in
from tests.release.builders import calibrate_once

POINT = np.array([[1.0, 0.0]])
REJECTED = 1e-6  # a distribution is rejected at a p-value below this level


def fitted(X, y):
    return cm.KernelERM("hinge", "linear", regularization=1.0, data_norm=1.0).fit(X, y)


@cache
def neighbours():
    """Return models of two neighbouring data sets, and the rows and labels of the first set."""
    X, y = np.zeros((10, 2)), np.repeat([-1, 1], 5)
    X[0] = POINT
    other = y.copy()
    other[0] = 1
    return fitted(X, y), fitted(X, other), X, y


def queried(release):
    release.predict(POINT)
    return release


#: Functions that create a release of a model, and query an interactive or function release.
DEFAULTS = {
    "test set": lambda erm, epsilon, **source: cm.TestSetRelease(
        erm, POINT, epsilon, 0.0, **source
    ),
    "test set, delta": lambda erm, epsilon, **source: cm.TestSetRelease(
        erm, POINT, epsilon, 1e-6, **source
    ),
    "interactive": lambda erm, epsilon, **source: queried(
        cm.InteractiveRelease(
            erm, epsilon, 1e-6, max_queries=1, max_updates=1, threshold=0.0, **source
        )
    ),
    "public": lambda erm, epsilon, **source: cm.release.PublicRelease(
        erm, epsilon, 1e-6, rounds=1, net_radius=0.5, **source
    ),
    "function": lambda erm, epsilon, **source: queried(
        cm.release.FunctionRelease(erm, epsilon, 1e-6, **source)
    ),
}


def released(monkeypatch, kind, erm, source, draws):
    """Return the lattice step and the noisy numbers from which a release computes its outputs."""
    calibrate_once(monkeypatch, noise_of)
    answers = []
    correct = PublicPredictor.corrected

    def recorded(self, point, answer, *args, **options):
        answers.append(answer)
        return correct(self, point, answer, *args, **options)

    monkeypatch.setattr(PublicPredictor, "corrected", recorded)
    numbers = []
    for _ in range(draws):
        answers.clear()
        release = DEFAULTS[kind](erm, 1.0, random_state=source)
        if kind == "function":
            answers.append(release._process.coordinates[0])
        elif kind == "test set, delta":
            answers.append(release.coordinates[0])
        elif kind == "test set":
            answers.append(release.noisy_predictions[0])
        numbers.append(answers[0])
    text = re.search(r"on a lattice with step (\S+),", str(release.guarantee))[1]
    return 2.0 ** round(math.log2(float(text))), np.array(numbers)


@pytest.mark.parametrize("kind", one_in(6, DEFAULTS))
def test_every_number_is_possible_under_both_neighbours(monkeypatch, kind):
    """All numbers are multiples of a public step. Their residues modulo 4 are uniform."""
    first, second, *_ = neighbours()
    source, residues = Simulation(np.random.default_rng(1)), []
    for erm in (first, second):
        step, numbers = released(monkeypatch, kind, erm, source, 120)
        steps = numbers / step  # exact, because the step is a power of two
        assert np.array_equal(steps, np.rint(steps))
        assert np.unique(steps).size > 100  # most draws differ
        residues.append(np.bincount((steps % 4).astype(int), minlength=4))
        assert stats.chisquare(residues[-1]).pvalue > REJECTED
    assert stats.chi2_contingency(residues).pvalue > REJECTED


def possible(output, prediction, scale):
    """Check whether ``prediction + Generator.laplace`` can equal an output in floating point."""
    below = output < prediction
    tail = 0.5 * math.exp(-abs(output - prediction) / scale)
    nearest = round((tail if below else 1.0 - tail) * 2**53)
    for k in range(max(nearest - 6, 1), min(nearest + 7, 2**53)):
        u = k * 2.0**-53
        noise = scale * math.log(u + u) if below else -scale * math.log((2.0 - u) - u)
        if output == prediction + noise:
            return True
    return False


def proven_by_low_digits(*, floats, draws=400):
    """Return the epsilon that is proven by outputs that are possible under only one data set."""
    rng = np.random.default_rng(2)
    models = neighbours()[:2]
    predictions = [float(erm.decision_function(POINT)[0]) for erm in models]
    counts = []
    for erm, prediction in zip(models, predictions, strict=True):
        count, release = 0, None
        for _ in range(draws):
            if release is None or not floats:
                release = cm.TestSetRelease(erm, POINT, 1.0, 0.0, random_state=Simulation(rng))
            output = float(release.noisy_predictions[0])
            if floats:
                output = prediction + rng.laplace(scale=release.scale)
            possible_under = [possible(output, each, release.scale) for each in predictions]
            count += possible_under[0] and not possible_under[1]
        counts.append(count)
    return loss_of_frequencies(counts[0], draws, counts[1], draws, 0.0, 0.999), counts


def test_low_digits_of_floating_point_noise_refute_the_claim():
    proven, counts = proven_by_low_digits(floats=True)
    assert proven > 3.0
    assert counts[0] > 200
    assert counts[1] == 0


@pytest.mark.campaign  # statistical audits are slow
def test_low_digits_of_the_default_noise_do_not_refute_the_claim():
    """Noise that is sampled in floating point would attain only some multiples of the step."""
    proven, counts = proven_by_low_digits(floats=False)
    assert proven <= 1.0
    assert counts[1] > 0


@pytest.mark.campaign
@pytest.mark.parametrize("kind", one_in(6, DEFAULTS))
def test_the_measured_loss_of_default_releases_is_below_the_claim(monkeypatch, kind):
    calibrate_once(monkeypatch, noise_of)
    _, _, X, y = neighbours()

    def mechanism(rows, labels):
        erm = fitted(rows, labels)
        return lambda seed: DEFAULTS[kind](erm, 2.0, random_state=Simulation(seed))

    def view(release):
        return release.predictor.predict(POINT)

    audit = cm.audit_privacy(
        mechanism, X, y, rows=[0], view=view, replacements=(POINT, [1]), draws=150, random_state=0
    )
    assert audit.passed, audit.statement()
    assert audit.measured[0] <= 2.0
