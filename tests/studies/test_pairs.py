"""Two contenders at a time: ratios and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.studies.pairs import FEWEST_PAIRS, bootstrap_interval, time_ratio
from tests.studies.small_runs import frame, run

A, B = ({"solver": name, "formulation": "primal"} for name in "AB")


def test_the_ratio_is_over_the_instances_that_both_solve() -> None:
    runs = frame(
        run("A", seed=0, total_s=1.0),
        run("B", seed=0, total_s=2.0),
        run("A", seed=1, total_s=4.0),
        run("B", seed=1, total_s=2.0),
        run("A", seed=2, total_s=1.0),
        run("B", seed=2, total_s=16.0),
        run("A", seed=3, total_s=0.1),
        run("B", seed=3, outcome="failed"),
        run("A", seed=4, outcome="wrong"),
        run("B", seed=4, outcome="failed"),
        run("A", seed=5, total_s=0.001),
    )
    found = time_ratio(runs, A, B)
    assert found["ratio"] == pytest.approx((0.5 * 2.0 / 16.0) ** (1 / 3))
    assert np.isnan([found["low"], found["high"]]).all()
    assert time_ratio(runs, B, A)["ratio"] == pytest.approx(1 / found["ratio"])


def test_equal_ratios_leave_no_doubt() -> None:
    runs = [run("A", seed=seed, total_s=2.0) for seed in range(6)]
    runs += [run("B", seed=seed, total_s=1.0) for seed in range(6)]
    found = time_ratio(frame(*runs), A, B)
    assert list(found.values()) == pytest.approx([2.0, 2.0, 2.0])


def test_none_solved_by_both_has_no_ratio() -> None:
    found = time_ratio(frame(run("A"), run("B", outcome="failed")), A, B)
    assert np.isnan(list(found.values())).all()


def test_too_few_values_have_no_interval() -> None:
    assert np.isnan(bootstrap_interval(np.arange(FEWEST_PAIRS - 1.0))).all()
    assert np.isfinite(bootstrap_interval(np.arange(float(FEWEST_PAIRS)))).all()


def test_the_interval_covers_and_repeats() -> None:
    values = np.random.default_rng(3).normal(0.7, 0.2, size=200)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=6e-3)
    assert bootstrap_interval(values) == (low, high)


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.0, 3.0]), min_size=FEWEST_PAIRS, max_size=20))
def test_ties_and_outliers_have_a_finite_interval(drawn: list[float]) -> None:
    values = np.array(drawn)
    low, high = bootstrap_interval(values)
    assert values.min() <= low <= high <= values.max()
