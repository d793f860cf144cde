"""Default share of the privacy sold that the second noise uses."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from convexmarket.privacy import calibrate_eta, objective_perturbation_guarantee
from convexmarket.privacy.accounting import default_solver_epsilon


@pytest.mark.parametrize("smallest", [1e-6, 1e-3, 0.3])
def test_it_costs_the_model_least(smallest) -> None:
    """The best share, where both noises add up."""
    sold, g = np.array([smallest, 1.0 - smallest]), 1e-9
    best = minimize_scalar(
        lambda log: np.exp(log) + g / (np.exp(log) * smallest), bounds=(-20, 0), method="bounded"
    )
    paid = default_solver_epsilon(sold, g)
    assert paid == pytest.approx(smallest * np.exp(best.x), rel=1e-3)


def test_it_is_a_part_of_what_everybody_sold() -> None:
    rng = np.random.default_rng(0)
    for spread in (0.0, 3.0, 12.0):
        sold = np.append(np.exp(-spread * rng.random(50)), 0.0)
        paid = default_solver_epsilon(sold, 1e-9)
        assert 0 < paid <= 0.5 * sold[sold > 0].min()
        weights, eta = sold / sold.sum(), float(sold.sum())
        terms = (10.0, 1.0, "sharp", None, paid)
        kept = objective_perturbation_guarantee(
            weights, calibrate_eta(weights, eta, *terms), *terms
        )
        assert np.all(kept <= sold * (1 + 1e-12))
        assert kept[-1] == 0
