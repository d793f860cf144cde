"""Test the descents, projections and payments of the papers for the joint problem."""

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import simpson

import convexmarket as cm
from convexmarket.errors import NotSupportedError
from convexmarket.privacy.sensitivity import ridge_sensitivity
from problems.papers import joint_methods, joint_wdbc
from problems.papers.methods.joint_gradient import (
    Terms,
    descend,
    largest_eta,
    project_logarithms,
    slopes,
)
from problems.papers.methods.joint_payments import changed, joint_payment, unavoidable_gain
from problems.papers.methods.release_draws import MOST_BYTES, _non_interactive
from problems.papers.methods.ridge_losses import sampling_chances

#: The weight of the spread is so large that all sellers sell and descents in z converge.
TERMS = Terms(20.0, 10.0, 0.1, squared=True)


def joint_market(report=0.3, terms=TERMS, m=6, regularization=0.5):
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(m, 2)) / 4, np.resize([1, -1, 1], m)
    sellers = cm.Sellers([report, *np.linspace(0.2, 0.9, m - 1)], prior=cm.Uniform(0.1, 1))
    objective = terms.mu * cm.terms.SquaredSpread() + terms.sigma * cm.Noise()
    market = cm.Market(sellers, objective + terms.gamma * cm.Payments())
    return cm.JointMarket(market, X, y, regularization=regularization)


@given(seed=st.integers(0, 2**32), m=st.integers(2, 8))
def test_projected_log_weights_have_exponentials_that_sum_to_one(seed, m):
    v = np.log(np.random.default_rng(seed).dirichlet(np.ones(m))) + 0.3
    z = project_logarithms(v)
    assert np.exp(z).sum() == pytest.approx(1, abs=1e-12)
    multiplier = (v - z) / np.exp(z)
    np.testing.assert_allclose(multiplier, multiplier[0], rtol=1e-6, atol=1e-9)


def test_gradients_equal_those_of_the_objective():
    joint, rng = joint_market(), np.random.default_rng(0)
    model, weights, eta = rng.normal(size=2), rng.dirichlet(np.ones(6)), 5.0
    value, by_model, by_weights = slopes(joint, TERMS, model, weights, eta)
    assert value + TERMS.sigma / eta == pytest.approx(joint.objective(model, weights, eta))
    for k, step in enumerate(np.eye(8) * 1e-6):
        ahead = slopes(joint, TERMS, model + step[:2], weights + step[2:], eta)[0]
        assert (ahead - value) / 1e-6 == pytest.approx([*by_model, *by_weights][k], rel=1e-3)


@pytest.mark.parametrize("logarithms", [False, True])
def test_descents_find_the_certified_optimum_at_the_optimal_eta(logarithms):
    joint = joint_market()
    best = cm.allocate_jointly(joint)
    assert best.status == "global"
    start = np.array([1.0, -2.0])
    *_, objective = descend(joint, TERMS, best.eta, start, logarithms=logarithms)
    assert objective == pytest.approx(best.objective, rel=1e-8)
    assert best.eta <= largest_eta(joint, TERMS)


@pytest.mark.campaign
def test_payments_equal_the_cost_plus_the_integral_over_higher_reports():
    terms = Terms(3.0, 2.0, 1.0, squared=True)
    make = partial(joint_market, terms=terms, m=3)
    reports = np.linspace(0.3, 1.0, 9)
    sold = [cm.allocate_jointly(make(report=z)).epsilon[0] for z in reports]
    area = 0.3 * sold[0] + simpson(sold, x=reports)
    assert joint_payment(make(), 0, terms.gamma) == pytest.approx(area, rel=3e-3)
    assert unavoidable_gain(make(), 0, reports[::4]) < 1e-9
    with pytest.raises(NotSupportedError, match="payments at a local optimum may not exist"):
        joint_payment(make(regularization=1e-3), 0, terms.gamma)


