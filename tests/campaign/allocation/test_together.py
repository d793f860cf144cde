"""Compare joint allocations of several buyers with a grid over the eta of each buyer."""

from itertools import product

import numpy as np
import pytest

from tests.allocation.test_together import CASES, at_fixed_eta, is_certified


def brute_force(markets, limit, result):
    """Return the minimum over a coarse grid of eta and a fine grid around a found solution."""
    coarse = [np.geomspace(0.1, 1.0, 9) * np.sum(limit)] * len(markets)
    fine = [a.eta * np.linspace(0.97, 1.03, 7) for a in result.allocations]
    points = [p for axes in (coarse, fine) for p in product(*axes) if sum(p) <= np.sum(limit)]
    return min(at_fixed_eta(markets, limit, point) for point in points)


@pytest.mark.parametrize("name", CASES)
def test_joint_allocations_equal_brute_force(name):
    markets, limit = CASES[name]
    result = is_certified(markets, limit)
    assert result.gap <= 1e-6
    best = brute_force(markets, limit, result)
    assert result.lower_bound <= best * (1 + 1e-8)
    assert result.objective <= best * (1 + 1e-6)
