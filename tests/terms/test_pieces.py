"""Compare terms and constraints with their definitions, and test user-defined pieces."""

import copy
import itertools
import pickle
from dataclasses import dataclass

import cvxpy as cp
import numpy as np
import pandas as pd
import pytest
from cvxpy.transforms.partial_optimize import partial_optimize
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import convexmarket as cm
from convexmarket import terms as pieces
from convexmarket.errors import (
    AllocationError,
    CurvatureError,
    InfeasibleMarketError,
    NotSupportedError,
    ParameterError,
)
from tests.terms.builders import (
    CONSTRAINTS,
    COSTS,
    ENTRIES,
    FEATURES,
    GROUPS,
    SELLERS,
    SIMILARITY,
    TARGET,
    TERMS,
    M,
)

points = st.tuples(
    st.lists(st.floats(0.0, 1.0), min_size=M, max_size=M).filter(lambda raw: sum(raw) > 0.1),
    st.floats(0.05, 20.0),
)


@pytest.mark.parametrize("name", TERMS)
@given(point=points)
def test_a_term_equals_its_definition(name, point):
    term, definition = TERMS[name]
    a, eta = np.array(point[0]) / sum(point[0]), point[1]
    result = (2.0 * term).value(a, eta, COSTS)
    assert result == pytest.approx(2 * definition(a, eta, COSTS), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", CONSTRAINTS)
@given(point=points)
def test_a_constraint_equals_its_definition(name, point):
    piece, slack = CONSTRAINTS[name]
    a, eta = np.array(point[0]) / sum(point[0]), point[1]
    piece.check(M)
    items = piece.constraints(cm.terms.Quantities.at(a, eta, COSTS))
    left = slack(a, eta)
    if abs(left) > 1e-7:
        assert all(item.value(tolerance=1e-9) for item in items) == (left >= 0)


def test_a_declaration_without_eta_equals_the_definition():
    amount = cp.Parameter(nonneg=True, value=1.0)
    market = cm.Market(SELLERS, cm.Spread() + 2.0 * cm.Noise(), [cm.Budget(amount)])
    problem = cm.declare(market)
    problem.solve(solver="CLARABEL")
    assert COSTS @ problem.weights * problem.eta == pytest.approx(1.0, rel=1e-5)
    amount.value = 2.0
    problem.solve(solver="CLARABEL")
    assert COSTS @ problem.weights * problem.eta == pytest.approx(2.0, rel=1e-5)
    with pytest.raises(AllocationError, match="has no solution"):
        _ = cm.declare(market).weights
    with pytest.raises(AllocationError, match="has no solution"):
        _ = cm.declare(cm.Market(SELLERS, cm.Spread(3) + cm.Noise()), eta=1.0).weights


# ------------------------------------------------------------------ privacy costs


class SquareRootOfOne(cm.terms.PrivacyCost):
    """Privacy cost sqrt(1 + eps^2) - 1, which is quadratic near zero and linear at infinity."""

    def expression(self, epsilon):
        pairs = cp.vstack([np.ones(epsilon.size), epsilon])
        return cp.norm(pairs, 2, axis=0) - 1


def test_a_user_defined_privacy_cost_gives_the_optimum():
    cost = SquareRootOfOne()
    assert cost([0.0, 2.0]) == pytest.approx([0.0, np.sqrt(5) - 1])
    market = cm.Market(SELLERS, cm.Spread() + cm.Noise() + 0.5 * cm.Payments(cost), [cm.Cap(3)])
    result = cm.allocate(market)
    assert result.gap <= 1e-6
    assert market.incentives == "by construction"
    assert market.privacy_cost is cost


# ------------------------------------------------------------------ user-defined pieces


class Shortfall(cm.Term):
    """Sum of squared shortfalls of the guarantees below a level."""

    def __init__(self, level):
        self.level = level

    def expression(self, quantities):
        return cp.sum_squares(cp.pos(self.level - quantities.epsilon))

    def __repr__(self):
        return f"Shortfall({self.level})"


class Balance(cm.terms.Constraint):
    """Upper bound on the difference between the first and the last weight."""

    def __init__(self, apart):
        self.apart = apart

    def constraints(self, quantities):
        return [cp.abs(quantities.weights[0] - quantities.weights[-1]) <= self.apart]


def test_a_user_defined_term_and_constraint_equal_brute_force():
    pytest.importorskip("ecos")
    market = cm.Market(
        SELLERS,
        1.0 * cm.Spread() + 2.0 * cm.Noise() + 0.5 * cm.Payments() + 0.7 * Shortfall(0.4),
        [Balance(0.05), cm.Cap(2)],
    )
    result = cm.allocate(market, gap=1e-7)
    assert result.gap <= 1e-7
    assert abs(result.weights[0] - result.weights[-1]) <= 0.05 + 1e-8
    etas = np.linspace(0.8, 1.2, 81) * result.eta
    problem = cm.declare(market, eta=1.0)
    values = []
    for eta in etas:
        problem.eta = eta
        values.append(problem.solve(solver="ECOS"))
    assert result.objective <= min(values) + 1e-6
    assert result.objective == pytest.approx(min(values), rel=1e-4)
    assert market.incentives == "by construction"


class CostMaximum(cm.Term):
    """Term that is nonlinear in the virtual costs."""

    def expression(self, quantities):
        return cp.max(cp.multiply(quantities.virtual_costs, quantities.epsilon))


class Sorted(cm.terms.Constraint):
    """Constraint that reads the virtual costs as numbers, although they can be a parameter."""

    def constraints(self, quantities):
        costliest = int(np.argmax(np.sort(quantities.virtual_costs)))
        return [quantities.weights[costliest] >= 0.01]


INCENTIVES = {
    "the papers' problem": (cm.Spread() + cm.Noise() + cm.Payments(), [cm.Cap(2)], "by const"),
    "fairness": (cm.Spread() + cm.Noise() + cm.Payments(), [CONSTRAINTS["at least"][0]], "by con"),
    "no reports": (cm.Spread() + cm.Noise(), [cm.MaxEpsilon(1.0)], "by construction"),
    "budget": (cm.Spread(3) + cm.Noise(), [cm.Budget(1.0)], "by construction"),
    "budget, separable": (
        cm.terms.SquaredSpread() + cm.terms.NegativeEntropy() + cm.Noise(),
        [cm.Budget(1.0), cm.Cap(2)],
        "by construction",
    ),
    "budget, distance": (cm.Spread(3, TARGET) + cm.Noise(), [cm.Budget(1.0)], "not guaranteed"),
    "pieces without reports": (
        sum(TERMS[name][0] for name in ("distance 2", "quadratic", "squared noise", "fairness"))
        + TERMS["worst guarantees"][0]
        + TERMS["tiers"][0],
        [CONSTRAINTS["moments"][0], CONSTRAINTS["size"][0]],
        "by construction",
    ),
    "worst payments": (cm.Spread() + cm.Noise() + TERMS["worst payments"][0], [], "unknown"),
    **{
        kind: (cm.Spread() + cm.Noise() + TERMS[kind][0], [], "unknown")
        for kind in ("box", "some off", "ellipsoid")
    },
    "budget, norm and cap": (cm.Spread() + cm.Noise(), [cm.Budget(1.0), cm.Cap(2)], "not guar"),
    "budget too": (cm.Spread() + cm.Noise() + cm.Payments(), [cm.Budget(1.0)], "not guaranteed"),
    "own term": (cm.Spread() + cm.Noise() + cm.Payments() + CostMaximum(), [], "unknown"),
    "own constraint": (cm.Spread() + cm.Noise() + cm.Payments(), [Sorted()], "unknown"),
    "two costs": (
        cm.Spread() + cm.Noise() + cm.Payments() + cm.Payments(cm.PowerCost(2)),
        [],
        "unknown",
    ),
}


@pytest.mark.parametrize("name", INCENTIVES)
def test_incentives_of_each_market_are_stated(name):
    objective, constraints, verdict = INCENTIVES[name]
    incentives = cm.Market(SELLERS, objective, constraints).incentives
    assert incentives.startswith(verdict)
    assert isinstance(incentives, cm.market.Incentives)
    assert len(incentives.reason) > 20


# ------------------------------------------------------------------ refusals


class Bad(cm.Term):
    def __init__(self, build):
        self.build = build

    def expression(self, quantities):
        return self.build(quantities)

    def __repr__(self):
        return "Bad()"


class BadConstraint(cm.terms.Constraint):
    def __init__(self, build):
        self.build = build

    def constraints(self, quantities):
        return [self.build(quantities)]

    def __repr__(self):
        return "BadConstraint()"


class NoList(BadConstraint):
    def constraints(self, quantities):
        return self.build(quantities)


def market_with(*pieces):
    terms = [piece for piece in pieces if isinstance(piece, cm.Term)]
    return cm.Market(
        SELLERS,
        sum(terms, cm.Spread() + cm.Noise()),
        [piece for piece in pieces if isinstance(piece, cm.terms.Constraint)],
    )


RNG = np.random.default_rng(0)


def threshold(quantities):
    """Return an expression with an auxiliary variable, the threshold."""
    t = cp.Variable(name="t", value=0.0)
    return t + cp.sum(cp.exp(quantities.epsilon - t) - 1) / M


def partly(quantities):
    """Return the optimal value of an inner problem as an expression."""
    t = cp.Variable(M)
    inner = cp.Problem(cp.Minimize(cp.norm(quantities.weights - t) + cp.norm1(t)))
    return partial_optimize(inner, opt_vars=[t], dont_opt_vars=[quantities.weights])


CLOSED = "a piece depends only on its quantities"
ANOTHER = "differ: .* fix its data at creation"
COUNTS = r"add the restriction to the constraints of declare\(market, eta\).* mixed-integer solver"

#: Invalid calls, by error class and by a regular expression for the message.
REFUSED = {
    CurvatureError: {
        rf"Bad\(\) uses t, but {CLOSED}": lambda: market_with(Bad(threshold)),
        rf"BadConstraint\(\) uses top, but {CLOSED}; replace": lambda: market_with(
            BadConstraint(lambda q: q.weights <= cp.Variable(name="top"))
        ),
        rf"Bad.*{CLOSED}": lambda: market_with(Bad(partly)),
        rf"BadConstraint\(\) uses .*, but {CLOSED}; integer .* nonconvex: {COUNTS}": lambda: (
            market_with(BadConstraint(lambda q: q.weights <= cp.Variable(M, boolean=True)))
        ),
        rf"BadConstraint\(\) returned .*FiniteSet.* nonconvex: {COUNTS}": lambda: market_with(
            BadConstraint(lambda q: cp.FiniteSet(q.weights[0], [0.0, 0.5]))
        ),
        rf"Bad\(\) uses .*, but {CLOSED}; replace the variable by one": lambda: market_with(
            Bad(lambda q: cp.transforms.indicator([q.weights <= 0.5]))
        ),
        r"Bad\(\) is concave; a term must be convex": lambda: market_with(
            Bad(lambda q: cp.sqrt(q.weights[0]))
        ),
        r"BadConstraint\(\) is not convex \(DCP\): 0.5 <= .*; write convex <=": lambda: market_with(
            BadConstraint(lambda q: cp.norm(q.weights) >= 0.5)
        ),
        r"mixes .*: epsilon.*; write eps <= e as weights <= e \* inverse_eta": lambda: market_with(
            BadConstraint(lambda q: q.epsilon <= q.inverse_eta)
        ),
    },
    ParameterError: {
        rf"Bad\(\) {ANOTHER}": lambda: market_with(Bad(lambda q: RNG.uniform(size=M) @ q.weights)),
        rf"BadConstraint\(\) {ANOTHER}": lambda: market_with(
            BadConstraint(lambda q: q.weights <= RNG.uniform(0.5, 1))
        ),
        r"Bad\(\) returned Variable\(\(5,\), .*; give a scalar expression": lambda: market_with(
            Bad(lambda q: q.weights)
        ),
        "returned None; return a list of comparisons": lambda: market_with(NoList(lambda q: None)),
        "returned Inequality.*; return a list": lambda: market_with(
            NoList(lambda q: q.weights <= 0.5)
        ),
        "p must be a number in .1.01, 40., or inf, got 1": lambda: cm.Spread(1),
        r"power must be a number in \[1, inf\), got inf": lambda: cm.PowerCost(np.inf),
        "privacy_cost must be a cost like .*, got 2": lambda: cm.Payments(2),
        "budget must be a finite number > 0, got 0": lambda: cm.Budget(0),
        "nonneg=True": lambda: cm.Budget(cp.Parameter()),
        "largest epsilon must be .*.*, got 0": lambda: cm.MaxEpsilon(0),
        r"epsilon\[1\] must .*, got -1": lambda: cm.MaxEpsilon([1, -1]),
        "give one number > 0": lambda: market_with(cm.MaxEpsilon(np.zeros(M))),
        "2 entries for 5": lambda: market_with(cm.MaxEpsilon([1, 2])),
        "given epsilon must be .*a.*, got 1.0": lambda: cm.terms.GivenEpsilon(1.0),
        "at_least must be .* of the groups 'a', 'b', 'c', got 'z': 0.1": lambda: cm.GroupShare(
            GROUPS, at_least={"z": 0.1}
        ),
        r"at_most must be shares in \[0, 1\] .*, got 'a': 1.5": lambda: cm.GroupShare(
            GROUPS, at_most={"a": 1.5}
        ),
        "at_least must be .*shares by group.*, got 0.2": lambda: cm.GroupShare(
            GROUPS, at_least=0.2
        ),
        r"groups\[1\] is missing; give": lambda: cm.GroupShare(["a", np.nan], equal=True),
        r"groups\[0\] is missing": lambda: pieces.Fairness("minimax", pd.Series([None, "b"])),
        "A is a list; give a matrix": lambda: pieces.Moments([[1], [2, 3]], [1]),
        "b has 2 entries for 1 columns of A": lambda: pieces.Moments([[1]], [1, 2]),
        "tol must be .*a finite number >= 0.*, got -1": lambda: pieces.Moments([[1]], [1], -1),
        "A has 1 entries for 5 sellers": lambda: market_with(pieces.Moments([[1]], [1])),
        r"shape \(2, 2\) is .* not symmetric; give": lambda: pieces.QuadraticSpread(
            [[1, 2], [0, 1]]
        ),
        "eigenvalue -1; give": lambda: pieces.QuadraticSpread([[1, 2], [2, 1]]),
        r"with the sum 1, got \[0.5, 0.6\]; divide by the sum": lambda: cm.Spread(
            reference=[0.5, 0.6]
        ),
        r"reference\[1\] must be a finite number >= 0, got -1.0": lambda: cm.Spread(
            reference=[2, -1]
        ),
        "reference has 2 entries for 5 sellers; give one for each seller$": lambda: market_with(
            cm.terms.NegativeEntropy([0.5, 0.5])
        ),
        r"slopes must be finite.*, got \[\]": lambda: pieces.TieredCost([]),
        r"slopes must be .* nondecreasing.*, got \[2, 1\]": lambda: pieces.TieredCost([2, 1], [1]),
        r"level must be .*a number in \[0, 1\).*, got 1": lambda: pieces.CVaR(1),
        "of must be one of 'eps', 'epsilon', 'payments', got 'weights'": lambda: pieces.CVaR(
            0.5, "weights"
        ),
        "kind must be .*one of 'mini.*, got 'mean'": lambda: pieces.Fairness("mean", GROUPS),
        "budget must be a number in .* got 0": lambda: pieces.RobustCosts("budget", 1, 0),
        "budget is 2; only the kind 'budget'": lambda: pieces.RobustCosts("box", 1, 2),
    },
    NotSupportedError: {
        "not convex in the weights and 1/eta together; declare it at a fixed eta": lambda: (
            cm.declare(market_with(cm.Payments()))
        ),
        "use formulation='primal'": lambda: cm.declare(
            market_with(cm.terms.SquaredSpread()), eta=1.0, formulation="dual"
        ),
    },
}


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [(error, *case) for error, cases in REFUSED.items() for case in cases.items()],
)
def test_errors_name_the_argument_the_value_and_a_remedy(error, words, call):
    with pytest.raises(error, match=words) as raised:
        call()
    assert isinstance(raised.value, cm.ConvexMarketError)


