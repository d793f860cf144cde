"""Releases with many draws, attacks on fine grids, and bounds for many rows."""

import pytest

from tests.release.builders import (
    ATTACKS,
    bound_of,
    check_suggested_rounds,
    check_suggested_test_size,
    check_suggestions_stay_in_their_range,
    check_the_adversary_stays_below_the_claim,
)
from tests.release.test_function_release import ORDERS, check_noise_is_a_process
from tests.release.test_interactive import check_error_bound_of_answers
from tests.release.test_non_interactive import (
    SCALES,
    check_error_bound_over_the_ball,
    check_no_round_reveals_more,
    check_picks,
)
from tests.release.test_release_bounds import (
    check_function_bound,
    check_semi_interactive_bounds,
    model,
)
from tests.release.test_semi_interactive import check_no_change_reveals_more


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_covariance_of_drawn_functions_is_the_kernel(monkeypatch, kernel, order):
    check_noise_is_a_process(monkeypatch, kernel, order, 600)


@pytest.mark.parametrize("accounting", SCALES)
def test_many_points_are_picked_by_the_exponential_mechanism(accounting):
    check_picks(accounting, 7000, 0.3)


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), ATTACKS)
@pytest.mark.parametrize("threshold", [0.0, 1.0, 3.0, 5.0])
def test_an_adversary_with_sixty_queries_stays_below_the_claim(updates, epsilon, delta, threshold):
    check_the_adversary_stays_below_the_claim(updates, epsilon, delta, threshold, 60)


@pytest.mark.parametrize("n_points", [1, 2, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (0.3, 1e-5), (4.0, 1e-2)])
def test_no_change_of_a_row_exceeds_the_claim_on_a_fine_grid(n_points, epsilon, delta):
    check_no_change_reveals_more(n_points, epsilon, delta, 1e-4)


@pytest.mark.parametrize("rounds", [1, 3, 10])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-3), (1.0, 1e-6), (4.0, 1e-2)])
def test_no_round_exceeds_the_claim_on_a_fine_grid(rounds, epsilon, delta):
    check_no_round_reveals_more(rounds, epsilon, delta, 5e-4)


def test_the_error_bound_of_answers_holds_for_twenty_thousand_rows():
    check_error_bound_of_answers(20_000, 8.0)


@pytest.mark.parametrize(("kernel", "n_features"), [("rbf", 1), ("rbf", 2), ("linear", 2)])
def test_the_error_bound_holds_on_the_whole_ball_for_twenty_thousand_rows(kernel, n_features):
    check_error_bound_over_the_ball(kernel, n_features, 20_000, 1.0)


@pytest.mark.parametrize("noise", ["laplace", "process"])
@pytest.mark.parametrize("n_points", [10, 300])
def test_semi_interactive_bounds_hold_for_twenty_thousand_rows(noise, n_points):
    check_semi_interactive_bounds(model(20_000, 0.01), noise, n_points)


def test_the_bound_of_a_function_holds_for_twenty_thousand_rows():
    check_function_bound(model(20_000, 0.01))


@pytest.mark.parametrize("noise", ["laplace", "process"])
@pytest.mark.parametrize(("sensitivity", "delta"), [(1e-1, 1e-6), (1e-3, 1e-6), (1e-3, 1e-9)])
def test_the_suggested_test_size_is_the_best_of_all(sensitivity, delta, noise):
    check_suggested_test_size(sensitivity, delta, noise, 120, 1)


@pytest.mark.parametrize("accounting", ["tight", "paper"])
@pytest.mark.parametrize("sensitivity", [1e-6, 1e-3, 1.0])
def test_the_suggested_number_of_rounds_is_the_best_of_two_hundred(sensitivity, accounting):
    check_suggested_rounds(sensitivity, accounting, 200)


@pytest.mark.parametrize("largest", [59, 10**6])
def test_suggestions_from_a_large_range_are_optimal(largest):
    check_suggestions_stay_in_their_range(largest)


def test_a_guarantee_with_many_digits_is_exact():
    terms = {"max_norm": 1.0, "delta": 1e-5}
    result = bound_of("suggest_test_size", 0.5, 2**64, **terms)
    assert result == bound_of("suggest_test_size", 0.5, float(2**64), **terms) >= 1
