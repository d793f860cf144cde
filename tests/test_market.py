"""Markets are immutable, and markets of the papers' form are recognised."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.errors import NotSupportedError, ParameterError

COSTS = [0.5, 1.0, 2.0, 4.0]


def sellers():
    return cm.Sellers(virtual_costs=COSTS)


def papers(**changes):
    return cm.Market.standard(sellers(), **{"mu": 2, "sigma": 3, "gamma": 0.5, **changes})


class SquaredSpread(cm.Term):
    def expression(self, quantities):
        return cp.sum_squares(quantities.weights)


class LargestWeight(cm.terms.Constraint):
    def constraints(self, quantities):
        return [quantities.weights <= 0.9]


class LoudSpread(cm.Spread):
    """Subclass of Spread that overrides its definition."""

    def expression(self, quantities):
        return 2 * super().expression(quantities)


@pytest.mark.parametrize(
    ("objective", "constraints", "expected"),
    [
        # the weights of equal terms are added, in any order and nesting
        (
            cm.Payments() + 2 * (cm.Spread() + cm.Noise()) + 0.5 * cm.Spread(),
            [],
            {"mu": 2.5, "sigma": 2, "gamma": 1},
        ),
        (1 * cm.Payments(), [], {"mu": 0, "sigma": 0, "gamma": 1}),
        (cm.Payments(), [], {"mu": 0, "sigma": 0, "gamma": 1}),
        # terms with zero weight are ignored
        (cm.Payments() + 0 * SquaredSpread() + 0 * cm.Spread(3), [], {"mu": 0, "gamma": 1}),
        # the tightest constraint applies
        (cm.Payments() + cm.Noise(), [cm.Cap(3), cm.Cap(2)], {"max_weight": 0.5}),
        (
            cm.Payments() + cm.Noise(),
            [cm.EtaRange(1, 5), cm.EtaRange(2, 9)],
            {"eta_low": 2, "eta_high": 5},
        ),
    ],
)
def test_markets_in_the_papers_form_are_recognised(objective, constraints, expected):
    form = cm.Market(sellers(), objective, constraints).standard_form
    assert {name: getattr(form, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("objective", "constraints"),
    [
        (cm.Spread() + cm.Noise(), []),  # there are no payments
        (SquaredSpread() + cm.Noise() + cm.Payments(), []),
        (cm.Spread() + 1e-9 * SquaredSpread() + cm.Payments(), []),
        (LoudSpread() + cm.Noise() + cm.Payments(), []),
        (cm.Spread() + cm.Noise() + cm.Payments(), [LargestWeight()]),
    ],
)
def test_other_markets_are_refused_by_the_exact_solver(objective, constraints):
    market = cm.Market(sellers(), objective, constraints)
    assert market.standard_form is None
    with pytest.raises(
        NotSupportedError, match=r"exact solver .* Spread, Noise and Payments .* this market is"
    ):
        cm.allocate(market, method="exact")


def test_a_market_is_immutable():
    constraints = [cm.Cap(2)]
    market = cm.Market(sellers(), cm.Spread() + cm.Payments(), constraints)
    constraints.append(cm.Cap(1))
    assert market.constraints == (cm.Cap(2),)
    with pytest.raises(dataclasses.FrozenInstanceError):
        market.objective = 1 * cm.Spread()
    with pytest.raises(dataclasses.FrozenInstanceError):
        market.standard_form.mu = 5
    assert repr(market) == "Market(4 sellers, 1 * Spread() + 1 * Payments(), [Cap(2)])"


# ------------------------------------------------------------------------- refusals

#: Invalid calls, by error class and by a regular expression for the message.
BAD = {
    ParameterError: {
        "sellers must be a Sellers object, got list": lambda: cm.Market(COSTS, 1 * cm.Spread()),
        r"objective must be a sum of terms such as mu \* Spread\(\), got 3.0": lambda: cm.Market(
            sellers(), 3.0
        ),
        "objective must be a sum of terms": lambda: cm.Market(sellers(), cm.Spread),
        r"a constraint must be .*Cap\(5\), got 5": lambda: cm.Market(
            sellers(), 1 * cm.Spread(), [5]
        ),
        r"a constraint must be .*got Noise\(\)": lambda: cm.Market(
            sellers(), 1 * cm.Spread(), [cm.Noise()]
        ),
        "gamma, the weight of Payments, must be > 0.*got 0": lambda: cm.Market(
            sellers(), cm.Spread() + 0 * cm.Payments()
        ),
        "gamma must be .* > 0, got 0": lambda: papers(gamma=0),
        "mu must be a finite number >= 0, got -1": lambda: papers(mu=-1),
        "sigma must .*, got inf": lambda: papers(sigma=np.inf),
        "cap is 0.5.*cap >= 1": lambda: papers(cap=0.5),
        r"constraints must be a list .*, got Cap\(5\)": lambda: cm.Market(
            sellers(), 1 * cm.Spread(), cm.Cap(5)
        ),
        r"eta_range must be a pair \(low, high\), got 3": lambda: papers(eta_range=3),
        "eta is in \\[3, 2\\]": lambda: papers(eta_range=(3, 2)),
        "0 < low <= high": lambda: papers(eta_range=(0, 2)),
        r"eta is 3.0, outside what EtaRange\(1, 2\) allows": lambda: cm.declare(
            papers(eta_range=(1, 2)), eta=3.0
        ),
    }
}


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [(error, *case) for error, cases in BAD.items() for case in cases.items()],
)
def test_errors_name_the_argument_the_value_and_a_remedy(error, words, call):
    with pytest.raises(error, match=words) as raised:
        call()
    assert isinstance(raised.value, cm.ConvexMarketError)
