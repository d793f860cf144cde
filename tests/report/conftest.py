"""A small run of the trade-off experiment, shared by the tests of its report."""

from __future__ import annotations

import pytest

from convexmarket.experiments.tradeoff import TradeoffResult, run_tradeoff
from convexmarket.problems import parse_problem

PROBLEM = """
kind = "tradeoff"
title = "A small market <b>for tests</b>"
description = "Gaussian rows & a linear separator."
notes = ["Numbers here are as small as a test needs."]

[data]
source = "synthetic"
n_sellers = 60
n_features = 3
n_validation = 80
n_test = 80

[prior]
family = "uniform"
low = 0.02
high = 0.10

[sellers]
scenarios = ["independent", "correlated"]

[objective]
gamma = [0.001, 0.01, 0.1, 1.0]
mu = [1.0]
sigma = [1.0, 30.0]

[learner]
regularization = [0.05]
draws = 4

[naive]
eta_range = [5.0, 50.0]
grid = 2

[run]
jobs = 1
"""


@pytest.fixture(scope="session")
def tradeoff_result() -> TradeoffResult:
    return run_tradeoff(parse_problem(PROBLEM))
