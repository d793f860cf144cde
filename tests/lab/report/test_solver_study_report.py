"""The report of a solver study says what the runs say, and no more."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from convexmarket.lab import build_report
from convexmarket.lab.kinds.solver_study.figures import Panel
from convexmarket.lab.kinds.solver_study.findings import summary_words
from convexmarket.lab.kinds.solver_study.page import overview
from convexmarket.lab.kinds.solver_study.run import SolverStudyResult
from convexmarket.lab.kinds.solver_study.words import (
    breaks,
    limitations,
    reference_words,
    wrong_words,
)
from convexmarket.lab.report.model import Report
from convexmarket.lab.report.words import format_number
from tests.lab.report.builders import facts, headings, plain_blanks, stored, words
from tests.lab.report.solver_study_runs import make_result, make_runs


@pytest.fixture(scope="module")
def result() -> SolverStudyResult:
    return stored("solver-study")


@pytest.fixture(scope="module")
def report(result: SolverStudyResult) -> Report:
    return build_report(result)


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    return words(report)


def slower_than_the_first(result: SolverStudyResult, other: str) -> list[str]:
    """Return how much longer than CLARABEL's projection a contender takes, with its interval."""
    rows = result.pairs[result.pairs["size"].isna() & (result.pairs.problem_class == "allocation")]
    names = rows.solver + ", " + rows.formulation
    others = rows.other_solver + ", " + rows.other_formulation
    (row,) = rows[(names == "CLARABEL, projection") & (others == other)].to_dict("records")
    return [format_number(1 / row[name]) for name in ("ratio", "high", "low")]


def test_every_run_stands_in_the_tables_of_its_outcome(result, report: Report) -> None:
    outcomes = result.runs.outcome
    frames = {piece.name: piece.stored for piece in report.tables}
    np.testing.assert_array_equal(frames["runs"].total_s, result.runs.total_s)
    assert len(frames["wrong"]) == (outcomes == "wrong").sum() > 0
    unanswered = ["inaccurate", "failed", "time limit", "memory limit", "crashed"]
    assert set(unanswered) <= set(outcomes)
    assert len(frames["failures"]) == outcomes.isin(unanswered).sum()
    assert set(frames["unsupported"].contender) == {"OSQP, primal", "OSQP, dual"}
    assert frames["unsupported"].runs.sum() == (outcomes == "unsupported").sum()
    assert len(frames["pairs"]) == len(result.pairs)


def test_no_difference_is_claimed_beyond_its_interval(result, text: str) -> None:
    assert "“CLARABEL, projection” takes the least time in the mean" in text
    ratio, low, high = slower_than_the_first(result, "OSQP, projection")
    assert float(low) < 1 < float(high)
    assert (
        "No difference from “CLARABEL, projection” is shown for “OSQP, projection” "
        f"({ratio} times as long, 95% interval {low} to {high})" in text
    )
    ratio, low, _ = slower_than_the_first(result, "ECOS, projection")
    assert float(low) > 1
    assert f"slower is “ECOS, projection”: it takes {ratio} times as long" in text


def test_where_contenders_break_is_said(result, text: str) -> None:
    for broken in (
        "“ECOS, unscaled” at 100,000 (failed)",
        "“SCS, dual” at 100,000 (memory limit)",
        "“CLARABEL, unscaled” at 100,000 (wrong)",
    ):
        assert broken in text
    broken = breaks(result.rates)
    assert (broken.solved / broken.runs < 0.5).all()
    assert set(overview(result).breaks_at.dropna()) == set(broken.sizes)


def test_wrong_claims_are_counted_with_an_example(result: SolverStudyResult) -> None:
    text = wrong_words(result.runs)
    assert text.startswith("2 solvers claim an answer and are wrong: CLARABEL in 3 of 48 runs")
    assert "says “infeasible”, and there is a feasible point with objective 2" in text
    claimed = result.runs[result.runs.status != "infeasible"]
    worst = claimed[claimed.outcome == "wrong"].accuracy.max()
    said = plain_blanks(wrong_words(claimed))
    shown = plain_blanks(format_number(worst, 2))
    assert said.startswith("1 solver claims an answer and is wrong: SCS")
    assert f"says “optimal”, and the relative error that we compute is {shown}" in said
    second = claimed[claimed.outcome == "wrong"].head(1).assign(accuracy=1e-12, again_accuracy=0.5)
    said = wrong_words(second)
    assert "says “optimal” of the solve with changed numbers" in said
    assert "compute is 0.5," in said
    first, other = (claimed[claimed.outcome == "wrong"].head(1) for _ in range(2))
    first = first.assign(accuracy=0.02, again_accuracy=np.inf)  # the second solve failed
    other = other.assign(accuracy=0.03, again_accuracy=0.01)
    assert "compute is 0.03," in wrong_words(pd.concat([first, other]))
    assert wrong_words(result.runs[result.runs.outcome != "wrong"]).startswith("No solver claims")


