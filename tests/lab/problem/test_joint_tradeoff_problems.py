"""Files of kind "joint-tradeoff": defaults, and what is refused in which words."""

import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.joint_tradeoff.problem import JointTradeoffProblem
from convexmarket.lab.problem.loading import load_problem, parse_problem
from tests import PROBLEMS
from tests.lab.problem.builders import TWO_SELLERS, for_each

GOOD = TWO_SELLERS.replace("tradeoff", "joint-tradeoff")


def refusal(*overrides: str) -> str:
    with pytest.raises(ProblemFileError) as caught:
        parse_problem(GOOD, overrides, path="my.toml")
    return str(caught.value)


def test_values_and_defaults():
    problem = parse_problem(GOOD)
    assert isinstance(problem, JointTradeoffProblem)
    assert problem.objective.spread == "norm"
    assert problem.joint.noise == "expected"
    assert problem.joint.starts == 3
    assert problem.learner.draws == 15
    assert problem.naive.grid == 8
    assert problem.remarks.similar == ""


def test_a_dump_is_a_problem_again():
    dump = parse_problem(GOOD).model_dump(mode="json")
    assert JointTradeoffProblem.model_validate(dump).model_dump(mode="json") == dump


@pytest.mark.parametrize("noise", ["expected", "worst-case"])
def test_noise_that_is_not_drawn_yet(noise):
    assert parse_problem(GOOD, [f'joint.noise="{noise}"']).joint.noise == noise


def test_realised_noise_is_refused_with_the_kind_that_has_it():
    words = refusal('joint.noise="realised"')
    assert words.startswith("my.toml: joint.noise: ")
    assert "joint-sweep" in words
    assert '"expected"' in words
    assert "\n" not in words


@for_each(
    [
        ("objective.spread='cube'", "objective.spread is 'cube'"),
        ("objective.spraed='norm'", "did you mean 'spread'?"),
        ("learner.accounting='tight'", "learner.accounting is not a known key"),
        ("learner.draws=0", "learner.draws must be greater than or equal to 1, got 0"),
        ("naive.eta_range=[2, 1]", "naive.eta_range: the range is empty"),
        ("joint.starts=0", "joint.starts must be greater than or equal to 1, got 0"),
        ("remarks.nonsense='x'", "remarks.nonsense is not a known key"),
        ("sellers.sensitivities=[0.1]", "1 sensitivities for 2 rows"),
        ("sellers.sensitivities=[0.1, 2.0]", "sellers"),
        ("objective.gamma=[0.1, 0.1]", "objective.gamma: a value is listed twice"),
    ],
)
def test_errors_name_the_key(setting, words):
    message = refusal(setting)
    assert words in message
    assert "\n" not in message


def test_the_shipped_file():
    problem = load_problem(PROBLEMS / "joint-wdbc.toml")
    assert isinstance(problem, JointTradeoffProblem)
    assert problem.sellers.scenarios == ("independent", "correlated")
    assert problem.remarks.naive_independent
