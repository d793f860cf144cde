"""The report of a solver study says what the runs say, and no more."""

from __future__ import annotations

import re
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from convexmarket.lab import build_report
from convexmarket.lab.kinds.solver_study.page import _decided
from convexmarket.lab.kinds.solver_study.problem import SolverStudyProblem
from convexmarket.lab.kinds.solver_study.standing import breaks, choice, worst_claim
from convexmarket.lab.report.model import Figure, Report
from convexmarket.lab.report.words import format_number
from convexmarket.lab.result import Result
from convexmarket.studies.pairs import time_ratio
from convexmarket.studies.solvers import UNKNOWN
from tests.lab.report.builders import (
    altered,
    crowded,
    drawn,
    facts,
    headings,
    plain,
    stored,
    table,
    words,
)
from tests.lab.report.solver_study_runs import make_result, make_runs


@pytest.fixture(scope="module")
def result() -> Result[SolverStudyProblem]:
    return stored("solver-study")


@pytest.fixture(scope="module")
def report(result: Result[SolverStudyProblem]) -> Report:
    return build_report(result)


@pytest.fixture(scope="module")
def text(report: Report) -> str:
    return words(report)


def slower_than_the_first(result: Result[SolverStudyProblem], other: str) -> list[str]:
    """Return how much longer than CLARABEL's projection a contender takes, with its interval."""
    runs = result.tables["runs"]
    runs = runs[(runs.problem_class == "allocation") & (runs.outcome != "unsupported")]
    one, two = (
        dict(zip(("solver", "formulation"), name.split(", "), strict=True))
        for name in (other, "CLARABEL, projection")
    )
    return [format_number(value) for value in time_ratio(runs, one, two).values()]


def test_every_run_stands_in_the_tables_of_its_outcome(result, report: Report) -> None:
    outcomes = result.tables["runs"].outcome
    frames = {piece.name: piece.stored for piece in report.tables}
    np.testing.assert_array_equal(frames["runs"].total_s, result.tables["runs"].total_s)
    assert len(frames["wrong"]) == (outcomes == "wrong").sum() > 0
    unanswered = ["inaccurate", "failed", "time limit", "memory limit", "crashed"]
    assert set(unanswered) <= set(outcomes)
    assert len(frames["failures"]) == outcomes.isin(unanswered).sum()
    assert set(frames["unsupported"].contender) == {"OSQP, primal", "OSQP, dual"}
    assert frames["unsupported"].combinations.sum() == (outcomes == "unsupported").sum()


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


def test_where_contenders_break_is_said(result, report: Report, text: str) -> None:
    broken = breaks(result.tables["rates"])
    assert {
        ("ECOS", "unscaled", "100,000", "failed"),
        ("SCS", "dual", "100,000", "memory limit"),
        ("CLARABEL", "unscaled", "100,000", "wrong"),
    } <= set(broken[["solver", "formulation", "sizes", "outcome"]].itertuples(index=False))
    n = result.tables["runs"][result.tables["runs"].outcome != "unsupported"]
    n = len(n[["problem_class", "solver", "formulation"]].drop_duplicates())
    assert f"{len(broken)} of {n} contenders solve less than half at some size" in text
    assert (broken.solved / broken.runs < 0.5).all()
    assert set(table(report, "overview").breaks_at.dropna()) == set(broken.sizes)


def claims(result: Result[SolverStudyProblem], runs: pd.DataFrame) -> str:
    return words(build_report(altered(result, runs=runs)))


def test_wrong_claims_are_counted_with_an_example(
    result: Result[SolverStudyProblem], text: str
) -> None:
    assert "2 solvers claim an answer and are wrong: CLARABEL in 3 of 48 runs" in text
    assert "says “infeasible”, and there is a feasible point with objective 2" in text
    claimed = result.tables["runs"][result.tables["runs"].status != "infeasible"]
    worst = claimed[claimed.outcome == "wrong"].accuracy.max()
    said = claims(result, claimed)
    assert "1 solver claims an answer and is wrong: SCS" in said
    shown = plain(format_number(worst, 2)).strip()
    assert f"says “optimal”, and the relative error that we compute is {shown}" in said
    second = claimed.assign(accuracy=1e-12, again_accuracy=0.5)
    said = claims(result, second)
    assert "says “optimal” of the solve with changed numbers" in said
    assert "compute is 0.5," in said
    none = claims(result, result.tables["runs"][result.tables["runs"].outcome != "wrong"])
    assert "No solver claims an answer" in none


