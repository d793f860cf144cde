"""The algebra of terms: objectives read as the formula does, and refuse what is not convex."""

import dataclasses

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation.simplex import project_capped_simplex
from convexmarket.errors import CurvatureError, ParameterError
from convexmarket.terms import Quantities, WeightedTerm

WEIGHTS = np.array([0.5, 0.3, 0.2])
COSTS = np.array([1.0, 2.0, 4.0])
ETA = 2.0
SPREAD, NOISE, PAYMENTS = np.sqrt(0.38), 0.5, 2.0 * 1.9


def value(objective):
    return objective.value(WEIGHTS, ETA, COSTS)


class Entropy(cm.Term):
    """A user's own term: negative entropy of the weights."""

    def expression(self, quantities):
        return -cp.sum(cp.entr(quantities.weights))

    def __repr__(self):
        return "Entropy()"


class Concave(cm.Term):
    def expression(self, quantities):
        return cp.sum(cp.entr(quantities.weights))

    def __repr__(self):
        return "Concave()"


class Product(cm.Term):
    def expression(self, quantities):
        return quantities.weights[0] * quantities.weights[1]

    def __repr__(self):
        return "Product()"


class AtMost(cm.terms.Constraint):
    """A user's own constraint: no guarantee above a number."""

    def __init__(self, most):
        self.most = most

    def constraints(self, quantities):
        return [quantities.weights <= self.most * quantities.inverse_eta]


# ------------------------------------------------------------------------- algebra


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        (1.0 * cm.Spread(), SPREAD),
        (cm.Spread() * 2, 2 * SPREAD),
        (np.float64(2.0) * cm.Noise(), 2 * NOISE),
        (3 * cm.Payments(), 3 * PAYMENTS),
        (cm.Spread() + cm.Noise(), SPREAD + NOISE),
        (2 * cm.Spread() + cm.Noise(), 2 * SPREAD + NOISE),
        (cm.Noise() + 2 * cm.Spread(), 2 * SPREAD + NOISE),
        (
            2 * cm.Spread() + 3 * cm.Noise() + 0.5 * cm.Payments(),
            2 * SPREAD + 3 * NOISE + 0.5 * PAYMENTS,
        ),
        (
            2 * (cm.Spread() + 3 * (cm.Noise() + cm.Payments() * 0.5)),
            2 * SPREAD + 6 * NOISE + 3 * PAYMENTS,
        ),
        ((cm.Spread() + cm.Noise()) + (cm.Spread() + cm.Payments()), 2 * SPREAD + NOISE + PAYMENTS),
        (sum([2 * cm.Spread(), 3 * cm.Noise()]), 2 * SPREAD + 3 * NOISE),
        (sum([cm.Spread(), cm.Noise(), cm.Payments()]), SPREAD + NOISE + PAYMENTS),
        (sum([cm.Spread()]), SPREAD),
        (0 * cm.Spread() + cm.Noise(), NOISE),
    ],
)
def test_sums_and_multiples(objective, expected):
    assert isinstance(objective, cm.terms.Objective)
    assert value(objective) == pytest.approx(expected, rel=1e-12)


def test_weights_of_one_kind_add_up():
    objective = 2 * (cm.Spread() + cm.Noise()) + 0.5 * cm.Spread()
    assert objective.weight_of(cm.Spread) == 2.5
    assert objective.weight_of(cm.Noise) == 2.0
    assert objective.weight_of(cm.Payments) == 0
    assert repr(objective) == "2 * Spread() + 2 * Noise() + 0.5 * Spread()"


