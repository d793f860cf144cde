"""Test results and errors of convex programs, declarations, sweeps and copies."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation import ConvexProgram
from convexmarket.errors import AllocationError, NotSupportedError
from tests import one_in
from tests.allocation import builders
from tests.allocation.builders import COSTS, JOINT, PAID, STANDARD, Own

market = partial(builders.market, objective=JOINT)


def test_a_program_exposes_its_last_solution():
    program = cm.declare(market(cm.Budget(0.6)))
    assert isinstance(program, ConvexProgram)
    assert program.formulation == "joint"
    for name in ("weights", "raw_weights", "eta"):
        with pytest.raises(AllocationError, match=r"no solution \(status None\); call"):
            getattr(program, name)
    program.solve(solver="CLARABEL")
    best = cm.allocate(market(cm.Budget(0.6)))
    assert program.value == pytest.approx(best.objective, rel=1e-6)
    np.testing.assert_allclose(program.weights, best.weights, atol=1e-4)
    assert program.eta == pytest.approx(best.eta, rel=1e-3)


# -------------------------------------------------------------------- parameters


NUMBER, VECTOR = cp.Parameter(nonneg=True), cp.Parameter(3, nonneg=True)
SQUARES = Own(lambda q: cp.sum_squares(q.epsilon))


#: A parameter, its values, and a function that builds a market from the parameter or a value.
NUMBERS = {
    "payments and other payments": (
        NUMBER,
        [0.1, 1.6],
        lambda x: market(objective=JOINT + SQUARES + cm.Payments() * x),
    ),
    "payments": (NUMBER, [0.1, 0.4], lambda x: market(objective=JOINT + cm.Payments() * (2 * x))),
    "cap": (NUMBER, [1.2, 2.0], lambda x: market(cm.Cap(x), objective=PAID)),
    "largest": (NUMBER, [0.4, 0.9], lambda x: market(cm.MaxEpsilon(x), objective=PAID)),
    "largest of each": (
        VECTOR,
        [np.array([0.4, 0.6, 0.9]), np.array([0.0, 0.6, 0.5])],
        lambda x: market(cm.MaxEpsilon(x), objective=PAID),
    ),
    "budget": (NUMBER, [0.2, 0.5], lambda x: market(cm.Budget(x), objective=PAID + SQUARES)),
    "virtual costs": (
        VECTOR,
        [np.array([0.4, 0.6, 0.9]), np.array([0.5, 0.2, 0.0])],
        lambda x: cm.Market(cm.Sellers(virtual_costs=x), PAID + SQUARES),
    ),
    "virtual costs of odds": (
        VECTOR,
        [np.array([0.4, 0.6, 0.9]), np.array([0.5, 0.2, 0.3])],
        lambda x: cm.Market(
            cm.Sellers(virtual_costs=x),
            cm.Spread() + cm.Noise() + cm.Payments(cm.terms.ExponentialCost()),
        ),
    ),
    "virtual costs under a budget": (
        VECTOR,
        [np.array([0.4, 0.6, 0.9]), np.array([0.5, 0.2, 0.0])],
        lambda x: cm.Market(
            cm.Sellers(virtual_costs=x), cm.Spread() + cm.Noise(), [cm.Budget(0.5)]
        ),
    ),
    "a user-defined term": (
        NUMBER,
        [0.3, 3.0],
        lambda x: market(objective=PAID + Own(lambda q: x * cp.max(q.epsilon))),
    ),
}


@pytest.mark.parametrize("name", one_in(6, NUMBERS))
def test_every_number_of_a_term_or_constraint_can_be_a_parameter(name):
    """A market with a parameter has the same optimum as a market with a fixed number."""
    parameter, values, build = NUMBERS[name]
    market, last = build(parameter), None
    for parameter.value in values:
        fixed = cm.allocate(build(parameter.value), "branch_and_bound").objective
        last = cm.allocate(market, start=last)
        assert last.objective == pytest.approx(fixed, rel=2e-6)
        assert last.gap <= 1e-6
        assert cm.allocate(market, "branch_and_bound").objective == pytest.approx(fixed, rel=2e-6)
    parameter.value = None


# ------------------------------------------------------------------ declarations


#: Terms that are convex because 1/eta or the guarantees are nonnegative.
SIGNED = Own(lambda q: cp.square(q.inverse_eta + cp.norm(q.weights)))
SIGNED_GUARANTEES = Own(lambda q: cp.square(cp.sum(q.epsilon) + cp.norm(q.weights)))


@pytest.mark.parametrize("term", [SIGNED, SIGNED_GUARANTEES])
def test_a_term_can_rely_on_the_signs_of_its_arguments(term):
    objective = term + cm.Noise() + 0.1 * cm.Payments()
    problem = cm.declare(market(objective=objective), eta=2.0)
    for eta in (2.0, 0.5):
        problem.eta = eta
        assert problem.eta == eta
        value = problem.solve(solver="CLARABEL")
        assert value == pytest.approx(objective.value(problem.weights, eta, COSTS), rel=1e-6)
        for point in np.random.default_rng(0).dirichlet(np.ones(3), 10):
            assert value <= objective.value(point, eta, COSTS) * (1 + 1e-7)


def test_a_market_with_a_parameter_is_declared_without_eta():
    budget = cp.Parameter(nonneg=True, value=0.6)
    declared = market(cm.Budget(budget))
    with pytest.raises(NotSupportedError, match="declare the market without eta"):
        cm.declare(declared, 1.5)
    assert cm.declare(declared).is_dcp(dpp=True)


# ----------------------------------------------------------------------- copies and threads

DECLARED = {
    "primal": lambda: cm.declare(market(objective=STANDARD), 1.0),
    "dual": lambda: cm.declare(market(objective=STANDARD), 1.0, "dual"),
    "projection": lambda: cm.declare(market(objective=STANDARD), 1.0, "projection"),
    "fixed eta": lambda: cm.declare(market(cm.MaxEpsilon(0.9), objective=PAID), 1.0),
    "joint": lambda: cm.declare(market(cm.Budget(0.6))),
}


COPIES = [copy.copy, copy.deepcopy, lambda problem: pickle.loads(pickle.dumps(problem))]


@pytest.mark.parametrize("make_copy", COPIES)
@pytest.mark.parametrize("name", DECLARED)
def test_a_declared_problem_can_be_copied_before_and_after_a_solve(name, make_copy):
    problem = DECLARED[name]()
    before = make_copy(problem)
    value = problem.solve(solver="CLARABEL")
    after = make_copy(problem)
    np.testing.assert_allclose(after.weights, problem.weights)
    for duplicate in (before, after):
        assert duplicate.solve(solver="CLARABEL") == pytest.approx(value, rel=1e-6)
        if name != "joint":  # a change of the copy does not change the original
            duplicate.eta = 1.3
            assert problem.eta == pytest.approx(1.0)
            other = duplicate.solve(solver="CLARABEL")
            problem.eta = 1.3
            assert problem.solve(solver="CLARABEL") == pytest.approx(other, rel=1e-6)
            problem.eta = 1.0


def test_markets_and_allocations_are_safe_to_share_between_threads():
    shared = market(cm.MaxEpsilon(0.9), objective=PAID + SQUARES)
    with ThreadPoolExecutor(4) as pool:
        allocations = list(pool.map(cm.allocate, [shared] * 4))
    assert len({allocation.objective for allocation in allocations}) == 1
