"""Vectorised quadrature, first roots, and integrals of the exact curve."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.incentives import quadrature


@st.composite
def intervals(draw):
    places = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
    breakpoints = np.unique(draw(st.lists(places, max_size=5)))
    pairs = draw(st.lists(st.tuples(places, places), min_size=1, max_size=4))
    return np.array(pairs)[:, 0], np.array(pairs)[:, 1], breakpoints


@given(intervals())
@example((np.array([0.3, 0.8]), np.array([0.2, 0.2]), np.array([0.25, 0.5])))
def test_intervals_are_cut_exactly_at_their_inner_breakpoints(case):
    """An interval that ends before it starts gives no pieces."""
    start, end, breakpoints = case
    owner, low, high = quadrature.cut(start, end, breakpoints)
    assert np.all(low <= high)
    for k, (a, b) in enumerate(zip(start, end, strict=True)):
        result = [(x, y) for x, y in zip(low[owner == k], high[owner == k], strict=True) if x < y]
        ends = [a, *(z for z in breakpoints if a < z < b), b]
        assert result == ([] if a >= b else list(pairwise(ends)))


@pytest.mark.parametrize("tolerance", [1e-3, 1e-7, 1e-11])
def test_each_integral_satisfies_its_tolerance(tolerance):
    """The functions are smooth, kinked or discontinuous, with individual tolerances."""
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


@given(
    level=st.lists(st.floats(-1.0, 4.0), min_size=1, max_size=5),
    start=st.floats(0.0, 0.9),
    shape=st.sampled_from(["line", "steps", "jump to infinity", "flat"]),
)
@example(level=[0.5], start=0.0, shape="flat")
@example(level=[1.0, 3.0], start=0.0, shape="steps")
def test_first_root_returns_the_first_report_at_a_level(level, start, shape):
    shapes = {
        "line": lambda z: 3.0 * z,
        "steps": lambda z: np.floor(4.0 * z),
        "jump to infinity": lambda z: np.where(z < 0.6, z, np.inf),
        "flat": lambda z: np.clip(4.0 * z - 1.5, 0.0, 0.5),
    }
    starts = np.full(len(level), start)
    result = quadrature.first_root(
        lambda z, at: shapes[shape](z) - at, np.array(level), starts, 1.0, 1.0
    )
    for wanted, z in zip(level, result, strict=True):
        assert start <= z <= 1.0
        assert shapes[shape](z) >= wanted or z == 1.0
        before = max(start, z - 1e-12)
        assert before == start or shapes[shape](before) < wanted
