"""Problem files from strangers: bounded, and data only."""

import json
import os
import sys

import pytest
from typer.testing import CliRunner

from convexmarket.cli import app, ending
from convexmarket.errors import DataError, ProblemFileError
from convexmarket.lab.kinds import KINDS
from convexmarket.lab.kinds.ridge_comparison import run as ridge
from convexmarket.lab.problem import limits
from convexmarket.lab.problem.base import RunTable
from convexmarket.lab.problem.limits import DEEPEST, MOST_ENTRIES
from convexmarket.lab.problem.loading import json_schema, load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.problem.builders import TWO_SELLERS

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
file = "rows.csv"
label = "label"
classes = ["no", "yes"]
features = { x = [-1, 1] }
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


@pytest.mark.parametrize("hard", ["a", '". "', '"', "' ", "a . ", '"".', "9", " "])
def test_the_scan_looks_at_every_place_once(hard, monkeypatch):
    class Counted:
        def __init__(self, pattern):
            self.pattern, self.steps = pattern, 0

        def match(self, line, start):
            found = self.pattern.match(line, start)
            self.steps += 1 + (len(found[0]) if found else 0)
            return found

        def finditer(self, line):
            for found in self.pattern.finditer(line):
                self.steps += len(found[0])
                yield found

    line = "." * DEEPEST + hard * 5_000 + "." * DEEPEST
    counted = [Counted(limits._NAME), Counted(limits._DOT)]
    monkeypatch.setattr(limits, "_NAME", counted[0])
    monkeypatch.setattr(limits, "_DOT", counted[1])
    limits._deep_key(line)
    assert sum(pattern.steps for pattern in counted) <= 4 * len(line)


