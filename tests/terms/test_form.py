"""Test the numeric forms of terms and constraints, and their inheritance by subclasses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket import terms
from convexmarket.errors import ParameterError
from convexmarket.studies.files import market_file
from convexmarket.terms.pieces import MarketNumbers
from tests import one_in
from tests.terms.builders import COSTS, SELLERS, M

FORM = MarketNumbers(COSTS)


def form_of(*parts):
    """Build the numeric form of a market with the given constraints and with terms of weight 2."""
    objectives = [2.0 * part for part in parts if isinstance(part, cm.Term)]
    limits = [part for part in parts if isinstance(part, cm.terms.Constraint)]
    return FORM.plus(sum(objectives, cm.terms.Objective(())).parts, limits)


def changed(form):
    """Return the fields of a form, except the costs, that differ from the default values."""
    plain = vars(FORM)
    return {name: v for name, v in vars(form).items() if not np.array_equal(v, plain[name])}


@pytest.mark.parametrize(
    ("piece", "expected"),
    [
        (cm.Spread(), {"mu": 2.0}),
        (cm.terms.SquaredSpread(), {"mu_squared": 2.0}),
        (cm.Noise(), {"sigma": 2.0}),
        (cm.Payments(), {"gamma": 2.0}),
        (cm.Payments(cm.PowerCost(1)), {"gamma": 2.0}),
        (cm.Payments(cm.PowerCost(3)), {"payments": ((2.0, cm.PowerCost(3)),)}),
        (cm.Cap(2), {"max_weight": 2 / M}),
        (cm.Cap(9), {}),
        (cm.MaxEpsilon(0.5), {"max_epsilon": 0.5}),
        (cm.EtaRange(1, 3), {"eta_low": 1, "eta_high": 3}),
        (cm.Budget(7), {"budgets": (7,)}),
        (cm.Spread(3), {"other_terms": (cm.Spread(3),)}),
        (cm.terms.NegativeEntropy(), {"other_terms": (cm.terms.NegativeEntropy(),)}),
    ],
    ids=repr,
)
def test_the_numeric_form_of_a_piece_has_the_stated_values(piece, expected):
    assert changed(form_of(piece)) == expected


def test_a_budget_follows_its_parameter():
    amount = cp.Parameter(nonneg=True, name="left")
    market = cm.Market(SELLERS, cm.Spread() + cm.Noise(), [cm.Cap(2), cm.Budget(amount)])
    with pytest.raises(ParameterError, match=r"'left' has no value; set its value"):
        _ = market.form.budget
    for amount.value in (1.0, 2.0):
        assert market.form.budget == amount.value


# ------------------------------------------------------------ shortcuts and definitions


class LoudSpread(cm.Spread):
    def expression(self, quantities):
        return 2 * super().expression(quantities)


class LoudPayments(cm.Payments):
    def expression(self, quantities):
        return 2 * super().expression(quantities)


class LoudNoise(cm.Noise):
    def expression(self, quantities):
        return cp.square(quantities.inverse_eta)


class Loose(cm.Cap):
    def constraints(self, quantities):
        return [quantities.weights[0] <= self.k / quantities.weights.size]


class Overdraft(cm.Budget):
    def constraints(self, quantities):
        return [item for item in super().constraints(quantities) if False]


class Doubling:
    """Mixin that overrides the definition of a term."""

    def expression(self, quantities):
        return 2 * super().expression(quantities)


class MixedSpread(Doubling, cm.terms.SquaredSpread):
    pass


@pytest.mark.parametrize(
    "piece",
    one_in(4, [LoudSpread(), LoudPayments(), LoudNoise(), Loose(2), Overdraft(3), MixedSpread()]),
    ids=lambda piece: type(piece).__name__,
)
def test_an_overridden_definition_does_not_inherit_shortcuts(piece):
    assert form_of(piece).rest == (piece,)
    assert not piece.separable
    assert piece.reports is None
    if isinstance(piece, cm.Term):
        assert piece.simplex_minimum(1.0, COSTS) is None
        assert (piece.adds_to, piece.is_norm) == (None, False)
        assert cm.allocate(cm.Market(SELLERS, piece + cm.Noise() + cm.Payments())).gap <= 1e-5


def test_overridden_shortcuts_are_used():
    class Twice(cm.Spread):
        def expression(self, quantities):
            return 2 * super().expression(quantities)

        def numbers(self, weight, form):
            return replace(form, mu=form.mu + 2 * weight)

    class Named(cm.Spread):
        pass

    assert form_of(Twice()).mu == 4.0
    assert form_of(Named()).mu == 2.0
    double = cm.allocate(cm.Market(SELLERS, Twice() + cm.Noise() + cm.Payments()))
    plain = cm.allocate(cm.Market(SELLERS, 2 * cm.Spread() + cm.Noise() + cm.Payments()))
    assert (double.method, double.objective) == ("exact", plain.objective)
    assert Twice().simplex_minimum(1.0, COSTS) is None


def test_an_overridden_cost_does_not_inherit_shortcuts():
    class DoubleCost(cm.PowerCost):
        def expression(self, epsilon):
            return 2 * super().expression(epsilon)

    cost = DoubleCost(2)
    assert cost([0.0, 3.0]) == pytest.approx([0.0, 18.0])
    assert cost.derivatives(np.ones(1)) is None
    assert not DoubleCost(1).is_linear
    assert form_of(cm.Payments(DoubleCost(1))).payments == ((2.0, DoubleCost(1)),)


def test_slopes_of_costs_equal_their_derivatives():
    epsilon, h = np.array([0.5, 1.0, 2.5]), 1e-5
    costs = [cm.terms.LinearCost(), *map(cm.PowerCost, (1, 1.5, 2, 3)), cm.terms.ExponentialCost()]
    for cost in costs:
        slope, bend = cost.derivatives(epsilon)
        assert slope == pytest.approx((cost(epsilon + h) - cost(epsilon - h)) / (2 * h), rel=1e-8)
        above, below = (cost.derivatives(epsilon + step)[0] for step in (h, -h))
        assert bend == pytest.approx((above - below) / (2 * h), rel=1e-6, abs=1e-9)
    assert cm.PowerCost(1.5).derivatives(np.zeros(1))[1] == np.inf


# ------------------------------------------------- new terms


@dataclass(frozen=True)
class Reserve(cm.Term):
    """Cost (level/eta - 1)_+ of a shortfall below a level of privacy.

    Parameters
    ----------
    level : float
    """

    level: float

    def __post_init__(self):
        if not self.level > 0:
            raise ParameterError(f"level is {self.level!r}; give a number > 0")

    def expression(self, quantities):
        return cp.pos(self.level * quantities.inverse_eta - 1)


def test_an_exported_term_has_a_table_in_problem_files(monkeypatch):
    monkeypatch.setattr(terms, "Reserve", Reserve, raising=False)
    kind = market_file.named(cm.Term, "-")["reserve"]
    assert market_file.Piece("reserve", kind, {"level": 2.0}, 0.5).build(None) == 0.5 * Reserve(2.0)
    for wrong in ({"level": -1.0}, {}, {"level": "2"}, {"level": 2.0, "other": 1}):
        with pytest.raises(ValueError, match=r"level|other|supported"):
            market_file.Piece("reserve", kind, wrong)
