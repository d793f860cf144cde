"""The exact solver gives the same result in passes over unsorted partitions as after a sort."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.allocation import exact_solver, passes
from convexmarket.allocation.exact_solver import solve_exact
from convexmarket.allocation.passes import blocks_of, screen_sellers
from convexmarket.errors import ConvexMarketError
from convexmarket.market import StandardForm
from tests.allocation.builders import forms, large_form, ranged_forms


def solution(form, costs=None):
    """Solve in passes, and return the solution or the type of the raised error."""
    try:
        return solve_exact(form, costs and costs())
    except ConvexMarketError as error:
        return type(error)


def assert_same(form, n_parts=3):
    psi, rng = form.virtual_costs, np.random.default_rng(0)
    place = rng.integers(n_parts, size=psi.size)  # some parts can be empty
    parts = [rng.permutation(psi[place == part]) for part in range(n_parts)]

    def map_parts(work):
        return [work(blocks_of(part)) for part in parts]

    expected, ends = solution(form), (psi.min(), psi.max(initial=0.0, where=psi < np.inf))
    result = solution(form, lambda: screen_sellers(map_parts, form, psi.size, *ends, 0)[0])
    if isinstance(expected, type):
        assert result is expected
        return
    assert result.objective == pytest.approx(expected.objective, rel=1e-12)
    assert result.objective - result.lower_bound <= 1e-11 * result.objective
    np.testing.assert_allclose(result.weights, expected.weights, rtol=1e-8, atol=1e-11)


@given(forms(), st.integers(1, 5))
def test_passes_give_the_same_solution_as_sorting(form, n_parts):
    if form.mu > 0:
        assert_same(form, n_parts)


@example(StandardForm(np.zeros(1), 1.0, 1.0, 1.0, eta_low=1.0, eta_high=1.0))
@given(ranged_forms())
def test_passes_respect_ranges_of_eta(form):
    if form.mu > 0:
        assert_same(form)


@pytest.mark.parametrize(("shift", "cells"), [(45, 9), (45, 20), (57, 2)])
@pytest.mark.parametrize(
    "name",
    ["few bought", "nearly all bought", "tightly capped", "ties", "skewed, capped", "infinite"],
)
def test_cells_of_any_width_give_the_same_solution(name, shift, cells, monkeypatch):
    monkeypatch.setattr(passes, "_SHIFT", shift)
    monkeypatch.setattr(passes, "_CELLS", cells)
    assert_same(large_form(name, 3_000))


def test_a_large_market_is_solved_in_passes(monkeypatch):
    form = StandardForm(np.random.default_rng(0).random(400) + 0.1, 1.0, 2.0, 0.5)
    expected = solve_exact(form)
    monkeypatch.setattr(exact_solver, "_WORTH_PASSES", 100)
    monkeypatch.setattr(np, "sort", None)  # the solver must not sort the whole array
    assert solve_exact(form).objective == pytest.approx(expected.objective, rel=1e-14)
