"""The joint problem over gamma: every row is what Python would have found; failures are rows."""

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import SolverError
from convexmarket.joint.model_step import best_model
from convexmarket.lab import run_problem
from convexmarket.lab.claims import check_shape, paired_change
from convexmarket.lab.kinds.joint_tradeoff import purchases as joint_purchases
from convexmarket.lab.kinds.joint_tradeoff.claims import compare_models, tradeoff_claims
from convexmarket.lab.kinds.joint_tradeoff.run import run_joint_tradeoff
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.problem.rows import load_rows
from convexmarket.privacy.exact import gamma_sphere_draw

SMALL = """
kind = "joint-tradeoff"
title = "Small"
[data]
source = "synthetic"
n_sellers = 15
n_features = 3
n_validation = 40
n_test = 40
[prior]
family = "uniform"
low = 0.02
high = 0.10
[sellers]
scenarios = ["independent", "correlated"]
[objective]
gamma = [1.0, 0.01]
mu = [1.0]
sigma = [1.0, 10.0]
[joint]
starts = 2
[learner]
regularization = [0.05, 0.2]
draws = 3
[naive]
eta_range = [5.0, 50.0]
grid = 2
[run]
jobs = 1
"""
KEY = ["scenario", "model", "gamma"]
ONE = ["sellers.scenarios=['independent']", "objective.gamma=[0.1]", "objective.sigma=[1.0]"]


@pytest.fixture(scope="module")
def problem():
    return parse_problem(SMALL)


@pytest.fixture(scope="module")
def result(problem):
    return run_joint_tradeoff(problem)


def sellers_of(result, scenario):
    sellers = result.tables["sellers"]
    table = sellers[sellers.scenario == scenario].drop_duplicates("id")
    return cm.Sellers(table.sensitivity, prior=result.problem.prior)


def market_of(result, row, spread=cm.Spread):
    terms = row.mu * spread() + row.sigma * cm.Noise() + row.gamma * cm.Payments()
    ranges = [cm.EtaRange(row.eta, row.eta)] if row.model == "naive" else []
    return cm.Market(sellers_of(result, row.scenario), terms, ranges)


def noise_of(problem, rows, draw):
    seed = np.random.SeedSequence(problem.run.seed, spawn_key=(1, draw))
    return gamma_sphere_draw(rows.X_train.shape[1], np.random.default_rng(seed))


def test_one_row_for_each_model_gamma_and_scenario(result):
    assert len(result.tables["curve"]) == 2 * 3 * 2
    assert not result.tables["curve"].duplicated(KEY).any()
    assert len(result.tables["candidates"]) == 2 * 2 * (2 * 2 + 2 * 2 + 2 * 2)
    assert result.tables["candidates"].chosen.sum() == len(result.tables["curve"])
    assert len(result.tables["draws"]) == 3 * len(result.tables["curve"])
    assert len(result.tables["sellers"]) == 15 * len(result.tables["curve"])


@pytest.mark.parametrize("position", range(12))
def test_a_row_is_what_python_finds(problem, result, position):
    rows = load_rows(problem.data)
    row = result.tables["curve"].iloc[position]
    at = (result.tables["sellers"][KEY] == row[KEY]).all(axis=1)
    bought = result.tables["sellers"][at]
    market = market_of(result, row)
    joint = cm.JointMarket(market, rows.X_train, rows.y_train, regularization=row.regularization)
    if row.model == "two-step":
        found = cm.allocate(market)
        assert row.status == "global"
        assert row.guarantee_max >= row.epsilon_max / 2  # a row pulls with at least half its weight
    elif row.model == "joint":
        found = cm.allocate_jointly(joint, starts=2)
        assert row.residual < 1e-6
        assert row.convexity_ratio == pytest.approx(cm.joint.convexity_ratio(joint))
        assert np.isnan(row.guarantee_max)
        np.testing.assert_allclose(bought.loss, joint.losses(found.model), rtol=1e-4)
    else:
        found = cm.allocate_jointly(joint)
        assert row.n_bought == 1
        assert row.binding == "eta_low, eta_high"
        assert row.sigma == row.mu == 0
    assert row.objective == pytest.approx(found.objective, rel=1e-6)
    np.testing.assert_allclose(bought.weight, found.weights, atol=1e-4)
    paid = market.sellers.virtual_costs @ bought.epsilon
    assert row.payments == pytest.approx(paid)
    errors = []
    for draw in range(3):
        perturbed = cm.JointMarket(
            market,
            rows.X_train,
            rows.y_train,
            regularization=row.regularization,
            noise="realised",
            noise_vector=noise_of(problem, rows, draw),
        )
        model = best_model(perturbed, bought.weight.to_numpy(), row.eta)
        errors.append(np.mean(np.sign(rows.X_test @ model) != rows.y_test))
    drawn = result.tables["draws"][(result.tables["draws"][KEY] == row[KEY]).all(axis=1)]
    np.testing.assert_allclose(drawn.test_error, errors)
    assert row.error_mean == pytest.approx(np.mean(errors))
    assert row.overall_mean == pytest.approx(np.mean(errors) + row.gamma * paid)