@dataclass(frozen=True)
class Averages(cm.terms.Constraint):
    """User-defined constraint whose repr contains a matrix."""

    features: np.ndarray
    least: float

    def constraints(self, quantities):
        return [self.features.T @ quantities.weights >= self.least]


@dataclass(frozen=True)
class Farthest(cm.Term):
    """User-defined term that depends on the reports, and is concave if its weight is negative."""

    features: np.ndarray
    weight: float

    def expression(self, quantities):
        costs = cp.multiply(quantities.virtual_costs, quantities.weights)
        return self.weight * cp.max(self.features.T @ costs)


def assert_shown_on_a_line(message, name, pieces=1):
    assert "\n" not in message
    assert name in message
    assert " ... " in message
    assert len(message) < 120 * pieces + 200


def test_errors_do_not_print_the_data_of_a_piece():
    sellers = cm.Sellers(virtual_costs=np.linspace(1, 2, 60))
    features = np.random.default_rng(0).uniform(size=(60, 4))
    assert repr(Averages(features, 2.0)).count("\n") > 50
    objective = cm.Spread() + cm.Noise() + cm.Payments()
    with pytest.raises(InfeasibleMarketError) as single:
        cm.allocate(cm.Market(sellers, objective, [Averages(features, 2.0)]))
    assert_shown_on_a_line(str(single.value), "Averages(features=array(")
    constraints = [Averages(features, 0.6), Averages(-features, -0.4)]
    with pytest.raises(InfeasibleMarketError, match="no weights that sum to one") as infeasible:
        cm.allocate(cm.Market(sellers, objective, constraints))
    assert_shown_on_a_line(str(infeasible.value), "least=-0.4)", pieces=2)
    with pytest.raises(CurvatureError) as concave:
        cm.Market(sellers, objective + Farthest(features, -1.0))
    assert_shown_on_a_line(str(concave.value), "weight=-1.0) is concave")
    market = cm.Market(sellers, objective + Farthest(features, 1.0))
    assert_shown_on_a_line(market.incentives.reason, "weight=1.0) reads the virtual costs")
    with pytest.raises(ParameterError) as another:
        cm.allocate_jointly(market)
    assert_shown_on_a_line(
        str(another.value), "joint must be a JointMarket, got Market(60 sellers, 1 * Spread()"
    )


