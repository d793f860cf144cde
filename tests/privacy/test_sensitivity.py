"""Compare the bounds on the sensitivity of ridge regression with attacks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import ParameterError
from convexmarket.privacy.sensitivity import ridge_norm_bound, ridge_sensitivity
from tests.learners.builders import solution
from tests.privacy.builders import largest


@st.composite
def neighbours(draw):
    """Draw two data sets that differ in the last row, and weights that sum to at most one."""
    seed, d = draw(st.integers(0, 2**32 - 1)), draw(st.integers(1, 6))
    n_others = draw(st.integers(0, 8))
    rng = np.random.default_rng(seed)
    corners = draw(st.booleans())
    X = rng.random((n_others + 2, d))
    X = np.round(X) if corners else X
    y = rng.choice([-1.0, 1.0], n_others + 2) if corners else rng.uniform(-1, 1, n_others + 2)
    weights = rng.dirichlet(np.full(n_others + 1, 0.3)) * draw(st.sampled_from([1.0, 0.7]))
    alpha = 10.0 ** draw(st.floats(-4, 3))
    keep, replace = np.r_[:n_others, n_others], np.r_[:n_others, n_others + 1]
    return (X[keep], y[keep]), (X[replace], y[replace]), weights, alpha


@given(neighbours())
def test_no_neighbour_exceeds_the_sensitivity(case) -> None:
    (X, y), (X2, y2), weights, alpha = case
    moved = np.linalg.norm(solution(X, y, weights, alpha) - solution(X2, y2, weights, alpha))
    tight = ridge_sensitivity(alpha, X.shape[1], sensitivity="tight")
    paper = ridge_sensitivity(alpha, X.shape[1], sensitivity="paper")
    assert moved <= tight * weights[-1] * (1 + 1e-9) + 1e-13
    assert tight <= paper


@pytest.mark.parametrize("d", [1, 4, 30])
def test_the_constant_is_attained_under_strong_regularisation(d) -> None:
    alpha, weight = 1e5 * d, 1e-6
    X, weights = np.vstack([np.zeros(d), np.ones(d)]), np.array([1 - weight, weight])
    moved = solution(X, np.array([0.0, 1.0]), weights, alpha)
    moved = moved - solution(X, np.array([0.0, -1.0]), weights, alpha)
    attained = np.linalg.norm(moved) / weight
    assert attained == pytest.approx(ridge_sensitivity(alpha, d), rel=1e-4)


def over_rows(g: float) -> float:
    """Compute the maximum over t, alpha and beta that is derived in docs/theory/ridge.md."""
    angles = (np.arctan(1 / g), np.pi / 2)
    return largest(
        lambda t, a, b: (
            np.sqrt(4 - 3 * t**2)
            * (np.sin(a) ** 2 + g * t / 2 * np.sin(a) * np.sin(b) * np.sin(a + b))
        ),
        [(0.0, 1.0), angles, angles],
    )


@pytest.mark.parametrize("g", [0.3, 0.9, 1.4, 2.0, 3.7, 9.0, 40.0])
def test_the_tight_constant_equals_the_maximum(g) -> None:
    d = 3
    alpha = d / g**2
    exact = np.sqrt(d) / alpha * over_rows(g)
    claimed = ridge_sensitivity(alpha, d)
    assert exact * (1 - 1e-11) <= claimed <= exact * (1 + 5e-7)


@pytest.mark.parametrize(("alpha", "d"), [(0.05, 2), (4.0, 5)])
def test_the_papers_constant_equals_its_formula(alpha, d) -> None:
    norm = min(alpha**-0.5, d**0.5 / alpha)
    for bound in (None, 0.0, 0.7):
        expected = 2 * d**0.5 * (1 + d**0.5 * (norm if bound is None else bound)) / alpha
        assert ridge_sensitivity(alpha, d, bound, "paper") == pytest.approx(expected, rel=1e-14)


@given(neighbours(), st.floats(0.01, 3.0))
def test_a_known_norm_bound_reduces_the_sensitivity(case, share) -> None:
    """Check that solutions within the norm bound satisfy the smaller sensitivity."""
    (X, y), (X2, y2), weights, alpha = case
    first, second = solution(X, y, weights, alpha), solution(X2, y2, weights, alpha)
    bound = max(np.linalg.norm(first), np.linalg.norm(second)) * max(share, 1.0)
    moved = np.linalg.norm(first - second)
    for mode in ("tight", "paper"):
        kappa = ridge_sensitivity(alpha, X.shape[1], bound, mode)
        assert moved <= kappa * weights[-1] * (1 + 1e-9) + 1e-13
    assert ridge_sensitivity(alpha, X.shape[1], bound) <= ridge_sensitivity(alpha, X.shape[1])


@given(neighbours())
def test_lemmas_a1_and_a2_hold_and_are_improved(case) -> None:
    (X, y), _, weights, alpha = case
    norm = np.linalg.norm(solution(X, y, weights, alpha))
    d = X.shape[1]
    bound = ridge_norm_bound(alpha, d)
    assert norm <= bound * (1 + 1e-9)
    assert bound <= min(1 / np.sqrt(alpha), np.sqrt(d) / alpha)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"regularization": 0.0, "n_features": 2}, "regularization"),
        ({"regularization": np.nan, "n_features": 2}, "regularization"),
        ({"regularization": np.inf, "n_features": 1}, "regularization"),
        ({"regularization": -1.0, "n_features": 1}, "regularization"),
        ({"regularization": 1.0, "n_features": 0}, "n_features"),
        ({"regularization": 1.0, "n_features": 2, "max_norm": -1.0}, "max_norm"),
        ({"regularization": 1.0, "n_features": 1, "max_norm": np.inf}, "max_norm"),
        ({"regularization": 1.0, "n_features": 1, "max_norm": np.nan}, "max_norm"),
        ({"regularization": 1.0, "n_features": 2, "sensitivity": "loose"}, "sensitivity"),
    ],
)
def test_errors_name_invalid_arguments(arguments, words) -> None:
    with pytest.raises(ParameterError, match=words):
        ridge_sensitivity(**arguments)
