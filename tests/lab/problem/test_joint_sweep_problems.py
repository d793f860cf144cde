"""Files of kind "joint-sweep": every point is a complete problem, and errors name the key."""

from __future__ import annotations

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.joint_sweep.problem import JointSweepProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.problem.builders import for_each

BASE = """
kind = "joint-sweep"
title = "A few sellers"
[data]
source = "synthetic"
n_sellers = 12
n_features = 2
n_test = 40
[prior]
family = "uniform"
low = 0.5
high = 1.5
[objective]
spread = { weight = 1.0 }
noise = { weight = 0.1 }
payments = { weight = 1.0 }
[sweep]
label = "μ"
"""
MU = "values.objective.spread.weight = [0.1, 1, 10]\n"
LEVELS = np.linspace(0.05, 0.95, 12)
SHIPPED = sorted(PROBLEMS.glob("joint-*.toml"))


def parsed(sweep: str = MU, *overrides: str) -> JointSweepProblem:
    problem = parse_problem(BASE + sweep, overrides, path="my.toml")
    assert isinstance(problem, JointSweepProblem)
    return problem


def refused(sweep: str = MU, *overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parsed(sweep, *overrides)
    return str(caught.value).removeprefix("my.toml: ")


def test_every_point_is_the_problem_with_one_thing_changed():
    problem = parsed()
    weights = [
        point.market(LEVELS, LEVELS).objective.weight_of(cm.Spread)
        for point in problem.sweep.points
    ]
    assert weights == [0.1, 1, 10]
    assert problem.sweep.axis_values == (0.1, 1.0, 10.0)
    assert problem.sweep.settings[2] == {"objective.spread.weight": 10}
    assert problem.objective["spread"].weight == 1.0
    rest = [point.model_copy(update={"objective": {}}) for point in problem.sweep.points]
    assert rest[0] == rest[1] == rest[2]


def test_a_quoted_path_is_the_same_as_nested_tables():
    quoted = parsed('values = { "objective.spread.weight" = [0.1, 1, 10] }\n')
    assert quoted.sweep.settings == parsed().sweep.settings


def test_several_keys_vary_together_and_the_axis_may_be_the_variance():
    sweep = 'axis = "prior variance"\nvalues.prior.low = [0.0, 0.5, 0.9]\n'
    problem = parsed(sweep + "values.prior.high = [2.0, 1.5, 1.1]\n")
    widths = np.array([2.0, 1.0, 0.2])
    np.testing.assert_allclose(problem.sweep.axis_values, widths**2 / 12, rtol=1e-6)
    wide, _, narrow = (p.market(LEVELS, LEVELS).sellers for p in problem.sweep.points)
    np.testing.assert_allclose(10 * (narrow.sensitivities - 1), wide.sensitivities - 1)


def test_ranges_stand_at_their_lower_end_and_may_leave_no_choice():
    problem = parsed("values.constraints.eta_range = [[1.0, 5.0], [2.0, 5.0], [5.0, 5.0]]\n")
    assert problem.sweep.axis_values == (1.0, 2.0, 5.0)
    assert [point.eta_fixed for point in problem.sweep.points] == [False, False, True]
    assert problem.sweep.points[1].market(LEVELS, LEVELS).constraints == (cm.EtaRange(2, 5),)


def test_guarantees_are_drawn_by_their_levels():
    problem = parsed(MU, 'guarantees={family="uniform", low=1, high=3}')
    (constraint,) = problem.sweep.points[0].market(LEVELS, LEVELS).constraints
    assert isinstance(constraint, cm.terms.GivenEpsilon)
    np.testing.assert_allclose(constraint.epsilon, 1 + 2 * LEVELS)


def test_a_dump_is_a_problem_again():
    problem = parsed(MU, 'guarantees={family="uniform", low=1, high=3}')
    dump = problem.model_dump(mode="json")
    again = JointSweepProblem.model_validate(dump)
    assert again.model_dump(mode="json") == dump
    assert again.sweep.points == problem.sweep.points


@for_each(
    [
        (
            "values.objective.spread.weight = [1, -1]\n",
            "sweep.values.objective.spread.weight must be greater than or equal to 0, got -1",
        ),
        (
            "values.objective.spread.wight = [1, 2]\n",
            "sweep.values.objective.spread.wight is not a known key; did you mean 'weight'?",
        ),
        ("values.objective.spred.weight = [1, 2]\n", "objective.spred.term is 'spred'; did you"),
        ("values.title = [1, 2]\n", "sweep.values.title is not a known key; known are 'data'"),
        ("values.learner.x = [1, 2]\n", "sweep.values.learner.x is not a known key; known are"),
        ("values.prior.low = [1, 2]\n", "sweep.values.prior: Uniform: low = 2"),
        ("values.constraints.cap = [2]\n", "sweep.values.constraints.cap must have"),
        (
            "values.constraints.eta_range = [[1.0, 2.0], [2.0, 1.0]]\n",
            "sweep.values.constraints.eta_range: the range is empty",
        ),
        ("values.constraints.cap = [[1, 2], [2, 1]]\n", "sweep: cap has 2 entries for 12 sellers"),
        ("values.joint.noise = ['expected', 'worst-case']\n", "'expected' has no place on an axis"),
        ("values.constraints.cap = [2, 4, 3]\n", "the points neither rise nor fall along the axis"),
        (
            MU + "values.prior.low = [0.1, 0.2]\n",
            "as many values (objective.spread.weight 3, prior",
        ),
        ("values = {}\n", "sweep.values must have more entries, got {}"),
        (
            "values = {'a.b' = [1, 2], a = {b = [1, 2]}}\n",
            "sweep.values: a.b is listed twice",
        ),
        (MU + "axis = 'variance'\n", "sweep.axis is 'variance'; did you mean 'prior variance'?"),
        (MU + "drwas = 3\n", "sweep.drwas is not a known key; did you mean 'draws'?"),
    ],
)
def test_mistakes_in_the_sweep_name_the_key(sweep, said):
    assert said in refused(sweep)


@for_each(
    [
        (
            "objective.spread.p=0.5",
            "objective.spread: p is 0.5; the spread ||a||_p needs",
        ),
        ("learner.regularization=0", "learner.regularization must be greater than 0, got 0"),
        ("joint.noise='real'", "joint.noise is 'real'; did you mean 'realised'?"),
        ("sweep.draws=0", "sweep.draws must be greater than or equal to 1, got 0"),
        ("guarantees.family='unifrm'", "guarantees: prior family 'unifrm' is unknown"),
        (
            "claims=[{source='A', says='b', measure='test_err', shape='falls'}]",
            "claims[0].measure is 'test_err'; did you mean 'test_error'?",
        ),
    ],
)
def test_mistakes_in_the_base_are_named_once(override, said):
    message = refused(MU, override)
    assert said in message
    assert "\n" not in message


def test_guarantees_are_given_once():
    said = refused(
        MU, "guarantees={family='uniform', low=1, high=2}", "constraints.given_epsilon=[1]"
    )
    assert said.startswith("constraints: given_epsilon says what [guarantees] draws")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_files_of_the_repository_are_valid(path):
    problem = load_problem(path)
    if isinstance(problem, JointSweepProblem):
        assert problem.sweep.draws >= 20
        assert problem.claims
        assert problem.notes


def test_there_are_four_of_them():
    kinds = [load_problem(path).kind for path in SHIPPED]
    assert kinds.count("joint-sweep") == 4