def test_the_worst_claim_is_of_the_solve_that_is_wrong(result: Result[SolverStudyProblem]) -> None:
    wrong = result.tables["runs"][result.tables["runs"].outcome == "wrong"].head(1)
    first = wrong.assign(accuracy=0.02, again_accuracy=np.inf)  # the second solve failed
    other = wrong.assign(accuracy=0.03, again_accuracy=0.01)
    assert worst_claim(pd.concat([first, other]))["error"] == 0.03
    second = worst_claim(wrong.assign(accuracy=1e-12, again_accuracy=0.5))
    assert (second["again"], second["error"]) == (True, 0.5)


def test_what_objectives_are_compared_with_is_said(
    result: Result[SolverStudyProblem], text: str
) -> None:
    compared = "Objectives of 18 instances are compared with"
    assert f"{compared} the exact optimum on 12; with the best that a solver found" in text
    none = claims(result, result.tables["runs"].assign(certainty="none"))
    assert f"{compared} nothing on 18, where only residuals decide." in none
    assert "column “known how well”" not in none
    refuted = claims(result, result.tables["runs"].assign(certainty="refuted"))
    assert f"{compared} a better value that a run found on 18" in refuted
    assert "solver found" not in refuted


def test_a_refuted_reference_is_in_the_summary(result: Result[SolverStudyProblem]) -> None:
    one = {"problem_class": "ridge", "problem": "quickstart", "instance": "b", "size": 1_000}
    entry = {**one, "seed": 3, "certainty": "refuted", "message": "SCS, dual found a better value"}
    references = pd.DataFrame([entry, {**entry, "certainty": "exact"}])

    def lead(references: pd.DataFrame) -> str:
        blocks = build_report(altered(result, references=references)).lead
        return plain("\n\n".join(block for block in blocks if isinstance(block, str)))

    said = lead(references)
    assert "The reference of 1 instance is refuted" in said
    assert "ridge, “quickstart/b” at size 1,000, seed 3 (SCS, dual found a better value)." in said
    several = lead(pd.DataFrame([entry] * 6))
    assert "reference of 6 instances is refuted" in several
    assert "; 2 more." in several


def test_who_could_not_be_asked_is_named(result: Result[SolverStudyProblem], text: str) -> None:
    assert "No setting known" not in text
    said = claims(result, result.tables["runs"].assign(options=UNKNOWN))
    assert "how to ask for “default” is not known of CLARABEL" in said


def test_no_reference_is_refuted_where_none_is(text: str) -> None:
    assert "refuted" not in text


def test_limitations_follow_from_how_it_was_run(result, text: str) -> None:
    assert "Each run was bound to a core" in text
    assert "They were made in 2 sessions" in text
    assert "A caveat of the run." in text
    one = {"pinned": False, "sessions": 1}
    loose = words(build_report(altered(result, machine=result.numbers["machine"] | one)))
    assert "not bound to a processor core" in loose
    assert "sessions" not in loose
    several = result.numbers["machine"] | {"cpus": ["One CPU", "Another CPU"]}
    text = words(build_report(altered(result, machine=several)))
    assert "2 processors (One CPU and Another CPU), between which times do not compare" in text


def test_with_few_instances_no_difference_is_claimed() -> None:
    report = build_report(make_result(make_runs(seeds=1)))
    few = words(report)
    assert (
        "Too few common instances to compare in allocation, ridge and weighted logistic regression."
        in few
    )
    assert "easurably fastest" not in few
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
    assert "12 combinations count nowhere" in text
    runs = result.tables["runs"][result.tables["runs"].outcome != "unsupported"]
    full = build_report(altered(result, runs=runs, absent=[]))
    assert "What did not take part" not in headings(full)


def test_facts_count_what_counts(result: Result[SolverStudyProblem], report: Report) -> None:
    outcomes = result.tables["runs"].outcome.value_counts()
    shown = facts(report)
    assert shown["problem classes"] == "3"
    assert shown["instances"] == "18"
    assert shown["runs"] == "186"
    assert shown["of them solved"] == str(outcomes["solved"])
    assert shown["claimed and wrong"] == str(outcomes["wrong"])


