"""Saved models are restored exactly and contain no private data. Damaged files raise errors."""

import hashlib
import json
import os
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from jsonschema import Draft202012Validator

import convexmarket as cm
from convexmarket import io as writing
from convexmarket.errors import DataError, NotSupportedError, ParameterError
from convexmarket.learners import saved as saving
from convexmarket.learners.predictor import Kernel
from convexmarket.learners.saved import Document
from convexmarket.privacy import Guarantee, Simulation
from convexmarket.release import PublicPredictor
from tests import ROOT, one_in
from tests.learners.builders import output_ridge

ROWS = np.random.default_rng(5).uniform(0.0, 0.5, (12, 3))
TABLE = pd.DataFrame(ROWS, columns=["age", "naïve \u2603", "weight"])
TARGETS = ROWS @ [0.5, -0.5, 0.2]
LABELS = np.where(ROWS[:, 0] > 0.25, "yes", "no")
EPSILON = np.linspace(0.5, 2.0, 12)
GUARANTEE = Guarantee(np.array([0.25, 0.5]), 1e-6, "a release", "tight", ("noise is secret",))


def logistic(X=ROWS, classes=("no", "yes"), y=LABELS, **parameters):
    model = cm.PrivateLogisticRegression(0.1, classes=classes, **parameters)
    return model.fit(X, y, epsilon=np.linspace(3.0, 6.0, 12), random_state=Simulation(3))


def ridge(cls=output_ridge, X=ROWS, **parameters):
    return cls(0.5, **parameters).fit(X, TARGETS, epsilon=EPSILON, random_state=Simulation(3))


def predictor(n_points=4, classes=("no", "yes"), names=None, kernel="rbf", **parameters):
    rng = np.random.default_rng(2)
    kernel = Kernel(kernel, data_norm=1.0, **parameters)
    points = np.asfortranarray(rng.uniform(-0.5, 0.5, (n_points, 3)))
    return PublicPredictor(kernel, points, rng.standard_normal(n_points), GUARANTEE, classes, names)


MODELS = {
    "logistic": logistic,
    "logistic of a table": lambda: logistic(TABLE),
    "logistic of integers": lambda: logistic(classes=(3, -4), y=np.where(LABELS == "no", 3, -4)),
    "logistic of bools": lambda: logistic(classes=(False, True), y=LABELS == "yes"),
    "logistic without noise": lambda: cm.PrivateLogisticRegression(0.1, classes=("no", "yes")).fit(
        ROWS, LABELS, epsilon=np.inf
    ),
    "hinge": lambda: cm.learners.PrivateLinearSVC(classes=("no", "yes")).fit(
        ROWS, LABELS, epsilon=9.0, random_state=Simulation(3)
    ),
    "Huber": lambda: ridge(cm.learners.PrivateHuberRegressor),
    "personalised": ridge,
    "by default": lambda: ridge(cm.PersonalizedRidge),
    "personalised of a table": lambda: ridge(X=TABLE),
    "personalised, own weights": lambda: ridge(weighting=np.full(12, 1 / 12)),
    "personalised, ranges": lambda: ridge(
        feature_range=([0.0, -1.0, 0.0], np.array([1.0, 2.0, 3.0])), target_range=(-2, 2)
    ),
    "one for all": lambda: ridge(weighting="equal"),
    "statistics": lambda: ridge(cm.PersonalizedRidge, perturbation="statistics"),
    "predictor": predictor,
    "predictor of a table": lambda: predictor(names=tuple(TABLE.columns)),
    "predictor of numbers": lambda: predictor(classes=None),
    "empty predictor": lambda: predictor(n_points=0, classes=(False, True)),
    "polynomial": lambda: predictor(kernel="poly", gamma=0.3, degree=2, coef0=0.5),
    "laplacian": lambda: predictor(kernel="laplacian", gamma=1 / 3, classes=(0.5, 1.5)),
}


SCHEMA = Draft202012Validator(Document.model_json_schema())


