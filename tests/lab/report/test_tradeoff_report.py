"""The trade-off report: what it claims, and what it says where the stored result does otherwise."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from convexmarket.lab.kinds.tradeoff.page import ACCOUNTING_WORDS, tradeoff_report
from convexmarket.lab.kinds.tradeoff.problem import ClassificationTradeoff
from convexmarket.lab.report.parts import select
from convexmarket.lab.report.render import markdown_page
from convexmarket.lab.report.words import format_percent
from convexmarket.lab.result import Result
from convexmarket.privacy import Accounting
from tests.lab.report.builders import altered, headings, plain, stored, table, words, words_of


@pytest.fixture(scope="module")
def result() -> Result[ClassificationTradeoff]:
    return stored("tradeoff")


def summary(result: Result[ClassificationTradeoff]) -> str:
    lead = [block for block in tradeoff_report(result).lead if isinstance(block, str)]
    return plain("\n\n".join(lead))


def only(result: Result[ClassificationTradeoff], **changes: Any) -> Result[ClassificationTradeoff]:
    """Keep what belongs to one scenario or model."""
    tables = {name: result.tables[name] for name in ("curve", "draws", "sellers", "audits")}
    certificates = result.certificates
    for column, value in changes.items():
        tables = {name: frame[frame[column] == value] for name, frame in tables.items()}
        certificates = [entry for entry in certificates if entry[column] == value]
    return altered(result, **tables, certificates=certificates)


def test_the_tables_hold_the_whole_result(result) -> None:
    report = tradeoff_report(result)
    curve = result.tables["curve"]
    shown = set().union(*(table(report, name) for name in ("tradeoff", "hyperparameters")))
    assert set(curve) - shown == {"objective", "lower_bound", "gap"}
    assert {"objective", "lower_bound", "gap"} <= set(table(report, "certificates"))
    frames = {piece.name: piece.stored for piece in report.tables}
    for name in ("sellers", "draws"):
        assert len(frames[name]) == len(result.tables[name])
    for name in set(frames["tradeoff"]) & set(curve):
        assert list(frames["tradeoff"][name]) == list(curve[name])


def test_the_point_spoken_about_is_the_middle_gamma_and_no_best_one(result) -> None:
    """Overall errors at two gammas are those of two buyers."""
    gammas = sorted(set(result.tables["curve"].gamma))
    assert len(gammas) == 3
    assert f"At γ = {gammas[1]:g} the buyer buys" in summary(result)
    offers = table(tradeoff_report(result), "sellers")
    first = offers.head(20)
    assert set(first.gamma) == {gammas[1]}
    assert set(first.scenario) == {"independent"}
    assert set(first.model) == {"mechanism"}
    assert first.sensitivity.is_monotonic_increasing
    assert list(offers) == list(result.tables["sellers"])


def test_what_is_not_guaranteed_is_said(result) -> None:
    report = tradeoff_report(result)
    limits = words_of(report, "What is guaranteed")
    for caveat in result.caveats:
        assert caveat in limits
    assert "common knowledge" in limits
    assert "one noise draw" in limits
    assert "Payments carry no privacy guarantee" in limits
    assert "degenerate by design" in words_of(report, "Overall error")
    assert "nothing bounds what they reveal" in words_of(report, "Sensitivities correlated")


def test_every_accounting_is_put_into_words() -> None:
    assert set(ACCOUNTING_WORDS) == set(get_args(Accounting))


def test_without_the_naive_model_and_the_correlated_scenario(result) -> None:
    alone = only(result, scenario="independent", model="mechanism")
    report = tradeoff_report(alone)
    assert "naive" not in summary(alone).lower()
    assert not any("correlated" in heading for heading in headings(report))
    assert report.figures[0].name == "tradeoff_independent"


def test_one_gamma_one_draw_and_nobody_bought(result) -> None:
    gamma = result.tables["curve"].gamma.min()
    one = only(result, scenario="independent", model="mechanism", gamma=gamma)
    curve = one.tables["curve"].assign(
        n_bought=0, payments=0.0, error_std=np.nan, epsilon_max=0.0, guarantee_max=0.0
    )
    sellers = one.tables["sellers"].assign(epsilon=0.0, payment=0.0, guarantee=0.0)
    one = altered(one, curve=curve, sellers=sellers, draws=one.tables["draws"].head(1))
    said = summary(one)
    assert "a mean over 1 noise draw; without" in said
    assert "Nothing is bought" in said
    assert "buys from 0 of 20 sellers" in said
    for figure in tradeoff_report(one).figures:
        assert figure.draw().axes


def test_a_failed_audit_is_reported_as_such(result) -> None:
    audits = result.tables["audits"].assign(
        max_gain=0.5, min_surplus=-2.0, incentive_compatible=False, individually_rational=False
    )
    said = words_of(tradeoff_report(altered(result, audits=audits)), "The audit")
    assert (
        "a market where lying pays: the largest gain of any seller audited from any misreport is "
        "0.5" in said
    )
    assert "taking part can cost a seller: the smallest surplus is -2" in said


def test_a_large_guarantee_is_called_weak(result) -> None:
    large = summary(altered(result, curve=result.tables["curve"].assign(guarantee_max=800.0)))
    assert "factor exp(800) = ∞" in large
    assert "weak promise" in large
    curve = result.tables["curve"].assign(epsilon_max=0.5, guarantee_max=0.5)
    small = summary(altered(result, curve=curve))
    assert "weak promise" not in small
    assert "the accounting confirms" in small


ERRORS = st.sampled_from([0.0, 0.25, 0.2501, 1.0])


@given(
    errors=st.lists(ERRORS, min_size=12, max_size=12),
    overall=st.lists(st.one_of(ERRORS, st.just(np.nan)), min_size=12, max_size=12),
    bought=st.lists(st.integers(0, 20), min_size=12, max_size=12),
)
def test_what_is_said_follows_from_the_curve(errors, overall, bought) -> None:
    result = stored("tradeoff")
    curve = result.tables["curve"].assign(
        error_mean=errors, overall_mean=overall, n_bought=bought, sigma=[1.0, 30.0] * 6
    )
    report = tradeoff_report(altered(result, curve=curve))
    text = words(report)
    spoken = curve.set_index(["scenario", "model", "gamma"]).loc["independent", "mechanism", 0.1]
    n = int(spoken.n_bought)
    assert f"buys from {'all' if n == 20 else f'{n} of'} 20 seller" in text
    assert f"misclassifies {format_percent(spoken.error_mean)} of the test rows" in text
    for scenario, rows in curve.groupby("scenario", sort=False):
        by = rows.pivot(index="gamma", columns="model", values="overall_mean").dropna()
        below = int((by.mechanism < by.naive).sum())
        told = f"at {below} of {len(by)} value{'s' * (len(by) != 1)} of γ with {scenario} sens"
        assert told in text
        course = select(rows, model="mechanism").sort_values("gamma").error_mean
        told = (
            f"test error from {format_percent(course.iloc[0])} to {format_percent(course.iloc[-1])}"
        )
        assert f"With {scenario} sensitivities, from γ = 0.01 to γ = 1" in text
        assert told in text
    assert "σ at 6 of 6 points of the mechanism's curve" in text


def test_an_id_that_is_markup_stays_text(result) -> None:
    evil = altered(result, sellers=result.tables["sellers"].assign(id="<script>alert(1)</script>"))
    text = markdown_page(tradeoff_report(evil))
    assert "<script>alert" not in text
    assert "&lt;script&gt;" in text


@pytest.mark.parametrize("scale", [1e-9, 1e9])
def test_any_scale_of_money(result, scale: float) -> None:
    curve = result.tables["curve"].assign(payments=result.tables["curve"].payments * scale)
    sellers = result.tables["sellers"].assign(payment=result.tables["sellers"].payment * scale)
    report = tradeoff_report(altered(result, curve=curve, sellers=sellers))
    assert markdown_page(report)
    for name in ("frontier_independent", "tradeoff_independent", "distributions"):
        (figure,) = (one for one in report.figures if one.name == name)
        figure.draw().draw_without_rendering()


def test_a_choice_at_the_end_of_its_list_is_said(result) -> None:
    """It follows from the lists of the file: with one more value at either end it is gone."""
    curve = select(result.tables["curve"], model="mechanism")
    ends = {min(result.problem.objective.sigma), max(result.problem.objective.sigma)}
    times = int(curve.sigma.isin(ends).sum())
    assert times
    assert f"σ at {times} of {len(curve)} points" in summary(result)
    wider = (min(ends) / 2, *result.problem.objective.sigma, max(ends) * 2)
    objective = result.problem.objective.model_copy(update={"sigma": wider})
    problem = result.problem.model_copy(update={"objective": objective})
    assert "σ at" not in summary(altered(result, problem=problem))