def test_pieces_are_compared_by_value_and_have_a_readable_repr():
    assert cm.Cap(2) == cm.Cap(2) != cm.Cap(ENTRIES)
    assert cm.Cap(ENTRIES) == cm.Cap(list(ENTRIES))
    assert hash(cm.Cap(ENTRIES)) == hash(cm.Cap(ENTRIES.copy()))
    assert cm.MaxEpsilon(ENTRIES) != cm.terms.GivenEpsilon(ENTRIES)
    assert cm.GroupShare(GROUPS, equal=True) == cm.GroupShare(list(GROUPS), equal=True)
    assert cm.GroupShare(GROUPS, equal=True) != cm.GroupShare(GROUPS, at_most={"a": 1})
    shares = [cm.GroupShare(GROUPS, {"a": 0.2}, {"a": 1, "b": 0.7}) for _ in range(2)]
    assert shares[0] == shares[1] != cm.GroupShare(GROUPS, {"a": 0.3}, {"a": 1, "b": 0.7})
    assert len(set(shares)) == 1
    assert repr(cm.GroupShare(GROUPS, {"a": 0.2})) == "GroupShare(<5 entries>, at_least={'a': 0.2})"
    assert repr(cm.Budget(3)) == "Budget(3)"
    assert repr(cm.Spread(3) + 2 * cm.Payments(cm.PowerCost(2))) == (
        "1 * Spread(p=3) + 2 * Payments(privacy_cost=PowerCost(2))"
    )


