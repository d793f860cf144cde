"""The frontier of a market: every point by the library, what is efficient by brute force."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from convexmarket.errors import ProblemFileError
from convexmarket.lab import run_problem
from convexmarket.lab.kinds.pareto.run import efficient
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS

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


def test_under_a_budget_without_noise_no_point_has_an_answer():
    swept = SMALL.replace('"constraints.max_epsilon"', '"constraints.budget"')
    found = run_problem(parse_problem(swept, ["market.objective={spread={weight=1.0}}"]))
    assert (found.tables["points"].status != "solved").all()
