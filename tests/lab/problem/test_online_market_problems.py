"""Problem files of kind "online-market": what they say, and what is refused."""

import json
from pathlib import Path

import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.online_market.market import online_policy
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.lab.problem.loading import json_schema, load_problem, parse_problem
from convexmarket.online import AdaptivePolicy, OnlinePolicy
from convexmarket.priors import Uniform
from tests import PROBLEMS
from tests.lab.problem.builders import for_each

BASE = """
kind = "online-market"
title = "Few sellers"
[prior]
family = "uniform"
low = 1.0
high = 5.0
[buyer]
expected_sellers = 50
mu = 1.0
sigma = 2.0
gamma = 0.5
[data]
source = "synthetic"
n_sellers = 20
n_features = 2
[learner]
regularization = 0.5
"""
CSV = "data={source='csv', file='rows.csv', label='ill', classes=[0, 1], features={age=[18, 100]}"


def refusal(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(BASE, overrides, path="my.toml")
    return str(caught.value).removeprefix("my.toml: ")


def test_the_policy_is_the_one_that_the_file_describes():
    policy = online_policy(parse_problem(BASE, ["buyer.cap=3.0"]))
    assert isinstance(policy, OnlinePolicy)
    described = (policy.prior, policy.expected_sellers, policy.mu, policy.sigma, policy.gamma)
    assert described == (Uniform(1, 5), 50, 1.0, 2.0, 0.5)
    assert (policy.cap, policy.rule) == (3.0, "expectation")


def test_a_plan_that_changes_makes_an_adaptive_policy():
    settings = ["plan.replan=true", "plan.first=5", "plan.growth=2.0"]
    policy = online_policy(parse_problem(BASE, settings))
    assert isinstance(policy, AdaptivePolicy)
    assert (policy.replan, policy.learn, policy.first, policy.growth) == (True, False, 5, 2.0)
    learning = online_policy(parse_problem(BASE, ["plan.learn=true", "plan.guess_size=7"]))
    assert (learning.replan, learning.learn, learning.guess_size) == (False, True, 7)


def test_defaults_keep_what_was_sold():
    problem = parse_problem(BASE)
    assert (problem.learner.accounting, problem.learner.calibration) == ("sharp", "total")
    assert (problem.simulation.arrivals, problem.simulation.acceptance) == (None, 1.0)
    assert problem.plan.is_fixed


def test_files_are_found_from_the_problem_file():
    problem = parse_problem(BASE, [CSV + "}"], path="some/where/my.toml")
    assert problem.file(problem.data.file) == Path("some/where/rows.csv")


@pytest.mark.parametrize("name", ["online-wdbc.toml", "online-clinic/market.toml"])
def test_shipped_files_load_and_their_dump_is_a_problem_again(name):
    problem = load_problem(PROBLEMS / name)
    assert isinstance(problem, OnlineMarketProblem)
    dump = json.loads(json.dumps(problem.model_dump(mode="json")))
    assert OnlineMarketProblem.model_validate(dump).model_dump(mode="json") == dump


def test_the_schema_knows_the_kind():
    schema = json_schema()
    assert "online-market" in schema["discriminator"]["mapping"]
    tables = schema["$defs"]["OnlineMarketProblem"]["properties"]
    assert {"prior", "buyer", "plan", "data", "learner", "simulation"} <= set(tables)
    assert schema["$defs"]["OwnSellers"]["additionalProperties"] is False


@for_each(
    [
        ("buyer.expected_sellers=0", "buyer.expected_sellers must be greater than or"),
        ("buyer.expected_sellers=1.5", "buyer.expected_sellers must be a valid integer, got 1.5"),
        ("buyer.mu=0", "buyer.mu must be greater than 0, got 0"),
        ("buyer.cap=1", "buyer.cap must be greater than 1, got 1"),
        ("buyer.rule='algorithm3'", "buyer.rule is 'algorithm3'; did you mean 'algorithm-3'?"),
        ("buyer.eta_range=[1, 2]", "buyer.eta_range is not a known key"),
        ("plan.first=5", "plan: first and growth say when new plans are made"),
        ("plan={replan=true, guess_size=5}", "plan: guess_size and trust_guess are about a prior"),
        ("plan={replan=true, growth=1.0}", "plan.growth must be greater than 1, got 1.0"),
        ("simulation.acceptance=1.5", "simulation.acceptance must be less than or"),
        ("simulation.acceptance=0.0", "simulation.acceptance must be greater than 0, got 0.0"),
        ("simulation.arrivals=21", "simulation: arrivals is 21, and the data have rows of 20"),
        (
            "learner.regularization=[0.1]",
            "learner.regularization must be a valid number",
        ),
        ("data.source='cvs'", "data.source is 'cvs'; did you mean 'csv'?"),
        (CSV + ", id='ill'}", "data: the column 'ill' is named twice among id, report, label"),
        (CSV + ", report='age'}", "data: the column 'age' is report, and so no feature"),
        (CSV + ", public={test=0.2}}", "data.public is not a known key"),
        (CSV.replace("file=", "rows=") + "}", "data.rows is not a known key"),
        ("data={source='csv', classes=['a', 'a']}", "data.file is missing"),
    ],
)
def test_mistakes_are_named(override, said):
    assert said in refusal(override)


def test_a_buyer_without_a_policy():
    problem = parse_problem(BASE, ["buyer.rule='algorithm-3'"], path="my.toml")
    with pytest.raises(ProblemFileError, match=r"IV\.3") as caught:
        online_policy(problem)
    assert str(caught.value).startswith("my.toml: prior, buyer and plan make no market")
    from_zero = ["buyer.rule='algorithm-3'", "prior={family='uniform', low=0, high=5}"]
    assert online_policy(parse_problem(BASE, from_zero)).plan.eta > 0
