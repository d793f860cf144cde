"""Whole programs, declarations, solvers and results: what reaches whom, and who is refused."""

from __future__ import annotations

import sys
import warnings
from importlib import metadata

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation import convex, curve, dispatch, solvers
from convexmarket.allocation.branch import branch_and_bound
from convexmarket.allocation.convex import ConvexProgram, solve_convex
from convexmarket.allocation.curve import OwnReportCurve
from convexmarket.allocation.search import line_search
from convexmarket.allocation.solvers import check_solver, run_solver, solver_version
from convexmarket.allocation.views import (
    FixedEta,
    JointView,
    active_sellers,
    numbers,
    of_some,
    spread_out,
)
from convexmarket.market import StandardForm

COSTS = np.array([0.2, 0.4, 1.0])
SELLERS = cm.Sellers(virtual_costs=COSTS)
JOINT = cm.Spread(3) + cm.Noise()
PAID = cm.SquaredSpread() + cm.Noise() + 0.5 * cm.Payments(cm.PowerCost(2))


def market(*constraints, objective=JOINT, sellers=SELLERS):
    return cm.Market(sellers, objective, list(constraints))


class Own(cm.Term):
    """A user's own term: whatever expression it is given."""

    def __init__(self, build) -> None:
        self.build = build

    def expression(self, quantities):
        return self.build(quantities)


# ------------------------------------------------------------------------- one convex program


def test_one_program_says_where_its_answer_comes_from() -> None:
    declared, seen = market(cm.Budget(0.6), cm.Cap(2)), []
    found = solve_convex(declared, progress=seen.append)
    assert found.solves == tuple(seen)
    (record,) = seen
    assert (record.eta, record.upper) == (found.eta, pytest.approx(found.objective))
    assert (record.lower, record.status) == (found.lower_bound, "optimal")
    assert 0 < record.seconds == found.seconds < 60
    assert (found.method, found.formulation) == ("convex_program", "joint")
    assert (found.solver, found.solver_version) == ("CLARABEL", solver_version("CLARABEL"))
    assert found.tolerance == 1e-6
    assert found.gap <= 1e-6
    value = JOINT.value(found.weights, found.eta, COSTS)
    assert found.objective == pytest.approx(value, rel=1e-12)
    spent = found.epsilon @ COSTS
    assert 0.6 * (1 - 1e-5) <= spent <= 0.6 * (1 + 1e-12)


def test_the_price_of_a_program_is_the_multiplier_of_the_sum() -> None:
    """At the optimum: slope of the spread plus the price of the budget times the cost."""
    found = solve_convex(market(cm.Budget(0.6)))
    slope = found.weights**2 / np.linalg.norm(found.weights, 3) ** 2
    # (slope_i - tau) = -lambda*psi_i for those who sell, and lambda*B = 1 by the slope in 1/eta
    tau = slope + COSTS / 0.6
    assert tau[1] == pytest.approx(tau[0], rel=1e-3)
    assert found.weights[2] == 0
    assert tau[2] > tau[0]
    assert found.multiplier * found.eta == pytest.approx(tau[0], rel=1e-3)


def test_a_program_that_a_solver_fails_on_is_reported_with_the_status(monkeypatch) -> None:
    for status in ("user_limit", cp.INFEASIBLE, "ValueError: no"):
        monkeypatch.setattr(convex, "run_solver", lambda *_, status=status: status)
        with pytest.raises(
            cm.SolverError, match=rf"CLARABEL [\d.]+ failed on Market.*\(status {status}\); try"
        ):
            solve_convex(market(cm.Budget(0.6)))


def test_an_inaccurate_status_is_recorded_and_the_answer_kept(monkeypatch) -> None:
    def inaccurate(*arguments):
        assert run_solver(*arguments) == cp.OPTIMAL
        return cp.OPTIMAL_INACCURATE

    monkeypatch.setattr(convex, "run_solver", inaccurate)
    found = solve_convex(market(cm.Budget(0.6)))
    assert found.solves[0].status == "optimal_inaccurate"
    assert found.gap <= 1e-6


