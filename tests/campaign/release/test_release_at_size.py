"""Test releases with many draws, and attacks with many queries."""

import pytest

from tests.release.builders import ATTACKS, bound_of, check_the_adversary_stays_below_the_claim
from tests.release.test_function_release import ORDERS, check_noise_is_a_process


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_the_covariance_of_drawn_functions_is_the_kernel(monkeypatch, kernel, order):
    check_noise_is_a_process(monkeypatch, kernel, order, 600)


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize(("epsilon", "delta"), ATTACKS)
@pytest.mark.parametrize("threshold", [0.0, 1.0, 3.0, 5.0])
def test_an_adversary_with_sixty_queries_stays_below_the_claim(updates, epsilon, delta, threshold):
    check_the_adversary_stays_below_the_claim(updates, epsilon, delta, threshold, 60)


def test_a_guarantee_with_many_digits_is_exact():
    terms = {"max_norm": 1.0, "delta": 1e-5}
    result = bound_of("suggest_test_size", 0.5, 2**64, **terms)
    assert result == bound_of("suggest_test_size", 0.5, float(2**64), **terms) >= 1
