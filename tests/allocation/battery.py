"""Build markets with one user-defined expression and compare them with brute force."""

from collections import namedtuple
from functools import cache

import cvxpy as cp
import numpy as np

import convexmarket as cm
from tests.allocation.atoms import KINKS, OTHERS
from tests.allocation.brute_force import ACCURATE, BruteForce
from tests.allocation.builders import Bound, Own, check_feasible

GAP = 1e-6
ATOMS = {**KINKS, **OTHERS}
PLACES = ["term in a", "term in eps", "constraint in a", "constraint in eps"]
#: Names of atoms that decrease faster than the payments increase as epsilon grows.
FALLING = ["lambda_max", "lambda_min", "lambda_sum_largest", "geo_mean", "weighted geo_mean"]
FALLING += [
    "piecewise linear",
    "min by column",
    "harmonic_mean",
    "rel_entr",
    "rel_entr with a number",
]
#: Terms of the objective for the spread and the payments, by name.
OTHERS = {
    "spread": (cm.Spread(), cm.Payments()),
    "lines": (0.0 * cm.Spread(), cm.Payments()),
    "cost": (0.3 * cm.terms.SquaredSpread(), cm.Payments(cm.PowerCost(2))),
}


@cache
def plain(others, m):
    """Return sellers, an objective without the user-defined expression, and its allocation."""
    rng = np.random.default_rng(m)
    sellers = cm.Sellers(rng.uniform(0.1, 1, m), prior=cm.Uniform(0.1, 1))
    spread, payments = OTHERS[others]
    objective = spread + m * cm.Noise() + (1 / m) * payments
    return sellers, objective, cm.allocate(cm.Market(sellers, objective, [cm.Cap(4)]))


def level(g, point, largest):
    """Choose an upper bound on ``g`` that is feasible and, if possible, excludes ``point``."""
    x = cp.Variable(point.size, nonneg=True)
    bounds = [cp.sum(x) == point.size] if largest is None else [cp.sum(x) <= largest]
    least = cp.Problem(cp.Minimize(g(x)), bounds).solve(solver="CLARABEL", **ACCURATE)
    x.value = point
    free = float(g(x).value)
    return (least + free) / 2 if free > least + 1e-2 * (1 + abs(least)) else least + 0.1


def market_with(name, place, others, m=12):
    """Return a market whose optimum depends on the user-defined expression."""
    g = ATOMS[name]
    sellers, objective, free = plain(others, m)
    in_weights = place.endswith(" a")

    def quantity(quantities):
        return m * quantities.weights if in_weights else quantities.epsilon

    if place.startswith("term"):
        single = cp.Variable(m, value=np.ones(m), nonneg=True)
        weight = 1 / (1 + abs(float(g(single).value)))
        limits = [cm.EtaRange(free.eta / 10, free.eta * 10)] if name in FALLING else []
        return cm.Market(sellers, objective + weight * Own(lambda q: g(quantity(q))), limits)
    point = m * free.weights if in_weights else free.epsilon
    bound = level(g, point, None if in_weights else 3 * free.eta)
    return cm.Market(sellers, objective, [Bound(lambda q: [g(quantity(q)) <= bound])])


#: ``excess`` is (objective - best) / abs(best), and ``above`` is (lower bound - best) / abs(best).
Figures = namedtuple("Figures", ["gap", "solves", "excess", "above"])


def figures(market, points=24):
    """Compute an allocation and compare its objective and lower bound with brute force."""
    result = cm.allocate(market, gap=GAP)
    best = BruteForce(market).minimum(result.eta, points)
    check_feasible(market, result)
    excess, above = (x - best for x in (result.objective, result.lower_bound))
    return Figures(result.gap, len(result.solves), excess / abs(best), above / abs(best))


def assert_certified(result):
    """Check the gap, the number of solves, the objective and the lower bound."""
    assert result.gap <= GAP
    assert result.solves <= 40
    assert result.excess <= 1.5 * GAP
    assert result.above <= 1e-8
