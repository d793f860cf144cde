"""Methods of the joint problem side by side: rows are what Python finds, failures are rows."""

import signal

import numpy as np
import pandas as pd
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from convexmarket.lab import run_problem
from convexmarket.lab.kinds.joint_methods import run as joint_methods
from convexmarket.lab.kinds.joint_methods.claims import joint_methods_claims
from convexmarket.lab.kinds.joint_methods.run import run_joint_methods
from convexmarket.lab.problem.loading import parse_problem

SMALL = """
kind = "joint-methods"
title = "Small"
[prior]
family = "uniform"
low = 0.02
high = 0.1
[joint]
starts = 2
[run]
jobs = 1
restarts = 2
[[methods]]
name = "alternating"
method = "alternating"
[[methods]]
name = "apart"
method = "alternating"
isolated = true
[[methods]]
name = "grid"
method = "projected_gradient"
grid = 4
[[methods]]
name = "bad solver"
method = "alternating"
solver = "NO_SUCH_SOLVER"
[[groups]]
name = "squared"
instances = 2
sizes = { n_sellers = [8, 15], n_features = [2, 3] }
data = { source = "synthetic", n_sellers = 8, n_features = 2, data_seed = 5 }
spread = "squared"
mu = 10.0
sigma = 10.0
gamma = 0.1
convexity = 0.5
[[groups]]
name = "norm"
data = { source = "synthetic", n_sellers = 12, n_features = 2 }
mu = 0.3
sigma = 10.0
gamma = 0.1
cap = 3.0
regularization = 0.05
"""
TIMED = ["seconds", "time_ratio"]


@pytest.fixture(scope="module")
def problem():
    return parse_problem(SMALL)


@pytest.fixture(scope="module")
def result(problem):
    return run_joint_methods(problem)


def rows(result, name, group=None):
    found = result.tables["runs"][result.tables["runs"].name == name]
    return found if group is None else found[found.group == group]


def test_a_row_for_each_method_and_instance(result):
    assert len(result.tables["runs"]) == 4 * 3
    assert list(result.tables["instances"].group) == ["squared", "squared", "norm"]
    assert list(result.tables["instances"].inside) == [True, True, False]
    assert len(result.tables["descents"]) == 2 * 3


def test_lambda_is_chosen_for_the_ratio(result):
    squared = result.tables["instances"][result.tables["instances"].group == "squared"]
    np.testing.assert_allclose(squared.convexity, 0.5)
    # sigma_max^2/(2*Lambda*mu) is the ratio
    np.testing.assert_allclose(squared.regularization, squared.sigma_max_squared / (2 * 10 * 0.5))
    assert squared.n_sellers.between(8, 15).all()
    (norm,) = result.tables["instances"][result.tables["instances"].group == "norm"].itertuples()
    assert norm.regularization == 0.05
    assert norm.convexity > 1
    assert norm.paper_certifies is None


def test_a_row_is_what_python_finds(problem, result):
    instance = joint_methods._instance(problem, (1, 0))
    assert instance.joint.X.shape == (12, 2)
    rng = instance.rng(joint_methods._STARTS)
    found = cm.allocate_jointly(instance.joint, starts=2, random_state=rng)
    (row,) = rows(result, "alternating", "norm").itertuples()
    assert row.objective == found.objective
    assert row.residual == found.residual
    assert row.steps == len(found.trace)
    assert row.certificate == found.status
    assert row.starts == len(found.starts) == 2


def test_excess_is_over_the_best_of_all_and_over_the_bound(result):
    solved = result.tables["runs"][result.tables["runs"].status == "solved"].merge(
        result.tables["instances"], on=["group", "instance"], suffixes=("", "_known")
    )
    assert (solved.excess >= 0).all()
    best = solved.groupby(["group", "instance"]).objective.transform("min")
    np.testing.assert_allclose(solved.excess, (solved.objective - best) / best, atol=1e-15)
    np.testing.assert_allclose(solved.best, best)
    proved = rows(result, "alternating", "squared")
    assert list(proved.certificate) == ["global", "global"]
    assert (proved.over_bound.between(0, 1e-7)).all()
    assert rows(result, "alternating", "norm").over_bound.isna().all()
    assert (rows(result, "grid").excess > 1e-6).all(), "the best eta is not on the grid"


def test_a_process_of_its_own_changes_nothing(result):
    columns = [name for name in result.tables["runs"] if name not in (*TIMED, "name")]
    here, apart = (rows(result, name)[columns] for name in ("alternating", "apart"))
    pd.testing.assert_frame_equal(here.reset_index(drop=True), apart.reset_index(drop=True))


