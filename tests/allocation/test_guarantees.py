"""Test optimal weights and certificates of markets with given guarantees."""

import cvxpy as cp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import ParameterError
from tests.allocation import builders


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


@example([0.1, 0.4, 1.5], 0.0, 0.5)
@example([1e-6, 1.0, 1.0], 50.0, 1e-3)
@example([0.1, 0.4, 1.5, 0.4], 5.0, 0.0)
@example([0.0, 0.1, 0.1000001, 3.0, 1.0], 9.0, 0.01)
@given(guarantees, st.floats(0.01, 10.0), st.floats(1e-3, 10.0))
def test_the_path_finds_the_optimum_of_the_declaration(values, mu, sigma):
    epsilon = np.array(values)
    weights, eta = cm.allocation.weights_for_guarantees(epsilon, mu, sigma)
    assert weights.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.all(weights >= 0)
    assert np.all(weights * eta <= epsilon * (1 + 1e-12))
    objective = mu * np.linalg.norm(weights) + sigma / eta
    assert objective == pytest.approx(declared(epsilon, mu, sigma), rel=2e-6)
    whole = builders.market(
        cm.terms.GivenEpsilon(epsilon),
        objective=mu * cm.Spread() + sigma * cm.Noise(),
        costs=np.ones(epsilon.size),
    )
    certified = cm.allocate(whole)
    assert certified.objective == pytest.approx(objective, rel=1e-12)
    assert certified.gap <= 1e-10
    # The objective is homogeneous of degree 1 in the weights and 1/eta (Euler's theorem).
    assert certified.multiplier * certified.eta == pytest.approx(objective, rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([], 1, 1), "epsilon"),
        (([0.0, 0.0], 1, 1), "epsilon"),
        (([-1.0, 1.0], 1, 1), "epsilon"),
        (([np.inf], 1, 1), "epsilon"),
        (([1.0], -1, 1), "mu"),
        (([1.0], 1, np.nan), "sigma"),
        (([1.0], 0, 0), "mu and sigma are zero"),
    ],
)
def test_errors_name_invalid_arguments(arguments, words):
    with pytest.raises(ParameterError, match=words):
        cm.allocation.weights_for_guarantees(*arguments)
