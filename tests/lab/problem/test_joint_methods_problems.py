"""Problem files of kind "joint-methods": what they say, and what is refused."""

import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.joint_methods.problem import JointMethodsProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.problem.builders import for_each

BASE = """
kind = "joint-methods"
title = "Two sellers"
[prior]
family = "uniform"
low = 0.1
high = 0.5
[[groups]]
name = "one"
data = { source = "synthetic", n_sellers = 10, n_features = 2 }
mu = 1.0
sigma = 10.0
gamma = 0.1
convexity = 0.5
"""
SHIPPED = PROBLEMS / "joint-methods.toml"
GROUP = "name='a', mu=1.0, sigma=1.0, gamma=1.0"
ROWS = "data={source='synthetic', n_sellers=10, n_features=2}"


def refusal(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(BASE, overrides, path="my.toml")
    return str(caught.value).removeprefix("my.toml: ")


def test_every_method_runs_where_the_file_names_none():
    problem = parse_problem(BASE)
    methods = problem.methods_of(problem.groups[0])
    assert [method.method for method in methods] == [
        "alternating",
        "exponential",
        "nlp",
        "projected_gradient",
    ]
    assert [method.isolated for method in methods] == [False, False, True, False]
    assert all(method.options == {} for method in methods)


def test_options_are_those_that_the_file_gives():
    methods = "methods=[{name='a', method='alternating', solver='CLARABEL', starts=2}, "
    methods += "{name='p', method='projected_gradient', grid=7, step=0.5}]"
    first, second = parse_problem(BASE, [methods]).methods
    assert (first.starts, first.options) == (2, {"solver": "CLARABEL"})
    assert (second.starts, second.options) == (None, {"grid": 7, "step": 0.5})


def test_a_group_names_its_methods_and_they_keep_the_order_of_the_file():
    groups = f"groups=[{{{GROUP}, {ROWS}, convexity=0.5, methods=['nlp', 'alternating']}}]"
    problem = parse_problem(BASE, [groups])
    assert [m.name for m in problem.methods_of(problem.groups[0])] == ["alternating", "nlp"]


def test_a_dump_is_a_problem_again():
    dump = load_problem(SHIPPED).model_dump(mode="json")
    assert JointMethodsProblem.model_validate(dump).model_dump(mode="json") == dump


def test_the_shipped_file_asks_for_both_sides_of_the_region():
    problem = load_problem(SHIPPED)
    inside = [g for g in problem.groups if g.convexity is not None and g.convexity < 1]
    assert sum(group.instances for group in inside) >= 50
    assert {group.spread for group in inside} == {"norm", "squared"}


@for_each(
    [
        ("run.time_limit=0", "run.time_limit must be greater than 0, got 0"),
        ("run.restarts=1", "run.restarts must be greater than or equal to 2, got 1"),
        ("joint.noise='none'", "joint.noise is 'none'"),
        ("groups=[]", "groups must have more entries, got []"),
        (f"groups=[{{{GROUP}, {ROWS}}}]", "groups[0]: give either regularization (Lambda) or"),
        (
            f"groups=[{{{GROUP}, {ROWS}, convexity=0.5, regularization=1.0}}]",
            "groups[0]: give either regularization (Lambda) or convexity",
        ),
        (
            f"groups=[{{{GROUP}, {ROWS}, convexity=0.5, spred='norm'}}]",
            "groups[0].spred is not a known key; did you mean 'spread'?",
        ),
        (
            f"groups=[{{{GROUP}, {ROWS}, convexity=0.5, "
            "sizes={n_sellers=[9, 5], n_features=[2, 2]}}]",
            "groups[0].sizes: n_sellers goes from 9 to 5; give [low, high]",
        ),
        (
            f"groups=[{{{GROUP}, data={{source='wdbc'}}, convexity=0.5, "
            "sizes={n_sellers=[5, 9], n_features=[2, 2]}}]",
            'groups[0]: sizes are those of synthetic data, not of "wdbc"',
        ),
        (
            f"groups=[{{{GROUP}, {ROWS}, convexity=1.0}}, {{{GROUP}, {ROWS}, convexity=1.0}}]",
            "two groups are named 'a'; give each its own name",
        ),
        (
            f"groups=[{{{GROUP}, {ROWS}, convexity=1.0, methods=['nls']}}]",
            "the group 'a' names the method 'nls', which is not one of 'alternating'",
        ),
        (
            "methods=[{name='a', method='newton'}]",
            "methods[0].method is 'newton'; known are 'alternating'",
        ),
        (
            "methods=[{name='a', method='alternating', grid=3}]",
            "methods[0].grid is not a known key; known are",
        ),
        (
            "methods=[{name='a', method='nlp'}, {name='a', method='nlp'}]",
            "two methods are named 'a'; give each its own name",
        ),
    ],
)
def test_mistakes_are_named(override, said):
    assert said in refusal(override)
