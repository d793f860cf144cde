"""Test the naive model without a spread, where buying from a single seller is optimal."""

import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import InfeasibleMarketError, ParameterError
from convexmarket.joint import best_model
from tests.joint.builders import naive


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"noise": "worst-case"},
        {"max_norm": 0.4},
        {"noise": "worst-case", "max_norm": 0.05},
        {"losses": True},
    ],
)
@pytest.mark.parametrize("eta", [0.5, 300.0])
def test_the_naive_model_buys_from_the_best_single_seller_at_an_eta(options, eta):
    joint = naive(3, [cm.EtaRange(eta, eta)], **options)
    result = cm.allocate_jointly(joint)
    every = [
        joint.objective(best_model(joint, weights, eta), weights, eta) for weights in np.eye(12)
    ]
    assert result.objective == pytest.approx(min(every), rel=1e-9)
    assert result.weights[np.argmin(every)] == 1.0
    assert (result.status, result.lower_bound) == ("global", result.objective)
    assert result.binding == ("eta_low", "eta_high")
    assert 0 <= result.residual < 1e-12
    mixed = np.random.default_rng(0).dirichlet(np.ones(12), 10)
    values = [joint.objective(best_model(joint, a, eta), a, eta) for a in mixed]
    assert result.objective <= min(values)


@pytest.mark.parametrize("sigma", [0.0, 3.0])
def test_the_naive_model_selects_the_best_eta_of_the_range(sigma):
    """Compare with purchases from each single seller, on a grid of eta and near the solution."""
    joint = naive(5, [cm.EtaRange(2.0, 400.0)], sigma)
    result = cm.allocate_jointly(joint)
    assert result.binding == (() if sigma else ("eta_low",))
    near = np.clip(result.eta * np.array([0.99, 1.01]), 2.0, 400.0)
    for eta in (*np.geomspace(2.0, 400.0, 15), *near):
        for weights in np.eye(12):
            value = joint.objective(best_model(joint, weights, eta), weights, eta)
            assert result.objective <= value * (1 + 1e-12)


@pytest.mark.parametrize(
    ("constraints", "options"),
    [
        ([cm.EtaRange(2, 9), cm.Cap(4)], {}),
        ([cm.EtaRange(2, 9)], {"noise": "worst-case"}),
        ([cm.EtaRange(2, 9)], {"noise": "realised", "noise_vector": [1.0, 2.0, 3.0]}),
        ([cm.EtaRange(2, 9)], {"cost": cm.PowerCost(2)}),
    ],
)
def test_other_markets_do_not_use_the_naive_model(constraints, options):
    """Check that other markets, in which single sellers are not compared, have no lower bound."""
    result = cm.allocate_jointly(naive(1, constraints, **options), starts=1, max_iterations=2)
    assert result.lower_bound == -np.inf


def test_sellers_with_infinite_costs_are_refused():
    joint = naive(1, [cm.EtaRange(2, 9)])
    # the density is 0 at the upper end, so all virtual costs are infinite
    sellers = cm.Sellers(np.ones(12), prior=cm.Beta(2, 3))
    market = cm.Market(sellers, 1.0 * cm.Payments(), [cm.EtaRange(2, 9)])
    with pytest.raises(InfeasibleMarketError, match="no seller can sell"):
        cm.allocate_jointly(cm.JointMarket(market, joint.X, joint.y, regularization=0.05))


@pytest.mark.parametrize("weights", [[0.5], [-1.0, 2.0], [np.nan, 1.0], "ab", None])
def test_invalid_weights_of_a_model_are_refused(weights):
    market = cm.Market.standard(cm.Sellers([0.1, 0.3], cm.Uniform(0, 1)), mu=1, sigma=1, gamma=1)
    joint = cm.JointMarket(market, [[0.6], [-0.6]], [1, -1], regularization=0.5)
    with pytest.raises(ParameterError, match="weights"):
        cm.joint.best_model(joint, weights, 1.0)
