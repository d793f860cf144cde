"""The report of releases side by side says what the result says."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from convexmarket.experiments import ReleaseComparisonResult, run_release_comparison
from convexmarket.problems import parse_problem
from convexmarket.problems.rows import load_rows
from convexmarket.report import build_report, read_results, rewrite_report, write_report
from convexmarket.report.figures import plain_ticks, report_style
from convexmarket.report.model import Report
from convexmarket.report.release_comparison_words import accounting_ratios, majority, questions
from convexmarket.report.terminal import summary
from convexmarket.report.words import format_number, share

PROBLEM = """
kind = "release-comparison"
title = "Releases <b>side by side</b>"
description = "Circles & more."
notes = ["A note."]
[data]
source = "circles"
n_test = 40
[model]
regularization = 0.1
gamma = 4.0
[study]
sizes = [100, 1000, 10000]
epsilons = [0.1, 1.0, 10.0]
fits = 1
draws = 2
[[releases]]
kind = "interactive"
label = "questions, paper"
max_updates = 8
accounting = "paper"
[[releases]]
kind = "interactive"
label = "questions"
max_updates = 8
[[releases]]
kind = "interactive"
label = "_low threshold"
max_updates = 8
threshold = 2.0
[[releases]]
kind = "semi-interactive"
label = "test set, paper"
accounting = "paper"
n_points = 30
[[releases]]
kind = "semi-interactive"
label = "test set"
n_points = 30
[[releases]]
kind = "non-interactive"
label = "net"
rounds = 10
net_radius = 0.2
[[releases]]
kind = "function"
label = "process"
[[releases]]
kind = "objective-perturbation"
label = "linear <i>model</i>"
regularization = 0.1
[run]
jobs = 1
"""

#: How much worse than the process each release is made to be.
WORSE = {
    "questions, paper": 3000.0,
    "questions": 12.0,
    "_low threshold": 3.0,
    "test set, paper": 40.0,
    "test set": 4.0,
    "net": 10.0,
    "process": 1.0,
    "linear <i>model</i>": 0.5,
}
TOP, LINEAR = 0.98, 0.52


def made_point(size: int, epsilon: float, release: str) -> dict[str, Any]:
    """Return a point of a result whose numbers are easily told."""
    noise = WORSE.get(release, 5.0) * 20.0 / (size * epsilon)
    linear = release.startswith("linear")
    best = LINEAR if linear else TOP
    accuracy = 0.5 + (best - 0.5) / (1.0 + noise)
    questions = release in ("questions, paper", "questions", "_low threshold")
    return {
        "size": size,
        "epsilon": epsilon,
        "release": release,
        "accuracy": accuracy,
        "accuracy_low": accuracy - 0.005,
        "accuracy_high": accuracy + 0.005,
        "error": np.nan if linear else min(noise, 0.6),
        "worst": np.nan if linear else 3 * min(noise, 0.6),
        "updates": {"_low threshold": 8.0}.get(release, 0.0) if questions else np.nan,
        "answered": 25.0 if release == "_low threshold" and size > 1000 else 40.0,
        "scale": np.nan if linear else noise,
        "bound": np.nan if linear else 30.0 * noise,
        "lost": TOP - accuracy,
        "refused": "",
        "seconds": 0.1,
    }


def made(*overrides: str, text: str = PROBLEM) -> ReleaseComparisonResult:
    """Return a result that was never run."""
    problem = parse_problem(text, overrides)
    study, labels = problem.study, [release.label for release in problem.releases]
    places = list(itertools.product(study.sizes, study.epsilons, labels))
    points = pd.DataFrame([made_point(*place) for place in places])
    kept = ["size", "epsilon", "release", "accuracy", "error", "worst", "updates", "answered"]
    draws = pd.concat([points[kept].assign(fit=0, draw=draw, seconds=0.1) for draw in (0, 1)])
    models = pd.DataFrame(
        {
            "size": study.sizes,
            "fit": 0,
            "accuracy": TOP,
            "linear_accuracy": LINEAR,
            "sensitivity": [20.0 / size for size in study.sizes],
            "norm_bound": 2.6,
            "norm": 1.5,
            "typical": 0.4,
            "rank": 50,
            "prediction_error": 1e-5,
            "seconds": 0.5,
        }
    )
    updates = pd.DataFrame(
        [
            {
                "release": label,
                "epsilon": epsilon,
                "queries": queries,
                "updates": (used := 0.0 if label != "_low threshold" else min(8.0, queries / 3)),
                "low": np.floor(used),
                "high": np.ceil(used),
            }
            for label in labels[:3]
            for epsilon in study.epsilons
            for queries in (1, 10, 20, 40)
        ]
    )
    return ReleaseComparisonResult(
        problem=problem,
        models=models,
        draws=draws[[*kept[:3], "fit", "draw", *kept[3:], "seconds"]].reset_index(drop=True),
        points=points,
        updates=updates,
        useful=pd.DataFrame(
            [
                made_useful(points, epsilon, label)
                for epsilon, label in itertools.product(study.epsilons, labels)
            ]
        ),
        caveats=("One kind of data.",),
        timings={"fits": 1.0},
        provenance={"versions": {"python": "3"}},
    )


def made_useful(points: pd.DataFrame, epsilon: float, release: str) -> dict[str, Any]:
    rows = points[(points.epsilon == epsilon) & (points.release == release)]
    near = rows["size"][rows.lost <= 0.02]
    bound = np.nan if release.startswith("linear") else WORSE.get(release, 5.0) * 2000.0 / epsilon
    measured = float(near.min()) if len(near) else np.nan
    return {
        "epsilon": epsilon,
        "release": release,
        "n_bound": bound,
        "least": bound / 1e12,
        "n_measured": measured,
    }


@pytest.fixture(scope="module")
def result() -> ReleaseComparisonResult:
    return made()


def changed(
    result: ReleaseComparisonResult, where: Callable[[pd.DataFrame], pd.Series], **values: Any
) -> ReleaseComparisonResult:
    """Return the result with other numbers in some of its points."""
    points = result.points.copy()
    for name, value in values.items():
        points[name] = points[name].mask(where(result.points), value)
    return replace(result, points=points)


def refusing(
    result: ReleaseComparisonResult, where: Callable[[pd.DataFrame], pd.Series], why: str
) -> ReleaseComparisonResult:
    """Return the result with some of its points refused."""
    numbers = [name for name in result.points.select_dtypes("number") if name not in KEY]
    return changed(result, where, **dict.fromkeys(numbers, np.nan), refused=why)


KEY = ("size", "epsilon")


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def headings(report: Report) -> list[str]:
    return [section.heading for section in report.sections]


def facts(report: Report) -> dict[str, str]:
    return {fact.label: fact.value for fact in report.facts}


def drawn(report: Report, name: str) -> Figure:
    """Draw a figure as the report's files show it."""
    (piece,) = (figure for figure in report.figures if figure.name == name)
    with report_style(name):
        figure = piece.draw()
        plain_ticks(figure)
        figure.draw_without_rendering()
    return figure