def test_what_objectives_are_compared_with_is_said(result: SolverStudyResult) -> None:
    assert "the exact optimum on 12 of 18 instances; with the best" in reference_words(result.runs)
    none = reference_words(result.runs.assign(certainty="none"))
    assert none == "Objectives are compared with nothing on 18, where only residuals decide."
    refuted = reference_words(result.runs.assign(certainty="refuted"))
    assert "with a better value that a run found on 18" in refuted
    assert "solver found" not in refuted


def test_a_refuted_reference_is_in_the_summary(result: SolverStudyResult) -> None:
    one = {"problem_class": "ridge", "problem": "quickstart", "instance": "b", "size": 1_000}
    entry = {**one, "seed": 3, "certainty": "refuted", "message": "SCS, dual found a better value"}
    references = pd.DataFrame([entry, {**entry, "certainty": "exact"}])
    found = summary_words(replace(result, references=references))
    (said,) = (paragraph for paragraph in found if "refuted" in paragraph)
    assert said.startswith("The reference of 1 instance is refuted")
    assert said.endswith(
        "ridge, “quickstart/b” at size 1,000, seed 3 (SCS, dual found a better value)."
    )
    many = replace(result, references=pd.DataFrame([entry] * 6))
    several = " ".join(summary_words(many))
    assert "reference of 6 instances is refuted" in several
    assert "; 2 more." in several


def test_no_reference_is_refuted_where_none_is(text: str) -> None:
    assert "refuted" not in text


def test_limitations_follow_from_how_it_was_run(result, text: str) -> None:
    assert "Each run was bound to a core" in text
    assert "They were made in 2 sessions" in text
    assert "A caveat of the run." in text
    one = {"pinned": False, "sessions": 1}
    loose = " ".join(limitations(replace(result, machine=result.machine | one)))
    assert "not bound to a processor core" in loose
    assert "sessions" not in loose
    several = result.machine | {"cpus": ("One CPU", "Another CPU")}
    text = " ".join(limitations(replace(result, machine=several)))
    assert "2 processors (One CPU and Another CPU), between which times do not compare" in text


def test_with_few_instances_no_difference_is_claimed() -> None:
    report = build_report(make_result(make_runs(seeds=1)))
    few = words(report)
    assert report.summary[0].startswith(
        "Too few common instances to compare in allocation, ridge and weighted logistic regression;"
    )
    assert "“" not in report.summary[0]
    assert re.search(r"With \d+ others, “[^”]+” has fewer than 6 solved instances in common", few)
    assert "is no solver, has too few solved instances in common with" in few
    assert "measurably slower" not in few
    assert "is faster where both solve" not in few
    assert "is the fastest" not in few


def test_what_only_the_exact_method_has_is_said_only_beside_it(text: str) -> None:
    assert "The exact method returns no multipliers" in text
    assert text.count("warmed up") == 1
    solvers = make_runs(seeds=1, sizes=(100,))
    none = build_report(make_result(solvers[solvers.solver != "exact"]))
    assert "The exact method returns" not in words(none)


def test_absent_solvers_and_those_that_cannot_are_told_apart(result, text: str) -> None:
    assert "not installed here: MOSEK" in text
    assert "12 runs count nowhere" in text
    runs = result.runs[result.runs.outcome != "unsupported"]
    full = build_report(replace(result, runs=runs, absent=()))
    assert "What did not take part" not in headings(full)


def test_facts_count_what_counts(result: SolverStudyResult, report: Report) -> None:
    outcomes = result.runs.outcome.value_counts()
    shown = facts(report)
    assert shown["problem classes"] == "3"
    assert shown["instances"] == "18"
    assert shown["runs"] == "186"
    assert shown["of them solved"] == str(outcomes["solved"])
    assert shown["claimed and wrong"] == str(outcomes["wrong"])


