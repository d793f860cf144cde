"""Define examples of all terms and constraints, and functions that compute their values."""

import itertools

import numpy as np
import pandas as pd
from scipy import sparse

import convexmarket as cm

M = 5
COSTS = np.array([0.5, 1.0, 2.0, 3.0, 0.1])
GROUPS = np.array(["a", "b", "a", "c", "b"])
SELLERS = cm.Sellers(virtual_costs=COSTS)
ENTRIES = np.array([1.0, 0.0, 3.0, 2.0, 4.0])


#: Target weights, public features, target averages of features, and a similarity matrix.
TARGET = np.array([0.1, 0.3, 0.2, 0.25, 0.15])
FEATURES = np.array([[1, -2], [0, 0.5], [3, 1], [2, 0], [-1, 400]])
AVERAGES = np.array([1.2, 0.5])
SIMILARITY = np.array(
    [[1, 0.9, 0, 0, 0], [0.9, 1, 0, 0, 0], [0, 0, 2, 0, -2], [0, 0, 0, 0.5, 0], [0, 0, -2, 0, 2]]
)
RADIUS = np.array([0.1, 0.5, 0.0, 0.2, 1.0])


def entropy(a, target=None):
    target = np.ones(M) if target is None else target
    return sum(x * np.log(x / q) for x, q in zip(a, target, strict=True) if x > 0)


def tiers(epsilon):
    """Compute the integral of a rate that is 1 up to 0.2, 3 up to 0.5, and 4 above 0.5."""
    return [min(e, 0.2) + 3 * min(max(e - 0.2, 0), 0.3) + 4 * max(e - 0.5, 0) for e in epsilon]


def worst(x, level):
    """Compute the conditional value at risk of ``x`` as a minimum over thresholds in ``x``."""
    return min(t + np.maximum(x - t, 0).sum() / ((1 - level) * M) for t in x)


def vertices(size):
    """Yield all vectors with ``int(size)`` ones, one fractional entry, and zeros elsewhere."""
    whole, part = int(size), size - int(size)
    for chosen in itertools.permutations(range(M), whole + (part > 0)):
        deviation = np.zeros(M)
        deviation[list(chosen[:whole])] = 1
        if part:
            deviation[chosen[-1]] = part
        yield deviation


def worst_case(a, eta, c, deviations):
    """Compute the largest total payment over given relative deviations of costs."""
    return max((c * (1 + RADIUS * deviation)) @ (eta * a) for deviation in deviations)


def on_a_sphere(x):
    """Return the unit vector along ``RADIUS * x``, the worst deviation in the unit ball."""
    direction = RADIUS * x
    direction /= direction.max() or 1.0  # avoids underflow of squares
    return [direction / np.linalg.norm(direction) if direction.any() else direction]


#: Terms, and their definitions as functions of weights, eta and virtual costs.
TERMS = {
    "spread 2": (cm.Spread(), lambda a, eta, c: np.sqrt(np.sum(a**2))),
    "spread 1.5": (cm.Spread(1.5), lambda a, eta, c: np.sum(a**1.5) ** (1 / 1.5)),
    "spread 4": (cm.Spread(p=4), lambda a, eta, c: np.sum(a**4) ** 0.25),
    "spread inf": (cm.Spread(p=np.inf), lambda a, eta, c: np.max(a)),
    "squared": (cm.terms.SquaredSpread(), lambda a, eta, c: np.sum(a**2)),
    "entropy": (cm.terms.NegativeEntropy(), lambda a, eta, c: entropy(a)),
    "noise": (cm.Noise(), lambda a, eta, c: 1 / eta),
    "payments": (cm.Payments(), lambda a, eta, c: eta * (c @ a)),
    "power": (cm.Payments(cm.PowerCost(2.5)), lambda a, eta, c: c @ (eta * a) ** 2.5),
    "power 1": (cm.Payments(cm.PowerCost(1)), lambda a, eta, c: eta * (c @ a)),
    "exponential": (
        cm.Payments(cm.terms.ExponentialCost()),
        lambda a, eta, c: c @ np.expm1(eta * a),
    ),
    "distance 2": (
        cm.Spread(reference=TARGET),
        lambda a, eta, c: np.sqrt(np.sum((a - TARGET) ** 2)),
    ),
    "distance 3": (cm.Spread(3, TARGET), lambda a, eta, c: np.sum(abs(a - TARGET) ** 3) ** (1 / 3)),
    "distance inf": (cm.Spread(np.inf, TARGET), lambda a, eta, c: np.max(abs(a - TARGET))),
    "divergence": (cm.terms.NegativeEntropy(TARGET), lambda a, eta, c: entropy(a, TARGET)),
    "quadratic": (cm.terms.QuadraticSpread(SIMILARITY), lambda a, eta, c: a @ SIMILARITY @ a),
    "quadratic, sparse": (
        cm.terms.QuadraticSpread(sparse.csc_matrix(SIMILARITY)),
        lambda a, eta, c: a @ SIMILARITY @ a,
    ),
    "squared noise": (cm.terms.SquaredNoise(), lambda a, eta, c: 1 / eta**2),
    "tiers": (
        cm.Payments(cm.terms.TieredCost([1, 3, 4], [0.2, 0.5])),
        lambda a, eta, c: c @ tiers(eta * a),
    ),
    "worst guarantees": (cm.terms.CVaR(0.7), lambda a, eta, c: worst(eta * a, 0.7)),
    "worst payments": (cm.terms.CVaR(0.4, "payments"), lambda a, eta, c: worst(c * eta * a, 0.4)),
    "the worst of all": (cm.terms.CVaR(0.95, "eps"), lambda a, eta, c: np.max(eta * a)),
    "fairness": (
        cm.terms.Fairness("minimax", pd.Series(GROUPS)),
        lambda a, eta, c: max(np.mean(eta * a[g == GROUPS]) for g in "abc"),
    ),
    "box": (
        cm.terms.RobustCosts("box", RADIUS),
        lambda a, eta, c: worst_case(a, eta, c, vertices(M)),
    ),
    "some off": (
        cm.terms.RobustCosts("budget", RADIUS, 1.5),
        lambda a, eta, c: worst_case(a, eta, c, vertices(1.5)),
    ),
    "ellipsoid": (
        cm.terms.RobustCosts("ellipsoid", RADIUS),
        lambda a, eta, c: worst_case(a, eta, c, on_a_sphere(c * eta * a)),
    ),
}


