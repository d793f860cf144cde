"""Files of kind "online-study": what a policy cannot be is said at once, with the key."""

from __future__ import annotations

import pytest

import convexmarket as cm
from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.online_study.problem import OnlineStudyProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.problem.builders import for_each

BASE = """
kind = "online-study"
title = "Sellers who come one by one"
[prior]
family = "uniform"
low = 0.0
high = 4.0
[buyer]
mu = 1.0
sigma = 2.0
gamma = 0.5
[study]
sizes = [100, 1000]
policies = ["expectation"]
"""
GUESS = 'guess={family="uniform", low=0.0, high=9.0}'
SHIPPED = sorted(PROBLEMS.glob("online-*.toml"))


def parsed(*overrides: str) -> OnlineStudyProblem:
    problem = parse_problem(BASE, overrides, path="my.toml")
    assert isinstance(problem, OnlineStudyProblem)
    return problem


def refused(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parsed(*overrides)
    return str(caught.value).removeprefix("my.toml: ")


def claim(**entries: str) -> str:
    told = {"source": "'A'", "says": "'b'", "measure": "'loss'", "shape": "'falls'"} | entries
    return f"claims=[{{{', '.join(f'{key}={value}' for key, value in told.items())}}}]"


def test_policies_are_those_of_the_library():
    listed = 'study.policies=["expectation", "algorithm-3", "replanned", "learnt", "guess"]'
    problem = parsed(GUESS, listed)
    buyer = {"mu": 1.0, "sigma": 2.0, "gamma": 0.5}
    true = cm.OnlinePolicy(cm.Uniform(0, 4), 500, **buyer)
    guessed = cm.OnlinePolicy(cm.Uniform(0, 9), 500, **buyer)
    closed = cm.OnlinePolicy(cm.Uniform(0, 4), 500, **buyer, rule="algorithm-3")
    expected = {
        "expectation": true,
        "algorithm-3": closed,
        "replanned": cm.online.AdaptivePolicy(true),
        "learnt": cm.online.AdaptivePolicy(guessed, learn=True),
        "guess": guessed,
    }
    assert set(problem.study.policies) == set(expected)
    for name, policy in expected.items():
        assert problem.policy(name, 500).to_dict() == policy.to_dict()


def test_the_cap_is_the_policy_s():
    capped = parsed("buyer.cap=3.0").policy("expectation", 100)
    assert capped.cap == 3.0


def test_a_dump_is_a_problem_again():
    problem = parsed(GUESS, 'study.policies=["learnt", "replanned"]', claim(policy="'learnt'"))
    dump = problem.model_dump(mode="json")
    again = OnlineStudyProblem.model_validate(dump)
    assert again.model_dump(mode="json") == dump


def test_algorithm_3_is_refused_where_its_assumption_fails():
    message = refused("prior.low=1.0", 'study.policies=["expectation", "algorithm-3"]')
    assert message.startswith("study.policies[1]: Uniform(1.0, 4.0) violates A's Assumption IV.3")
    assert 'rule="expectation"' in message


@for_each(
    [
        (
            ['study.policies=["algorithm-3"]', "buyer.cap=2.0"],
            "study.policies[0]: cap is 2, but Algorithm 3 ",
        ),
        (
            ['study.policies=["replanned", "learnt"]'],
            'study.policies[1]: "learnt" starts from a guess of the prior; give [guess]',
        ),
        (
            [GUESS, 'study.policies=["learnt"]'],
            'study.policies: "learnt" is measured against "replanned", which knows the prior',
        ),
        (
            [GUESS, 'study.policies=["guess"]'],
            'study.policies: "guess" is measured against "expectation"',
        ),
        (
            ['guess={family="uniform", low=1.0, high=9.0}'],
            "guess: the support [1, 9] of the guess does not hold all reports, which are in [0, 4]",
        ),
        (['study.policies=["learned"]'], "study.policies[0] is 'learned'; did you mean 'learnt'?"),
        (['study.policies=["expectation", "expectation"]'], "study.policies: a value is listed"),
        (["study.policies=[]"], "study.policies must have more entries, got []"),
        (["study.sizes=[100, 10]"], "study.sizes: the values do not increase"),
        (["study.sizes=[10, 10]"], "study.sizes: the values do not increase"),
        (["study.sizes=[0, 10]"], "study.sizes[0] must be greater than or equal to 1, got 0"),
        (["study.fractions=[0.5, 1.5]"], "study.fractions[1] must be less than or"),
        (["study.fractions=[0.0, 1.0]"], "study.fractions[0] must be greater than 0, got 0.0"),
        (["study.draws=1"], "study.draws must be greater than or equal to 2, got 1"),
        (["buyer.sigma=0.0"], "buyer.sigma must be greater than 0, got 0.0"),
        (["buyer.cap=1.0"], "buyer.cap must be greater than 1, got 1.0"),
        (["study.siezs=[10]"], "study.siezs is not a known key; did you mean 'sizes'?"),
        ([claim(policy="'guess'")], 'policy "guess" is not in study.policies; list it there'),
        ([claim(measure="'regret'")], 'claims[0]: "expectation" knows the prior and has no regret'),
        ([claim(over="'fractions'")], "claims[0]: study.fractions has one value; give two or more"),
        ([claim(shape="'falls as a power'")], "claims[0]: give exponent for the shape"),
        ([claim(exponent="-0.25")], "claims[0]: give exponent for the shape"),
        (
            [claim(shape="'falls as a power'", exponent="0.25")],
            "claims[0].exponent must be less than 0, got 0.25",
        ),
        (
            [
                "study.fractions=[0.5, 1.0]",
                claim(shape="'falls as a power'", exponent="-0.2", over="'fractions'"),
            ],
            "claims[0]: a power is one of the sizes; leave out over",
        ),
        ([claim(shape="'fals'")], "claims[0].shape is 'fals'; did you mean 'falls'?"),
    ],
)
def test_mistakes_name_the_key(overrides, said):
    message = refused(*overrides)
    assert said in message
    assert "\n" not in message


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_the_files_of_the_repository_are_valid(path):
    problem = load_problem(path)
    if isinstance(problem, OnlineStudyProblem):
        assert problem.study.draws >= 20
        assert problem.study.sizes[-1] == 1_000_000
        assert problem.notes


def test_there_are_five_of_them():
    kinds = [load_problem(path).kind for path in SHIPPED]
    assert kinds.count("online-study") == 5
