"""Experiments that cannot start: without a file, and where processes cannot be forked."""

import pytest

from convexmarket.errors import ProblemFileError
from convexmarket.lab.kinds.online_market.market import open_market
from convexmarket.lab.kinds.online_market.problem import OnlineMarketProblem
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


def test_a_market_is_opened_from_a_file_only(tmp_path):
    read = parse_problem(MARKET)
    built = OnlineMarketProblem.model_validate(read.model_dump())
    with pytest.raises(ProblemFileError, match="comes from no file; give what load_problem"):
        open_market(built, tmp_path / "market")
    assert not (tmp_path / "market").exists()
