"""The measures of a whole sweep."""

import pytest

from tests.lab.kinds.test_joint_sweep import MU, check_measures


@pytest.mark.parametrize("noise", ["expected", "realised", "worst-case"])
def test_measures_of_all_points_and_draws_are_those_of_the_library(noise):
    check_measures(noise, MU)
