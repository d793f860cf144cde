"""Compare error bounds with formulas and simulations, and suggested sizes with brute force."""

from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import convexmarket as cm
from convexmarket.errors import ParameterError
from convexmarket.release import lattice_noise as noise_of
from tests import one_in
from tests.release.builders import bound_of, calibrate_once, check_slightly_above, source

REJECTED = 1e-6  # a probability is rejected at a p-value below this level
S, TERMS = 1e-3, {"epsilon": 1.0, "delta": 1e-6}


@cache
def model(n_rows=2_000, regularization=0.1):
    rng = np.random.default_rng(0)
    X = rng.uniform(-0.7, 0.7, (n_rows, 2))
    y = np.where(X[:, 0] * X[:, 1] > 0.05, 1, -1)
    return cm.KernelERM(regularization=regularization, gamma=2.0, data_norm=1.0).fit(X, y)


def sensitivity_of(erm):
    return float(erm.row_sensitivities_.max())


@pytest.mark.parametrize("accounting", ["tight", "paper"])
def test_the_interactive_bound_equals_the_bound_of_the_release(accounting):
    erm = model()
    release = cm.InteractiveRelease(
        erm, **TERMS, max_queries=77, max_updates=5, failure_probability=0.2, accounting=accounting
    )
    error_bound = bound_of(
        "interactive",
        sensitivity_of(erm),
        **TERMS,
        max_queries=77,
        max_updates=5,
        failure_probability=0.2,
        accounting=accounting,
    )
    check_slightly_above(error_bound, release.error_bound)


@pytest.mark.parametrize("n_points", [1, 30, 5000])
def test_the_semi_interactive_bound_equals_its_formula(n_points):
    C, R, beta = 2.5, 1.5, 0.1
    error_bound = bound_of(
        "semi_interactive",
        S,
        2.0,
        0.0,
        n_points=n_points,
        max_norm=C,
        feature_bound=R,
        failure_probability=beta,
    )
    nu = n_points * S / 2.0  # without delta, epsilons are added
    by_paper = 2 * nu * np.log(2 * n_points / beta)
    log = np.log(4 / beta)
    reach = R * nu * (log + np.sqrt(log**2 + 4 * n_points * log))
    check_slightly_above(error_bound.fit, min(by_paper, 2 * np.sqrt(C * reach / n_points)))
    expected = 2 * C * R / np.sqrt(n_points) * (1 + np.sqrt(np.log(2 / beta) / 2))
    assert error_bound.generalization == pytest.approx(expected, rel=1e-12)
    assert error_bound.total == error_bound.fit + error_bound.generalization


def public(n_points, rng):
    return rng.uniform(-0.7, 0.7, (n_points, 2))


@pytest.mark.campaign
@pytest.mark.parametrize("noise", one_in(2, ["laplace", "process"]))
@pytest.mark.parametrize("n_points", [10, 300])
def test_semi_interactive_bounds_hold_with_the_stated_probability(noise, n_points):
    erm, failure_probability, missed = model(), 0.4, np.zeros(2, dtype=int)
    rng = np.random.default_rng(1)
    error_bound = bound_of(
        "semi_interactive",
        sensitivity_of(erm),
        **TERMS,
        n_points=n_points,
        max_norm=erm.norm_bound_,
        failure_probability=failure_probability,
        noise=noise,
    )
    elsewhere = public(2000, rng)
    truth = erm.decision_function(elsewhere)
    for _ in range(30):
        X = public(n_points, rng)
        release = cm.TestSetRelease(erm, X, **TERMS, noise=noise, random_state=source(rng))
        errors = np.abs(release.predict(X) - erm.decision_function(X))
        missed[0] += errors.mean() > error_bound.fit
        missed[1] += np.abs(release.predict(elsewhere) - truth).mean() > error_bound.total
    assert np.all(missed <= stats.binom.ppf(1 - REJECTED, 30, failure_probability))


def test_the_function_bound_holds_with_the_stated_probability(monkeypatch):
    calibrate_once(monkeypatch, noise_of)
    erm, failure_probability, n_seeds = model(), 0.4, 80
    X = np.array([[x, y] for x in (-0.6, 0.0, 0.6) for y in (-0.6, 0.0, 0.6)])
    truth = erm.decision_function(X)
    error_bound = bound_of(
        "function",
        sensitivity_of(erm),
        **TERMS,
        n_queries=9,
        failure_probability=failure_probability,
    )
    worst = []
    for seed in range(n_seeds):
        release = cm.release.FunctionRelease(erm, **TERMS, random_state=source(seed))
        worst.append(float(np.abs(release.predict(X) - truth).max()))
    assert np.sum(np.array(worst) > error_bound) <= stats.binom.ppf(
        1 - REJECTED, n_seeds, failure_probability
    )
    assert np.sum(np.array(worst) > 0.5 * error_bound) > stats.binom.ppf(
        1 - REJECTED, n_seeds, failure_probability
    )


