"""What changed between two runs: found where it is, counted as it should be, said in words."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import ConvexMarketError, DataError, NotSupportedError, ParameterError
from convexmarket.lab import build_report, write_report
from convexmarket.lab.report.diff import Diff, diff_results
from convexmarket.lab.report.diff_frames import (
    compare_frames,
    identifying_columns,
    relative_difference,
)
from convexmarket.lab.report.diff_report import diff_words

FILE = 'kind = "tradeoff"\ntitle = "A market"\n'
SPECIAL = {math.inf: "Infinity", -math.inf: "-Infinity"}


def frame(columns: Mapping[Any, list[Any]]) -> dict[str, Any]:
    """Write a frame as results.json holds it."""
    table = pd.DataFrame(columns)
    rows = [
        [
            None
            if isinstance(cell, float) and math.isnan(cell)
            else SPECIAL.get(cell, cell)
            if isinstance(cell, float)
            else cell
            for cell in row
        ]
        for row in zip(*(table[name].tolist() for name in table), strict=True)
    ]
    return {
        "columns": list(table),
        "dtypes": [str(dtype) for dtype in table.dtypes],
        "data": rows,
    }


def curve(**changes: list[Any]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "scenario": ["even", "even", "odd", "odd"],
        "gamma": [0.1, 1.0, 0.1, 1.0],
        "n_bought": [5, 3, 4, 2],
        "error": [0.10, 0.20, 0.30, 0.40],
        "status": ["solved", "solved", "solved", "solved"],
        "seconds": [1.0, 1.0, 2.0, 2.0],
    }
    return columns | changes


def content(**changes: Any) -> dict[str, Any]:
    parts = {
        "format": "convexmarket-results/2",
        "kind": "tradeoff",
        "problem": {
            "kind": "tradeoff",
            "title": "A market",
            "objective": {"gamma": [0.1, 1.0], "cap": None},
            "run": {"jobs": 1, "seed": 0},
        },
        "curve": frame(curve()),
        "claims": [
            {"source": "A", "says": "it rises", "verdict": "reproduced", "found": "1 to 2"},
            {"source": "A", "says": "it falls", "verdict": "reproduced", "found": "2 to 1"},
        ],
        "baseline_error": 0.05,
        "caveats": ["One draw."],
        "timings": {"train": 3.0, "total": 4.0},
        "provenance": {
            "versions": {"cvxpy": "1.9.3", "python": "3.11.7"},
            "seed": 0,
            "problem_file": {"path": "p.toml", "sha256": "0", "overrides": [], "text": FILE},
        },
    }
    return parts | changes


def write(folder: Path, written: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(written), encoding="utf-8")
    return folder


def compare(tmp_path: Path, a: dict[str, Any], b: dict[str, Any], **options: Any) -> Diff:
    return diff_results(write(tmp_path / "a", a), write(tmp_path / "b", b), **options)


def changed_curve(tmp_path: Path, **changes: list[Any]) -> Diff:
    return compare(tmp_path, content(), content(curve=frame(curve(**changes))))


# ------------------------------------------------------------------------------------- results


def test_a_run_is_the_same_as_itself(tmp_path: Path) -> None:
    found = compare(tmp_path, content(), content())
    for table in (found.inputs, found.words, found.versions, found.numbers, found.texts):
        assert table.empty
    assert found.rows.empty
    assert found.exact
    assert found.same_results
    assert diff_words(found)[0] == (
        "Same inputs, same versions, results identical (timings apart)."
    )
    # 4 rows of n_bought, error, status; 2 claims' source, verdict, found; the baseline, the seed.
    assert found.frames.set_index("frame").cells.to_dict() == {
        "curve": 12,
        "claims": 6,
        "caveats": 0,
        "single values": 2,
    }


def test_a_number_that_differs_is_found_where_it_is(tmp_path: Path) -> None:
    found = changed_curve(tmp_path, error=[0.10, 0.25, 0.30, 0.45])
    assert found.n_differ == 2
    assert len(found.numbers) == 1
    row = found.numbers.iloc[0]
    assert (row.frame, row.column, row.cells, row["differ"], row.missing) == (
        "curve",
        "error",
        4,
        2,
        0,
    )
    assert row.largest == pytest.approx(0.2)  # 0.05 of 0.25, more than 0.05 of 0.45
    assert (row["where"], row.a, row.b) == ("even, gamma 1", 0.20, 0.25)
    assert not found.same_results
    assert diff_words(found) == (
        "Same inputs, same versions, different results.",
        "2 numbers in 1 column differ by more than 1e-09, relative to the larger. The largest "
        "difference is 0.2, in error of curve, at even, gamma 1: 0.2 in A, 0.25 in B.",
        "Time in all: 4 s in A and 4 s in B, a ratio of 1.",
    )


def test_the_column_with_the_largest_difference_comes_first(tmp_path: Path) -> None:
    found = changed_curve(tmp_path, n_bought=[5, 3, 4, 1], error=[0.11, 0.2, 0.3, 0.4])
    assert found.numbers.column.tolist() == ["n_bought", "error"]
    assert found.numbers.largest.tolist() == pytest.approx([0.5, 1 / 11])


@pytest.mark.parametrize(
    ("new", "tolerance", "differs"),
    [
        (0.1 * (1 + 1e-10), 1e-9, False),
        (0.1 * (1 + 1e-8), 1e-9, True),
        (0.1 * (1 + 1e-8), 1e-7, False),
        (np.nextafter(0.1, 1), 0.0, False),  # the last bit of 0.1 is less than rounding of zero
        (np.nextafter(0.1, 1) + 1e-14, 0.0, True),
    ],
)
def test_the_tolerance_is_relative(
    tmp_path: Path, new: float, tolerance: float, differs: bool
) -> None:
    b = content(curve=frame(curve(error=[new, 0.2, 0.3, 0.4])))
    found = compare(tmp_path, content(), b, tolerance=tolerance)
    assert found.same_results is not differs
    assert not found.exact
    if not differs:
        assert f"results the same to {tolerance:g} (timings apart)" in diff_words(found)[0]


def test_rounding_of_zero_is_no_difference() -> None:
    a = np.array([1e-17, 0.0, 2e-15, -1.0, 0.0, np.inf, 1e308])
    b = np.array([-3e-17, 5e-324, 1e-15, 1.0, 1.0, 1.0, -1e308])
    expected = [0.0, 0.0, 0.0, 2.0, 1.0, np.nan, 2.0]
    np.testing.assert_array_equal(relative_difference(a, b), expected)


def test_what_is_missing_in_one_run_is_counted_apart(tmp_path: Path) -> None:
    a = content(curve=frame(curve(error=[np.nan, np.nan, np.inf, np.inf])))
    b = content(curve=frame(curve(error=[np.nan, 0.2, np.inf, 0.4])))
    row = compare(tmp_path, a, b).numbers.iloc[0]
    assert (row["differ"], row.missing, row["where"]) == (0, 2, "even, gamma 1")
    assert math.isnan(row.a)
    assert math.isnan(row.largest)
    assert row.b == 0.2
    words = " ".join(diff_words(compare(tmp_path, a, b)))
    assert "Cells with a finite number in one run only: 2." in words
    opposite = content(curve=frame(curve(error=[np.nan, np.nan, np.inf, -np.inf])))
    assert compare(tmp_path, a, opposite).numbers.missing.tolist() == [1]


def test_changed_text_is_listed_with_verdicts_first(tmp_path: Path) -> None:
    b = content(curve=frame(curve(status=["solved", "solved", "failed", "solved"])))
    b["claims"][1]["verdict"] = "not reproduced"
    b["claims"][1]["found"] = "2 to 3"
    found = compare(tmp_path, content(), b)
    assert found.texts.values.tolist() == [
        ["claims", "verdict", "it falls", "reproduced", "not reproduced"],
        ["curve", "status", "odd, gamma 0.1", "solved", "failed"],
        ["claims", "found", "it falls", "2 to 1", "2 to 3"],
    ]
    _, first, second, *_ = diff_words(found)
    assert first == "1 verdict on claims changed. it falls: reproduced in A, not reproduced in B."
    assert second == "2 cells of text changed: status of curve (1); found of claims (1)."


def test_rows_and_columns_of_one_run_are_no_differences_of_the_others(tmp_path: Path) -> None:
    table = pd.DataFrame(curve())
    longer = pd.concat([table.assign(gamma=table.gamma + 1).head(1), table]).to_dict("list")
    b = content(curve=frame(longer | {"bias": [0.0] * 5}), extra=frame({"id": [1]}))
    found = compare(tmp_path, content(), b)
    assert found.rows.values.tolist() == [
        ["curve", "column bias", "B"],
        ["curve", "even, gamma 1.1", "B"],
        ["extra", "the whole frame (1 row)", "B"],
    ]
    assert found.n_differ == 0
    assert not found.same_results
    words = diff_words(found)
    assert words[0].endswith("the same results as far as both runs have them (timings apart).")
    assert words[1] == "Rows and columns that one run alone has: 0 in A only and 3 in B only."


def test_rows_without_a_name_are_matched_by_position_and_the_report_says_so(tmp_path: Path) -> None:
    a = content(curve=frame({"scenario": ["even", "even"], "error": [1.0, 2.0]}))
    b = content(curve=frame({"scenario": ["even", "even", "odd"], "error": [1.0, 4.0, 5.0]}))
    found = compare(tmp_path, a, b)
    assert found.frames.iloc[0].tolist() == ["curve", "position", 2, 0, 1, 4, 1]
    assert found.numbers["where"].tolist() == ["row 2"]
    assert found.rows.what.tolist() == ["row 3"]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        # n_bought is an integer that came out; gamma comes before it.
        ({"model": ["x", "x"], "gamma": [0.1, 1.0], "n_bought": [3, 4]}, ["model", "gamma"]),
        # ratio is a float that came out, though it would do.
        (
            {"value": [1.0, 1.0, 2.0], "ratio": [2.0, 3.0, 4.0], "method": ["p", "q", "p"]},
            ["value", "method"],
        ),
        # Where the number of the point will do, its x is not needed.
        (
            {"point": [0, 0, 1, 1], "x": [2.0, 2.0, 3.0, 3.0], "draw": [0, 1, 0, 1]},
            ["point", "draw"],
        ),
        ({"source": ["A", "B"], "says": ["up", "down"]}, ["says"]),
        ({"status": ["good", "bad"], "error": [0.1, 0.2]}, None),
        ({"key": ["k1", "k2"], "done": [True, False], "total_s": [1.0, 2.0], "id": [8, 9]}, ["id"]),
    ],
)
def test_which_columns_tell_rows_apart(columns: dict[str, list[Any]], expected: Any) -> None:
    table = pd.DataFrame(columns).drop(columns="key", errors="ignore")
    assert identifying_columns(table, table) == expected
    assert identifying_columns(table, table.sample(frac=1, random_state=1)) == expected


def test_the_last_bits_of_a_setting_do_not_part_rows(tmp_path: Path) -> None:
    found = changed_curve(tmp_path, gamma=[np.nextafter(0.1, 1), 1.0, 0.1, 1.0])
    assert found.same_results


def test_times_and_memory_are_ratios_and_never_differences() -> None:
    a = pd.DataFrame(
        {"id": [1, 2, 3], "total_s": [1.0, 2.0, np.nan], "peak_memory_mb": [10, 20, 30]}
    )
    b = a.assign(total_s=[3.0, 2.0, 5.0], core=[1, 2, 3])
    found = compare_frames("runs", a, b, 1e-9)
    assert found.differ == 0
    assert found.exact
    assert found.rows == []
    assert found.timings == [
        ("runs", "total_s", 2, 1.5, 2.5, 2.0),  # the median of 3 and 1
        ("runs", "peak_memory_mb", 3, 20.0, 20.0, 1.0),
    ]


def test_the_total_time_is_said(tmp_path: Path) -> None:
    found = compare(tmp_path, content(), content(timings={"train": 3.0, "total": 10.0}))
    assert found.same_results
    assert diff_words(found)[-1] == "Time in all: 4 s in A and 10 s in B, a ratio of 2.5."


def test_lists_in_cells_are_compared_value_by_value(tmp_path: Path) -> None:
    solves = [{"eta": 1.0, "status": "optimal", "seconds": 1.0}, {"eta": 2.0, "status": "optimal"}]
    other = [
        {"eta": 1.0, "status": "inaccurate", "seconds": 9.0},
        {"eta": 4.0, "status": "optimal"},
    ]
    a = content(curve=[{"id": 1, "solves": solves}, {"id": 2, "solves": solves}])
    b = content(curve=[{"id": 1, "solves": solves}, {"id": 2, "solves": other + solves[:1]}])
    found = compare(tmp_path, a, b)
    assert found.numbers.drop(columns=["a", "b"]).values.tolist() == [
        ["curve", "solves[*].eta", 6, 1, 1, 0.5, "id 2, solves[1].eta"]
    ]
    assert found.texts.values.tolist() == [
        ["curve", "solves[*].status", "id 2, solves[0].status", "optimal", "inaccurate"],
        ["curve", "solves[*].status", "id 2, solves[2].status", None, "optimal"],
    ]


def test_single_values_are_compared(tmp_path: Path) -> None:
    b = content(baseline_error=0.1, model={"coef": [1.0, {"float": "Infinity"}]})
    a = content(model={"coef": [1.0, 2.0]})
    found = compare(tmp_path, a, b)
    assert found.numbers.column.tolist() == ["baseline_error", "model.coef[*]"]
    assert found.numbers["where"].tolist() == ["", "model.coef[1]"]
    assert found.numbers.missing.tolist() == [0, 1]
    assert "in baseline_error: 0.05 in A, 0.1 in B" in " ".join(diff_words(found))


# ---------------------------------------------------------------------------- inputs, versions


def test_inputs_are_named_by_their_path(tmp_path: Path) -> None:
    b = content()
    b["problem"] = {**b["problem"], "objective": {"gamma": [0.1, 2.0, 3.0]}, "title": "Another"}
    found = compare(tmp_path, content(), b)
    assert found.inputs.values.tolist() == [
        ["objective.gamma[1]", 1.0, 2.0],
        ["objective.gamma[2]", None, 3.0],
    ]
    assert found.words.values.tolist() == [["title", "A market", "Another"]]
    assert diff_words(found)[:3] == (
        "Different inputs, same versions, results identical (timings apart).",
        "Inputs: objective.gamma[1] is 1.0 in A and 2.0 in B; objective.gamma[2] is not set in A "
        "and 3.0 in B.",
        "The problem is described in other words.",
    )


def test_versions_machine_and_jobs_are_no_inputs(tmp_path: Path) -> None:
    b = content(machine={"cpu": "Another"})
    b["provenance"]["versions"]["cvxpy"] = "1.9.4"
    b["problem"]["run"]["jobs"] = 2
    found = compare(tmp_path, content(), b)
    assert found.inputs.empty
    assert found.versions.values.tolist() == [
        ["cvxpy", "1.9.3", "1.9.4"],
        ["run.jobs", 1, 2],
        ["machine.cpu", None, "Another"],
    ]
    assert diff_words(found)[0].startswith("Same inputs, different versions, results identical")


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        (FILE, [], "The text of the problem file is the same."),
        (
            "# Why\n\n" + FILE,
            [],
            "The text of the problem file changed only in comments or layout.",
        ),
        (FILE + "x = 1", [], "The text of the problem file changed."),
        ("no toml", [], "The text of the problem file changed."),
        (
            FILE,
            ["a=1", "b=2"],
            "The text of the problem file is the same. Set on the command line: nothing in A, "
            "a=1, b=2 in B.",
        ),
    ],
)
def test_what_became_of_the_problem_file(
    tmp_path: Path, text: str, overrides: list[str], expected: str
) -> None:
    b = content()
    b["provenance"]["problem_file"] |= {"text": text, "overrides": overrides}
    assert compare(tmp_path, content(), b).problem_file == expected


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [("overrides", value, "no list of texts") for value in ([["a=1"]], [None], "a=1", {"a": 1})]
    + [("text", value, "no text") for value in (None, 1, ["a"])],
)
def test_a_problem_file_of_other_types_is_damage(
    tmp_path: Path, key: str, value: Any, why: str
) -> None:
    b = content()
    b["provenance"]["problem_file"] |= {key: value}
    with pytest.raises(DataError, match=f"{key} is {why}"):
        compare(tmp_path, content(), b)


def test_a_run_without_a_problem_file(tmp_path: Path) -> None:
    b = content()
    b["provenance"]["problem_file"] = None
    found = compare(tmp_path, content(), b)
    assert found.problem_file == "Not both runs came from a problem file."


# --------------------------------------------------------------------------------------- files


def with_parquet(folder: Path, table: pd.DataFrame, name: str = "curve") -> dict[str, Any]:
    (folder / "tables").mkdir(parents=True, exist_ok=True)
    file = folder / "tables" / f"{name}.parquet"
    table.to_parquet(file, index=False)
    return {
        "columns": list(table),
        "dtypes": [str(dtype) for dtype in table.dtypes],
        "parquet": f"tables/{name}.parquet",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
    }


def test_a_frame_in_a_table_is_the_same_as_one_in_the_file(tmp_path: Path) -> None:
    table = pd.DataFrame(curve(error=[0.1, np.nan, 1 / 3, np.inf], scenario=["NA", "b", "c", "ü"]))
    a = content(curve=with_parquet(tmp_path / "a", table))
    b = content(curve=frame(table.to_dict("list")))
    found = compare(tmp_path, a, b)
    assert found.exact
    assert found.same_results


def test_a_table_that_was_changed_is_refused(tmp_path: Path) -> None:
    a = content(curve=with_parquet(tmp_path / "a", pd.DataFrame(curve())))
    with (tmp_path / "a" / "tables" / "curve.parquet").open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=r"curve\.parquet.*checksum"):
        compare(tmp_path, a, content())


@pytest.mark.parametrize(
    "place", ["../a/tables/curve.parquet", "/etc/hostname", "tables/none.parquet"]
)
def test_only_the_tables_of_the_report_are_read(tmp_path: Path, place: str) -> None:
    described = with_parquet(tmp_path / "a", pd.DataFrame(curve()))
    with pytest.raises(DataError):
        compare(tmp_path, content(curve=described | {"parquet": place}), content())


def test_a_file_is_as_good_as_its_folder(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", content())
    assert diff_results(folder, folder / "results.json").same_results


@pytest.mark.parametrize(
    ("written", "error", "words"),
    [
        (None, ParameterError, "there is no"),
        ("{", DataError, "not valid JSON"),
        ("[]", DataError, "names no kind"),
        ('{"problem": {}}', DataError, "names no kind"),
        ('{"problem": {"kind": "tradeoff"}}', DataError, "where its results come from"),
        (
            json.dumps({"format": "convexmarket-diff/1", "kind": "diff"}),
            NotSupportedError,
            "itself",
        ),
        (json.dumps(content(format="convexmarket-results/9")), NotSupportedError, "results/9"),
        (json.dumps(content(problem={"kind": "ridge"})), ParameterError, "of the kind 'ridge'"),
        (json.dumps(content(curve={"columns": ["a"], "data": [[1]]})), DataError, "curve"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_words(
    tmp_path: Path, written: str | None, error: type[ConvexMarketError], words: str
) -> None:
    a, b = write(tmp_path / "a", content()), tmp_path / "b"
    b.mkdir()
    if written is not None:
        (b / "results.json").write_text(written)
    with pytest.raises(error, match=words):
        diff_results(a, b)


@pytest.mark.parametrize("tolerance", [-1e-9, math.nan, math.inf])
def test_the_tolerance_is_a_small_number(tmp_path: Path, tolerance: float) -> None:
    with pytest.raises(ParameterError, match="tolerance"):
        compare(tmp_path, content(), content(), tolerance=tolerance)


# -------------------------------------------------------------------------------------- report


def test_the_report_says_what_changed(tmp_path: Path) -> None:
    b = content(curve=frame(curve(error=[0.5, 0.2, 0.3, 0.4])))
    b["claims"][0]["verdict"] = "not reproduced"
    found = compare(tmp_path, content(), b)
    page = write_report(found, tmp_path / "report", ["csv"])
    text = page.read_text(encoding="utf-8")
    order = ["Verdicts that changed", "Inputs", "Numbers that differ", "Timings"]
    places = [text.index(f">{heading}</h2>") for heading in [*order, "How it was compared"]]
    assert places == sorted(places)
    assert "Rows and columns of one run only</h2>" not in text
    table = pd.read_csv(tmp_path / "report" / "tables" / "numbers.csv")
    assert table[["column", "b"]].values.tolist() == [["error", 0.5]]
    assert (tmp_path / "report" / "figures" / "differences.png").exists()
    written = json.loads((tmp_path / "report" / "results.json").read_text())
    assert written["kind"] == "diff"
    assert written["same_results"] is False
    assert written["numbers"][0]["largest"] == pytest.approx(0.8)


def test_the_report_of_two_equal_runs_has_no_figure(tmp_path: Path) -> None:
    report = build_report(compare(tmp_path, content(), content()))
    assert report.figures == ()
    assert [table.name for table in report.tables] == ["timings", "frames"]


# ---------------------------------------------------------------------------------- properties

NUMBERS = st.floats(width=64) | st.sampled_from([0.0, 1.0, math.nan, math.inf])
ROWS = st.lists(
    st.tuples(
        st.integers(-9, 9), st.sampled_from(["x", "NA", "", "é, \n"]), NUMBERS, st.booleans()
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda row: row[0],
)


def table_of(rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    return frame(pd.DataFrame(rows, columns=["id", "text", "number", "true"]).to_dict("list"))


def compare_rows(a: list[tuple[Any, ...]], b: list[tuple[Any, ...]]) -> Diff:
    with tempfile.TemporaryDirectory() as folder:
        return compare(Path(folder), content(curve=table_of(a)), content(curve=table_of(b)))


@given(ROWS, st.randoms(use_true_random=False))
def test_neither_a_copy_nor_another_order_differs(rows: list[tuple[Any, ...]], random: Any) -> None:
    shuffled = random.sample(rows, len(rows))
    for other in (rows, shuffled):
        found = compare_rows(rows, other)
        assert found.same_results
        assert found.exact


@given(ROWS, st.data())
def test_a_single_changed_cell_is_found(rows: list[tuple[Any, ...]], data: Any) -> None:
    place = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(["text", "number", "true"]))
    label, text, number, true = rows[place]
    large = math.isfinite(number) and abs(number) > 1e-9
    new = {
        "text": (label, f"{text}!", number, true),
        "number": (label, text, -number if large else 1.0 + abs(math.isinf(number)), true),
        "true": (label, text, number, not true),
    }[column]
    found = compare_rows(rows, [*rows[:place], new, *rows[place + 1 :]])
    changed = found.numbers if column == "number" else found.texts
    assert found.n_differ == 1
    assert not found.exact
    assert changed[["frame", "column", "where"]].values.tolist() == [
        ["curve", column, f"id {label}"]
    ]
