"""The report of an online market: what is guaranteed, what is not, and what came otherwise."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab import build_report, write_report
from convexmarket.lab.kinds.online_market.run import run_online_market
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report import render
from convexmarket.lab.report.words import format_percent
from convexmarket.lab.result import Result
from tests.lab.report.builders import (
    altered,
    drawn,
    facts,
    headings,
    plain,
    problem_text,
    save_a_frame,
    stored,
    table,
    words,
)

REPLANNED = ["plan={replan=true, first=4, growth=3.0}", "simulation.arrivals=50"]


def run(*overrides: str) -> Result:
    return run_online_market(parse_problem(problem_text("online-market"), overrides))


@pytest.fixture(scope="module")
def result() -> Result:
    return stored("online-market")


@pytest.fixture(scope="module")
def replanned() -> Result:
    return run(*REPLANNED)


def test_the_released_model_stands_beside_its_report(result, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(render, "save_figure", save_a_frame)
    page = write_report(result, tmp_path / "report")
    released = json.loads((page.parent / "model.json").read_text(encoding="utf-8"))
    assert released == result.numbers["model"]
    results = (page.parent / "results.json").read_text(encoding="utf-8")
    assert results.count(str(released["coef"][0])) == 1, "results hold the model once"
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
    assert row.planned == result.numbers["summary"]["planned"]["eta"]
    assert row.realised == result.numbers["summary"]["realised"]["eta"]


def test_a_full_market_and_its_plans(replanned):
    text = words(build_report(replanned))
    assert "All 40 sellers that were expected came and were quoted" in text
    assert "10 more sellers came after the expected number" in text
    assert "All sellers that the plan counted on came" in text
    stages = [after for after in replanned.tables["plans"].after if after]
    assert f"New plans were made after {stages[0]}, {stages[1]}" in text
    (plans,) = (piece for piece in build_report(replanned).tables if piece.name == "plans")
    assert "leaves out what was paid before" in plans.caption


def test_a_real_market_is_not_to_be_reproduced(result):
    real = altered(result, simulated=False)
    assert "Where this comes from" in headings(build_report(real))
    assert "fresh seed that nobody kept" in words(build_report(real))
    assert "seed is that of the problem file" not in words(build_report(real))
    assert "How to reproduce this" in headings(build_report(result))


def test_without_public_rows_no_error_is_given(result):
    report = build_report(altered(result, model=result.numbers["model"] | {"test": None}))
    assert "No error is given" in words(report)
    assert not any("error" in label for label in facts(report))


def test_where_everybody_is_bought_from_it_is_said(result):
    all_buy = altered(result, plans=result.tables["plans"].assign(highest_sensitivity=0.10))
    assert "something is bought at every sensitivity" in words(build_report(all_buy))


def test_what_the_learner_adds_is_said(result):
    added = altered(result, model=result.numbers["model"] | {"largest_excess_over_sold": 0.25})
    assert "up to 0.25 above what was sold" in words(build_report(added))


def test_a_failed_audit_is_said_plainly(result):
    audits = result.tables["audits"].assign(
        incentive_compatible=False, max_gain=1.5, individually_rational=False, min_surplus=-2.0
    )
    text = words(build_report(altered(result, audits=audits)))
    assert "finds that lying pays: the largest gain is 1.5" in text
    assert "accepting can cost a seller: the smallest surplus is -2" in text


def test_figures_show_every_seller_and_every_new_plan(replanned):
    report = build_report(replanned)
    shown = drawn(report, "offer_curves").axes[0]
    assert len(shown.containers) == 4 < len(replanned.tables["plans"])
    (rug,) = (lines for lines in shown.collections if lines.get_label() == "reports of sellers")
    seen = replanned.tables["offers"].sensitivity <= replanned.tables["curves"].sensitivity.max()
    assert len(rug.get_segments()) == int(seen.sum())
    for axes, key in zip(drawn(report, "running_totals").axes, ("eta", "payments"), strict=True):
        sold, planned = (container.lines[0] for container in axes.containers)
        assert sold.get_ydata()[-1] == pytest.approx(replanned.numbers["summary"]["realised"][key])
        assert planned.get_ydata()[-1] == pytest.approx(
            replanned.numbers["summary"]["planned"][key]
        )
        (stages,) = (lines for lines in axes.collections if lines.get_label() == "a new plan")
        assert len(stages.get_segments()) == len(replanned.tables["plans"]) - 1


def test_what_was_sold_rises_by_stairs(result):
    axes = drawn(build_report(result), "running_totals").axes[0]
    sold = axes.containers[0].lines[0]
    x, y = (np.asarray(values, dtype=float) for values in (sold.get_xdata(), sold.get_ydata()))
    assert not np.any((np.diff(x) > 0) & (np.diff(y) > 0))
    accepted = result.tables["offers"].epsilon.where(
        result.tables["offers"].status == "accepted", 0.0
    )
    np.testing.assert_allclose(y[::2], [0, *accepted.cumsum()])


def test_a_simulation_is_called_one_first(result):
    assert plain(build_report(result).lead[0]).startswith("In this simulated market, 11 of 40")
    real = plain(build_report(altered(result, simulated=False)).lead[0])
    assert real.startswith("In this market, 11 of 40")


@st.composite
def measured(draw):
    """Return what may be measured on public rows, in old results and in new ones."""
    rows = draw(st.integers(min_value=4, max_value=500))
    rare = draw(st.integers(min_value=1, max_value=rows // 2))
    shares = st.integers(min_value=0, max_value=rows).map(lambda wrong: wrong / rows)
    aucs = st.floats(min_value=0.0, max_value=1.0)
    test = {"rows": rows, "error": draw(shares), "error_of_one_class": rare / rows}
    if draw(st.booleans()):
        test["auc"] = draw(aucs)
        if draw(st.booleans()):
            test["without_noise"] = {"error": draw(shares), "auc": draw(aucs)}
    return test


@given(measured())
def test_what_is_said_of_errors_follows_from_the_table(test):
    result = stored("online-market")
    report = build_report(altered(result, model=result.numbers["model"] | {"test": test}))
    text, shown = words(report), table(report, "errors").set_index("answers")
    assert shown.error["the released model"] == test["error"]
    assert shown.error["always the more common class"] == test["error_of_one_class"]
    assert ("auc" in shown) == ("auc" in test)
    assert ("the same without noise" in shown.index) == ("without_noise" in test)
    first = plain(report.lead[0])
    assert f"is wrong on {format_percent(test['error'])} of {test['rows']} public rows" in first
    useless = test["error"] >= test["error_of_one_class"]
    assert ("no better than that one class" in text) == useless
    positive = round(test["error_of_one_class"] * test["rows"])
    pairs = positive * (test["rows"] - positive)
    spread = np.sqrt(pairs * (test["rows"] + 1) / 12) / pairs
    z = (test.get("auc", np.nan) - 0.5) / spread
    assert ("rank the rows measurably better" in text) == (useless and (z > 1.96 or abs(z) <= 1.96))
    assert ("do not rank the rows" in text) == (useless and abs(z) <= 1.96)
    assert ("measurably worse than chance" in text) == (useless and z < -1.96)
    assert ("was not measured" in text) == (useless and "auc" not in test)


def test_a_model_that_ranks_well_is_not_said_to_tell_nothing(result):
    test = {"rows": 300, "error": 0.31, "auc": 0.71, "error_of_one_class": 0.3}
    test["without_noise"] = {"error": 0.3, "auc": 0.711}
    text = words(build_report(altered(result, model=result.numbers["model"] | {"test": test})))
    assert "AUC on the public rows is 0.71; 0.5 is guessing." in text
    assert "Without the noise the same model would be wrong on 30.0%, with an AUC of 0.711" in text
    assert "no better than that one class, but its scores rank the rows measurably better" in text


def test_public_rows_of_one_class_have_no_auc(result):
    test = {"rows": 3, "error": 1 / 3, "auc": None, "error_of_one_class": 0.0}
    test["without_noise"] = {"error": 0.0, "auc": None}
    text = words(build_report(altered(result, model=result.numbers["model"] | {"test": test})))
    assert "AUC on" not in text
    assert "how its scores rank the rows was not measured" in text
