"""Formulations and conic solvers."""

import time
from itertools import cycle

import numpy as np
import pytest

from convexmarket.allocation import declare
from convexmarket.market import Market
from convexmarket.sellers import Sellers

ETAS = (900.0, 950.0, 1000.0, 1050.0, 1100.0)


def uniform_market(m, cap=None):
    psi = 2 * np.random.default_rng(0).uniform(0.02, 0.10, m) - 0.02
    return Market.standard(Sellers(virtual_costs=psi), mu=1, sigma=100, gamma=0.001, cap=cap)


def seconds(action, eta):
    """Measure the total time of an action and its time outside the solver."""
    start = time.perf_counter()
    problem = action(eta)
    total = time.perf_counter() - start
    return total, total - (problem.solver_stats.solve_time or 0.0)


@pytest.mark.parametrize("m", [200, 1000])
@pytest.mark.parametrize(
    ("formulation", "solver"),
    [
        ("primal", "CLARABEL"),
        ("primal", "ECOS"),
        ("dual", "CLARABEL"),
        ("dual", "ECOS"),
        ("projection", "CLARABEL"),
        ("projection", "OSQP"),
    ],
)
def test_a_compiled_problem_is_solved_at_another_eta(benchmark, m, formulation, solver):
    """Measure the solution of a new declaration, relative to the solution of a compiled problem.

    The second ratio excludes the time in the solver, which should be equal for the two methods.
    """
    market = uniform_market(m)
    problem = declare(market, ETAS[0], formulation)
    problem.solve(solver=solver)

    def solve_again(eta):
        problem.eta = eta
        problem.solve(solver=solver)
        return problem

    def build(eta):
        built = declare(market, eta, formulation)
        built.solve(solver=solver)
        return built

    # Alternate the two methods, so that the load of the machine affects them equally.
    pairs = [(seconds(build, eta), seconds(solve_again, eta)) for eta in 4 * ETAS]
    built, again = np.median(pairs, axis=0)
    benchmark.extra_info["building again"] = built[0] / again[0]
    benchmark.extra_info["outside the solver"] = built[1] / again[1]
    etas = cycle(ETAS)
    benchmark(lambda: solve_again(next(etas)))