def entries(figure: Figure) -> list[str]:
    """Return what the legends of the panels name."""
    legends = [axes.get_legend() for axes in figure.axes if axes.get_legend()]
    return [text.get_text() for legend in legends for text in legend.get_texts()]


# ----------------------------------------------------------------------------------------- files


@pytest.fixture(scope="module")
def folder(result: ReleaseComparisonResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(result, tmp_path_factory.mktemp("releases") / "report").parent


def test_it_is_written(result: ReleaseComparisonResult, folder: Path) -> None:
    assert {path.stem for path in (folder / "figures").glob("*.svg")} == {
        "accuracy-epsilon",
        "accuracy-epsilon-fewer",
        "accuracy-size",
        "sizes-needed",
        "error-size",
        "updates",
    }
    points = pd.read_csv(folder / "tables" / "points.csv")
    np.testing.assert_allclose(points.accuracy, result.points.accuracy)
    assert len(pd.read_csv(folder / "tables" / "draws.csv")) == len(result.draws)
    back = read_results(folder)
    pd.testing.assert_frame_equal(back.useful, result.useful)
    pd.testing.assert_frame_equal(back.points, result.points, check_dtype=False)


def test_it_is_written_again_from_its_results(folder: Path, tmp_path: Path) -> None:
    again = rewrite_report(folder, tmp_path / "again").parent
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 30
    assert all((folder / path).read_bytes() == (again / path).read_bytes() for path in files)


def test_names_are_text_wherever_they_stand(result: ReleaseComparisonResult, folder: Path) -> None:
    for name in ("index.html", "report.md"):
        text = (folder / name).read_text(encoding="utf-8")
        assert "linear <i>" not in text
        assert "linear &lt;i&gt;model" in text
    markdown = (folder / "report.md").read_text(encoding="utf-8")
    assert r"\_low threshold" in markdown
    latex = (folder / "tables" / "useful.tex").read_text(encoding="utf-8")
    assert r"\_low threshold" in latex
    assert "_low threshold" not in latex.replace(r"\_low", "")
    shown = [text.lstrip("\N{ZERO WIDTH SPACE}") for text in entries(drawn_accuracy(result))]
    assert shown == list(WORSE)


def drawn_accuracy(result: ReleaseComparisonResult) -> Figure:
    return drawn(build_report(result), "accuracy-epsilon")


def test_a_real_run_has_a_report(tmp_path: Path) -> None:
    found = run_release_comparison(
        parse_problem(PROBLEM, ["study.sizes=[60, 200]", "study.epsilons=[1.0]", "study.draws=1"])
    )
    folder = write_report(found, tmp_path / "report").parent
    back = read_results(folder)
    pd.testing.assert_frame_equal(back.points, found.points)
    assert "as close come" not in words(build_report(found))


# ----------------------------------------------------------------------------------------- words


def test_the_finding_groups_releases_by_what_they_lose(result: ReleaseComparisonResult) -> None:
    finding = build_report(result).summary[0].replace("\N{NO-BREAK SPACE}", " ")
    assert finding.startswith(
        "With 10,000 rows and ε = 1 the model without noise labels 98.0% of the test rows right."
    )
    near, far = finding.split("More is lost by")
    for release in WORSE:
        point = made_point(10_000, 1.0, release)
        assert f"“{release}” ({100 * point['accuracy']:.1f}%" in (
            near if point["lost"] <= 0.02 else far
        )
    assert "“process” (97.9%; from n = 1,000 on)" in near
    assert "Useless" not in finding
    assert "No release comes within" not in finding
    far = changed(result, lambda points: points["size"] > 0, lost=0.3)
    assert "No release comes within 2 points of that. More is" in words(build_report(far))
    ends = [
        sum(made_point(10_000, epsilon, release)["lost"] <= 0.02 for release in WORSE)
        for epsilon in (0.1, 10.0)
    ]
    assert f"Of 8 releases, as close come {ends[0]} at ε = 0.1 and {ends[1]} at ε = 10." in finding


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
        (0.97, 0.45, 1.0, "Within 2 points"),
    ],
)
def test_a_release_is_useless_only_if_draws_show_it(
    result: ReleaseComparisonResult, mean: float, low: float, high: float, group: str
) -> None:
    given = {"accuracy": mean, "accuracy_low": low, "accuracy_high": high, "lost": TOP - mean}
    report = build_report(
        changed(result, lambda points: points.release == "questions, paper", **given)
    )
    finding = report.summary[0].replace("\N{NO-BREAK SPACE}", " ")
    (said,) = (part for part in finding.split(". ") if "“questions, paper”" in part)
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