def test_options_reach_the_solver_of_a_program() -> None:
    with pytest.raises(cm.SolverError, match=r"status user_limit"):
        solve_convex(market(cm.Budget(0.6)), solver_options={"max_iter": 1})
    amount = cp.Parameter(nonneg=True)
    swept = market(cm.Budget(amount))
    with pytest.raises(cm.SolverError, match=r"status user_limit"):
        cm.sweep(swept, amount, [0.6], solver_options={"max_iter": 1})
    with pytest.raises(cm.NotSupportedError, match="ABACUS"):
        solve_convex(market(cm.Budget(0.6)), "ABACUS")


@pytest.mark.parametrize("gap", [0, -1.0, np.inf, "a"])
def test_a_gap_is_checked_before_any_work(gap, monkeypatch) -> None:
    monkeypatch.setattr(convex, "_Runner", None)
    with pytest.raises(cm.ParameterError, match="gap is"):
        solve_convex(market(cm.Budget(0.6)), gap=gap)
    with pytest.raises(cm.ParameterError, match="gap is"):
        cm.sweep(market(cm.Budget(0.6)), cp.Parameter(), [], gap=gap)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"market": None}, "market is None; give a Market"),
        ({"progress": 3}, "progress is 3; give a function, or None"),
        ({"solver_options": 3}, "solver_options is 3; give a dictionary"),
        ({"parameter": "B"}, r"parameter is 'B'; give the cvxpy\.Parameter"),
        ({"values": [1.0, np.inf]}, "list of finite numbers"),
        ({"values": [1.0, None]}, "list of finite numbers"),
        ({"values": 3.0}, "list of finite numbers"),
        ({"values": [10**400]}, "list of finite numbers"),
    ],
)
def test_a_sweep_refuses_bad_arguments_before_any_work(changes, message, monkeypatch) -> None:
    monkeypatch.setattr(convex, "_Runner", None)
    amount = cp.Parameter(nonneg=True, value=0.25)
    given = {"market": market(cm.Budget(amount)), "parameter": amount, "values": [1.0]} | changes
    with pytest.raises(cm.ParameterError, match=message):
        cm.sweep(given.pop("market"), given.pop("parameter"), given.pop("values"), **given)
    assert amount.value == 0.25


def test_a_sweep_compiles_once_and_tells_every_solve(monkeypatch) -> None:
    compiled = []

    class Counted(convex._Runner):
        def _compile(self):
            compiled.append(self)
            super()._compile()

    monkeypatch.setattr(convex, "_Runner", Counted)
    amount, seen = cp.Parameter(nonneg=True), []
    values = [0.5, 1, 40.0]
    found = cm.sweep(
        market(cm.Budget(amount)), amount, iter(values), progress=seen.append, gap=1e-5
    )
    assert len(compiled) == 1
    assert tuple(seen) == tuple(record for one in found for record in one.solves)
    assert [one.tolerance for one in found] == [1e-5] * 3
    for value, one in zip(values, found, strict=True):
        assert one.epsilon @ COSTS == pytest.approx(value, rel=1e-4)
        assert one.gap <= 1e-5
    assert amount.value == 40.0
    cm.sweep(market(cm.Budget(amount)), amount, [0.5, 0.5e4])
    assert len(compiled) == 3  # too far apart for one unit of eta


def test_a_market_without_a_bound_on_privacy_or_a_use_for_it_has_no_optimum() -> None:
    with pytest.raises(cm.UnattainedOptimumError, match=r"runs? away to infinity; add gamma"):
        solve_convex(market(cm.Cap(2)))
    with pytest.raises(cm.UnattainedOptimumError, match="eta is not determined; add"):
        solve_convex(market(cm.Budget(1.0), objective=1.0 * cm.Spread(3)))
    with pytest.raises(
        cm.NotSupportedError, match=r"term in the guarantees .*declare\(market, eta"
    ):
        solve_convex(market(objective=PAID))