def test_the_validation_rows_choose(result):
    for key, tried in result.tables["candidates"].groupby(KEY):
        (chosen,) = tried[tried.chosen].itertuples()
        assert chosen.validation_overall == tried.validation_overall.min()
        expected = chosen.validation_error + key[2] * chosen.payments
        assert chosen.validation_overall == pytest.approx(expected)


def test_with_a_cap_the_naive_model_buys_from_several():
    settings = [*ONE, "objective.cap=4", "learner.regularization=[0.2]", "data.n_sellers=12"]
    settings += ["joint.starts=1", "naive.grid=1"]
    result = run_joint_tradeoff(parse_problem(SMALL, settings))
    naive = result.tables["curve"][result.tables["curve"].model == "naive"].iloc[0]
    weights = result.tables["sellers"][result.tables["sellers"].model == "naive"].weight
    assert naive.n_bought >= 3
    assert weights.max() <= 4 / 12 * (1 + 1e-6)
    assert naive.status == "best of several starts"


def test_a_squared_spread_is_another_market():
    settings = [*ONE, "objective.spread='squared'", "learner.regularization=[0.2]"]
    result = run_joint_tradeoff(parse_problem(SMALL, settings))
    row = result.tables["curve"][result.tables["curve"].model == "two-step"].iloc[0]
    expected = cm.allocate(market_of(result, row, cm.terms.SquaredSpread)).objective
    assert row.objective == pytest.approx(expected)
    assert expected != pytest.approx(cm.allocate(market_of(result, row)).objective)


def test_a_convex_problem_is_certified():
    settings = [*ONE, "objective.spread='squared'", "objective.mu=[100]"]
    settings += ["learner.regularization=[1.0]"]
    result = run_joint_tradeoff(parse_problem(SMALL, settings))
    row = result.tables["curve"][result.tables["curve"].model == "joint"].iloc[0]
    assert row.convexity_ratio < 1
    assert row.status == "global"
    assert row.lower_bound == pytest.approx(row.objective, rel=1e-6)


def test_an_eta_range_that_decides_is_said():
    settings = [*ONE, "objective.eta_range=[40, 60]", "learner.regularization=[0.2]"]
    result = run_joint_tradeoff(parse_problem(SMALL, settings))
    row = result.tables["curve"][result.tables["curve"].model == "joint"].iloc[0]
    assert row.eta == pytest.approx(40)
    assert row.binding == "eta_low"


def test_a_failed_solve_is_a_row_and_the_others_go_on(monkeypatch):
    def broken(joint, **options):
        if joint.sigma > 0:
            raise SolverError("no luck today")
        return cm.allocate_jointly(joint, **options)

    monkeypatch.setattr(joint_purchases, "allocate_jointly", broken)
    result = run_joint_tradeoff(parse_problem(SMALL, ["sellers.scenarios=['independent']"]))
    curve, candidates = result.tables["curve"], result.tables["candidates"]
    joint = curve[curve.model == "joint"]
    assert set(joint.status) == {"solver failed"}
    assert set(joint.message) == {"no luck today"}
    assert joint.overall_mean.isna().all()
    assert curve[curve.model != "joint"].overall_mean.notna().all()
    assert not candidates[candidates.model == "joint"].chosen.any()
    assert {claim.verdict for claim in result.claims} == {"not reproduced"}
    assert result.tables["comparisons"].empty


def test_one_candidate_that_fails_leaves_the_others(monkeypatch):
    solve = joint_purchases.allocate_jointly

    def sometimes(joint, **kwargs):
        if joint.sigma == 10.0:
            raise SolverError("not this one")
        return solve(joint, **kwargs)

    monkeypatch.setattr(joint_purchases, "allocate_jointly", sometimes)
    settings = ["sellers.scenarios=['independent']", "objective.gamma=[0.1]"]
    result = run_joint_tradeoff(parse_problem(SMALL, settings))
    joint = result.tables["curve"][result.tables["curve"].model == "joint"]
    assert set(joint.sigma) == {1.0}
    assert (joint.message == "").all()
    assert (result.tables["candidates"].message == "not this one").sum() == 2


@pytest.mark.campaign
def test_the_same_for_any_number_of_jobs(two_jobs):
    few = [*ONE, "learner.regularization=[0.2]", "learner.draws=2"]
    result = run_joint_tradeoff(parse_problem(SMALL, few))
    again = run_problem(parse_problem(SMALL, [*few, two_jobs]))
    for name in ("curve", "candidates", "draws", "sellers", "comparisons"):
        pd.testing.assert_frame_equal(result.tables[name], again.tables[name])
    assert result.claims == again.claims


# ------------------------------------------------------------------------------------ the claims