def answers(model, rows=ROWS):
    """Return the results of all prediction methods, with their types."""
    words = [model.predict(rows)]
    for method in ("classify", "predict_proba", "decision_function"):
        if hasattr(model, method) and getattr(model, "classes", 0) is not None:
            words.append(getattr(model, method)(rows))
    return [(array.dtype, array.tobytes()) for array in words]


def guarantee_of(model):
    return getattr(model, "guarantee_", None) or model.guarantee


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_has_the_predictions_and_the_guarantee_of_the_saved_model(name, tmp_path):
    model = MODELS[name]()
    rows = TABLE if name.endswith("table") else ROWS
    path = cm.save_model(model, tmp_path / "whole.json", guarantee="rows")
    short = cm.save_model(model, tmp_path / "brief.json")
    loaded, of_short = cm.load_model(path), cm.load_model(str(short))
    for each in (loaded, of_short):
        assert type(each) is type(model)
        assert answers(each, rows) == answers(model, rows)
    if name.endswith("table"):
        with pytest.raises((ValueError, DataError), match=r"(?i)columns|feature names"):
            loaded.predict(TABLE[TABLE.columns[::-1]])
    promised, whole, brief = map(guarantee_of, (model, loaded, of_short))
    assert whole.epsilon.tobytes() == promised.epsilon.tobytes()
    assert whole.assumptions == promised.assumptions
    assert brief.epsilon.tolist() == [promised.epsilon.max()] * promised.epsilon.size
    assert brief.assumptions == (*promised.assumptions, saving.NOT_KEPT)
    for field in ("delta", "mechanism", "accounting"):
        assert getattr(whole, field) == getattr(brief, field) == getattr(promised, field)
    again = cm.save_model(loaded, tmp_path / "again.json", guarantee="rows")
    assert again.read_bytes() == path.read_bytes()
    for file in (path, short):
        SCHEMA.validate(json.loads(file.read_text(encoding="utf-8")))


LARGEST = 1e150
finite = st.floats(-LARGEST, LARGEST)


@given(
    coefficients=arrays(np.float64, st.integers(1, 6), elements=finite),
    epsilon=arrays(np.float64, st.integers(1, 5), elements=st.floats(0.0, np.inf)),
    intercept=finite,
    names=st.lists(
        st.text(st.characters(exclude_categories=["C", "Z"])), min_size=6, max_size=6, unique=True
    ),
    labels=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=2, unique=True),
    detail=st.sampled_from(["rows", "summary"]),
)
@example(np.array([-0.0, 5e-324, LARGEST]), np.array([np.inf]), -0.0,
         ["", " ", "\u2603", '"', "\\", "é"], [-(2**63), 2**63 - 1], "rows")  # fmt: skip
def test_every_number_and_name_is_restored(
    tmp_path_factory, coefficients, epsilon, intercept, names, labels, detail
):
    folder = tmp_path_factory.mktemp("saved")
    linear = output_ridge(weighting="equal")
    linear.coef_, linear.intercept_ = coefficients, intercept
    linear.n_features_in_ = coefficients.size
    linear.feature_names_in_ = np.array(names[: coefficients.size], dtype=object)
    linear.guarantee_ = Guarantee(epsilon, 0.0, names[0], names[1], tuple(names))
    sorts = cm.PrivateLogisticRegression(classes=None)
    sorts.__dict__.update({**vars(linear), "classes_": np.array(labels)})
    others = set(linear.get_params()) - set(sorts.get_params())
    for key in sorted(others):
        del sorts.__dict__[key]
    for model in (linear, sorts):
        loaded = cm.load_model(cm.save_model(model, folder / "m.json", guarantee=detail))
        assert loaded.coef_.tobytes() == coefficients.tobytes()
        assert loaded.feature_names_in_.tolist() == names[: coefficients.size]
        assert loaded.guarantee_.epsilon.max() == epsilon.max()
        if detail == "rows":
            assert loaded.guarantee_.epsilon.tobytes() == epsilon.tobytes()
        if model is linear:
            assert np.float64(loaded.intercept_).tobytes() == np.float64(intercept).tobytes()
        else:
            assert loaded.classes_.tolist() == labels
            assert loaded.classes_.dtype == np.int64


