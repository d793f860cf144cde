"""Tables of the user's own in problem files: what they may say, and how they are refused."""

import json

import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.tradeoff.problem import ClassificationTradeoff
from convexmarket.lab.problem.loading import load_problem, parse_problem, rows_setting
from tests.lab.builders import REGRESSION, TRADEOFF, written
from tests.lab.problem.builders import for_each


def refusal(*overrides, text=TRADEOFF):
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(text, overrides, path="my.toml")
    return str(caught.value)


def test_ranges_and_categories_are_told_apart():
    data = parse_problem(TRADEOFF).data
    assert data.features["age"] == (18.0, 100.0)
    assert data.features["smoker"] == ("no", "former", "yes")
    public = data.public_features
    assert public.columns == {
        "age": (18.0, 100.0),
        "bmi": (15.0, 50.0),
        "smoker": ["no", "former", "yes"],
    }
    assert (public.missing, public.intercept, public.data_norm) == ("indicator", True, 1.0)


def test_two_categories_are_no_range():
    problem = parse_problem(TRADEOFF, ['data.features.smoker=["0", "1"]'])
    assert problem.data.public_features.columns["smoker"] == ["0", "1"]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("text", [TRADEOFF, REGRESSION])
def test_a_dump_is_a_problem_again(text):
    problem = parse_problem(text)
    dump = problem.model_dump(mode="json")
    again = type(problem).model_validate_json(json.dumps(dump))
    assert again.model_dump(mode="json") == dump
    assert again.data == problem.data


def test_files_are_sought_from_where_the_problem_lies(tmp_path):
    problem = load_problem(written(tmp_path))
    assert isinstance(problem, ClassificationTradeoff)
    assert problem.file(problem.data.file) == tmp_path / "patients.csv"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "more.csv").write_text("a\n")
    assert rows_setting(problem, tmp_path / "other" / "more.csv") == 'data.file="other/more.csv"'


@for_each(
    [
        ("data.features.age=[18]", "data.features.age: [18] says nothing public of a column"),
        ("data.features.age=[100, 18]", "[low, high] with low < high"),
        ("data.features.age=[18, inf]", "[18, inf] says nothing public of a column"),
        ('data.features.age="young"', "data.features.age: 'young' says nothing public"),
        ('data.features.smoker=["no", "no "]', "data.features.smoker: ['no', 'no ']"),
        ("data.features.smoker=[]", "data.features.smoker: [] says nothing public"),
        ("data.features.smoker=[true, false]", "data.features.smoker: [True, False]"),
        ("data.features={}", "data.features must have more entries, got {}"),
        ("data.features.ask=[0, 1]", "data: the column 'ask' is report, and so no feature"),
        ("data.features.ill=[0, 1]", "data: the column 'ill' is label, and so no feature"),
        ('data.id="ask"', "data: the column 'ask' is named twice among id, report, label"),
        ('data.group="region"', "data: group: a market of this kind knows no groups and quotas"),
        ('data.quota="q"', "data: quota: a market of this kind knows no groups and quotas"),
        ('data.classes=["no"]', "data.classes"),
        ('data.classes=["no", 1]', "classes are 'no' and 1; give two texts or two numbers"),
        ("data.classes=[1, 1]", "classes are twice 1"),
        ('data.missing="guess"', "data.missing is 'guess'; known are 'error', 'middle'"),
        ("data.data_norm=0", "data.data_norm must be greater than 0, got 0"),
        ("data.public={test=0.2}", "data.public.validation is missing"),
        ("data.public={validation=0.5,test=0.5}", "leave rows to be bought"),
        ('data.test="t.csv"', "say which rows are public, and so not bought"),
        ('data.source="xls"', "data.source is 'xls'; known are"),
        ("sellers.scenarios=['correlated']", "the sellers' reports are those of the file"),
        ("sellers.sensitivities=[0.1]", "(data.report, 'ask')"),
    ]
)
def test_what_is_refused(override, words):
    assert words in refusal(override), refusal(override)


def test_public_rows_have_to_be_named():
    without = TRADEOFF.replace("public = {validation = 0.2, test = 0.3}", "")
    assert "public = { validation = 0.2, test = 0.2 }" in refusal(text=without)
    assert "files of their own" in refusal('data.validation="v.csv"', text=without)
    files = ['data.validation="v.csv"', 'data.test="t.csv"']
    assert parse_problem(without, files).data.public_files == {
        "validation": "v.csv",
        "test": "t.csv",
    }


def test_a_report_is_no_feature_whatever_it_is_called():
    without = TRADEOFF.replace('report = "ask"\n', "")
    said = refusal("data.features.ask=[0, 1]", text=without)
    assert "the feature 'ask' is what the sellers report" in said


def test_a_regression_has_no_classes_and_no_rows_for_choosing():
    assert "data.classes is not a known key" in refusal('data.classes=["a", "b"]', text=REGRESSION)
    shares = "data.public={validation=0.1,test=0.1}"
    assert "data.public.validation is not a known key" in refusal(shares, text=REGRESSION)


def test_what_is_still_to_be_declared_is_said_at_once():
    said = refusal('data.features.age="?"', 'data.classes="?"', 'prior.low="?"').splitlines()
    assert len(said) == 3
    assert said[0].startswith("my.toml: data.classes is '?': it is still to be declared; give the")
    assert said[1].startswith("my.toml: data.features.age is '?'")
    assert said[1].endswith('give the range of a number, [low, high], or categories, ["no", "yes"]')
    assert said[2].startswith("my.toml: prior.low is '?'")
