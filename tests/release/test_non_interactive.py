"""Test selections, measurements, the net and the error bounds of the public release."""

from functools import cache

import numpy as np
import pytest
from scipy import stats
from scipy.spatial import cKDTree

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from convexmarket.release import ball_net
from convexmarket.release import lattice_noise as noise_of
from convexmarket.release.lattice_noise import laplace_noise
from convexmarket.release.non_interactive import _selected
from convexmarket.release.scales import calibrate, non_interactive_epsilon
from tests import one_in
from tests.release.builders import bound_of, calibrate_once, model, source

REJECTED = 1e-6  # a distribution is rejected at a p-value below this level
N_ROWS = 40


def release_of(erm, epsilon=1.0, delta=1e-6, random_state=0, **options):
    options = {"rounds": 3, "net_radius": 0.3} | options
    return cm.release.PublicRelease(
        erm, epsilon, delta, random_state=source(random_state), **options
    )


#: Noise scales for which the exponents are equal and the measurements satisfy the norm bound.
SCALES = {"tight": 0.4, "paper": 0.1}


@cache
def first_rounds(accounting, n_releases):
    """Run many releases with one round, and return the selected points and the measured values.

    The predictor of one round is half of the updated model. The value of this model at the selected
    point is the noisy value.
    """
    erm, generator, scale = model(n_features=1), np.random.default_rng(1), SCALES[accounting]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise_of, "calibrate", lambda *_: (scale, np.zeros(N_ROWS)))
        releases = [
            release_of(erm, rounds=1, accounting=accounting, random_state=generator)
            for _ in range(n_releases)
        ]
    assert {len(r.predictor.points) for r in releases} == {1}
    points = np.array([r.predictor.points[0] for r in releases])
    return points, np.array([2.0 * r.predictor.coefficients[0] for r in releases])


def p_value_of_picks(points, exponent):
    net = ball_net(1, 1.0, 0.3)
    scores = exponent * np.abs(model(n_features=1).decision_function(net))
    law = np.exp(scores - scores.max())
    counts = [np.count_nonzero((points == point).all(axis=1)) for point in net]
    assert sum(counts) == len(points)
    return stats.chisquare(counts, law / law.sum() * len(points)).pvalue


@pytest.mark.campaign  # statistical audits are slow
@pytest.mark.parametrize("accounting", SCALES)
def test_points_are_selected_by_the_exponential_mechanism(accounting):
    points, _ = first_rounds(accounting, 2000)
    exponent = {"tight": 1.0, "paper": 0.25}[accounting] / SCALES[accounting]
    assert p_value_of_picks(points, exponent) > REJECTED
    for factor in (0.0, 0.5, 1.5):
        assert p_value_of_picks(points, factor * exponent) < REJECTED


def test_the_predictor_equals_the_mean_of_all_models():
    erm = model()
    assert release_of(erm, rounds=1).predictor.coefficients.any()
    # repeat the rounds with the same draws
    release = release_of(erm, epsilon=200.0, rounds=4)
    generator, net = np.random.default_rng(0), ball_net(2, 1.0, 0.3)
    noise = laplace_noise(
        erm, np.full(N_ROWS, 200.0), non_interactive_epsilon(4, 1e-6, "tight"), 1e-6
    )
    assert noise.scale == release.scale
    truth, total = erm.decision_function(net), np.zeros(len(net))
    points, coefficients = np.zeros((0, 2)), np.zeros(0)
    for _ in range(4):
        public = erm.kernel_(net, points) @ coefficients if len(points) else np.zeros(len(net))
        pick = _selected(np.abs(truth - public), noise.step, noise.steps, generator)
        value = noise.added_to(truth[pick : pick + 1], generator)[0]
        points = np.vstack([points, net[pick]])
        coefficients = np.append(coefficients, value - public[pick])
        norm = np.sqrt(coefficients @ erm.kernel_(points, points) @ coefficients)
        coefficients = coefficients * min(1.0, erm.norm_bound_ / norm)
        total += erm.kernel_(net, points) @ coefficients
    assert release.predict(net) == pytest.approx(total / 5, abs=1e-9)
    assert release.net_size == len(net)