def test_files_contain_no_seeds_diagnostics_or_values_of_single_sellers(tmp_path):
    path = cm.save_model(logistic(), tmp_path / "m.json")
    text = path.read_text(encoding="utf-8")
    for word in ('"random_state', "gradient_norm", "noise_rate", '"eta'):
        assert word not in text
    model = ridge(weighting=EPSILON / EPSILON.sum())
    text = cm.save_model(model, tmp_path / "r.json").read_text(encoding="utf-8")
    written = set(re.findall(r"[-+.\de]*\d", text))
    for number in [*model.epsilon_[:-1], *model.weighting]:
        assert repr(float(number)) not in written
    assert json.loads(text)["parameters"]["weighting"] == "withheld"
    loaded = cm.load_model(tmp_path / "r.json")
    with pytest.raises(ParameterError, match="withheld"):
        loaded.fit(ROWS, TARGETS, epsilon=EPSILON)
    request = cm.save_model(model, tmp_path / "w.json", guarantee="rows")
    assert (
        json.loads(request.read_text(encoding="utf-8"))["parameters"]["weighting"]
        == model.weighting.tolist()
    )


def test_attributes_computed_from_private_rows_are_not_written(tmp_path):
    with pytest.warns(cm.PrivacyLeakWarning):
        model = logistic(data_norm=None)
    path = cm.save_model(model, tmp_path / "m.json")
    result = json.loads(path.read_text(encoding="utf-8"))
    assert result["parameters"]["data_norm"] is None
    assert repr(model.data_norm_)[:10] not in path.read_text(encoding="utf-8")
    assert any(words.startswith("VIOLATED") for words in result["assumptions"])
    assert not hasattr(cm.load_model(path), "data_norm_")


def test_models_without_a_guarantee_are_refused(tmp_path):
    kernel = cm.KernelERM(data_norm=1.0).fit(ROWS, np.where(LABELS == "yes", 1, -1))
    for model in (kernel, "text", None):
        with pytest.raises(NotSupportedError, match="has no guarantee"):
            cm.save_model(model, tmp_path / "m.json")
    with pytest.raises(DataError, match="call fit first"):
        cm.save_model(cm.PersonalizedRidge(), tmp_path / "m.json")
    assert not list(tmp_path.iterdir())


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="must be one of 'summary', 'rows'"):
        cm.save_model(ridge(), tmp_path / "m.json", guarantee="all")
    for wrong in (lambda: cm.save_model(ridge(), 3), lambda: cm.load_model(3)):
        with pytest.raises(ParameterError, match="path must be the path of a file, got 3"):
            wrong()
    with pytest.raises(DataError, match=r"saved: parameters\.weighting has a value"):
        cm.save_model(ridge().set_params(weighting=object()), tmp_path / "m.json", guarantee="rows")
    with pytest.raises(DataError, match=r"parameters\.regularization has a value"):
        cm.save_model(ridge().set_params(regularization=np.inf), tmp_path / "m.json")


def test_a_failed_write_keeps_the_former_file(tmp_path, monkeypatch):
    path = cm.save_model(ridge(), tmp_path / "m.json")
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    for module, name in ((writing.os, "fsync"), (writing.os, "replace")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, full)
            with pytest.raises(DataError, match=r"m\.json: No space left on device; nothing was"):
                cm.save_model(logistic(), path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def refused(path, content, match=".", kind=DataError):
    path.write_bytes(content)
    with pytest.raises(kind, match=match) as caught:
        cm.load_model(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    return cm.save_model(ridge(X=TABLE), folder / "m.json", guarantee="rows").read_bytes()


@pytest.mark.parametrize("bit", one_in(2, [1, 8, 32, 128]))
def test_a_flipped_bit_is_refused_or_harmless(bit, saved, tmp_path):
    path = tmp_path / "m.json"
    whole = cm.load_model(cm.save_model(ridge(X=TABLE), path, guarantee="rows"))
    expected = (answers(whole, TABLE), whole.guarantee_.statement(), str(whole.get_params()))
    harmless = 0
    for place in range(bit % 7, len(saved), 7):
        damaged = bytearray(saved)
        damaged[place] ^= bit
        path.write_bytes(damaged)
        try:
            loaded = cm.load_model(path)
        except DataError:
            continue
        harmless += 1
        result = (answers(loaded, TABLE), loaded.guarantee_.statement(), str(loaded.get_params()))
        assert result == expected, place
    assert harmless < len(saved) // 14


def change(content, **tables):
    """Change entries of a saved model, and update its checksum."""
    result = json.loads(content)
    for table, entries in tables.items():
        old = result.get(table)
        merge = isinstance(entries, dict) and isinstance(old, dict)
        result[table] = {**old, **entries} if merge else entries
    return signed(result)


def signed(content):
    """Convert the contents of a model to JSON with a valid checksum."""
    content = {key: value for key, value in content.items() if key != "sha256"}
    checksum = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "sha256": checksum}).encode()


