"""Branch and bound with a solver: its first eta, its final weights and its result."""

from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.conic import branch_and_bound
from convexmarket.errors import (
    UnattainedOptimumError,
)
from tests.allocation import builders
from tests.allocation.builders import PAID, Bound

market = partial(builders.market, objective=PAID)


# ---------------------------------------------------------------- whole searches


def test_without_noise_the_optimal_eta_is_zero_or_the_lower_end_of_the_range():
    unpaid = cm.terms.SquaredSpread() + 0.5 * cm.Payments(cm.PowerCost(2))
    with pytest.raises(UnattainedOptimumError, match="eta tends to 0"):
        branch_and_bound(market(objective=unpaid))
    result = branch_and_bound(market(cm.EtaRange(1.0, 4.0), objective=unpaid))
    assert result.eta == 1.0
    assert result.binding == ("eta_low",)
    assert result.gap <= 1e-6


@pytest.mark.parametrize("least", [2.0, 20.0])
def test_the_search_finds_a_feasible_range_above_its_first_eta(least):
    """The eta that balances noise and payments is infeasible."""
    objective = cm.Spread() + cm.Noise() + 5.0 * cm.Payments()
    at_least = Bound(lambda q: [q.weights >= least * q.inverse_eta])
    result = cm.allocate(market(at_least, objective=objective))
    np.testing.assert_allclose(result.epsilon, least, rtol=1e-4)
    spent = 5.0 * least * (0.2 + 0.4 + 1.0) + 1 / (3 * least) + 1 / np.sqrt(3)
    assert result.objective == pytest.approx(spent, rel=1e-4)


# ------------------------------------------------------- final weights


def test_tiny_weights_are_kept_if_removing_them_is_infeasible():
    """The bound on the three largest weights is tight: removing small weights violates it."""
    rng = np.random.default_rng(200)
    sellers = cm.Sellers(rng.uniform(0.1, 1, 200), prior=cm.Uniform(0.1, 1))
    bound = Bound(lambda q: [cp.sum_largest(200 * q.weights, 3) <= 7.5])
    objective = 200 * cm.Noise() + (1 / 200) * cm.Payments()
    result = cm.allocate(cm.Market(sellers, objective, [bound]))
    assert np.sort(200 * result.weights)[-3:].sum() <= 7.5 + 1e-9
    assert result.gap <= 1e-6
