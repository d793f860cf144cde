"""The cost model: what it fits, what it chooses at a size it has not seen, and what that loses."""

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.allocation import recommendation as module
from convexmarket.lab.study.costs import costs, fit_cost, predict, regrets
from convexmarket.lab.study.families import at_best_eta
from convexmarket.lab.study.markets import SearchInstance
from convexmarket.lab.study.measure import measure
from tests.lab.study.small_runs import LIMIT, frame, only, run


def _runs(**more):
    """Return SLOW, which starts quickly and grows with the square, and STEADY, which is linear."""
    of = {"SLOW": lambda n: 0.1 + (n / 1000) ** 2, "STEADY": lambda n: 1.0 + 0.5 * n / 1000}
    rows = [
        run(solver, size, seed, total_s=time(size), **more)
        for solver, time in of.items()
        for size in (100, 500, 1_000, 10_000)
        for seed in range(2)
    ]
    return frame(*rows)


def test_a_fit_is_exact_where_time_is_of_its_form():
    sizes = np.array([100, 700, 2_000, 9_000])
    for cost in ([0.3, 0.0, 2.0], [0.0, 1.0, 0.0], [1.0, 2.0, 3.0]):
        found = fit_cost(sizes, predict(cost, sizes))
        np.testing.assert_allclose(predict(found, [50_000]), predict(cost, [50_000]), rtol=1e-6)
    assert (fit_cost([100, 1_000], [2.0, 1.0]) >= 0).all()


def test_the_choice_at_a_size_not_seen_has_no_regret_where_the_model_holds():
    (row,) = regrets(_runs()).to_dict("records")
    assert (row["solver"], row["size"]) == ("STEADY", 10_000)
    assert row["regret"] == 1.0
    assert row["worst_choice"] == pytest.approx((0.1 + 100.0) / 6.0)


def test_a_choice_that_does_not_solve_costs_the_limit():
    runs = _runs()
    late = (runs.solver == "STEADY") & (runs["size"] == 10_000)
    runs.loc[late, "outcome"] = "failed"
    (row,) = regrets(runs).to_dict("records")
    assert row["regret"] == pytest.approx(max(1.0, LIMIT / 100.1))
    assert only(costs(_runs()), solver="SLOW")["quadratic"] == pytest.approx(1.0)
    assert set(costs(runs).solver) == {"SLOW"}, "who does not solve all is not recommended"


def test_with_two_sizes_nothing_is_held_out():
    runs = _runs()
    assert regrets(runs[runs["size"] <= 500]).empty


# ------------------------------------------------------------------------ recommendations


def market(n=30):
    sellers = cm.Sellers(virtual_costs=np.linspace(0.1, 0.4, n))
    return cm.Market.standard(sellers, mu=1, sigma=1, gamma=1)


def test_a_recommendation_is_the_fastest_of_those_installed(monkeypatch):
    table = {"line_search": (("primal", "CLARABEL", 0.5, 0, 0), ("projection", "GONE", 0, 0, 0),
                             ("projection", "OSQP", 0.1, 100.0, 0))}  # fmt: skip
    monkeypatch.setattr(module, "COSTS", table)
    assert cm.recommend(market(), "line_search").solver == "CLARABEL"
    few = cm.recommend(market(2), "line_search")
    assert (few.formulation, few.solver) == ("projection", "OSQP")
    assert few.seconds == pytest.approx(0.3)
    chosen = cm.allocate(market(), "line_search")
    assert (chosen.formulation, chosen.solver) == ("primal", "CLARABEL")
    assert cm.recommend(market(), "line_search", formulation="dual").solver == "CLARABEL"


def test_what_is_given_is_taken():
    exact = cm.allocate(market(), "exact")
    for given in ({}, {"formulation": "dual"}, {"solver": "OSQP"}):
        found = cm.allocate(market(), "line_search", **given)
        assert given.items() <= {"formulation": found.formulation, "solver": found.solver}.items()
        assert found.lower_bound <= exact.objective * (1 + 1e-9)
        assert found.objective == pytest.approx(exact.objective, rel=1e-6)


# -------------------------------------------------------------------------- whole searches


def test_a_whole_search_is_measured_to_its_gap():
    sellers = cm.Sellers(np.linspace(1, 5, 20), prior=cm.Uniform(1, 5))
    search = at_best_eta(cm.Market.standard(sellers, mu=1, sigma=1, gamma=1), SearchInstance)
    row = measure(search, "projection", "CLARABEL", {})
    assert row["status"] == "optimal"
    assert 0 < row["gap"] <= 1e-6
    exact = search.objective(search.exact(False), False)
    assert row["objective"] == pytest.approx(exact, rel=1e-6)
    assert 0 < row["solver_s"] <= row["total_s"]
    assert measure(search, "primal", "OSQP", {})["status"] == "unsupported"
    assert measure(search, "primal", "CLARABEL", {"max_iter": 1})["status"] == "error"


def test_a_warm_start_is_measured_beside_a_cold_one():
    sellers = cm.Sellers(np.linspace(1, 5, 20), prior=cm.Uniform(1, 5))
    fixed = at_best_eta(cm.Market.standard(sellers, mu=1, sigma=1, gamma=1))
    assert measure(fixed, "projection", "OSQP", {})["again_cold_s"] > 0
    assert pd.isna(measure(fixed, "exact", "exact", {}).get("again_cold_s"))