def draws_of(**rows):
    """Return draws from errors and payments by scenario, model and gamma."""
    found = []
    for name, points in rows.items():
        scenario, model = name.split("_")
        for gamma, (payments, errors) in points.items():
            found += [
                {
                    "scenario": scenario,
                    "model": model.replace("twostep", "two-step"),
                    "gamma": gamma,
                    "draw": draw,
                    "payments": payments,
                    "test_error": error,
                }
                for draw, error in enumerate(errors)
            ]
    return pd.DataFrame(found)


GOOD = {0.1: (2.0, [0.10, 0.11, 0.12]), 1.0: (0.1, [0.20, 0.22, 0.21])}
DEAR = {0.1: (5.0, [0.10, 0.11, 0.13]), 1.0: (0.5, [0.20, 0.22, 0.20])}


def verdicts(draws, gammas=(1.0, 0.1), scenarios=("independent",), remarks=()):
    claims = tradeoff_claims(draws, list(gammas), list(scenarios), dict(remarks))
    return [claim.verdict for claim in claims]


def test_claims_that_hold():
    draws = draws_of(
        independent_joint=GOOD,
        independent_naive=DEAR,
        correlated_joint=GOOD,
        correlated_naive=DEAR,
    )
    scenarios = ("independent", "correlated")
    claims = tradeoff_claims(draws, [0.1, 1.0], list(scenarios), {"similar": "never shown"})
    assert [claim.verdict for claim in claims] == ["reproduced"] * 5
    assert not any(claim.remark for claim in claims)
    assert "lower at 2 of 2" in claims[1].found


def test_claims_that_fail():
    backwards = {0.1: GOOD[1.0], 1.0: GOOD[0.1]}
    draws = draws_of(
        independent_joint=backwards,
        independent_naive={0.1: (0.0, [0.0, 0.0, 0.0]), 1.0: (0.0, [0.0, 0.0, 0.0])},
        correlated_joint=DEAR,
    )
    claims = tradeoff_claims(
        draws, [0.1, 1.0], ["independent", "correlated"], {"naive_independent": "because"}
    )
    by_says = {claim.says: claim for claim in claims}
    tradeoff, naive, _, _, similar = by_says.values()
    assert tradeoff.verdict == "not reproduced"
    assert "rising at 1 of 1 steps" in tradeoff.found
    assert (naive.verdict, naive.remark) == ("not reproduced", "because")
    assert "at γ = 1: +2.11" in naive.found
    assert similar.verdict == "not reproduced"


def test_claims_that_hold_in_part():
    draws = draws_of(independent_joint=GOOD, independent_naive={0.1: DEAR[0.1], 1.0: GOOD[1.0]})
    assert verdicts(draws) == ["reproduced", "reproduced in part"]
    rising = {0.1: (0.1, GOOD[0.1][1]), 1.0: (2.0, GOOD[1.0][1])}
    assert verdicts(draws_of(independent_joint=rising))[0] == "reproduced in part"


def test_a_gamma_without_an_answer_is_not_passed_over():
    draws = draws_of(independent_joint=GOOD, independent_naive=DEAR)
    claims = tradeoff_claims(draws, [0.01, 0.1, 1.0], ["independent"], {})
    assert [claim.verdict for claim in claims] == ["reproduced in part"] * 2
    assert all("1 of 3 values of γ have no answer" in claim.found for claim in claims)
    assert verdicts(pd.DataFrame()) == ["not reproduced"] * 2


def test_one_gamma_makes_no_curve():
    draws = draws_of(independent_joint=GOOD, independent_naive=DEAR)
    assert verdicts(draws[draws.gamma == 1.0], gammas=(1.0,)) == ["reproduced"]


def test_comparisons_are_paired_over_draws():
    noisy = {1.0: (0.5, [0.1, 0.3, 0.5])}
    better = {1.0: (0.25, [0.09, 0.28, 0.49])}
    draws = draws_of(independent_joint=better, independent_twostep=noisy, independent_naive=better)
    two_step, naive = compare_models(draws).itertuples()
    assert (two_step.other, two_step.verdict) == ("two-step", "lower")
    assert two_step.error == pytest.approx(-0.04 / 3)
    assert two_step.payments == pytest.approx(-0.25)
    assert two_step.overall == pytest.approx(-0.25 - 0.04 / 3)
    assert two_step.low < two_step.overall < two_step.high < 0
    assert (naive.other, naive.verdict, naive.overall) == ("naive", "not told apart", 0.0)


def test_rounding_is_no_difference():
    values = np.array([0.1, 0.2, 0.3])
    same = paired_change(values, values + 0.7 - 0.7)
    assert (same.mean, same.low, same.high) == (0.0, 0.0, 0.0)
    moved = paired_change(values, values + 0.1)
    assert moved.low == moved.mean == moved.high == pytest.approx(0.1)
    assert moved.rises


def test_nothing_can_be_told_from_one_draw():
    change = paired_change(np.array([0.2]), np.array([0.5]))
    assert not change.rises
    assert not change.falls
    assert str(change) == "+0.3 (one draw has no interval)"
    assert check_shape(np.array([[1.0, 2.0, 3.0]]), "rises")[0] == "not reproduced"