def test_theory_is_told_beside_what_is_measured(result: ReleaseComparisonResult) -> None:
    text = build_report(result).summary[1].replace("\N{NO-BREAK SPACE}", " ")
    assert "off by at most 0.3, theory's bounds ask at ε = 1 for n of 2,000 with “process”" in text
    assert "6 × 10⁶ with “questions, paper”" in text or "6,000,000 with" in text
    assert (
        "For “net”, “questions”, “test set, paper” and “questions, paper” theory promises nothing "
        "of the kind up to n = 10,000, where the study ends." in text
    )
    assert "Measured, “net” and “questions” are of use there all the same" in text
    assert "names no n" not in text
    assert "suffices" not in text
    nearer = replace(result, useful=result.useful.assign(n_bound=500.0))
    assert "The study goes up to n = 10,000." in words(build_report(nearer))
    nothing = replace(result, useful=result.useful.assign(n_bound=np.nan, least=np.nan))
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
    result: ReleaseComparisonResult, release: str, least: float, sentence: str
) -> None:
    useful = result.useful.copy()
    useful.loc[useful.release == release, ["n_bound", "least"]] = [np.nan, least]
    report = build_report(replace(result, useful=useful))
    assert sentence in report.summary[1].replace("\N{NO-BREAK SPACE}", " ")
    assert "linear" not in report.summary[1]


