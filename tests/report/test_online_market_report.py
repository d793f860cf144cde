"""The report of an online market says what the result says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from convexmarket.experiments import OnlineMarketResult, run_online_market
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, write_report
from convexmarket.report.model import Report
from convexmarket.report.online_market_figures import offer_curves, running_totals, shown_plans
from convexmarket.report.terminal import summary

PROBLEM = """
kind = "online-market"
title = "Few <b>sellers</b>"
description = "Some & others."
notes = ["A note."]
[prior]
family = "uniform"
low = 0.02
high = 0.10
[buyer]
expected_sellers = 40
mu = 1.0
sigma = 20.0
gamma = 0.02
cap = 3.0
[data]
source = "synthetic"
n_sellers = 60
n_features = 3
n_validation = 10
n_test = 50
[learner]
regularization = 0.5
[simulation]
arrivals = 30
acceptance = 0.7
"""
REPLANNED = ["plan={replan=true, first=4, growth=1.5}", "simulation.arrivals=50"]


@pytest.fixture(scope="module")
def result() -> OnlineMarketResult:
    return run_online_market(parse_problem(PROBLEM))


@pytest.fixture(scope="module")
def replanned() -> OnlineMarketResult:
    return run_online_market(parse_problem(PROBLEM, REPLANNED))


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
        parts += [figure.caption for figure in section.figures]
        parts += [table.caption for table in section.tables]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def test_it_is_written_with_its_model(result, tmp_path: Path):
    page = write_report(result, tmp_path / "report")
    folder = page.parent
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {
        "offer_curves",
        "running_totals",
    }
    assert (folder / "model.json").read_text(encoding="utf-8") == result.release
    assert len(pd.read_csv(folder / "tables" / "offers.csv")) == 30
    html = page.read_text(encoding="utf-8")
    assert "<b>sellers" not in html
    assert 'href="model.json"' in html
    assert "[model.json](model.json)" in (folder / "report.md").read_text(encoding="utf-8")
    assert json.loads((folder / "results.json").read_text())["fraction"] == 0.75
    write_report(result, tmp_path / "report")  # a report with a model can be replaced


def test_the_finding_comes_first(result):
    counts = result.summary["counts"]
    first = build_report(result).summary[0].replace("\N{NO-BREAK SPACE}", " ")
    assert first.startswith("Of 40 sellers expected, 30 came and were quoted: ")
    assert f"{counts['accepted']} sellers accepted" in first
    assert f"{counts['declined']} declined or did not answer" in first


def test_the_theorem_on_fewer_sellers_is_cited_where_it_applies():
    changes = ["prior.low=0.0", "buyer={expected_sellers=40, mu=1.0, sigma=20.0, gamma=0.02}"]
    text = words(build_report(run_online_market(parse_problem(PROBLEM, changes))))
    assert "with the exponent multiplied by ξ" in text


def test_it_says_what_fewer_sellers_mean_and_what_the_weights_became(result):
    text = words(build_report(result))
    for phrase in (
        "fraction ξ = 0.75 of the 40 sellers",
        "it does not apply here: it is for markets without a cap",
        "what was sold to it, and never more",
        "The cap binds the plan, 0.075 for each seller",
        "do not publish them with the model",
        "seed is that of the problem file",
        "finds nothing to gain from lying",
    ):
        assert phrase in text, phrase
    table = next(t for t in build_report(result).tables if t.name == "comparison").frame
    row = table.set_index("quantity").loc["total privacy η"]
    assert row.planned == result.summary["planned"]["eta"]
    assert row.realised == result.summary["realised"]["eta"]


def test_a_full_market_and_its_plans(replanned):
    text = words(build_report(replanned))
    assert "All 40 sellers that were expected came and were quoted" in text
    assert "10 more sellers came after the expected number" in text
    assert "All sellers that the plan counted on came" in text
    stages = [after for after in replanned.plans.after if after]
    assert f"New plans were made after {stages[0]}, {stages[1]}" in text
    assert "leaves out what was paid before" in text


def test_a_real_market_is_not_to_be_reproduced(result):
    real = replace(result, simulated=False)
    headings = [section.heading for section in build_report(real).sections]
    assert headings[-1] == "Where this comes from"
    assert "fresh seed that nobody kept" in words(build_report(real))
    assert "seed is that of the problem file" not in words(build_report(real))
    assert build_report(result).sections[-1].heading == "How to reproduce this"


def test_without_public_rows_no_error_is_given(result):
    report = build_report(replace(result, model=result.model | {"test": None}))
    assert "No error is given" in words(report)
    assert not any("error" in fact.label for fact in report.facts)
    assert "No error is measured" in str(
        summary(replace(result, model=result.model | {"test": None}))
    )


def test_it_says_from_whom_is_bought(result):
    highest = result.plans.highest_sensitivity[0]
    assert f"nothing is bought above a sensitivity of {highest:.3g}" in words(build_report(result))
    all_buy = replace(result, plans=result.plans.assign(highest_sensitivity=0.10))
    assert "something is bought at every sensitivity" in words(build_report(all_buy))


def test_what_the_learner_adds_is_said(result):
    added = replace(result, model=result.model | {"largest_excess_over_sold": 0.25})
    assert "up to 0.25 above what was sold" in words(build_report(added))


def test_a_failed_audit_is_said_plainly(result):
    audits = result.audits.assign(
        incentive_compatible=False, max_gain=1.5, individually_rational=False, min_surplus=-2.0
    )
    text = words(build_report(replace(result, audits=audits)))
    assert "finds that lying pays: the largest gain is 1.5" in text
    assert "accepting can cost a seller: the smallest surplus is -2" in text


def test_figures_show_every_seller_and_every_new_plan(result, replanned):
    after = dict(zip(replanned.plans.plan, replanned.plans.after, strict=True))
    curves = offer_curves(replanned.curves, replanned.offers, after)
    left = curves.axes[0]
    assert len(left.get_lines()) == len(shown_plans(sorted(after)))
    rug = left.collections[0].get_segments()
    seen = replanned.offers.sensitivity <= replanned.curves.sensitivity.max()
    assert len(rug) == int(seen.sum())
    totals = running_totals(replanned.offers, replanned.summary["planned"], after)
    lines = totals.axes[0].get_lines()
    assert len(lines) == 2 + len(after) - 1
    assert lines[1].get_ydata()[-1] == pytest.approx(replanned.summary["realised"]["eta"])
    paid = totals.axes[1].get_lines()[1].get_ydata()
    assert paid[-1] == pytest.approx(replanned.summary["realised"]["payments"])


def test_shown_plans_are_the_first_the_last_and_some_between():
    assert shown_plans([1, 2, 3]) == [1, 2, 3]
    assert shown_plans(list(range(1, 14))) == [1, 5, 9, 13]


def test_the_terminal_shows_both_sides(result):
    title, table, said = summary(result)
    assert "Few" in title
    assert table.row_count == 7
    assert said.startswith("Error on 50 public rows")