def share(a, group):
    return a[group == GROUPS].sum()


#: Constraints, and their slacks as functions of weights and eta (negative if violated).
CONSTRAINTS = {
    "cap": (cm.Cap(2), lambda a, eta: (2 / M - a).min()),
    "caps": (cm.Cap(ENTRIES), lambda a, eta: (ENTRIES / M - a).min()),
    "largest": (cm.MaxEpsilon(0.5), lambda a, eta: (0.5 - eta * a).min()),
    "each largest": (cm.MaxEpsilon(ENTRIES), lambda a, eta: (ENTRIES - eta * a).min()),
    "given": (cm.terms.GivenEpsilon(ENTRIES), lambda a, eta: (ENTRIES - eta * a).min()),
    "budget": (cm.Budget(1.5), lambda a, eta: 1.5 - eta * (COSTS @ a)),
    "range": (cm.EtaRange(0.5, 2), lambda a, eta: min(eta - 0.5, 2 - eta)),
    "at least": (
        cm.GroupShare(GROUPS, at_least={"a": 0.3, "b": 0.1}),
        lambda a, eta: min(share(a, "a") - 0.3, share(a, "b") - 0.1),
    ),
    "at most": (
        cm.GroupShare(pd.Series(GROUPS), at_most={"c": 0.2}),
        lambda a, eta: 0.2 - share(a, "c"),
    ),
    "equal": (
        cm.GroupShare(list(GROUPS), equal=True),
        lambda a, eta: -max(abs(share(a, g) - 1 / 3) for g in "abc"),
    ),
    "moments": (
        cm.terms.Moments(FEATURES, AVERAGES, [0.5, 60]),
        lambda a, eta: min([0.5, 60] - abs(FEATURES.T @ a - AVERAGES)),
    ),
    "moments, one exact": (
        cm.terms.Moments(sparse.csr_matrix(FEATURES), AVERAGES, [0.5, 0]),
        lambda a, eta: min([0.5, 0] - abs(FEATURES.T @ a - AVERAGES)),
    ),
    "size": (cm.terms.EffectiveSize(3.2), lambda a, eta: 1 / np.sum(a**2) - 3.2),
}

SPREADS = ["spread 2", "spread 1.5", "spread 4", "spread inf", "squared", "entropy"]
BILLS = ["payments", "power", "exponential", None]


def assert_dcp_and_dpp(spread, bill, chosen):
    """Check that declarations with the given sets of constraints are DCP and DPP."""
    objective = TERMS[spread][0] + 2.0 * cm.Noise()
    if bill:
        objective += 0.5 * TERMS[bill][0]
    for names in chosen:
        market = cm.Market(SELLERS, objective, [CONSTRAINTS[name][0] for name in names])
        assert cm.declare(market, eta=1.0).is_dcp(dpp=True), names
        if bill is None:
            assert cm.declare(market).is_dcp(dpp=True), names
