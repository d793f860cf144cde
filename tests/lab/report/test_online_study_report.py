"""The report of the study of online policies: who bought nothing, and what may be claimed."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab import build_report
from convexmarket.lab.kinds.online_study.page import POLICIES
from convexmarket.lab.kinds.online_study.run import run_online_study
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.words import fine_percent, format_number
from convexmarket.lab.result import Result
from tests.lab.report.builders import (
    altered,
    facts,
    plain,
    plain_blanks,
    problem_text,
    stored,
    table,
    words,
)

ONE = 'study.policies=["expectation"]'
FRACTIONS = [ONE, "study.fractions=[0.2, 0.5, 1.0]", "prior.low=0.0", "guess.low=0.0"]
EMPTY = [ONE, "study.sizes=[5, 40]", "study.draws=6", "prior.low=0.0", "guess.low=0.0"]


def run(*overrides: str) -> Result:
    return run_online_study(parse_problem(problem_text("online-study"), overrides))


@pytest.fixture(scope="module")
def result() -> Result:
    return stored("online-study")


@pytest.fixture(scope="module")
def fractions() -> Result:
    return run(*FRACTIONS)


def test_the_tables_hold_the_points_and_draws(result) -> None:
    report = build_report(result)
    stored_tables = {piece.name: piece.stored for piece in report.tables}
    np.testing.assert_array_equal(
        stored_tables["ratios"].regret_high, result.tables["points"].regret_high
    )
    np.testing.assert_array_equal(
        stored_tables["losses"].loss_low, result.tables["points"].loss_low
    )
    assert len(stored_tables["draws"]) == len(result.tables["draws"])
    assert len(stored_tables["exponents"]) == len(result.tables["fits"])


def test_claims_and_empty_runs_are_counted(result) -> None:
    assert facts(build_report(result))["runs without a purchase"] == "0"
    assert facts(build_report(result))["claims reproduced"] == "1 of 1"
    none = altered(result, claims=())
    assert "claims reproduced" not in facts(build_report(none))


def test_a_floor_of_the_loss_is_told_where_there_is_one(result, fractions) -> None:
    assert "No loss can be below 2, 2·sqrt(σ·γ·ψ)" in words(build_report(result))
    assert "No loss can be below" not in words(build_report(fractions))


def test_fractions_have_a_figure_and_words(fractions) -> None:
    report = build_report(fractions)
    assert {figure.name for figure in report.figures} == {"loss", "ratio", "fractions"}
    last = fractions.tables["points"][fractions.tables["points"]["size"] == 1000].ratio
    text = words(report)
    assert f"{format_number(last.iloc[0])} at ξ = 0.2" in text
    assert f"{format_number(last.iloc[1])} at ξ = 0.5 and {format_number(last.iloc[0])} at" in text
    theorem = "For many sellers, and a prior with density at zero"
    assert theorem not in text
    assert theorem in words(build_report(run(*FRACTIONS, 'study.policies=["algorithm-3"]')))
    for figure in report.figures:
        assert all(axes.get_xlabel() for axes in figure.draw().axes)


def test_draws_without_a_purchase_are_said_in_words() -> None:
    found = run(*EMPTY)
    nothing = int(np.isinf(found.tables["draws"].loss).sum())
    assert 0 < nothing < len(found.tables["draws"])
    report = build_report(found)
    text = words(report)
    assert f"Nothing at all was bought by “general rule” in {nothing} of 12" in text
    assert facts(report)["runs without a purchase"] == str(nothing)
    assert table(report, "ratios")["empty"].sum() == nothing
    bought = found.tables["points"][
        (found.tables["points"]["empty"] > 0) & found.tables["points"].ratio.notna()
    ]
    for row in bought.itertuples():
        assert f"(over the {row.draws - row.empty} draws that bought something)" in text
    assert len(bought)
    for figure in report.figures:
        assert figure.draw().axes


def test_a_policy_that_never_buys_is_told_and_not_drawn() -> None:
    quick = ["study.sizes=[100, 200]", "study.draws=2"]
    found = run('study.policies=["expectation", "guess"]', "guess.low=0.0", *quick)
    report = build_report(found)
    text = words(report)
    assert "“guess kept” bought nothing in any draw" in text
    assert "There is no regret to draw of guess kept: nothing was bought." in text
    assert {figure.name for figure in report.figures} == {"loss", "ratio"}
    assert np.isinf(found.tables["draws"].loss[found.tables["draws"].policy == "guess"]).all()


def test_nothing_was_bought_at_all() -> None:
    nothing = run(ONE, "study.sizes=[2, 3]", "study.draws=2", "study.fractions=[0.1]")
    assert np.isinf(nothing.tables["draws"].loss).all(), (
        "the example bought something; choose another"
    )
    report = build_report(nothing)
    assert "bought nothing in any draw" in words(report)
    assert not report.figures


RATIOS = st.sampled_from([np.nan, 1.0, 1.0000001, 1.25, 3.0])


@given(st.lists(RATIOS, min_size=12, max_size=12))
def test_what_is_said_of_policies_follows_from_their_points(ratios) -> None:
    found = stored("online-study")
    points = found.tables["points"]
    made = np.array(ratios)
    nothing = np.isnan(made)
    points = points.assign(
        ratio=made,
        ratio_low=made - 0.5,
        ratio_high=made + 0.5,
        loss=points.loss.where(~nothing),
        regret=pd.Series(made - 1).where(points.regret.notna()),
        empty=np.where(nothing, points.draws, np.where(made > 2, 1, 0)),
    )
    report = build_report(altered(found, points=points))
    text, first = words(report), plain(report.lead[0])
    bought = points[~nothing]
    if bought.empty:
        assert first.startswith("Nothing was bought in any draw.")
    else:
        last = bought[bought["size"] == bought["size"].max()]
        size, name, more = re.match(
            r"With m = ([\d,]+).*? expected, “(.*?)” loses (.*?) more", first
        ).groups()
        assert size == f"{last['size'].iloc[0]:,}"
        assert more == plain_blanks(fine_percent(last.ratio.min() - 1))
        policies = last.policy[last.ratio == last.ratio.min()].map(POLICIES)
        assert name in set(policies)
    for policy, rows in points.groupby("policy", sort=False):
        shown, own = POLICIES[policy], rows[rows.ratio.notna()]
        told = re.search(rf"the loss of “{shown}” is larger by (.*?) \(95% interval", text)
        assert bool(told) == bool(len(own))
        assert (f"“{shown}” bought nothing in any draw" in text) == (not len(own))
        for row in own.iloc[[0, -1]].itertuples() if len(own) else ():
            some = f" (over the {row.draws - row.empty} draws" if row.empty else ""
            expected = f"{fine_percent(row.ratio - 1)} with m = {row.size:,}{some}"
            assert plain_blanks(expected) in told[1]
    above = points[(points.policy == "expectation") & points.loss.notna()]
    assert ("It is " in text) == bool(len(above))
    if len(above):
        assert f"It is {format_number(above.loss.iloc[-1], 4)} with m =" in text


def test_one_size_is_enough_for_a_report() -> None:
    report = build_report(run(ONE, "study.sizes=[1000]", "claims=[]"))
    assert "claims" not in facts(report)
    assert markdown_page(report)
    for figure in report.figures:
        assert figure.draw().axes
