"""Test adaptive quadrature of several functions in one call."""

import numpy as np
import pytest

from convexmarket.incentives import quadrature


@pytest.mark.parametrize("tolerance", [1e-3, 1e-7, 1e-11])
def test_each_integral_satisfies_its_tolerance(tolerance):
    """The integrands are smooth, kinked or discontinuous, and each has a tolerance."""
    functions = [np.exp, lambda z: np.abs(z - 0.3), lambda z: np.where(z < 0.7, 2.0, 0.5), np.sqrt]
    low, high = np.array([-1.0, 0.0, 0.0, 0.0]), np.array([2.0, 1.0, 1.0, 4.0])
    exact = np.array([np.exp(2) - np.exp(-1), 0.29, 1.55, 16 / 3])

    def f(k, z):
        return np.choose(k, [function(np.abs(z) if i == 3 else z)
                             for i, function in enumerate(functions)])  # fmt: skip

    result, error = quadrature.adaptive(f, low, high, np.full(4, tolerance))
    assert np.all(error <= 30 * tolerance)
    assert np.abs(result - exact).max() <= 30 * tolerance + 1e-11
    mixed, _ = quadrature.adaptive(f, low, high, np.array([1e-3, 1e-11, 1e-3, 1e-3]))
    assert abs(mixed[1] - exact[1]) < 1e-10
