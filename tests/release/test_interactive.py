"""Test the noise, the privacy loss and the stopping rule of the sparse-vector release."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scipy import optimize, stats

import convexmarket as cm
from convexmarket.errors import (
    DataError,
    QueriesExhaustedError,
    ReleaseExhaustedError,
    UpdatesExhaustedError,
)
from convexmarket.release import lattice_noise as noise_of
from convexmarket.release.scales import calibrate, interactive_epsilon
from tests import one_in
from tests.release.builders import (
    ATTACKS,
    bound_of,
    calibrate_once,
    check_slightly_above,
    check_the_adversary_stays_below_the_claim,
    model,
    source,
    worst_delta,
)

REJECTED = 1e-6  # a distribution is rejected at a p-value below this level
TERMS = {"epsilon": 1.0, "delta": 1e-6, "max_queries": 30, "max_updates": 4}


def release_of(erm, random_state=0, **changes):
    return cm.InteractiveRelease(erm, random_state=source(random_state), **(TERMS | changes))


def state_of(release):
    return release.remaining, release._generator.bit_generator.state, release.predictor


def manual_scale(erm, epsilon, delta, updates):
    # Feature norms and slopes are at most 1, and weights are 1/n. The errors of two fits add 2 %.
    sensitivity = 2.0 / (erm.regularization * erm.row_sensitivities_.size) * 1.02
    return 200.0 * np.sqrt(updates) * sensitivity * np.log(4.0 / delta) / epsilon


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-2])
@pytest.mark.parametrize("updates", [1, 4, 100])
def test_the_papers_scale_and_threshold_equal_their_formulas(epsilon, delta, updates):
    erm = model()
    release = release_of(
        erm,
        epsilon=epsilon,
        delta=delta,
        max_updates=updates,
        accounting="paper",
        failure_probability=0.1,
    )
    check_slightly_above(release.scale, manual_scale(erm, epsilon, delta, updates))
    usual = 4.0 * release.scale * np.log(2.0 * 30 / 0.1)
    assert release.threshold == pytest.approx(usual, rel=1e-12)
    assert release.error_bound == pytest.approx(1.25 * usual + release._noise.step, rel=1e-12)
    assert release.guarantee.epsilon.max() == pytest.approx(epsilon, rel=1e-8)


@pytest.mark.parametrize(("updates", "threshold"), one_in(2, [(1, 0.0), (2, 0.0), (2, 3.0)]))
@pytest.mark.parametrize(("epsilon", "delta"), ATTACKS)
def test_the_best_adaptive_adversary_stays_below_the_claim(updates, epsilon, delta, threshold):
    check_the_adversary_stays_below_the_claim(updates, epsilon, delta, threshold, 20)


@pytest.mark.parametrize(("updates", "epsilon", "delta"), [(1, 1.0, 1e-6), (2, 1.0, 1e-6)])
def test_the_adversary_refutes_a_charge_of_one_answer_per_update(updates, epsilon, delta):
    s = calibrate(np.ones(1), np.full(1, epsilon), interactive_epsilon(updates, delta, "tight"))[0]
    log_ratios, deltas = worst_delta(np.sqrt(2.0) / s, 3.0, updates, 60, 4.0)
    assert np.interp(epsilon, log_ratios, deltas) > delta


def waiting_delta(shift, updates, epsilon):
    """Compute the delta of an adversary who sees only the number of queries until the last update.

    Rare updates form a Poisson process. A changed row changes its rate by the factor exp(shift).
    """
    rate = np.exp(shift)
    edge = (epsilon + updates * shift) / (rate - 1.0)
    original, changed = stats.gamma(updates), stats.gamma(updates, scale=1.0 / rate)
    return original.sf(edge) - np.exp(epsilon) * changed.sf(edge)


def test_the_dynamic_program_reproduces_closed_forms():
    # One noisy answer with threshold 0 has the delta of Laplace noise.
    # This delta is 1 - exp((epsilon - shift)/2).
    log_ratios, deltas = worst_delta(1.0, 0.0, 1, 1, 4.0, n_grid=6000)
    at = np.array([0.2, 0.5, 0.8])
    exact = 1.0 - np.exp((at - 1.0) / 2.0)
    # the division into four cells slightly reduces the delta
    assert np.interp(at, log_ratios, deltas) == pytest.approx(exact, abs=0.03)
    # The delta of many queries with one update is at least the delta of the waiting time.
    log_ratios, deltas = worst_delta(0.05, 3.0, 1, 100, 4.0)
    waiting = waiting_delta(0.05, 1, 0.2)
    assert np.interp(0.2, log_ratios, deltas) > waiting > 0.0


def test_only_noisy_answers_correct_the_public_model():
    erm = model(n_rows=2000, regularization=0.01)
    release = release_of(erm, epsilon=50.0, max_queries=200, max_updates=200, threshold=0.5)
    before = release.predictor
    kinds = set()
    for point in np.random.default_rng(3).uniform(-0.7, 0.7, (200, 2)):
        public, used = before.predict(point)[0], release.spent.updates
        answer = release.predict(point)[0]
        updated = release.spent.updates > used
        kinds.add(updated)
        assert (answer != public) == updated
        assert (abs(answer - public) > release.threshold) == updated
        assert (release.predictor is not before) == updated
        before = release.predictor
    assert kinds == {True, False}


@pytest.mark.parametrize("earlier", [0, 2])
def test_the_release_stops_at_the_first_query_after_the_last_update(earlier):
    release = release_of(model(), threshold=0.0)  # every query causes an update
    points = np.random.default_rng(0).uniform(-0.7, 0.7, (6, 2))
    release.predict(points[:earlier]) if earlier else None
    reference = release_of(model(), threshold=0.0)
    expected = reference.predict(points[:4])[earlier:]
    with pytest.raises(UpdatesExhaustedError, match="max_updates = 4") as stop:
        release.predict(points[earlier:])
    assert stop.value.answers == pytest.approx(tuple(expected), rel=1e-9)
    assert release.remaining == (26, 0)
    before = state_of(release)
    with pytest.raises(UpdatesExhaustedError) as second:
        release.predict(points[0])
    assert second.value.answers == ()
    assert state_of(release) == before
    assert len(release.predictor.points) == 4
    assert np.array_equal(release.predictor.points, points[:4])
    assert np.all(np.isfinite(release.predictor.predict(points)))


def squared_distance(erm, predictor):
    points = np.vstack([erm.pivots_, predictor.points])
    coefficients = np.concatenate([erm.dual_coef_, -predictor.coefficients])
    return float(coefficients @ erm.kernel_(points, points) @ coefficients)


GRID = np.stack(np.meshgrid(*[np.linspace(-0.7, 0.7, 25)] * 2), axis=-1).reshape(-1, 2)


def query_worst_points(erm, release, n_queries, check):
    """Query the points at which the public model has the largest error."""
    truth = erm.decision_function(GRID)
    for _ in range(n_queries):
        before, used = release.predictor, release.spent.updates
        worst = int(np.argmax(np.abs(truth - before.predict(GRID))))
        answer = release.predict(GRID[worst])[0]
        check(before, answer, truth[worst], release.spent.updates > used)


@pytest.mark.parametrize("kernel", ["rbf", "linear", "poly"])
def test_every_update_reduces_the_distance_as_the_theorem_states(kernel):
    erm = model(kernel, n_rows=20_000, regularization=0.01)
    terms = {"epsilon": 1e3, "delta": 0.1, "max_queries": 200, "max_updates": 200}
    threshold = max(0.1, release_of(erm, **terms).threshold)
    release = release_of(erm, threshold=threshold, **terms)
    least = threshold**2 / (2.0 * erm.feature_bound_**2)
    decreases = []

    def check(before, answer, truth, updated):
        if updated:
            assert abs(answer - truth) <= threshold / 4.0
            decreases.append(
                squared_distance(erm, before) - squared_distance(erm, release.predictor)
            )

    query_worst_points(erm, release, 200, check)
    assert len(decreases) == release.spent.updates > 0
    assert min(decreases) >= least
    assert len(decreases) <= 2.0 * (erm.feature_bound_ * erm.norm_bound_ / threshold) ** 2


def test_the_constant_of_the_potential_is_optimal_for_noise_of_a_quarter_of_the_threshold():
    erm = model(n_rows=500, regularization=0.01)
    release = release_of(erm)
    point, threshold = np.array([0.6, 0.6]), 0.8
    truth = float(erm.decision_function(point[None, :])[0])
    assert abs(truth) > 1.0
    shifted = release.predictor.corrected(
        point, truth - np.sign(truth) * 0.75 * threshold, erm.norm_bound_
    )  # an error of 3/4 of the threshold, plus noise of 1/4, causes an update
    after = shifted.corrected(point, truth + np.sign(truth) * threshold / 4.0, erm.norm_bound_)
    decrease = squared_distance(erm, shifted) - squared_distance(erm, after)
    assert decrease == pytest.approx(threshold**2 / 2.0, rel=1e-6)


@pytest.mark.campaign
@given(seed=st.integers(0, 2**32))
def test_the_suggested_number_of_updates_is_sufficient(seed):
    erm = model(n_rows=20_000)
    sensitivity = float(erm.row_sensitivities_.max())
    updates = bound_of(
        "suggest_updates", sensitivity, 10.0, 1e-3, max_queries=100, max_norm=erm.norm_bound_
    )
    release = release_of(erm, seed, epsilon=10.0, delta=1e-3, max_queries=100, max_updates=updates)
    errors = []

    def check(before, answer, truth, updated):
        errors.append(abs(answer - truth))

    query_worst_points(erm, release, 100, check)
    assert 0 < release.spent.updates < updates
    assert max(errors) <= release.error_bound


@pytest.mark.campaign
def test_the_error_bound_holds_with_the_stated_probability(monkeypatch):
    calibrate_once(monkeypatch, noise_of)
    erm, failure_probability = model(n_rows=2_000, regularization=0.01), 0.3
    points = np.random.default_rng(5).uniform(-0.7, 0.7, (40, 2))
    truth, missed, halved = erm.decision_function(points), 0, 0
    for seed in range(200):
        release = release_of(
            erm,
            seed,
            epsilon=80.0,
            max_queries=40,
            max_updates=40,
            failure_probability=failure_probability,
        )
        assert release.threshold < 4.0
        worst = float(np.abs(release.predict(points) - truth).max())
        missed += worst > release.error_bound
        halved += worst > release.error_bound / 2.0
    assert missed <= stats.binom.ppf(1.0 - REJECTED, 200, failure_probability)
    assert halved > stats.binom.ppf(1.0 - REJECTED, 200, failure_probability)


def test_the_attacks_nearly_attain_the_claim():
    """The best attack proves that epsilon is at least 75 % of the claim."""
    s = calibrate(np.ones(1), np.ones(1), interactive_epsilon(2, 1e-6, "tight"))[0]
    log_ratios, deltas = worst_delta(1.0 / s, 3.0, 2, 60, 4.0)
    result = optimize.brentq(lambda e: np.interp(e, log_ratios, deltas) - 1e-6, 0.01, 1.0)
    assert 0.75 < result < 1.0


def query(release, points):
    """Return the answers to queries, and the error that ended the release, or None."""
    try:
        return release.predict(points).tolist(), None
    except ReleaseExhaustedError as error:
        return list(error.answers), error


class Queries(RuleBasedStateMachine):
    """Compare the counters of a release with a separate count of valid and invalid queries."""

    @initialize(
        seed=st.integers(0, 2**32),
        ratio=st.sampled_from([0.0, 1.0, 2.0]),
        queries=st.integers(1, 25),
        updates=st.integers(1, 6),
    )
    def start(self, seed, ratio, queries, updates):
        erm = model()
        plain = release_of(erm, max_queries=queries, max_updates=updates)
        self.release = release_of(
            erm, seed, max_queries=queries, max_updates=updates, threshold=ratio * plain.scale
        )
        self.limits, self.answered = (queries, updates), 0

    @rule(seed=st.integers(0, 2**32), count=st.integers(1, 5))
    def query_points(self, seed, count):
        points = np.random.default_rng(seed).uniform(-0.7, 0.7, (count, 2))
        left = self.release.remaining
        answers, stopped = query(self.release, points)
        self.answered += len(answers)
        assert isinstance(stopped, QueriesExhaustedError) == (count > left.queries)
        if count > left.queries:
            assert answers == []
        elif stopped is None:
            assert left.updates > 0
            assert len(answers) == count
        else:
            assert self.release.remaining.updates == 0
            assert len(answers) < count

    @rule(row=st.sampled_from([[9.0, 0.0], [np.nan, 0.0], [0.0], [0.0, 0.0, 0.0], ["a", "b"]]))
    def query_invalid_row(self, row):
        before = state_of(self.release)
        with pytest.raises(DataError):
            self.release.predict([[0.1, 0.1], row] if len(row) == 2 else [row])
        assert state_of(self.release) == before

    @invariant()
    def counts_agree(self):
        if not hasattr(self, "release"):
            return
        spent, left = self.release.spent, self.release.remaining
        assert spent.queries == self.answered
        assert (spent.queries + left.queries, spent.updates + left.updates) == self.limits
        assert 0 <= spent.updates <= min(self.limits[1], spent.queries)
        assert len(self.release.predictor.points) == spent.updates
        assert self.release.predictor.norm <= model().norm_bound_ * (1.0 + 1e-9)


TestQueries = Queries.TestCase
