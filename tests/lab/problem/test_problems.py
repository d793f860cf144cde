"""Problem files: what they say, what is refused and in which words, and the shipped ones."""

import json
import re

import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.kinds.tradeoff.problem import ClassificationTradeoff, RegressionTradeoff
from convexmarket.lab.problem.classification import InlineData
from convexmarket.lab.problem.loading import _tables_in, json_schema, load_problem, parse_problem
from convexmarket.lab.problem.meanings import MEANINGS
from convexmarket.priors import Uniform
from convexmarket.studies.files.loading import kind_of
from tests import PROBLEMS
from tests.lab.problem.builders import TWO_SELLERS, for_each

SHIPPED = [path for path in sorted(PROBLEMS.glob("*.toml")) if kind_of(path) in KINDS]


def refusal(*overrides: str, text: str = TWO_SELLERS) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(text, overrides, path="my.toml")
    return str(caught.value)


def test_values_and_defaults():
    problem = parse_problem(TWO_SELLERS)
    assert isinstance(problem, ClassificationTradeoff)
    assert isinstance(problem.data, InlineData)
    assert problem.prior == Uniform(0, 1)
    assert problem.objective.mu == (1.0,)
    assert problem.objective.cap is None
    assert problem.learner.draws == 15
    assert problem.sellers.scenarios == ("independent",)


def test_the_source_is_kept():
    problem = parse_problem(TWO_SELLERS, ["run.seed=3"], path="my.toml")
    assert problem.source.path == "my.toml"
    assert problem.source.text == TWO_SELLERS
    assert problem.source.overrides == ("run.seed=3",)
    assert len(problem.source.sha256) == 64


def test_a_dump_is_a_problem_again():
    dump = parse_problem(TWO_SELLERS).model_dump(mode="json")
    assert ClassificationTradeoff.model_validate(dump).model_dump(mode="json") == dump


def test_problems_are_immutable():
    with pytest.raises(ValueError, match="frozen"):
        parse_problem(TWO_SELLERS).title = "another"


@for_each(
    [
        ("objective.gamma=[0.1, -0.1]", "objective.gamma[1] must be greater than 0, got -0.1"),
        ("objective.gamma=[0.1, nan]", "objective.gamma[1] must be a finite number, got nan"),
        ('objective.gamma=["a"]', "objective.gamma[0] must be a valid number, got 'a'"),
        ("objective.gamma=[true]", "objective.gamma[0] must be a valid number, got True"),
        ("objective.gamma=[]", "objective.gamma must have more entries, got []"),
        ("objective.gamma=0.1", "objective.gamma must be a list, got 0.1"),
        ("objective.mu=[0]", "objective.mu[0] must be greater than 0, got 0"),
        ("objective.cap=0.5", "objective.cap must be greater than or equal to 1, got 0.5"),
        ("objective.gama=[1]", "objective.gama is not a known key; did you mean 'gamma'?"),
        ("sellers.x=1", "sellers.x is not a known key; known are 'sensitivities', 'scenarios'"),
        ("data.label=[1]", "data.label is not a known key; did you mean 'labels'?"),
        ("data.labels=[1, 2]", "data.labels[1] must be -1 or 1, got 2"),
        ("data.labels=[1]", "data: there are 2 rows of features and 1 labels"),
        ("data.features=[[1.0], [1.0, 2.0]]", "data: the rows of features have [1, 2] entries"),
        ('data.source="wbdc"', "data.source is 'wbdc'; did you mean 'wdbc'?"),
        ("data=3", "data must be a table, got 3"),
        ('prior.family="unifrm"', "prior: prior family 'unifrm' is unknown"),
        ("prior.high=-1", "prior: Uniform: low = 0, high = -1; give 0 <= low < high"),
        ("prior.top=1", "prior: Uniform: got an unexpected keyword argument 'top'"),
        ("sellers.sensitivities=[0.1, 1.5]", "1 of 2 sensitivities are not in the support"),
        ("sellers.sensitivities=[0.1]", "there are 1 sensitivities for 2 rows of data"),
        ('sellers.scenarios=["corelated"]', "scenarios[0] is 'corelated'; did you mean"),
        ('sellers.scenarios=["correlated", "correlated"]', "a scenario is listed twice"),
        ("sellers.correlated_with=-1", "sellers.correlated_with: -1 is no feature"),
        ("learner.draws=1.5", "learner.draws must be a valid integer, got 1.5"),
        ('learner.accounting="shrp"', "learner.accounting is 'shrp'; did you mean 'sharp'?"),
        ("naive.eta_range=[2, 1]", "naive.eta_range: the range is empty"),
        ("run.jobs=0", "run.jobs: no job would do the work"),
        ('kind="tradeof"', "kind is 'tradeof'; did you mean 'tradeoff'?"),
    ],
)
def test_mistakes_are_named(override, said):
    message = refusal(override)
    assert message.startswith("my.toml: ")
    assert said in message
    assert "\n" not in message


def test_every_mistake_has_its_line():
    lines = refusal("objective.gamma=[-1, -2]", "lerner.draws=3").splitlines()
    assert len(lines) == 3
    assert all(line.startswith("my.toml: ") for line in lines)
    assert lines[2] == "my.toml: lerner is not a known key; did you mean 'learner'?"


