"""A joint problem along a sweep: draws are paired, measures honest, failures rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.joint.model_step import best_model
from convexmarket.lab.claims import check_shape
from convexmarket.lab.kinds.joint_sweep.run import MEASURES, run_joint_sweep
from convexmarket.lab.problem.loading import parse_problem
from convexmarket.lab.problem.rows import load_rows
from convexmarket.lab.result import Result
from convexmarket.privacy import gamma_sphere_noise
from tests import one_in

BASE = """
kind = "joint-sweep"
title = "A few sellers"
[data]
source = "synthetic"
n_sellers = 15
n_features = 2
n_test = 60
[prior]
family = "uniform"
low = 0.02
high = 0.10
[objective]
spread = { weight = 1.0 }
noise = { weight = 100.0 }
payments = { weight = 1.0 }
[joint]
starts = 2
[run]
seed = 3
jobs = 1
[sweep]
label = "μ"
draws = 3
"""
MU = "values.objective.spread.weight = [0.1, 1.0, 10.0]\n"
CLAIMS = """
[[claims]]
source = "nobody"
says = "n_bought rises"
measure = "n_bought"
shape = "rises"
remark = "because"
[[claims]]
source = "nobody"
says = "the loss falls"
measure = "empirical_loss"
shape = "falls"
"""
PUBLISHED = """
values.constraints.eta_range = [[0.5, 1000.0], [5.0, 1000.0]]
"""


def run(sweep: str = MU + CLAIMS, *overrides: str) -> Result:
    return run_joint_sweep(parse_problem(BASE + sweep, overrides))


def branch(seed: int, purpose: int, draw: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(purpose, draw)))


@pytest.fixture(scope="module")
def result() -> Result:
    return run()


def test_there_is_a_row_for_every_point_and_draw(result):
    assert len(result.tables["draws"]) == 9
    assert list(result.tables["points"].x) == [0.1, 1.0, 10.0]
    assert list(result.tables["points"]["objective.spread.weight"]) == [0.1, 1.0, 10.0]
    assert (result.tables["points"].solved == 3).all()
    assert result.tables["draws"][list(MEASURES)].notna().all(axis=None)
    assert len(result.certificates) == 9
    assert not result.tables["points"].eta_fixed.any()


def test_points_are_means_and_standard_errors(result):
    for name in MEASURES:
        groups = result.tables["draws"].groupby("point")[name]
        np.testing.assert_allclose(result.tables["points"][name], groups.mean())
        np.testing.assert_allclose(
            result.tables["points"][f"{name}_se"], groups.std(ddof=1) / np.sqrt(3), atol=1e-15
        )


@pytest.mark.parametrize("noise", one_in(2, ["expected", "realised", "worst-case"]))
def test_measures_are_those_of_the_library(noise):
    check_measures(noise, MU.replace(", 10.0]", "]"), "sweep.draws=2")


def check_measures(noise, sweep, *overrides):
    draw, point = 1, 1
    overrides = [f"joint.noise={noise!r}", "constraints.eta_range=[50.0, 80.0]", *overrides]
    problem = parse_problem(BASE + sweep, overrides)
    row = (
        run_joint_sweep(problem)
        .tables["draws"]
        .query(f"point == {point} and draw == {draw}")
        .iloc[0]
    )
    rows = load_rows(problem.data)
    m, n = rows.X_train.shape
    prior = cm.Uniform(0.02, 0.10)
    sellers = cm.Sellers(prior.quantile(branch(3, 0, draw).random(m)), prior)
    objective = 1.0 * cm.Spread() + 100.0 * cm.Noise() + 1.0 * cm.Payments()
    market = cm.Market(sellers, objective, [cm.EtaRange(50, 80)])
    b = gamma_sphere_noise(n, branch(3, 2, draw))
    data = (market, rows.X_train, rows.y_train)
    realised = cm.JointMarket(*data, regularization=0.01, noise="realised", noise_vector=b)
    joint = realised
    if noise != "realised":
        joint = cm.JointMarket(*data, regularization=0.01, noise=noise)
    found = cm.allocate_jointly(joint, starts=2, random_state=branch(3, 3, draw))
    released = best_model(realised, found.weights, found.eta)
    if noise == "realised":
        np.testing.assert_allclose(released, found.model, rtol=1e-6)
    assert row.status == found.status
    assert row.binding == ", ".join(found.binding)
    losses = np.log1p(np.exp(-rows.y_train * (rows.X_train @ released)))
    wrong = np.sign(rows.X_test @ released) != rows.y_test
    expected = {
        "objective": found.objective,
        "eta": found.eta,
        "two_step_eta": cm.allocate(market).eta,
        "n_bought": found.n_bought,
        "weight_variance": np.var(found.weights),
        "two_step_weight_variance": np.var(cm.allocate(market).weights),
        "expected_payments": sellers.virtual_costs @ found.epsilon,
        "test_error": wrong.mean(),
        "empirical_loss": found.weights @ losses,
        "mean_loss": losses.mean(),
    }
    for name, value in expected.items():
        np.testing.assert_allclose(row[name], value, rtol=1e-6, err_msg=name)


def test_draws_are_paired():
    """With equal weights and a given eta nothing but eta differs between points."""
    sweep = "values.constraints.eta_range = [[5.0, 5.0], [50.0, 50.0], [500.0, 500.0]]\n"
    found = run(sweep, "constraints.cap=1", "joint.noise='realised'")
    assert found.tables["points"].eta_fixed.all()
    np.testing.assert_allclose(found.tables["draws"].eta, found.tables["draws"].x)
    np.testing.assert_array_equal(found.tables["draws"].weight_variance, 0.0)
    noiseless = found.tables["draws"].pivot(
        index="draw", columns="point", values="noiseless_test_error"
    )
    assert (noiseless.nunique(axis=1) == 1).all()
    payments = found.tables["draws"].assign(
        per_unit=found.tables["draws"].expected_payments / found.tables["draws"].eta
    )
    per_unit = payments.pivot(index="draw", columns="point", values="per_unit")
    np.testing.assert_allclose(per_unit[0], per_unit[2])
    assert per_unit[0].nunique() == 3, "and draws do differ"


@pytest.mark.campaign
def test_another_prior_keeps_the_ranks_of_sellers():
    sweep = 'axis = "prior variance"\nvalues.prior.low = [0.02, 0.04]\n'
    sweep += "values.prior.high = [0.10, 0.08]\n"
    found = run(sweep)
    np.testing.assert_allclose(found.tables["points"].x, [0.08**2 / 12, 0.04**2 / 12], rtol=1e-6)
    point = found.problem.sweep.points
    levels = branch(3, 0, 0).random(15)
    ranks = [np.argsort(p.market(levels, levels).sellers.sensitivities) for p in point]
    np.testing.assert_array_equal(*ranks)


@pytest.mark.campaign
def test_the_result_does_not_depend_on_the_number_of_jobs(result, two_jobs):
    again = run(MU + CLAIMS, two_jobs)
    pd.testing.assert_frame_equal(
        result.tables["draws"].drop(columns="seconds"),
        again.tables["draws"].drop(columns="seconds"),
    )
    assert result.claims == again.claims


@pytest.mark.campaign
def test_another_seed_gives_other_draws(result):
    again = run(MU + CLAIMS, "run.seed=4")
    assert (again.tables["draws"].objective != result.tables["draws"].objective).all()


def test_claims_follow_from_the_draws(result):
    rises, falls = result.claims
    values = (
        result.tables["draws"]
        .pivot(index="draw", columns="point", values="n_bought")
        .to_numpy(float)
    )
    assert (rises.verdict, rises.found) == check_shape(values, "rises")
    assert rises.verdict == "reproduced"
    assert rises.remark == "because"
    assert falls.verdict == "not reproduced"


def test_as_published_the_lower_end_of_the_range_is_the_answer():
    found = run(PUBLISHED, "joint.noise='realised'", "objective.noise.weight=1.0")
    assert (found.tables["draws"].binding == "eta_low").all()
    np.testing.assert_allclose(found.tables["draws"].eta, found.tables["draws"].x)
    assert list(found.tables["points"].eta_decided) == [3, 3]
    low, high = found.tables["points"].objective
    assert low < 10 * high < 0


def test_a_problem_without_a_minimum_is_a_row_and_the_others_go_on():
    sweep = "values.learner.regularization = [0.1, 0.2]\n"
    sweep += "values.joint.noise = ['realised', 'expected']\n"
    found = run(sweep + CLAIMS)
    failed, solved = found.tables["draws"][:3], found.tables["draws"][3:]
    assert set(failed.status) == {"not attained"}
    assert failed.message.str.contains("has no minimum").all()
    assert failed[list(MEASURES)].isna().all(axis=None)
    assert (solved.message == "").all()
    assert list(found.tables["points"].solved) == [0, 3]
    assert len(found.certificates) == 3
    for claim in found.claims:
        assert claim.verdict == "not reproduced"
        assert claim.found == "no draw has an answer at every point"


@pytest.mark.campaign
def test_guarantees_are_respected_and_drawn():
    overrides = ["guarantees={family='uniform', low=1, high=5}", "sweep.draws=2"]
    overrides += ["joint.starts=1"]
    found = run("values.learner.regularization = [0.01, 1.0]\n", *overrides)
    for draw in range(2):
        granted = 1 + 4 * branch(3, 1, draw).random(15)
        here = found.tables["draws"][found.tables["draws"].draw == draw]
        assert (here.eta <= granted.sum() * (1 + 1e-6)).all()
    assert found.tables["draws"].eta.nunique() > 1
