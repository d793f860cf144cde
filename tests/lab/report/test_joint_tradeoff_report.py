"""The report of the joint problem over gamma: what it must not claim, and what failed."""

from dataclasses import replace

import numpy as np
import pytest

from convexmarket.lab.claims import Claim
from convexmarket.lab.kinds.joint_tradeoff.page import joint_tradeoff_report
from convexmarket.lab.kinds.joint_tradeoff.words import shown_point, shown_sellers
from convexmarket.lab.report.claims import JOINT_WARNING
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.words import format_percent
from tests.lab.report.builders import facts, stored, table, words_of

KEY = ["scenario", "model", "gamma"]


@pytest.fixture(scope="module")
def result():
    return stored("joint-tradeoff")


def without(result, **values):
    """Make the rows of a model fail."""
    ((column, value),) = values.items()
    curve, candidates = result.curve.copy(), result.candidates.copy()
    for frame in (curve, candidates):
        gone = frame[column] == value
        frame.loc[gone, "message"] = "no <luck>"
        frame.loc[gone, "status"] = "solver failed"
        for name in frame.select_dtypes("number"):
            if name not in (*KEY, "mu", "sigma", "regularization"):
                frame[name] = frame[name].where(~gone)
    kept = {
        name: frame[frame[column] != value]
        for name, frame in (("draws", result.draws), ("sellers", result.sellers))
    }
    comparisons = result.comparisons
    comparisons = comparisons[comparisons.other != value] if value != "joint" else comparisons[:0]
    return replace(result, curve=curve, candidates=candidates, comparisons=comparisons, **kept)


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
    assert set(result.curve) - set(curve) == {"message", "error_std"}
    for name in ("overall_mean", "payments", "residual", "eta"):
        np.testing.assert_array_equal(curve[name], result.curve[name])
    for name in ("candidates", "draws", "sellers", "comparisons", "claims"):
        assert len(tables[name]) == len(getattr(result, name))


def test_the_counts_are_those_of_the_comparisons(result):
    against = result.comparisons[result.comparisons.other == "two-step"].copy()
    against["verdict"] = ["lower", "higher", "not told apart", "lower", "lower", "lower"]
    report = joint_tradeoff_report(replace(result, comparisons=against))
    looking = words_of(report, "What looking at the data buys")
    assert (
        "at 1 of 3 values of γ with independent sensitivities, and above it at 1; at 3 of 3 values "
        "of γ with correlated sensitivities, and above it at 0" in looking
    )
    assert "has a privacy guarantee" in looking
    assert "The joint problem has none" in looking
    assert "4 of 6" in facts(report).values()


def test_the_middle_point_is_the_one_shown(result):
    assert shown_point(result) == ("independent", 0.1)
    rows = result.curve[(result.curve.model == "joint") & (result.curve.scenario == "independent")]
    middle = rows[rows.gamma == 0.1].error_mean.item()
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
    convex = replace(result, curve=result.curve.assign(convexity_ratio=0.5))
    assert "no certificate" not in words_of(joint_tradeoff_report(convex), "The certificate")
    local = replace(result, curve=result.curve.assign(status="best of several starts"))
    assert "every seller alone" not in words_of(joint_tradeoff_report(local), "The certificate")


def test_a_range_that_decided_is_said(result):
    words = words_of(joint_tradeoff_report(result), "Error, payments")
    assert "objective.eta_range" not in words
    bound = result.curve.assign(binding="eta_low")
    words = words_of(joint_tradeoff_report(replace(result, curve=bound)), "Error, payments")
    assert "12 lie at an end of objective.eta_range" in words


@pytest.mark.parametrize("model", ["joint", "two-step", "naive"])
def test_failures_are_told(result, model):
    broken = without(result, model=model)
    report = joint_tradeoff_report(broken)
    failed = int((broken.candidates.model == model).sum())
    assert f"{failed} of {len(broken.candidates)} candidates failed" in " ".join(report.summary)
    assert len(table(report, "failures")) == failed
    assert "no &lt;luck&gt;" in markdown_page(report)
    for figure in report.figures:
        assert figure.draw().axes


def test_nothing_has_an_answer(result):
    broken = result
    for model in ("joint", "two-step", "naive"):
        broken = without(broken, model=model)
    report = joint_tradeoff_report(replace(broken, comparisons=result.comparisons[:0]))
    assert report.warning == JOINT_WARNING
    assert not report.figures
    assert "# Small &amp;" in markdown_page(report)
