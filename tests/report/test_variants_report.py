"""The report of a market and its variants says what the result says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments.variants import VariantsResult, run_variants
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, write_report
from convexmarket.report.model import Report

BASE = """
kind = "variants"
title = "Small <b>variants</b>"
description = "Some & others."
notes = ["A note."]
[sellers]
count = 20
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = { weight = 1.0 }
noise = { weight = 1.0 }
payments = { weight = 0.02 }
[run]
jobs = 1
"""
POINTS = """
[[variants]]
name = "plain"
[[variants]]
name = "capped"
constraints.cap = 1.5
[[variants]]
name = "p = inf"
objective.spread.p = inf
[[variants]]
name = "impossible"
constraints = { max_epsilon = 0.01, eta_range = [1.0, 2.0] }
"""
CURVES = """
[[variants]]
name = "over gamma"
sweep = { key = "objective.payments.weight", values = [0.002, 0.005, 0.01, 0.02, 0.05, 0.1] }
[[variants]]
name = "over budget"
objective.payments = false
sweep = { key = "constraints.budget", values = [5, 10, 20] }
[[variants]]
name = "over cap"
sweep = { key = "constraints.cap", values = [1, 2] }
"""
GROUPS = """
[[variants]]
name = "free"
[[variants]]
name = "equal"
constraints.group_share.equal = true
"""
TWO_GROUPS = (
    '{groups = [{name = "town", count = 12}, {name = "land", count = 8, '
    'prior = {family = "mixture", weights = [0.5, 0.5], components = ['
    '{family = "beta", a = 2, b = 8, low = 1, high = 6}, '
    '{family = "beta", a = 10, b = 5, low = 1, high = 6}]}}]}'
)


def run(variants: str, *settings: str) -> VariantsResult:
    return run_variants(parse_problem(BASE + variants, settings))


@pytest.fixture(scope="module")
def result() -> VariantsResult:
    return run(POINTS)


@pytest.fixture(scope="module")
def report(result: VariantsResult) -> Report:
    return build_report(result)


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def facts(report: Report) -> dict[str, str]:
    return {fact.label: fact.value for fact in report.facts}


def test_it_is_written(result: VariantsResult, tmp_path: Path) -> None:
    folder = write_report(result, tmp_path / "report").parent
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {"allocations"}
    table = pd.read_csv(folder / "tables" / "certificates.csv")
    np.testing.assert_allclose(table.objective, result.points.objective)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(results["points"]) == 4
    page = (folder / "index.html").read_text(encoding="utf-8")
    assert "<b>variants" not in page
    assert "A note." in page


def test_facts_and_first_lines_are_the_numbers(result: VariantsResult, report: Report) -> None:
    found = facts(report)
    assert found["variants"] == "4"
    assert found["markets solved"] == "3 of 4"
    assert found["sellers"] == "20"
    assert found["truthful prices by construction"] == "4 of 4"
    rows = result.points.set_index("variant")
    text = words(report)
    even = rows.n_effective.idxmax()
    assert f"It is most even in “{even}”" in text
    rise = rows.objective["capped"] / rows.objective["plain"] - 1
    assert f"{100 * rise:.1f}% above in “capped”" in text
    assert "above in “p = inf”" not in text, "another objective cannot be compared"


def test_what_has_no_answer_is_said_with_its_reason(result: VariantsResult, report: Report) -> None:
    text = words(report)
    assert "“impossible” is infeasible" in text
    assert result.points.message.iloc[-1] in text
    assert "status" in report.tables[0].frame


def test_the_certificate_names_methods_and_solves(result: VariantsResult, report: Report) -> None:
    text = words(report)
    assert "in every market" in text
    assert "Branch and bound" in text
    assert "closed form" in text
    table = next(table for table in report.tables if table.name == "certificates")
    assert {"gap", "lower_bound", "solves", "solve_statuses", "solver"} <= set(table.frame)


def test_limits_are_said(report: Report) -> None:
    text = words(report)
    for phrase in ("one draw from the prior", "cannot be compared", "There is no learner here"):
        assert phrase in text, phrase


def test_curves_are_drawn_and_compared_at_equal_payments(tmp_path: Path) -> None:
    result = run(CURVES)
    folder = write_report(result, tmp_path / "report").parent
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn == {"frontier", "sweep_1", "sweep_2", "sweep_3"}
    report = build_report(result)
    text = words(report)
    assert "Along “over gamma” (weight of payments from 0.002 to 0.1) expected" in text
    assert "the error of “over budget” is the same, within" in text
    assert "the error of “over cap” is" in text
    assert "the most at cap k = 1" in text
    assert "Truthful prices are not guaranteed in “over budget”: the budget puts" in text
    assert facts(report)["truthful prices by construction"] == "2 of 3"
    assert list(report.tables[0].frame.value) == list(result.points.value)


def test_curves_with_points_beside_them(tmp_path: Path) -> None:
    result = run(CURVES + POINTS)
    folder = write_report(result, tmp_path / "report").parent
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert {"frontier", "allocations"} <= drawn


def test_groups_and_ironing(tmp_path: Path) -> None:
    result = run(GROUPS, f"sellers={TWO_GROUPS}")
    folder = write_report(result, tmp_path / "report").parent
    drawn = {path.stem for path in (folder / "figures").glob("*.svg")}
    assert drawn == {"allocations", "groups", "virtual_costs"}
    text = words(build_report(result))
    assert "The group “land”, 40.0% of the sellers, carries this share of the weight" in text
    assert "50.0% in “equal”" in text
    assert "treated alike" in text


def test_an_audit_is_reported() -> None:
    result = run('[[variants]]\nname = "plain"\n', "audit.sellers=3")
    report = build_report(result)
    assert facts(report)["no misreport pays and nobody loses, in the audits"] == "yes"
    assert "finds nothing to gain from lying" in words(report)
    failed = replace(result, audits=pd.DataFrame([{"variant": "plain", "message": "too hard"}]))
    assert "plain: too hard" in words(build_report(failed))
    partly = replace(
        result,
        audits=pd.concat(
            [result.audits, pd.DataFrame([{"variant": "other", "message": "too hard"}])]
        ),
    )
    assert "Not audited: other. too hard" in words(build_report(partly))


def test_nothing_was_solved() -> None:
    report = build_report(run(POINTS[POINTS.rindex("[[variants]]") :]))
    assert facts(report)["markets solved"] == "0 of 1"
    assert "infeasible" in words(report)