def test_a_program_holds_its_last_solution() -> None:
    program = cm.declare(market(cm.Budget(0.6)))
    assert isinstance(program, ConvexProgram)
    assert program.formulation == "joint"
    for ask in ("weights", "raw_weights", "eta"):
        with pytest.raises(cm.AllocationError, match=r"no solution to show \(status None\); call"):
            getattr(program, ask)
    program.solve(solver="CLARABEL")
    best = cm.allocate(market(cm.Budget(0.6)))
    assert program.value == pytest.approx(best.objective, rel=1e-6)
    np.testing.assert_allclose(program.weights, best.weights, atol=1e-4)
    assert program.eta == pytest.approx(best.eta, rel=1e-3)


def test_a_program_in_other_units_is_the_same_program() -> None:
    """A unit of eta and one of money; what is shown has neither."""
    best = cm.allocate(market(cm.Budget(0.6)))
    program = ConvexProgram(market(cm.Budget(0.6)), eta_scale=7.0, scale=20.0)
    program.solve(solver="CLARABEL")
    assert 20 * program.value == pytest.approx(best.objective, rel=1e-6)
    assert program.eta == pytest.approx(best.eta, rel=1e-3)
    assert float(program.view.scaled_inverse.value) == pytest.approx(7.0 / best.eta, rel=1e-3)
    fixed = FixedEta(market(objective=PAID), 1.5, 20.0)
    plain = FixedEta(market(objective=PAID), 1.5)
    assert 20 * fixed.solve(solver="CLARABEL") == pytest.approx(plain.solve(solver="CLARABEL"))


def test_weights_are_shown_without_what_lies_below_zero() -> None:
    """A solver may leave them slightly negative; as left they can still be seen."""
    program = ConvexProgram(market(cm.Budget(0.6)))
    program.view.scaled_weights.save_value(np.array([2.0, 1.5, -0.5]))
    fixed = FixedEta(market(objective=PAID), 1.5)
    next(v for v in fixed.variables() if v.size == 3).save_value(np.array([2.0, 1.5, -0.5]))
    for problem in (program, fixed):
        np.testing.assert_allclose(problem.raw_weights, np.array([2.0, 1.5, -0.5]) / 3)
        np.testing.assert_allclose(problem.weights, np.array([2.0, 1.5, 0.0]) / 3.5)


# ------------------------------------------------------------------------------- declarations


class Signed(cm.Term):
    """Convex only because 1/eta is known to be positive."""

    def expression(self, quantities):
        return cp.square(quantities.inverse_eta + cp.norm(quantities.weights))


class SignedGuarantees(cm.Term):
    """Convex only because guarantees are known not to be negative."""

    def expression(self, quantities):
        return cp.square(cp.sum(quantities.epsilon) + cp.norm(quantities.weights))


@pytest.mark.parametrize("term", [Signed(), SignedGuarantees()])
def test_a_piece_may_rely_on_the_signs_of_what_it_is_given(term) -> None:
    objective = term + cm.Noise() + 0.1 * cm.Payments()
    problem = cm.declare(market(objective=objective), eta=2.0)
    for eta in (2.0, 0.5):
        problem.eta = eta
        assert problem.eta == eta
        value = problem.solve(solver="CLARABEL")
        assert value == pytest.approx(objective.value(problem.weights, eta, COSTS), rel=1e-6)
        for point in np.random.default_rng(0).dirichlet(np.ones(3), 10):
            assert value <= objective.value(point, eta, COSTS) * (1 + 1e-7)


def test_one_over_eta_alone_is_a_term_too() -> None:
    program = cm.declare(market(cm.EtaRange(0.5, 4.0), objective=Signed() + cm.Noise()))
    program.solve(solver="CLARABEL")
    assert program.eta == pytest.approx(4.0, rel=1e-5)
    assert program.value == pytest.approx((0.25 + 1 / np.sqrt(3)) ** 2 + 0.25, rel=1e-6)


@pytest.mark.parametrize("eta", [0.0, 0, -1.0, np.inf, np.nan])
def test_eta_is_finite_and_above_zero(eta) -> None:
    problem = FixedEta(market(objective=PAID), 1.5)
    with pytest.raises(cm.ParameterError, match=r"eta is .*; give a finite number > 0"):
        problem.eta = eta
    assert problem.eta == 1.5
    with pytest.raises(cm.ParameterError, match=r"eta is .*; give a finite number > 0"):
        cm.declare(market(objective=PAID), eta)


