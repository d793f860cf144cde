"""Experiments that cannot start: without a file, and where processes cannot be forked."""

import os

import pytest

from convexmarket.errors import NotSupportedError, ProblemFileError
from convexmarket.lab.kinds.online_market.market import open_market
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
from convexmarket.lab.kinds.solver_study.run import run_solver_study
from convexmarket.lab.problem.loading import parse_problem

MARKET = """
kind = "online-market"
title = "From no file"
[prior]
family = "uniform"
low = 0.02
high = 0.10
[buyer]
expected_sellers = 40
mu = 1.0
sigma = 20.0
gamma = 0.02
[data]
source = "synthetic"
n_sellers = 40
n_features = 2
[learner]
regularization = 0.05
"""

STUDY = """
kind = "solver-study"
title = "Which is faster"
[study]
problems = ["quickstart.toml"]
"""


def test_a_market_is_opened_from_a_file_only(tmp_path):
    read = parse_problem(MARKET)
    built = OnlineMarketProblem.model_validate(read.model_dump())
    with pytest.raises(ProblemFileError, match="comes from no file; give what load_problem"):
        open_market(built, tmp_path / "market")
    assert not (tmp_path / "market").exists()


def test_a_study_needs_a_system_that_forks(monkeypatch):
    monkeypatch.delattr(os, "fork")
    with pytest.raises(NotSupportedError, match="run them on Linux or macOS"):
        run_solver_study(parse_problem(STUDY))