def test_accountings_are_compared_where_all_else_is_equal(
    result: ReleaseComparisonResult,
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
        scale=2.0 * result.points.scale,
    )
    assert "125 to 250 times for “questions, paper” against" in words(build_report(half))


def test_the_process_is_set_against_the_best_of_the_others(
    result: ReleaseComparisonResult,
) -> None:
    kernels = result.points[result.points.error.notna()]
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
        error=result.points.error.where(result.points.release != "test set", 1e-4),
    )
    text = words(build_report(behind))
    assert "all releases of the kernel model at 0 of 9 pairs of n and ε" in text
    assert "off by 0.002, more than the 0.0001 of “test set”, the best of the others." in text
    alone = refusing(result, lambda points: points.release == "process", "No.")
    assert "a Gaussian process added to the whole function, has" not in words(build_report(alone))


@pytest.mark.parametrize(("accuracy", "word"), [(0.6, "won"), (0.99, "lost")])
def test_the_linear_model_is_told_won_or_lost(
    result: ReleaseComparisonResult, accuracy: float, word: str
) -> None:
    found = changed(
        result, lambda points: points.release.str.startswith("linear"), accuracy=accuracy
    )
    best = made_point(10_000, 1.0, "process")["accuracy"]
    gap = format_number(100 * abs(best - accuracy))
    text = words(build_report(found))
    assert f"it is right on {100 * accuracy:.1f}% (52.0% without noise)" in text
    assert f"“process” on 97.9%: {gap} points {word} by the kernel" in text


def test_updates_that_run_out_or_are_never_made_are_told(result: ReleaseComparisonResult) -> None:
    text = words(build_report(result))
    assert (
        "With 10,000 rows no update is made by “questions, paper” at all 3 values of ε and "
        "“questions” at all 3 values of ε." in text
    )
    assert (
        "run out before all 40 questions are answered: “_low threshold” after 25 at ε = 0.1, 25 at "
        "ε = 1 and 25 at ε = 10 (means)." in text
    )
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


def test_every_kind_says_what_it_promises(result: ReleaseComparisonResult) -> None:
    (section,) = (
        each for each in build_report(result).sections if each.heading == "What is promised"
    )
    points = [text.replace("\N{NO-BREAK SPACE}", " ") for text in section.points]
    assert len(points) == 5
    assert points[0].startswith(
        "“questions, paper”, “questions” and “_low threshold”: ε with δ = 10⁻⁶ for all answers to "
        "40 questions"
    )
    assert points[-1].startswith("“linear <i>model</i>”: ε with δ = 0 for the coefficients")
    assert all("δ = 10⁻⁶" in text for text in points[:-1])
    assert "Releases of the kernel model's predictions need a minimiser found" in section.prose[1]


def test_tables_write_no_negative_zero_and_the_last_updates_only(
    result: ReleaseComparisonResult, tmp_path: Path
) -> None:
    found = changed(result, lambda points: points.release == "process", lost=-1e-5)
    report = build_report(found)
    (updates,) = (each for each in report.tables if each.name == "updates")
    assert list(updates.frame.queries) == [40] * 9
    assert len(updates.stored) == len(result.updates) == 36
    text = (write_report(found, tmp_path / "report").parent / "report.md").read_text("utf-8")
    assert "| 0.0% |" in text
    assert "-0.0%" not in text


# --------------------------------------------------------------------------------------- refusals


def test_refusals_are_listed_with_their_reason(result: ReleaseComparisonResult) -> None:
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


def test_nothing_but_refusals_is_a_report_too(
    result: ReleaseComparisonResult, tmp_path: Path
) -> None:
    found = refusing(result, lambda points: points["size"] > 0, "No.")
    found = replace(
        found,
        draws=found.draws.iloc[:0],
        updates=found.updates.iloc[:0],
        useful=found.useful.assign(n_bound=np.nan, n_measured=np.nan),
    )
    report = build_report(found)
    assert not report.figures
    assert facts(report)["of use at n = 10,000, ε = 1"] == "0 of 8"
    write_report(found, tmp_path / "report")