@pytest.mark.parametrize("eta", ["1", True, [1.0], 10**400, 1j])
@pytest.mark.parametrize("objective", [PAID, cm.Spread() + cm.Noise() + cm.Payments()])
def test_eta_is_a_number(eta, objective) -> None:
    with pytest.raises(cm.ParameterError, match=r"eta is .*; give a finite number > 0"):
        cm.declare(market(objective=objective), eta)


@pytest.mark.parametrize("formulation", [None, "primary", 3, ["primal"]])
def test_a_formulation_is_one_of_three_words(formulation) -> None:
    for eta in (None, 1.0):
        with pytest.raises(cm.ParameterError, match=r"formulation is .*; choose one of 'primal'"):
            cm.declare(market(cm.Budget(1.0)), eta, formulation)
    with pytest.raises(cm.ParameterError, match="market is 3; give a Market"):
        cm.declare(3, 1.0)


def test_as_a_whole_there_is_a_primal_only() -> None:
    standard = cm.Market.standard(SELLERS, mu=1, sigma=1, gamma=1)
    for declared in (standard, market(cm.Budget(1.0))):
        with pytest.raises(cm.NotSupportedError, match="the dual formulation is known for sums of"):
            cm.declare(declared, formulation="dual")
    with pytest.raises(cm.NotSupportedError, match="the projection formulation is known"):
        cm.declare(market(cm.Budget(1.0)), 1.0, "projection")
    assert cm.declare(standard, 1.0, "dual").formulation == "dual"
    assert isinstance(cm.declare(market(cm.Budget(1.0)), 1.0), FixedEta)


def test_a_range_is_kept_to_at_a_fixed_eta() -> None:
    """Up to rounding; the ends themselves belong to it."""
    problem = FixedEta(market(cm.EtaRange(1.0, 2.0), cm.Cap(2), objective=PAID), 1.5)
    for eta in (1.0, 2.0, 1 - 1e-10, 2 * (1 + 1e-10)):
        problem.eta = eta
    for eta in (1 - 1e-6, 2 * (1 + 1e-6)):
        with pytest.raises(cm.ParameterError, match=r"eta is .*, outside what EtaRange\(low=1"):
            problem.eta = eta
    with pytest.raises(cm.ParameterError, match="outside what EtaRange"):
        FixedEta(market(cm.EtaRange(1.0, 2.0), objective=PAID), 3.0)


def test_a_fixed_eta_without_a_solution_has_nothing_to_show() -> None:
    problem = FixedEta(market(cm.MaxEpsilon(0.1), objective=PAID), 1.5)
    for ask in ("weights", "raw_weights"):
        with pytest.raises(cm.AllocationError, match=r"\(status None\); call solve\(\) first"):
            getattr(problem, ask)
    problem.solve(solver="CLARABEL")  # more than three sellers of at most 0.1 can sell
    assert problem.status == cp.INFEASIBLE
    with pytest.raises(cm.AllocationError, match=r"\(status infeasible\)"):
        _ = problem.raw_weights


# ---------------------------------------------------------------------------------- the views


def test_nobody_to_buy_from_is_said_in_words() -> None:
    away = SELLERS
    for who in range(3):
        away = away.with_virtual_cost(who, np.inf)
    with pytest.raises(cm.InfeasibleMarketError, match="infinite virtual cost: nobody can sell"):
        active_sellers(market(sellers=away))
    some = SELLERS.with_virtual_cost(0, np.inf)
    bound = cm.MaxEpsilon([1.0, 0.0, 0.0])
    with pytest.raises(cm.InfeasibleMarketError, match="excluded by a bound of zero"):
        active_sellers(market(bound, sellers=some))
    assert active_sellers(market(bound)).tolist() == [True, False, False]


