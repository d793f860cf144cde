"""The constants of ridge regression to seven digits, against searches that know no closed form."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from convexmarket.errors import ParameterError
from convexmarket.privacy import ridge_norm_bound, ridge_sensitivity


def largest(function, bounds) -> float:
    """Maximise over a box, from a lattice of starts."""
    lattice = itertools.product(*(np.linspace(low, high, 5)[1:4] for low, high in bounds))
    return max(
        -minimize(
            lambda p: -function(*p), start, bounds=bounds, options={"ftol": 1e-15, "gtol": 1e-10}
        ).fun
        for start in lattice
    )


def over_rows(g: float) -> float:
    """The maximum over t, alpha and beta that the module's documentation states."""
    angles = (np.arctan(1 / g), np.pi / 2)
    return largest(
        lambda t, a, b: (
            np.sqrt(4 - 3 * t**2)
            * (np.sin(a) ** 2 + g * t / 2 * np.sin(a) * np.sin(b) * np.sin(a + b))
        ),
        [(0.0, 1.0), angles, angles],
    )


@pytest.mark.parametrize("g", [0.3, 0.9, 1.4, 2.0, 3.7, 9.0, 40.0])
def test_the_tight_constant_is_the_maximum_and_never_below_it(g) -> None:
    d = 3
    alpha = d / g**2
    exact = np.sqrt(d) / alpha * over_rows(g)
    claimed = ridge_sensitivity(alpha, d)
    assert exact * (1 - 1e-11) <= claimed <= exact * (1 + 5e-7)


@pytest.mark.parametrize(("alpha", "d"), [(0.05, 2), (1.0, 5), (0.4, 1)])
@pytest.mark.parametrize("bound", [0.0, 0.02, 0.4, 50.0])
def test_a_known_bound_gives_the_smaller_of_two_maxima(alpha, d, bound) -> None:
    known = largest(lambda t: np.sqrt(4 - 3 * t**2) * (1 + np.sqrt(d) * bound * t), [(0.0, 1.0)])
    exact = np.sqrt(d) / alpha * min(known, over_rows(np.sqrt(d / alpha)))
    claimed = ridge_sensitivity(alpha, d, bound)
    assert exact * (1 - 1e-11) <= claimed <= exact * (1 + 5e-7)


@pytest.mark.parametrize(("alpha", "d"), [(0.05, 2), (4.0, 5)])
def test_the_papers_constant_is_its_formula(alpha, d) -> None:
    norm = min(alpha**-0.5, d**0.5 / alpha)
    for bound in (None, 0.0, 0.7):
        expected = 2 * d**0.5 * (1 + d**0.5 * (norm if bound is None else bound)) / alpha
        assert ridge_sensitivity(alpha, d, bound, "paper") == pytest.approx(expected, rel=1e-14)


def test_one_feature_is_enough_and_infinities_are_refused() -> None:
    assert ridge_norm_bound(1.0, 1) == 0.5
    for bound in (np.inf, np.nan):
        with pytest.raises(ParameterError, match="bound"):
            ridge_sensitivity(1.0, 1, bound)
    for alpha in (np.inf, -1.0):
        with pytest.raises(ParameterError, match="alpha"):
            ridge_sensitivity(alpha, 1)
