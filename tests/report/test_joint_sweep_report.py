"""The report of a joint problem along a sweep says what the result says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments import JointSweepResult, run_joint_sweep
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, write_report
from convexmarket.report.claims import JOINT_WARNING
from convexmarket.report.model import Report
from convexmarket.report.words import format_percent

BASE = """
kind = "joint-sweep"
title = "Few <b>sellers</b>"
description = "Some & others."
notes = ["A note."]
[data]
source = "synthetic"
n_sellers = 12
n_features = 2
n_test = 50
[prior]
family = "uniform"
low = 0.02
high = 0.10
[objective]
spread = { weight = 1.0 }
noise = { weight = 100.0 }
payments = { weight = 1.0 }
[joint]
starts = 1
[run]
jobs = 1
[sweep]
label = "μ"
draws = 3
"""
MU = "values.objective.spread.weight = [0.1, 1.0, 10.0]\n"
CLAIM = """
[[claims]]
source = "nobody"
says = "More sellers are bought from"
measure = "n_bought"
shape = "rises"
remark = "As it should be."
"""
RANGES = "values.constraints.eta_range = [[0.5, 1000.0], [5.0, 1000.0]]\n"
FIXED = "values.constraints.eta_range = [[5.0, 5.0], [50.0, 50.0]]\n"
NO_MINIMUM = """
values.learner.regularization = [0.1, 0.2]
values.joint.noise = ["realised", "expected"]
"""


def run(sweep: str = MU + CLAIM, *overrides: str) -> JointSweepResult:
    return run_joint_sweep(parse_problem(BASE + sweep, overrides))


@pytest.fixture(scope="module")
def result() -> JointSweepResult:
    return run()


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def facts(report: Report) -> dict[str, str]:
    return {fact.label: fact.value for fact in report.facts}


def test_it_is_written(result: JointSweepResult, tmp_path: Path) -> None:
    folder = write_report(result, tmp_path / "report").parent
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn == {"errors", "losses", "purchase"}
    table = pd.read_csv(folder / "tables" / "points.csv")
    np.testing.assert_allclose(table.test_error, result.points.test_error)
    assert len(pd.read_csv(folder / "tables" / "draws.csv")) == 9
    assert len(pd.read_csv(folder / "tables" / "certificates.csv")) == 9
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(results["points"]["data"]) == 3
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<b>sellers" not in page
    assert "A note." in page


def test_the_warning_comes_first_and_claims_are_counted(result: JointSweepResult) -> None:
    report = build_report(result)
    assert report.warning == JOINT_WARNING
    (claim,) = result.claims
    assert claim.verdict == "reproduced"
    assert facts(report)["claims reproduced"] == "1 of 1"
    assert "More sellers are bought from: As it should be." in words(report)
    (table,) = (table.frame for table in report.tables if table.name == "claims")
    assert list(table.found) == [claim.found]


def test_the_outcome_is_told_in_the_run_s_numbers(result: JointSweepResult) -> None:
    text = words(build_report(result))
    first, last = result.points.test_error.iloc[[0, -1]]
    assert f"test error goes from {format_percent(first)} to {format_percent(last)}" in text
    assert "μ, from 0.1 to 10" in text
    assert "η has no range here" in text
    assert f"“best of several starts” {len(result.draws)}" in text


def test_it_says_in_how_many_solves_the_range_decided() -> None:
    decided = run(RANGES, "joint.noise='realised'", "objective.noise.weight=1.0")
    report = build_report(decided)
    assert (decided.draws.binding == "eta_low").all()
    assert "In all 6 solves the range of η decided the answer: the lower end in 6." in words(report)
    assert facts(report)["η decided by its range"] == "6 of 6"
    (table,) = (table.frame for table in report.tables if table.name == "eta_range")
    assert list(table.lower) == [3, 3]
    assert list(table.within) == [0, 0]
    free = build_report(run(RANGES))
    assert "The range of η decided the answer in none of 6 solves." in words(free)


def test_eta_that_was_fixed_on_purpose_is_said_to_be() -> None:
    fixed = run(FIXED, "joint.noise='realised'", "constraints.cap=1")
    report = build_report(fixed)
    text = words(report)
    assert "η was fixed on purpose at every point" in text
    assert "decided the answer" not in text
    assert facts(report)["η"] == "fixed at each point"


def test_failures_are_told_with_their_reason(tmp_path: Path) -> None:
    failed = run(NO_MINIMUM + CLAIM)
    report = build_report(failed)
    text = words(report)
    assert "3 of 6 joint problems had no answer" in text
    assert failed.draws.message.iloc[0] in text
    (table,) = (table.frame for table in report.tables if table.name == "failures")
    assert list(table.status) == ["not attained"] * 3
    assert facts(report)["joint problems solved"] == "3 of 6"
    assert (write_report(failed, tmp_path / "report").parent / "figures" / "errors.svg").exists()


def test_nothing_was_solved(tmp_path: Path) -> None:
    nothing = run(MU, "joint.noise='realised'")
    assert "all 9 joint problems had no answer" in words(build_report(nothing))
    folder = write_report(nothing, tmp_path / "report").parent
    assert not list((folder / "figures").iterdir())


def test_payments_are_shown_where_they_count(result: JointSweepResult) -> None:
    (paid,) = (table for table in build_report(result).tables if table.name == "points")
    assert "expected_payments" in paid.frame
    overrides = ["objective={spread={weight=1}, noise={weight=1}}", "sweep.draws=1"]
    granted = run(MU, *overrides, "guarantees={family='uniform', low=1, high=2}")
    tables = build_report(granted).tables
    shown = [set(table.frame) for table in tables if table.name in ("points", "draws")]
    assert all("expected_payments" not in columns for columns in shown)
