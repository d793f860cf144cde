"""The trade-off report: its words, tables and figures say what the result says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from convexmarket.experiments.tradeoff import TradeoffResult
from convexmarket.report import build_report, tradeoff_report, write_report
from convexmarket.report.model import Report, Section
from convexmarket.report.tradeoff import highlight
from convexmarket.report.words import format_number, format_percent


def section(report: Report, heading: str) -> Section:
    return next(item for item in report.sections if item.heading.startswith(heading))


def text(report: Report, heading: str) -> str:
    part = section(report, heading)
    return " ".join((*part.prose, *part.points)).replace("\N{NO-BREAK SPACE}", " ")


def summary(report: Report) -> str:
    return " ".join(report.summary).replace("\N{NO-BREAK SPACE}", " ")


def only(result: TradeoffResult, **changes: Any) -> TradeoffResult:
    """Keep what belongs to one scenario or model."""
    tables = {name: getattr(result, name) for name in ("curve", "draws", "sellers", "audits")}
    certificates = result.certificates
    for column, value in changes.items():
        tables = {name: frame[frame[column] == value] for name, frame in tables.items()}
        certificates = [entry for entry in certificates if entry[column] == value]
    return replace(result, **tables, certificates=certificates)


def test_write_report_dispatches_on_the_result(
    tradeoff_result: TradeoffResult, tmp_path: Path
) -> None:
    page = write_report(tradeoff_result, tmp_path / "report")
    assert page.name == "index.html"
    assert build_report(tradeoff_result).title == tradeoff_result.problem.title
    folder = page.parent
    assert {path.stem for path in (folder / "figures").glob("*.png")} == {
        "tradeoff_independent",
        "tradeoff_correlated",
        "frontier_independent",
        "frontier_correlated",
        "overall_error",
        "who_is_bought_from",
        "distributions",
    }
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    assert results["problem"]["run"]["seed"] == tradeoff_result.problem.run.seed
    assert results["provenance"]["versions"]["convexmarket"]
    assert len(results["certificates"]) == len(tradeoff_result.curve)
    assert results["timings"]


def test_the_tables_hold_the_whole_result(tradeoff_result: TradeoffResult, tmp_path: Path) -> None:
    tables = write_report(tradeoff_result, tmp_path / "report").parent / "tables"
    key = ["scenario", "model", "gamma"]
    curve = pd.read_csv(tables / "tradeoff.csv").merge(
        pd.read_csv(tables / "hyperparameters.csv"), on=key
    )
    shared = [name for name in tradeoff_result.curve if name in curve]
    pd.testing.assert_frame_equal(curve[shared], tradeoff_result.curve[shared], rtol=1e-15)
    assert set(tradeoff_result.curve) - set(curve) == {"objective", "lower_bound", "gap"}
    assert {"objective", "lower_bound", "gap"} <= set(pd.read_csv(tables / "certificates.csv"))
    sellers = pd.read_csv(tables / "sellers.csv")
    assert len(sellers) == len(tradeoff_result.sellers)
    assert np.isclose(sellers.payment.sum(), tradeoff_result.sellers.payment.sum(), rtol=1e-12)
    assert len(pd.read_csv(tables / "draws.csv")) == len(tradeoff_result.draws)


def test_the_summary_speaks_about_the_smallest_overall_error(
    tradeoff_result: TradeoffResult,
) -> None:
    point = highlight(tradeoff_result)
    curve = tradeoff_result.curve
    rows = curve[(curve.scenario == "independent") & (curve.model == "mechanism")]
    row = rows.loc[rows.overall_mean.idxmin()]
    assert point.gamma == row.gamma
    words = summary(tradeoff_report(tradeoff_result))
    assert f"γ = {format_number(row.gamma)}" in words
    assert f"pays {format_number(row.payments)} in total" in words
    assert f"misclassifies {format_percent(row.error_mean)}" in words
    assert f"misclassifies {format_percent(tradeoff_result.baseline_error)}" in words
    assert "60 sellers" in words
    assert "on average over 4 noise draws" in words
    assert "largest gain of any seller audited from any misreport" in words


def test_the_offers_of_the_summary_come_first(tradeoff_result: TradeoffResult) -> None:
    point = highlight(tradeoff_result)
    table = section(tradeoff_report(tradeoff_result), "Who was bought from").tables[0]
    first = table.frame.head(point.n_sellers)
    assert set(first.gamma) == {point.gamma}
    assert set(first.scenario) == {"independent"}
    assert set(first.model) == {"mechanism"}
    assert first.sensitivity.is_monotonic_increasing
    assert list(table.frame.columns) == list(tradeoff_result.sellers.columns)


def test_what_is_not_guaranteed_is_said(tradeoff_result: TradeoffResult) -> None:
    report = tradeoff_report(tradeoff_result)
    limits = text(report, "What is guaranteed")
    for caveat in tradeoff_result.caveats:
        assert caveat in limits
    assert "common knowledge" in limits
    assert "one noise draw" in limits
    assert "degenerate by design" in text(report, "Overall error")
    assert "between 5 and 50" in text(report, "Overall error")
    assert "nothing bounds what they reveal" in text(report, "Sensitivities correlated")


def test_without_the_naive_model_and_the_correlated_scenario(
    tradeoff_result: TradeoffResult, tmp_path: Path
) -> None:
    result = only(tradeoff_result, scenario="independent", model="mechanism")
    report = tradeoff_report(result)
    assert "naive" not in summary(report).lower()
    assert not any("correlated" in item.heading for item in report.sections)
    assert report.figures[0].name == "tradeoff_independent"
    assert write_report(result, tmp_path / "report").is_file()


def test_one_gamma_one_draw_and_nobody_bought(
    tradeoff_result: TradeoffResult, tmp_path: Path
) -> None:
    gamma = tradeoff_result.curve.gamma.min()
    result = only(tradeoff_result, scenario="independent", model="mechanism", gamma=gamma)
    draws = result.draws.head(1)
    curve = result.curve.assign(
        n_bought=0, payments=0.0, error_std=np.nan, epsilon_max=0.0, guarantee_max=0.0
    )
    sellers = result.sellers.assign(epsilon=0.0, payment=0.0, guarantee=0.0)
    result = replace(result, curve=curve, sellers=sellers, draws=draws)
    words = summary(tradeoff_report(result))
    assert "on average over 1 noise draw." in words
    assert "Nothing is bought" in words
    assert "buys from 0 of 60 sellers" in words
    assert write_report(result, tmp_path / "report").is_file()


def test_a_failed_audit_is_reported_as_such(tradeoff_result: TradeoffResult) -> None:
    audits = tradeoff_result.audits.assign(
        max_gain=0.5, min_surplus=-2.0, incentive_compatible=False, individually_rational=False
    )
    words = text(tradeoff_report(replace(tradeoff_result, audits=audits)), "The audit")
    assert (
        "a market where lying pays: the largest gain of any seller audited from any misreport is "
        "0.5" in words
    )
    assert "taking part can cost a seller: the smallest surplus is -2" in words


def test_a_large_guarantee_is_called_weak(tradeoff_result: TradeoffResult) -> None:
    large = replace(tradeoff_result, curve=tradeoff_result.curve.assign(guarantee_max=800.0))
    assert "factor exp(800) = ∞" in summary(tradeoff_report(large))
    assert "weak promise" in summary(tradeoff_report(large))
    small = tradeoff_result.curve.assign(epsilon_max=0.5, guarantee_max=0.5)
    words = summary(tradeoff_report(replace(tradeoff_result, curve=small)))
    assert "weak promise" not in words
    assert "the accounting confirms" in words


def test_an_id_that_is_markup_stays_text(tradeoff_result: TradeoffResult, tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>"
    result = replace(tradeoff_result, sellers=tradeoff_result.sellers.assign(id=evil))
    page = write_report(result, tmp_path / "report")
    for path in (page, page.parent / "report.md"):
        words = path.read_text(encoding="utf-8")
        assert "<script>alert" not in words
        assert "&lt;script&gt;" in words


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_any_scale_of_money(tradeoff_result: TradeoffResult, tmp_path: Path, scale: float) -> None:
    curve = tradeoff_result.curve.assign(payments=tradeoff_result.curve.payments * scale)
    sellers = tradeoff_result.sellers.assign(payment=tradeoff_result.sellers.payment * scale)
    result = replace(tradeoff_result, curve=curve, sellers=sellers)
    assert write_report(result, tmp_path / "report").is_file()