@pytest.mark.parametrize("accounting", ["tight", "paper"])
@pytest.mark.parametrize("sensitivity", [1e-5, 2e-4, 1e-1])
def test_suggested_updates_are_minimal(sensitivity, accounting):
    terms = {"max_queries": 200, "accounting": accounting, "failure_probability": 0.1}
    C, R = 2.6, 1.3
    result = bound_of("suggest_updates", sensitivity, **TERMS, max_norm=C, feature_bound=R, **terms)

    def enough(updates):
        # the error bound is 5/4 of the threshold
        threshold = (
            bound_of("interactive", sensitivity, **TERMS, max_updates=updates, **terms) / 1.25
        )
        return updates > 2 * (R * C / threshold) ** 2

    assert result >= 1
    assert enough(result)
    tried = range(max(1, result - 200), result)
    assert not any(enough(updates) for updates in tried)


@pytest.mark.parametrize(
    ("sensitivity", "delta", "noise"),
    [(1e-1, 1e-6, "laplace"), (1e-3, 0.0, "laplace"), (1e-3, 1e-6, "process")],
)
def test_the_suggested_test_size_equals_brute_force(sensitivity, delta, noise):
    """None of the tested sizes has a smaller error bound than the suggested size."""
    terms = {"max_norm": 2.0, "failure_probability": 0.1, "noise": noise}
    result = bound_of("suggest_test_size", sensitivity, 1.0, delta, largest=62, **terms)
    tried = {*range(1, 63, 6), result - 1, result, result + 1, 62}
    totals = {
        n: bound_of("semi_interactive", sensitivity, 1.0, delta, n_points=n, **terms).total
        for n in tried
        if 1 <= n <= 62
    }
    assert totals[result] == pytest.approx(min(totals.values()), rel=1e-9)


@pytest.mark.parametrize("accounting", ["tight", "paper"])
@pytest.mark.parametrize("sensitivity", [1e-6, 1e-3, 1.0])
def test_suggested_rounds_equal_brute_force(sensitivity, accounting):
    net = {"net_size": 1e4, "net_radius": 1e-3, "feature_lipschitz": 1.4}
    terms = TERMS | net | {"max_norm": 2.0, "accounting": accounting}
    result = bound_of("suggest_rounds", sensitivity, largest=62, **terms)
    bounds = [bound_of("non_interactive", sensitivity, rounds=n, **terms) for n in range(1, 63)]
    assert bounds[result - 1] == pytest.approx(min(bounds), rel=1e-9)


@given(epsilon=st.floats(0.05, 20.0), delta=st.floats(1e-10, 0.1), factor=st.floats(1.1, 3.0))
def test_bounds_decrease_in_epsilon_and_are_proportional_to_the_sensitivity(epsilon, delta, factor):
    bounds = [
        lambda s, e, d: bound_of("interactive", s, e, d, max_queries=10, max_updates=3),
        lambda s, e, d: bound_of("function", s, e, d, n_queries=10),
        lambda s, e, d: bound_of("semi_interactive", s, e, d, n_points=5, max_norm=1e9).fit,
    ]
    for bound in bounds:
        value = bound(S, epsilon, delta)
        assert bound(S, factor * epsilon, delta) < value
        assert bound(S, epsilon, min(factor * delta, 0.5)) <= value  # equal for basic composition
        assert bound(factor * S, epsilon, delta) == pytest.approx(factor * value, rel=1e-7)


def test_the_error_at_optimal_rounds_decreases_with_the_root_of_the_number_of_rows():
    def best(sensitivity):
        terms = {"net_size": 1e4, "net_radius": 1e-12, "max_norm": 2.0, "feature_lipschitz": 1.0}
        rounds = bound_of("suggest_rounds", sensitivity, **TERMS, **terms)
        return bound_of("non_interactive", sensitivity, **TERMS, rounds=rounds, **terms)

    rate = np.log(best(1e-4) / best(1e-6)) / np.log(100)
    assert 0.4 < rate < 0.56  # the paper states the exponent 2/3


NET = {"net_size": 9, "net_radius": 0.1, "feature_lipschitz": 1.0}
METHODS = {
    "interactive": {"max_queries": 5, "max_updates": 2},
    "suggest_updates": {"max_queries": 5},
    "semi_interactive": {"n_points": 5},
    "suggest_test_size": {"largest": 5},
    "non_interactive": {"rounds": 5} | NET,
    "suggest_rounds": NET | {"largest": 5},
    "function": {"n_queries": 5},
}


@pytest.mark.parametrize(
    ("method", "name"), [(method, name) for method in METHODS for name in METHODS[method]]
)
@pytest.mark.parametrize("value", [-1, np.nan])
def test_errors_name_invalid_arguments_of_a_bound(method, name, value):
    bound_of(method, S, **TERMS, **METHODS[method])
    with pytest.raises(ParameterError, match=name):
        bound_of(method, S, **TERMS, **(METHODS[method] | {name: value}))
