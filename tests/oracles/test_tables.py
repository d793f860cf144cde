"""Test the comparison of report tables with stored tables."""

import numpy as np
import pandas as pd
import pytest

from tests.oracles.averages import apart_by_chance
from tests.oracles.reports import compare, select
from tests.oracles.store import read

KEYS = ["scenario", "gamma"]
LAYOUTS = {
    "curve": {
        "table": "curve",
        "keys": KEYS,
        "choices": ["curve", "sigma"],
        "columns": {
            "eta": 1e-9,
            "fair": 0,
            "error": {"table": "draws", "column": "test", "statistic": "mean"},
        },
    },
    "sellers": {"table": "sellers", "keys": KEYS, "order": ["id"], "columns": {"paid": 1e-9}},
    "draws": {"table": "draws", "keys": KEYS, "order": ["draw"], "columns": {"test": "noisy"}},
}


def frames(seed=0, shift=0.0):
    """Return the tables of two scenarios, each with 50 draws and 30 sellers."""
    points = pd.DataFrame({"scenario": ["a", "b"], "gamma": [0.1 + 0.2, 1.0]})
    test = np.random.default_rng(seed).normal(0.3 + shift, 0.1, (2, 50))
    curve = points.assign(eta=[2.0, 3.0], fair=[True, False], sigma=1.0, error=test.mean(axis=1))
    draws = points.merge(pd.DataFrame({"draw": range(50)}), how="cross").assign(test=test.ravel())
    sellers = points.merge(pd.DataFrame({"id": range(30)}), how="cross")
    sellers["paid"] = np.sqrt(sellers["id"]) + sellers["gamma"]
    return {"curve": curve, "draws": draws, "sellers": sellers}


def compared(new):
    stored = select(LAYOUTS, frames())
    return compare({"tables": LAYOUTS}, stored, select(LAYOUTS, new))


def test_rounding_noise_and_the_order_of_rows_are_ignored():
    assert compared(frames(seed=1)) == []
    new = {name: frame[::-1].reset_index(drop=True) for name, frame in frames().items()}
    assert compared(new) == []
    new = frames()
    new["curve"]["gamma"] = [0.3, 1.0 + 1e-15]
    new["sellers"]["gamma"] = np.repeat([0.3, 1.0], 30)
    new["draws"]["gamma"] = np.repeat([0.3, 1.0], 50)
    new["curve"]["eta"] *= 1 + 1e-12
    assert compared(new) == []


@pytest.mark.parametrize(
    ("table", "column", "row", "value"),
    [
        ("curve", "eta", 1, 3.00001),
        ("curve", "eta", 1, np.nan),
        ("curve", "fair", 0, False),
        ("curve", "gamma", 0, 0.31),
        ("sellers", "paid", 40, 4.5),
        ("draws", "scenario", 0, "b"),
    ],
)
def test_a_changed_cell_is_detected(table, column, row, value):
    new = frames()
    new[table].loc[row, column] = value
    assert compared(new)


def test_exchanged_rows_of_sellers_are_detected():
    new = frames()
    new["sellers"].loc[[3, 7], "paid"] = new["sellers"].loc[[7, 3], "paid"].to_numpy()
    (text,) = compared(new)
    assert text.startswith("sellers.paid[0]")


def test_a_shifted_mean_is_detected_with_and_without_its_draws():
    new = frames(seed=1, shift=0.2)
    assert {text.partition("[")[0] for text in compared(new)} == {"curve.error", "draws.test"}
    del new["draws"]
    assert "draws: missing" in compared(new)
    assert sum(text.startswith("curve.error") for text in compared(new)) == 2


def test_only_noisy_values_are_compared_in_rows_with_another_choice():
    new = frames()
    new["curve"].loc[0, ["sigma", "eta"]] = 5.0
    assert compared(new) == []
    new["curve"].loc[0, "error"] = 0.9
    (text,) = compared(new)
    assert text.startswith("curve.error[0]")


def test_a_missing_column_is_reported():
    new = frames()
    del new["sellers"]["paid"]
    assert compared(new) == ["sellers: missing ['paid']"]


def test_every_stored_report_is_compared():
    for record in read("reports"):
        layouts, stored = record["spec"]["tables"], record["answer"]
        assert stored.keys() == layouts.keys()
        assert compare(record["spec"], stored, stored) == []
        assert len(compare(record["spec"], stored, {})) == len(layouts)


def test_averages_are_compared_with_both_standard_errors():
    stored = {"mean": [1.0, 2.0, 0.0], "error": [0.1, 0.0, 0.0]}
    assert apart_by_chance(stored, {"mean": [1.5, 2.0, 0.0], "error": [0.1, 0.0, 0.0]}, "x") == []
    new = {"mean": [1.6, 2.1, np.nan], "error": [0.1, 0.0, 0.0]}
    assert len(apart_by_chance(stored, new, "x")) == 3
