"""``convexmarket report`` and ``convexmarket schema --results``, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from convexmarket import lab
from convexmarket.cli import report as report_cli
from convexmarket.lab import run_problem, write_report
from convexmarket.lab.problem.loading import load_problem
from convexmarket.lab.report import render
from convexmarket.lab.report.results import read_results, results_schema
from tests import ROOT
from tests.cli.builders import draw_nothing, invoke, plain

SMALL = """
kind = "tradeoff"
title = "Two sellers"
[data]
source = "inline"
features = [[1.0], [-1.0]]
labels = [1, -1]
[prior]
family = "uniform"
low = 0.0
high = 1.0
[sellers]
sensitivities = [0.1, 0.6]
[objective]
gamma = [0.01]
mu = [1.0]
sigma = [0.1]
[learner]
regularization = [0.1]
draws = 2
[naive]
eta_range = [1.0, 30.0]
grid = 2
[run]
jobs = 1
"""
IN_FOLDER = SMALL.replace("title = ", 'title = "In a folder"  # ')


def outcomes(text: str) -> dict[str, str]:
    """Return what the summary table says was done, by report."""
    cells = [line.split("│") for line in text.splitlines() if line.startswith("│")]
    return {row[1].strip(): row[2].strip() for row in cells if row[1].strip()}


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr(render, "save_figure", draw_nothing)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return a working directory with two problem files."""
    (tmp_path / "problems" / "clinic").mkdir(parents=True)
    (tmp_path / "problems" / "one.toml").write_text(SMALL)
    (tmp_path / "problems" / "clinic" / "market.toml").write_text(IN_FOLDER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


@pytest.fixture
def runs(monkeypatch):
    """Return the titles of the problems that are run."""
    ran: list[str] = []

    def run(problem, progress):
        ran.append(problem.title)
        return run_problem(problem, progress)

    monkeypatch.setattr(lab, "run_problem", run)
    return ran


@pytest.fixture
def folder(here):
    return write_report(run_problem(load_problem("problems/one.toml")), here / "mine").parent


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_report_is_written_again_in_its_place(folder, runs):
    before = files(folder)
    (folder / "index.html").unlink()
    (folder / "report.md").write_text("gone")
    done = invoke("report", folder)
    assert done.exit_code == 0, done.output
    assert str(folder / "index.html") in done.stdout.replace("\n", "")
    assert files(folder) == before
    assert runs == []


def test_a_report_is_written_again_elsewhere(folder, here):
    done = invoke("report", folder / "results.json", "--out", "other")
    assert done.exit_code == 0, done.output
    assert files(here / "other") == files(folder)


def test_what_cannot_be_rendered_is_told_in_one_line(folder):
    (folder / "results.json").write_text('{"format": "convexmarket-results/1", "kind": "diff"}')
    before = files(folder)
    done = invoke("report", folder)
    assert done.exit_code == 2
    assert "is a comparison of two runs, which is not rendered again" in plain(done.stderr)
    assert files(folder) == before


def test_an_index_is_written(folder, here):
    done = invoke("report", "--index", here)
    assert done.exit_code == 0, done.output
    assert 'href="mine/index.html"' in (here / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of"),
        (["mine", "--all"], "give one of"),
        (["--all", "--index", "reports"], "give one of"),
        (["--all", "--out", "x"], "--out goes with the folder of a report"),
        (["mine", "--rerun"], "--rerun goes with --all"),
        (["mine", "--problems", "x"], "--problems goes with --all"),
        (["--index", "x", "--reports", "x"], "--reports goes with --all"),
        (["nowhere"], "give the folder of a report"),
        (["--all", "--problems", "nowhere"], "there are no problem files in nowhere"),
    ],
)
def test_options_that_do_not_fit_are_refused(here, arguments, message):
    done = invoke("report", *arguments)
    assert done.exit_code == 2
    assert message in plain(done.stderr)


# ----------------------------------------------------------------------------- all of them


def test_all_runs_what_has_no_report_and_renders_the_rest(here, runs):
    done = invoke("report", "--all", "--force")
    assert done.exit_code == 0, done.output
    assert outcomes(done.stdout) == {"clinic": "run", "one": "run"}
    assert len(runs) == 2
    index = (here / "reports" / "index.html").read_text(encoding="utf-8")
    assert 'href="clinic/index.html"' in index
    assert 'href="one/index.html"' in index

    before = files(here / "reports" / "one")
    again = invoke("report", "--all", "--force")
    assert outcomes(again.stdout) == {"clinic": "rendered", "one": "rendered"}
    assert len(runs) == 2
    assert files(here / "reports" / "one") == before


