"""Test comparisons of the tables of two reports, and of two quantities for a headline."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError
from convexmarket.report import compare, compare_reports, format_number
from convexmarket.report.comparison import ABSENT

POINTS = pd.DataFrame({"model": ["a", "a", "b", "b"], "gamma": [0.1, 1.0, 0.1, 1.0]})
POINTS["error"], POINTS["status"] = [0.25, 0.5, 0.75, np.nan], ["ok", "ok", None, "failed"]
POINTS["solve_seconds"] = [1.0, 2.0, 3.0, 4.0]


def report_of(points, holds=True, **settings):
    report = cm.Report("x", settings=settings)
    report.add(points, name="points", keys=["model", "gamma"])
    report.claim("a is better", holds=holds)
    return report


# ------------------------------------------------------------------------------ two reports


def results(a, b, **options):
    """Return the differences between the tables of two reports."""
    changes = compare_reports(a, b, **options)
    return changes[changes.part == "result"].drop(columns="part")


@given(st.permutations(range(4)))
def test_the_order_of_rows_and_times_are_not_differences(order):
    other = POINTS.iloc[order].assign(solve_seconds=9.0)
    assert compare_reports(report_of(POINTS), report_of(other)).empty


@given(
    st.integers(0, 3),
    st.sampled_from(["error", "status"]),
    st.sampled_from([1.0 + 1e-6, 2.0, -1.0, np.inf]),
)
def test_a_changed_cell_is_named_by_its_keys(row, column, factor):
    changed = POINTS.copy()
    new = "other" if column == "status" else (POINTS.error.fillna(1.0) * factor)[row]
    changed.loc[row, column] = new
    (cell,) = results(report_of(POINTS), report_of(changed)).itertuples()
    assert (cell.table, cell.column) == ("points", column)
    assert cell.row == f"{POINTS.model[row]}, gamma {POINTS.gamma[row]:g}"


def test_numbers_within_the_tolerance_are_equal():
    other = POINTS.assign(error=POINTS.error * (1 + 1e-7))
    assert not results(report_of(POINTS), report_of(other)).empty
    assert results(report_of(POINTS), report_of(other), tolerance=1e-6).empty
    with pytest.raises(ParameterError, match="tolerance"):
        compare_reports(report_of(POINTS), report_of(other), tolerance=-1)


def test_verdicts_come_first_and_settings_are_listed_by_path():
    a = report_of(POINTS, holds=True, run={"seed": 0, "gammas": [1, 2]})
    b = report_of(POINTS.assign(error=0.0), holds=False, run={"seed": 1, "gammas": [1, 2]})
    changes = compare_reports(a, b)
    assert changes.loc[0, ["column", "a", "b"]].tolist() == ["verdict", "holds", "does not hold"]
    settings = changes[changes.part == "setting"]
    assert settings[["row", "a", "b"]].to_numpy().tolist() == [["run.seed", 0, 1]]


def test_rows_columns_and_tables_in_only_one_report_are_named():
    other = report_of(POINTS.iloc[1:].drop(columns="status"))
    other.add(pd.DataFrame({"n": [1]}), name="more")
    changes = results(report_of(POINTS), other)
    assert set(changes.loc[changes.b == ABSENT, "table"]) == {"points"}
    missing = changes[changes.table == "points"].set_index("row").column
    assert missing["a, gamma 0.1"].tolist() == ["model", "gamma", "error", "status"]
    assert missing["a, gamma 1"] == missing["b, gamma 1"] == "status"
    assert changes[changes.table == "more"][["a", "b"]].to_numpy().tolist() == [[ABSENT, 1]]


def test_a_comparison_reads_folders(tmp_path):
    report_of(POINTS).write(tmp_path / "a")
    report_of(POINTS.assign(error=1.0)).write(tmp_path / "b")
    changes = compare_reports(tmp_path / "a", tmp_path / "b")
    assert set(changes.column) == {"error"}
    with pytest.raises(DataError, match="name the folder of a report"):
        compare_reports(tmp_path / "a", tmp_path / "none")


# --------------------------------------------------------------------------- two quantities

draws = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@given(draws, st.floats(-1e3, 1e3), st.booleans())
def test_swapping_two_quantities_swaps_the_verdict(values, shift, paired):
    a, b = np.array(values), np.array(values)[::-1] + shift
    single, other = compare(a, b, paired=paired), compare(b, a, paired=paired)
    opposite = {"lower": "higher", "higher": "lower", "tie": "tie"}
    assert other.verdict == opposite[single.verdict]
    assert single.low <= single.estimate <= single.high
    assert other.estimate == pytest.approx(-single.estimate)
    assert (single.low > 0 or single.high < 0) is (single.verdict != "tie")


@given(draws)
def test_a_quantity_ties_with_itself(values):
    assert compare(values, values).verdict == "tie"
    assert "A and B do not differ: " in compare(values, values).sentence("A", "B")


def test_the_interval_covers_the_true_difference_with_the_stated_probability():
    rng = np.random.default_rng(0)
    covered = []
    for _ in range(1000):
        shared = rng.standard_normal(10)
        result = compare(shared + 0.3 + 0.1 * rng.standard_normal(10), shared)
        covered.append(result.low <= 0.3 <= result.high)
    assert 0.93 <= np.mean(covered) <= 0.97


def test_paired_draws_can_show_a_difference_that_separate_draws_do_not_show():
    shared = np.random.default_rng(1).standard_normal(20)
    a = shared + 0.1 + 0.01 * np.arange(20) / 20
    assert compare(a, shared).verdict == "higher"
    assert compare(a, shared, paired=False).verdict == "tie"
    sentence = compare(a, shared).sentence("The first", "the second")
    assert sentence.startswith("The first is 0.105")
    assert "higher than the second (95 % interval" in sentence
    share = compare([12.0, 12.1, 11.9], [10.0, 10.0, 10.0]).sentence("A", "B")
    assert share.startswith("A is 2 (20 %) higher than B")
    for a, paired, words in (
        ([1, 2, 3], True, "-0.133 (95 % interval -0.277 to 0.0101, n = 3)"),
        ([2.1], False, "-0.0333 (95 % interval -∞ to ∞, n = 1 and 3)"),
    ):
        unclear = compare(a, [1.1, 2.2, 3.1], paired=paired).sentence("A", "B")
        assert unclear.endswith(
            f"do not differ significantly: the first minus the second is {words}."
        )


@pytest.mark.parametrize(("a", "b"), [([1, 2], [1]), ([], []), ([1, np.nan], [1, 2]), (["x"], [1])])
def test_incomparable_draws_are_refused(a, b):
    with pytest.raises(ParameterError):
        compare(a, b)


@given(st.floats(1e-12, 1e12))
def test_numbers_are_written_to_three_digits(value):
    text = (
        format_number(value).replace(",", "").replace("\N{NO-BREAK SPACE}×\N{NO-BREAK SPACE}", "")
    )
    if "⁻" in text or ("10" in text[-6:] and any(sign in text for sign in "⁰¹²³⁴⁵⁶⁷⁸⁹")):
        mantissa, power = text.split("10", 1) if not text.startswith("10") else ("1", text[2:])
        digits = power.translate(str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789"))
        text = f"{mantissa}e{digits}"
    assert float(text) == pytest.approx(value, rel=5.1e-3)
