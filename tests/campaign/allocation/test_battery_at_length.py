"""Test all combinations of atoms, places and objectives, and kinked terms for many sellers."""

import numpy as np
import pytest

import convexmarket as cm
from tests.allocation.atoms import KINKS
from tests.allocation.battery import (
    ATOMS,
    OTHERS,
    PLACES,
    assert_certified,
    figures,
    market_with,
    plain,
)

MANY = 200
GROUPS = np.arange(MANY) % 7
#: Terms and constraints of the package that have kinks, for markets with many sellers.
OURS = {
    "largest": (0.5 * cm.Spread(np.inf), cm.Payments()),
    "worst guarantees": (0.3 * cm.terms.CVaR(0.9), cm.Payments()),
    "worst payments": (0.3 * cm.terms.CVaR(0.83, "payments"), cm.Payments()),
    "tiers": (0.0 * cm.Spread(), cm.Payments(cm.terms.TieredCost([1, 2, 5], [0.5, 1.5]))),
    "some off": (0.0 * cm.Spread(), cm.terms.RobustCosts("budget", 0.4, 12.5)),
    "box": (0.0 * cm.Spread(), cm.terms.RobustCosts("box", np.linspace(0, 0.5, MANY))),
    "ellipsoid": (0.0 * cm.Spread(), cm.terms.RobustCosts("ellipsoid", 0.4)),
    "fairness": (0.3 * cm.terms.Fairness("minimax", GROUPS), cm.Payments()),
}
#: Names of the atoms that are tested with many sellers.
OF_MANY = ["abs", "pos", "norm1", "max", "piecewise linear", "sum_largest", "exp"]


@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ATOMS)
def test_user_defined_expressions_are_certified(name, place, others):
    assert_certified(figures(market_with(name, place, others)))


@pytest.mark.parametrize("spread", [0.0, 1.0])
@pytest.mark.parametrize("name", OURS)
def test_kinked_terms_and_constraints_with_many_sellers_are_certified(name, spread):
    sellers = plain("spread", MANY)[0]
    term, payments = OURS[name]
    objective = term + MANY * cm.Noise() + (1 / MANY) * payments
    market = cm.Market(sellers, objective + spread * cm.Spread(), [cm.Cap(8)])
    assert_certified(figures(market, points=12))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", OF_MANY)
def test_user_defined_expressions_with_many_sellers_are_certified(name, place):
    others = "lines" if name in KINKS else "spread"
    assert_certified(figures(market_with(name, place, others, MANY), points=12))
