"""Joint allocations of several buyers, against a grid over the eta of each buyer."""

import pytest

from tests.allocation.test_together import CASES, brute_force, is_certified


@pytest.mark.parametrize("name", CASES)
def test_joint_allocations_equal_brute_force(name):
    markets, limit = CASES[name]
    result = is_certified(markets, limit)
    assert result.gap <= 1e-6
    best = brute_force(markets, limit, result)
    assert result.lower_bound <= best * (1 + 1e-8)
    assert result.objective <= best * (1 + 1e-6)
