"""Weights under given guarantees: the exact path against its CVXPY declaration."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import convexmarket as cm


def declared(epsilon, mu, sigma):
    a, s = cp.Variable(epsilon.size, nonneg=True), cp.Variable()
    problem = cp.Problem(
        cp.Minimize(mu * cp.norm(a) + sigma * s), [a <= cp.multiply(epsilon, s), cp.sum(a) == 1]
    )
    problem.solve(solver="CLARABEL")
    return problem.value


guarantees = st.lists(
    st.sampled_from([0.0, 0.01, 0.1, 0.1000001, 1.0, 3.0]) | st.floats(0.01, 10.0),
    min_size=1,
    max_size=12,
).filter(lambda values: max(values) > 0)


@settings(max_examples=100, deadline=None)
@given(guarantees, st.floats(0.01, 10.0), st.floats(1e-3, 10.0))
def test_the_path_ends_where_the_declaration_does(values, mu, sigma) -> None:
    epsilon = np.array(values)
    weights, eta = cm.weights_for_guarantees(epsilon, mu, sigma)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(weights >= 0)
    assert np.all(weights * eta <= epsilon * (1 + 1e-12))
    objective = mu * np.linalg.norm(weights) + sigma / eta
    assert objective == pytest.approx(declared(epsilon, mu, sigma), rel=2e-6)


@settings(max_examples=200)
@given(guarantees, st.floats(0.01, 10.0), st.floats(1e-3, 10.0))
def test_never_worse_than_proportional_or_equal_weights(values, mu, sigma) -> None:
    epsilon = np.array(values)
    weights, eta = cm.weights_for_guarantees(epsilon, mu, sigma)
    best = mu * np.linalg.norm(weights) + sigma / eta
    proportional = epsilon / epsilon.sum()
    assert best <= (mu * np.linalg.norm(proportional) + sigma / epsilon.sum()) * (1 + 1e-12)
    if epsilon.min() > 0:
        m = epsilon.size
        assert best <= (mu / np.sqrt(m) + sigma / (m * epsilon.min())) * (1 + 1e-12)


def test_the_limits() -> None:
    epsilon = np.array([0.1, 0.4, 1.5])
    weights, eta = cm.weights_for_guarantees(epsilon, mu=0.0, sigma=1.0)
    assert weights == pytest.approx(epsilon / 2.0)
    assert eta == pytest.approx(2.0)
    weights, eta = cm.weights_for_guarantees(epsilon, mu=1.0, sigma=0.0)
    assert weights == pytest.approx(1 / 3)
    assert eta == pytest.approx(0.3)


@pytest.mark.parametrize("unit", [1e-290, 1e-100, 1e100, 1e290])
def test_the_unit_of_privacy_does_not_matter(unit) -> None:
    epsilon = np.array([0.1, 0.4, 1.5])
    weights, eta = cm.weights_for_guarantees(epsilon, 1.0, 0.1)
    scaled, scaled_eta = cm.weights_for_guarantees(epsilon * unit, 1.0, 0.1 * unit)
    assert scaled == pytest.approx(weights, rel=1e-9)
    assert scaled_eta / unit == pytest.approx(eta, rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], 1, 1), "epsilon"),
        (([0.0, 0.0], 1, 1), "epsilon"),
        (([-1.0, 1.0], 1, 1), "epsilon"),
        (([np.inf], 1, 1), "epsilon"),
        (([1.0], -1, 1), "mu"),
        (([1.0], 1, np.nan), "sigma"),
        (([1.0], 0, 0), "both zero"),
    ],
)
def test_bad_arguments_are_named(arguments, words) -> None:
    with pytest.raises(cm.ParameterError, match=words):
        cm.weights_for_guarantees(*arguments)
