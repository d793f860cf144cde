"""Compare a sample of private logistic regressions with the density that audits use."""

import numpy as np
import pytest

from tests.learners.builders import check_released_density


@pytest.mark.parametrize("data_norm", [1.0, 3.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_released_model_has_the_density_that_is_audited(data_norm, seed):
    rng = np.random.default_rng(seed)
    X = data_norm * rng.uniform(-1, 1, (4, 1))
    y, weights = rng.choice([-1, 1], 4), rng.dirichlet(np.ones(4))
    check_released_density(X, y, weights, data_norm, fits=5000, cells=6000)
