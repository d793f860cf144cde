"""The report of the joint problem over gamma: what it must not claim, and what failed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from convexmarket.lab.claims import Claim
from convexmarket.lab.kinds.joint_tradeoff.page import (
    joint_tradeoff_report,
    shown_point,
    shown_sellers,
)
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.words import format_percent
from tests.lab.report.builders import facts, stored, table, words, words_of

KEY = ["scenario", "model", "gamma"]


@pytest.fixture(scope="module")
def result():
    return stored("joint-tradeoff")


def changed(result, **tables):
    return replace(result, tables={**result.tables, **tables})


def without(result, **values):
    """Make the rows of a model fail."""
    ((column, value),) = values.items()
    curve, candidates = result.tables["curve"].copy(), result.tables["candidates"].copy()
    for frame in (curve, candidates):
        gone = frame[column] == value
        frame.loc[gone, "message"] = "no <luck>"
        frame.loc[gone, "status"] = "solver failed"
        for name in frame.select_dtypes("number"):
            if name not in (*KEY, "mu", "sigma", "regularization"):
                frame[name] = frame[name].where(~gone)
    kept = {
        name: frame[frame[column] != value]
        for name, frame in result.tables.items()
        if name in ("draws", "sellers")
    }
    comparisons = result.tables["comparisons"]
    comparisons = comparisons[comparisons.other != value] if value != "joint" else comparisons[:0]
    return changed(result, curve=curve, candidates=candidates, comparisons=comparisons, **kept)


def test_that_there_is_no_privacy_guarantee_comes_first(result):
    report = joint_tradeoff_report(result)
    assert report.warning == JOINT_WARNING
    assert facts(report)["differential privacy of the joint model"] == "none"


def test_the_tables_hold_the_whole_result(result):
    report = joint_tradeoff_report(result)
    tables = {piece.name: piece.stored for piece in report.tables}
    curve = tables["tradeoff"]
    for name in ("hyperparameters", "certificates"):
        curve = curve.merge(tables[name], on=KEY)
    assert set(result.tables["curve"]) - set(curve) == {"message", "error_std"}
    for name in ("overall_mean", "payments", "residual", "eta"):
        np.testing.assert_array_equal(curve[name], result.tables["curve"][name])
    for name in ("candidates", "draws", "sellers", "comparisons"):
        assert len(tables[name]) == len(result.tables[name])
    assert len(tables["claims"]) == len(result.claims)


VERDICTS = ["lower", "higher", "not told apart"]


@given(st.lists(st.sampled_from(VERDICTS), min_size=6, max_size=6))
@example(["lower", "higher", "not told apart", "lower", "lower", "lower"])
def test_the_finding_follows_from_the_comparisons(verdicts):
    result = stored("joint-tradeoff")
    against = result.tables["comparisons"]
    against = against[against.other == "two-step"].assign(verdict=verdicts)
    report = joint_tradeoff_report(changed(result, comparisons=against))
    lower, higher = (verdicts.count(word) for word in VERDICTS[:2])
    number = "all 6" if lower == 6 else f"{lower} of 6"
    assert (
        f"lowers the overall error at {number} points of the curve and raises it at {higher}, and"
        " leaves the model without a privacy guarantee."
    ) in words(report)
    assert f"{lower} of 6" in facts(report).values()
    counts = [verdicts[:3].count(word) for word in VERDICTS[:2]]
    assert (
        f"the one that is private, at {counts[0]} of 3 values of γ with independent sensitivities, "
        f"and above it at {counts[1]};"
    ) in words(report)


def test_what_looking_costs_is_said(result):
    looking = words_of(joint_tradeoff_report(result), "What looking at the data buys")
    assert "has a privacy guarantee" in looking
    assert "The joint problem has none" in looking


def test_the_middle_point_is_the_one_shown(result):
    assert shown_point(result) == ("independent", 0.1)
    curve = result.tables["curve"].set_index(KEY)
    middle = curve.error_mean["independent", "joint", 0.1]
    assert format_percent(middle) in facts(joint_tradeoff_report(result)).values()


def test_the_figure_of_purchases_measures_both_by_one_model(result):
    sellers = shown_sellers(result, ("independent", 0.1))
    assert set(sellers.model) == {"joint", "two-step"}
    assert (sellers.groupby("id").loss.nunique() == 1).all()


def test_claims_and_remarks_are_shown(result):
    claim = Claim("B", "Something holds", "not reproduced", "0.5", "Because of that.")
    report = joint_tradeoff_report(replace(result, claims=(claim,)))
    assert "Something holds: Because of that." in words_of(report, "What the papers claim")


def test_certificates_and_what_they_rest_on(result):
    said = words_of(joint_tradeoff_report(result), "The certificate")
    assert "no certificate is to be had" in said
    assert "comparing every seller alone" in said
    convex = changed(result, curve=result.tables["curve"].assign(convexity_ratio=0.5))
    assert "no certificate" not in words_of(joint_tradeoff_report(convex), "The certificate")
    local = changed(result, curve=result.tables["curve"].assign(status="best of several starts"))
    assert "every seller alone" not in words_of(joint_tradeoff_report(local), "The certificate")


def test_a_range_that_decided_is_said(result):
    words = words_of(joint_tradeoff_report(result), "Error, payments")
    assert "objective.eta_range" not in words
    bound = result.tables["curve"].assign(binding="eta_low")
    words = words_of(joint_tradeoff_report(changed(result, curve=bound)), "Error, payments")
    assert "12 lie at an end of objective.eta_range" in words


@pytest.mark.parametrize("model", ["joint", "two-step", "naive"])
def test_failures_are_told(result, model):
    broken = without(result, model=model)
    report = joint_tradeoff_report(broken)
    failed = int((broken.tables["candidates"].model == model).sum())
    assert f"{failed} of {len(broken.tables['candidates'])} candidates failed" in words(report)
    assert len(table(report, "failures")) == failed
    assert "no &lt;luck&gt;" in markdown_page(report)
    for figure in report.figures:
        assert figure.draw().axes


def test_nothing_has_an_answer(result):
    broken = result
    for model in ("joint", "two-step", "naive"):
        broken = without(broken, model=model)
    report = joint_tradeoff_report(changed(broken, comparisons=result.tables["comparisons"][:0]))
    assert report.warning == JOINT_WARNING
    assert not report.figures
    assert "# Small &amp;" in markdown_page(report)