def test_pieces_of_arrays_are_compared_by_value_and_have_a_short_repr():
    for single, same, other, words in [
        (cm.Spread(3, TARGET), cm.Spread(3, list(TARGET)), cm.Spread(3), "Spread(p=3, reference=<"),
        (cm.Spread(), cm.Spread(2.0), cm.Spread(reference=TARGET), "Spread()"),
        (
            pieces.Moments(FEATURES, [1, 2], 0),
            pieces.Moments(FEATURES.tolist(), np.array([1, 2]), 0.0),
            pieces.Moments(FEATURES, [1, 2], [0, 0]),
            "Moments(<5 x 2 entries>, <2 values in [1, 2]>)",
        ),
        (
            pieces.QuadraticSpread(sparse.csc_matrix(SIMILARITY)),
            pieces.QuadraticSpread(sparse.coo_array(SIMILARITY)),
            pieces.QuadraticSpread(SIMILARITY),
            "QuadraticSpread(<5 x 5 entries>)",
        ),
        (pieces.CVaR(0.5), pieces.CVaR(0.5, "eps"), pieces.CVaR(0.5, "payments"), "CVaR(0.5"),
    ]:
        assert single == same != other
        assert hash(single) == hash(same)
        assert repr(single).startswith(words)
        assert pickle.loads(pickle.dumps(single)) == single
    for array in (cm.Spread(reference=TARGET).reference, pieces.Moments(FEATURES, [1, 2]).A):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 9


