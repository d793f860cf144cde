"""Grids that are none, and prices of sellers who are all but at their bound."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.projected_gradient import projected_gradient
from convexmarket.allocation.projections import projectable_form

MARKET = cm.Market.standard(cm.Sellers(virtual_costs=[0.1, 0.4, 0.7]), mu=1, sigma=2, gamma=1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": [1.0, 2.0], "eta_max": 3.0}, "give either the values of eta as grid, or eta_max"),
        ({"grid": [0.0, 1.0]}, "the grid must hold finite numbers > 0"),
        ({"grid": [1.0, np.inf]}, "the grid must hold finite numbers > 0"),
        ({"grid": [1.0, np.nan]}, "the grid must hold finite numbers > 0"),
        ({"grid": []}, "the grid must hold finite numbers > 0"),
        ({"grid": [[1.0], [2.0]]}, "the grid must hold finite numbers > 0"),
        ({"grid": 4, "eta_max": -1.0}, "check grid and eta_max"),
    ],
)
def test_a_grid_that_is_none_is_refused(options, message):
    with pytest.raises(cm.ParameterError, match=message):
        projected_gradient(MARKET, **options)


def test_what_rounding_leaves_of_sellers_at_their_bound_does_not_change_the_price():
    """The only seller between the bounds has 1e-10 of room, those at the bound 1e-16."""
    market = cm.Market(
        cm.Sellers(virtual_costs=[0.0, 0.0, 0.5]),
        cm.Spread() + cm.Noise() + cm.Payments(),
        [cm.Cap([1.0, 1.0, 1.0 + 3e-10])],
    )
    form = projectable_form(market)
    limit = np.array([1 / 3, 1 / 3, 1 / 3 + 1e-10])
    weights = np.array([*np.nextafter(limit[:2], 0), 1 / 3])
    costs = form.prices(1.0)
    price, extra = form.multipliers(form.mu, weights, costs, limit)
    assert price == pytest.approx((form.slope(weights) + costs)[2], rel=1e-14)
    assert extra == pytest.approx([0.5, 0.5, 0.0], abs=1e-9)