@pytest.mark.parametrize(
    ("tables", "match"),
    [
        ({"kind": "os.system"}, "kind has a value that is not allowed"),
        ({"kind": "PublicPredictor"}, "coef_, points, names, n_features_in_"),
        ({"kind": "PrivateLogisticRegression"}, "unexpected keyword argument"),
        ({"format": "pickle"}, "format has"),
        ({"version": 2}, "version has"),
        (
            {"feature_names_in_": ["age", "age", "weight"]},
            "n_features_in_, epsilon and rows are inconsistent",
        ),
        ({"parameters": {"regularization": {"a": 1}}}, "parameters.regularization"),
        ({"parameters": {"regularization": 10**400}}, "parameters.regularization"),
        ({"parameters": {"__class__": "x"}}, "'__class__'"),
        ({"features": {"missing": {}}}, "features.missing"),
        (
            {"n_features_in_": 2},
            "coef_, points, names, n_features_in_, epsilon and rows are inconsistent",
        ),
        ({"n_features_in_": 3.0}, "n_features_in_"),
        ({"coef_": [1.0, 2.0, "3"]}, "coef_.2 has"),
        ({"coef_": [1.0, 2.0, float("nan")]}, "coef_"),
        ({"coef_": [1.0, 2.0, -1e200]}, "coef_"),
        ({"intercept_": "Infinity"}, "intercept_"),
        ({"rows": 10**12, "epsilon": [1.0]}, "rows"),
        ({"epsilon": [1.0, 2.0]}, "epsilon and rows are inconsistent"),
        ({"epsilon": [-1.0] * 12}, "epsilon.0"),
        ({"law": "uniform"}, "law"),
        ({"delta": 2.0}, "delta"),
        ({"surprise": 1}, "surprise"),
    ],
    ids=str,
)
def test_errors_name_inconsistent_entries(tables, match, saved, tmp_path):
    refused(tmp_path / "m.json", change(saved, **tables), match)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (None, None),
        ([1, 300], "|i1"),
        (["a", "b"], "<i8"),
        ([["a"], "b"], "|O"),
        ([1.0, 1.00001], "<f2"),
        (["a", "b"], "<U999999"),
    ],
)
def test_inconsistent_labels_are_refused(values, dtype, tmp_path):
    result = json.loads(cm.save_model(logistic(), tmp_path / "l.json").read_bytes())
    changed = result | {"classes_": values, "dtype": dtype}
    refused(tmp_path / "l.json", signed(changed), "classes_|dtype|invalid literal|out of bounds")


@pytest.mark.parametrize(
    ("make", "parameters", "match"),
    [
        (logistic, {"classes": ["no", [1.5, "a"]]}, "classes must be two different labels"),
        (logistic, {"data_norm": -1}, "data_norm must be a finite number > 0"),
        (ridge, {"regularization": "1"}, "regularization must be"),
        (ridge, {"rounding": "x"}, "rounding must be 'auto'"),
    ],
)
def test_invalid_parameters_in_a_file_are_refused(make, parameters, match, tmp_path):
    original = cm.save_model(make(), tmp_path / "l.json").read_bytes()
    refused(tmp_path / "m.json", change(original, parameters=parameters), match)