def test_solvers_keep_their_colours(report: Report) -> None:
    looks = {
        name: {line.get_label(): line.get_color() for line in drawn(report, name).axes[0].lines}
        for name in ("accuracy-profile-default", "time-profile-default")
    }
    accuracy, time = looks.values()
    assert {*time} <= {"CLARABEL", "ECOS", "SCS", "OSQP"}
    assert len(time) == len(set(time.values())) >= 3
    assert {name: accuracy[name] for name in time} == time


def test_a_panel_shows_one_line_of_every_solver(report: Report) -> None:
    for axes in drawn(report, "time-profile-default").axes:
        takes_part = 3 if "logistic" in axes.get_title(loc="left") else 4
        assert len({line.get_label() for line in axes.lines}) == len(axes.lines) == takes_part


def test_hollow_marks_what_did_not_solve(
    report: Report, result: Result[SolverStudyProblem]
) -> None:
    figure = drawn(report, "growth-default")
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    hollow = [line for line in panels["allocation"].lines if line.get_markerfacecolor() == "white"]
    shown = {tuple(np.round(line.get_ydata(), 12)) for line in hollow if len(line.get_ydata())}
    (growth,) = (piece.draw.frame for piece in report.figures if piece.name == "growth-default")
    some = growth[(growth.problem_class == "allocation") & (growth.missed > 0)]
    some = some[np.isfinite(some.seconds)]
    assert {y for ys in shown for y in ys} == set(np.round(some.seconds, 12))
    runs = result.tables["runs"][result.tables["runs"].outcome != "unsupported"]
    for row in growth.itertuples():
        own = runs[(runs.problem_class == row.problem_class) & (runs.solver == row.solver)]
        own = own[(own.formulation == row.formulation) & (own["size"] == row.size)]
        assert row.missed == (own.outcome != "solved").sum()
        solved = own.total_s[own.outcome == "solved"]
        assert row.seconds == pytest.approx(np.exp(np.log(solved).mean()), nan_ok=True)
        assert len(solved) or np.isnan(row.seconds)  # nothing is drawn at the time limit


def test_coinciding_profiles_show(report: Report) -> None:
    for axes in drawn(report, "time-profile-default").axes:
        widths = [line.get_linewidth() for line in axes.lines]
        assert widths == sorted(widths, reverse=True)
        assert len(set(widths)) == len(widths)
        assert all(line.get_linestyle() == "-" for line in axes.lines)


@pytest.mark.parametrize("figure", ["choice", "glance", "time-profile", "growth", "split"])
def test_legends_are_not_on_curves_and_labels_not_on_each_other(
    report: Report, figure: str
) -> None:
    name = figure if figure in ("choice", "split") else f"{figure}-default"
    shown = drawn(report, name)
    assert not crowded(shown)
    assert not any(axes.get_legend() for axes in shown.axes)


@given(
    times=arrays(float, (3, 3, 3), elements=st.floats(1e-3, 1e3)),
    known=arrays(bool, (3, 3, 3)),
)
def test_what_decides_more_follows_from_the_table(times: np.ndarray, known: np.ndarray) -> None:
    rows = [
        {"problem_class": f"class {i}", "setting": "default", "size": np.nan}
        | {"solver": f"S{j}", "formulation": f"f{k}", "total_s": times[i, j, k]}
        for i, j, k in np.ndindex(times.shape)
    ]
    means = pd.DataFrame(rows)
    means.loc[~known.ravel(), "total_s"] = np.nan
    found = choice(means)
    for (name, changed), row in found.set_index(["problem_class", "changed"]).iterrows():
        own = means[(means.problem_class == name) & means.total_s.notna()].to_dict("records")
        kept = "solver" if changed == "formulation" else "formulation"
        ratios = [
            max(a["total_s"], b["total_s"]) / min(a["total_s"], b["total_s"])
            for a, b in combinations(own, 2)
            if a[kept] == b[kept]
        ]
        assert row.pairs == len(ratios)
        assert row.factor == pytest.approx(np.prod(ratios) ** (1 / len(ratios)))
        assert (row.low, row.high) == pytest.approx((min(ratios), max(ratios)))
    decided = _decided(found)
    assert (decided is None) == found.empty
    if decided is None:
        return
    sides = found.pivot(index="problem_class", columns="changed", values="factor")
    first, other = sides[decided["first"]], sides[decided["other"]]
    assert decided["classes"] == (first > other).sum() >= (other > first).sum()
    assert decided["of"] == len(sides)
    assert decided["factor"] == pytest.approx(np.exp(np.log(first).mean()))
    assert decided["other_factor"] == pytest.approx(np.exp(np.log(other).mean()))


