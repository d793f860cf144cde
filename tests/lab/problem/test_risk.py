"""mu and sigma by hand, or from how sure the bound on errors is to be."""

import jsonschema
import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab import load_problem
from convexmarket.lab.problem.loading import json_schema
from convexmarket.learners import logistic_risk_constants
from tests import PROBLEMS

FILES = {"quickstart.toml": "objective", "online-wdbc.toml": "buyer"}


def with_risk(tmp_path, name, risk, left_out=("mu", "sigma")):
    text = (PROBLEMS / name).read_text()
    table = FILES[name]
    lines = [
        line for line in text.split("\n") if not line.startswith(tuple(f"{n} =" for n in left_out))
    ]
    at = lines.index(f"[{table}]")
    lines.insert(at + 1, f"risk = {risk}")
    file = tmp_path / name
    file.write_text("\n".join(lines))
    return file


@pytest.mark.parametrize("name", FILES)
def test_risk_decides_mu_and_sigma(tmp_path, name):
    problem = load_problem(with_risk(tmp_path, name, "{ n_features = 31, max_norm = 2.0 }"))
    table = problem.buyer if name.startswith("online") else problem.objective
    mu, sigma = logistic_risk_constants(0.05, 0.05, 2.0, 31)
    assert (table.mu, table.sigma) in [(mu, sigma), ((mu,), (sigma,))]
    again = type(problem).model_validate(problem.model_dump())
    assert again.model_dump() == problem.model_dump()
    validator = jsonschema.Draft202012Validator(json_schema())
    assert not list(validator.iter_errors(problem.model_dump(mode="json", exclude_none=True)))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("risk", "left_out", "said"),
    [
        ("{ n_features = 31 }", ("sigma",), "mu follows from risk"),
        ("{ n_features = 0 }", ("mu", "sigma"), "n_features"),
        ("{ n_features = 31, failure_probability = 2 }", ("mu", "sigma"), "failure_probability"),
    ],
)
def test_one_of_both_ways(tmp_path, name, risk, left_out, said):
    with pytest.raises(ProblemFileError, match=said):
        load_problem(with_risk(tmp_path, name, risk, left_out))