def shift_of(erm):
    return 2.0 / (erm.regularization * N_ROWS) * 1.02 * erm.feature_bound_**2


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_large_net_attains_the_claim_without_delta(rounds):
    scale = calibrate(np.ones(1), np.ones(1), non_interactive_epsilon(rounds, 0.0, "tight"))[0]
    # a changed row increases the error at one of many points, and decreases all other errors
    before, after = np.zeros(10**6), np.full(10**6, -1.0 / scale)
    after[0] = 1.0 / scale
    selected = after[0] - np.log(np.exp(after).sum()) - (before[0] - np.log(np.exp(before).sum()))
    loss = rounds * (selected + 1.0 / scale)  # the measurement reveals the increase
    assert 0.999 < loss <= 1.0


def round_masses(share, shift, step):
    """Return the probabilities of a round's privacy losses on a grid, and the first grid index.

    Losses are rounded down to the grid. With probability ``share``, the error at the selected point
    decreases by the shift. Otherwise it increases by the shift. The measurement also changes by the
    shift.
    """
    other = share * np.exp(-2.0 * shift) / (share * np.exp(-2.0 * shift) + 1.0 - share)
    losses = np.floor(np.log([share / other, (1.0 - share) / (1.0 - other)]) / step).astype(int)
    reach = int(np.ceil(shift / step)) + 1
    edges = step * np.arange(-reach, reach + 2)
    above = np.where(edges <= -shift, 1.0, stats.laplace.cdf((shift - edges) / 2.0))
    above[edges > shift] = 0.0
    picks = np.zeros(losses.max() - losses.min() + 1)
    picks[losses - losses.min()] = share, 1.0 - share
    return np.convolve(picks, above[:-1] - above[1:]), losses.min() - reach


def true_delta(share, shift, rounds, epsilon, step):
    """Compute a lower bound on the delta of several rounds by convolution."""
    masses, first = round_masses(share, shift, step)
    total = np.ones(1)
    for _ in range(rounds):
        total = np.convolve(total, masses)
    losses = step * (rounds * first + np.arange(total.size))
    return float(total[losses > epsilon] @ -np.expm1(epsilon - losses[losses > epsilon]))


@pytest.mark.parametrize("rounds", [1, 3, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (1.0, 1e-6), (4.0, 1e-2)])
def test_selections_and_measurements_do_not_exceed_the_claim(rounds, epsilon, delta):
    step, terms = 1e-3, non_interactive_epsilon(rounds, delta, "tight")
    shift = 1.0 / calibrate(np.ones(1), np.full(1, epsilon), terms)[0]
    shares = (1e-3, 0.1, 0.5, 0.9, 0.999)
    assert max(true_delta(share, shift, rounds, epsilon, step) for share in shares) <= delta
    # half of the noise would not be sufficient
    assert max(true_delta(share, 2.0 * shift, rounds, epsilon, step) for share in shares) > delta


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("kernel", "n_features"), one_in(3, [("rbf", 1), ("rbf", 2), ("linear", 2)])
)
def test_the_error_bound_holds_on_the_whole_ball(monkeypatch, kernel, n_features):
    calibrate_once(monkeypatch, noise_of)
    erm, failure_probability = model(kernel, n_features, n_rows=2_000), 0.3
    axis = np.linspace(-1.0, 1.0, 61)
    grid = np.stack(np.meshgrid(*[axis] * n_features), axis=-1).reshape(-1, n_features)
    grid = grid[np.linalg.norm(grid, axis=1) <= 1.0]
    truth, missed, errors = erm.decision_function(grid), 0, []
    for seed in range(40):
        release = release_of(
            erm,
            10.0,
            random_state=seed,
            rounds=30,
            net_radius=0.03,
            failure_probability=failure_probability,
        )
        errors.append(float(np.abs(release.predict(grid) - truth).max()))
        missed += errors[-1] > release.error_bound
    assert missed <= stats.binom.ppf(1.0 - REJECTED, 40, failure_probability)
    # the release is more accurate than the zero function
    assert np.median(errors) < np.abs(truth).max()