def test_the_first_sentence_says_what_decides(result, report: Report) -> None:
    first = str(report.lead[0]).split("\n")[0]
    assert (first[:6], first[-3:]) == ("**The ", ".**")
    factors = table(report, "choice").pivot(
        index="problem_class", columns="changed", values="factor"
    )
    formulation = int((factors.formulation > factors.solver).sum())
    solver = int((factors.solver > factors.formulation).sum())
    more, less, n = ("formulation", "solver", formulation)
    if solver > formulation:
        more, less, n = ("solver", "formulation", solver)
    assert (
        f"The {more} decides more than the {less} in {n} of {len(factors)} problem class" in first
    )
    assert [piece.name for piece in report.lead if isinstance(piece, Figure)] == ["choice"]


def test_the_counts_of_runs_add_up(
    report: Report, text: str, result: Result[SolverStudyProblem]
) -> None:
    shown = {name: int(value.replace(",", "")) for name, value in facts(report).items()}
    parts = ("of them solved", "claimed and wrong", "without an answer")
    assert shown["runs"] == sum(shown[part] for part in parts)
    first = table(report, "overview")
    assert first.runs.sum() == shown["runs"]
    assert first.other.sum() == shown["without an answer"]
    solved, wrong, failed = (shown[part] for part in parts)
    assert (
        f"Of {shown['runs']} runs, {solved} solve, {wrong} claim an answer and are wrong, and "
        f"{failed} end without an answer that the solver stands by. A further 12 combinations"
        in text
    )
    assert len(result.tables["runs"]) == shown["runs"] + 12
    assert f"The {failed} runs without an answer" in text


@pytest.mark.campaign
def test_settings_that_differ_in_capitals_have_files_of_their_own(result) -> None:
    runs = make_runs(seeds=1, sizes=(100,), settings=("default", "high-accuracy"))
    runs = runs[runs.problem_class == "ridge"]
    runs = runs.replace({"setting": {"default": "Fast", "high-accuracy": "fast"}})
    study = result.problem.study.model_copy(update={"settings": ("Fast", "fast")})
    problem = result.problem.model_copy(update={"study": study})
    names = [piece.name for piece in build_report(make_result(runs, problem=problem)).figures]
    kinds = ("glance", "time-profile", "accuracy-profile", "growth")
    assert len(set(names)) == len(names)
    assert all(sum(name.startswith(f"{kind}-fast") for name in names) == 2 for kind in kinds)


def test_a_solver_that_the_file_does_not_name_is_drawn_too(result) -> None:
    frames = ("runs", "rates", "means", "profiles")
    mine = altered(result, **{name: result.tables[name].replace("OSQP", "MINE") for name in frames})
    figures = {piece.name: piece for piece in build_report(mine).figures}
    (axes, *_) = figures["time-profile-default"].draw().axes
    assert "MINE" in {line.get_label() for line in axes.lines}


def test_where_nothing_is_solved_the_report_says_so() -> None:
    runs = make_runs(seeds=1, sizes=(100,)).assign(outcome="time limit", total_s=np.nan)
    report = build_report(make_result(runs))
    said = words(report)
    assert "Nothing to compare in allocation, ridge and weighted logistic regression." in said
    assert "No solver claims an answer that our own residuals refute" in said
    assert "no contender can be called the fastest: none of 16 runs is solved" in words(report)
    assert "split" not in {figure.name for figure in report.figures}
    for piece in report.figures:
        assert piece.draw().axes


def test_only_the_exact_method_ran() -> None:
    runs = make_runs(seeds=2)
    report = build_report(make_result(runs[runs.solver == "exact"]))
    assert "no contender can be called the fastest: only the exact method ran" in words(report)
    assert "time-profile-default" not in {figure.name for figure in report.figures}
    for piece in report.figures:
        assert piece.draw().axes
