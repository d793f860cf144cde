"""Test problem files of kind "solvers": contents, errors and messages."""

import sys

import pytest

import convexmarket as cm
from convexmarket.errors import ProblemFileError
from convexmarket.studies.files import parse_file
from convexmarket.studies.files.loading import subproblems_of

SOLVERS = """
kind = "solvers"
title = "Mine"
notes = ["A *note*."]
[study]
problems = ["allocation"]
solvers = ["exact", "CLARABEL"]
sizes = [20]
draws = 1
"""


def refusal(*settings, text=SOLVERS):
    with pytest.raises(ProblemFileError) as caught:
        parse_file(text, settings)
    message = str(caught.value)
    assert len(message) < 10_000
    return message


def test_a_file_of_kind_solvers_calls_compare_solvers(tmp_path):
    problem = parse_file(SOLVERS)
    runs = problem.perform(subproblems_of, progress=False)
    direct = cm.compare_solvers(
        ["allocation"], solvers=["exact", "CLARABEL"], sizes=[20], progress=False
    )
    columns = ["problem", "solver", "formulation", "outcome", "objective"]
    assert runs.to_frame()[columns].equals(direct.to_frame()[columns])
    report = problem.report(runs)
    assert report.settings["problem file"]["text"] == SOLVERS
    assert "A \\*note\\*" in report.to_markdown(appendix=True)


def test_sellers_of_a_csv_file_determine_the_size(tmp_path):
    rows = [f"s{k},{0.02 + 0.001 * k}" for k in range(30)]
    (tmp_path / "sellers.csv").write_text("\n".join(["id,report", *rows]))
    (tmp_path / "market.toml").write_text(
        'kind = "market"\ntitle = "Mine"\nsellers = {file = "sellers.csv", report = "report"}\n'
        'prior = {family = "uniform", low = 0.02, high = 0.1}\n[objective]\nspread.weight = 1.0\n'
        "noise.weight = 10.0\npayments.weight = 0.003\n"
    )
    entry = subproblems_of(tmp_path / "market.toml")
    runs = cm.compare_solvers({"mine": entry}, solvers=["exact"], sizes=[9], progress=False)
    columns = ["problem_class", "size", "outcome"]
    assert runs.to_frame()[columns].to_numpy().tolist() == [
        ["allocation", 30, "solved"],
        ["certified search", 30, "solved"],
    ]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("kind='solver'", "kind is 'solver'; did you mean 'solvers'?"),
        ("study.solver=['SCS']", "study: 'solver' is not a known key; did you mean 'solvers'?"),
        ("study.sizes=[1]", "study.sizes[0] must be greater than or equal to 2, got 1"),
        ("study.solvers=['os:system']", "study.solvers[0] must"),
        ("limits.seconds=nan", "limits.seconds must be a finite number, got nan"),
        ("study.sizes=[", "'[' is not a TOML value"),
        ("study.draws=" + "[" * 10_000 + "]" * 10_000, "is not a TOML value"),
        (".".join("a" * 1_500) + "=1", "nested too deeply"),
    ],
)
def test_errors_name_the_key_the_value_and_a_remedy(setting, words):
    assert words in refusal(setting)


@pytest.mark.parametrize("table", ["", "study.", "run.", "limits."])
@pytest.mark.parametrize("key", ["plugin", "plugins"])
def test_problem_files_cannot_name_plugins(tmp_path, monkeypatch, table, key):
    (tmp_path / "evil_plugin.py").write_text("raise SystemExit('was imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    for value in ('"evil_plugin:Solver"', '{MINE = "evil_plugin:Solver"}'):
        assert key in refusal(f"{table}{key}={value}")
    refusal('study.solvers=["evil_plugin:Solver"]')
    assert "evil_plugin" not in sys.modules
