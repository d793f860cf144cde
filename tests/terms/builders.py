"""Every term and constraint beside its definition."""

import numpy as np
import pandas as pd

import convexmarket as cm

M = 5
COSTS = np.array([0.5, 1.0, 2.0, 3.0, 0.1])
GROUPS = np.array(["a", "b", "a", "c", "b"])
SELLERS = cm.Sellers(virtual_costs=COSTS)
OWN = np.array([1.0, 0.0, 3.0, 2.0, 4.0])


def entropy(a):
    return sum(x * np.log(x) for x in a if x > 0)


#: A term, and its definition as a function of weights, eta and virtual costs.
TERMS = {
    "spread 2": (cm.Spread(), lambda a, eta, c: np.sqrt(np.sum(a**2))),
    "spread 1.5": (cm.Spread(1.5), lambda a, eta, c: np.sum(a**1.5) ** (1 / 1.5)),
    "spread 4": (cm.Spread(p=4), lambda a, eta, c: np.sum(a**4) ** 0.25),
    "spread inf": (cm.Spread(p=np.inf), lambda a, eta, c: np.max(a)),
    "squared": (cm.SquaredSpread(), lambda a, eta, c: np.sum(a**2)),
    "entropy": (cm.NegativeEntropy(), lambda a, eta, c: entropy(a)),
    "noise": (cm.Noise(), lambda a, eta, c: 1 / eta),
    "payments": (cm.Payments(), lambda a, eta, c: eta * (c @ a)),
    "power": (cm.Payments(cm.PowerCost(2.5)), lambda a, eta, c: c @ (eta * a) ** 2.5),
    "power 1": (cm.Payments(cm.PowerCost(1)), lambda a, eta, c: eta * (c @ a)),
    "exponential": (cm.Payments(cm.ExponentialCost()), lambda a, eta, c: c @ np.expm1(eta * a)),
}


def share(a, group):
    return a[group == GROUPS].sum()


#: A constraint, and how much room its definition leaves at a point; negative where it is violated.
CONSTRAINTS = {
    "cap": (cm.Cap(2), lambda a, eta: (2 / M - a).min()),
    "caps": (cm.Cap(OWN), lambda a, eta: (OWN / M - a).min()),
    "largest": (cm.MaxEpsilon(0.5), lambda a, eta: (0.5 - eta * a).min()),
    "each largest": (cm.MaxEpsilon(OWN), lambda a, eta: (OWN - eta * a).min()),
    "given": (cm.GivenEpsilon(OWN), lambda a, eta: (OWN - eta * a).min()),
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
}

SPREADS = ["spread 2", "spread 1.5", "spread 4", "spread inf", "squared", "entropy"]
BILLS = ["payments", "power", "exponential", None]


def assert_dcp_and_dpp(spread, bill, chosen):
    """Each choice of constraints gives a declaration that CVXPY knows to be convex."""
    objective = TERMS[spread][0] + 2.0 * cm.Noise()
    if bill:
        objective += 0.5 * TERMS[bill][0]
    for names in chosen:
        market = cm.Market(SELLERS, objective, [CONSTRAINTS[name][0] for name in names])
        assert cm.declare(market, eta=1.0).is_dcp(dpp=True), names
        if bill is None:
            assert cm.declare(market).is_dcp(dpp=True), names