@given(refused=st.lists(st.booleans(), min_size=72, max_size=72))
@settings(max_examples=40, deadline=None)
def test_whatever_is_refused_the_counts_add_up(refused: list[bool]) -> None:
    found = refusing(made(), lambda points: pd.Series(refused), "No.")
    report = build_report(found)
    tables = {each.name: each.frame for each in report.tables}
    listed = int(tables["refused"].pairs.sum()) if "refused" in tables else 0
    assert listed == sum(refused) == 72 - len(tables["points"])
    said = words(report)
    for release in WORSE:
        at = (found.points.release == release) & (found.points.refused != "")
        assert (f"“{release}” at {share(int(at.sum()), 9, 'pair')}" in said) == bool(at.any())
    assert ": nan" not in said


# ---------------------------------------------------------------------------------------- figures


def crowded(figure: Figure) -> list[str]:
    """Return legends and labels that leave the figure, and pairs that lie on each other."""
    boxes = []
    for axes in figure.axes:
        legend = axes.get_legend()
        texts = [axes._left_title, axes.title, axes.xaxis.label, axes.yaxis.label]
        texts += [tick.label1 for tick in axes.xaxis.get_major_ticks() if tick.label1.get_text()]
        found = [text for text in texts if text.get_text()] + ([legend] if legend else [])
        low, high = axes.get_xlim()
        boxes += [
            (str(artist), artist.get_window_extent())
            for artist in found
            if artist.get_visible()
            and not (artist in texts[4:] and not low <= artist.get_position()[0] <= high)
        ]
    boxes += [(str(legend), legend.get_window_extent()) for legend in figure.legends]
    width, height = figure.bbox.width + 1, figure.bbox.height + 1
    out = [
        name for name, box in boxes if min(box.x0, box.y0) < -1 or box.x1 > width or box.y1 > height
    ]
    return out + [
        f"{name} / {other}"
        for (name, a), (other, b) in itertools.combinations(boxes, 2)
        if max(a.x0, b.x0) + 1 < min(a.x1, b.x1) and max(a.y0, b.y0) + 1 < min(a.y1, b.y1)
    ]


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("study.sizes=[100000]", "study.epsilons=[1.0]"),
        ("study.sizes=[30000, 50000, 70000, 100000, 200000, 300000, 400000]",),
    ],
)
def test_nothing_lies_on_anything_else(overrides: tuple[str, ...]) -> None:
    report = build_report(made(*overrides))
    for piece in report.figures:
        assert not crowded(drawn(report, piece.name)), piece.name
        assert "What to see:" in piece.caption


def test_the_ticks_of_sizes_have_room(result: ReleaseComparisonResult) -> None:
    far = replace(result, useful=result.useful.assign(n_bound=1e3 * result.useful.n_bound))
    assert not crowded(drawn(build_report(far), "sizes-needed"))


def test_what_is_crowded_is_found() -> None:
    with report_style("crowded"):
        figure = Figure(figsize=(6, 3))
        for axes in figure.subplots(1, 2):
            axes.plot([0, 1], label="as long as half of the figure, and more than that")
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1)).set_in_layout(False)
        figure.draw_without_rendering()
        assert crowded(figure)


def test_long_names_are_broken() -> None:
    long = "a name of sixty characters, as long as a label may ever be."
    found = made(text=PROBLEM.replace('"test set"', f'"{long}"'))
    report = build_report(found)
    for name in ("accuracy-epsilon", "error-size", "sizes-needed"):
        assert not crowded(drawn(report, name))
    shown = " ".join(entries(drawn(report, "accuracy-epsilon"))).replace("\n", " ")
    assert long in shown


@pytest.mark.parametrize("long", ["WIDE LETTERS " * 4 + "MMMMMMMM", 60 * "M"])
def test_long_names_are_broken_above_the_updates(long: str) -> None:
    found = made(text=PROBLEM.replace('"_low threshold"', f'"{long}"'))
    updates = found.updates.assign(release=found.updates.release.replace({"_low threshold": long}))
    assert long in set(updates.release)
    figure = drawn(build_report(found), "updates")
    assert not crowded(figure)
    assert long.replace(" ", "") in "".join(
        axes.get_title(loc="left").split("\n8 allowed")[0] for axes in figure.axes
    ).replace("\n", "").replace(" ", "")


