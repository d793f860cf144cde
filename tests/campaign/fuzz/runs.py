"""Whole runs of tiny problem files: whatever the numbers, a result with a report."""

from __future__ import annotations

import copy
import tomllib
from typing import Any

import numpy as np
from hypothesis import strategies as st

from convexmarket.studies.files import parse_file
from tests.campaign.fuzz.files import Raw, at, document, places
from tests.campaign.fuzz.running import Target, require

HEAD = """
title = "Tiny"
[prior]
family = "uniform"
low = 0.1
high = 1.0
[run]
seed = 0
jobs = 1
"""
INLINE = """
[data]
source = "inline"
features = [[1.0, 0.0], [-0.5, 0.5], [0.2, -0.9]]
labels = [1, -1, 1]
"""
TINY = [
    'kind = "market"' + HEAD + INLINE + """
[sellers]
sensitivities = [0.2, 0.6, 0.4]
[objective]
gamma = [0.01]
mu = [1.0]
sigma = [0.3]
[learner]
regularization = [0.5]
draws = 2
[naive]
eta_range = [1.0, 30.0]
grid = 2
""",
    'kind = "market"' + HEAD + """
[sellers]
count = 3
[objective]
spread = { weight = 1.0 }
noise = { weight = 10.0 }
payments = { weight = 0.1 }
[[variants]]
name = "linear"
[[variants]]
name = "capped"
constraints.cap = 2.0
""",
    'kind = "online"' + HEAD + """
[buyer]
expected_sellers = 6
mu = 1.0
sigma = 20.0
gamma = 0.02
[data]
source = "synthetic"
n_sellers = 8
n_features = 2
n_validation = 3
n_test = 3
[learner]
regularization = 0.5
[simulation]
arrivals = 5
acceptance = 0.7
""",
]  # fmt: skip
TABLES = [tomllib.loads(text) for text in TINY]
NUMBERS = [
    "0.0", "1e-300", "1e-30", "1e-9", "0.001", "0.1", "0.5", "1.0", "1.5", "3.0", "100.0", "1e6",
    "1e12", "1e30", "1e160", "1e300", "1", "2",
]  # fmt: skip
PRIORS = [
    '{family = "exponential", mean = 0.5}', '{family = "beta", a = 0.5, b = 0.5}',
    '{family = "beta", a = 2.0, b = 5.0}', '{family = "power", exponent = 2.0, high = 1.0}',
    '{family = "truncnorm", mean = 0.5, std = 0.2, low = 0.0, high = 1.0}',
    '{family = "lognormal", log_mean = -1.0, log_std = 1.0}',
    '{family = "gamma", shape = 2.0, scale = 0.1}', '{family = "empirical", samples = [0.1, 0.5]}',
    '{family = "uniform", low = 0.0, high = 1e-300}',
    '{family = "uniform", low = 0.0, high = 1e300}',
    '{family = "scipy", distribution = "gamma", args = [2.0], kwds = {scale = 0.1}}',
]  # fmt: skip
CHOICES = {
    "privacy_cost": ['"exponential"', "{power = 2}", "{power = 40.0}"],
    "term": ['"squared-spread"', '"negative-entropy"', '"spread"'],
    "noise": ['"expected"', '"worst-case"', '"realised"'],
    "accounting": ['"tight"', '"paper"', '"sharp"'],
    "calibration": ['"total"', '"noise"'],
    "jobs": ["1"],
    "seed": ["0", "1", "18446744073709551616"],
    "cap": ["1", "1.5", "2.0", "[1.0, 2.0, 0.0]"],
    "max_epsilon": ["0.1", "1e-9", "1e9"],
    "budget": ["0.1", "1e-9", "1e9"],
    "eta_range": ["[1.0, 1.0]", "[1e-9, 1e-8]", "[1e8, 1e9]", "[1e-300, 1e300]"],
    "scenarios": ['["correlated"]', '["independent", "correlated"]'],
    "sensitivities": ["[0.1, 1.0, 0.1]", "[0.5, 0.5, 0.5]"],
}  # fmt: skip
EXTRA = {
    "objective": ["cap"],
    "constraints": ["cap", "max_epsilon", "budget", "eta_range"],
    "learner": ["accounting", "calibration"],
    "sellers": ["scenarios", "sensitivities"],
    "payments": ["privacy_cost"],
    "spread": ["term"],
}


@st.composite
def tiny_files(draw: Any) -> str:
    """Draw a tiny problem file with other numbers in some places."""
    table = copy.deepcopy(draw(st.sampled_from(TABLES)))
    for _ in range(draw(st.integers(0, 3))):
        paths = places(table)
        path = draw(st.sampled_from(paths))
        holder, key = at(table, path[:-1]), path[-1]
        value = holder[key]
        if key == "prior":
            holder[key] = Raw(draw(st.sampled_from(PRIORS)))
        elif key in CHOICES and not isinstance(value, dict):
            holder[key] = Raw(draw(st.sampled_from(CHOICES[key])))
        elif isinstance(value, dict) and key in EXTRA:
            name = draw(st.sampled_from(EXTRA[key]))
            value[name] = Raw(draw(st.sampled_from(CHOICES[name])))
        elif isinstance(value, float):
            holder[key] = Raw(draw(st.sampled_from(NUMBERS)))
        elif isinstance(value, int) and not isinstance(value, bool):
            holder[key] = draw(st.integers(1, 9))
        elif isinstance(value, list) and value:
            holder[key] = value[: draw(st.integers(1, len(value)))]
    if "variants" in table and draw(st.booleans()):
        name = draw(st.sampled_from(EXTRA["constraints"]))
        table["constraints"] = {name: Raw(draw(st.sampled_from(CHOICES[name])))}
    return document(table)


def check_run(text: str) -> str:
    """Run a problem, and describe the result in a report."""
    problem = parse_file(text)
    result = problem.perform(progress=False)
    require(
        problem.report(result).to_html().startswith("<!doctype html>"), "the report is no page"
    )
    for name, table in result.tables.items():
        numbers = table.select_dtypes("number")
        if name == "fits":  # nothing is known of the error of a line through two points
            numbers = numbers[numbers["n_points"] > 2]
            numbers = numbers.drop(columns=["low", "high"], errors="ignore")
        numbers = numbers.to_numpy(dtype=float)
        require(not np.isneginf(numbers).any(), name, "holds -inf")
    return "accepted"


TARGETS = [Target("runs", tiny_files(), check_run, 60.0)]