def test_solvers_can_be_toggled_and_keep_their_colours(report: Report) -> None:
    figures = {piece.name: piece for piece in report.figures}
    series = figures["growth-default"].series
    assert [one.label for one in series] == ["CLARABEL", "ECOS", "SCS", "OSQP", "exact"]
    assert len({one.colour for one in series}) == 5
    assert figures["accuracy-profile-default"].series == series
    assert figures["time-profile-default"].series == series[:-1]
    assert figures["split"].series == ()
    axes = figures["growth-default"].draw().axes[0]
    marked = {line.get_gid(): line.get_color() for line in axes.lines if line.get_gid()}
    assert marked == {f"series-{i}": one.colour for i, one in enumerate(series)}


def test_a_panel_shows_every_solver_and_no_more_lines_than_a_reader_can_follow(
    report: Report,
) -> None:
    (profile,) = (piece for piece in report.figures if piece.name == "time-profile-default")
    for axes in profile.draw().axes[:3]:
        lines = [line for line in axes.lines if line.get_gid()]
        assert 4 <= len(lines) <= 8
        takes_part = 3 if "logistic" in axes.get_title() else 4
        assert len({line.get_gid() for line in lines}) == takes_part


def test_formulations_of_a_panel_differ_in_their_dashes() -> None:
    contenders = [("A", "primal"), ("A", "dual"), ("B", "dual"), ("exact", "exact")]
    panel = Panel("ridge", contenders, pd.DataFrame())
    assert panel.dashes("primal") != panel.dashes("dual")
    assert panel.dashes("exact") == panel.dashes("primal") == "-"


def test_a_cross_marks_what_did_not_solve(report: Report, result: SolverStudyResult) -> None:
    (growth,) = (piece for piece in report.figures if piece.name == "growth-default")
    panels = {axes.get_title(): axes for axes in growth.draw().axes}
    crosses = [line for line in panels["ridge"].lines if line.get_marker() == "x"]
    missed = result.runs[
        (result.runs.problem_class == "ridge")
        & (result.runs.setting == "default")
        & (result.runs.outcome != "solved")
    ]
    places = missed.groupby(["solver", "formulation", "size"]).ngroups
    assert sum(np.size(line.get_xdata()) for line in crosses) == places
    assert all((np.asarray(line.get_ydata()) == 60.0).all() for line in crosses)


def test_settings_that_differ_in_capitals_have_files_of_their_own(result) -> None:
    runs = make_runs(seeds=1, sizes=(100,), settings=("default", "high-accuracy"))
    runs = runs[runs.problem_class == "ridge"]
    runs = runs.replace({"setting": {"default": "Fast", "high-accuracy": "fast"}})
    study = result.problem.study.model_copy(update={"settings": ("Fast", "fast")})
    problem = result.problem.model_copy(update={"study": study})
    names = [piece.name for piece in build_report(make_result(runs, problem=problem)).figures]
    kinds = ("time-profile", "accuracy-profile", "growth")
    assert len(set(names)) == len(names) == 7
    assert all(sum(name.startswith(f"{kind}-fast") for name in names) == 2 for kind in kinds)


def test_a_solver_that_the_file_does_not_name_is_drawn_too(result) -> None:
    frames = ("runs", "rates", "means", "profiles", "scaling", "pairs")
    mine = replace(
        result, **{name: getattr(result, name).replace("OSQP", "MINE") for name in frames}
    )
    figures = {piece.name: piece for piece in build_report(mine).figures}
    assert [one.label for one in figures["growth-default"].series][3:] == ["MINE", "exact"]
    assert figures["time-profile-default"].draw().axes


def test_where_nothing_is_solved_the_report_says_so() -> None:
    runs = make_runs(seeds=1, sizes=(100,)).assign(outcome="time limit", total_s=np.nan)
    report = build_report(make_result(runs))
    assert report.summary[0].startswith(
        "Nothing to compare in allocation, ridge and weighted logistic regression; no run claims "
        "an answer and is wrong."
    )
    assert "no contender can be called the fastest: none of 16 runs is solved" in words(report)
    assert "split" not in {figure.name for figure in report.figures}
    for piece in report.figures:
        assert piece.draw().axes


def test_only_the_exact_method_ran() -> None:
    runs = make_runs(seeds=2)
    found = make_result(runs[runs.solver == "exact"])
    report = build_report(found)
    assert "no contender can be called the fastest: only the exact method ran" in words(report)
    assert found.pairs.empty
    assert "time-profile-default" not in {figure.name for figure in report.figures}
    for piece in report.figures:
        assert piece.draw().axes