def test_every_panel_names_its_axes(result: ReleaseComparisonResult) -> None:
    report = build_report(result)
    for piece in report.figures:
        figure = drawn(report, piece.name)
        assert figure.axes[0].get_ylabel() or figure.axes[0].get_title(loc="left")
        assert any(axes.get_xlabel() for axes in figure.axes)


def test_a_kind_of_many_releases_has_several_panels() -> None:
    text = PROBLEM.replace("[run]", "".join(MORE.format(number=k) for k in range(7)) + "[run]")
    found = made(text=text)
    figure = drawn_accuracy(found)
    titles = [axes.get_legend().get_title().get_text() for axes in figure.axes]
    assert titles[:3] == ["Interactive", "Interactive (continued)", "Semi-interactive"]
    assert sum(len(axes.get_legend().get_texts()) for axes in figure.axes) == 15


MORE = """
[[releases]]
kind = "interactive"
label = "more {number}"
max_updates = 8
"""


def test_bounds_are_drawn_beside_what_they_bound(result: ReleaseComparisonResult) -> None:
    figure = drawn(build_report(result), "error-size")
    rows = result.points[(result.points.epsilon == 1.0)].set_index("release")
    lines = {axes.get_legend().get_title().get_text(): axes.lines for axes in figure.axes}
    for heading, release, measured in (
        ("Semi-interactive", "test set, paper", "error"),
        ("Non-interactive", "net", "worst"),
        ("Yardsticks", "process", "worst"),
    ):
        np.testing.assert_allclose(lines[heading][0].get_ydata(), rows.loc[release, measured])
        np.testing.assert_allclose(lines[heading][1].get_ydata(), rows.loc[release, "bound"])
    for several in lines.values():
        # the last is what is of use; the first panel also has the empty lines of the legend
        *curves, _ = (line for line in several if len(line.get_xdata()))
        assert {line.get_linestyle() for line in curves[::2]} == {"-"}
        assert {line.get_linestyle() for line in curves[1::2]} == {":"}
        assert len({line.get_marker() for line in curves[::2]}) == len(curves) / 2


def test_exponents_are_those_of_the_points(result: ReleaseComparisonResult) -> None:
    (table,) = (each.frame for each in build_report(result).tables if each.name == "exponents")
    np.testing.assert_allclose(table["bound"], -1.0)
    row = table[(table.release == "process") & (table.epsilon == 10.0)].iloc[0]
    assert row.measured == pytest.approx(-1.0)
    assert row.sizes == 3
    assert "linear <i>model</i>" not in set(table.release)


def test_updates_far_below_what_is_allowed_are_legible() -> None:
    far = made(text=PROBLEM.replace("max_updates = 8\nthreshold", "max_updates = 500\nthreshold"))
    tops = [axes.get_ylim()[1] for axes in drawn(build_report(far), "updates").axes]
    assert tops[2] == pytest.approx(1.3 * 8)
    near = [axes.get_ylim()[1] for axes in drawn(build_report(made()), "updates").axes]
    assert near[2] == pytest.approx(1.08 * 8)


def test_the_marks_are_the_sizes_needed(result: ReleaseComparisonResult) -> None:
    figure = drawn(build_report(result), "sizes-needed")
    for axes, epsilon in zip(figure.axes, (0.1, 1.0, 10.0), strict=True):
        rows = result.useful[result.useful.epsilon == epsilon]
        theory, measured = axes.lines
        np.testing.assert_array_equal(theory.get_xdata(), rows.n_bound)
        np.testing.assert_array_equal(measured.get_xdata(), rows.n_measured)


# --------------------------------------------------------------------------------------- terminal


def test_the_terminal_shows_a_row_for_each_release(result: ReleaseComparisonResult) -> None:
    found = refusing(result, lambda points: points.release == "net", "too [b]large[/b]")
    shown = summary(found)
    assert shown[1].title == "10,000 rows, epsilon = 1"
    assert shown[1].row_count == 8
    assert list(shown[1].columns[1].cells)[5] == "[red]refused[/red]"
    assert list(shown[1].columns[1].cells)[6] == "97.9%"
    assert shown[2].startswith("Accuracy without noise: 98.0%.")
    assert shown[3] == r"net: too \[b]large\[/b]"
