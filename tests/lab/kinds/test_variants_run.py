"""Variants side by side: every row is what Python would have found; failures are rows."""

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.lab import run_problem
from convexmarket.lab.kinds.variants.run import run_variants
from convexmarket.lab.problem.loading import parse_problem

SMALL = """
kind = "variants"
title = "Small"
[sellers]
groups = [
    { name = "town", count = 12 },
    { name = "land", count = 8, prior = { family = "uniform", low = 2.0, high = 6.0 } },
]
[prior]
family = "uniform"
low = 1.0
high = 5.0
[objective]
spread = { weight = 1.0 }
noise = { weight = 1.0 }
payments = { weight = 0.02 }
[solve]
gap = 1e-5
[run]
jobs = 1

[[variants]]
name = "plain"
[[variants]]
name = "fair"
constraints.group_share.at_least.land = 0.4
[[variants]]
name = "square"
objective.spread = { term = "squared-spread", weight = 5.0 }
objective.payments.privacy_cost = { power = 2 }
[[variants]]
name = "budget"
objective.payments = false
sweep = { key = "constraints.budget", values = [5, 20, 40] }
[[variants]]
name = "contradiction"
constraints.max_epsilon = 0.01
constraints.eta_range = [1.0, 2.0]
[[variants]]
name = "boundless"
objective.payments = false
[[variants]]
name = "bad solver"
objective.spread.p = 3
solve.solver = "NO_SUCH_SOLVER"
"""

FOUND = ["plain", "fair", "square", "budget", "budget", "budget"]
FAILED = {
    "contradiction": "infeasible",
    "boundless": "not attained",
}


@pytest.fixture(scope="module")
def problem():
    return parse_problem(SMALL)


@pytest.fixture(scope="module")
def result(problem):
    return run_variants(problem)


def market_of(problem, name, position=0):
    variant = next(item for item in problem.variants if item.name == name)
    return variant.markets[position].build(problem.run.seed)


def test_one_row_for_each_market(result):
    assert list(result.tables["points"].variant) == [
        *FOUND,
        "contradiction",
        "boundless",
        "bad solver",
    ]
    assert list(result.tables["points"].value.dropna()) == [5, 20, 40]
    assert len(result.tables["sellers"]) == 20 * len(FOUND)


def test_failures_are_rows_with_their_message(result):
    rows = result.tables["points"].set_index("variant")
    for name, status in FAILED.items():
        assert rows.status[name] == status
        assert rows.message[name]
        assert np.isnan(rows.objective[name])
    assert rows.status["bad solver"] not in ("solved", "infeasible")
    assert "NO_SUCH_SOLVER" in rows.message["bad solver"]
    assert "0.01" in rows.message["contradiction"]


@pytest.mark.parametrize("name", ["plain", "fair", "square"])
def test_a_row_is_what_python_finds(problem, result, name):
    market = market_of(problem, name)
    found = cm.allocate(market, solver="CLARABEL", gap=1e-5)
    row = result.tables["points"].set_index("variant").loc[name]
    assert row.objective == pytest.approx(found.objective, rel=1e-9)
    assert row.lower_bound <= row.objective * (1 + 1e-12)
    assert row.gap <= 1e-5
    assert row.eta == pytest.approx(1 / row.noise)
    assert row.spread == pytest.approx(np.linalg.norm(found.weights))
    assert row.n_bought == found.n_bought
    paid = market.sellers.virtual_costs @ market.privacy_cost(found.epsilon)
    assert row.expected_payments == pytest.approx(paid)
    gamma = market.objective.weight_of(cm.Payments)
    assert row.objective == pytest.approx(row.error + gamma * paid, rel=1e-9)
    assert row.incentives == market.incentives
    assert row.reason == market.incentives.reason


def test_the_constraint_holds_and_costs(result):
    rows = result.tables["points"].set_index("variant")
    shares = result.tables["groups"].set_index(["variant", "group"]).share_of_weight
    assert shares["fair"]["land"] == pytest.approx(0.4, abs=1e-6)
    assert shares["plain"]["land"] < 0.4
    assert rows.objective["fair"] > rows.objective["plain"]
    sums = result.tables["groups"].groupby(["variant", "value"], dropna=False).share_of_weight.sum()
    np.testing.assert_allclose(sums, 1.0)


def test_budgets_are_spent_and_not_exceeded(result):
    rows = result.tables["points"][result.tables["points"].variant == "budget"]
    np.testing.assert_allclose(rows.expected_payments, rows.value, rtol=1e-5)
    assert (rows.expected_payments <= rows.value * (1 + 1e-9)).all()
    assert rows.error.is_monotonic_decreasing


def test_a_compiled_sweep_finds_what_single_solves_find(problem, result):
    rows = result.tables["points"][result.tables["points"].variant == "budget"]
    alone = [cm.allocate(market_of(problem, "budget", k), gap=1e-5).objective for k in range(3)]
    np.testing.assert_allclose(rows.objective, alone, rtol=2e-5)


