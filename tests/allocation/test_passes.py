"""Passes over unsorted costs give the same result as sorting, for any partitions."""

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


class InPieces:
    """Costs in parts of any length, in any order, some of them empty."""

    def __init__(self, psi, rng, n_parts):
        self.n_passes = 0
        place = rng.integers(n_parts, size=psi.size)
        self._parts = [rng.permutation(psi[place == part]) for part in range(n_parts)]

    def each(self, work):
        self.n_passes += 1
        return [work(blocks_of(part)) for part in self._parts]


def answer(form, costs=None):
    """Return the solution, or the type of the raised error."""
    try:
        return solve_exact(form, costs and costs())
    except ConvexMarketError as error:
        return type(error)


def assert_same(form, most=0, n_parts=3):
    parts = InPieces(form.virtual_costs, np.random.default_rng(0), n_parts)
    expected = answer(form)
    result = answer(
        form, lambda: screen_sellers(parts.each, form, form.virtual_costs.size, most)[0]
    )
    if isinstance(expected, type):
        assert result is expected
        return
    assert result.objective == pytest.approx(expected.objective, rel=1e-12)
    assert result.objective - result.lower_bound <= 1e-11 * result.objective
    np.testing.assert_allclose(result.weights, expected.weights, rtol=1e-8, atol=1e-11)


@given(forms(), st.integers(0, 12), st.integers(1, 5))
def test_passes_give_the_same_solution_as_sorting(form, most, n_parts):
    if form.mu > 0:
        assert_same(form, most=most, n_parts=n_parts)


@example(StandardForm(np.zeros(1), 1.0, 1.0, 1.0, eta_low=1.0, eta_high=1.0), 0)
@given(ranged_forms(), st.integers(0, 12))
def test_passes_respect_ranges_of_eta(form, most):
    if form.mu > 0:
        assert_same(form, most=most)


@pytest.mark.parametrize("shift", [45, 52, 57])
@pytest.mark.parametrize(
    "name",
    ["few bought", "nearly all bought", "tightly capped", "ties", "skewed, capped", "infinite"],
)
def test_cells_of_any_width_give_the_same_solution(name, shift, monkeypatch):
    monkeypatch.setattr(passes, "_FIRST_SHIFT", shift)
    monkeypatch.setattr(passes, "_SPLIT", 4)
    form = large_form(name, 3_000)
    for most in (0, 100, 3_000):
        assert_same(form, most=most)


def test_a_large_market_is_solved_in_passes(monkeypatch):
    form = StandardForm(np.random.default_rng(0).random(400) + 0.1, 1.0, 2.0, 0.5)
    expected = solve_exact(form)
    monkeypatch.setattr(exact_solver, "_WORTH_PASSES", 100)
    monkeypatch.setattr(np, "sort", None)  # the whole array is never sorted
    assert solve_exact(form).objective == pytest.approx(expected.objective, rel=1e-14)
