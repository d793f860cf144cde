"""Compare formulas for ridge regression with long simulations."""

import pytest

from tests.learners.builders import (
    PRIVATE_RIDGES,
    check_lattice_noise,
    check_ridge_noise,
    check_simulation,
)


@pytest.mark.parametrize("estimator", PRIVATE_RIDGES)
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_expected_losses_equal_a_simulation(estimator, penalty):
    check_simulation(estimator, penalty, fits=10_000)


def test_the_noise_has_the_stated_density():
    check_ridge_noise(5000)


def test_every_coordinate_of_lattice_noise_is_discrete_laplace():
    check_lattice_noise(3000)
