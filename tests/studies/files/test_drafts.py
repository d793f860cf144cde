"""Drafts of problem files recognise columns and do not contain cells."""

import tomllib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.errors import DataError, ProblemFileError
from convexmarket.studies.files import drafts
from convexmarket.studies.files.drafts import draft_problem
from convexmarket.studies.files.loading import load_file, parse_file
from tests.studies.files.builders import declared, patients

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)


def draft(folder, table, learns=None, name="patients.csv"):
    if name.endswith(".csv"):
        table.to_csv(folder / name)
    else:
        table.to_parquet(folder / name)
    return draft_problem(folder / name, folder, learns)


def test_a_draft_is_refused_until_everything_is_declared(tmp_path):
    text = draft(tmp_path, patients(20)).text
    with pytest.raises(ProblemFileError) as caught:
        parse_file(text)
    written = str(caught.value).split("value of ")[1].split(" is ")[0].split(", ")
    features = [f"data.features.{name}" for name in ("age", "bmi", "smoker", "region", "ill")]
    about = ["data.label", "data.classes", "data.public"]
    assert written == [*about, *features, "prior.low", "prior.high"]
    assert '# costs = "?"   # left out, because columns of reports have this name' in text
    assert text.count('= "?"') == len(written) + 1


@pytest.mark.parametrize(
    ("learns", "name"), [("class", "patients.parquet"), ("number", "patients.csv")]
)
def test_a_completed_draft_runs(tmp_path, learns, name):
    text = declared(draft(tmp_path, patients(120), learns, name).text)
    (tmp_path / "market.toml").write_text(text)
    settings = ["objective.gamma=[0.003]"] + ["learner.draws=2"] * (learns == "class")
    problem = load_file(tmp_path / "market.toml", settings)
    assert problem.data.is_classification == (learns == "class")
    assert (problem.data.id, problem.data.report) == ("patient", "ask")
    runs = problem.perform(progress=False)
    assert set(runs.tables["sellers"].scenario) == {"reported"}


def other(table):
    """Draw a table with the columns and types of another table, but with different cells."""
    rng = np.random.default_rng(7)
    numbers = table.select_dtypes("number").columns
    changed = table.iloc[rng.permutation(len(table))].iloc[: len(table) // 2].copy()
    changed[numbers] = changed[numbers] * 3
    changed["smoker"], changed["region"], changed["ill"] = "often", "west", "perhaps"
    return changed.set_axis(pd.Index([f"Q{k}" for k in range(len(changed))], name="patient"))


@pytest.mark.parametrize("name", ["patients.csv", "patients.parquet"])
def test_a_draft_contains_no_cells_and_no_number_of_rows(tmp_path, name):
    table = patients(50)
    assert draft(tmp_path, table, name=name) == draft(tmp_path, other(table), name=name)


@pytest.mark.parametrize(
    ("columns", "roles"),
    [
        (["id", "age", "ask", "label"], {"id": "id", "report": "ask", "label": "label"}),
        (["costs_eur", "Ask", "age"], {"report": "Ask"}),
        (
            ["Patient", "sensitivity", "Target"],
            {"id": "Patient", "report": "sensitivity", "label": "Target"},
        ),
        (["seller_id", "x", "asking price"], {"id": "seller_id", "report": "asking price"}),
        (["x", "z"], {}),
        (["Nr.", "size", "ask", "price"], {"id": "Nr.", "report": "ask"}),
        (["No", "size", "Price"], {"id": "No", "report": "Price"}),
        (["size", "price", "label"], {"report": "price", "label": "label"}),
    ],
)
def test_roles_of_columns_are_guessed_from_their_names(tmp_path, columns, roles):
    table = pd.DataFrame({name: ["1", "2"] for name in columns}).set_index(columns[0])
    assert draft(tmp_path, table).roles == roles


@given(name=NAMES, word=NAMES)
def test_names_are_escaped_for_toml(name, word):
    line = f"{drafts._text(name)} = {drafts._text(word)}"
    assert tomllib.loads(line) == {name: word}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "the file is empty; give a header"),
        ("a,b\n", "no rows below the header"),
        ("a,a\n1,2\n", "columns 1 and 2 have the same name"),
    ],
)
def test_tables_without_a_draft_are_refused(tmp_path, content, words):
    (tmp_path / "rows.csv").write_text(content)
    with pytest.raises(DataError, match=words):
        draft_problem(tmp_path / "rows.csv", tmp_path)
