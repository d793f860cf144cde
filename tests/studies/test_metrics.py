"""Compare the counts, means and profiles of solvers with manually computed values."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.studies.solver_study import summarise
from convexmarket.studies.verdicts import COUNTED, means, shifted_geometric_mean
from tests.studies.small_runs import LIMIT, frame, only, run


def test_outcomes_are_counted() -> None:
    runs = frame(
        *(run("ECOS", seed=seed) for seed in range(8)),
        run("ECOS", seed=8, outcome="wrong"),
        run("ECOS", seed=9, outcome="time limit"),
        run("ECOS", seed=10, outcome="unsupported"),
    )
    row = only(means(runs), solver="ECOS")
    assert (row["runs"], row["solved"], row["wrong"], row["time limit"]) == (10, 8, 1, 1)
    assert row["success"] == 0.8


def test_the_time_of_an_unsolved_run_is_its_time_limit() -> None:
    runs = frame(
        run("ECOS", seed=0, total_s=2.0),
        run("ECOS", seed=1, total_s=8.0),
        run("SCS", seed=0, total_s=1.0),
        run("SCS", seed=1, total_s=1.0, outcome="wrong"),
    )
    table = means(runs, shift=0.0)
    ecos, scs = only(table, solver="ECOS"), only(table, solver="SCS")
    assert ecos["total_s"] == pytest.approx(4.0)
    assert scs["total_s"] == pytest.approx(np.sqrt(1.0 * LIMIT))
    assert (ecos["relative"], ecos["instances"]) == (1.0, 2)
    assert scs["relative"] == pytest.approx(np.sqrt(LIMIT) / 4.0)
    assert ecos["again_ratio"] == pytest.approx(np.sqrt(0.5 / 2.0 * 0.5 / 8.0))
    assert scs["again_ratio"] == pytest.approx(0.5)
    assert scs["warm_ratio"] == pytest.approx(0.25)


seconds = st.floats(1e-3, 50.0)


@given(st.lists(seconds, min_size=1, max_size=12), st.floats(0.0, 1.0))
def test_a_shifted_mean_lies_between_the_extremes(values: list[float], shift: float) -> None:
    mean = shifted_geometric_mean(pd.DataFrame({"x": values}), shift)["x"]
    assert min(values) * (1 - 1e-9) - 1e-12 <= mean <= max(values) * (1 + 1e-9) + 1e-12
    if shift == 0.0:
        assert mean == pytest.approx(np.exp(np.mean(np.log(values))))


outcomes = st.sampled_from([*COUNTED, "unsupported"])
cells = st.lists(st.tuples(outcomes, seconds), min_size=8, max_size=8)


@given(cells)
def test_frames_are_consistent_for_any_outcomes(drawn: list[tuple[str, float]]) -> None:
    places = [(solver, seed) for solver in ("ECOS", "SCS") for seed in range(4)]
    pairs = zip(places, drawn, strict=True)
    runs = frame(*[run(s, seed=k, outcome=o, total_s=t) for (s, k), (o, t) in pairs])
    if (runs.outcome == "unsupported").all():
        return
    table, profiles = summarise(runs).values()
    assert (table[list(COUNTED)].sum(axis=1) == table.runs).all()
    assert (table.relative.dropna() >= 1.0).all()
    assert (profiles.share.between(0.0, 1.0)).all()
    for _, steps in profiles.groupby("solver"):
        assert steps.tau.iloc[0] == 1.0
        assert steps.tau.is_unique
        assert steps.tau.is_monotonic_increasing
        assert steps.share.is_monotonic_increasing
    rates = table.set_index("solver").success
    assert dict(profiles.groupby("solver").share.max()) == pytest.approx(dict(rates))
