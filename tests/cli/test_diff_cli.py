"""``convexmarket diff`` as a user meets it: what it prints, writes, refuses, and returns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from convexmarket import cli
from convexmarket.lab.report.index import write_index


def results(error: float = 0.1, status: str = "solved", kind: str = "tradeoff") -> dict[str, Any]:
    return {
        "format": "convexmarket-results/2",
        "kind": kind,
        "problem": {"kind": kind, "title": "A [bold]market[/bold]"},
        "curve": {
            "columns": ["model", "gamma", "error", "status"],
            "dtypes": ["str", "float64", "float64", "str"],
            "data": [["<b>", 0.5, error, status], ["<b>", 1.0, 0.2, "solved"]],
        },
        "timings": {"total": 2.0},
        "provenance": {"versions": {"cvxpy": "1.9.3"}, "problem_file": None},
    }


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with the results of a run, the same again, and other results."""
    monkeypatch.chdir(tmp_path)
    for name, written in (
        ("a", results()),
        ("again", results()),
        ("b", results(0.4, "[red]failed[/red]")),
        ("other", results(kind="variants")),
    ):
        Path(name).mkdir()
        Path(name, "results.json").write_text(json.dumps(written))
    return tmp_path


def invoke(*arguments: str) -> Any:
    return CliRunner(env={"COLUMNS": "200"}).invoke(cli.app, ["diff", *arguments])


def test_two_equal_runs(here: Path) -> None:
    done = invoke("a", "again", "--exit-code")
    assert done.exit_code == 0
    assert "Same inputs, same versions, results identical (timings apart)." in done.stdout


def test_what_differs_is_printed_as_it_stands(here: Path) -> None:
    done = invoke("a", "b")
    assert done.exit_code == 0
    words = " ".join(done.stdout.split())
    assert "Same inputs, same versions, different results." in words
    assert "The largest difference is 0.75, in error of curve, at <b>, gamma 0.5" in words
    assert "[red]failed[/red]" in words
    assert "curve: error" in words


def test_the_exit_code_says_whether_results_differ(here: Path) -> None:
    assert invoke("a", "b").exit_code == 0
    assert invoke("a", "b", "--exit-code").exit_code == 1


def test_within_the_tolerance_results_do_not_differ(here: Path) -> None:
    Path("b", "results.json").write_text(json.dumps(results(0.4)))
    assert invoke("a", "b", "--exit-code", "--tolerance", "0.7").exit_code == 1
    assert invoke("a", "b", "--exit-code", "--tolerance", "0.8").exit_code == 0


def test_a_report_and_data_are_written(here: Path) -> None:
    done = invoke("a", "b/results.json", "--out", "report", "--json")
    assert done.exit_code == 0
    page = Path("report", "index.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;, gamma 0.5" in page
    data = json.loads(done.stdout)
    assert data.items() <= json.loads(Path("report", "results.json").read_text("utf-8")).items()
    assert data["numbers"] == [
        {
            "frame": "curve",
            "column": "error",
            "cells": 2,
            "differ": 1,
            "missing": 0,
            "largest": pytest.approx(0.75),
            "where": "<b>, gamma 0.5",
            "a": 0.1,
            "b": 0.4,
        }
    ]
    assert data["texts"][0]["b"] == "[red]failed[/red]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "other"], "only reports of the same kind can be compared"),
        (["a", "nowhere"], "there is no nowhere"),
        (["a", "b", "--tolerance", "-1"], "tolerance must be a finite number >= 0, got -1"),
        (["a", "b", "--out", "a"], "a is one of the reports compared"),
        (["a", "b/results.json", "--out", "b"], "b is one of the reports compared"),
        (["a", "b", "--out", "b/more"], "b/more is one of the reports compared"),
    ],
)
def test_what_is_refused_is_said_in_one_line_and_nothing_is_written(
    here: Path, arguments: list[str], words: str
) -> None:
    before = {path: path.read_bytes() for path in here.rglob("*.json")}
    done = invoke(*arguments)
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


def test_a_comparison_is_listed_in_an_index_and_not_compared(here: Path) -> None:
    assert invoke("a", "b", "--out", "report").exit_code == 0
    write_index(here)
    assert "Same inputs, same versions, different results." in Path("README.md").read_text("utf-8")
    done = invoke("a", "report")
    assert done.exit_code == 2
    assert "is itself a comparison" in done.stderr


@pytest.mark.parametrize(
    "damage",
    [
        {"caveats": "none"},
        {"provenance": {"versions": {}, "problem_file": {"text": 1}}},
        {"provenance": {"versions": {}, "problem_file": {"text": "", "overrides": 1}}},
        {"curve": {"columns": ["x"], "dtypes": ["float64"], "data": [[10**400]]}},
        {"caveats": ["\ud800"]},
    ],
)
def test_what_is_damaged_is_told_in_one_line(here: Path, damage: dict[str, Any]) -> None:
    (here / "b" / "results.json").write_text(json.dumps(results() | damage))
    done = invoke("a", "b")
    assert isinstance(done.exception, SystemExit | None), done.exception
    assert done.exit_code in (0, 2)
