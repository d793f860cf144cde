"""Test tables of sellers and public rows for problem files: reading, errors and privacy."""

import stat
import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import DataError
from convexmarket.studies.files import load_file
from convexmarket.studies.files import people as module
from convexmarket.studies.files.loading import subproblems_of
from convexmarket.studies.files.people import read_people
from tests.cli.builders import draw_nothing
from tests.studies.files.builders import REGRESSION, TRADEOFF, for_each, patients, written


def read(folder, text=TRADEOFF, table=None, settings=(), **options):
    return read_people(load_file(written(folder, text, table), settings), **options)


def refusal(folder, table, text=TRADEOFF):
    with pytest.raises(DataError) as caught:
        read(folder, text, table)
    return str(caught.value).replace(str(folder), "")


def changed(column, row, value):
    table = patients(120).astype({"age": object, "bmi": object, "ask": object, "costs": object})
    table.iloc[row, table.columns.get_loc(column)] = value
    return table


# ---------------------------------------------------------------------------- reading


def test_every_row_sells_or_is_public_and_keeps_its_report(tmp_path):
    table = patients(120)
    people = read(tmp_path, table=table)
    parts = {name: list(rows.index) for name, rows in people.items()}
    sizes = {name: len(ids) for name, ids in parts.items()}
    assert sizes == {"validation": 24, "test": 36, "sold": 60}
    assert sorted(chain(*parts.values())) == list(table.index)
    assert all(ids == sorted(ids) for ids in parts.values()), "ids are not in the order of the file"
    np.testing.assert_array_equal(people["sold"].ask, table.loc[parts["sold"], "ask"])


@given(
    shares=st.lists(st.floats(0.05, 0.45), min_size=2, max_size=2),
    seed=st.integers(0, 2**40),
    n=st.integers(40, 300),
)
def test_public_rows_depend_only_on_the_seed_and_the_shares(shares, seed, n):
    names = pd.DataFrame({"x": range(n)}, index=pd.RangeIndex(n).astype(str))
    wanted = dict(zip(("validation", "test"), shares, strict=True))
    parts = module.drawn(names, wanted, seed, "people.csv")
    assert {part: len(parts[part]) for part in wanted} == {
        part: round(share * n) for part, share in wanted.items()
    }
    assert sorted(set().union(*(rows.index for rows in parts.values()))) == sorted(names.index)
    assert sum(map(len, parts.values())) == n
    again = module.drawn(names, wanted, seed, "people.csv")
    assert all(parts[part].index.equals(again[part].index) for part in parts)


def test_a_parquet_file_can_have_any_name(tmp_path):
    path = written(tmp_path, table=patients(120))
    pd.read_csv(tmp_path / "patients.csv").to_parquet(tmp_path / "patients.pq")
    rows = read_people(load_file(path, ['data.source="parquet"', 'data.file="patients.pq"']))
    assert list(rows["sold"].index) == list(read_people(load_file(path))["sold"].index)


def test_a_file_states_the_norm_of_rows_and_whether_they_have_an_intercept(tmp_path):
    path = written(tmp_path, table=patients(120))
    features = load_file(path, ["data.data_norm=2.0", "data.intercept=false"]).data.public_features
    assert (features.data_norm, features.intercept) == (2.0, False)


def test_groups_are_read_for_the_sellers(tmp_path):
    table = patients(120)
    sold = read(tmp_path, table=table, group="region")["sold"]
    assert list(sold["region"]) == list(table.loc[sold.index, "region"])


# ---------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("ask", "0.7654", "line 7: the report is outside the support [0.02, 0.1]"),
        ("ask", "7654x", "line 7: the report is not a number"),
        ("ask", "", "line 7: the report is missing (empty or NaN in column 'ask')"),
        ("age", "7654x", "line 7: the cell in column 'age' is not a number"),
        ("bmi", "NA", "leave the cell of a missing number empty"),
        ("smoker", "7654", "line 7: the cell in column 'smoker' is not among the"),
        ("ill", "7654", "line 7: the cell in column 'ill' is neither of the classes"),
        ("ill", "", "is neither of the classes 'no' and 'yes'"),
    ],
)
def test_an_error_in_a_cell_names_the_line_but_not_the_value(tmp_path, column, value, words):
    message = refusal(tmp_path, changed(column, 5, value))
    assert words in message
    assert "7654" not in message


