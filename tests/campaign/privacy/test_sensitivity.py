"""More attacks on the sensitivity of ridge regression, and finer grids."""

import pytest

from tests.privacy.builders import check_angles, check_attacks

CASES = [(1, 0.01), (1, 0.3), (2, 0.2), (2, 5.0), (3, 0.5), (6, 6.0), (4, 0.05), (8, 1.0)]


@pytest.mark.parametrize(("d", "alpha"), CASES)
@pytest.mark.parametrize("weight", [1e-4, 0.1])
def test_directed_attacks_approach_the_sensitivity_from_below(d, alpha, weight):
    check_attacks(d, alpha, weight, n_others=3, count=40)


@pytest.mark.parametrize("g", [0.05, 0.1, 0.4, 0.7, 1.0, 1.5, 3.0, 10.0, 50.0])
def test_the_maximum_over_angles_equals_brute_force(g):
    check_angles(g, 301)
