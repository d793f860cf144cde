"""Problem files from strangers: bounded, and data only."""

import json
import os
import sys

import pytest
from typer.testing import CliRunner

from convexmarket.cli import app
from convexmarket.errors import ProblemFileError
from convexmarket.experiments import ridge
from convexmarket.problems import KINDS, json_schema, load_problem, parse_problem
from convexmarket.problems.limits import DEEPEST, MOST_ENTRIES

STUDY = """
kind = "solver-study"
title = "Mine"
[study]
problems = ["a.toml"]
"""
MARKET = """
kind = "online-market"
title = "Rows from a file"
[prior]
family = "uniform"
low = 1.0
high = 5.0
[buyer]
expected_sellers = 4
mu = 1.0
sigma = 1.0
gamma = 0.01
[data]
source = "csv"
rows = "rows.csv"
classes = ["no", "yes"]
[learner]
regularization = 0.1
"""


def refusal(text, *settings):
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(text, settings)
    message = str(caught.value)
    assert len(message) < 10_000
    return message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 10_000 + "]" * 10_000, "lie too deep"),
        ("a = " + "{a = " * 5_000 + "1" + "}" * 5_000, "lie too deep"),
        ("a = " + "[" * 100 + "]" * 100, f"a lies in more than {DEEPEST}"),
        (".".join("a" * 200_000) + " = 1", f"line 1 joins more than {DEEPEST} names"),
        ("\n[" + ' . "x"' * 0 + ".".join(['"x"'] * 30) + "]", "line 2 joins more than"),
        ("a = " + "9" * 5_000, "line 1 has a number of more than 1000 digits"),
        ("a = " + "9" * 20, "a is an integer of more than 64 bits"),
        ("a = -0x" + "f" * 20, "not valid TOML"),
        ("a.b = [0x" + "f" * 20 + "]", "a.b is an integer of more than 64 bits"),
        ("".join(f"k{i} = 1\n" for i in range(80_000)), "the file has 80000 keys"),
        ("a = [" + "0," * (MOST_ENTRIES + 1) + "]", f"more than {MOST_ENTRIES} keys and entries"),
        (f'a = "{"x" * 20_001}"', "a has 20001 characters"),
        (f"{'k' * 201} = 1", "has 201 characters"),
    ],
)
def test_too_much_is_refused(text, said):
    assert said in refusal(text)


def test_settings_are_bounded_as_files_are():
    assert "is not a TOML value" in refusal(STUDY, "study.seeds=" + "[" * 10_000 + "]" * 10_000)
    assert "is not a TOML value" in refusal(STUDY, "study.seeds=" + "9" * 5_000)
    assert "more than 64 bits" in refusal(STUDY, "study.seeds=" + "9" * 30)
    assert f"more than {DEEPEST}" in refusal(STUDY, ".".join("a" * 500) + "=1")


def test_not_all_of_many_mistakes_are_listed():
    lines = refusal(STUDY, *(f"study.k{number}=1" for number in range(200))).splitlines()
    assert len(lines) == 51
    assert lines[-1] == "<text>: 150 more mistakes"


def unbounded(schema, path):
    """Yield the places of a JSON schema at which a file may say as much as it likes."""
    if isinstance(schema, list):
        for part in schema:
            yield from unbounded(part, path)
    if not isinstance(schema, dict):
        return
    kinds = schema.get("type", [])
    bounds = {
        "integer": ("maximum", "exclusiveMaximum"),
        "array": ("maxItems",),
        "string": ("maxLength", "pattern"),
    }
    for kind in [kinds] if isinstance(kinds, str) else kinds:
        known = {*bounds.get(kind, ()), "enum", "const"}
        if kind in bounds and not known & set(schema):
            yield f"{path}: {kind}"
    for key in ("items", "prefixItems", "additionalProperties", "anyOf", "oneOf"):
        yield from unbounded(schema.get(key), path)
    for name, part in schema.get("properties", {}).items():
        yield from unbounded(part, f"{path}.{name}")


def test_everything_that_a_file_may_say_is_bounded():
    tables = json_schema()["$defs"]
    assert [place for name, table in tables.items() for place in unbounded(table, name)] == []
    free = {"type": "object", "properties": {"n": {"type": "integer"}}}
    assert list(unbounded(free, "t")) == ["t.n: integer"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_pipes_and_devices_are_no_problem_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    for path in (tmp_path / "pipe.toml", "/dev/zero"):
        with pytest.raises(ProblemFileError, match="is a pipe or a device, and not a file"):
            load_problem(path)
    with pytest.raises(ProblemFileError, match=r"[Dd]irectory"):
        load_problem(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_published_tables_are_files_of_a_bounded_size(tmp_path):
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "large.csv").write_bytes(b"," * 1_000_001)
    for name, said in (("pipe.csv", "is a pipe"), ("large.csv", "holds more than 1000000 bytes")):
        with pytest.raises(ProblemFileError, match=said):
            ridge._read_table(tmp_path / name, "sweeps.0.published.0.file")


@pytest.mark.parametrize("table", ["", "study.", "run.", "limits.", "settings."])
@pytest.mark.parametrize("key", ["plugin", "plugins"])
def test_no_problem_file_names_a_plugin(tmp_path, monkeypatch, table, key):
    (tmp_path / "evil_plugin.py").write_text("raise SystemExit('was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for value in ('"evil_plugin:Solver"', '{MINE = "evil_plugin:Solver"}'):
        assert key in refusal(STUDY, f"{table}{key}={value}")
    refusal(STUDY, 'study.solvers=["evil_plugin:Solver"]')
    assert "evil_plugin" not in sys.modules


@pytest.mark.parametrize(
    "option",
    ['write_data_filename="x"', "log_file=1", 'write_mps="x"', 'solution_file="x"', 'save_path=""',
     'any="a/b"', 'any="x.csv"'],
)  # fmt: skip
def test_solver_options_name_no_files(option):
    key, _, value = option.partition("=")
    setting = f"settings.mine={{tolerance=0.1, options={{SCS={{{key}={value}}}}}}}"
    assert "settings.mine.options.SCS" in refusal(STUDY, setting)
    fine = 'settings.mine={tolerance=0.1, options={HIGHS={solver="ipm", time_limit=3}}}'
    assert parse_problem(STUDY, [fine]).setting("mine").options_of("highs")["solver"] == "ipm"


def test_only_rows_that_a_file_names_are_replaced(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "market.toml").write_text(MARKET)
    (tmp_path / "study.toml").write_text(STUDY)
    run = CliRunner().invoke
    said = run(app, ["run", "study.toml", "--data", "x.csv"])
    assert said.exit_code == 2
    assert "names no file of rows" in said.stderr.replace("\n", " ")
    said = run(app, ["run", "deep/market.toml", "--data", "missing.csv"])
    assert "missing.csv: No such file" in said.stderr
    (tmp_path / "mine.csv").write_text("id,label,x\na,maybe,0.5\n")
    said = run(app, ["run", "deep/market.toml", "--data", "mine.csv"])
    assert "mine.csv: line 2: 'maybe' is none of the classes" in said.stderr.replace("\n", " ")


def test_schemas_are_json():
    assert json.loads(json.dumps(json_schema())) == json_schema()
    assert len(KINDS) == len({model.__name__ for model in KINDS.values()})
