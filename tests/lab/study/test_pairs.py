"""Two contenders at a time: ratios, intervals, and who solves alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab.study.pairs import FEWEST_PAIRS, bootstrap_interval, pairs
from tests.lab.study.small_runs import frame, only, run


def test_the_ratio_is_paired_and_shares_are_of_what_both_take() -> None:
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
        run("B", seed=5, outcome="unsupported"),
    )
    row = only(pairs(runs), solver="A", other_solver="B")
    assert row["ratio"] == pytest.approx((0.5 * 2.0 / 16.0) ** (1 / 3))
    assert (row["instances"], row["pairs"]) == (5, 3)
    assert (row["alone"], row["other_alone"]) == (0.2, 0.0)
    assert np.isnan([row["low"], row["high"]]).all()


def test_formulations_of_one_solver_are_compared_and_every_size_is() -> None:
    runs = frame(
        *(run("A", size, total_s=1.0) for size in (10, 20)),
        *(run("A", size, formulation="dual", total_s=size) for size in (10, 20)),
    )
    table = pairs(runs)
    assert only(table, size=10)["ratio"] == pytest.approx(0.1)
    assert only(table, size=20)["ratio"] == pytest.approx(0.05)
    row = only(table)
    assert (row["formulation"], row["other_formulation"]) == ("primal", "dual")


def test_equal_ratios_leave_no_doubt() -> None:
    runs = [run("A", seed=seed, total_s=2.0) for seed in range(6)]
    runs += [run("B", seed=seed, total_s=1.0) for seed in range(6)]
    row = only(pairs(frame(*runs)))
    assert (row["ratio"], row["low"], row["high"]) == pytest.approx((2.0, 2.0, 2.0))


def test_one_contender_makes_no_pair_and_nothing_in_common_makes_none() -> None:
    table = pairs(frame(run("A", seed=0)))
    assert table.empty
    assert "ratio" in table
    assert pairs(frame(run("A", seed=0), run("B", seed=1))).empty


def test_none_solved_by_both_has_no_ratio() -> None:
    row = only(pairs(frame(run("A"), run("B", outcome="failed"))))
    assert np.isnan(row["ratio"])
    assert (row["pairs"], row["alone"]) == (0, 1.0)


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
