"""The report of the ridge comparison: what it says of published figures and of baselines."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from convexmarket.lab import build_report, run_problem
from convexmarket.lab.problem.loading import load_problem
from tests import PROBLEMS
from tests.lab.report.builders import facts, stored, table, words, words_of


@pytest.fixture(scope="module")
def result():
    return stored("ridge-comparison")


@pytest.fixture(scope="module")
def report(result):
    return build_report(result)


def test_every_published_table_is_shown_beside_ours(report) -> None:
    names = {piece.name for piece in report.tables}
    assert {f"table_{k}_{loss}" for k in (4, 6, 14) for loss in ("unreg", "reg")} <= names
    shown = table(report, "table_4_reg")
    assert list(shown)[:3] == ["value", "pdp_op_published", "pdp_op_ours"]
    assert shown["pdp_op_published"].iloc[0] == 122000


def test_no_table_is_wider_than_the_page(report) -> None:
    assert max(piece.frame.shape[1] for piece in report.tables) <= 9


def test_what_the_baselines_do_not_guarantee_is_said(report) -> None:
    said = words_of(report, "What is guaranteed")
    assert "only the threshold is guaranteed" in said
    assert "The non-private regression guarantees nothing." in said


def test_that_the_bound_has_no_minimum_is_said(report, result) -> None:
    assert result.best_regularization is None
    assert "falls all the way to the right" in words(report)


def test_a_minimum_is_said_and_drawn(result) -> None:
    bound = result.bound.assign(total=1 + (result.bound.regularization - 0.5).abs())
    report = build_report(replace(result, bound=bound, best_regularization=0.5))
    assert "the bound of Theorem 3.6 is smallest at λ = 0.5" in words(report)
    assert "has the smallest expected test loss" in words(report)
    assert "falls all the way to the right" not in words(report)
    (figure,) = (one for one in report.figures if one.name == "error_bound")
    assert figure.draw().axes


def test_cells_that_are_printed_twice_are_said_to_be(result) -> None:
    again = result.published[result.published.statistic == "mean"].head(5).assign(file="again.csv")
    twice = replace(result, published=pd.concat([result.published, again]))
    assert "(5 cells printed in two tables counted in both)" in words(build_report(twice))
    assert "printed in two tables" not in words(build_report(result))


def test_where_a_baseline_is_better_it_is_said() -> None:
    problem = load_problem(
        PROBLEMS / "ridge-weights.toml", ["run.draws=3", "run.samples=5", "run.jobs=1"]
    )
    report = build_report(run_problem(problem))
    assert "has a smaller loss than PDP-OP" in words(report)
    assert not any("tight" in label for label in facts(report))