def test_an_undeclared_category_can_count_as_other(tmp_path):
    table = changed("smoker", 5, "7654")
    declared = ['data.features.smoker=["no", "yes", "other"]']
    problem = load_file(written(tmp_path, TRADEOFF, table), declared)
    rows, sellers = problem.read()
    other = rows.X_train[:, rows.feature_names.index("smoker=other")] > 0
    smoker = table.loc[list(sellers["reported"].ids), "smoker"]
    np.testing.assert_array_equal(other, smoker.isin(["former", "7654"]))


def test_a_label_outside_the_range_of_the_learner_is_refused(tmp_path):
    message = refusal(tmp_path, changed("costs", 5, 76_543.0), REGRESSION)
    assert "line 7: the cell in column 'costs' is outside learner.target_r" in message
    assert "76543" not in message


def test_empty_cells_are_refused_unless_the_file_gives_their_meaning(tmp_path):
    text = TRADEOFF.replace('missing = "indicator"\n', "")
    table = patients(120)
    first = table["bmi"].isna().argmax()
    message = refusal(tmp_path, table, text)
    assert f"line {first + 2}: the cell in column 'bmi' is empty" in message
    assert "set missing" in message


@for_each(
    [
        (lambda table: table.drop(columns="ask"), "no column is called 'ask'"),
        (lambda table: table.drop(columns="age"), "no column is called 'age'"),
        (lambda table: table.rename_axis("id"), "no column is called 'patient'"),
        (lambda table: table.iloc[:0], "the file has no rows"),
        (lambda table: table.iloc[:1], "1 rows are too few"),
        (lambda table: table.rename({"P0001": "P0000"}), "is the id of an earlier seller"),
        (lambda table: table.rename({"P0001": " "}), "is not an id"),
    ]
)
def test_an_invalid_table_is_refused(change, words):
    with tempfile.TemporaryDirectory() as folder:
        assert words in refusal(Path(folder), change(patients(120)))


# -------------------------------------------------------------------------------- the runs

#: Private value whose digits must not be published.
RARE = 31.718281828


@pytest.mark.parametrize("text", [TRADEOFF, REGRESSION], ids=["classes", "numbers"])
def test_reports_of_the_table_are_used_and_the_page_is_private(text, tmp_path, monkeypatch):
    monkeypatch.setattr("convexmarket.report.figures.saved", draw_nothing)
    table = patients(120)
    table["bmi"] = RARE + np.arange(120) * 1e-6
    problem = load_file(written(tmp_path, text, table))
    runs = problem.perform(progress=False)
    sellers = runs.tables["sellers"]
    assert set(sellers.scenario) == {"reported"}
    reports = sellers.drop_duplicates("id").set_index("id").sensitivity
    assert reports.tolist() == table["ask"].loc[reports.index].tolist()
    assert len(reports) == runs.facts["rows"]["train"] == (60 if text is TRADEOFF else 84)
    report = problem.report(runs)
    folder = report.write(tmp_path / "report").parent
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    for path in files:
        is_table = path.suffix == ".parquet"
        shown = pd.read_parquet(path).to_csv() if is_table else path.read_text(errors="replace")
        assert str(RARE)[:8] not in shown, path.name
    assert len(subproblems_of(tmp_path / "market.toml").families) >= 2


def test_public_reports_and_rows_do_not_change_purchases(tmp_path):
    table = patients(120)
    first = load_file(written(tmp_path, TRADEOFF, table)).perform(progress=False)
    public = table.index.difference(first.tables["sellers"].id)
    assert len(public) == 60
    other = table.copy()
    other.loc[public, ["ask", "age"]] = 0.05, 20
    again = load_file(written(tmp_path, TRADEOFF, other)).perform(progress=False)
    bought = ["id", "sensitivity", "epsilon", "payment"]
    offers = [
        runs.tables["sellers"].query("model == 'mechanism'")[bought] for runs in (first, again)
    ]
    pd.testing.assert_frame_equal(*offers)
