"""The papers' own method: right on its grid, and honest about what lies between."""

import numpy as np
import pytest

from convexmarket.allocation import declare
from convexmarket.allocation.formulations import optimal_weights
from convexmarket.allocation.projected_gradient import _grid, descend, projected_gradient
from convexmarket.allocation.search import line_search
from convexmarket.errors import NotSupportedError, ParameterError, UnattainedOptimumError
from tests import one_in
from tests.allocation.builders import COSTS, form, market_of, three_roots, uniform_market


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


def test_descent_counts_its_steps_and_stops_when_nothing_changes():
    start = np.full(3, 1 / 3)
    one = descend(form(), 0.8, start, 0.1, 1, 1e-12)
    assert (one.iterations, one.converged) == (1, False)
    gradient = start / np.linalg.norm(start) + 0.8 * COSTS
    moved = start - 0.1 * gradient
    np.testing.assert_allclose(one.weights, moved - moved.mean() + 1 / 3)
    many = descend(form(), 0.8, start, 0.5, 2000, 1e-12)
    assert many.converged
    assert many.iterations < 2000
    np.testing.assert_allclose(many.weights, optimal_weights(form(), 0.8), atol=1e-9)
    assert descend(form(), 0.8, many.weights, 0.5, 5, 1e-9).iterations == 1


@pytest.mark.parametrize("cap", one_in(2, [1.5, None]))
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
    allocation = projected_gradient(market_of(three_roots()), grid=[40.0, 80.0])
    assert allocation.objective > 2.0
    assert allocation.lower_bound <= 1.9946349581
    assert allocation.gap > 0.1


def test_bound_covers_what_lies_beyond_the_grid():
    allocation = projected_gradient(market_of(three_roots()), grid=40, eta_max=2.0)
    assert allocation.lower_bound <= 1.9946349581 <= allocation.objective


@pytest.mark.parametrize(
    ("grid", "eta_max", "ends", "expected"),
    [
        (4, None, {}, [1.0, 2.0, 3.0, 4.0]),
        (1, None, {}, [4.0]),
        (4, 2.0, {}, [0.5, 1.0, 1.5, 2.0]),
        (3, None, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 1.5, 2.0]),
        (3, 1.5, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 1.25, 1.5]),
        (3, 9.0, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 1.5, 2.0]),
        ([3.0, 1.0], None, {}, [1.0, 3.0]),
        ([1 - 1e-10, 2 + 1e-10], None, {"eta_low": 1.0, "eta_high": 2.0}, [1.0, 2.0]),
    ],
)
def test_the_grid_of_the_papers_method(grid, eta_max, ends, expected):
    np.testing.assert_allclose(_grid(form(**ends), 4.0, grid, eta_max), expected)


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
    market = market_of(form([0.0, 5.0], mu=0.01))
    with pytest.raises(UnattainedOptimumError, match="infinity"):
        projected_gradient(market)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": [1.0, 2.0], "eta_max": 3.0}, "give either the values of eta as grid, or eta_max"),
        ({"grid": [0.0, 1.0]}, "the grid must hold finite numbers > 0"),
        ({"grid": [1.0, np.inf]}, "the grid must hold finite numbers > 0"),
        ({"grid": [1.0, np.nan]}, "the grid must hold finite numbers > 0"),
        ({"grid": []}, "the grid must hold finite numbers > 0"),
        ({"grid": [[1.0], [2.0]]}, "the grid must hold finite numbers > 0"),
        ({"grid": 4, "eta_max": -1.0}, "eta_max must be a finite number > 0, got -1.0"),
        ({"grid": 1.5}, "grid must be a whole number >= 1, got 1.5"),
        ({"grid": ["a"]}, "grid must hold numbers"),
    ],
)
def test_a_grid_that_is_none_is_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        projected_gradient(uniform_market(), **options)


@pytest.mark.parametrize(
    "arguments",
    [
        {"grid": 0},
        {"eta_max": -1.0},
        {"eta_max": np.nan},
        {"step": 0.0},
        {"max_iterations": 0},
        {"max_iterations": "a"},
        {"tol": 0.0},
    ],
)
def test_bad_arguments(arguments):
    with pytest.raises(ParameterError):
        projected_gradient(uniform_market(), **arguments)


def test_grid_outside_the_range_of_eta():
    with pytest.raises(ParameterError, match="EtaRange"):
        projected_gradient(uniform_market(eta_range=(10.0, 20.0)), grid=[5.0, 15.0])
