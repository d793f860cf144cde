"""The report of the ridge comparison: what it says of the published figures."""

import json

import pytest

from convexmarket.experiments import run_problem
from convexmarket.problems import load_problem
from convexmarket.report import build_report, write_report
from tests import PROBLEMS


@pytest.fixture(scope="module")
def result():
    problem = load_problem(
        PROBLEMS / "ridge-medical.toml", ["run.draws=3", "run.samples=5", "run.jobs=1"]
    )
    return run_problem(problem)


@pytest.fixture(scope="module")
def report(result):
    return build_report(result)


def test_every_published_table_is_shown_beside_ours(report) -> None:
    names = {table.name for table in report.tables}
    tables = (2, 4, 6, 8, 10, 12, 14)
    assert {f"table_{k}_{loss}" for k in tables for loss in ("unreg", "reg")} <= names
    table = next(table for table in report.tables if table.name == "table_4_reg")
    assert list(table.frame.columns)[:3] == ["value", "pdp_op_published", "pdp_op_ours"]
    assert table.frame["pdp_op_published"].iloc[0] == 122000


def test_no_table_is_wider_than_the_page(report) -> None:
    assert max(table.frame.shape[1] for table in report.tables) <= 9


def test_cells_that_are_printed_twice_are_said_to_be(report) -> None:
    assert "(24 cells printed in two tables counted in both)" in " ".join(report.summary)


def test_where_the_factor_is_missed_the_plain_order_is_told(report) -> None:
    words = " ".join(text for section in report.sections for text in section.prose)
    assert "have the same order with a smaller factor" in words


def test_it_says_per_table_whether_ordering_and_ratios_hold(report) -> None:
    words = " ".join(text for section in report.sections for text in section.prose)
    for k in (2, 4, 6, 8, 10, 12, 14):
        assert f"Table {k}: " in words
    assert "and in print at 24 of 24" in words


def test_it_says_what_the_baselines_do_not_guarantee(report) -> None:
    guarantees = next(s for s in report.sections if s.heading == "What is guaranteed")
    assert "only the threshold is guaranteed" in " ".join(guarantees.prose)


def test_it_says_that_the_bound_has_no_minimum(report, result) -> None:
    assert result.best_regularization is None
    words = " ".join(text for section in report.sections for text in section.prose)
    assert "falls all the way to the right" in words


def test_a_minimum_is_said_and_drawn() -> None:
    problem = load_problem(
        PROBLEMS / "ridge-bound.toml",
        ["data.n_rows=20000", "run.draws=2", "run.samples=2", "learner.label_noise=0.01"],
    )
    result = run_problem(problem)
    assert result.best_regularization is not None
    report = build_report(result)
    assert "has the smallest expected test loss" in " ".join(report.summary)
    for figure in report.figures:
        figure.draw()


def test_where_a_baseline_is_better_it_is_said() -> None:
    problem = load_problem(
        PROBLEMS / "ridge-weights.toml", ["run.draws=3", "run.samples=5", "run.jobs=1"]
    )
    report = build_report(run_problem(problem))
    words = " ".join(text for section in report.sections for text in section.prose)
    assert "has a smaller loss than PDP-OP" in words
    assert not any("tight" in fact.label for fact in report.facts)


def test_it_is_written(result, tmp_path) -> None:
    page = write_report(result, tmp_path / "report")
    text = page.read_text()
    assert "Table 14" in text
    saved = json.loads((page.parent / "results.json").read_text())
    assert len(saved["published"]["data"]) == len(result.published)
    assert (page.parent / "tables" / "table_2_reg.csv").exists()
    assert (page.parent / "figures" / "spread_1_regularization.svg").exists()
