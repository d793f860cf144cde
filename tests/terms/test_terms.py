"""Test sums, weights and parameters of terms, and errors for nonconvex objectives."""

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.simplex import project_capped_simplex
from convexmarket.errors import CurvatureError, ParameterError

WEIGHTS = np.array([0.5, 0.3, 0.2])
COSTS = np.array([1.0, 2.0, 4.0])
ETA = 2.0
SPREAD, NOISE, PAYMENTS = np.sqrt(0.38), 0.5, 2.0 * 1.9


def value(objective):
    return objective.value(WEIGHTS, ETA, COSTS)


# ------------------------------------------------------------------------- algebra


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (1.0 * cm.Spread(), SPREAD),
        (cm.Spread() + cm.Noise(), SPREAD + NOISE),
        (
            2 * cm.Spread() + 3 * cm.Noise() + 0.5 * cm.Payments(),
            2 * SPREAD + 3 * NOISE + 0.5 * PAYMENTS,
        ),
        (
            2 * (cm.Spread() + 3 * (cm.Noise() + cm.Payments() * 0.5)),
            2 * SPREAD + 6 * NOISE + 3 * PAYMENTS,
        ),
        ((cm.Spread() + cm.Noise()) + (cm.Spread() + cm.Payments()), 2 * SPREAD + NOISE + PAYMENTS),
        (sum([cm.Spread(), cm.Noise(), cm.Payments()]), SPREAD + NOISE + PAYMENTS),
        (0 * cm.Spread() + cm.Noise(), NOISE),
    ],
)
def test_sums_and_multiples_of_terms_have_the_stated_weights(objective, expected):
    assert isinstance(objective, cm.terms.Objective)
    assert value(objective) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("other", ["spread", 1, 2.5, None, [1], np.ones(2), cm.Cap(2), True])
@pytest.mark.parametrize("sum_", [cm.Spread(), 1 * cm.Spread()], ids=["term", "objective"])
def test_only_terms_can_be_added(other, sum_):
    for add in (lambda: sum_ + other, lambda: other + sum_, lambda: sum_ - other):
        with pytest.raises(ParameterError, match=r"cannot be added to .*Spread\(\): omit const"):
            add()


@pytest.mark.parametrize(
    "subtract",
    [
        lambda: -cm.Noise(),
        lambda: -(cm.Spread() + cm.Noise()),
        lambda: cm.Spread() - cm.Noise(),
        lambda: cm.Spread() - (2 * cm.Spread() + cm.Noise()),
        lambda: (cm.Spread() + cm.Payments()) - cm.Noise(),
    ],
)
def test_terms_cannot_be_subtracted(subtract):
    with pytest.raises(CurvatureError, match=r"is -.*: a negative .* is concave.*or bound"):
        subtract()


# --------------------------------------------------------------------- parameters


def test_a_parameter_can_be_a_weight():
    gamma = cp.Parameter(nonneg=True, name="gamma")
    objective = 2 * (cm.Spread() + cm.Payments() * gamma)
    assert (cm.Payments() * gamma).parts[0].weight is gamma
    assert repr(cm.Noise() + cm.Payments() * gamma) == "1 * Noise() + gamma * Payments()"
    with pytest.raises(ParameterError, match=r"parameter 'gamma' has no value; set it"):
        value(objective)
    for gamma.value in (0.5, 3.0):
        assert value(objective) == pytest.approx(2 * SPREAD + 2 * gamma.value * PAYMENTS)


def test_numbers_of_a_market_follow_a_parameter():
    gamma = cp.Parameter(nonneg=True, name="gamma")
    sellers = cm.Sellers(virtual_costs=COSTS)
    market = cm.Market(sellers, cm.Spread() + cm.Noise() + cm.Payments() * gamma)
    assert market.incentives == "by construction"
    with pytest.raises(ParameterError, match=r"parameter 'gamma' has no value; set it"):
        cm.allocate(market)
    for gamma.value in (0.5, 3.0):
        plain = cm.Market.standard(sellers, mu=1, sigma=1, gamma=gamma.value)
        assert market.form.gamma == market.standard_form.gamma == gamma.value
        assert cm.allocate(market).objective == cm.allocate(plain).objective
    assert plain.form is plain.form


@pytest.mark.parametrize("left", [cp.Parameter(nonneg=True), cp.Parameter(), cp.Variable()])
@pytest.mark.parametrize("right", [cm.Noise(), cm.Spread() + cm.Noise()], ids=["term", "objective"])
def test_cvxpy_expressions_cannot_multiply_terms(left, right):
    for combine in (lambda: left * right, lambda: left + right):
        with pytest.raises(ParameterError, match=r"is not a number; write term \* parameter"):
            combine()


@pytest.mark.parametrize(
    "weight", [cp.Parameter(), cp.Parameter(2, nonneg=True), cp.Variable(nonneg=True)]
)
def test_other_cvxpy_objects_are_refused_as_weights(weight):
    with pytest.raises(ParameterError, match=r"a scalar cvxpy.Parameter\(nonneg=True\)"):
        cm.Noise() * weight


# ------------------------------------------------------------------------- refusals


NEGATIVE = "is -2.*: a negative multiple of a convex term is concave.*give a weight >= 0"


WRONG = {
    CurvatureError: {
        r"Spread\(\) " + NEGATIVE: lambda: -2 * cm.Spread(),
        r"Payments\(\) " + NEGATIVE: lambda: -2 * (1 * cm.Payments()),
    },
    ParameterError: {
        r"weight of Spread\(\) must be .*, got nan": lambda: np.nan * cm.Spread(),
        r"weight of Noise\(\) must be .*, got '2'": lambda: cm.Noise() * "2",
        r"Noise\(\) must be .*, got Spread\(\)": lambda: cm.Noise() * cm.Spread(),
        "cap is 0.99.*give larger numbers, or no cap": lambda: cm.Cap(0.99),
        "cap must .*, got '5'": lambda: cm.Cap("5"),
        "cap is 0.75 on average.*cap >= 1": lambda: cm.Cap([1.0, 0.5]),
        "eta is in \\[0, 1\\]; give.*0 < low <= high": lambda: cm.EtaRange(0, 1),
        "give finite numbers": lambda: cm.EtaRange(1, np.inf),
    },
    TypeError: {"class Term with.* abs": cm.Term, "class Con.* with.* abs": cm.terms.Constraint},
}


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [(error, *case) for error, cases in WRONG.items() for case in cases.items()],
)
def test_errors_name_invalid_pieces(error, words, call):
    with pytest.raises(error, match=words):
        call()


# ---------------------------------------------------------------- CVXPY expressions


@pytest.mark.parametrize("weight", [1e-20, 1e-9, 1.0, 1e9])
def test_the_minimum_of_the_squared_spread_is_exact_at_any_scale(weight):
    costs = np.array([1.0, 1.5, 4.0])
    result = float(cm.terms.SquaredSpread().simplex_minimum(weight, costs))
    a = project_capped_simplex(costs / (-2 * weight))
    assert result == pytest.approx(weight * a @ a + costs @ a, rel=1e-12)
