"""A shadow price is minus the derivative of the optimum with respect to a bound."""

import json
import warnings
from operator import itemgetter

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import LooseCertificateWarning
from tests import one_in
from tests.allocation.builders import Own

SELLERS = cm.Sellers([0.1, 0.3, 0.6, 0.8], prior=cm.Uniform(0, 1))
GROUPS = ["a", "a", "b", "b"]
FIRST = itemgetter(0)
AGES = [[-5.0], [1.0], [2.0], [4.0]]
BOTH = [[-5.0, 0.0], [1.0, 3.0], [2.0, 0.0], [4.0, 1.0]]
PAID = cm.Spread() + cm.Noise() + 0.5 * cm.Payments()
UNPAID = cm.Spread() + cm.Noise()
KINKED = PAID + 0.1 * Own(lambda q: cp.sum_squares(q.epsilon))


def share(low):
    return cm.GroupShare(GROUPS, at_least={"b": low})


CASES = {
    "a cap": (PAID, lambda x: [cm.Cap(x)], 1.2, lambda p: p),
    "a conic cap": (KINKED, lambda x: [cm.Cap(x)], 1.2, lambda p: p),
    "a largest guarantee": (PAID, lambda x: [cm.MaxEpsilon(x)], 0.4, lambda p: p),
    "one of several guarantees": (PAID, lambda x: [cm.MaxEpsilon([x, 2, 2, 2])], 0.3, FIRST),
    "guarantees without payments": (UNPAID, lambda x: [cm.MaxEpsilon(x)], 0.4, lambda p: p),
    "a budget": (UNPAID, lambda x: [cm.Budget(x)], 0.7, lambda p: p),
    "a budget and guarantees": (
        UNPAID,
        lambda x: [cm.Budget(x), cm.MaxEpsilon(0.5)],
        0.7,
        lambda p: p,
    ),
    "the low end of a range": (PAID, lambda x: [cm.EtaRange(x, 9.0)], 3.0, FIRST),
    "the high end of a range": (PAID, lambda x: [cm.EtaRange(0.1, x)], 0.8, lambda p: p[1]),
    "a conic high end": (KINKED, lambda x: [cm.EtaRange(0.1, x)], 0.8, lambda p: p[1]),
    "a share": (KINKED, lambda x: [share(x)], 0.6, lambda p: p["at_least"]["b"]),
    "an effective size": (PAID, lambda x: [cm.terms.EffectiveSize(x)], 3.0, lambda p: p),
    "moments": (PAID, lambda x: [cm.terms.Moments(AGES, [1.0], x)], 0.3, lambda p: p),
    "two moments": (PAID, lambda x: [cm.terms.Moments(BOTH, [1, 1], [x, 0])], 0.3, FIRST),
}


@pytest.mark.parametrize("name", list(CASES))
def test_a_price_equals_the_slope_of_the_optimal_objective(name):
    objective, constraints, number, part = CASES[name]

    def solve(x):
        market = cm.Market(SELLERS, objective, constraints(x))
        return cm.allocate(market, gap=1e-9)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LooseCertificateWarning)
        result, step = solve(number), 1e-3 * number
        slope = (solve(number - step).objective - solve(number + step).objective) / (2 * step)
    assert abs(slope) > 1e-3  # the constraint is active
    assert part(result.prices[0]) == pytest.approx(slope, rel=2e-4)
    assert result.binding


def test_prices_that_are_not_unique_are_nan():
    """All weights are at the cap, and eta is at an end of its range."""
    market = cm.Market(SELLERS, PAID, [cm.Cap(1.0), cm.EtaRange(0.1, 0.8)])
    assert np.isnan(cm.allocate(market).prices[0])


class Least(cm.terms.Constraint):
    """Lower bound on the weight of the last seller."""

    def __init__(self, share):
        self.share = share

    def constraints(self, quantities):
        return [quantities.weights[3] >= self.share]


def test_a_user_defined_constraint_returns_one_multiplier_for_each_comparison():
    def solve(share):
        return cm.allocate(cm.Market(SELLERS, PAID, [Least(share)]), gap=1e-9)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LooseCertificateWarning)
        result = solve(0.3)
        slope = (solve(0.3003).objective - solve(0.2997).objective) / 6e-4
    assert result.binding == ("Least",)
    assert result.prices[0][0] == pytest.approx(slope, rel=2e-4)
    assert json.loads(json.dumps(result.certificate()))["prices"][0][0] == pytest.approx(
        slope, 2e-4
    )


@pytest.mark.parametrize("seed", one_in(30, [*range(4, 30), *range(4)]))
@pytest.mark.parametrize("method", ["auto", "branch_and_bound"])
def test_all_methods_agree_on_the_price_of_each_seller(seed, method):
    rng = np.random.default_rng([43, seed])
    m = int(rng.integers(3, 8))
    sellers = cm.Sellers(rng.uniform(0, 1, m), prior=cm.Uniform(0, 1))
    mu, sigma, gamma = 10.0 ** rng.uniform(-0.5, 0.5, 3)
    objective = mu * cm.Spread() + sigma * cm.Noise() + gamma * cm.Payments()
    bounds = 10.0 ** rng.uniform(-1.5, 0.5, m)

    def solve(bounds):
        market = cm.Market(sellers, objective, [cm.MaxEpsilon(bounds)])
        return cm.allocate(market, method, gap=1e-10)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LooseCertificateWarning)
        prices, step = solve(bounds).prices[0], 1e-3 * bounds
        slopes = [
            (solve(bounds - step * single).objective - solve(bounds + step * single).objective)
            / (2 * step @ single)
            for single in np.eye(m)
        ]
    assert prices == pytest.approx(np.array(slopes), rel=5e-3, abs=1e-4 * max(slopes) + 1e-5)