@pytest.mark.parametrize("key", ["a.b", "'a' . \"b\"", '"".b', "\u00e4.b"])
def test_deep_keys_are_found_wherever_quotes_stand(key):
    deep = " . ".join([key] * (DEEPEST // 2 + 1))
    for line in (deep, f"x = {{{deep} = 1}}", f'x""", {deep} = "y"', f'x = ["\'", {{{deep} = 1}}]'):
        with pytest.raises(ValueError, match="joins more than 20 names"):
            limits.check_text(line)
    limits.check_text(" . ".join([key] * (DEEPEST // 2)) + " = 1")


ROWS = 'data={source="synthetic", n_sellers=1000000, n_features=10000}'
GROUP = "name='g', mu=1, sigma=1, gamma=1, regularization=1"
FEW, MANY = "n_sellers=10, n_features=2", "n_sellers=1000000, n_features=10000"
NET = 'kind="non-interactive", label="n", rounds=10000, net_radius=0.1'
LARGE = [
    ("synthetic", "data.n_sellers x data.n_features", [ROWS]),
    ("synthetic", "data.n_sellers x objective", [f"objective.mu={[*range(1, 101)]}"]),
    ("medical-market", "data.n_rows x data.n_features",
     ['data={source="synthetic-regression", n_rows=1000000, n_features=10000}']),
    ("medical-market", "data.n_features x data.n_features",
     ['data={source="synthetic-regression", n_rows=2, n_features=10000}']),
    ("ridge-synthetic", "data.n_rows x data.n_features x data.n_features",
     ["data.n_rows=100000", "data.n_features=1000"]),
    ("ridge-synthetic", "data.n_rows x run.samples x sweeps",
     ["data.n_rows=100000", "data.n_features=1", "run.samples=1000"]),
    ("variants-costs", "sellers x variants", ["sellers.count=100000"]),
    ("joint-methods", "groups.sizes.n_sellers x groups.sizes.n_features",
     [f"groups=[{{{GROUP}, data={{source='synthetic', {MANY}}}}}]"]),
    ("joint-methods", "groups.sizes.n_sellers x groups.sizes.n_features",
     [f"groups=[{{{GROUP}, data={{source='synthetic', {FEW}}}, "
      "sizes={n_sellers=[2, 1000000], n_features=[1, 1000]}}]"]),
    ("joint-methods", "groups.instances x",
     [f"groups=[{{{GROUP}, data={{source='synthetic', {FEW}}}, instances=10000}}]"]),
    ("joint-spread", "data.n_sellers x data.n_features x sweep.values",
     ["data.n_sellers=100000", "data.n_features=10000"]),
    ("joint-spread", "sweep.draws x sweep.values", ["sweep.draws=10000"]),
    ("joint-wdbc", "data.n_sellers x data.n_features", [ROWS]),
    ("online-wdbc", "data.n_sellers x data.n_features", [ROWS]),
    ("online-uniform04", "study.draws x study.sizes", ["study.draws=10000"]),
    ("online-uniform04", "study.sizes: ", ["study.sizes=[100, 10000000]"]),
    ("release-circles", "study.sizes: ", ["study.sizes=[10000000]"]),
    ("release-circles", "releases.rounds x releases.max_net", [f"releases=[{{{NET}}}]"]),
    ("release-circles", "study.fits x study.draws", ["study.fits=1000", "study.draws=1000"]),
    ("solver-study", "study.problems x study.sizes", ["study.seeds=1000"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "keys", "settings"), LARGE)
def test_a_run_that_memory_does_not_hold_is_refused_before_it(name, keys, settings, monkeypatch):
    monkeypatch.setattr(limits, "_free_memory", lambda: 2**20)
    with pytest.raises(ProblemFileError, match=r"GiB at once, and 0\.0 GiB of memory are f") as no:
        load_problem(PROBLEMS / f"{name}.toml", ["run.jobs=1", *settings])
    assert keys in str(no.value)


def test_the_memory_that_a_file_may_take_is_what_is_free():
    path = PROBLEMS / "ridge-synthetic.toml"
    with pytest.raises(ProblemFileError, match=r"ridge-synthetic\.toml: data\.n_rows x .* GiB"):
        load_problem(path, ["data.n_rows=100000", "data.n_features=1000", "run.jobs=1"])
    assert load_problem(path, ["data.n_rows=1000"]).data.n_rows == 1_000


def test_no_file_has_more_jobs_than_there_are_cores(monkeypatch):
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    assert [RunTable(jobs=jobs).workers for jobs in (-1, 1, 2, 24, 1_024)] == [2, 1, 2, 2, 2]


def test_jobs_beyond_the_cores_are_told(tmp_path, monkeypatch):
    def stop(problem, progress):
        raise DataError(f"with {problem.run.workers}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("joblib.cpu_count", lambda: 3)
    monkeypatch.setattr("convexmarket.lab.run_problem", stop)
    (tmp_path / "two.toml").write_text(TWO_SELLERS)
    said = CliRunner().invoke(app, ["run", "two.toml", "--jobs", "24"])
    assert "run.jobs is 24; as there are 3 cores" in said.stderr
    assert "error: with 3" in said.stderr
    assert "run.jobs" not in CliRunner().invoke(app, ["run", "two.toml", "--jobs", "3"]).stderr


def test_a_run_without_memory_is_no_defect(capsys):
    def command():
        raise MemoryError("Unable to allocate 74.5 GiB")

    with pytest.raises(SystemExit) as end:
        ending.run_to_the_end(command)
    assert end.value.code == ending.WRONG
    said = capsys.readouterr().err
    assert said.startswith("error: not enough memory (Unable to allocate 74.5 GiB); use fewer rows")
    assert "defect" not in said


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
    assert parse_problem(STUDY, [fine]).options("mine", "highs")["solver"] == "ipm"


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
    assert (
        "mine.csv: line 2: the cell of the column 'label' of 'a' is none of the classes"
        in said.stderr.replace("\n", " ")
    )


def test_schemas_are_json():
    assert json.loads(json.dumps(json_schema())) == json_schema()
    assert len(KINDS) == len({kind.problem for kind in KINDS.values()})
