"""The report of the joint problem's methods: no guarantee, who finds the best, what failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convexmarket.lab import build_report
from convexmarket.lab.kinds.joint_methods.page import strips
from convexmarket.lab.kinds.joint_methods.run import JointMethodsResult, run_joint_methods
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.model import Report
from tests.lab.report.builders import facts, headings, problem_text, stored, table, words


@pytest.fixture(scope="module")
def result() -> JointMethodsResult:
    return stored("joint-methods")


@pytest.fixture(scope="module")
def report(result: JointMethodsResult) -> Report:
    return build_report(result)


def test_that_there_is_no_privacy_guarantee_comes_first(report: Report) -> None:
    assert report.warning == JOINT_WARNING


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


def test_facts_count_what_was_solved_and_proved(report: Report) -> None:
    counts = facts(report)
    assert counts["instances"] == "3"
    assert counts["of them convex for each η"] == "2"
    assert counts["runs solved"] == "6 of 7"
    assert counts["runs proved global"] == "2"


def test_failures_have_a_section_with_their_reason(
    result: JointMethodsResult, report: Report
) -> None:
    failures = table(report, "failures")
    assert list(failures.name) == ["bad solver"]
    assert "NO_SUCH_SOLVER" in failures.message.iloc[0]
    assert "bad solver: not supported on 1 instance" in words(report)
    fine = replace(result, runs=result.runs[result.runs.status == "solved"])
    assert "What has no answer" not in headings(build_report(fine))


def test_ends_are_those_of_the_descents(result: JointMethodsResult, report: Report) -> None:
    ends = table(report, "ends").set_index("group")
    own = result.descents[result.descents.group == "outside"].objective
    assert ends.largest_range["outside"] == pytest.approx((own.max() - own.min()) / own.min())
    assert list(ends.instances) == [2, 1]


def test_claims_are_listed_with_their_verdict(result: JointMethodsResult, report: Report) -> None:
    claims = table(report, "claims")
    assert list(claims.verdict) == [claim.verdict for claim in result.claims]
    none = build_report(replace(result, claims=()))
    assert "came out here" not in words(none)


def test_jobs_that_share_the_machine_are_said(result: JointMethodsResult) -> None:
    problem = parse_problem(problem_text("joint-methods"), ["run.jobs=2"])
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
    text = problem_text("joint-methods").replace('methods = ["alternating", "on a grid"]', "")
    report = build_report(run_joint_methods(parse_problem(text, [methods])))
    assert not report.figures
    assert "On “inside” (2 instances) no method has an answer." in words(report)
    assert len(table(report, "failures")) == 3