def test_all_runs_again_what_is_out_of_date(here, runs):
    invoke("report", "--all", "--force", "--reports", "out")
    problem = here / "problems" / "one.toml"
    problem.write_text(SMALL + "\n# a remark\n")
    results = here / "out" / "clinic" / "results.json"
    results.write_text(results.read_text(encoding="utf-8").replace("results/2", "results/0"))
    runs.clear()
    done = invoke("report", "--all", "--force", "--reports", "out")
    assert done.exit_code == 0, done.output
    assert outcomes(done.stdout) == {"clinic": "run", "one": "run"}
    assert "the problem file has changed" in plain(done.stdout)
    assert "results/0" in plain(done.stdout)
    assert len(runs) == 2
    assert read_results(here / "out" / "one").problem.source.text.endswith("# a remark\n")


def test_all_runs_again_what_was_run_with_other_settings(here, runs):
    changed = load_problem("problems/one.toml", ["run.seed=5"])
    write_report(run_problem(changed), here / "reports" / "one")
    done = invoke("report", "--all", "--force")
    assert "it was run with run.seed=5" in plain(done.stdout)
    assert read_results(here / "reports" / "one").problem.run.seed != 5


def test_all_can_run_everything_again(here, runs):
    for _ in range(2):
        done = invoke("report", "--all", "--force", "--rerun", "--problems", here / "problems")
        assert outcomes(done.stdout) == {"clinic": "run", "one": "run"}
    assert len(runs) == 4


def test_one_failure_does_not_stop_the_others(here, monkeypatch):
    (here / "problems" / "bad.toml").write_text('kind = "nonsense"')

    def run(problem, progress):
        if problem.title == "In a folder":
            raise ZeroDivisionError("a bug")
        return run_problem(problem, progress)

    monkeypatch.setattr(lab, "run_problem", run)
    done = invoke("report", "--all", "--force")
    assert done.exit_code == 1
    assert outcomes(done.stdout) == {"bad": "failed", "clinic": "failed", "one": "run"}
    assert "kind is 'nonsense'" in plain(done.stdout)
    assert "ZeroDivisionError: a bug" in plain(done.stdout)
    assert (here / "reports" / "one" / "index.html").is_file()
    assert not (here / "reports" / "clinic").exists()


def test_two_files_for_one_report_are_refused(here):
    (here / "problems" / "clinic.toml").write_text(SMALL)
    done = invoke("report", "--all", "--force")
    assert done.exit_code == 2
    assert "would have the same report, clinic" in plain(done.stderr)


def test_a_report_is_named_after_its_problem_file():
    names = report_cli.report_names(ROOT / "problems")
    assert names["online-clinic"].parts[-2:] == ("online-clinic", "market.toml")
    assert names["wdbc"].name == "wdbc.toml"


# ------------------------------------------------------------------------------- the schema


def test_the_schema_of_results_is_printed_or_written(here):
    done = invoke("schema", "--results")
    assert json.loads(done.stdout) == results_schema()
    invoke("schema", "--results", "--out", "s.json")
    assert json.loads((here / "s.json").read_text()) == results_schema()


def test_results_that_this_version_cannot_show_are_told_and_run_again(here):
    assert invoke("report", "--all", "--force").exit_code == 0
    file = here / "reports" / "one" / "results.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    place = content["tables"]["curve"]["columns"].index("guarantee_max")
    for part in (
        content["tables"]["curve"]["columns"],
        content["tables"]["curve"]["dtypes"],
        *content["tables"]["curve"]["data"],
    ):
        del part[place]
    file.write_text(json.dumps(content))
    done = invoke("report", here / "reports" / "one")
    assert done.exit_code == 2
    assert "this version cannot show" in plain(done.stderr)
    again = invoke("report", "--all", "--force")
    assert again.exit_code == 0
    assert outcomes(again.output) == {"one": "run", "clinic": "rendered"}


def test_where_a_report_cannot_go_is_known_before_anything_is_run(here, monkeypatch):
    def run(*_):
        raise AssertionError("it ran")

    monkeypatch.setattr(lab, "run_problem", run)
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("precious")
    done = invoke("run", here / "problems" / "one.toml", "--out", here / "mine")
    assert done.exit_code == 2
    assert "notes.txt" in plain(done.stderr)
