"""Fitted exponents, against powers that are known and a regression that is not ours."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import linregress
from scipy.stats import t as student

from convexmarket.lab.study.scaling import fit_exponent, scaling
from tests.lab.study.small_runs import frame, only, run

SIZES = (100, 1_000, 10_000)


def test_a_power_is_found_exactly() -> None:
    runs = frame(*(run("ECOS", size, total_s=0.002 * size**1.5) for size in SIZES))
    row = only(scaling(runs), solver="ECOS", solve="first")
    assert row["exponent"] == pytest.approx(1.5)
    assert (row["low"], row["high"]) == pytest.approx((1.5, 1.5))
    assert (row["sizes"], row["runs"]) == (3, 3)
    assert only(scaling(runs), solver="ECOS", solve="again")["exponent"] == pytest.approx(0.0)


def test_the_interval_is_student_s() -> None:
    sizes = pd.Series([10, 100, 1_000, 10, 100, 1_000])
    times = pd.Series([1.0, 12.0, 90.0, 1.3, 8.0, 110.0])
    fit = fit_exponent(sizes, times, pd.Series([""] * 6))
    line = linregress(np.log(sizes), np.log(times))
    half = student.ppf(0.975, 4) * line.stderr
    assert fit.exponent == pytest.approx(line.slope)
    assert (fit.low, fit.high) == pytest.approx((line.slope - half, line.slope + half))


def test_two_sizes_have_no_interval_and_one_has_no_exponent() -> None:
    two = fit_exponent(pd.Series([10, 1_000]), pd.Series([1.0, 100.0]), pd.Series(["", ""]))
    assert two.exponent == pytest.approx(1.0)
    assert np.isnan([two.low, two.high]).all()
    one = fit_exponent(pd.Series([10, 10]), pd.Series([1.0, 2.0]), pd.Series(["", ""]))
    assert np.isnan([one.exponent, one.low, one.high]).all()
    assert (one.sizes, one.runs) == (1, 2)


def test_problems_of_one_size_each_say_nothing_of_growth() -> None:
    seeds = pd.Series([10] * 6)
    times = pd.Series([1.0, 2.0, 1.5, 1.2, 3.0, 0.7])
    one = fit_exponent(seeds, times, pd.Series(["a"] * 6))
    assert np.isnan([one.exponent, one.low, one.high]).all()
    assert (one.sizes, one.runs) == (1, 6)
    sizes = pd.Series([10, 10, 300, 300, 7_000, 7_000])
    three = fit_exponent(sizes, times, pd.Series(list("aabbcc")))
    assert np.isnan([three.exponent, three.low, three.high]).all()
    assert (three.sizes, three.runs) == (3, 6)


def test_a_third_size_of_another_problem_gives_no_interval() -> None:
    sizes = pd.Series([10, 100, 10, 100, 1_000, 1_000])
    times = pd.Series([1.0, 10.0, 1.0, 10.0, 3.0, 5.0])
    fit = fit_exponent(sizes, times, pd.Series(list("aaaabb")))
    assert fit.exponent == pytest.approx(1.0)
    assert np.isnan([fit.low, fit.high]).all()


def test_only_solved_runs_count() -> None:
    runs = frame(
        run("ECOS", 100, total_s=1.0),
        run("ECOS", 1_000, total_s=10.0),
        run("ECOS", 10_000, total_s=0.1, outcome="wrong"),
    )
    row = only(scaling(runs), solver="ECOS", solve="first")
    assert (row["exponent"], row["sizes"], row["runs"]) == (pytest.approx(1.0), 2, 2)


def test_a_harder_problem_at_large_sizes_does_not_pass_for_growth() -> None:
    runs = frame(
        *(run("ECOS", size, total_s=size / 100) for size in (100, 1_000)),
        *(run("ECOS", size, problem="hard", total_s=size) for size in (10_000, 100_000)),
    )
    assert only(scaling(runs), solver="ECOS", solve="first")["exponent"] == pytest.approx(1.0)


def test_nothing_solved_is_said_so() -> None:
    runs = frame(run("ECOS", 100, outcome="failed"), run("SCS", 100))
    row = only(scaling(runs), solver="ECOS", solve="first")
    assert np.isnan(row["exponent"])
    assert row["runs"] == 0


@given(st.floats(0.0, 3.0), st.floats(1e-6, 10.0), st.floats(0.1, 10.0))
def test_units_of_time_do_not_matter(power: float, level: float, unit: float) -> None:
    sizes = pd.Series([10, 30, 300, 900])
    noise = np.array([1.0, 1.2, 0.9, 1.1])
    family = pd.Series(["a", "a", "b", "b"])
    one = fit_exponent(sizes, level * noise * sizes**power, family)
    other = fit_exponent(sizes, unit * level * noise * sizes**power, family)
    assert one.exponent == pytest.approx(other.exponent, abs=1e-9)
    assert one.low < one.exponent < one.high
