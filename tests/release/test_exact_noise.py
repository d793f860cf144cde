"""Releases with exact noise: the attack that it ends, its law, and its calibration."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy import stats

import convexmarket as cm
from convexmarket.errors import ParameterError, SolverError
from convexmarket.privacy import discrete_laplace_log_density
from convexmarket.privacy.composition import (
    advanced_composition,
    epsilon_of_moments,
    gaussian_epsilon,
    pure_moments,
    update_moments,
)
from convexmarket.release import noise as noise_of
from convexmarket.release.noise import ARITHMETIC, Process, process_noise
from tests.release.builders import source

REJECTED = 1e-6
N_ROWS = 40


@cache
def neighbours():
    """Two models whose rows differ in one."""
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


# ------------------------------------------------------------------ the attack


def possible(output, prediction, scale):
    """Say whether ``prediction + Generator.laplace`` can be this output, for any uniform double."""
    below = output < prediction
    tail = 0.5 * math.exp(-abs(output - prediction) / scale)
    nearest = round((tail if below else 1.0 - tail) * 2**53)
    for k in range(max(nearest - 6, 1), min(nearest + 7, 2**53)):
        u = k * 2.0**-53
        noise = scale * math.log(u + u) if below else -scale * math.log((2.0 - u) - u)
        if output == prediction + noise:
            return True
    return False


def guess(release, predictions):
    """Return which of two models cannot have given these outputs, if one cannot."""
    fits = [
        all(
            possible(output, prediction, release.scale)
            for output, prediction in zip(release.noisy_predictions, of_model, strict=True)
        )
        for of_model in predictions
    ]
    return fits.index(True) if sum(fits) == 1 else None


def test_without_rounding_low_digits_give_neighbours_away():
    """Epsilon 0.1 allows a guess that is right with probability 0.525 at most."""
    models, X, rng = neighbours(), public(10), np.random.default_rng(6)
    predictions = [model.decision_function(X) for model in models]
    right = 0
    for trial in range(40):
        truth = trial % 2
        release = cm.TestSetRelease(
            models[truth], X, 0.1, 0.0, rounding=None, random_state=source(rng)
        )
        right += guess(release, predictions) == truth
    assert right == 40


def test_with_rounding_the_best_attack_keeps_to_epsilon():
    """Likelihood ratios, the most that any attacker has, from the exact law."""
    models, X, rng = neighbours(), public(10), np.random.default_rng(7)
    predictions = [model.decision_function(X) for model in models]
    right = 0
    for trial in range(40):
        truth = trial % 2
        release = cm.TestSetRelease(
            models[truth], X, 0.1, 0.0, rounding=1e-3, random_state=source(rng)
        )
        step = 2.0**-10
        outputs = release.noisy_predictions / step
        assert np.array_equal(outputs, np.rint(outputs))
        scale = round(release.scale / step)
        assert scale * step == release.scale
        logs = [
            discrete_laplace_log_density(outputs - np.floor(of_model / step + 0.5), scale).sum()
            for of_model in predictions
        ]
        assert abs(logs[0] - logs[1]) <= 0.1
        right += int(np.argmax(logs)) == truth
        assert guess(release, predictions) is None
    assert stats.binomtest(right, 40, 0.525, alternative="greater").pvalue > 1e-3


# ------------------------------------------------------------------ the noise, and its scale


def test_the_noise_is_the_discrete_law():
    erm, X, rng = neighbours()[0], public(50), np.random.default_rng(3)
    step = 2.0**-6
    releases = [
        cm.TestSetRelease(
            erm, X, 20.0, 1e-3, noise="laplace", rounding=step, random_state=source(rng)
        )
        for _ in range(60)
    ]
    scale = releases[0].scale / step
    centre = np.floor(erm.decision_function(X) / step + 0.5)
    noise = np.concatenate([r.noisy_predictions / step - centre for r in releases])
    assert np.array_equal(noise, np.rint(noise))
    edge = math.ceil(3 * scale)
    inside = np.arange(-edge, edge + 1)
    for factor, fits in ((1.0, True), (1.15, False), (0.85, False)):
        chances = np.exp(discrete_laplace_log_density(inside, Fraction(round(scale * factor))))
        counts = np.array([np.count_nonzero(noise == z) for z in inside])
        beyond = [noise.size - counts.sum()], [1.0 - chances.sum()]
        wide = [np.add.reduceat(part, np.arange(0, inside.size, 16)) for part in (counts, chances)]
        observed, expected = (np.append(a, b) for a, b in zip(wide, beyond, strict=True))
        p = stats.chisquare(observed, noise.size * expected).pvalue
        assert (p > REJECTED) == fits


def by_hand(erm, X, release, step, delta, accounting):
    """Return what the most exposed row loses, from the formulas and an eigenvalue."""
    moved = float(erm.row_sensitivities_.max())
    error = step + 2 * ARITHMETIC * erm.sensitivity_
    n = len(X)
    if accounting == "paper":
        each = (moved + error) / release.scale
        return n * each if delta == 0 else float(advanced_composition(each, n, delta))
    values = np.linalg.eigvalsh(erm.kernel_(X, X))
    effective = values[-1] / erm.feature_bound_**2
    euclidean = (np.sqrt(effective) * moved + np.sqrt(n) * error) / release.scale
    if delta == 0:
        return np.sqrt(n) * euclidean
    each = euclidean / np.sqrt(effective)
    orders = pure_moments(each).size
    lam = np.geomspace(1e-3, 1e8, orders)
    apart, together = n * pure_moments(each), lam * (lam + 1) * euclidean**2 / 2
    spent = epsilon_of_moments(np.minimum(apart, together), delta)
    return min(float(spent), np.sqrt(n) * euclidean)


@pytest.mark.parametrize("accounting", ["tight", "paper"])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("rounding", [2.0**-4, 2.0**-20])
def test_the_scale_by_hand(accounting, delta, rounding):
    erm, X = neighbours()[0], public(30)
    release = cm.TestSetRelease(
        erm,
        X,
        1.0,
        delta,
        noise="laplace",
        accounting=accounting,
        rounding=rounding,
        random_state=source(0),
    )
    spent = by_hand(erm, X, release, rounding, delta, accounting)
    assert spent <= 1.0
    assert spent == pytest.approx(1.0, rel=2 * rounding / release.scale + 1e-7)
    assert release.guarantee.epsilon.max() <= 1.0


def test_a_fine_step_costs_next_to_nothing():
    erm, X = neighbours()[0], public(30)
    for delta, cost in ((0.0, 2e-5), (1e-6, 0.005)):
        plain = cm.TestSetRelease(erm, X, 1.0, delta, rounding=None, random_state=source(0))
        exact = cm.TestSetRelease(erm, X, 1.0, delta, random_state=source(0))
        assert 1.0 < exact.scale / plain.scale < 1.0 + cost


def test_rows_that_are_not_used_lose_nothing():
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.4, 0.4, (20, 2))
    weights = np.repeat([0.0, 0.1], 10)
    erm = cm.KernelERM().fit(X, np.where(X[:, 0] > 0, 1, -1), epsilon=weights)
    release = cm.TestSetRelease(erm, public(5), 1.0, 0.0, rounding=1e-4, random_state=source(0))
    assert np.all(release.guarantee.epsilon[:10] == 0)
    assert np.all(release.guarantee.epsilon[10:] > 0)


def test_questions_are_answered_on_the_lattice():
    erm, X = neighbours()[0], public(30)
    step = 2.0**-12
    release = cm.InteractiveRelease(
        erm,
        1.0,
        1e-6,
        max_queries=30,
        max_updates=5,
        threshold=0.0,
        rounding=step,
        random_state=source(0),
    )
    answers = release.predict(X[:5])
    assert np.array_equal(answers / step, np.rint(answers / step))
    assert release.spent.updates == 5
    each = (float(erm.row_sensitivities_.max()) + step + 2 * ARITHMETIC * erm.sensitivity_) / (
        release.scale
    )
    spent = float(epsilon_of_moments(5 * update_moments(each), 1e-6))
    assert spent <= 1.0
    assert spent == pytest.approx(1.0, rel=1e-4)
    noise = 4 * release.scale * np.log(2 * 30 / 0.05)
    assert release.error_bound == pytest.approx(noise / 4 + step)


def test_assumptions_say_which_noise_it_is():
    erm, X = neighbours()[0], public(5)
    for release in (
        cm.TestSetRelease(erm, X, 1.0, 0.0, rounding=0.01, random_state=source(0)),
        cm.InteractiveRelease(
            erm, 1.0, 1e-6, max_queries=3, max_updates=1, rounding=0.01, random_state=source(0)
        ),
    ):
        words = str(release.guarantee)
        assert "exact, on a lattice of step 0.0078125" in words
        assert "real numbers" not in words
    for delta in (0.0, 1e-6):
        plain = cm.TestSetRelease(erm, X, 1.0, delta, rounding=None, random_state=source(0))
        assert plain.guarantee.assumptions[0].startswith("NOT EXACT")


@pytest.mark.parametrize("rounding", [0.0, -1.0, math.nan, True, "fine"])
def test_a_wrong_rounding_is_refused(rounding):
    erm, account = neighbours()[0], cm.PrivacyAccountant(np.ones(N_ROWS))
    with pytest.raises(ParameterError, match="rounding"):
        cm.TestSetRelease(erm, public(3), 1.0, 0.0, rounding=rounding, accountant=account)
    with pytest.raises(ParameterError, match="rounding"):
        cm.InteractiveRelease(
            erm, 1.0, 1e-6, max_queries=3, max_updates=1, rounding=rounding, accountant=account
        )
    assert np.all(account.spent == 0)


def test_a_step_too_fine_for_what_may_be_predicted_is_refused():
    with pytest.raises(ParameterError, match="too fine for values up to"):
        cm.TestSetRelease(neighbours()[0], public(3), 1.0, 0.0, rounding=2.0**-52)


def test_noise_of_floats_is_warned_of_before_anything_is_charged():
    erm, account = neighbours()[0], cm.PrivacyAccountant(np.ones(N_ROWS), 1e-3)
    plain = {"rounding": None, "accountant": account}
    with pytest.raises(cm.PrivacyLeakWarning, match="rounding=None"):
        cm.TestSetRelease(erm, public(3), 1.0, 0.0, **plain)
    with pytest.raises(cm.PrivacyLeakWarning, match="rounding=None"):
        cm.InteractiveRelease(erm, 1.0, 1e-6, max_queries=3, max_updates=1, **plain)
    with pytest.raises(cm.PrivacyLeakWarning, match="random_state"):
        cm.TestSetRelease(erm, public(3), 1.0, 0.0, accountant=account, random_state=0)
    assert np.all(account.spent == 0)


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3, 1.0, 1e4])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_a_step_is_found_whatever_epsilon_is(epsilon, delta):
    """Careless users ask for very little noise, and for very much."""
    release = cm.TestSetRelease(neighbours()[0], public(30), epsilon, delta)
    assert release.guarantee.epsilon.max() == pytest.approx(epsilon, rel=1e-3)


# ------------------------------------------------------------------ a process


def test_the_default_goes_by_delta():
    erm, X = neighbours()[0], public(10)
    pure, approximate = (cm.TestSetRelease(erm, X, 1.0, delta) for delta in (0.0, 1e-6))
    assert "laplace noise" in pure.guarantee.mechanism
    assert "process noise" in approximate.guarantee.mechanism
    assert pure.coordinates is None
    assert approximate.coordinates.shape == (10,)


def test_coordinates_of_neighbours_are_as_near_as_the_noise_supposes():
    """What is counted is an upper bound: on the model's shift, on rounding and on arithmetic."""
    models, X = neighbours(), public(200)
    X[1] = X[0]  # twice the same point
    true = []
    for erm in models:
        plan = process_noise(erm, np.ones(N_ROWS), 1e-6, "auto")
        process = Process(erm, plan, np.random.default_rng(0))
        process.at(X[:50], erm.decision_function(X[:50]))
        process.at(X[50:], erm.decision_function(X[50:]))
        true.append(process._true)
        again = process._triangle @ process._true
        assert np.abs(again - erm.decision_function(X)).max() < ARITHMETIC * erm.sensitivity_
    moved = np.linalg.norm(true[0] - true[1])
    assert 0.15 * erm.sensitivity_ < moved <= erm.sensitivity_
    steps = np.rint(true[0] / plan.step) - np.rint(true[1] / plan.step)
    lost = gaussian_epsilon(np.linalg.norm(steps) / np.sqrt(plan.steps**2 - 9.0), 1e-6)
    assert lost <= plan.epsilon.max() <= 1.0


def test_the_order_of_batches_changes_no_coordinate():
    erm, X = neighbours()[0], public(40)
    plan = process_noise(erm, np.ones(N_ROWS), 1e-6, "auto")
    found = []
    for parts in ([X], np.split(X, 8), np.split(X, 40)):
        process = Process(erm, plan, np.random.default_rng(0))
        for part in parts:
            process.at(part, erm.decision_function(part))
        found.append(process._true)
    assert found[1] == pytest.approx(found[0], abs=1e-7 * erm.sensitivity_)
    assert found[2] == pytest.approx(found[0], abs=1e-7 * erm.sensitivity_)


def test_arithmetic_that_is_worse_than_is_supposed_is_refused(monkeypatch):
    erm, X = neighbours()[0], public(40)
    solve = noise_of.solve_triangular

    def careless(*args, **kwargs):
        return solve(*args, **kwargs) * (1 + 1e-5)

    monkeypatch.setattr(noise_of, "solve_triangular", careless)
    with pytest.raises(SolverError, match="double precision"):
        cm.TestSetRelease(erm, X, 1.0, 1e-6)