def test_vectors_of_some_sellers_are_spread_out_over_all() -> None:
    who = np.array([True, False, True])
    x = cp.Variable(2, value=[3.0, 4.0])
    np.testing.assert_array_equal(spread_out(x, who).value, [3, 0, 4])
    y = cp.Variable(3)
    assert spread_out(y, np.ones(3, dtype=bool)) is y
    assert of_some(0.5, who) == 0.5
    np.testing.assert_array_equal(of_some(np.array([1.0, 2.0, 3.0]), who), [1, 3])


def test_an_expression_without_a_value_has_no_numbers() -> None:
    x = cp.Variable(2, name="x")
    with pytest.raises(cm.AllocationError, match="x has no value; solve its problem first"):
        numbers(x)
    x.value = [1, 2]
    assert numbers(x).dtype == float


def test_a_term_of_weight_zero_counts_for_nothing() -> None:
    view = JointView(market(objective=JOINT + 0.0 * Own(lambda q: cp.sum_squares(q.epsilon))))
    assert not view.uses_epsilon
    assert len(view.terms) == 2
    assert view.objective().is_convex()
    nothing = JointView(market(objective=0.0 * cm.Noise() + 0.0 * cm.Spread()))
    assert nothing.objective().value == 0
    assert nothing.value(np.full(3, 1 / 3), 1.0) == 0


def test_sellers_left_out_have_no_weight_in_a_view() -> None:
    view = JointView(market(cm.Budget(1.0), sellers=SELLERS.with_virtual_cost(1, np.inf)))
    view.place(np.array([0.25, 0.0, 0.75]), 2.0)
    np.testing.assert_allclose(view.quantities.weights.value, [0.25, 0, 0.75])
    np.testing.assert_array_equal(view.quantities.virtual_costs, [0.2, 0, 1.0])
    assert float(view.quantities.inverse_eta.value) == 0.5
    (total,) = view.simplex
    assert total.violation() == pytest.approx(0.0)
    view.place(np.array([0.25, 0.0, 0.5]), 2.0)
    assert total.violation() == pytest.approx(0.75)


# -------------------------------------------------------------------------------- the solvers


class Stub:
    """In place of a problem: notes what it is asked, and answers with one status after another."""

    def __init__(self, *answers) -> None:
        self.answers, self.asked, self.status = list(answers), [], None

    def solve(self, **options):
        self.asked.append(options)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        warnings.warn("Solution may be inaccurate. Try another solver", stacklevel=1)
        warnings.warn("Power atom with exponent 3 is being approximated", stacklevel=1)
        self.status = answer


@pytest.mark.parametrize("solver", ["CLARABEL", "SCS", "OSQP"])
def test_a_solver_is_asked_for_tight_tolerances_then_for_its_own(solver) -> None:
    stub = Stub("user_limit", "optimal")
    assert run_solver(stub, solver, {"verbose": True}) == "optimal"
    tight, own = stub.asked
    assert tight["solver"] == own["solver"] == solver
    assert tight["verbose"] is own["verbose"] is True
    tolerances = [value for name, value in tight.items() if name.startswith(("tol_", "eps_"))]
    assert len(tolerances) in (2, 3)
    assert all(0 < value <= 1e-8 for value in tolerances)
    assert own == {"solver": solver, "verbose": True, "warm_start": False}
    assert all(v >= 50_000 for name, v in tight.items() if name.startswith("max_iter"))
    assert 0 < tight.get("max_step_fraction", 0.5) < 1
    assert tight.get("warm_start") is (False if solver == "CLARABEL" else None)


def test_the_users_options_come_first() -> None:
    stub = Stub("user_limit", "user_limit")
    options = {"tol_feas": 0.5, "warm_start": True}
    assert run_solver(stub, "CLARABEL", options) == "user_limit"
    assert stub.asked[0]["tol_feas"] == stub.asked[1]["tol_feas"] == 0.5
    assert stub.asked[0]["warm_start"] is True
    assert options == {"tol_feas": 0.5, "warm_start": True}


@pytest.mark.parametrize("status", ["optimal", "optimal_inaccurate", "infeasible", "unbounded"])
def test_what_is_decided_is_not_tried_again(status) -> None:
    stub = Stub(status)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run_solver(stub, "CLARABEL") == status
    assert len(stub.asked) == 1


