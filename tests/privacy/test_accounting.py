"""Test that guarantees equal their formulas and that calibration keeps the granted epsilon."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from convexmarket.errors import ParameterError
from convexmarket.privacy.accounting import (
    calibrate_eta,
    default_solver_epsilon,
    joint_guarantee,
    objective_perturbation_guarantee,
)
from tests import one_in

ACCOUNTINGS = ("sharp", "paper")

log_scale = st.floats(-4, 4).map(lambda exponent: 10.0**exponent)
#: A few values of Lambda / R^2, so that cached profiles are used again. R is a power of two.
strength = st.sampled_from([1e-5, 1e-3, 0.03, 0.3, 5.0, 1e5])
radius = st.sampled_from([0.25, 1.0, 8.0])
raw_weight = st.one_of(st.just(0.0), st.floats(1e-12, 1))
raw_weights = st.lists(raw_weight, min_size=1, max_size=6).filter(lambda w: sum(w) > 1e-3)


def normalised(raw: list[float]) -> np.ndarray:
    return np.array(raw) / sum(raw)


def test_the_papers_formula_uses_the_cap_and_charges_every_row() -> None:
    weights = [0.75, 0.25, 0.0]
    largest = objective_perturbation_guarantee(weights, 8.0, 0.5, accounting="paper")
    assert largest == pytest.approx(np.array([6, 2, 0]) + 2 * np.log(1 + 0.75 / 0.5))
    capped = objective_perturbation_guarantee(weights, 8.0, 0.5, accounting="paper", cap=2.7)
    assert capped == pytest.approx(np.array([6, 2, 0]) + 2 * np.log(1 + 0.9 / 0.5))


@pytest.mark.parametrize("weight", [1e-6, 0.01, 0.4])
@pytest.mark.parametrize(("eta", "regularization"), [(3.0, 0.02), (40.0, 0.1), (0.5, 2.0)])
def test_the_joint_bound_equals_the_maximum_to_ten_digits(weight, eta, regularization) -> None:
    radius = 1.7
    result = minimize_scalar(
        lambda p: -(
            weight * eta * (1 + p) / 2
            + np.log1p(weight * radius**2 / regularization * p * (1 - p))
        ),
        bounds=(0, 1), method="bounded", options={"xatol": 1e-12},
    )  # fmt: skip
    exact = max(-result.fun, weight * eta)
    weights = [weight, 1 - weight]
    joint = joint_guarantee(np.array(weights), eta, radius**2 / regularization)
    assert joint[0] == pytest.approx(exact, rel=1e-10)


@given(raw_weights, log_scale, strength, radius)
def test_the_sharp_bound_is_below_all_other_bounds(raw, eta, strength, data_norm) -> None:
    weights, regularization = normalised(raw), strength * data_norm**2
    sharp, paper = (
        objective_perturbation_guarantee(weights, eta, regularization, data_norm, name)
        for name in ACCOUNTINGS
    )
    joint = joint_guarantee(weights, eta, data_norm**2 / regularization)
    apart = weights * eta + np.log1p(weights * data_norm**2 / regularization / 4)
    slack = 1 + 1e-12
    assert np.all(weights * eta / 2 <= sharp * slack)
    assert np.all(sharp <= joint)
    assert np.all(weights * eta <= joint * slack)
    # ``apart`` is the sum of separate bounds on the shift and on the Jacobian
    assert np.all(joint <= apart * slack)
    assert np.all(apart <= paper * slack)
    assert np.all(sharp[weights == 0] == 0)


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@given(raw=raw_weights, eta=log_scale, strength=strength, data_norm=radius)
def test_calibration_never_exceeds_the_granted_epsilon(
    accounting, raw, eta, strength, data_norm
) -> None:
    weights, regularization = normalised(raw), strength * data_norm**2
    arguments = (regularization, data_norm, accounting)
    try:
        calibrated = calibrate_eta(weights, eta, *arguments)
    except ParameterError:
        tiny = objective_perturbation_guarantee(weights, eta * 1e-9, *arguments)
        assert np.any((tiny > weights * eta * (1 - 1e-6))[weights > 0])
        return
    assert 0 < calibrated <= (eta if accounting == "paper" else 2 * eta)
    bought = weights > 0
    total = objective_perturbation_guarantee(weights, calibrated, *arguments)
    assert np.all(total[bought] <= weights[bought] * eta)


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
def test_calibration_returns_the_largest_possible_eta(accounting) -> None:
    weights = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
    arguments = (0.02, 1.0, accounting)
    eta = 300.0 if accounting == "paper" else 50.0
    calibrated = calibrate_eta(weights, eta, *arguments)
    assert calibrated < 2 * eta
    more = objective_perturbation_guarantee(weights, calibrated * (1 + 1e-9), *arguments)
    assert np.any((more > weights * eta)[weights > 0])


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@pytest.mark.parametrize(("paid", "data_norm"), one_in(2, [(0.1, 3.0), (0.0, 1.0)]))
def test_calibration_suggests_a_regularization_if_it_fails(accounting, paid, data_norm) -> None:
    weights, eta = np.full(100, 0.01), 20.0
    with pytest.raises(ParameterError, match=r"larger regularization.*larger eta") as refusal:
        calibrate_eta(weights, eta, 0.01, data_norm, accounting, solver_epsilon=paid)
    named = float(re.search(r"for instance (\S+),", str(refusal.value))[1])
    terms = (named, data_norm, accounting)
    calibrated = calibrate_eta(weights, eta, *terms, solver_epsilon=paid)
    total = objective_perturbation_guarantee(weights, calibrated, *terms, solver_epsilon=paid)
    assert calibrated > 0.1 * eta
    assert np.all(total <= weights * eta)


@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@pytest.mark.parametrize("extra", [0.0, 0.05])
def test_the_second_noise_is_charged_to_used_rows(accounting, extra) -> None:
    weights, eta, regularization = [0.5, 0.3, 0.2, 0.0], 60.0, 0.05
    plain = objective_perturbation_guarantee(weights, eta, regularization, accounting=accounting)
    paid = objective_perturbation_guarantee(
        weights, eta, regularization, accounting=accounting, solver_epsilon=extra
    )
    np.testing.assert_allclose(paid - plain, [extra, extra, extra, 0.0], atol=1e-14)
    calibrated = calibrate_eta(
        weights, eta, regularization, accounting=accounting, solver_epsilon=extra
    )
    total = objective_perturbation_guarantee(
        weights, calibrated, regularization, accounting=accounting, solver_epsilon=extra
    )
    used = np.array(weights) > 0
    assert np.all(total[used] <= np.array(weights)[used] * eta)
    # the smallest epsilon determines eta
    assert total[2] == pytest.approx(0.2 * eta, rel=1e-9)


def test_the_second_noise_must_cost_less_than_the_smallest_epsilon() -> None:
    arguments = {"weights": [0.8, 0.2], "eta": 10.0, "regularization": 5.0}
    for extra in (2.0, 3.0):
        with pytest.raises(ParameterError, match="is at least the smallest positive epsilon, 2"):
            calibrate_eta(**arguments, solver_epsilon=extra)
    with pytest.raises(ParameterError, match=r"is at least the smallest positive epsilon, 0\.5"):
        calibrate_eta([0.95, 0.05], 10.0, 5.0, solver_epsilon=0.5)
    # 0.1 of the epsilon 2 remains, and the first noise costs at least eta * 0.2 / 2
    assert 0 < calibrate_eta(**arguments, solver_epsilon=1.9) < 2 * 0.1 / 0.2
    for extra in (-0.1, np.inf, np.nan, "1"):
        for function in (calibrate_eta, objective_perturbation_guarantee):
            with pytest.raises(ParameterError, match="solver_epsilon must be"):
                function(**arguments, solver_epsilon=extra)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"weights": [0.5, 0.6]}, "sum to one"),
        ({"weights": [1.5, -0.5]}, "nonnegative"),
        ({"weights": [np.nan, 1.0]}, "finite"),
        ({"weights": []}, "nonempty"),
        ({"weights": [[1.0]]}, "vector"),
        ({"eta": 0.0}, "eta"),
        ({"eta": np.nan}, "eta"),
        ({"regularization": 0.0}, "regularization"),
        ({"regularization": np.inf}, "regularization"),
        ({"data_norm": -1.0}, "data_norm"),
        ({"accounting": "loose"}, "accounting"),
        ({"accounting": "paper", "cap": 1.1}, "cap"),
        ({"accounting": "paper", "cap": np.nan}, "cap"),
    ],
)
@pytest.mark.parametrize("function", [objective_perturbation_guarantee, calibrate_eta])
def test_errors_name_invalid_arguments(function, change, word) -> None:
    arguments = {"weights": [0.6, 0.4], "eta": 1e3, "regularization": 1.0} | change
    with pytest.raises(ParameterError, match=word):
        function(**arguments)


@pytest.mark.parametrize("smallest", [1e-6, 1e-3, 0.3])
def test_the_default_second_noise_minimises_the_total_noise(smallest) -> None:
    """Check that the default share minimises the sum of the scales of the two noises."""
    sold, g = np.array([smallest, 1.0 - smallest]), 1e-9
    best = minimize_scalar(
        lambda log: np.exp(log) + g / (np.exp(log) * smallest), bounds=(-20, 0), method="bounded"
    )
    paid = default_solver_epsilon(sold, g)
    assert paid == pytest.approx(smallest * np.exp(best.x), rel=1e-3)
