"""Test markets with all pairs of constraints and all objectives."""

import itertools

import pytest

from tests.terms.builders import BILLS, CONSTRAINTS, SPREADS, assert_dcp_and_dpp


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("bill", BILLS)
def test_all_pairs_of_constraints_are_dcp_and_dpp(spread, bill):
    assert_dcp_and_dpp(spread, bill, itertools.combinations(CONSTRAINTS, 2))
