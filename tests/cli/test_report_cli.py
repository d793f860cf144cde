"""``convexmarket report``, as a user meets it."""

from __future__ import annotations

from pathlib import Path

import pytest

from convexmarket import lab
from convexmarket.cli import report as report_cli
from convexmarket.cli.ending import PARTLY
from convexmarket.errors import DataError
from convexmarket.lab import report_of, run_problem
from convexmarket.lab.problem.loading import load_problem
from convexmarket.report import figures, read_report
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
    """Return what became of each report."""
    lines = [line.partition(": ")[::2] for line in text.splitlines() if ": " in line]
    words = {"up to date": "kept", "run, as": "run", "failed": "failed"}
    return {name: w for name, said in lines for start, w in words.items() if said.startswith(start)}


@pytest.fixture(autouse=True)
def _no_figures(monkeypatch):
    monkeypatch.setattr(figures, "saved", draw_nothing)


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
    return report_of(run_problem(load_problem("problems/one.toml"))).write(here / "mine").parent


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


def test_results_of_another_format_are_refused_in_one_line(folder):
    (folder / "results.json").write_text('{"format": "convexmarket-results/1"}')
    before = files(folder)
    done = invoke("report", folder)
    assert done.exit_code == 2
    assert "has the format 'convexmarket-results/1'" in plain(done.stderr)
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
        (["nowhere"], "nowhere"),
        (["--all", "--problems", "nowhere"], "there are no problem files in nowhere"),
    ],
)
def test_options_that_do_not_fit_are_refused(here, arguments, message):
    done = invoke("report", *arguments)
    assert done.exit_code == 2
    assert message in plain(done.stderr)


# ----------------------------------------------------------------------------- all of them


def test_all_runs_what_has_no_report_and_keeps_the_others(here, runs):
    done = invoke("report", "--all", "--force")
    assert done.exit_code == 0, done.output
    assert outcomes(done.stdout) == {"clinic": "run", "one": "run"}
    assert len(runs) == 2
    index = (here / "reports" / "index.html").read_text(encoding="utf-8")
    assert 'href="clinic/index.html"' in index
    assert 'href="one/index.html"' in index

    before = files(here / "reports" / "one")
    again = invoke("report", "--all", "--force")
    assert outcomes(again.stdout) == {"clinic": "kept", "one": "kept"}
    assert len(runs) == 2
    assert files(here / "reports" / "one") == before


def test_all_runs_again_what_is_out_of_date(here, runs):
    invoke("report", "--all", "--force", "--reports", "out")
    problem = here / "problems" / "one.toml"
    problem.write_text(SMALL + "\n# a remark\n")
    results = here / "out" / "clinic" / "results.json"
    results.write_text(results.read_text(encoding="utf-8").replace("report/1", "report/0"))
    runs.clear()
    done = invoke("report", "--all", "--force", "--reports", "out")
    assert done.exit_code == 0, done.output
    assert outcomes(done.stdout) == {"clinic": "run", "one": "run"}
    assert "the problem file has changed" in plain(done.stdout)
    assert "report/0" in plain(done.stdout)
    assert len(runs) == 2
    stored = read_report(here / "out" / "one").settings["problem file"]
    assert stored["text"].endswith("# a remark\n")


def test_all_runs_again_what_was_run_with_other_settings(here, runs):
    changed = load_problem("problems/one.toml", ["run.seed=5"])
    report_of(run_problem(changed)).write(here / "reports" / "one")
    done = invoke("report", "--all", "--force")
    assert "it was run with run.seed=5" in plain(done.stdout)
    assert read_report(here / "reports" / "one").settings["seed"] != 5


def test_all_can_run_everything_again(here, runs):
    for _ in range(2):
        done = invoke("report", "--all", "--force", "--rerun", "--problems", here / "problems")
        assert outcomes(done.stdout) == {"clinic": "run", "one": "run"}
    assert len(runs) == 4


def test_one_failure_does_not_stop_the_others(here, monkeypatch):
    (here / "problems" / "bad.toml").write_text('kind = "nonsense"')

    def run(problem, progress):
        if problem.title == "In a folder":
            raise DataError("a bad row")
        return run_problem(problem, progress)

    monkeypatch.setattr(lab, "run_problem", run)
    done = invoke("report", "--all", "--force")
    assert done.exit_code == PARTLY
    assert outcomes(done.stdout) == {"bad": "failed", "clinic": "failed", "one": "run"}
    assert "kind is 'nonsense'" in plain(done.stdout)
    assert "clinic: failed: a bad row" in plain(done.stdout)
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


def test_where_a_report_cannot_go_is_known_before_anything_is_run(here, monkeypatch):
    def run(*_):
        raise AssertionError("it ran")

    monkeypatch.setattr(lab, "run_problem", run)
    (here / "mine").mkdir()
    (here / "mine" / "notes.txt").write_text("precious")
    done = invoke("run", here / "problems" / "one.toml", "--out", here / "mine")
    assert done.exit_code == 2
    assert "--force" in plain(done.stderr)