def test_building_on_an_objective_leaves_it_as_it_was():
    objective = 2 * cm.Spread()
    larger = 3 * objective + cm.Noise()
    assert objective.parts == (WeightedTerm(2, cm.Spread()),)
    assert [part.weight for part in larger.parts] == [6, 1.0]
    for frozen, name in ((objective, "parts"), (objective.parts[0], "weight")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(frozen, name, None)
    assert cm.Spread() == cm.Spread()
    assert cm.Cap(5) == cm.Cap(5) != cm.Cap(6)


@pytest.mark.parametrize("other", ["spread", 1, 2.5, None, [1], np.ones(2), cm.Cap(2), True])
@pytest.mark.parametrize("sum_", [cm.Spread(), 1 * cm.Spread()], ids=["term", "objective"])
def test_only_terms_add(other, sum_):
    for add in (lambda: sum_ + other, lambda: other + sum_, lambda: sum_ - other):
        with pytest.raises(ParameterError, match=r"cannot be added to .*Spread\(\): .*leave const"):
            add()


def test_a_number_divides():
    assert (cm.Spread() / 2).parts == (WeightedTerm(0.5, cm.Spread()),)
    halves = (3 * cm.Spread() + cm.Noise()) / np.float64(3)
    assert [part.weight for part in halves.parts] == [1.0, 1 / 3]
    for divisor in (0, np.nan, np.inf, "2", None, cm.Spread(), cp.Parameter(pos=True)):
        with pytest.raises(ParameterError, match=r"Spread\(\) is divided by .*number > 0, or mult"):
            cm.Spread() / divisor
    with pytest.raises(CurvatureError, match=NEGATIVE.replace("-2", "-0.5")):
        cm.Spread() / -2


@pytest.mark.parametrize(
    "subtract",
    [
        lambda: -cm.Noise(),
        lambda: -(cm.Spread() + cm.Noise()),
        lambda: cm.Spread() - cm.Noise(),
        lambda: cm.Spread() - (2 * cm.Spread() + cm.Noise()),
        lambda: (cm.Spread() + cm.Payments()) - cm.Noise(),
        lambda: 1 - cm.Noise(),
        lambda: np.ones(2) - cm.Noise(),
    ],
)
def test_nothing_is_subtracted(subtract):
    message = (
        r"Noise\(\) is subtracted: a negative .* is concave.*add it with a weight >= 0, or bound"
    )
    with pytest.raises(CurvatureError, match=message):
        subtract()


# --------------------------------------------------------------------- parameters


def test_a_parameter_is_a_weight():
    gamma = cp.Parameter(nonneg=True, name="gamma")
    objective = 2 * (cm.Spread() + cm.Payments() * gamma)
    assert (cm.Payments() * gamma).parts[0].weight is gamma
    assert repr(cm.Noise() + cm.Payments() * gamma) == "1 * Noise() + gamma * Payments()"
    with pytest.raises(ParameterError, match=r"parameter 'gamma' has no value; set its value"):
        value(objective)
    for gamma.value in (0.5, 3.0):
        assert value(objective) == pytest.approx(2 * SPREAD + 2 * gamma.value * PAYMENTS)
        assert objective.weight_of(cm.Payments) == 2 * gamma.value


def test_numbers_of_a_market_follow_a_parameter():
    gamma = cp.Parameter(nonneg=True, name="gamma")
    sellers = cm.Sellers(virtual_costs=COSTS)
    market = cm.Market(sellers, cm.Spread() + cm.Noise() + cm.Payments() * gamma)
    assert market.incentives == "by construction"
    with pytest.raises(ParameterError, match=r"parameter 'gamma' has no value; set its value"):
        cm.allocate(market)
    for gamma.value in (0.5, 3.0):
        plain = cm.Market.standard(sellers, mu=1, sigma=1, gamma=gamma.value)
        assert market.form.gamma == market.standard_form.gamma == gamma.value
        assert cm.allocate(market).objective == cm.allocate(plain).objective
    assert plain.form is plain.form


@pytest.mark.parametrize("left", [cp.Parameter(nonneg=True), cp.Parameter(), cp.Variable()])
@pytest.mark.parametrize("right", [cm.Noise(), cm.Spread() + cm.Noise()], ids=["term", "objective"])
def test_cvxpy_does_not_multiply_by_terms(left, right):
    for combine in (lambda: left * right, lambda: left + right):
        with pytest.raises(ParameterError, match=r"no number for CVXPY.* term \* parameter"):
            combine()


@pytest.mark.parametrize(
    "weight",
    [
        cp.Parameter(),
        cp.Parameter(2, nonneg=True),
        cp.Variable(nonneg=True),
        cp.Parameter(neg=True),
    ],
    ids=["any sign", "a vector", "a variable", "negative"],
)
def test_other_weights_of_cvxpy_are_refused(weight):
    with pytest.raises(ParameterError, match=r"a scalar cvxpy.Parameter\(nonneg=True\)"):
        cm.Noise() * weight


# ------------------------------------------------------------------------- refusals


NEGATIVE = "is -2.*: a negative multiple of a convex term is concave.*give a weight >= 0"
NOT_FINITE = "must be a finite number"


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: -2 * cm.Spread(), CurvatureError, r"Spread\(\) " + NEGATIVE),
        (lambda: cm.Noise() * -2.5, CurvatureError, r"Noise\(\) " + NEGATIVE),
        (lambda: -2 * Entropy(), CurvatureError, r"Entropy\(\) " + NEGATIVE),
        (lambda: -2 * (1 * cm.Payments()), CurvatureError, r"Payments\(\) " + NEGATIVE),
        (
            lambda: np.nan * cm.Spread(),
            ParameterError,
            r"weight of Spread\(\) must be .*, got nan",
        ),
        (lambda: np.inf * cm.Noise(), ParameterError, r"weight of Noise\(\) must be .*, got inf"),
        (lambda: cm.Noise() * "2", ParameterError, r"weight of Noise\(\) must be .*, got '2'"),
        (lambda: "2" * cm.Noise(), ParameterError, r"weight of Noise\(\) must be .*, got '2'"),
        (
            lambda: "2" * (2 * cm.Noise()),
            ParameterError,
            r"weight of Noise\(\) must be .*, got '2'",
        ),
        (lambda: np.ones(2) * cm.Noise(), ParameterError, NOT_FINITE),
        (
            lambda: cm.Noise() * cm.Spread(),
            ParameterError,
            r"Noise\(\) must be .*.*, got Spread\(\)",
        ),
        (
            lambda: cm.Noise() * (2 * cm.Spread()),
            ParameterError,
            r"must be .*, got 2 \* Spread\(\)",
        ),
        (lambda: None * cm.Noise(), ParameterError, r"weight of Noise\(\) must be .*, got None"),
        (lambda: 1j * cm.Noise(), ParameterError, NOT_FINITE),
        (
            lambda: cm.Cap(0.99),
            ParameterError,
            "cap is 0.99.*give a number >= 1, or leave",
        ),
        (lambda: cm.Cap(0), ParameterError, "cap is 0, .*cap >= 1"),
        (lambda: cm.Cap(-1), ParameterError, "cap is -1"),
        (lambda: cm.Cap(np.nan), ParameterError, "cap is nan"),
        (lambda: cm.Cap(np.inf), ParameterError, "cap must be .*, got inf"),
        (lambda: cm.Cap("5"), ParameterError, "cap must .*, got '5'"),
        (lambda: cm.Cap(None), ParameterError, "cap must .*, got None"),
        (
            lambda: cm.Cap(np.array([[2, 3]])),
            ParameterError,
            r"cap must .*, got array\(\[\[2, 3\]\]\)",
        ),
        (lambda: cm.Cap([1.0, 0.5]), ParameterError, "the mean of cap is 0.75.*cap >= 1"),
        (
            lambda: cm.EtaRange(0, 1),
            ParameterError,
            r"eta range is \(0, 1\).*0 < low <= high",
        ),
        (lambda: cm.EtaRange(2, 1), ParameterError, r"eta range is \(2, 1\)"),
        (lambda: cm.EtaRange(1, np.inf), ParameterError, "two finite numbers"),
        (lambda: cm.EtaRange(np.nan, 1), ParameterError, r"eta range is \(nan, 1\)"),
        (lambda: cm.EtaRange(-1, 1), ParameterError, r"eta range is \(-1, 1\)"),
        (lambda: cm.EtaRange("1", 2), ParameterError, r"eta range is \('1', 2\)"),
        (lambda: cm.EtaRange(1, None), ParameterError, r"eta range is \(1, None\)"),
        (lambda: cm.Term(), TypeError, "abstract"),
        (lambda: cm.terms.Constraint(), TypeError, "abstract"),
    ],
)
def test_wrong_pieces_are_named(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("term", "message"),
    [
        (Concave(), r"Concave\(\) is concave, but a term must be convex"),
        (Product(), r"Product\(\) is quasiconcave, but a term must be convex"),
    ],
)
def test_a_term_that_is_not_convex_is_named(term, message):
    weights = cp.Variable(3, nonneg=True)
    quantities = Quantities(weights, ETA * weights, cp.Constant(1 / ETA), COSTS)
    with pytest.raises(CurvatureError, match=message):
        (cm.Spread() + 2 * term).expression(quantities)


