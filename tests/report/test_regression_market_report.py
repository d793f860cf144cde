"""The report of the market for ridge regression says what the result says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments.regression_market import (
    RegressionMarketResult,
    run_regression_market,
)
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, write_report
from convexmarket.report.model import Report

PROBLEM = """
kind = "regression-market"
title = "A small <b>regression</b>"
description = "Rows in a cube & a linear label."

[data]
source = "synthetic-regression"
n_rows = 75
n_features = 2
label_noise = 0.1

[prior]
family = "uniform"
low = 1.0
high = 5.0

[sellers]
scenarios = ["independent", "correlated"]

[objective]
gamma = [0.0003, 0.001, 0.01]

[learner]
regularization = [0.3, 1.0]
label_noise = 0.1
coef_norm = 1.0
draws = 5

[units]
label = "crowns"
per_label = 100.0
money = "ducats"

[run]
jobs = 1
"""


@pytest.fixture(scope="module")
def result() -> RegressionMarketResult:
    return run_regression_market(parse_problem(PROBLEM))


@pytest.fixture(scope="module")
def report(result: RegressionMarketResult) -> Report:
    return build_report(result)


def words(report: Report) -> str:
    parts = [*report.summary]
    for section in report.sections:
        parts += [*section.prose, *section.points]
    return " ".join(parts).replace("\N{NO-BREAK SPACE}", " ")


def test_it_is_written(result: RegressionMarketResult, tmp_path: Path) -> None:
    folder = write_report(result, tmp_path / "report").parent
    figures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert figures == {
        "tradeoff",
        "frontier_independent",
        "frontier_correlated",
        "one_price",
        "who_is_bought_from",
        "distributions",
        "bound",
    }
    table = pd.read_csv(folder / "tables" / "tradeoff.csv")
    np.testing.assert_allclose(table.rmse, 100.0 * result.curve.rmse)
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert len(results["curve"]["data"]) == len(result.curve)
    assert "<b>regression" not in (folder / "index.html").read_text(encoding="utf-8")


def test_facts_are_those_of_the_middle_gamma_and_the_marked_lambda(
    result: RegressionMarketResult, report: Report
) -> None:
    facts = {fact.label.replace("\N{NO-BREAK SPACE}", " "): fact.value for fact in report.facts}
    row = result.curve[(result.curve.gamma == 0.001) & result.curve.marked].iloc[0]
    assert row.regularization == 1.0
    bought = facts["sellers bought from, at γ = 0.001 and λ = 1"]
    assert bought == f"{row.n_bought} of 60"
    assert facts["test RMSE there"].endswith("crowns")
    assert facts["total payments there"].endswith("ducats")
    assert facts["no misreport pays and nobody loses, in the audit"] == "yes"


def test_it_says_what_the_objective_means_and_what_it_does_not(report: Report) -> None:
    text = words(report)
    for phrase in (
        "units of coefficient error, on the scale of labels in [-1, 1], per ducat paid",
        "always marks the largest λ on offer",
        "nothing was tuned on rows that are sold",
        "never above it",
        "no report and no row",
        "5 ducats per unit of ε",
        "Payments carry no privacy guarantee",
        "draws fresh noise",
    ):
        assert phrase in text, phrase


def test_a_failed_audit_is_said_plainly(result: RegressionMarketResult) -> None:
    audits = result.audits.assign(incentive_compatible=False, max_gain=1.5)
    report = build_report(replace(result, audits=audits))
    assert "The audit finds a market where lying pays" in words(report)
    assert report.facts[-1].value == "no"


def test_one_scenario_one_gamma_one_lambda_and_no_one_price() -> None:
    settings = [
        'sellers.scenarios=["independent"]',
        "objective.gamma=[0.001]",
        "learner.regularization=[1.0]",
        'prior={family="exponential", mean=2.0}',
    ]
    report = build_report(run_regression_market(parse_problem(PROBLEM, settings)))
    assert "Only one λ was considered" in words(report)
    assert "no largest sensitivity" in words(report)
    assert "correlated scenario" not in words(report)
