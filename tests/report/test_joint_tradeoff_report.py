"""The report of the joint problem over gamma says what the result says."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments import run_joint_tradeoff
from convexmarket.experiments.claims import Claim
from convexmarket.problems import parse_problem
from convexmarket.report import build_report, joint_tradeoff_report, write_report
from convexmarket.report.claims import JOINT_WARNING
from convexmarket.report.joint_tradeoff_words import shown_point, shown_sellers
from convexmarket.report.words import format_percent

PROBLEM = """
kind = "joint-tradeoff"
title = "Small & <b>joint</b>"
description = "Gaussian rows."
notes = ["A note of the file."]
[data]
source = "synthetic"
n_sellers = 20
n_features = 2
n_validation = 30
n_test = 30
[prior]
family = "uniform"
low = 0.02
high = 0.10
[sellers]
scenarios = ["independent", "correlated"]
[objective]
gamma = [0.01, 0.1, 1.0]
mu = [1.0]
sigma = [1.0, 3.0]
[joint]
starts = 2
[learner]
regularization = [0.2]
draws = 3
[naive]
eta_range = [5.0, 50.0]
grid = 2
[run]
jobs = 1
"""
KEY = ["scenario", "model", "gamma"]


@pytest.fixture(scope="module")
def result():
    return run_joint_tradeoff(parse_problem(PROBLEM))


def words_of(report, heading):
    part = next(item for item in report.sections if item.heading.startswith(heading))
    return " ".join((*part.prose, *part.points)).replace("\N{NO-BREAK SPACE}", " ")


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


def test_the_warning_comes_first(result):
    report = build_report(result)
    assert report.warning == JOINT_WARNING
    assert ("differential privacy of the joint model", "none") in [
        (fact.label, fact.value) for fact in report.facts
    ]


def test_the_folder_holds_the_whole_result(result, tmp_path):
    folder = write_report(result, tmp_path / "report").parent
    tables = folder / "tables"
    curve = pd.read_csv(tables / "tradeoff.csv")
    for name in ("hyperparameters", "certificates"):
        curve = curve.merge(pd.read_csv(tables / f"{name}.csv"), on=KEY)
    assert set(result.curve) - set(curve) == {"message", "error_std"}
    for name in ("overall_mean", "payments", "residual", "eta"):
        np.testing.assert_allclose(curve[name], result.curve[name], rtol=1e-12)
    for name in ("candidates", "draws", "sellers", "comparisons"):
        assert len(pd.read_csv(tables / f"{name}.csv")) == len(getattr(result, name))
    assert len(pd.read_csv(tables / "claims.csv")) == len(result.claims)
    plain = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert plain["problem"]["title"] == result.problem.title
    assert {path.stem for path in (folder / "figures").glob("*.svg")} == {
        "tradeoff_independent",
        "tradeoff_correlated",
        "frontier_independent",
        "frontier_correlated",
        "overall_error",
        "joint_minus_two_step",
        "purchases",
    }
    assert "<b>joint" not in (folder / "index.html").read_text(encoding="utf-8")


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
    assert "4 of 6" in [fact.value for fact in report.facts]


def test_ends_of_the_curve_and_the_middle_point(result):
    report = joint_tradeoff_report(result)
    rows = result.curve[(result.curve.model == "joint") & (result.curve.scenario == "independent")]
    words = words_of(report, "Error, payments")
    assert f"from {format_percent(rows.error_mean.iloc[0])} to" in words
    assert shown_point(result) == ("independent", 0.1)
    middle = rows[rows.gamma == 0.1].error_mean.item()
    assert format_percent(middle) in [fact.value for fact in report.facts]


def test_the_figure_of_purchases_measures_both_by_one_model(result):
    sellers = shown_sellers(result, ("independent", 0.1))
    assert set(sellers.model) == {"joint", "two-step"}
    assert (sellers.groupby("id").loss.nunique() == 1).all()
    joint = sellers[sellers.model == "joint"]
    label = joint.weight[joint.label == 1].sum()
    words = words_of(joint_tradeoff_report(result), "Who is bought from")
    assert f"label 1 has {format_percent(label)} of the weight" in words


def test_claims_and_remarks_are_shown(result):
    claim = Claim("B", "Something holds", "not reproduced", "0.5", "Because of that.")
    report = joint_tradeoff_report(replace(result, claims=(claim,)))
    assert "Something holds: Because of that." in words_of(report, "What the papers claim")


def test_certificates_and_what_they_rest_on(result):
    words = words_of(joint_tradeoff_report(result), "The certificate")
    assert "solved for all 12 candidates" in words
    assert "no certificate is to be had" in words
    assert "comparing every seller alone" in words
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
def test_failures_are_told(result, tmp_path, model):
    broken = without(result, model=model)
    report = joint_tradeoff_report(broken)
    failed = int((broken.candidates.model == model).sum())
    assert f"{failed} of {len(broken.candidates)} candidates failed" in " ".join(report.summary)
    table = next(item for item in report.tables if item.name == "failures")
    assert len(table.frame) == failed
    page = write_report(broken, tmp_path / "report").read_text(encoding="utf-8")
    assert "no &lt;luck&gt;" in page


def test_nothing_has_an_answer(result, tmp_path):
    broken = result
    for model in ("joint", "two-step", "naive"):
        broken = without(broken, model=model)
    broken = replace(broken, comparisons=result.comparisons[:0])
    report = joint_tradeoff_report(broken)
    assert report.warning == JOINT_WARNING
    assert not report.figures
    assert write_report(broken, tmp_path / "report").is_file()