def test_failures_are_rows_with_their_message(result):
    failed = rows(result, "bad solver")
    assert (failed.status != "solved").all()
    assert failed.message.str.contains("NO_SUCH_SOLVER").all()
    assert failed.objective.isna().all()
    assert failed.time_ratio.isna().all()


def test_a_method_without_end_is_timed_out_and_the_others_go_on():
    found = run_joint_methods(parse_problem(SMALL, ["run.time_limit=0.001"])).tables["runs"]
    assert set(found[found.name == "apart"].status) == {"timed out"}
    assert found[found.name == "apart"].message.str.contains("0.001 seconds").all()
    assert set(found[found.name == "alternating"].status) == {"solved"}


def test_a_process_that_dies_is_a_row():
    row = joint_methods._isolated(signal.raise_signal, signal.SIGKILL, seconds=60.0)
    assert row["status"] == "crashed"
    assert "exit code -9" in row["message"]


def test_a_missing_package_is_a_row(monkeypatch):
    def missing():
        raise NotSupportedError("pip install unopy")

    monkeypatch.setattr(joint_methods, "check_nonlinear_solver", missing)
    methods = "methods=[{name='nlp', method='nlp'}, {name='alternating', method='alternating'}]"
    found = run_joint_methods(parse_problem(SMALL, [methods])).tables["runs"]
    absent = found[found.name == "nlp"]
    assert set(absent.status) == {"absent"}
    assert set(absent.message) == {"pip install unopy"}
    assert set(found[found.name == "alternating"].status) == {"solved"}


def test_descents_are_compared_at_the_best_eta(result):
    assert (
        result.tables["descents"].groupby(["group", "instance"]).model_distance.min() == 0
    ).all()
    inside = result.tables["descents"][result.tables["descents"].group == "squared"]
    assert (inside.excess.abs() < 1e-9).all()
    assert len(set(inside.model_distance)) > 1, "the descents start from different models"


def test_claims_follow_from_the_tables(result):
    agree, point, condition = result.claims
    assert agree.source == "our design"
    assert agree.verdict == "reproduced in part", "the grid alone misses the best eta"
    assert "grid of η" in agree.remark
    assert point.source.startswith("A, after Theorem VIII.1")
    assert "of 2 instances with the squared spread" in condition.found

    def claims(**changes):
        tables = {
            "runs": result.tables["runs"],
            "instances": result.tables["instances"],
            "descents": result.tables["descents"],
        }
        return list(joint_methods_claims(**(tables | changes)))

    # Had a method other than that on the grid been off, it would be named.
    wrong = result.tables["runs"].copy()
    wrong.loc[wrong.name == "apart", "excess"] = 1e-3
    off = claims(runs=wrong)[0]
    assert off.verdict == "not reproduced"
    assert "apart by 1.0e-03 on instance 0 of squared" in off.remark
    # Without the grid everybody agrees.
    exact = claims(runs=result.tables["runs"][result.tables["runs"].name != "grid"])[0]
    assert (exact.verdict, exact.remark) == ("reproduced", "")
    # Descents that end apart outside the region, and inside.
    for group, verdict in (("norm", "reproduced in part"), ("squared", "not reproduced")):
        apart = result.tables["descents"].copy()
        apart.loc[(apart.group == group) & (apart.start == 1), "objective"] *= 1.01
        assert claims(descents=apart)[1].verdict == verdict
    # The paper's condition needs a larger Lambda than ours, unless sigma_max^2 is m.
    known = result.tables["instances"].copy()
    known["paper_certifies"] = True
    assert claims(instances=known)[2].verdict == "not reproduced"


@pytest.mark.campaign
def test_the_same_for_any_number_of_jobs(result, two_jobs):
    settings = [two_jobs, "methods=[{name='alternating', method='alternating'}]"]
    again = run_problem(parse_problem(SMALL, settings))
    pd.testing.assert_frame_equal(
        rows(result, "alternating").drop(columns=TIMED).reset_index(drop=True),
        again.tables["runs"].drop(columns=TIMED),
    )
    pd.testing.assert_frame_equal(result.tables["instances"], again.tables["instances"])
    columns = ["group", "instance", "start", "objective", "model_distance"]
    pd.testing.assert_frame_equal(
        result.tables["descents"][columns], again.tables["descents"][columns]
    )


def test_realised_noise_is_drawn_for_each_instance():
    settings = ['joint.noise="realised"', "joint.max_norm=0.1"]
    problem = parse_problem(SMALL, settings)
    first, second = (joint_methods._instance(problem, (0, k)).joint for k in (0, 1))
    assert first.noise == "realised"
    assert np.linalg.norm(first.noise_vector) != np.linalg.norm(second.noise_vector)