@pytest.mark.parametrize(
    ("kernel", "match"),
    [
        ({"name": "poly", "gamma": 1e200, "degree": 3}, "parameters.gamma has"),
        ({"name": "poly", "data_norm": 1e150, "degree": 300}, "data_norm must lie between"),
        ({"name": "poly", "degree": 10**9}, "no finite bound"),
        ({"data_norm": 1e-3}, "longer than data_norm"),
    ],
)
def test_a_kernel_whose_predictions_overflow_is_refused(kernel, match, tmp_path):
    original = json.loads(cm.save_model(predictor(), tmp_path / "p.json").read_bytes())
    original["parameters"] |= kernel
    refused(tmp_path / "m.json", signed(original), match)


def test_names_that_loading_refuses_are_not_saved(tmp_path):
    model = logistic(TABLE)
    model.feature_names_in_ = np.array(["a", "b", "a"], dtype=object)
    with pytest.raises(DataError, match="n_features_in_, epsilon and rows are inconsistent"):
        cm.save_model(model, tmp_path / "m.json")


@pytest.mark.parametrize(
    "tables",
    [
        {"mechanism": "\x1b[31mred\x1b[2J"},
        {"kind": "\x1b[1A"},
        {"\x1b[1A": 1},
        {"parameters": {"\x1b[1A": 1}},
    ],
    ids=str,
)
def test_escape_sequences_of_a_file_are_not_printed(tables, saved, tmp_path):
    path = tmp_path / "m.json"
    for content in (
        change(saved, **tables),
        change(saved, **tables).decode().encode("utf-8").replace(b"\\u001b", b"\x1b"),
    ):
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            cm.load_model(path)
        assert str(caught.value).isprintable()


def test_a_wrong_checksum_is_refused(saved, tmp_path):
    result = json.loads(saved)
    result["epsilon"][-1] = 3.0
    refused(tmp_path / "m.json", json.dumps(result).encode(), "was changed after it was saved")
    del result["sha256"]
    refused(tmp_path / "m.json", json.dumps(result).encode(), "was changed after it was saved")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"\xff\xfe", "can't decode"),
        (b"[]", "has a value that is not allowed"),
        (b"[" * 19_000, r"m\.json"),  # the message depends on the version of Python
        (b'{"a": NaN}', "has a value that is not allowed"),
        (b"[" + b"[]," * 7_000_000 + b"[]]", "too many bytes, lists or numbers"),
        (b'{"a": "' + b"a" * 50_000_000 + b'"}', "not a file of at most 50,000,000 bytes"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_hostile_text_is_refused(content, match, tmp_path):
    refused(tmp_path / "m.json", content, match)


@pytest.mark.parametrize(("bound", "value"), [("LARGEST", 300), ("MOST", {b"[": 2, b",": 9})])
def test_sizes_are_bounded_when_writing_and_reading(bound, value, saved, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, bound, value)
    refused(tmp_path / "m.json", saved, "too many bytes|not a file of at most 300 bytes")
    with pytest.raises(DataError, match=r"too many bytes.*guarantee='summary'"):
        cm.save_model(ridge(X=TABLE), tmp_path / "n.json")
    assert not (tmp_path / "n.json").exists()


def test_paths_that_are_not_files_are_refused(tmp_path):
    (tmp_path / "folder.json").mkdir()
    os.mkfifo(tmp_path / "pipe.json")
    for name in ("none.json", "folder.json", "pipe.json", "\0.json", "x" * 300 + ".json"):
        with pytest.raises(DataError, match=r"give a file of save_model|is not a file"):
            cm.load_model(tmp_path / name)


def test_the_shipped_schema_is_current():
    written = (ROOT / "docs" / "model.schema.json").read_text(encoding="utf-8")
    assert json.loads(written) == Document.model_json_schema()
    Draft202012Validator.check_schema(Document.model_json_schema())


def test_the_schema_refuses_files_that_loading_refuses(saved):
    for tables in ({"surprise": 1}, {"version": 2}, {"coef_": None}, {"epsilon": [-1.0]}):
        assert not SCHEMA.is_valid(json.loads(change(saved, **tables)))