@pytest.mark.parametrize("make", [copy.deepcopy, lambda text: pickle.loads(pickle.dumps(text))])
def test_copies_of_incentives_keep_the_reason(make):
    verdict = cm.Market(SELLERS, cm.Spread() + cm.Noise(), [cm.MaxEpsilon(1.0)]).incentives
    copied = make(verdict)
    assert copied == verdict
    assert copied.reason == verdict.reason


def test_a_cardinality_limit_is_solved_with_the_suggested_remedy():
    """At most two weights are positive, and each weight is at most three fifths."""
    losses = cm.Losses(np.linspace(2, 1, M))
    declared = cm.declare(cm.Market(SELLERS, losses + cm.Noise() + 0.5 * cm.Payments()), 2.0)
    chosen = cp.Variable(M, boolean=True)
    few = [declared.quantities.weights <= 0.6 * chosen, cp.sum(chosen) <= 2]
    problem = cp.Problem(declared.objective, [*declared.constraints, *few])
    problem.solve(solver="HIGHS")
    pairs = itertools.permutations(range(M), 2)
    cost = np.linspace(2, 1, M) + COSTS
    best = min(0.6 * cost[i] + 0.4 * cost[j] for i, j in pairs) + 0.5
    assert problem.value == pytest.approx(best, rel=1e-6)
    assert np.count_nonzero(declared.weights > 1e-6) == 2
