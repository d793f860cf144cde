"""The report of a solver study says what the runs say, and no more."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.table import Table

from convexmarket.experiments.solver_study import SolverStudyResult
from convexmarket.report import build_report, write_report
from convexmarket.report.model import Report
from convexmarket.report.results import read_results
from convexmarket.report.solver_study import overview
from convexmarket.report.solver_study_figures import Panel
from convexmarket.report.solver_study_words import breaks, reference_words, wrong_words
from convexmarket.report.terminal import summary
from convexmarket.report.words import format_number
from tests.report.solver_study_runs import make_result, make_runs


@pytest.fixture(scope="module")
def result() -> SolverStudyResult:
    return make_result()


@pytest.fixture(scope="module")
def report(result: SolverStudyResult) -> Report:
    return build_report(result)


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def facts(report: Report) -> dict[str, str]:
    return {fact.label: fact.value for fact in report.facts}


def pair(result: SolverStudyResult, one: str, other: str) -> dict[str, float]:
    """Return the ratio of two contenders of the allocation, over all sizes, at the default."""
    rows = result.pairs[result.pairs["size"].isna() & (result.pairs.setting == "default")]
    rows = rows[rows.problem_class == "allocation"]
    names = rows.solver + ", " + rows.formulation
    others = rows.other_solver + ", " + rows.other_formulation
    (row,) = rows[(names == one) & (others == other)].to_dict("records")
    return row


def test_it_is_written_with_every_table_and_figure(
    result: SolverStudyResult, tmp_path: Path
) -> None:
    folder = write_report(result, tmp_path / "report").parent
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    kinds = ("time-profile", "accuracy-profile", "growth")
    both = {f"{kind}-{setting}" for kind in kinds for setting in ("default", "high-accuracy")}
    assert drawn == both | {"split"}
    runs = pd.read_csv(folder / "tables" / "runs.csv", float_precision="round_trip")
    np.testing.assert_array_equal(runs.total_s, result.runs.total_s)
    wrong = pd.read_csv(folder / "tables" / "wrong.csv")
    assert len(wrong) == (result.runs.outcome == "wrong").sum()
    failures = pd.read_csv(folder / "tables" / "failures.csv")
    assert len(failures) == result.runs.outcome.isin(
        ["inaccurate", "failed", "time limit", "memory limit", "crashed"]
    ).sum()  # fmt: skip
    unsupported = pd.read_csv(folder / "tables" / "unsupported.csv")
    assert set(unsupported.contender) == {"OSQP, primal", "OSQP, dual"}
    assert unsupported.runs.sum() == (result.runs.outcome == "unsupported").sum()
    assert len(pd.read_csv(folder / "tables" / "pairs.csv")) == len(result.pairs)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert {"runs", "rates", "means", "profiles", "scaling", "pairs"} <= results.keys()
    assert build_report(read_results(folder)).summary == build_report(result).summary
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<b>compared" not in page
    assert "A note." in page


def test_the_finding_is_in_the_numbers_of_the_run(
    result: SolverStudyResult, report: Report
) -> None:
    text = words(report)
    wrong = int((result.runs.outcome == "wrong").sum())
    assert report.summary[0].startswith(
        "Measurably fastest: “CLARABEL, primal” (weighted logistic regression); no clear fastest "
        f"in allocation and ridge; {wrong} of 992 runs claim"
    )
    assert f"{wrong} of 992 runs claim an answer and are wrong" in report.summary[0]
    means = result.means[result.means["size"].isna() & (result.means.setting == "default")]
    means = means[means.problem_class == "allocation"].set_index(["solver", "formulation"])
    least = means.loc[("OSQP", "projection")].total_s
    time = f"{format_number(least)} s"
    assert f"takes the least time in the mean, {time}, and solves all 16 instances" in text
    tied = pair(result, "CLARABEL, projection", "OSQP, projection")
    assert tied["low"] < 1 < tied["high"]
    ratio, low, high = (format_number(tied[name]) for name in ("ratio", "low", "high"))
    assert (
        "No difference from “OSQP, projection” is shown for “CLARABEL, projection” "
        f"({ratio} times as long, 95% interval {low} to {high})" in text
    )
    slower = pair(result, "ECOS, projection", "OSQP, projection")
    assert slower["low"] > 1
    assert (
        f"slower is “ECOS, projection”: it takes {format_number(slower['ratio'])} times as long"
        in text
    )
    exact = pair(result, "OSQP, projection", "exact, exact")
    assert (
        "is no solver, is faster where both solve (“OSQP, projection” takes "
        f"{format_number(exact['ratio'])} times as long, 95%" in text
    )


def test_where_contenders_break_is_said(result: SolverStudyResult, report: Report) -> None:
    text = words(report)
    assert "3 of 17 contenders solve less than half at some size" in text
    for broken in (
        "“ECOS, unscaled” at 10,000 and 100,000 (failed)",
        "“SCS, dual” at 100,000 (memory limit)",
        "“CLARABEL, unscaled” at 100,000 (wrong)",
    ):
        assert broken in text
    table = breaks(result.rates)
    assert (table.solved / table.runs < 0.5).all()
    first = table[(table.solver == "ECOS") & (table.formulation == "unscaled")]
    assert list(first.sizes) == ["10,000 and 100,000"] * 2
    assert list(first.runs) == [8, 8]
    assert set(overview(result).breaks_at.dropna()) == set(table.sizes)


def test_wrong_claims_are_counted_with_an_example(result: SolverStudyResult) -> None:
    text = wrong_words(result.runs)
    assert text.startswith("2 solvers claim an answer and are wrong: CLARABEL in 8 of 256 runs")
    assert "says “infeasible”, and there is a feasible point with objective 2" in text
    claimed = result.runs[result.runs.status != "infeasible"]
    worst = claimed[claimed.outcome == "wrong"].accuracy.max()
    said = wrong_words(claimed).replace("\N{NO-BREAK SPACE}", " ")
    shown = format_number(worst, 2).replace("\N{NO-BREAK SPACE}", " ")
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
    assert "the exact optimum on 36 of 48 instances; with the best" in reference_words(result.runs)
    none = reference_words(result.runs.assign(certainty="none"))
    assert none == "Objectives are compared with nothing on 48, where only residuals decide."
    refuted = reference_words(result.runs.assign(certainty="refuted"))
    assert "with a better value that a run found on 48" in refuted
    assert "solver found" not in refuted


def test_a_refuted_reference_is_in_the_summary(result: SolverStudyResult) -> None:
    one = {"problem_class": "ridge", "problem": "quickstart", "instance": "b", "size": 1_000}
    entry = {**one, "seed": 3, "certainty": "refuted", "message": "SCS, dual found a better value"}
    references = pd.DataFrame([entry, {**entry, "certainty": "exact"}])
    (said,) = (
        text
        for text in build_report(replace(result, references=references)).summary
        if "refuted" in text
    )
    assert said.startswith("The reference of 1 instance is refuted")
    assert said.endswith(
        "ridge, “quickstart/b” at size 1,000, seed 3 (SCS, dual found a better value)."
    )
    many = replace(result, references=pd.DataFrame([entry] * 6))
    assert "reference of 6 instances is refuted" in words(build_report(many))
    assert "; 2 more." in words(build_report(many))
    assert "refuted" not in words(build_report(result))


def test_limitations_follow_from_how_it_was_run(result: SolverStudyResult) -> None:
    text = words(build_report(result))
    assert "Some CPU at 2 GHz" in text
    assert "CLARABEL 1.2.3" in text
    assert (
        "Each run was bound to a core that no other run of a study used at the time. They were "
        "made in 2 sessions" in text
    )
    assert "4 seeds and sizes 100 to 100,000" in text
    assert "A run was stopped after 60 s" in text
    assert "A caveat of the run." in text
    machine = result.machine | {"pinned": False, "sessions": 1}
    loose = words(build_report(replace(result, machine=machine)))
    assert "not bound to a processor core" in loose
    assert "sessions" not in loose
    several = result.machine | {"cpus": ("One CPU", "Another CPU")}
    text = words(build_report(replace(result, machine=several)))
    assert "2 processors (One CPU and Another CPU), between which times do not compare" in text


def test_with_few_instances_no_difference_is_claimed() -> None:
    report = build_report(make_result(make_runs(seeds=1, sizes=(100, 1_000))))
    few = words(report)
    assert report.summary[0].startswith(
        "Too few common instances to compare in allocation, ridge and weighted logistic regression;"
    )
    assert "“" not in report.summary[0]
    assert "With 15 others, “OSQP, projection” has fewer than 6 solved instances in common" in few
    assert "is no solver, has too few solved instances in common with “OSQP, projection”" in few
    assert "measurably slower" not in few
    assert "is faster where both solve" not in few
    assert "is the fastest" not in few


def test_zeros_by_definition_are_said_to_be_so(report: Report) -> None:
    assert "The exact method returns no multipliers" in words(report)
    solvers = make_runs(seeds=1, sizes=(100,))
    none = build_report(make_result(solvers[solvers.solver != "exact"]))
    assert "The exact method returns" not in words(none)


def test_warming_up_is_said(report: Report) -> None:
    assert words(report).count("warmed up") == 1


def test_absent_solvers_and_those_that_cannot_are_told_apart(
    report: Report, result: SolverStudyResult
) -> None:
    text = words(report)
    assert "not installed here: MOSEK" in text
    assert "64 runs count nowhere" in text
    runs = result.runs[result.runs.outcome != "unsupported"]
    full = build_report(replace(result, runs=runs, absent=()))
    assert "What did not take part" not in {section.heading for section in full.sections}


def test_facts_count_what_counts(result: SolverStudyResult, report: Report) -> None:
    outcomes = result.runs.outcome.value_counts()
    shown = facts(report)
    assert shown["problem classes"] == "3"
    assert shown["instances"] == "48"
    assert shown["runs"] == "992"
    assert shown["of them solved"] == str(outcomes["solved"])
    assert shown["claimed and wrong"] == str(outcomes["wrong"])


def test_every_figure_has_labelled_axes_and_says_what_to_see(report: Report) -> None:
    for piece in report.figures:
        drawing = piece.draw()
        shown = [axes for axes in drawing.axes if axes.get_visible()]
        assert shown[-1].get_xlabel()
        assert all(axes.get_title() for axes in shown)
        assert "What to see:" in piece.caption


def test_solvers_can_be_toggled_and_keep_their_colours(
    report: Report,
) -> None:
    figures = {piece.name: piece for piece in report.figures}
    series = figures["growth-default"].series
    assert [one.label for one in series] == ["CLARABEL", "ECOS", "SCS", "OSQP", "exact"]
    assert len({one.colour for one in series}) == 5
    assert figures["accuracy-profile-high-accuracy"].series == series
    assert figures["time-profile-default"].series == series[:-1]
    assert figures["split"].series == ()
    for name in ("growth-default", "time-profile-default"):
        axes = figures[name].draw().axes[0]
        marked = {line.get_gid(): line.get_color() for line in axes.lines if line.get_gid()}
        shown = figures[name].series
        assert marked == {f"series-{i}": one.colour for i, one in enumerate(shown)}


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


def test_settings_that_differ_in_capitals_have_files_of_their_own(
    result: SolverStudyResult,
) -> None:
    runs = result.runs.replace({"setting": {"default": "Fast", "high-accuracy": "fast"}})
    study = result.problem.study.model_copy(update={"settings": ("Fast", "fast")})
    problem = result.problem.model_copy(update={"study": study})
    few = runs[runs["size"] == 100]
    names = [piece.name for piece in build_report(make_result(few, problem=problem)).figures]
    assert len(set(names)) == len(names) == 7
    assert "growth-fast-1" in names


def test_a_solver_that_the_file_does_not_name_is_drawn_too(result: SolverStudyResult) -> None:
    frames = ("runs", "rates", "means", "profiles", "scaling", "pairs")
    mine = replace(
        result, **{name: getattr(result, name).replace("OSQP", "MINE") for name in frames}
    )
    figures = {piece.name: piece for piece in build_report(mine).figures}
    assert [one.label for one in figures["growth-default"].series][3:] == ["MINE", "exact"]
    assert figures["time-profile-default"].draw().axes


def test_where_nothing_is_solved_the_report_says_so() -> None:
    runs = make_runs(seeds=1, sizes=(100, 1_000)).assign(outcome="time limit", total_s=np.nan)
    report = build_report(make_result(runs[runs.setting == "default"]))
    text = words(report)
    assert report.summary[0].startswith(
        "Nothing to compare in allocation, ridge and weighted logistic regression; no run claims "
        "an answer and is wrong."
    )
    assert "no contender can be called the fastest: none of 32 runs is solved" in text
    assert "split" not in {figure.name for figure in report.figures}
    for piece in report.figures:
        assert piece.draw().axes


def test_only_the_exact_method_ran(tmp_path: Path) -> None:
    runs = make_runs(seeds=2, sizes=(100, 1_000))
    found = make_result(runs[(runs.solver == "exact") & (runs.setting == "default")])
    text = words(build_report(found))
    assert "no contender can be called the fastest: only the exact method ran" in text
    assert found.pairs.empty
    assert "time-profile-default" not in {figure.name for figure in build_report(found).figures}
    write_report(found, tmp_path / "report")


def test_the_terminal_has_a_table_for_each_class(result: SolverStudyResult) -> None:
    shown = summary(result)
    tables = [part for part in shown if isinstance(part, Table)]
    assert [table.title for table in tables] == [
        "allocation",
        "ridge",
        "weighted logistic regression",
    ]
    assert tables[0].row_count == 12
    assert shown[2] == "5 slower ones are in the report."
    assert "Not installed: MOSEK." in shown