# ---------------------------------------------------------------- in CVXPY's words


def test_each_piece_writes_itself_in_cvxpy():
    weights, inverse_eta = cp.Variable(3), cp.Variable(pos=True)
    quantities = Quantities(weights, ETA * weights, inverse_eta, COSTS)
    assert cm.Spread().expression(quantities).is_convex()
    assert not cm.Spread().expression(quantities).is_affine()
    assert cm.Noise().expression(quantities).is_affine()
    assert cm.Payments().expression(quantities).is_affine()
    weights.value, inverse_eta.value = WEIGHTS, 0.5
    assert cm.Spread().expression(quantities).value == pytest.approx(SPREAD)
    assert cm.Noise().expression(quantities).value == pytest.approx(NOISE)
    assert cm.Payments().expression(quantities).value == pytest.approx(PAYMENTS)


@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        (cm.Cap(1.5), True),  # the largest weight is 0.5 = 1.5/3
        (cm.Cap(1.49), False),
        (cm.EtaRange(2, 2), True),
        (cm.EtaRange(1, 3), True),
        (cm.EtaRange(2.1, 3), False),
        (cm.EtaRange(1, 1.9), False),
        (AtMost(1.0), True),  # the largest guarantee is 2 * 0.5
        (AtMost(0.99), False),
    ],
)
def test_constraints_hold_where_they_say(constraint, holds):
    written = constraint.constraints(Quantities.at(WEIGHTS, ETA, COSTS))
    assert all(float(np.max(c.violation())) <= 1e-12 for c in written) is holds


