"""The joint problem against brute force on a fine grid, and all its methods on forty sellers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import convexmarket as cm
from tests.joint.builders import (
    check_bounds_are_kept,
    check_eta_is_the_best_of_the_range,
    check_methods_agree,
)
from tests.joint.test_joint import (
    check_a_market_that_is_not_papers,
    check_certificate,
    check_given_guarantees,
    check_objective_never_rises,
    check_remedies,
    check_theorem_3_3,
)
from tests.joint.test_methods import (
    check_convex_privacy_costs,
    check_who_is_left_out,
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


def test_the_remedies_for_twenty_sellers():
    check_remedies(20)


@given(seed=st.integers(0, 10**6), noise=st.sampled_from(["expected", "worst-case"]))
def test_the_objective_never_rises_from_three_starts(seed, noise):
    check_objective_never_rises(seed, noise, 30, 3)


@given(seed=st.integers(0, 10**6), squared=st.booleans(), capped=st.booleans())
def test_four_descents_stay_above_the_certificate_of_fifteen_sellers(seed, squared, capped):
    check_certificate(seed, squared, capped, 15, 4)


@pytest.mark.parametrize("noise", ["expected", "worst-case"])
def test_theorem_3_3_of_b_holds_for_fifty_sellers(noise):
    check_theorem_3_3(noise, 50)


def test_a_market_of_twelve_that_is_not_papers():
    check_a_market_that_is_not_papers(12)


@pytest.mark.parametrize("convex", [True, False])
@pytest.mark.parametrize("m", [6, 25])
def test_given_guarantees_by_a_conic_solver(convex, m):
    joint, found = check_given_guarantees(convex, m)
    conic = cm.allocate_jointly(joint, solver="CLARABEL", starts=1)
    assert conic.objective >= found.objective * (1 - 1e-9)
    if convex:
        assert conic.objective == pytest.approx(found.objective, rel=1e-7)


@pytest.mark.parametrize("name", ["power", "exponential"])
def test_the_exponential_method_serves_convex_privacy_costs_of_forty_sellers(name):
    check_convex_privacy_costs(name, 40)


def test_the_exponential_method_leaves_out_one_of_forty():
    check_who_is_left_out(40)
