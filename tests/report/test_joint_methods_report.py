"""The report of the joint problem's methods says what the result says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments.joint_methods import JointMethodsResult, run_joint_methods
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, write_report
from convexmarket.report.claims import JOINT_WARNING
from convexmarket.report.joint_methods import strips
from convexmarket.report.model import Report

SMALL = """
kind = "joint-methods"
title = "Small <b>methods</b>"
description = "Some & others."
[prior]
family = "uniform"
low = 0.02
high = 0.1
[joint]
starts = 2
[run]
jobs = 1
restarts = 2
[[methods]]
name = "alternating"
method = "alternating"
[[methods]]
name = "on a grid"
method = "projected_gradient"
grid = 3
[[methods]]
name = "bad solver"
method = "alternating"
solver = "NO_SUCH_SOLVER"
[[groups]]
name = "inside"
instances = 2
data = { source = "synthetic", n_sellers = 10, n_features = 2 }
spread = "squared"
mu = 10.0
sigma = 10.0
gamma = 0.1
convexity = 0.5
methods = ["alternating", "on a grid"]
[[groups]]
name = "outside"
data = { source = "synthetic", n_sellers = 12, n_features = 2 }
mu = 0.3
sigma = 10.0
gamma = 0.1
regularization = 0.05
"""


@pytest.fixture(scope="module")
def result() -> JointMethodsResult:
    return run_joint_methods(parse_problem(SMALL))


@pytest.fixture(scope="module")
def report(result: JointMethodsResult) -> Report:
    return build_report(result)


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def table(report: Report, name: str) -> pd.DataFrame:
    (found,) = (item.frame for item in report.tables if item.name == name)
    return found


def test_the_warning_and_the_description(report: Report) -> None:
    assert report.warning == JOINT_WARNING
    assert report.summary[0] == "Some & others."


def test_it_is_written(result: JointMethodsResult, tmp_path: Path) -> None:
    folder = write_report(result, tmp_path / "report").parent
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {"excess", "times"}
    written = pd.read_csv(folder / "tables" / "runs.csv")
    np.testing.assert_allclose(written.objective, result.runs.objective)
    assert "<b>methods" not in (folder / "index.html").read_text(encoding="utf-8")


def test_a_table_for_each_group_sums_up_its_runs(
    result: JointMethodsResult, report: Report
) -> None:
    inside = table(report, "group_1").set_index("name")
    grid = result.runs[(result.runs.group == "inside") & (result.runs.name == "on a grid")]
    assert list(inside.index) == ["alternating", "on a grid"]
    assert list(inside.solved) == ["2 of 2", "2 of 2"]
    assert list(inside.found) == [2, 0]
    assert list(inside.certified) == [2, 0]
    row = inside.loc["on a grid"]
    assert row.max_excess == grid.excess.max()
    assert row.median_time == pytest.approx(grid.time_ratio.median())
    assert (row.least_time, row.most_time) == (grid.time_ratio.min(), grid.time_ratio.max())
    outside = table(report, "group_2").set_index("name")
    assert outside.solved["bad solver"] == "0 of 1"
    assert np.isnan(outside.max_excess["bad solver"])


def test_facts_and_first_lines_are_the_numbers(report: Report) -> None:
    facts = {fact.label: fact.value for fact in report.facts}
    assert facts["instances"] == "3"
    assert facts["of them convex for each η"] == "2"
    assert facts["runs solved"] == "6 of 7"
    assert facts["runs proved global"] == "2"
    text = words(report)
    assert "is found by “alternating” (2), and never by “on a grid”." in text
    assert "one job ran at a time" in text


def test_failures_have_a_section_with_their_reason(
    result: JointMethodsResult, report: Report
) -> None:
    failures = table(report, "failures")
    assert list(failures.name) == ["bad solver"]
    assert "NO_SUCH_SOLVER" in failures.message.iloc[0]
    assert "bad solver: not supported on 1 instance" in words(report)
    fine = replace(result, runs=result.runs[result.runs.status == "solved"])
    headings = [section.heading for section in build_report(fine).sections]
    assert "What has no answer" not in headings


def test_ends_are_those_of_the_descents(result: JointMethodsResult, report: Report) -> None:
    ends = table(report, "ends").set_index("group")
    own = result.descents[result.descents.group == "outside"].objective
    assert ends.largest_range["outside"] == pytest.approx((own.max() - own.min()) / own.min())
    assert list(ends.instances) == [2, 1]


def test_claims_are_listed_with_their_verdict(result: JointMethodsResult, report: Report) -> None:
    claims = table(report, "claims")
    assert list(claims.verdict) == [claim.verdict for claim in result.claims]
    papers = sum(claim.source != "our design" for claim in result.claims)
    assert papers == 2
    assert "of the papers came out here" in words(report)
    assert "agree if their objectives do" in words(report)
    none = build_report(replace(result, claims=()))
    assert "came out here" not in words(none)


def test_jobs_that_share_the_machine_are_said(result: JointMethodsResult) -> None:
    problem = parse_problem(SMALL, ["run.jobs=2"])
    assert "2 jobs shared the machine" in words(build_report(replace(result, problem=problem)))


def test_every_run_is_a_dot_in_its_own_row(result: JointMethodsResult) -> None:
    solved = result.runs[result.runs.status == "solved"]
    names = ["alternating", "on a grid", "bad solver"]
    figure = strips(solved, ["inside", "outside"], names, "excess", "excess", 1e-12)
    inside, outside = figure.axes
    assert [label.get_text() for label in inside.get_yticklabels()] == names[:2]
    dots = inside.get_lines()
    assert [len(line.get_xdata()) for line in dots] == [2, 2]
    assert (dots[0].get_xdata() >= 1e-12).all()
    grid = solved[(solved.group == "inside") & (solved.name == "on a grid")]
    np.testing.assert_allclose(dots[1].get_xdata(), grid.excess)
    assert outside.get_title() == "outside"
    assert outside.get_xscale() == "log"


def test_a_run_in_which_nothing_is_solved_is_still_a_report() -> None:
    methods = "methods=[{name='bad', method='alternating', solver='NO_SUCH_SOLVER'}]"
    text = SMALL.replace('methods = ["alternating", "on a grid"]', "")
    report = build_report(run_joint_methods(parse_problem(text, [methods])))
    assert not report.figures
    assert "On “inside” (2 instances) no method has an answer." in words(report)
    assert len(table(report, "failures")) == 3
