"""Gradient descent finds the optimum at a fixed eta, but a grid of eta can miss the optimum."""

import numpy as np
import pytest

import convexmarket as cm
from problems.papers.methods.projected_gradient import descend, projected_gradient
from tests.allocation.builders import market_of, three_roots, uniform_market


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("eta", [300.0, 1500.0])
def test_descent_finds_the_conic_optimum(cap, eta):
    market, start = uniform_market(cap=cap), np.full(30, 1 / 30)
    weights, _, converged = descend(market, eta, start, max_iterations=5000, tol=1e-10)
    problem = cm.declare(market, eta)
    problem.solve(solver="CLARABEL")
    assert converged
    np.testing.assert_allclose(weights, problem.weights, atol=1e-5)
    assert descend(market, eta, start, max_iterations=1)[1:] == (1, False)


def test_a_grid_misses_the_global_minimum_and_reports_a_gap():
    market = market_of(three_roots())
    assert projected_gradient(market, [40.0, 80.0])[2] > 0.1
    excesses = [projected_gradient(market, np.linspace(0.5, 8, n))[2] for n in (5, 50, 500)]
    assert excesses[0] > excesses[1] > excesses[2] > 0
    assert excesses[2] < 1e-4
