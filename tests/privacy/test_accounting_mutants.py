"""Limits of the arguments of accounting, and its formulas at single rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from convexmarket.errors import ParameterError
from convexmarket.privacy import (
    Guarantee,
    calibrate_eta,
    check_weights,
    objective_perturbation_guarantee,
)


def test_weights_sum_to_one_within_a_millionth() -> None:
    for total in (1 + 0.9e-6, 1 - 0.9e-6):
        np.testing.assert_array_equal(check_weights([total, 0.0]), [total, 0.0])
    for total in (1 + 1.1e-6, 1 - 1.1e-6):
        with pytest.raises(ParameterError, match="sum to one"):
            check_weights([total, 0.0])
    assert check_weights([0.0, 1.0], 2).dtype == np.float64
    assert check_weights([1], 1).dtype == np.float64
    for count in (1, 3, 0):
        with pytest.raises(ParameterError, match=f"2 entries for {count} rows"):
            check_weights([0.5, 0.5], count)


def test_a_cap_may_be_exceeded_by_a_billionth() -> None:
    def epsilon(cap):
        return objective_perturbation_guarantee([0.6, 0.4], 8.0, 0.5, 1.0, "paper", cap)

    expected = np.array([4.8, 3.2]) + 2 * np.log(1 + 0.6 / 0.5)
    np.testing.assert_allclose(epsilon(1.2), expected, rtol=1e-13)
    np.testing.assert_allclose(epsilon(1.2 * (1 - 0.9e-9)), expected, rtol=1e-8)
    with pytest.raises(ParameterError, match=r"a weight is 0\.6"):
        epsilon(1.2 * (1 - 1.1e-9))


@pytest.mark.parametrize("weight", [1e-6, 0.01, 0.4])
@pytest.mark.parametrize(("eta", "regularization"), [(3.0, 0.02), (40.0, 0.1), (0.5, 2.0)])
def test_the_joint_bound_is_a_maximum_to_ten_digits(weight, eta, regularization) -> None:
    radius = 1.7
    found = minimize_scalar(
        lambda p: -(
            weight * eta * (1 + p) / 2
            + np.log1p(weight * radius**2 / regularization * p * (1 - p))
        ),
        bounds=(0, 1), method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    exact = max(-found.fun, weight * eta)
    weights = [weight, 1 - weight]
    joint = objective_perturbation_guarantee(weights, eta, regularization, radius, "joint")
    assert joint[0] == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("accounting", ["joint", "tight", "paper"])
@pytest.mark.parametrize("extra", [0.0, 0.05])
def test_the_second_noise_is_paid_by_the_rows_that_are_used(accounting, extra) -> None:
    weights, eta, regularization = [0.5, 0.3, 0.2, 0.0], 60.0, 0.05
    plain = objective_perturbation_guarantee(weights, eta, regularization, accounting=accounting)
    paid = objective_perturbation_guarantee(
        weights, eta, regularization, accounting=accounting, minimum_epsilon=extra
    )
    np.testing.assert_allclose(paid - plain, [extra, extra, extra, 0.0], atol=1e-14)
    calibrated = calibrate_eta(
        weights, eta, regularization, accounting=accounting, minimum_epsilon=extra
    )
    total = objective_perturbation_guarantee(
        weights, calibrated, regularization, accounting=accounting, minimum_epsilon=extra
    )
    used = np.array(weights) > 0
    assert np.all(total[used] <= np.array(weights)[used] * eta)
    assert total[2] == pytest.approx(0.2 * eta, rel=1e-9)  # the smallest decides


def test_what_the_second_noise_may_cost() -> None:
    arguments = {"weights": [0.8, 0.2], "eta": 10.0, "regularization": 5.0}
    for extra in (2.0, 3.0):
        with pytest.raises(ParameterError, match="leaves nothing of the 2 that"):
            calibrate_eta(**arguments, minimum_epsilon=extra)
    with pytest.raises(ParameterError, match=r"leaves nothing of the 0\.5 that"):
        calibrate_eta([0.95, 0.05], 10.0, 5.0, minimum_epsilon=0.5)
    assert 0 < calibrate_eta(**arguments, minimum_epsilon=1.9) < 0.6
    for extra in (-0.1, np.inf, np.nan, "1"):
        for function in (calibrate_eta, objective_perturbation_guarantee):
            with pytest.raises(ParameterError, match="minimum_epsilon must be"):
                function(**arguments, minimum_epsilon=extra)


def test_a_guarantee_of_one_number_says_it_once() -> None:
    words = str(Guarantee(np.array([0.5, 0.5]), 1e-6, "noise", "tight", ()))
    assert words == (
        "noise: epsilon of each of 2 rows 0.5, delta 1e-06 (tight accounting, one row replaced)."
        "\nThis rests on:"
    )
