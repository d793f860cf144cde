"""Ridge regression against long simulations."""

import pytest

from tests.learners.builders import (
    PRIVATE_RIDGES,
    check_lattice_noise,
    check_ridge_noise,
    check_simulation,
)


@pytest.mark.parametrize("estimator", PRIVATE_RIDGES)
@pytest.mark.parametrize("penalty", [0.0, 0.5])
def test_expected_losses_are_those_of_a_simulation(estimator, penalty):
    check_simulation(estimator, penalty, fits=10_000)


def test_the_noise_has_the_density_that_was_promised():
    check_ridge_noise(5000)


def test_the_noise_on_the_lattice_is_discrete_laplace_in_every_coordinate():
    check_lattice_noise(3000)
