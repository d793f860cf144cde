"""The report of a joint problem along a sweep: no guarantee, what decided η, what failed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.lab import build_report
from convexmarket.lab.kinds.joint_sweep.run import run_joint_sweep
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.words import format_percent
from convexmarket.lab.result import Result
from tests.lab.report.builders import (
    altered,
    drawn,
    facts,
    plain,
    problem_text,
    stored,
    table,
    words,
)

MU = "values.objective.spread.weight = [0.1, 1.0, 10.0]\n"
RANGES = "values.constraints.eta_range = [[0.5, 1000.0], [5.0, 1000.0]]\n"
FIXED = "values.constraints.eta_range = [[5.0, 5.0], [50.0, 50.0]]\n"
NO_MINIMUM = """
values.learner.regularization = [0.1, 0.2]
values.joint.noise = ["realised", "expected"]
"""


def run(sweep: str, *overrides: str) -> Result:
    return run_joint_sweep(parse_problem(problem_text("joint-sweep").replace(MU, sweep), overrides))


@pytest.fixture(scope="module")
def result() -> Result:
    return stored("joint-sweep")


def test_that_there_is_no_privacy_guarantee_comes_first(result) -> None:
    assert build_report(result).warning == JOINT_WARNING


def test_the_claims_of_the_papers_are_counted(result) -> None:
    (claim,) = result.claims
    assert claim.verdict == "reproduced"
    assert facts(build_report(result))["claims reproduced"] == "1 of 1"
    failed = altered(result, claims=(replace(claim, verdict="not reproduced"),))
    assert facts(build_report(failed))["claims reproduced"] == "0 of 1"
    assert list(table(build_report(failed), "claims").found) == [claim.found]


def test_it_says_in_how_many_solves_the_range_decided() -> None:
    decided = run(RANGES, "joint.noise='realised'", "objective.noise.weight=1.0")
    report = build_report(decided)
    assert (decided.tables["draws"].binding == "eta_low").all()
    assert "In all 6 solves the range of η decided the answer: the lower end in 6." in words(report)
    assert facts(report)["η decided by its range"] == "6 of 6"
    shown = table(report, "eta_range")
    assert list(shown.lower) == [3, 3]
    assert list(shown.within) == [0, 0]
    free = build_report(run(RANGES))
    assert "The range of η decided the answer in none of 6 solves." in words(free)


def test_eta_that_was_fixed_on_purpose_is_said_to_be() -> None:
    fixed = run(FIXED, "joint.noise='realised'", "constraints.cap=1")
    report = build_report(fixed)
    text = words(report)
    assert "η was fixed on purpose at every point" in text
    assert "decided the answer" not in text
    assert facts(report)["η"] == "fixed at each point"


def test_failures_are_told_with_their_reason() -> None:
    failed = run(NO_MINIMUM)
    report = build_report(failed)
    text = words(report)
    assert "3 of 6 joint problems had no answer" in text
    assert failed.tables["draws"].message.iloc[0] in text
    assert list(table(report, "failures").status) == ["not attained"] * 3
    assert facts(report)["joint problems solved"] == "3 of 6"
    for figure in report.figures:
        assert figure.draw().axes


def test_nothing_was_solved() -> None:
    report = build_report(run(MU, "joint.noise='realised'"))
    text = words(report)
    assert text.startswith("No joint problem had an answer.")
    assert "all 9 joint problems had no answer" in text
    assert "There is no answer to judge." in text
    assert not report.figures


@pytest.mark.campaign
def test_payments_are_shown_where_they_count(result) -> None:
    assert "expected_payments" in table(build_report(result), "points")
    overrides = ["objective={spread={weight=1}, noise={weight=1}}", "sweep.draws=1"]
    granted = run(MU, *overrides, "guarantees={family='uniform', low=1, high=2}")
    report = build_report(granted)
    assert all("expected_payments" not in table(report, name) for name in ("points", "draws"))


@given(st.lists(st.floats(min_value=0.0, max_value=1.0), min_size=3, max_size=3))
@example([0.2, 0.19999, 0.2])
def test_it_begins_with_the_course_of_what_is_claimed(errors) -> None:
    found = stored("joint-sweep")
    (claim,) = found.problem.claims
    claim = claim.model_copy(update={"measure": "test_error"})
    points = found.tables["points"].assign(test_error=errors)
    problem = found.problem.model_copy(update={"claims": (claim,)})
    text = plain(build_report(altered(found, problem=problem, points=points)).lead[0])
    first, between, last = errors
    said = f"the test error goes from {format_percent(first)} to {format_percent(last)}"
    assert said in text
    lowest = f", with {format_percent(between)} at 1 the lowest"
    shown = {format_percent(first), format_percent(last)}  # nothing is lower than what looks equal
    lower = between < min(first, last) and format_percent(between) not in shown
    assert (said + lowest in text) == lower


def test_the_figure_that_shows_what_is_claimed_comes_first(result) -> None:
    (claim,) = result.problem.claims
    for measure, name in (
        ("eta", "purchase"),
        ("two_step_weight_variance", "purchase"),
        ("noiseless_test_error", "errors"),
        ("mean_loss", "losses"),
    ):
        claims = (claim.model_copy(update={"measure": measure}),)
        problem = result.problem.model_copy(update={"claims": claims})
        report = build_report(altered(result, problem=problem))
        assert report.figures[0].name == name
        assert {figure.name for figure in report.figures} == {"errors", "losses", "purchase"}


def test_figures_show_the_means_and_their_intervals(result) -> None:
    points = result.tables["points"].assign(objective=[-500.0, -2.0, 30.0])
    report = build_report(altered(result, points=points))
    eta, _, variance, objective = drawn(report, "purchase").axes
    assert [axes.get_yscale() for axes in (eta, objective)] == ["linear", "symlog"]
    assert objective.get_title("left") == "Objective (log scale beyond ±1)"
    np.testing.assert_allclose(objective.get_lines()[0].get_ydata().astype(float), points.objective)
    assert len(variance.containers) == 2
    at_eta = points.assign(x=points.eta)
    assert len(drawn(build_report(altered(result, points=at_eta)), "purchase").axes) == 3
    (errors,) = drawn(report, "errors").axes
    for container, name in zip(
        errors.containers, ("train_error", "test_error", "noiseless_test_error"), strict=True
    ):
        drawn_means = container.lines[0].get_ydata().astype(float)
        np.testing.assert_allclose(drawn_means, 100 * points[name])
