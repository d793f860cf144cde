"""The features of a row depend only on its cells and on the declared columns."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import convexmarket as cm
from convexmarket.errors import DataError, ParameterError
from convexmarket.privacy import Simulation

COLUMNS = {"age": (18, 100), "smoker": ["no", "other", "yes"], "region": ["north", "south", "west"]}
PATIENTS = pd.DataFrame(
    {
        "smoker": ["yes", "no", "sometimes"],
        "age": [59, 18, 130],
        "weight": [80.0, 70.0, 60.0],
        "region": ["south", "west", "north"],
    },
    index=["Ann", "Bob", "Eve"],
)


cells = st.one_of(st.none(), st.floats(allow_nan=False), st.integers(-(10**6), 10**6))
words = st.sampled_from(["no", "yes", "", "perhaps", None])
regions = st.sampled_from([*COLUMNS["region"], None])


@given(
    st.lists(st.tuples(cells, words, regions), min_size=1, max_size=8),
    st.sampled_from(["middle", "indicator"]),
    st.booleans(),
    st.sampled_from([1.0, 0.3, 7.0, 1e-3]),
)
def test_features_of_any_table_lie_in_the_ball_and_in_the_box(
    people, missing, intercept, data_norm
):
    table = pd.DataFrame(people, columns=["age", "smoker", "region"])
    public = cm.PublicFeatures(COLUMNS, missing=missing, intercept=intercept, data_norm=data_norm)
    rows = public.fit_transform(table)
    assert rows.shape == (len(people), public.n_features_out_)
    assert np.linalg.norm(rows, axis=1).max() <= data_norm
    box = public.transform_to_box(table)
    assert box.min() >= 0.0
    assert box.max() <= 1.0


@given(st.lists(st.tuples(cells, words, regions), min_size=2, max_size=6))
def test_features_of_a_row_do_not_depend_on_other_rows(people):
    table = pd.DataFrame(people, columns=["age", "smoker", "region"])
    public = cm.PublicFeatures(COLUMNS, missing="indicator").fit(table)
    separate = [public.transform(table.iloc[[row]])[0] for row in range(len(people))]
    assert np.array_equal(public.transform(table), np.array(separate))


def test_an_empty_cell_is_refused_without_quoting_other_cells():
    table = PATIENTS.assign(age=[59.0, np.nan, np.nan])
    with pytest.raises(DataError, match="row Bob: the cell in column 'age' is empty") as refused:
        cm.PublicFeatures(COLUMNS).transform(table)
    assert "59" not in str(refused.value)
    assert "indicator" in str(refused.value)


def test_text_in_a_numeric_column_is_refused_without_quoting_it():
    table = PATIENTS.astype({"age": object}).assign(age=[59, "HIV-positive", 4])
    with pytest.raises(
        DataError, match="row Bob: the cell in column 'age' is not a number"
    ) as refused:
        cm.PublicFeatures(COLUMNS).transform(table)
    assert "HIV" not in str(refused.value)


def test_an_undeclared_category_is_refused_or_counted_as_other():
    declared = {"smoker": ["no", "yes"]}
    with pytest.raises(
        DataError, match="row Eve: the cell in column 'smoker' is not among the"
    ) as refused:
        cm.PublicFeatures(declared).transform(PATIENTS)
    assert "sometimes" not in str(refused.value)
    assert "'other'" in str(refused.value)
    declared["smoker"].append("other")
    public = cm.PublicFeatures(declared, missing="indicator", intercept=False)
    cells = ["other", "sometimes", "No", "yes", "", None]
    result = public.transform(pd.DataFrame({"smoker": cells}))
    assert np.argmax(result, axis=1).tolist() == [2, 2, 2, 1, 2, 3]
    numbers = cm.PublicFeatures({"ward": [1, 2, "other"]}, intercept=False)
    wards = numbers.transform(pd.DataFrame({"ward": [2, 7, 1]}))
    assert np.argmax(wards, axis=1).tolist() == [1, 2, 0]


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({}, "columns must declare a public range"),
        ({"age": (100, 18)}, "'age'\\] is .*; a range is a pair"),
        ({"age": (18, np.inf)}, "'age'\\] is .*; a range is a pair"),
        ({"age": (1, 2, 3)}, "'age'\\] is .*; a range is a pair"),
        ({"smoker": "yes"}, "'smoker'\\] is .*; give a tuple"),
        ({"smoker": []}, "'smoker'\\] is .*; give a tuple"),
        ({"age": [18, 100]}, r"'age'\] is .*; a range is a tuple, \(18, 100\)"),
        ({"smoker": ["yes", "yes"]}, "list each category once"),
        ({"smoker": [["yes"], ["no"]]}, "a category is a word, a number or a truth value"),
    ],
)
def test_an_invalid_declaration_is_refused(columns, words):
    with pytest.raises(ParameterError, match=words):
        cm.PublicFeatures(columns).fit(PATIENTS)


@pytest.mark.parametrize(
    ("cells", "categories", "words"),
    [
        ([1, 2, 3], ["1", "2", "3"], "holds numbers, but its category '1' is"),
        ([1.0, np.nan, 3.0], [1, "2", 3], "holds numbers, but its category '2' is"),
        (["1", "2", None], [1, 2, 3], "holds words, but its category 1 is"),
    ],
)
def test_categories_of_another_type_than_the_column_are_refused(cells, categories, words):
    table = pd.DataFrame({"ward": cells})
    with pytest.raises(DataError, match=words):
        cm.PublicFeatures({"ward": categories}, missing="middle").transform(table)


def test_the_error_names_a_missing_declared_column():
    with pytest.raises(DataError, match=r"no column 'age'.*has the columns 'smoker'"):
        cm.PublicFeatures(COLUMNS).transform(PATIENTS.drop(columns="age"))


@pytest.mark.parametrize(
    "learner",
    [
        cm.PrivateLogisticRegression(),
        cm.PersonalizedRidge(perturbation="output"),
        cm.PersonalizedRidge(perturbation="statistics"),
        cm.KernelERM(data_norm=1.0),
    ],
    ids=lambda learner: type(learner).__name__,
)
def test_a_learner_with_features_accepts_a_table(learner):
    table = pd.concat([PATIENTS] * 20, ignore_index=True)
    labels = np.where(table["smoker"] == "yes", 1, -1)
    custom = clone(learner).set_params(features=cm.PublicFeatures(COLUMNS))
    fit = {"epsilon": np.full(60, 5.0), "random_state": Simulation(0)}
    if isinstance(learner, cm.KernelERM):
        del fit["random_state"]
    predicted = custom.fit(table, labels, **fit).predict(table)
    rows = custom.features.transform(table)
    if hasattr(learner, "feature_range"):
        rows = custom.features.transform_to_box(table)
    assert np.array_equal(predicted, clone(learner).fit(rows, labels, **fit).predict(rows))


def test_objects_that_are_not_tables_are_refused():
    with pytest.raises(DataError, match="a ndarray is not a table with named columns"):
        cm.PublicFeatures(COLUMNS).transform(np.zeros((3, 3)))


@pytest.mark.parametrize(
    "changed",
    [
        {"columns": 3},
        {"columns": {"age": [3, 1]}},
        {"columns": {"age": []}},
        {"columns": {"age": [[1, 2]]}},
        {"columns": {}},
        {"features": {"missing": "maybe"}},
        {"features": {"colour": 1}},
    ],
    ids=str,
)
def test_a_saved_model_with_damaged_features_is_refused(tmp_path, changed):
    table = pd.concat([PATIENTS] * 20, ignore_index=True)
    model = cm.PersonalizedRidge(features=cm.PublicFeatures(COLUMNS, missing="middle"))
    model.fit(table, np.zeros(len(table)), epsilon=9.0, random_state=Simulation(0))
    path = cm.save_model(model, tmp_path / "model.json")
    result = {**json.loads(path.read_text()), **changed}
    del result["sha256"]
    checksum = hashlib.sha256(json.dumps(result).encode()).hexdigest()
    path.write_text(json.dumps({**result, "sha256": checksum}))
    with pytest.raises(DataError, match=r"columns|features|missing|colour|range"):
        cm.load_model(path)
