"""The report of releases side by side: what is promised, useless, refused, and better by theory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.figure import Figure

from convexmarket.lab import build_report
from convexmarket.lab.kinds.release_comparison.outcome import accounting_ratios, majority, questions
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.problem.rows import load_rows
from convexmarket.lab.report.figures import report_style
from convexmarket.lab.report.latex import latex_table
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.shown import shown_table
from convexmarket.lab.report.words import format_number, share
from convexmarket.lab.result import Result
from tests import one_in
from tests.lab.report.builders import (
    TOP,
    WORSE,
    altered,
    check_long_name,
    crowded,
    drawn,
    facts,
    headings,
    made,
    made_point,
    plain,
    problem_text,
    stored,
    words,
)

PROBLEM = problem_text("release-comparison")


@pytest.fixture(scope="module")
def result() -> Result:
    return stored("release-comparison")


def changed(result: Result, where: Callable[[pd.DataFrame], pd.Series], **values: Any) -> Result:
    """Return the result with other numbers in some of its points."""
    points = result.tables["points"].copy()
    for name, value in values.items():
        points[name] = points[name].mask(where(result.tables["points"]), value)
    return altered(result, points=points)


def refusing(result: Result, where: Callable[[pd.DataFrame], pd.Series], why: str) -> Result:
    """Return the result with some of its points refused."""
    numbers = [name for name in result.tables["points"].select_dtypes("number") if name not in KEY]
    return changed(result, where, **dict.fromkeys(numbers, np.nan), refused=why)


KEY = ("size", "epsilon")


def entries(figure: Figure) -> list[str]:
    """Return what the legends of the panels name."""
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


# ----------------------------------------------------------------------------------------- files


def test_the_tables_hold_the_whole_result(result) -> None:
    frames = {piece.name: piece.stored for piece in build_report(result).tables}
    np.testing.assert_array_equal(frames["points"].accuracy, result.tables["points"].accuracy)
    assert len(frames["draws"]) == len(result.tables["draws"])


def test_names_are_text_wherever_they_stand(result) -> None:
    report = build_report(result)
    markdown = markdown_page(report)
    assert "linear <i>" not in markdown.partition("```toml")[0]
    assert "linear &lt;i&gt;model" in markdown
    assert r"\_low threshold" in markdown
    (useful,) = (piece for piece in report.tables if piece.name == "useful")
    latex = latex_table(shown_table(useful), report.title)
    assert r"\_low threshold" in latex
    assert "_low threshold" not in latex.replace(r"\_low", "")
    shown = entries(drawn(report, "accuracy-epsilon"))
    assert [text.lstrip("\N{ZERO WIDTH SPACE}") for text in shown] == list(WORSE)


# ----------------------------------------------------------------------------------------- words


def test_the_finding_groups_releases_by_what_they_lose(result: Result) -> None:
    finding = words(build_report(result))
    assert finding.startswith(
        "With 10,000 rows and ε = 1, 5 of 8 releases lose at most 2 points of the accuracy without "
        "noise (98.0%), and none is useless; “process” is the most accurate, on 97.9%"
    )
    near, far = finding.split("At most 2 points are lost by", 1)[1].split("More is lost by")
    far = far.split("Of 8 releases")[0]
    for release in WORSE:
        point = made_point(10_000, 1.0, release)
        assert f"“{release}” ({100 * point['accuracy']:.1f}%" in (
            near if point["lost"] <= 0.02 else far
        )
    assert "“process” (97.9%; from n = 1,000 on)" in near
    assert "Useless" not in finding
    far = changed(result, lambda points: points["size"] > 0, lost=0.3)
    assert "none of 8 releases loses at most 2 points" in words(build_report(far))
    ends = [
        sum(made_point(10_000, epsilon, release)["lost"] <= 0.02 for release in WORSE)
        for epsilon in (0.1, 10.0)
    ]
    assert f"Of 8 releases, as little is lost by {ends[0]} at ε = 0.1 and {ends[1]} at" in finding


@pytest.mark.parametrize(
    ("mean", "low", "high", "group"),
    [
        (0.5, 0.45, 0.55, "Useless"),  # the mean decides
        (0.48, np.nan, np.nan, "Useless"),
        (0.51, 0.505, 0.519, "Useless"),  # better, by less than counts
        (0.51, 0.5, 0.521, "Not told apart"),
        (0.65, 0.45, 0.85, "Not told apart"),
        (0.65, 0.501, 0.85, "More is lost"),
        (0.51, np.nan, np.nan, "More is lost"),
        (0.97, 0.45, 1.0, "At most 2 points"),
    ],
)
def test_a_release_is_useless_only_if_draws_show_it(
    result: Result, mean: float, low: float, high: float, group: str
) -> None:
    given = {"accuracy": mean, "accuracy_low": low, "accuracy_high": high, "lost": TOP - mean}
    report = build_report(
        changed(result, lambda points: points.release == "questions, paper", **given)
    )
    finding = words(report).split("Of 8 releases, as little")[0]
    (said,) = (
        part for part in re.split(r"(?<=[a-z)])\.\** ", finding) if "“questions, paper” (" in part
    )
    assert said.startswith(group)
    empty = group == "Useless"
    assert facts(report)["useless at n = 10,000, ε = 1"] == f"{int(empty)} of 8"


def test_the_commoner_label_is_that_of_the_test_rows() -> None:
    problem = parse_problem(PROBLEM, ["data.n_test=41"])
    assert majority(problem) == 21 / 41
    assert questions(problem) == 41
    rows = parse_problem(
        PROBLEM.replace('"circles"', '"wdbc"').replace("n_test = 40", ""),
        ["study.sizes=[100]"],
    )
    labels = load_rows(rows.data).y_test
    assert questions(rows) == len(labels)
    assert majority(rows) == max(np.mean(labels == value) for value in set(labels))
    assert 0.5 < majority(rows) < 0.8


def test_where_theory_promises_nothing_it_is_said(result: Result) -> None:
    text = words(build_report(result)).split(" Both promise the same.")[0]
    assert (
        "For “net”, “questions”, “test set, paper” and “questions, paper” theory promises nothing "
        "of the kind up to n = 10,000, where the study ends." in text
    )
    assert "names no n" not in text
    assert "suffices" not in text
    nearer = altered(result, useful=result.tables["useful"].assign(n_bound=500.0))
    assert "The study goes up to n = 10,000." in words(build_report(nearer))
    nothing = altered(result, useful=result.tables["useful"].assign(n_bound=np.nan, least=np.nan))
    assert "theory's bounds ask" not in words(build_report(nothing))
    assert "Theory names no n for “questions, paper”, “questions”" in words(build_report(nothing))


@pytest.mark.parametrize(
    ("release", "least", "sentence"),
    [
        ("net", np.nan, "Theory names no n for “net”."),
        (
            "net",
            0.4,
            "For “net” no n up to 10¹² suffices: with the nets and rounds that 8 GB hold, errors "
            "of 0.4 remain possible.",
        ),
        (
            "test set",
            0.56,
            "For “test set” no n up to 10¹² suffices: with 5,000 public points, the most that a "
            "release can take here, errors of 0.56 remain possible.",
        ),
        ("process", 9.0, "For “process” no n up to 10¹² suffices: errors of 9 remain possible."),
    ],
)
def test_what_no_number_of_rows_mends_is_told_with_its_reason(
    result: Result, release: str, least: float, sentence: str
) -> None:
    useful = result.tables["useful"].copy()
    useful.loc[useful.release == release, ["n_bound", "least"]] = [np.nan, least]
    report = build_report(altered(result, useful=useful))
    assert sentence in words(report)
    assert "names no n for “linear" not in words(report)


def test_accountings_are_compared_where_all_else_is_equal(
    result: Result,
) -> None:
    ratios = accounting_ratios(result)
    assert set(ratios.paper) == {"questions, paper", "test set, paper"}
    np.testing.assert_allclose(ratios.ratio[ratios.tight == "questions"], 250.0)
    np.testing.assert_allclose(ratios.ratio[ratios.tight == "test set"], 10.0)
    assert len(ratios) == 18
    (table,) = (each for each in build_report(result).tables if each.name == "accountings")
    assert set(table.frame["size"]) == {10_000}
    assert len(table.stored) == 18
    text = words(build_report(result))
    assert "250 times for “questions, paper” against “questions”" in text
    apart = made(text=PROBLEM.replace("max_updates = 8\naccounting", "max_updates = 9\naccounting"))
    assert set(accounting_ratios(apart).paper) == {"test set, paper"}
    apart = made(text=PROBLEM.replace('accounting = "paper"\n', ""))
    assert accounting_ratios(apart).empty
    assert "The paper's accounting, and ours" not in headings(build_report(apart))
    half = changed(
        result,
        lambda points: (points.release == "questions") & (points["size"] == 100),
        scale=2.0 * result.tables["points"].scale,
    )
    assert "125 to 250 times for “questions, paper” against" in words(build_report(half))


def test_the_process_is_set_against_the_best_of_the_others(
    result: Result,
) -> None:
    kernels = result.tables["points"][result.tables["points"].error.notna()]
    wide = kernels.pivot_table(index=list(KEY), columns="release", values="error")
    wins = int((wide["process"] < wide.drop(columns="process").min(axis=1)).sum())
    assert 0 < wins < 9
    text = words(build_report(result))
    assert f"all releases of the kernel model at {wins} of 9 pairs of n and ε" in text
    less = "off by 0.002, less than the 0.006 of “_low threshold”, the best of the others."
    assert less in text
    behind = changed(
        result,
        lambda points: points.release.isin(["test set", "_low threshold"]),
        error=result.tables["points"].error.where(
            result.tables["points"].release != "test set", 1e-4
        ),
    )
    text = words(build_report(behind))
    assert "all releases of the kernel model at 0 of 9 pairs of n and ε" in text
    assert "off by 0.002, more than the 0.0001 of “test set”, the best of the others." in text
    alone = refusing(result, lambda points: points.release == "process", "No.")
    assert "a Gaussian process added to the whole function, has" not in words(build_report(alone))


@pytest.mark.parametrize(("accuracy", "word"), [(0.6, "won"), (0.99, "lost")])
def test_the_linear_model_is_told_won_or_lost(result: Result, accuracy: float, word: str) -> None:
    found = changed(
        result, lambda points: points.release.str.startswith("linear"), accuracy=accuracy
    )
    best = made_point(10_000, 1.0, "process")["accuracy"]
    gap = format_number(100 * abs(best - accuracy))
    text = words(build_report(found))
    assert f"it is right on {100 * accuracy:.1f}% (52.0% without noise)" in text
    assert f"“process” on 97.9%: {gap} points {word} by the kernel" in text


def test_updates_that_run_out_or_are_never_made_are_told(result: Result) -> None:
    text = words(build_report(result))
    assert "no update is made by “questions, paper” at all 3 values of ε" in text
    assert "run out before all 40 questions are answered: “_low threshold” after 25" in text
    assert "More ε is not always better" not in text
    worse = changed(
        result,
        lambda points: (points.release == "_low threshold") & (points.epsilon == 10.0),
        accuracy=0.7,
    )
    assert (
        "More ε is not always better: “_low threshold” is right on 97.7% at ε = 1 and on 70.0% at "
        "ε = 10." in words(build_report(worse))
    )
    better = changed(
        result,
        lambda points: (points.release == "_low threshold") & (points.epsilon > 0.1),
        answered=40.0,
    )
    text = words(build_report(better))
    assert "“_low threshold” after 25 at ε = 0.1 (means)." in text
    assert "More ε is not always better" not in text
    lasting = changed(result, lambda points: points.release == "_low threshold", answered=40.0)
    assert "run out before" not in words(build_report(lasting))


def test_every_kind_says_what_it_promises(result: Result) -> None:
    (section,) = (
        each for each in build_report(result).sections if each.heading == "What is guaranteed"
    )
    _, *points = map(plain, section.text.split("\n- "))
    assert len(points) == 5
    assert points[0].startswith(
        "“questions, paper”, “questions” and “_low threshold”: ε with δ = 10⁻⁶ for all answers to "
        "40 questions"
    )
    assert points[-1].startswith("“linear <i>model</i>”: ε with δ = 0 for the coefficients")
    assert all("δ = 10⁻⁶" in text for text in points[:-1])
    assert "Releases of the kernel model's predictions need a minimiser found" in section.text


def test_tables_write_no_negative_zero_and_the_last_updates_only(
    result: Result,
) -> None:
    found = changed(result, lambda points: points.release == "process", lost=-1e-5)
    report = build_report(found)
    (updates,) = (each for each in report.tables if each.name == "updates")
    assert list(updates.frame.queries) == [40] * 9
    assert len(updates.stored) == len(result.tables["updates"]) == 36
    text = markdown_page(report)
    assert "| 0.0% |" in text
    assert "-0.0%" not in text


# --------------------------------------------------------------------------------------- refusals


def test_refusals_are_listed_with_their_reason(result: Result) -> None:
    why = "the net would have <b>10²⁰</b> points"
    found = refusing(
        result,
        lambda points: (points.release == "net") | ((points.release == "process") & small(points)),
        why,
    )
    report = build_report(found)
    assert "Refused: “net” at all 9 pairs and “process” at 3 of 9 pairs of n and ε" in words(report)
    (table,) = (each for each in report.tables if each.name == "refused")
    assert table.frame.set_index("release").T.to_dict("list") == {
        "process": [3, 100, 100, 0.1, 10.0, why],
        "net": [9, 100, 10_000, 0.1, 10.0, why],
    }
    assert len(table.stored) == 12
    (shown,) = (each.frame for each in report.tables if each.name == "points")
    assert len(shown) == 72 - 12
    assert "net" not in entries(drawn(report, "accuracy-epsilon"))
    assert "What was refused" not in headings(build_report(result))


def small(points: pd.DataFrame) -> pd.Series:
    return points["size"] == 100


def test_nothing_but_refusals_is_a_report_too(result: Result) -> None:
    found = refusing(result, lambda points: points["size"] > 0, "No.")
    found = altered(
        found,
        draws=found.tables["draws"].iloc[:0],
        updates=found.tables["updates"].iloc[:0],
        useful=found.tables["useful"].assign(n_bound=np.nan, n_measured=np.nan),
    )
    report = build_report(found)
    assert not report.figures
    assert facts(report)["of use at n = 10,000, ε = 1"] == "0 of 8"
    assert markdown_page(report)


@given(refused=st.lists(st.booleans(), min_size=72, max_size=72))
def test_whatever_is_refused_the_counts_add_up(refused: list[bool]) -> None:
    found = refusing(stored("release-comparison"), lambda points: pd.Series(refused), "No.")
    report = build_report(found)
    tables = {each.name: each.frame for each in report.tables}
    listed = int(tables["refused"].pairs.sum()) if "refused" in tables else 0
    assert listed == sum(refused) == 72 - len(tables["points"])
    said = words(report)
    for release in WORSE:
        at = (found.tables["points"].release == release) & (found.tables["points"].refused != "")
        assert (f"“{release}” at {share(int(at.sum()), 9, 'pair')}" in said) == bool(at.any())
    assert ": nan" not in said


# ---------------------------------------------------------------------------------------- figures


@pytest.mark.campaign
def test_the_ticks_of_sizes_have_room(result: Result) -> None:
    far = altered(
        result, useful=result.tables["useful"].assign(n_bound=1e3 * result.tables["useful"].n_bound)
    )
    assert not crowded(drawn(build_report(far), "sizes-needed"))


def test_what_is_crowded_is_found() -> None:
    with report_style("crowded"):
        figure = Figure(figsize=(6, 3))
        for axes in figure.subplots(1, 2):
            axes.plot([0, 1], label="as long as half of the figure, and more than that")
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1)).set_in_layout(False)
        figure.draw_without_rendering()
        assert crowded(figure)


@pytest.mark.campaign
@pytest.mark.parametrize("name", one_in(2, ["accuracy-epsilon", "updates"]))
def test_long_names_are_broken(name: str) -> None:
    check_long_name("a name of sixty characters, as long as a label may ever be.", name)


@pytest.mark.campaign
def test_a_kind_of_many_releases_has_several_panels() -> None:
    text = PROBLEM.replace("[run]", "".join(MORE.format(number=k) for k in range(7)) + "[run]")
    found = made(text=text)
    figure = drawn(build_report(found), "accuracy-epsilon")
    titles = [axes.get_legend().get_title().get_text() for axes in figure.axes]
    assert titles[:3] == ["Interactive", "Interactive (continued)", "Semi-interactive"]
    assert sum(len(axes.get_legend().get_texts()) for axes in figure.axes) == 15


MORE = """
[[releases]]
kind = "interactive"
label = "more {number}"
max_updates = 8
"""


@pytest.mark.campaign
def test_bounds_are_drawn_beside_what_they_bound(result: Result) -> None:
    figure = drawn(build_report(result), "error-size")
    rows = result.tables["points"][(result.tables["points"].epsilon == 1.0)].set_index("release")
    lines = {axes.get_legend().get_title().get_text(): axes.lines for axes in figure.axes}
    for heading, release, measured in (
        ("Semi-interactive", "test set, paper", "error"),
        ("Non-interactive", "net", "worst"),
        ("Yardsticks", "process", "worst"),
    ):
        solid, dotted = lines[heading][:2]
        np.testing.assert_allclose(solid.get_ydata(orig=False), rows.loc[release, measured])
        np.testing.assert_allclose(dotted.get_ydata(orig=False), rows.loc[release, "bound"])
    for several in lines.values():
        *curves, useful = several  # the last is what is of use
        assert set(useful.get_ydata()) == {result.problem.study.useful_error}
        assert {line.get_linestyle() for line in curves[::2]} == {"-"}
        assert {line.get_linestyle() for line in curves[1::2]} == {":"}
        assert len({line.get_marker() for line in curves[::2]}) == len(curves) / 2


def test_exponents_are_those_of_the_points(result: Result) -> None:
    (table,) = (each.frame for each in build_report(result).tables if each.name == "exponents")
    np.testing.assert_allclose(table["bound"], -1.0)
    row = table[(table.release == "process") & (table.epsilon == 10.0)].iloc[0]
    assert row.measured == pytest.approx(-1.0)
    assert row.sizes == 3
    assert "linear <i>model</i>" not in set(table.release)


@pytest.mark.campaign
def test_updates_far_below_what_is_allowed_are_legible() -> None:
    far = made(text=PROBLEM.replace("max_updates = 8\nthreshold", "max_updates = 500\nthreshold"))
    tops = [axes.get_ylim()[1] for axes in drawn(build_report(far), "updates").axes]
    assert 8 < tops[2] < 16
    (panel,) = drawn(build_report(made()), "updates").axes[2:]
    (allowed, *_) = (line for line in panel.lines if line.get_label() == "updates allowed")
    assert set(allowed.get_ydata()) == {8.0}
    assert panel.get_ylim()[1] > 8


def test_the_marks_are_the_sizes_needed(result: Result) -> None:
    figure = drawn(build_report(result), "sizes-needed")
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        f"ε\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}{value}" for value in ("0.1", "1", "10")
    ]
    for axes, epsilon in zip(figure.axes, (0.1, 1.0, 10.0), strict=True):
        rows = result.tables["useful"][result.tables["useful"].epsilon == epsilon]
        dots = [line for line in axes.lines if len(line.get_xdata()) == 1]
        hollow = [line for line in dots if line.get_markerfacecolor() == "white"]
        filled = [line for line in dots if line.get_markerfacecolor() != "white"]
        for lines, numbers in ((hollow, rows.n_bound), (filled, rows.n_measured)):
            np.testing.assert_array_equal([line.get_xdata()[0] for line in lines], numbers)


@given(
    lost=arrays(float, 72, elements=st.floats(-0.5, 0.5)),
    width=st.floats(0.0, 0.2),
    ratios=arrays(float, 72, elements=st.floats(0.1, 10.0)),
)
def test_what_is_said_follows_from_the_points(
    lost: np.ndarray, width: float, ratios: np.ndarray
) -> None:
    found = stored("release-comparison")
    accuracy = np.clip(TOP - lost, 0.0, 1.0)
    points = found.tables["points"].assign(
        accuracy=accuracy,
        accuracy_low=accuracy - width,
        accuracy_high=accuracy + width,
        lost=TOP - accuracy,
        error=found.tables["points"].error * ratios,
        scale=found.tables["points"].scale * ratios,
    )
    said = words(build_report(altered(found, points=points)))
    here = points[(points["size"] == 10_000) & (points.epsilon == 1.0)].set_index("release")
    useful = found.problem.study.useful_loss
    near = int((here.lost <= useful).sum())
    verb = "lose" if near > 1 else "loses"
    assert f"{near or 'none'} of 8 releases {verb} at most 2 points" in said
    best = here.accuracy.idxmax()
    assert f"“{best}” is the most accurate, on {100 * here.accuracy[best]:.1f}% of" in said
    others = here.drop(index=["process", "linear <i>model</i>"]).error
    than = "less than" if here.error["process"] < others.min() else "more than"
    if here.error["process"] != others.min():
        assert f"{than} the {plain(format_number(others.min())).strip()} of" in said
    kernel = here.drop(index="linear <i>model</i>").accuracy
    gained = kernel.max() - here.accuracy["linear <i>model</i>"]
    if gained:
        assert ("won by the kernel" in said) == (gained > 0)
        assert ("lost by the kernel" in said) == (gained < 0)
    assert "more noise than" not in said  # of ratios on both sides of 1, nothing of the kind