def test_the_error_bound_and_its_parts_equal_their_formulas():
    erm = model()
    release = release_of(erm, rounds=7, net_radius=0.1, failure_probability=0.1)
    s, C = release.scale, erm.norm_bound_
    missed = s * np.log(2 * 8 * release.net_size / 0.1)
    between = 2 * C * np.sqrt(2 * erm.kernel_.gamma) * 0.1
    expected = missed + between + np.sqrt((s * np.log(2 * 8 / 0.1)) ** 2 + C**2 / 8)
    rounded = release.error_bound - expected  # rounding in a selection and in a measurement
    assert 0.0 < rounded <= 2.0 * 2.0**-20 * erm.sensitivity_ * (1.0 + 1e-6)
    error_bound = bound_of(
        "non_interactive",
        shift_of(erm),
        1.0,
        1e-6,
        rounds=7,
        net_size=release.net_size,
        net_radius=0.1,
        max_norm=C,
        feature_lipschitz=np.sqrt(2 * erm.kernel_.gamma),
        failure_probability=0.1,
    )
    assert error_bound == pytest.approx(expected, rel=3e-6)
    assert error_bound >= release.error_bound


@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize(("data_norm", "radius"), [(1.0, 0.13), (1.0, 0.5), (3.0, 0.4), (0.2, 1.0)])
def test_every_point_of_the_ball_is_within_the_radius_of_the_net(n_features, data_norm, radius):
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((40_000, n_features))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    inside = directions * data_norm * rng.uniform(size=(40_000, 1)) ** (1.0 / n_features)
    net = ball_net(n_features, data_norm, radius)
    assert np.linalg.norm(net, axis=1).max(initial=0.0) <= data_norm * (1.0 + 1e-12)
    distances = cKDTree(net).query(np.vstack([inside, data_norm * directions]))[0]
    assert distances.max() <= radius * (1.0 + 1e-12)
    if radius < data_norm / 2.0:  # a coarser net would not be sufficient
        assert distances.max() > 0.85 * radius
    assert len(np.unique(np.round(net, 12), axis=0)) == len(net)


def test_a_net_in_many_dimensions_is_refused_with_its_size():
    account = cm.PrivacyAccountant(np.full(N_ROWS, 10.0), 1e-3)
    for radius in (0.5, None):
        with pytest.raises(NotSupportedError, match=r"30 dimensions.*points.*at most.*GB"):
            release_of(model(n_features=30), net_radius=radius, accountant=account)
    with pytest.raises(NotSupportedError, match="1,000,000 at most"):
        release_of(model(), net_radius=0.001, accountant=account)
    assert account.releases == ()


def test_the_chosen_radius_respects_the_largest_net():
    erm = model(n_features=3, n_rows=20_000)
    release = release_of(erm, 10.0, net_radius=None)
    assert 25_000 < release.net_size <= 1.1 * 100_000
    coarse = release_of(model(), net_radius=None)
    assert 0.0 < coarse.net_radius <= 1.0


@pytest.mark.parametrize("kernel", ["laplacian", "cosine"])
def test_kernels_without_a_lipschitz_constant_are_refused(kernel):
    account = cm.PrivacyAccountant(np.full(N_ROWS, 10.0), 1e-3)
    with pytest.raises(NotSupportedError, match=f"'{kernel}'.*Lipschitz"):
        release_of(model(kernel), accountant=account)
    assert account.releases == ()