@for_each(
    [
        ("kind = ", "my.toml: not valid TOML: Invalid value"),
        ('title = "no kind"', "my.toml: kind is missing; give one of 'online-market'"),
        (TWO_SELLERS.replace('source = "inline"\n', ""), "my.toml: data.source is missing"),
        (TWO_SELLERS.replace("mu = [1]\n", ""), "my.toml: objective.mu is missing"),
    ],
)
def test_broken_files(text, said):
    assert refusal(text=text).startswith(said)


def test_a_syntax_error_names_its_line():
    assert "at line 3" in refusal(text='kind = "tradeoff"\n\ntitle = Two\n')


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ProblemFileError, match=r"none\.toml: No such file"):
        load_problem(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes('title = "é"'.encode("latin-1"))
    with pytest.raises(ProblemFileError, match="UTF-8"):
        load_problem(tmp_path / "latin.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * 1_000_001)
    with pytest.raises(ProblemFileError, match="holds more than 1000000 bytes"):
        load_problem(tmp_path / "big.toml")


def test_overrides_replace_values():
    problem = parse_problem(
        TWO_SELLERS, ["objective.gamma=[0.001, 0.01]", 'title="Mine"', "run.seed=7"]
    )
    assert problem.objective.gamma == (0.001, 0.01)
    assert problem.title == "Mine"
    assert problem.run.seed == 7  # a table that the file does not have


@for_each(
    [
        ("objective.gamma", "write KEY=VALUE"),
        ("=3", "write KEY=VALUE"),
        ("title=Mine", "text in double quotes: --set 'title=\"Mine\"'"),
        ("run.seed=1\nrun.jobs=3", "is not a TOML value"),
        ("title.x=1", "title is not a table"),
    ],
)
def test_bad_overrides(override, said):
    assert said in refusal(override)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_problems_are_valid(path):
    problem = load_problem(path)
    assert problem.title
    assert problem.notes


def test_the_main_ones_are_shipped():
    assert {"medical-market", "quickstart", "synthetic", "wdbc"} <= {path.stem for path in SHIPPED}


def test_every_key_of_a_problem_file_has_a_meaning_and_every_meaning_a_key():
    tables = json_schema()["$defs"]
    fields = {
        (table, key): field
        for table, one in tables.items()
        for key, field in one.get("properties", {}).items()
    }
    assert [name for name, field in fields.items() if "description" not in field] == []
    assert set(MEANINGS) <= {word for table, key in fields for word in (key, f"{table}.{key}")}


def test_the_schema_describes_every_key():
    definitions = json_schema()["$defs"]
    models = [(name, model) for name, kind in KINDS.items() for model in _tables_in(kind.problem)]
    assert len(models) > len(KINDS)
    for kind, model in models:
        schema = definitions[model.__name__]
        assert schema["properties"]["kind"]["const"] == kind
        assert schema["additionalProperties"] is False, kind
        assert set(schema["properties"]) == set(model.model_fields), kind


def test_the_schema_knows_every_kind_and_has_every_table_that_it_refers_to():
    schema = json_schema()
    assert set(schema["discriminator"]["mapping"]) == {*KINDS, "solvers"}
    references = set(re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)))
    assert references == set(schema["$defs"])
    gamma = schema["$defs"]["ObjectiveTable"]["properties"]["gamma"]
    assert gamma["items"]["exclusiveMinimum"] == 0


def test_a_range_of_eta_for_the_mechanism():
    assert parse_problem(TWO_SELLERS, ["objective.eta_range=[0.1, 2]"]).objective.eta_range == (
        0.1,
        2.0,
    )
    assert "objective.eta_range" in refusal("objective.eta_range=[2, 0.1]")


MARKET = """
kind = "tradeoff"
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


def test_a_regression_market_and_its_defaults():
    problem = parse_problem(MARKET)
    assert isinstance(problem, RegressionTradeoff)
    assert problem.learner.sensitivity == "tight"
    assert problem.learner.target_range == (-1.0, 1.0)
    assert problem.learner.smallest_eigenvalue == 0.0
    assert problem.units.per_label == 1.0
    dump = problem.model_dump(mode="json")
    assert RegressionTradeoff.model_validate(dump).model_dump(mode="json") == dump


@for_each(
    [
        ("learner.target_range=[1.0, 1.0]", "learner.target_range"),
        ("learner.regularization=[1.0, 1.0]", "learner.regularization"),
        ("learner.regularization=[0.0]", "learner.regularization[0]"),
        ("learner.label_noise=-1.0", "learner.label_noise"),
        ("learner.failure_probability=1.0", "learner.failure_probability"),
        ('learner.sensitivity="loose"', "learner.sensitivity"),
        ("objective.gamma=[0.1, 0.1]", "objective.gamma"),
        ("objective.mu=[1.0]", "objective.mu"),
        ('data.source="wdbc"', "data.source"),
        ("data.n_rows=5", "data.n_rows"),
        ("data.train_fraction=1.0", "data.train_fraction"),
        ("sellers.sensitivities=[9.0]", "sellers"),
        ("units.per_label=0.0", "units.per_label"),
        ("naive.grid=2", "naive"),
    ],
)
def test_a_wrong_regression_market_is_told_where(setting, key):
    with pytest.raises(ProblemFileError, match=f"^<text>: {re.escape(key)}( |:)"):
        parse_problem(MARKET, [setting])
