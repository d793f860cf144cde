"""Every two constraints together, beside every objective."""

import itertools

import pytest

from tests.terms.builders import BILLS, CONSTRAINTS, SPREADS, assert_dcp_and_dpp


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("bill", BILLS)
def test_every_two_constraints_are_dcp_and_dpp(spread, bill):
    assert_dcp_and_dpp(spread, bill, itertools.combinations(CONSTRAINTS, 2))