def test_other_warnings_of_a_solver_are_passed_on() -> None:
    class Old(Stub):
        def solve(self, **options):
            super().solve(**options)
            warnings.warn("this solver is deprecated", FutureWarning, stacklevel=1)

    with pytest.warns(FutureWarning, match="deprecated") as caught:
        assert run_solver(Old("optimal"), "ECOS") == "optimal"
    assert len(caught) == 1


def test_a_solver_without_tolerances_of_ours_is_asked_once() -> None:
    stub = Stub("user_limit")
    assert run_solver(stub, "ECOS", {"max_iters": 3}) == "user_limit"
    assert stub.asked == [{"solver": "ECOS", "max_iters": 3}]


@pytest.mark.parametrize(
    "error",
    [cp.error.SolverError("no"), cm.SolverError("no"), ValueError("no"), ZeroDivisionError("no")],
)
def test_what_a_solver_raises_is_a_status(error) -> None:
    assert run_solver(Stub(error, error), "SCS") == f"{type(error).__name__}: no"
    assert run_solver(Stub(error, "optimal"), "SCS") == "optimal"
    with pytest.raises(KeyboardInterrupt):
        run_solver(Stub(KeyboardInterrupt()), "SCS")


def test_solvers_go_by_the_names_and_versions_of_their_packages() -> None:
    assert check_solver("clarabel") == check_solver("CLARABEL") == "CLARABEL"
    with pytest.raises(cm.NotSupportedError, match=r"'ABACUS' is not installed; .*CLARABEL.*, "):
        check_solver("ABACUS")
    with pytest.raises(cm.NotSupportedError, match="solver None is not installed"):
        check_solver(None)
    assert solver_version("CLARABEL") == metadata.version("clarabel")
    assert solver_version("SCIPY") == metadata.version("scipy")
    assert solver_version("ABACUS") == "unknown"
    expected = {"HIGHS": "highspy", "ECOS_BB": "ecos"}
    for solver, package in expected.items():
        assert solvers._DISTRIBUTIONS[solver] == package


# -------------------------------------------------------------------------- methods and results


def test_every_numerical_method_stops_at_a_millionth_unless_told_otherwise() -> None:
    standard = cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5)
    for found in (
        solve_convex(market(cm.Budget(0.6))),
        branch_and_bound(standard),
        line_search(standard),
        *cm.sweep(market(cm.Budget(amount := cp.Parameter(nonneg=True))), amount, [0.6]),
    ):
        assert found.tolerance == 1e-6
        assert found.gap <= 1e-6
        assert found.solver == "CLARABEL"


ROUTES = {
    "exact": (cm.Spread() + cm.Noise() + cm.Payments(), [cm.Cap(2)]),
    "guarantees": (cm.Spread() + cm.Noise(), [cm.GivenEpsilon([0.5, 1.0, 2.0])]),
    "projections": (cm.Spread() + cm.Noise() + cm.Payments(), [cm.MaxEpsilon(1.0)]),
    "convex_program": (JOINT, [cm.Budget(1.0)]),
    "branch_and_bound": (PAID, []),
}


@pytest.mark.parametrize("method", ROUTES)
def test_a_market_is_served_by_the_best_method_for_it(method, monkeypatch) -> None:
    asked = []

    def answer(name):
        def serve(*arguments, **options):
            asked.append((name, arguments, options))
            return name

        return serve

    names = {
        "exact": "_exact", "guarantees": "allocate_guarantees", "projections": "solve_projections",
        "convex_program": "solve_convex", "branch_and_bound": "branch_and_bound",
    }  # fmt: skip
    for name, function in names.items():
        monkeypatch.setattr(dispatch, function, answer(name))
    objective, constraints = ROUTES[method]
    declared = market(*constraints, objective=objective)
    assert cm.allocate(declared, gap=1e-3, progress=print) == method
    ((_, arguments, options),) = asked
    if method in ("convex_program", "branch_and_bound"):
        assert arguments == (declared,)
        assert options == {"solver": "CLARABEL", "gap": 1e-3, "progress": print}
    if method == "projections":
        assert (arguments, options) == ((declared, 1e-10), {"progress": print})
        cm.allocate(declared, gap=1e-12, max_solves=3)
        assert asked[-1][1:] == ((declared, 1e-12), {"progress": None, "max_solves": 3})
    if method == "exact":
        assert arguments == (declared.standard_form,)
    if method == "guarantees":
        np.testing.assert_array_equal(arguments[1], [0.5, 1.0, 2.0])