def test_a_users_own_term_is_part_of_the_objective():
    expected = float(WEIGHTS @ np.log(WEIGHTS))
    assert value(1 * Entropy()) == pytest.approx(expected)
    assert value(2 * cm.Spread() + 3 * Entropy()) == pytest.approx(2 * SPREAD + 3 * expected)


def test_a_users_own_objective_is_solved_by_cvxpy():
    """The term works as any CVXPY expression: its optimum at a fixed eta has a closed form."""
    weights = cp.Variable(3)
    quantities = Quantities(weights, ETA * weights, cp.Constant(1 / ETA), COSTS)
    objective = 1.0 * Entropy() + 0.25 * cm.Payments()
    problem = cp.Problem(cp.Minimize(objective.expression(quantities)), [cp.sum(weights) == 1])
    problem.solve(solver="CLARABEL")
    softmax = np.exp(-0.25 * ETA * COSTS)
    np.testing.assert_allclose(weights.value, softmax / softmax.sum(), atol=1e-4)
    assert problem.value == pytest.approx(value_at(objective, weights.value), rel=1e-6)


def value_at(objective, weights):
    return objective.value(weights, ETA, COSTS)


@pytest.mark.parametrize("weight", [1e-20, 1e-9, 1.0, 1e9])
def test_the_squared_spread_knows_its_minimum_at_any_scale(weight):
    costs = np.array([1.0, 1.5, 4.0])
    found = float(cm.terms.SquaredSpread().simplex_minimum(weight, costs))
    a = project_capped_simplex(costs / (-2 * weight))
    assert found == pytest.approx(weight * a @ a + costs @ a, rel=1e-12)
