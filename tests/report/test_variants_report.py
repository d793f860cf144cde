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
from convexmarket.report import variants_figures as figures
from convexmarket.report.model import Report
from convexmarket.report.parts import METHOD_WORDS, select, short
from convexmarket.report.variants_figures import flat_pieces
from convexmarket.report.variants_words import at_equal

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
LIMITS = """
[[variants]]
name = "over cap"
sweep = { key = "constraints.cap", values = [1, 1.5, 2] }
[[variants]]
name = "over epsilon"
sweep = { key = "constraints.max_epsilon", values = [0.1, 0.2, 0.4, 0.8] }
"""
COSTS = """
[[variants]]
name = "linear"
[[variants]]
name = "square"
objective.payments.privacy_cost = { power = 2 }
"""
PRIORS = """
[[variants]]
name = "plain"
[[variants]]
name = "dearer"
prior = { family = "uniform", low = 1.5, high = 6.0 }
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
    assert len(results["points"]["data"]) == 4
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
    assert f"{100 * rise:.1f}% more in “capped”" in text
    assert "more in “p = inf”" not in text, "another objective cannot be compared"
    assert "The variants measure spread differently" in text
    assert "error" not in report.tables[0].frame
    assert {"n_effective", "noise"} <= set(report.tables[0].frame)


def test_what_has_no_answer_is_said_with_its_reason(result: VariantsResult, report: Report) -> None:
    text = words(report)
    assert "“impossible” is infeasible" in text
    assert result.points.message.iloc[-1] in text
    assert "status" in report.tables[0].frame
    (failures,) = (table for table in report.tables if table.name == "failures")
    assert list(failures.frame.variant) == ["impossible"]
    assert failures.frame.message.iloc[0]


def test_the_certificate_names_methods_and_solves(result: VariantsResult, report: Report) -> None:
    text = words(report)
    assert "in every market" in text
    assert "Branch and bound" in text
    assert "closed form" in text
    assert {METHOD_WORDS[name] in text for name in result.points.method.dropna()} == {True}
    conic = result.points[result.points.solver.notna()].solves.sum()
    assert f"and {conic:.0f} conic solves" in text
    table = next(table for table in report.tables if table.name == "certificates")
    assert "branch and bound" in set(table.frame.method)
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
    assert "Along “over gamma” (weight γ of payments from 0.002 to 0.1) expected" in text
    assert "the error of “over budget” is that of “over gamma”, within" in text
    assert "the error of “over cap” is" in text
    assert "the most at cap k = 1" in text
    verdicts = result.points.drop_duplicates("variant").incentives
    truthful = (verdicts == "by construction").sum()
    assert facts(report)["truthful prices by construction"] == f"{truthful} of 3"
    (equal,) = (table.frame for table in report.tables if table.name == "equal_payments")
    assert (equal.variant == "over budget").sum() == 3
    assert equal.change[equal.variant == "over budget"].abs().max() < 0.01
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
    groups = result.groups.set_index(["variant", "group"])
    assert groups.payment_mean.isna().any(), "so that expected payments are what is compared"
    paid = groups.expected_payment_mean["equal", "land"]
    assert "“land”, 40.0% of the sellers, has this share of the weight and expected payment" in text
    assert f"50.0% and {short(paid)} in “equal”" in text
    curves = result.virtual_costs
    ((low, high),) = flat_pieces(curves[~curves.regular])
    assert "The prior of “free” (land) is not regular." in text
    assert f"virtual cost flat from c = {short(low)} to {short(high)}, an interval of" in text
    pooled = select(result.sellers, variant="free", group="land")
    pooled = pooled[pooled.sensitivity.between(low, high)]
    assert pooled.epsilon.nunique() == 1
    assert f"the {len(pooled)} sellers in it sell ε = {short(pooled.epsilon.iloc[0])} each" in text


def test_reasons_of_verdicts_are_given() -> None:
    result = run(CURVES)
    text = words(build_report(result))
    for reason in set(result.points.reason):
        assert reason in text


def test_two_limits_are_compared_at_equal_largest_guarantees(tmp_path: Path) -> None:
    result = run(LIMITS)
    folder = write_report(result, tmp_path / "report").parent
    assert (folder / "figures" / "limits.svg").exists()
    report = build_report(result)
    assert "At equal largest guarantees the objective of “over cap” is" in words(report)
    assert METHOD_WORDS["projections"] in words(report)
    rows = at_equal(
        select(result.points, variant="over epsilon"),
        select(result.points, variant="over cap"),
        "epsilon_max",
        "objective",
    )
    assert (rows.change.dropna() > -1e-3).all(), "the limit is the cheapest way to its guarantee"


def test_a_curve_is_met_at_its_own_points_and_missing_beyond_them() -> None:
    known = pd.DataFrame({"variant": "a", "value": 1.0, "x": [1.0, 2.0, 4.0], "y": [8.0, 4.0, 2.0]})
    new = pd.DataFrame({"variant": "b", "value": 1.0, "x": [0.5, 1.0, 2.0], "y": [9.0, 8.0, 5.0]})
    found = at_equal(known, new, "x", "y")
    np.testing.assert_allclose(found.change, [np.nan, 0.0, 0.25], atol=1e-12)
    assert at_equal(known[:1], new, "x", "y").change.isna().all()


def test_different_privacy_costs_are_drawn(tmp_path: Path) -> None:
    folder = write_report(run(COSTS), tmp_path / "report").parent
    assert (folder / "figures" / "privacy_costs.svg").exists()


def test_another_prior_is_compared_by_the_objective() -> None:
    result = run(PRIORS)
    rows = result.points.set_index("variant").objective
    rise = rows["dearer"] / rows["plain"] - 1
    assert f"{100 * rise:.1f}% more in “dearer”" in words(build_report(result))


@pytest.mark.parametrize(("low", "high"), [(0.0002, 0.2), (4, 200), (0.9, 1.1), (1, 4.1)])
@pytest.mark.parametrize("most", [3, 5, 9])
def test_ticks_of_a_logarithmic_axis_are_few_and_inside(low: float, high: float, most: int) -> None:
    ticks = figures._log_ticks(low, high, most)
    assert len(ticks) <= max(most, np.log10(high / low) + 1)
    assert all(0.98 * low <= tick <= 1.02 * high for tick in ticks)


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