def test_a_method_that_is_named_gets_its_options(monkeypatch) -> None:
    asked = []
    for name in ("line_search", "projected_gradient", "branch_and_bound"):
        monkeypatch.setattr(
            dispatch,
            name,
            lambda *given, name=name, **options: asked.append((name, given, options)),
        )
    standard = cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5)
    cm.allocate(standard, "line_search", formulation="dual", solver="ECOS", max_solves=7)
    cm.allocate(standard, "projected_gradient", grid=3)
    cm.allocate(standard, "branch_and_bound", start=2.0, solver_options={"a": 1})
    numerical = {"gap": 1e-6, "progress": None}
    assert asked == [
        ("line_search", (standard,),
         {"formulation": "dual", "solver": "ECOS", "max_solves": 7} | numerical),
        ("projected_gradient", (standard,), {"grid": 3}),
        ("branch_and_bound", (standard,),
         {"start": 2.0, "solver_options": {"a": 1}, "solver": "CLARABEL"} | numerical),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "best"}, "method is 'best'; choose one of 'auto', 'exact'"),
        ({"method": None}, "method is None; choose"),
        ({"gap": "a"}, "gap is 'a'; give a number > 0"),
        ({"gap": None}, "gap is None; give"),
        ({"progress": 3}, "progress is 3; give a function, or None"),
        ({"speed": 3}, "'exact' takes no options; got speed"),
        ({"method": "projections", "grid": 3, "a": 1}, "takes max_solves; got a, grid"),
        ({"method": "branch_and_bound", "grid": 3}, "max_solves, solver_options, start; got grid"),
    ],
)
def test_a_bad_call_is_refused_before_any_work(arguments, message, monkeypatch) -> None:
    for name in ("solve_exact", "solve_projections", "branch_and_bound"):
        monkeypatch.setattr(dispatch, name, None)
    with pytest.raises(cm.ParameterError, match=message):
        cm.allocate(cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5), **arguments)
    with pytest.raises(cm.ParameterError, match="market is 'x'; give a Market"):
        cm.allocate("x")


def test_the_exact_solver_takes_the_papers_form() -> None:
    form = dispatch.standard_form_of(cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5), "x")
    assert (form.mu, form.sigma, form.gamma) == (1, 2, 0.5)
    with pytest.raises(cm.NotSupportedError, match=r"^the audit takes sums of Spread.*this market"):
        dispatch.standard_form_of(market(), "the audit")


@pytest.mark.parametrize(
    ("eta", "objective"), [(0.0, 1.0), (np.inf, 1.0), (1.0, np.inf), (1.0, np.nan)]
)
def test_an_exact_answer_beyond_double_precision_is_refused(eta, objective, monkeypatch) -> None:
    standard = cm.Market.standard(SELLERS, mu=1, sigma=2, gamma=0.5)
    found = dispatch.solve_exact(standard.standard_form)
    for name, value in (("eta", eta), ("objective", objective)):
        object.__setattr__(found, name, value)
    monkeypatch.setattr(dispatch, "solve_exact", lambda form: found)
    with pytest.raises(cm.SolverError, match=f"eta = {eta:g} and the objective {objective:g} are"):
        cm.allocate(standard)


def allocation(objective, bound):
    return cm.Allocation(np.array([0.25, 0.0, 0.75]), 2.0, objective, bound, 0.3, "exact", 0.0)


def test_a_gap_is_relative_and_never_below_zero() -> None:
    assert allocation(4.0, 3.0).gap == 0.25
    assert allocation(-4.0, -5.0).gap == 0.25
    assert allocation(4.0, 5.0).gap == 0.0
    assert allocation(4.0, -np.inf).gap == np.inf
    assert allocation(4.0, np.nan).gap == np.inf
    assert allocation(0.0, 0.0).gap == 0.0
    assert allocation(0.0, -sys.float_info.min).gap == 1.0
    assert allocation(1e-3, 0.5e-3).gap == pytest.approx(0.5)


