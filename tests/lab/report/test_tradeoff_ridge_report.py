"""The report of the market for ridge regression: what it promises, and what it does not."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab import build_report
from convexmarket.lab.kinds.tradeoff.problem import RegressionTradeoff
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.model import Report
from convexmarket.lab.report.parts import select
from convexmarket.lab.report.words import format_number, share
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


RMSE = st.sampled_from([0.1, 0.25, 0.5])


@given(
    rmse=st.lists(RMSE, min_size=12, max_size=12),
    one_price=st.lists(st.one_of(RMSE, st.just(np.nan)), min_size=12, max_size=12),
    bound=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=12, max_size=12),
)
def test_what_is_said_follows_from_the_curve(rmse, one_price, bound) -> None:
    found = stored("tradeoff-ridge")
    curve = found.tables["curve"].assign(rmse=rmse, uniform_rmse=one_price, bound=bound)
    text = words(build_report(altered(found, curve=curve)))
    unit = found.problem.units.per_label
    own = curve[curve.scenario == curve.scenario.iloc[0]]
    middle = own[own.gamma == sorted(set(own.gamma))[1]]
    marked = middle[middle.marked].iloc[0]
    assert ("it has the smallest test error too" in text) == (marked.rmse == middle.rmse.min())
    better = middle[middle.rmse == middle.rmse.min()].regularization
    told = re.search("At this γ, λ = (.*?) has the smallest test error", text)
    assert not told or float(told[1]) in set(better)
    smallest = format_number(own.rmse.min() * unit)
    place = re.search(rf"smallest error of all is {smallest} .*? at γ = (.*?) and λ = (.*?),", text)
    there = own[own.rmse == own.rmse.min()]
    assert tuple(map(float, place.groups())) in set(
        zip(there.gamma, there.regularization, strict=True)
    )
    priced = curve.dropna(subset=["uniform_rmse"])
    assert ("no price is one that nobody refuses" in text) == priced.empty
    if len(priced):
        wins = share(int((priced.rmse < priced.uniform_rmse).sum()), len(priced), "point")
        assert f"its test error is larger at {wins} of the comparison" in text
    above = int((curve.bound >= found.problem.learner.coef_norm).sum())
    assert f"the error of the zero model, at {share(above, 12, 'point')}" in text
    assert ("so it says something everywhere" in text) == (above == 0)


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
