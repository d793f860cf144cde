"""Performance profiles, against curves drawn by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.studies.profiles import FLOOR, profiles, step_function
from tests.studies.small_runs import frame, run


def curve(table: pd.DataFrame, of: str, solver: str) -> list[list[float]]:
    rows = table[(table.of == of) & (table.solver == solver)]
    return rows[["tau", "share"]].to_numpy().tolist()


def test_time_is_relative_to_the_fastest_on_each_instance() -> None:
    runs = frame(
        run("A", seed=0, total_s=1.0),
        run("B", seed=0, total_s=3.0),
        run("A", seed=1, total_s=8.0),
        run("B", seed=1, total_s=2.0),
        run("A", seed=2, total_s=5.0),
        run("B", seed=2, outcome="time limit"),
        run("A", seed=3, outcome="failed"),
        run("B", seed=3, outcome="wrong", total_s=0.1),
    )
    table = profiles(runs)
    assert curve(table, "time", "A") == [[1.0, 0.5], [4.0, 0.75]]
    assert curve(table, "time", "B") == [[1.0, 0.25], [3.0, 0.5]]


def test_the_exact_method_does_not_set_the_pace() -> None:
    runs = frame(run("exact", total_s=0.001), run("A", total_s=1.0), run("B", total_s=2.0))
    table = profiles(runs)
    assert curve(table, "time", "A") == [[1.0, 1.0]]
    assert curve(table, "time", "B") == [[1.0, 0.0], [2.0, 1.0]]
    assert curve(table, "time", "exact") == []
    assert curve(table, "accuracy", "exact") == [[FLOOR, 0.0], [1e-9, 1.0]]


def test_accuracy_is_absolute_and_has_a_floor() -> None:
    runs = frame(
        run("A", seed=0, accuracy=0.0),
        run("A", seed=1, accuracy=1e-17),
        run("A", seed=2, accuracy=1e-3, outcome="wrong"),
        run("A", seed=3, outcome="crashed"),
    )
    assert curve(profiles(runs), "accuracy", "A") == [[FLOOR, 0.5], [1e-3, 0.75]]


def test_shares_are_of_the_instances_that_a_contender_takes() -> None:
    runs = frame(
        run("A", seed=0),
        run("A", seed=1),
        run("B", seed=0),
        run("B", seed=1, outcome="unsupported"),
    )
    assert curve(profiles(runs), "time", "B") == [[1.0, 1.0]]


def test_what_solves_nothing_has_a_level_curve() -> None:
    runs = frame(run("A", outcome="failed"), run("B", outcome="crashed"))
    assert curve(profiles(runs), "time", "A") == [[1.0, 0.0]]


@given(st.lists(st.one_of(st.floats(1.0, 1e6), st.just(np.inf)), min_size=1, max_size=30))
def test_a_profile_is_a_distribution_function(values: list[float]) -> None:
    steps = step_function(values, start=1.0)
    assert steps.tau.is_monotonic_increasing
    assert steps.tau.is_unique
    assert steps.share.is_monotonic_increasing
    assert steps.tau.iloc[0] == 1.0
    for tau, share in steps.itertuples(index=False):
        assert share == pytest.approx(sum(value <= tau for value in values) / len(values))
    assert steps.share.iloc[-1] == pytest.approx(np.isfinite(values).mean())