def test_an_allocation_in_one_line() -> None:
    assert repr(allocation(4.0, 3.0)) == (
        "Allocation(eta=2, objective=4, gap=2.5e-01, bought 2 of 3, method='exact')"
    )


# -------------------------------------------------------------------------- curves of reports


def test_reports_that_are_true_are_answered_from_one_market(monkeypatch) -> None:
    """However many are asked about at their own cost, and in whatever order."""
    psi = np.random.default_rng(3).uniform(0.1, 1, 8)
    form = StandardForm(psi, 9.0, 2.0, 0.5)
    own = OwnReportCurve(form)
    sizes = []
    solve = OwnReportCurve._batch

    def counted(self, seller, says):
        sizes.append(seller.size)
        return solve(self, seller, says)

    monkeypatch.setattr(OwnReportCurve, "_batch", counted)
    who = np.array([3, 0, 7, 2, 3, 5])
    says = psi[who].copy()
    says[[1, 4]] = [0.7, 3.0]
    found = own(who, says)
    assert sizes == [3]
    alone = [own(who[k : k + 1], says[k : k + 1]) for k in range(6)]
    for name in ("epsilon", "value", "level"):
        expected = [getattr(one, name)[0] for one in alone]
        np.testing.assert_allclose(getattr(found, name), expected, rtol=1e-9, atol=1e-12)
    # The others' guarantees change with what one says.
    assert found.value[1] != found.value[0]
    assert found.epsilon[4] < own.truth[3]


def test_the_level_of_a_market_without_spread_is_that_of_the_dearest_who_sells() -> None:
    form = StandardForm(np.array([0.2, 0.4, 1.0]), 0.0, 2.0, 0.5, 0.5)
    points = OwnReportCurve(form)(np.array([2, 2, 0]), np.array([0.3, 9.0, 0.7]))
    np.testing.assert_allclose(points.level, [0.3, 0.4, 0.7])
    cost = np.array([0.25, 0.3, 0.55])
    eta = np.sqrt(2.0 / (0.5 * cost))
    np.testing.assert_allclose(points.epsilon, [0.5 * eta[0], 0.0, 0.5 * eta[2]])
    np.testing.assert_allclose(points.value, 2.0 / eta + 0.5 * eta * cost)


def test_who_can_be_done_without() -> None:
    psi = np.array([0.2, 0.4, 1.0])
    for cap, least in ((1.0, 0.0), (0.5, 0.0), (0.4, 0.2), (1 / 3, 1 / 3)):
        own = OwnReportCurve(StandardForm(psi, 1.0, 2.0, 0.5, cap))
        assert own._least_weight() == pytest.approx(least)
        assert own.can_do_without() == (least == 0)
    away = OwnReportCurve(StandardForm(np.append(psi, np.inf), 1.0, 2.0, 0.5, 0.4))
    assert away._least_weight() == pytest.approx(0.2)
    assert isinstance(curve._free(), cm.UnattainedOptimumError)


def test_a_parameter_of_the_markets_own_is_declared_without_eta():
    budget = cp.Parameter(nonneg=True, value=0.6)
    sellers = cm.Sellers(virtual_costs=[0.2, 0.4, 1.0])
    market = cm.Market(sellers, cm.SquaredSpread() + cm.Noise(), [cm.Budget(budget)])
    with pytest.raises(cm.NotSupportedError, match="declare the market without eta"):
        cm.declare(market, 1.5)
    assert cm.declare(market).is_dcp(dpp=True)


def test_every_search_wants_a_whole_number_of_solves():
    market = cm.Market.standard(cm.Sellers(virtual_costs=[0.2, 1.0]), mu=1, sigma=1, gamma=1)
    for method in ("line_search", "branch_and_bound"):
        with pytest.raises(cm.ParameterError, match="give a whole number >= 1"):
            cm.allocate(market, method, max_solves=1.5)
