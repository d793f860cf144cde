"""The papers' own method: right on its grid, and honest about what lies between."""

import numpy as np
import pytest

from convexmarket.allocation import declare
from convexmarket.allocation.projected_gradient import descend, projected_gradient
from convexmarket.allocation.search import line_search
from convexmarket.errors import NotSupportedError, ParameterError, UnattainedOptimumError
from convexmarket.market import Market
from convexmarket.sellers import Sellers


def uniform_market(m=30, mu=1.0, sigma=100.0, **constraints):
    psi = 2 * np.random.default_rng(0).uniform(0.02, 0.10, m) - 0.02
    sellers = Sellers(virtual_costs=psi)
    return Market.standard(sellers, mu=mu, sigma=sigma, gamma=0.001, **constraints)


def three_roots():
    return Market.standard(Sellers(virtual_costs=[0.002] + [1.0] * 44), mu=3, sigma=2.5, gamma=0.25)


@pytest.mark.parametrize("cap", [None, 1.5])
@pytest.mark.parametrize("eta", [300.0, 1500.0])
def test_descent_finds_the_conic_optimum(cap, eta):
    market = uniform_market(cap=cap)
    form = market.standard_form
    start = np.full(30, 1 / 30)
    descent = descend(form, form.gamma * eta, start, 1 / np.sqrt(30), 5000, 1e-10)
    problem = declare(market, eta)
    problem.solve(solver="CLARABEL")
    assert descent.converged
    np.testing.assert_allclose(descent.weights, problem.weights, atol=1e-5)


@pytest.mark.parametrize("cap", [None, 1.5])
def test_lower_bound_is_honest_and_a_finer_grid_closes_the_gap(cap):
    market = uniform_market(cap=cap)
    truth = line_search(market, gap=1e-8)
    allocations = [projected_gradient(market, grid=count) for count in (5, 50, 500)]
    for allocation in allocations:
        assert allocation.method == "projected_gradient"
        assert allocation.lower_bound <= truth.objective * (1 + 1e-12)
        assert allocation.objective >= truth.lower_bound * (1 - 1e-12)
        assert all(record.status == "converged" for record in allocation.solves)
    gaps = [allocation.gap for allocation in allocations]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 1e-4
    assert [len(allocation.solves) for allocation in allocations] == [5, 50, 500]


def test_a_grid_misses_the_global_minimum_and_its_gap_says_so():
    allocation = projected_gradient(three_roots(), grid=[10.0, 20.0, 40.0, 80.0])
    assert allocation.objective > 2.0
    assert allocation.lower_bound <= 1.9946349581
    assert allocation.gap > 0.1


def test_bound_covers_what_lies_beyond_the_grid():
    allocation = projected_gradient(three_roots(), grid=40, eta_max=2.0)
    assert allocation.lower_bound <= 1.9946349581 <= allocation.objective


def test_range_of_eta_is_the_grid():
    allocation = projected_gradient(uniform_market(eta_range=(10.0, 20.0)), grid=11)
    np.testing.assert_allclose([record.eta for record in allocation.solves], np.arange(10, 21))
    assert allocation.binding == ("eta_high",)
    assert allocation.gap < 1e-8


def test_unfinished_descent_is_recorded():
    allocation = projected_gradient(uniform_market(), grid=3, max_iterations=1)
    assert {record.status for record in allocation.solves} == {"iteration limit"}
    assert allocation.lower_bound <= line_search(uniform_market()).objective


def test_without_spread_a_step_must_be_given():
    with pytest.raises(NotSupportedError, match="give step"):
        projected_gradient(uniform_market(mu=0.0))
    allocation = projected_gradient(uniform_market(mu=0.0), step=100.0, grid=200)
    assert allocation.n_bought == 1


def test_optimum_at_zero_is_refused():
    with pytest.raises(UnattainedOptimumError, match="sigma"):
        projected_gradient(uniform_market(sigma=0.0))


def test_optimum_at_infinity_is_refused():
    market = Market.standard(Sellers(virtual_costs=[0.0, 5.0]), mu=0.01, sigma=1, gamma=1)
    with pytest.raises(UnattainedOptimumError, match="infinity"):
        projected_gradient(market)


@pytest.mark.parametrize(
    "arguments",
    [
        {"grid": 0},
        {"grid": []},
        {"grid": [0.0, 1.0]},
        {"grid": [1.0, np.inf]},
        {"grid": [1.0], "eta_max": 2.0},
        {"eta_max": -1.0},
        {"eta_max": np.nan},
        {"step": 0.0},
        {"max_iterations": 0},
        {"tolerance": 0.0},
    ],
)
def test_bad_arguments(arguments):
    with pytest.raises(ParameterError):
        projected_gradient(uniform_market(), **arguments)


def test_grid_outside_the_range_of_eta():
    with pytest.raises(ParameterError, match="EtaRange"):
        projected_gradient(uniform_market(eta_range=(10.0, 20.0)), grid=[5.0, 15.0])
