"""Test how problem files are read, error messages, and the problem files of the repository."""

import json
import re

import jsonschema
import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.studies.files import json_schema, load_file, parse_file
from convexmarket.studies.files.loading import KINDS
from tests import PROBLEMS
from tests.studies.files.builders import TRADEOFF, TWO_SELLERS, for_each

SHIPPED = sorted(PROBLEMS.rglob("*.toml"))


def refusal(*overrides: str, text: str = TWO_SELLERS) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_file(text, overrides, path="my.toml")
    return str(caught.value)


@for_each(
    [
        ("objective.gamma=[0.1, -0.1]", "objective.gamma[1] must be greater than 0, got -0.1"),
        ("objective.gamma=[0.1, nan]", "objective.gamma[1] must be a finite number, got nan"),
        ("objective.gamma=[true]", "objective.gamma[0] must be a valid number, got True"),
        ("objective.gamma=0.1", "objective.gamma must be a list, got 0.1"),
        ("objective.cap=0.5", "objective.cap must be greater than or equal to 1, got 0.5"),
        ("objective.gama=[1]", "objective: 'gama' is not a known key; did you mean 'gamma'?"),
        ("data.labels=[1, 2]", "data.labels[1] must be -1 or 1, got 2"),
        ("data.labels=[1]", "data: 2 rows of [1] features and 1 labels; give rows of one length"),
        ("data.features=[[1.0], [1.0, 2.0]]", "data: 2 rows of [1, 2] features and 2 labels"),
        ('data.source="wbdc"', "data.source is 'wbdc'; did you mean 'wdbc'?"),
        ('data={source="synthetic", n_sellers=9}', "data.n_features is missing"),
        ('prior.family="unifrm"', "prior: prior family 'unifrm' is unknown"),
        ("prior.high=-1", "prior: Uniform: low = 0, high = -1; give 0 <= low < high"),
        ("sellers.sensitivities=[0.1, 1.5]", "1 of 2 sensitivities are not in the support"),
        ('sellers.scenarios=["corelated"]', "scenarios[0] is 'corelated'; did you mean"),
        ("learner.tolerance=1", "learner: 'tolerance' is not a known key; known are"),
        (
            'learner.accounting="shrp"',
            "learner: accounting must be one of 'sharp', 'general', 'paper', got 'shrp'",
        ),
        ('kind="markt"', "kind is 'markt'; did you mean 'market'?"),
        ("naive={eta_range=[1.0]}", "naive.eta_range[1] is missing"),
        ("naive={eta_range=[2.0, 1.0]}", "naive.eta_range is empty; give [low, high]"),
    ],
)
def test_errors_name_the_mistake(override, expected):
    message = refusal(override)
    assert message.startswith("my.toml: ")
    assert expected in message
    assert "\n" not in message


@for_each(
    [
        ("kind = ", "my.toml: not valid TOML: Invalid value"),
        ('title = "no kind"', "my.toml: kind is missing; known are "),
        (TWO_SELLERS.replace('source = "inline"\n', ""), "my.toml: data.source is missing"),
    ],
)
def test_invalid_toml_is_refused(text, expected):
    assert refusal(text=text).startswith(expected)


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(ProblemFileError, match=r"none\.toml: No such file"):
        load_file(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes('title = "é"'.encode("latin-1"))
    with pytest.raises(ProblemFileError, match="UTF-8"):
        load_file(tmp_path / "latin.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(ProblemFileError, match="holds more than 1000000 bytes"):
        load_file(tmp_path / "big.toml")


@for_each(
    [
        ("objective.gamma", "write KEY=VALUE"),
        ("=3", "write KEY=VALUE"),
        ("title=Mine", "text in double quotes: --set 'title=\"Mine\"'"),
        ("run.seed=1\nrun.jobs=3", "is not a TOML value"),
        ("title.x=1", "title is not a table"),
    ],
)
def test_invalid_overrides_are_refused(override, expected):
    assert expected in refusal(override)


def test_shipped_problems_are_valid():
    problems = [load_file(path) for path in SHIPPED]
    assert all(problem.title and problem.notes for problem in problems)
    assert {problem.kind for problem in problems} == set(KINDS)
    validator = jsonschema.Draft202012Validator(json_schema())
    for problem in problems:
        validator.validate(problem.source.table)


MARKET = """
kind = "market"
title = "Charges"
[data]
source = "medical"
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
gamma = [0.001]
[learner]
name = "PersonalizedRidge"
regularization = [0.3, 1.0]
label_noise = 0.2
coef_norm = 1.0
"""


@for_each(
    [
        ("learner.target_range=[1.0, 1.0]", "learner"),
        ("learner.regularization=[1.0, 1.0]", "learner.regularization"),
        ("learner.label_noise=-1.0", "learner.label_noise"),
        (
            'learner={name="PersonalizedRidge", regularization=[1], coef_norm=1}',
            "learner.label_noise",
        ),
        ("learner.features=1", "learner"),
        ('learner.regularization="auto"', "learner.regularization"),
        ('learner.sensitivity="loose"', "learner"),
        ("objective.mu=[1.0]", "objective"),
        ("units.per_label=0.0", "units.per_label"),
    ],
)
def test_errors_of_a_regression_market_name_the_key(setting, key):
    with pytest.raises(ProblemFileError, match=f"^<text>: {re.escape(key)}( |:)"):
        parse_file(MARKET, [setting])


def refusal_of_a_table(*overrides):
    return refusal(*overrides, text=TRADEOFF)


@for_each(
    [
        ("data.features.age=[18]", "data.features.age: (18,) is not valid; give the range"),
        (
            "data.features.age=[18, inf]",
            "data.features.age: (18, inf) is not valid; give the range",
        ),
        ('data.features.smoker=["no", "no "]', "['no', 'no'] is not valid; give the range"),
        ('data.label="ask"', "data: the label 'ask' is the column of reports"),
        ('data.id="age"', "data: the feature 'age' is the column of ids"),
        ("data.features.ask=[0, 1]", "data: the feature 'ask' is the sellers' report"),
        ('data.classes=["no", 1]', "data.classes: ['no', 1] is not [negative, positive]"),
        ('data.missing="guess"', "data.missing is 'guess'; known are 'error', 'middle'"),
        ("data.public={test=0.2}", "public = { validation = 0.2, test = 0.2 }"),
        ("sellers.sensitivities=[0.1]", "the column data.report, 'ask', contains the reports"),
    ]
)
def test_an_invalid_declaration_of_a_table_is_refused(override, words):
    assert words in refusal_of_a_table(override), refusal_of_a_table(override)


def test_a_file_with_many_dots_is_refused_before_it_is_parsed():
    with pytest.raises(ProblemFileError, match="more than 10000 dots"):
        parse_file("a" + ".a" * 100_000 + " = 1")


def test_no_jobs_are_refused():
    assert re.search(r"run.jobs: .*if not -1, must be .*>= 1, got 0$", refusal("run.jobs=0"))


def test_one_error_names_all_open_declarations():
    text = refusal_of_a_table('data.features.age="?"', 'data.classes="?"', 'prior.low="?"')
    keys = "data.classes, data.features.age, prior.low"
    assert text.startswith(f"my.toml: the value of {keys} is '?'; replace it")


def test_the_schema_refuses_wrong_values_and_defines_its_references():
    schema = json_schema()
    validator = jsonschema.Draft202012Validator(schema)
    wrong = load_file(PROBLEMS / "wdbc.toml", ["run.seed=1"]).source.table
    wrong["objective"]["gamma"] = [-1.0]
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(wrong)
    references = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert references <= set(schema["$defs"])
