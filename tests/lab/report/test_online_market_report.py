"""The report of an online market: what is guaranteed, what is not, and what came otherwise."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from convexmarket.lab import build_report, write_report
from convexmarket.lab.kinds.online_market.figures import offer_curves, running_totals, shown_plans
from convexmarket.lab.kinds.online_market.market import OnlineMarketResult
from convexmarket.lab.kinds.online_market.run import run_online_market
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report import render
from tests.lab.report.builders import (
    facts,
    headings,
    problem_text,
    save_a_frame,
    stored,
    table,
    words,
)

REPLANNED = ["plan={replan=true, first=4, growth=3.0}", "simulation.arrivals=50"]


def run(*overrides: str) -> OnlineMarketResult:
    return run_online_market(parse_problem(problem_text("online-market"), overrides))


@pytest.fixture(scope="module")
def result() -> OnlineMarketResult:
    return stored("online-market")


@pytest.fixture(scope="module")
def replanned() -> OnlineMarketResult:
    return run(*REPLANNED)


def test_the_released_model_stands_beside_its_report(result, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(render, "save_figure", save_a_frame)
    page = write_report(result, tmp_path / "report")
    assert (page.parent / "model.json").read_text(encoding="utf-8") == result.release
    assert 'href="model.json"' in page.read_text(encoding="utf-8")
    write_report(result, tmp_path / "report")  # a report with a model can be replaced


def test_the_theorem_on_fewer_sellers_is_cited_where_it_applies():
    changes = ["prior.low=0.0", "buyer={expected_sellers=40, mu=1.0, sigma=20.0, gamma=0.02}"]
    text = words(build_report(run(*changes)))
    assert "with the exponent multiplied by ξ" in text


def test_what_is_and_is_not_guaranteed_is_said(result):
    text = words(build_report(result))
    for phrase in (
        "it does not apply here: it is for markets without a cap",
        "at most what was sold to it",
        "do not publish them with the model",
        "carry no privacy guarantee",
        "seed is that of the problem file",
    ):
        assert phrase in text, phrase


def test_what_was_planned_stands_beside_what_came(result):
    row = table(build_report(result), "comparison").set_index("quantity").loc["total privacy η"]
    assert row.planned == result.summary["planned"]["eta"]
    assert row.realised == result.summary["realised"]["eta"]


def test_a_full_market_and_its_plans(replanned):
    text = words(build_report(replanned))
    assert "All 40 sellers that were expected came and were quoted" in text
    assert "10 more sellers came after the expected number" in text
    assert "All sellers that the plan counted on came" in text
    stages = [after for after in replanned.plans.after if after]
    assert f"New plans were made after {stages[0]}, {stages[1]}" in text
    (plans,) = (piece for piece in build_report(replanned).tables if piece.name == "plans")
    assert "leaves out what was paid before" in plans.caption


def test_a_real_market_is_not_to_be_reproduced(result):
    real = replace(result, simulated=False)
    assert headings(build_report(real))[-1] == "Where this comes from"
    assert "fresh seed that nobody kept" in words(build_report(real))
    assert "seed is that of the problem file" not in words(build_report(real))
    assert headings(build_report(result))[-1] == "How to reproduce this"


def test_without_public_rows_no_error_is_given(result):
    report = build_report(replace(result, model=result.model | {"test": None}))
    assert "No error is given" in words(report)
    assert not any("error" in label for label in facts(report))


def test_where_everybody_is_bought_from_it_is_said(result):
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
