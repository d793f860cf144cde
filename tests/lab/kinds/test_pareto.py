"""The frontier of a market: every point by the library, what is efficient by brute force."""

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import ProblemFileError
from convexmarket.lab import build_report, run_problem
from convexmarket.lab.kinds.pareto.run import CRITERIA, efficient
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.report.builders import altered, facts, words

SMALL = """
kind = "pareto"
title = "A small frontier"
[market]
sellers = {sensitivities = [1.2, 2.0, 3.1, 4.5]}
prior = {family = "uniform", low = 1, high = 5}
objective = {spread = {weight = 1.0}, noise = {weight = 2.0}, payments = {weight = 0.1}}
[[sweep]]
key = "objective.payments.weight"
values = [0.01, 0.1, 1]
[[sweep]]
key = "constraints.max_epsilon"
values = [0.2, 2]
"""


@pytest.fixture(scope="module")
def result():
    return run_problem(parse_problem(SMALL))


def test_every_point_is_the_library_s(result):
    sellers = cm.Sellers([1.2, 2.0, 3.1, 4.5], cm.Uniform(1, 5))
    places = list(product([0.01, 0.1, 1.0], [0.2, 2.0]))
    assert len(result.tables["points"]) == len(places)
    for row, (gamma, most) in zip(result.tables["points"].to_dict("records"), places, strict=True):
        assert (row["objective.payments.weight"], row["constraints.max_epsilon"]) == (gamma, most)
        objective = 1.0 * cm.Spread() + 2.0 * cm.Noise() + gamma * cm.Payments()
        found = cm.allocate(cm.Market(sellers, objective, [cm.MaxEpsilon(most)]))
        paid = float(sellers.virtual_costs @ found.epsilon)
        assert row["objective"] == pytest.approx(found.objective, rel=1e-6)
        assert row["expected_payments"] == pytest.approx(paid, rel=1e-5)
        assert row["error"] == pytest.approx(found.objective - gamma * paid, rel=1e-5)
        assert row["epsilon_max"] == pytest.approx(found.epsilon.max(), rel=1e-5)
        assert row["gap"] <= 1e-6


def test_the_jobs_do_not_matter(result):
    again = run_problem(parse_problem(SMALL, ["run.jobs=1"])).tables["points"]
    assert again.drop(columns="seconds").equals(result.tables["points"].drop(columns="seconds"))


@given(st.lists(st.tuples(*[st.sampled_from([0.0, 1.0, 2.0, np.nan])] * 3), max_size=12))
def test_efficient_is_what_nothing_dominates(rows):
    values = np.array(rows, dtype=float).reshape(-1, 3)
    for row, found in zip(values, efficient(values), strict=True):
        beaten = any(
            all(other <= row) and any(other < row) for other in values if not np.isnan(other).any()
        )
        assert found == (not np.isnan(row).any() and not beaten)


def test_a_point_without_an_answer_is_a_row_that_says_so():
    found = run_problem(parse_problem(SMALL, ["market.objective={spread={weight=1.0}}"]))
    assert (found.tables["points"].status != "solved").all()
    assert not found.tables["points"].efficient.any()
    assert found.tables["points"].message.str.len().min() > 10
    report = build_report(found)
    assert "None of the 6 markets has an answer" in words(report)
    assert not report.figures


def test_the_page_names_the_ends_and_where_they_lie(result):
    report = build_report(result)
    said = words(report)
    solved = result.tables["points"][result.tables["points"].status == "solved"]
    least = solved.error.min()
    assert f"The smallest error, {least:.3g}," in said
    assert "beyond it there may be smaller ones" in said
    assert facts(report)["efficient"] == f"{int(result.tables['points'].efficient.sum())}"
    for figure in report.figures:
        assert figure.draw().axes
    assert set(CRITERIA) <= set(report.tables[0].frame.columns)


def test_one_key_is_enough():
    text = SMALL[: SMALL.rindex("[[sweep]]")]
    report = build_report(run_problem(parse_problem(text)))
    assert all(figure.draw().axes for figure in report.figures)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('sweep=[{key="objective.payments.weight", values=[1, 2]}]*0', "is not a TOML value"),
        ("sweep=[]", r"sweep must .*, got \[\]"),
        ('sweep=[{key="a.b", values=[1, 2]}, {key="a.b", values=[1, 2]}]', "a key is swept twice"),
        ('sweep=[{key="objective.paiments.weight", values=[1, 2]}]', "paiments"),
    ],
)
def test_a_mistake_names_the_key(change, said):
    with pytest.raises(ProblemFileError, match=said):
        parse_problem(SMALL, [change])


def test_the_shipped_file_is_one():
    assert len(load_problem(PROBLEMS / "pareto.toml").markets) == 42


LEVELS = st.sampled_from([0.5, 1.0, 2.0, 4.0])


@given(
    rows=st.lists(st.tuples(LEVELS, LEVELS, LEVELS), min_size=6, max_size=6),
    solved=st.lists(st.booleans(), min_size=6, max_size=6),
)
def test_what_the_page_says_follows_from_its_table(result, rows, solved):
    points = result.tables["points"].assign(status=np.where(solved, "solved", "infeasible"))
    values = np.where(np.array(solved)[:, None], np.array(rows), np.nan)
    points[list(CRITERIA)] = values
    points["efficient"] = efficient(values)
    text = words(build_report(altered(result, points=points)))
    table = points[points.status == "solved"]
    if table.empty:
        assert text.startswith("None of the 6 markets has an answer")
        return
    accurate, cheap = table[table.error == table.error.min()], table.expected_payments.min()
    dear = accurate.expected_payments.min()
    largest = accurate[accurate.expected_payments == dear].epsilon_max.min()
    left = table[table.expected_payments == cheap].error.min()
    assert text.startswith(
        f"The smallest error, {table.error.min():g}, costs {dear:g} in expected payments and a "
        f"largest ε of {largest:g}; the smallest payments, {cheap:g}, leave an error of {left:g}."
    )
    told = re.search(r"error is at .*? = (.*?), .* payments are at .*? = (.*?),", text)
    inside = told and set(told.groups()) == {"0.1"}
    assert ("swept in constraints.max_epsilon:" in text) == bool(inside)
    n = int(points.efficient.sum())
    assert f"{n} {'is' if n == 1 else 'are'} efficient: no other has less" in text


def test_under_a_budget_without_noise_no_point_has_an_answer():
    swept = SMALL.replace('"constraints.max_epsilon"', '"constraints.budget"')
    found = run_problem(parse_problem(swept, ["market.objective={spread={weight=1.0}}"]))
    assert (found.tables["points"].status != "solved").all()
