"""The report of the study of online policies says what the result says."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments import OnlineStudyResult, run_online_study
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, write_report
from convexmarket.report.model import Report
from convexmarket.report.terminal import summary
from convexmarket.report.words import format_number

BASE = """
kind = "online-study"
title = "Sellers <b>one by one</b>"
description = "Some & others."
notes = ["A note."]
[prior]
family = "uniform"
low = 1.0
high = 5.0
[guess]
family = "uniform"
low = 1.0
high = 9.0
[buyer]
mu = 1.0
sigma = 1.0
gamma = 1.0
[study]
sizes = [100, 1000, 10000]
policies = ["expectation", "replanned", "learnt", "guess"]
draws = 3
[run]
jobs = 1
[[claims]]
source = "nobody"
says = "The loss falls"
measure = "loss"
shape = "falls"
remark = "As it should."
"""
ONE = 'study.policies=["expectation"]'
FRACTIONS = [ONE, "study.fractions=[0.2, 0.5, 1.0]", "prior.low=0.0", "guess.low=0.0"]
EMPTY = [ONE, "study.sizes=[5, 40]", "study.draws=6", "prior.low=0.0", "guess.low=0.0"]


def run(*overrides: str) -> OnlineStudyResult:
    return run_online_study(parse_problem(BASE, overrides))


@pytest.fixture(scope="module")
def result() -> OnlineStudyResult:
    return run()


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def facts(report: Report) -> dict[str, str]:
    return {fact.label: fact.value for fact in report.facts}


def percent(value: float) -> str:
    return f"{format_number(100 * value)}%"


def test_it_is_written(result: OnlineStudyResult, tmp_path: Path) -> None:
    folder = write_report(result, tmp_path / "report").parent
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn == {"loss", "ratio", "regret"}
    table = pd.read_csv(folder / "tables" / "ratios.csv")
    np.testing.assert_allclose(table.ratio, result.points.ratio)
    np.testing.assert_allclose(table.regret_high, result.points.regret_high)
    losses = pd.read_csv(folder / "tables" / "losses.csv")
    np.testing.assert_allclose(losses.loss_low, result.points.loss_low)
    assert len(pd.read_csv(folder / "tables" / "draws.csv")) == 36
    assert len(pd.read_csv(folder / "tables" / "exponents.csv")) == len(result.fits)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(results["points"]["data"]) == 12
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<b>one" not in page
    assert "A note." in page


def test_the_finding_comes_in_the_run_s_numbers(result: OnlineStudyResult) -> None:
    report = build_report(result)
    text = words(report)
    points = result.points.set_index(["policy", "size"])
    first, last = points.loc["expectation"].ratio.iloc[[0, -1]] - 1
    assert (
        f"the loss of “general rule” is larger by {percent(first)} with m = 100 and "
        f"{percent(last)} with m = 10,000" in text
    )
    regret = points.loc["learnt"].regret
    assert (
        f"“prior learnt” has a regret of {percent(regret.iloc[0])} with m = 100 and "
        f"{percent(regret.iloc[-1])} with m = 10,000" in text
    )
    assert report.summary[0].startswith("“prior learnt”")
    assert facts(report)["sellers expected"] == "100 to 10,000"
    assert facts(report)["runs without a purchase"] == "0"
    assert facts(report)["claims reproduced"] == "1 of 1"
    assert "The loss falls: As it should." in text


def test_the_floor_is_told(result: OnlineStudyResult) -> None:
    text = words(build_report(result))
    assert "No loss can be below 2, 2·sqrt(σ·γ·ψ)" in text
    loss = result.points.loss[2]
    assert f"It is {format_number(loss, 4)} with m = 10,000" in text
    assert "No loss can be below" not in words(build_report(run(*FRACTIONS)))


def test_fractions_have_a_figure_and_words(tmp_path: Path) -> None:
    found = run(*FRACTIONS)
    report = build_report(found)
    assert {figure.name for figure in report.figures} == {"loss", "ratio", "fractions"}
    last = found.points[found.points["size"] == 10_000].ratio
    text = words(report)
    assert f"{format_number(last.iloc[0])} at ξ = 0.2" in text
    assert f"{format_number(last.iloc[1])} at ξ = 0.5" in text
    assert "For many sellers, and a prior with density at zero" not in text
    closed = build_report(run(*FRACTIONS, 'study.policies=["algorithm-3"]'))
    assert "For many sellers, and a prior with density at zero" in words(closed)
    write_report(found, tmp_path / "report")


def test_draws_without_a_purchase_are_said_in_words(tmp_path: Path) -> None:
    found = run(*EMPTY)
    nothing = int(np.isinf(found.draws.loss).sum())
    assert 0 < nothing < len(found.draws)
    report = build_report(found)
    text = words(report)
    assert f"Nothing at all was bought by “general rule” in {nothing} of 12" in text
    assert facts(report)["runs without a purchase"] == str(nothing)
    (table,) = (table.frame for table in report.tables if table.name == "ratios")
    assert table["empty"].sum() == nothing
    bought = found.points[(found.points["empty"] > 0) & found.points.ratio.notna()]
    for row in bought.itertuples():
        assert f"(over the {row.draws - row.empty} draws that bought something)" in text
    assert len(bought)
    write_report(found, tmp_path / "report")


def test_a_policy_that_never_buys_is_told_and_not_drawn(tmp_path: Path) -> None:
    found = run('study.policies=["expectation", "guess"]', "guess.low=0.0")
    report = build_report(found)
    text = words(report)
    assert "“guess kept” bought nothing in any draw" in text
    assert "There is no regret to draw of guess kept: nothing was bought." in text
    assert {figure.name for figure in report.figures} == {"loss", "ratio"}
    folder = write_report(found, tmp_path / "report").parent
    draws = json.loads((folder / "results.json").read_text(encoding="utf-8"))["draws"]
    rows = [dict(zip(draws["columns"], row, strict=True)) for row in draws["data"]]
    assert [row["loss"] for row in rows if row["policy"] == "guess"] == ["Infinity"] * 9


def test_nothing_was_bought_at_all(tmp_path: Path) -> None:
    nothing = run(ONE, "study.sizes=[2, 3]", "study.draws=2", "study.fractions=[0.1]")
    if np.isfinite(nothing.draws.loss).any():
        pytest.fail("the example bought something; choose another")
    report = build_report(nothing)
    assert "bought nothing in any draw" in words(report)
    assert not report.figures
    write_report(nothing, tmp_path / "report")


def test_one_size_is_enough_for_a_report(tmp_path: Path) -> None:
    found = run(ONE, "study.sizes=[1000]", "claims=[]")
    page = write_report(found, tmp_path / "report")
    assert "claims" not in facts(build_report(found))
    assert page.exists()


def test_every_figure_has_labelled_axes(result: OnlineStudyResult) -> None:
    for found in (result, run(*FRACTIONS)):
        for piece in build_report(found).figures:
            for axes in piece.draw().axes:
                assert axes.get_xlabel()
                assert axes.get_title() or axes.get_ylabel()
            assert "What to see:" in piece.caption


def test_the_terminal_shows_a_table_for_each_policy(result: OnlineStudyResult) -> None:
    shown = summary(result)
    assert [getattr(part, "title", None) for part in shown[1:5]] == [
        "general rule",
        "rest planned anew",
        "prior learnt",
        "guess kept",
    ]
    assert "The loss falls: reproduced." in shown
    fractions = summary(run(*FRACTIONS))
    assert fractions[1].title == "general rule, m = 10,000"
    assert fractions[1].row_count == 3
