"""A function release adds one draw of a Gaussian process to the answers to all queries."""

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from convexmarket.release import function
from convexmarket.release import lattice_noise as noise_of
from convexmarket.release.lattice_noise import PROCESS_SLACK
from tests.release.builders import model, source

REJECTED = 1e-6  # a distribution is rejected at a p-value below this level
N_ROWS = 40
CROSS = np.array([[0.4, 0.0], [0.0, 0.4], [-0.4, 0.0], [0.0, -0.4], [0.0, 0.0]])


def release_of(erm, epsilon=1.0, delta=1e-6, random_state=0, **options):
    return cm.release.FunctionRelease(
        erm, epsilon, delta, random_state=source(random_state), **options
    )


def state_of(release):
    return (
        release._process._generator.bit_generator.state,
        release._process.points.tolist(),
        release._answers.tolist(),
    )


def p_value(noise, covariance):
    """Compute the smallest p-value of several tests for independent standard normals."""
    white = np.linalg.solve(np.linalg.cholesky(covariance), noise.T)
    total, tail = float((white**2).sum()), stats.chi2(white.size)
    pairs = [stats.pearsonr(single, other).pvalue for single, other in combinations(white, 2)]
    shape = stats.kstest(white.ravel(), stats.norm.cdf).pvalue
    return min(2.0 * tail.cdf(total), 2.0 * tail.sf(total), shape, *pairs)


ORDERS = {
    "at once": [[0, 1, 2, 3, 4]],
    "one by one": [[0], [1], [2], [3], [4]],
    "backwards": [[4], [3], [2], [1], [0]],
    "in parts": [[3, 1], [4], [0, 2]],
}


def check_noise_is_a_process(monkeypatch, kernel, order, n_releases):
    erm, generator = model(kernel), np.random.default_rng(5)
    points = CROSS if kernel == "rbf" else CROSS[:2]  # two directions that span the plane
    batches = [[i for i in batch if i < len(points)] for batch in ORDERS[order]]
    first = release_of(erm)
    result = first.scale, first.guarantee.epsilon
    monkeypatch.setattr(noise_of, "calibrate", lambda *_: result)
    noise = np.empty((n_releases, len(points)))
    for row in noise:
        release = release_of(erm, random_state=generator)
        for batch in filter(None, batches):
            row[batch] = release.predict(points[batch])
    noise -= erm.decision_function(points)
    covariance = first.scale**2 * erm.kernel_(points, points)
    assert p_value(noise, covariance) > REJECTED
    for factor in (0.85, 1.15):
        assert p_value(noise, factor**2 * covariance) < REJECTED
    if kernel == "rbf":
        assert p_value(noise, np.diag(np.diag(covariance))) < REJECTED
        squares = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=-1)
        wider = first.scale**2 * np.exp(-1.5 * erm.kernel_.gamma * squares)
        assert p_value(noise, wider) < REJECTED


def test_a_repeated_query_has_the_same_answer():
    release = release_of(model())
    first = release.predict(CROSS)
    before = state_of(release)
    repeated = np.concatenate([release.predict(point) for point in CROSS[::-1]])[::-1]
    assert np.array_equal(repeated, first)
    copies = release.predict(np.repeat(CROSS[:1], 200, axis=0))
    assert np.array_equal(copies, np.full(200, first[0]))
    assert state_of(release) == before
    single = release_of(model()).predict(np.repeat(CROSS, 3, axis=0))
    assert np.array_equal(single, np.repeat(first, 3))


def test_answers_at_nearly_equal_points_are_finite_and_smooth():
    release, line = release_of(model()), np.linspace(0.0, 1e-3, 300)
    answers = [float(release.predict([x, 0.0])[0]) for x in line]
    # The answers differ by at most the largest slope times the length of the line, plus jitter.
    assert np.ptp(answers) < release.scale * (5.0 * 1e-3 + 10.0 * np.sqrt(noise_of.JITTER)) + 1e-3


def gaussian_delta(shift, epsilon):
    """Compute the exact delta of Gaussian noise in closed form."""
    return stats.norm.cdf(shift / 2 - epsilon / shift) - np.exp(epsilon) * stats.norm.cdf(
        -shift / 2 - epsilon / shift
    )


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.05])
@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_the_scale_is_the_smallest_scale_that_satisfies_delta(kernel, epsilon, delta):
    erm = model(kernel)
    release = release_of(erm, epsilon, delta)
    moved = 2.0 * erm.feature_bound_ / (erm.regularization * N_ROWS) * 1.02 / release.scale
    assert gaussian_delta(moved, epsilon) <= delta * (1.0 + 1e-9)
    assert gaussian_delta(1.001 * (1.0 + PROCESS_SLACK) ** 2 * moved, epsilon) > delta


def test_the_predictor_is_public_and_fits_the_answers():
    erm = model()
    release = release_of(erm, epsilon=500.0)
    answers = release.predict(CROSS)
    fitted = release.predictor
    assert np.array_equal(fitted.points, CROSS)
    assert fitted.norm <= erm.norm_bound_ * (1.0 + 1e-6)
    assert fitted.predict(CROSS) == pytest.approx(answers, abs=1e-6)
    assert fitted.guarantee is release.guarantee
    before = state_of(release)
    release.predictor.predict(np.zeros((50, 2)))
    assert state_of(release) == before  # the predictor makes no queries


def test_queries_beyond_the_memory_limit_are_refused_without_effect(monkeypatch):
    monkeypatch.setattr(function, "MOST_POINTS", 6)
    release = release_of(model())
    release.predict(CROSS)
    before = state_of(release)
    with pytest.raises(NotSupportedError, match=r"2 more answers would make 7.*predictor"):
        release.predict(CROSS[:2] / 2.0)
    assert state_of(release) == before
    assert release.predict(CROSS[0] / 2.0).shape == (1,)
    assert release.predict(CROSS).shape == (5,)
    assert release.predictor.predict(np.zeros((100, 2))).shape == (100,)
