"""Allocations with user-defined expressions match brute force and need at most 40 solves."""

import pytest

from tests import one_in
from tests.allocation.battery import ATOMS, OTHERS, PLACES, assert_certified, figures, market_with

#: Every eighth atom, each in one place of the market. The campaign tests all combinations.
TURNS = [
    (name, PLACES[i % len(PLACES)], list(OTHERS)[i % len(OTHERS)])
    for i, name in enumerate(list(ATOMS)[::8])
]
#: Markets that an earlier version did not certify or wrongly reported as infeasible.
REPAIRED = [
    ("square of a positive part", "term in eps", "spread"),
    ("abs of squares", "constraint in a", "lines"),
    ("min of roots", "constraint in eps", "cost"),
    ("3-norm", "constraint in eps", "cost"),
    ("norm by column", "constraint in eps", "lines"),
    ("sum_largest of squares", "constraint in eps", "cost"),
    ("cubes of positive parts", "constraint in eps", "cost"),
    ("sum_largest, a fraction", "constraint in a", "spread"),
    ("sum_largest of a matrix", "constraint in eps", "spread"),
    ("maximum with a scalar", "term in eps", "lines"),
    ("sum_squares by column", "term in a", "lines"),
    ("cummax", "term in eps", "lines"),
    ("log", "term in a", "lines"),
    ("weighted geo_mean", "term in a", "lines"),
    ("log_sum_exp", "constraint in a", "lines"),
    ("tr_inv", "constraint in eps", "lines"),
    ("quad_over_lin of both", "term in eps", "lines"),
    ("log_det", "constraint in a", "lines"),
    ("lambda_max", "term in a", "lines"),
]


@pytest.mark.parametrize(("name", "place", "others"), one_in(14, TURNS + REPAIRED))
def test_user_defined_expressions_are_certified(name, place, others):
    assert_certified(figures(market_with(name, place, others), points=12))
