"""The joint problem against brute force on a fine grid, and all its methods on forty sellers."""

import pytest

from tests.joint.builders import (
    check_bounds_are_kept,
    check_eta_is_the_best_of_the_range,
    check_methods_agree,
)


@pytest.mark.parametrize("sigma", [0.0, 3.0])
def test_eta_is_the_best_of_a_range_on_a_fine_grid(sigma):
    check_eta_is_the_best_of_the_range(sigma, 200)


@pytest.mark.parametrize("seed", range(50))
def test_all_methods_agree_on_forty_sellers(seed):
    check_methods_agree(40, seed)


@pytest.mark.parametrize("bound", ["largest", "given", "budget"])
@pytest.mark.parametrize("paid", [True, False])
def test_bounds_are_kept_for_forty_sellers(bound, paid):
    check_bounds_are_kept(bound, paid, 40)
