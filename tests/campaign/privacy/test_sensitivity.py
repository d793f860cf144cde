"""Attack the sensitivity of ridge regression with more data sets than the default tests."""

import pytest

from tests.privacy.builders import check_attacks

CASES = [(1, 0.01), (1, 0.3), (2, 0.2), (2, 5.0), (3, 0.5), (6, 6.0), (4, 0.05), (8, 1.0)]


@pytest.mark.parametrize(("d", "alpha"), CASES)
@pytest.mark.parametrize("weight", [1e-4, 0.1])
def test_directed_attacks_approach_the_sensitivity_from_below(d, alpha, weight):
    check_attacks(d, alpha, weight, n_others=3, count=40)
