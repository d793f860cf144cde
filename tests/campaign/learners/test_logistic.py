"""Many fits of logistic regression against their density, and many draws of second noise."""

import numpy as np
import pytest

from tests.learners.builders import check_released_density
from tests.learners.test_approximate_minimum import check_second_noise, check_second_noise_hides
from tests.learners.test_logistic import check_density_in_two_dimensions


@pytest.mark.parametrize("data_norm", [1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_released_model_has_the_density_that_is_audited(data_norm, seed):
    rng = np.random.default_rng(seed)
    X = data_norm * rng.uniform(-1, 1, (4, 1))
    y, weights = rng.choice([-1, 1], 4), rng.dirichlet(np.ones(4))
    check_released_density(X, y, weights, data_norm, fits=5000, cells=6000)


def test_the_density_integrates_to_one_on_a_fine_grid_of_two_dimensions():
    check_density_in_two_dimensions(120)


def test_four_hundred_draws_of_second_noise_hide_the_solver_error(monkeypatch):
    check_second_noise_hides(monkeypatch, 400)


def test_three_hundred_draws_of_second_noise_have_the_claimed_law():
    check_second_noise(300)