def test_one_impossible_value_of_a_sweep_does_not_spoil_the_others():
    changes = """objective={payments=false}, constraints={eta_range=[1.0, 50.0]},
        sweep={key="constraints.budget", values=[0.1, 40]}""".replace("\n", "")
    result = run_variants(parse_problem(SMALL, [f'variants=[{{name="x", {changes}}}]']))
    assert list(result.tables["points"].status) == ["infeasible", "solved"]


def test_the_papers_problem_is_paid_exactly():
    settings = ["sellers={count=15}", 'variants=[{name="papers"}]', "audit.sellers=15"]
    problem = parse_problem(SMALL, settings)
    result = run_variants(problem)
    market = market_of(problem, "papers")
    expected = cm.payments(market, cm.allocate(market))
    np.testing.assert_allclose(result.tables["sellers"].payment, expected)
    (row,) = result.tables["points"].itertuples()
    assert (row.payments, row.payments_error) == (pytest.approx(expected.sum()), 0.0)
    (audit,) = result.tables["audits"].itertuples()
    assert audit.sellers_audited == 15
    assert audit.incentive_compatible
    assert audit.individually_rational


def test_other_markets_are_paid_and_audited_where_the_file_asks():
    settings = [
        "sellers={count=4}",
        "solve.gap=1e-8",
        "payments={tol=0.001}",
        "audit={sellers=2, misreports=2}",
        'variants=[{name="cubic", objective={spread={p=3}}}]',
    ]
    problem = parse_problem(SMALL, settings)
    result = run_variants(problem)
    (row,) = result.tables["points"].itertuples()
    market = market_of(problem, "cubic")
    expected = cm.incentives.estimate_payments(market, cm.allocate(market, gap=1e-8))
    assert row.payments == pytest.approx(expected.amounts.sum(), rel=2e-3)
    assert 0 < row.payments_error < 0.01 * row.payments
    assert row.payments_method == "envelope"
    (audit,) = result.tables["audits"].itertuples()
    assert audit.sellers_audited == 2
    assert audit.incentive_compatible
    assert audit.max_rise == 0


def test_a_budget_is_not_paid_unless_the_file_asks_and_says_why(problem, result):
    rows = result.tables["points"][result.tables["points"].variant == "budget"]
    assert rows.payments.isna().all()
    for position, row in enumerate(rows.itertuples()):
        verdict = market_of(problem, "budget", position).incentives
        assert (row.incentives, row.reason) == (verdict, verdict.reason)


def test_sellers_with_the_rounding_of_a_solver_are_not_bought_from():
    """An interior point leaves weights of 1e-10 where none belongs."""
    changes = (
        "objective={payments=false}, constraints={cap=1.5}, "
        'sweep={key="constraints.budget", values=[0.3, 0.5, 1, 2, 5]}'
    )
    settings = ["sellers={count=60}", f'variants=[{{name="x", {changes}}}]']
    result = run_variants(parse_problem(SMALL, settings))
    for row in result.tables["points"].itertuples():
        weights = result.tables["sellers"].weight[result.tables["sellers"].value == row.value]
        assert row.n_bought == (weights * 60 > 1e-6).sum()
        assert row.n_bought < 60


@pytest.mark.campaign
def test_an_ironed_prior_is_tabulated_once():
    prior = (
        '{family="mixture", weights=[0.5, 0.5], components=['
        '{family="truncnorm", mean=1.5, std=0.4, low=1, high=6}, '
        '{family="truncnorm", mean=4.5, std=0.4, low=1, high=6}]}'
    )
    settings = ["sellers={count=10}", f"prior={prior}", 'variants=[{name="a"}, {name="b"}]']
    found = run_variants(parse_problem(SMALL, settings)).tables["virtual_costs"]
    assert set(found.variant) == {"a"}
    assert set(found.group) == {""}
    assert not found.regular.any()
    assert (found.density > 0).all()
    assert found.ironed.is_monotonic_increasing
    assert not found.raw.is_monotonic_increasing


def test_regular_priors_are_tabulated_beside_an_ironed_one_and_not_alone(result):
    assert result.tables["virtual_costs"].empty
    prior = (
        '{family="mixture", weights=[0.5, 0.5], components=['
        '{family="uniform", low=1, high=3}, {family="uniform", low=2, high=6}]}'
    )
    settings = [f'variants=[{{name="each"}}, {{name="all", sellers={{count=9}}, prior={prior}}}]']
    found = run_variants(parse_problem(SMALL, settings)).tables["virtual_costs"]
    tabulated = found.drop_duplicates(["variant", "group"])
    assert list(zip(tabulated.variant, tabulated.group, tabulated.regular, strict=True)) == [
        ("each", "town", True),
        ("each", "land", True),
        ("all", "", False),
    ]
    regular = found[found.regular]
    np.testing.assert_allclose(regular.raw, regular.ironed)


@pytest.mark.campaign
def test_the_same_for_any_number_of_jobs(result, two_jobs):
    again = run_problem(parse_problem(SMALL, [two_jobs]))
    for name in ("points", "groups", "sellers", "audits"):
        left, right = result.tables[name], again.tables[name]
        pd.testing.assert_frame_equal(
            left.drop(columns="seconds", errors="ignore"),
            right.drop(columns="seconds", errors="ignore"),
        )
