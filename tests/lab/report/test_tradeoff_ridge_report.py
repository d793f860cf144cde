"""The report of the market for ridge regression: what it promises, and what it does not."""

from __future__ import annotations

import numpy as np
import pytest

from convexmarket.lab import build_report
from convexmarket.lab.kinds.tradeoff.problem import RegressionTradeoff
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.model import Report
from convexmarket.lab.report.parts import select
from convexmarket.lab.result import Result
from tests.lab.report.builders import altered, facts, problem_text, stored, table, words


@pytest.fixture(scope="module")
def result() -> Result[RegressionTradeoff]:
    return stored("tradeoff-ridge")


@pytest.fixture(scope="module")
def report(result: Result[RegressionTradeoff]) -> Report:
    return build_report(result)


def test_errors_are_in_the_units_of_the_file(result, report: Report) -> None:
    np.testing.assert_allclose(table(report, "tradeoff").rmse, 100.0 * result.tables["curve"].rmse)
    assert facts(report)["test RMSE there"].endswith("crowns")
    assert facts(report)["total payments there"].endswith("ducats")


def test_facts_are_those_of_the_middle_gamma_and_the_marked_lambda(result, report: Report) -> None:
    row = result.tables["curve"][
        (result.tables["curve"].gamma == 0.001) & result.tables["curve"].marked
    ].iloc[0]
    assert row.regularization == 1.0
    bought = facts(report)["sellers bought from, at γ = 0.001 and λ = 1"]
    assert bought == f"{row.n_bought} of 60"
    assert facts(report)["no lie of one seller pays and nobody loses, in the audit"] == "yes"


def test_what_is_and_is_not_guaranteed_is_said(report: Report) -> None:
    text = words(report)
    for phrase in (
        "nothing was tuned on rows that are sold",
        "never above it",
        "Payments carry no privacy guarantee",
        "draws fresh noise",
    ):
        assert phrase in text, phrase


def test_a_failed_audit_is_said_plainly(result) -> None:
    audits = result.tables["audits"].assign(incentive_compatible=False, max_gain=1.5)
    report = build_report(altered(result, audits=audits))
    assert "The audit finds a market where lying pays" in words(report)
    assert report.facts[-1].value == "no"


def test_one_scenario_one_gamma_one_lambda_and_no_one_price(result) -> None:
    problem = parse_problem(
        problem_text("tradeoff-ridge"),
        [
            'sellers.scenarios=["independent"]',
            "objective.gamma=[0.001]",
            "learner.regularization=[1.0]",
            'prior={family="exponential", mean=2.0}',  # without a price that nobody refuses
        ],
    )
    one = {"gamma": 0.001, "regularization": 1.0}
    frames = {
        name: select(result.tables[name], scenario="independent", **one)
        for name in ("curve", "sellers", "audits")
    }
    curve = frames.pop("curve").assign(uniform_epsilon=np.nan, uniform_rmse=np.nan)
    report = build_report(
        altered(
            result,
            problem=problem,
            curve=curve,
            choices=select(result.tables["choices"], **one),
            baselines=select(result.tables["baselines"], regularization=1.0),
            **frames,
        )
    )
    assert "Only one λ was considered" in words(report)
    assert "no largest sensitivity" in words(report)
    assert "correlated scenario" not in words(report)