def test_no_payment_is_truthful_at_a_local_optimum():
    X = np.array([[1.0]] * 5 + [[-5.5], [0.5]])
    sellers = cm.Sellers([0.3] * 6 + [0.35], prior=cm.Uniform(0, 1))
    objective = cm.terms.SquaredSpread() + 0.1 * cm.Noise() + 0.1 * cm.Payments()
    joint = cm.JointMarket(cm.Market(sellers, objective), X, np.ones(7), regularization=0.05)
    reports = np.unique([0.35, *np.linspace(1 / 16, 1, 5)])
    gain = unavoidable_gain(joint, 6, reports, partial(cm.allocate_jointly, starts=1))
    assert gain > 1e-3
    assert changed(joint, 6, 0.5).market.sellers.sensitivities[6] == 0.5


def test_descents_outside_the_convex_region_depend_on_their_start():
    rng = np.random.default_rng(1)
    terms, X = Terms(0.05, 10.0, 0.1), rng.normal(size=(8, 2))
    sellers = cm.Sellers(np.full(8, 0.5), prior=cm.Uniform(0.1, 1))
    market = cm.Market.standard(sellers, mu=0.05, sigma=10.0, gamma=0.1)
    joint = cm.JointMarket(market, X, rng.choice([-1, 1], 8), regularization=0.02)
    assert cm.joint.convexity_ratio(joint) > 1
    ends = [descend(joint, terms, 5.0, 10 * rng.normal(size=2))[2] for _ in range(6)]
    assert max(ends) > 1.001 * min(ends)


def test_sampling_as_published_violates_its_guarantee() -> None:
    """Noise that depends on the sample size reveals members of the sample (docs/theory.md, 7.2)."""
    d, promised = 10, 0.01
    alpha = 100.0 * d
    chance = sampling_chances(np.array([promised, 1.0]), 1.0)[0]
    kappa = ridge_sensitivity(alpha, d, sensitivity="paper")
    alone, together = 1.0 / kappa, 2.0 / kappa
    model = np.full(d, 0.5 / (alpha + 0.5 * d))  # row (1, ..., 1), label 1, weight 1/2

    def log_density(o, label):
        return np.logaddexp(
            np.log1p(-chance) + d * np.log(alone) - alone * np.linalg.norm(o),
            np.log(chance) + d * np.log(together) - together * np.linalg.norm(o - label * model),
        )

    loss = log_density(model, 1) - log_density(model, -1)
    assert loss > 50 * promised


def test_the_range_of_descents_is_relative_to_the_lowest_objective():
    keys = {"group": ["g", "g"], "instance": [0, 0]}
    descents = pd.DataFrame(keys | {"objective": [-4.0, -3.0]})
    frames = {"descents": descents, "instances": pd.DataFrame({"group": ["g"], "instance": [0]})}
    assert joint_methods.ranges(frames).range.tolist() == [0.25]


def test_errors_are_shares_of_wrong_labels():
    rows = cm.datasets.wdbc(random_state=0)
    mean = joint_wdbc.errors(rows, np.full(len(rows.y_train), 1e5), 0.01).mean(axis=1)
    assert np.all(mean < 0.1)


def test_every_tried_net_fits_the_memory_limit():
    tried = []

    @dataclass
    class Bounds:
        max_norm: float = 1.0

        def non_interactive(self, *_):
            return 1.0

        def on_net(self, _, rounds, size, __):
            tried.append((rounds, size))
            return 1.0

    theory = SimpleNamespace(
        kernel=SimpleNamespace(feature_lipschitz=1.0),
        limit=1.0,
        n_features=2,
        sensitivity=lambda n: 1.0 / n,
        norm=lambda n: 1.0,
    )
    assert _non_interactive(theory, Bounds())(100) == 1.0
    rounds, sizes = np.array(tried).T
    held = 8.0 * rounds * sizes
    assert 0.99 * MOST_BYTES < held.max() <= MOST_BYTES
