"""Branch and bound with a solver: where it begins, what it keeps, and what it ends with."""

import warnings
from functools import partial
from importlib import metadata

import cvxpy as cp
import numpy as np
import pytest

import convexmarket as cm
from convexmarket.allocation import conic as branch
from convexmarket.allocation.conic import branch_and_bound
from convexmarket.allocation.cuts import KeptSpreadCut
from convexmarket.allocation.eta_search import Evaluated, Found
from convexmarket.allocation.result import SolveRecord
from convexmarket.allocation.views import JointView
from convexmarket.errors import (
    LooseCertificateWarning,
    NotSupportedError,
    ParameterError,
    SolverError,
    UnattainedOptimumError,
)
from tests.allocation import builders
from tests.allocation.builders import COSTS, PAID, POINT, Bound, Own

market = partial(builders.market, objective=PAID)


# ---------------------------------------------------------------- whole searches


def test_a_search_says_where_its_answer_comes_from():
    seen = []
    found = branch_and_bound(market(), progress=seen.append)
    assert found.solves == tuple(seen)
    assert found.method == "branch_and_bound"
    assert (found.formulation, found.solver, found.tolerance) == ("primal", "CLARABEL", 1e-6)
    assert found.solver_version == metadata.version("clarabel")
    assert found.binding == ()
    value = PAID.value(found.weights, found.eta, COSTS)
    assert found.objective == pytest.approx(value, rel=1e-12)
    best = min(seen, key=lambda record: record.upper)
    assert best.upper >= found.objective - 1e-12
    for record in seen:
        assert record.status == "optimal"
        assert record.lower <= record.upper * (1 + 1e-9)
        assert record.lower == pytest.approx(record.upper, rel=1e-6)
    # tau/eta: the slope of the objective in the weights, at those who sell
    price = 2 * found.weights + found.eta * COSTS * found.epsilon
    assert found.multiplier == pytest.approx(price[0] / found.eta, rel=1e-3)


def test_without_noise_the_optimum_is_at_zero_unless_a_range_keeps_it_away():
    unpaid = cm.terms.SquaredSpread() + 0.5 * cm.Payments(cm.PowerCost(2))
    with pytest.raises(UnattainedOptimumError, match="eta tends to 0"):
        branch_and_bound(market(objective=unpaid))
    found = branch_and_bound(market(cm.EtaRange(1.0, 4.0), objective=unpaid))
    assert found.eta == 1.0
    assert found.binding == ("eta_low",)
    assert found.gap <= 1e-6


@pytest.mark.parametrize("least", [2.0, 20.0])
def test_a_range_without_an_upper_end_is_entered_from_below(least):
    """At the eta where noise and payments balance, nothing is feasible."""
    objective = cm.Spread() + cm.Noise() + 5.0 * cm.Payments()
    at_least = Bound(lambda q: [q.weights >= least * q.inverse_eta])
    found = cm.allocate(market(at_least, objective=objective))
    np.testing.assert_allclose(found.epsilon, least, rtol=1e-4)
    spent = 5.0 * least * (0.2 + 0.4 + 1.0) + 1 / (3 * least) + 1 / np.sqrt(3)
    assert found.objective == pytest.approx(spent, rel=1e-4)


# --------------------------------------------------------------- where it begins


def test_the_search_begins_at_the_start_that_is_given():
    for start in (0.7, np.float64(5.0)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LooseCertificateWarning)
            found = branch_and_bound(market(), start=start, max_solves=1)
        assert found.solves[0].eta == pytest.approx(float(start), rel=1e-6)


def test_a_start_is_taken_up_to_a_million_times_the_usual_one(monkeypatch):
    seen = []

    def stop(runner, first, gap, max_solves, progress, time_limit):
        seen.append((first, gap, max_solves, progress))
        raise SolverError("stop")

    monkeypatch.setattr(branch, "search_eta", stop)
    starts = (None, 1e-200, 1e200, 0.01, 7.0)
    for start in starts:
        with pytest.raises(SolverError, match="stop"):
            branch_and_bound(market(), "CLARABEL", 1e-3, 17, start=start, progress=print)
    firsts = [first for first, *_ in seen]
    usual = firsts[0]
    assert usual == branch._balanced_eta(market(), JointView(market()))
    assert firsts[1:] == [pytest.approx(usual / 1e6), pytest.approx(usual * 1e6), 0.01, 7.0]
    assert all(rest == [1e-3, 17, print] for _, *rest in seen)


@pytest.mark.parametrize("cost", [cm.terms.LinearCost(), cm.PowerCost(2)])
def test_the_first_eta_balances_noise_and_payments(cost):
    declared = market(objective=cm.Spread() + 3.0 * cm.Noise() + 0.5 * cm.Payments(cost))
    eta = branch._balanced_eta(declared, JointView(declared))
    mean = np.mean([0.2, 0.4, 1.0])
    bill = 0.5 * 3 * mean * float(cost(eta / 3))
    assert bill == pytest.approx(3.0 / eta, rel=0.05)
    unpaid = market(cm.MaxEpsilon(1.0), objective=cm.Spread() + cm.Noise())
    assert branch._balanced_eta(unpaid, JointView(unpaid)) == 3.0


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("least", [0.0, np.inf])
def test_an_objective_of_zero_or_beyond_all_numbers_is_no_unit_of_money(least):
    by = (0.0, 1.0) if least == 0 else (np.exp(709.0), 1e3)
    own = 1.0 * Own(lambda q: by[0] * cp.sum(q.epsilon) * by[1])
    compiled = branch.Conic(market(objective=own))
    assert abs(compiled.view.value(np.full(3, 1 / 3), 1e3)) == least
    assert compiled.declare(1e3).scale == 1.0
    usual = branch.Conic(market(objective=1e-3 * PAID))
    even = PAID.value(np.full(3, 1 / 3), 2.0, COSTS)
    assert usual.declare(2.0).scale == pytest.approx(1e-3 * even)


# ------------------------------------------------------- what a search ends with


def ended(weights, eta, bound, *constraints, tolerance=1e-6, price=3.0, objective=PAID):
    compiled = branch.Conic(market(*constraints, objective=objective))
    compiled.records = [SolveRecord(1.0, 2.0, 1.5, "optimal", 0.1)]
    weights = np.asarray(weights)
    value, scale = compiled.view.value(weights, eta), compiled.view.size(weights, eta)
    cut = KeptSpreadCut(value, 0.0, np.zeros(1), np.zeros(1), np.min, price)
    best = Evaluated(weights, eta, value, cut, scale)
    return compiled.finish(Found(best, bound), tolerance, 0.0)


def objective_at(weights, eta) -> float:
    return PAID.value(np.asarray(weights), eta, COSTS)


def test_an_answer_is_the_point_with_its_bound():
    value = objective_at(POINT, 2.0)
    found = ended(POINT, 2.0, value * (1 - 1e-6))
    np.testing.assert_array_equal(found.weights, POINT)
    assert (found.eta, found.objective) == (2.0, pytest.approx(value))
    assert found.lower_bound == value * (1 - 1e-6)
    assert found.multiplier == 1.5
    assert found.tolerance == 1e-6
    assert found.solves == (SolveRecord(1.0, 2.0, 1.5, "optimal", 0.1),)
    assert (found.method, found.solver) == ("branch_and_bound", "CLARABEL")


def test_a_bound_above_the_objective_is_a_contradiction_beyond_a_millionth():
    value = objective_at(POINT, 2.0)
    assert ended(POINT, 2.0, value + 0.9e-6 * value).gap == 0
    with pytest.raises(
        SolverError, match=r"lower bound .* lies above the objective .*simplex_minimum"
    ):
        ended(POINT, 2.0, value + 1.1e-6 * value)
    negative = 5.0 * cm.terms.NegativeEntropy() + PAID
    below = negative.value(POINT, 2.0, COSTS)
    assert below < -1
    at = cm.terms.Quantities.at(POINT, 2.0, COSTS)
    size = sum(abs(part.value * part.term.expression(at).value) for part in negative.parts)
    assert ended(POINT, 2.0, below + 0.9e-6 * size, objective=negative).gap == 0
    with pytest.raises(SolverError, match="lies above"):
        ended(POINT, 2.0, below + 1.1e-6 * size, objective=negative)


def test_a_gap_is_warned_of_whenever_it_is_missed_at_the_line_of_the_user():
    value = objective_at(POINT, 2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", LooseCertificateWarning)
        ended(POINT, 2.0, value * (1 - 0.99e-4), tolerance=1e-4)
    said = r"1\.\de-04, not the 1\.0e-04.*max_solves"
    with pytest.warns(LooseCertificateWarning, match=said) as seen:
        ended(POINT, 2.0, value * (1 - 1.05e-4), tolerance=1e-4)
    assert seen[0].filename == __file__


def test_an_end_of_the_range_that_is_as_good_is_taken_exactly():
    range_ = cm.EtaRange(2.0, 8.0)
    falls = ended(POINT, 2.0 * (1 + 1e-9), 0.9 * objective_at(POINT, 2.0), range_, tolerance=1.0)
    best = (COSTS @ POINT**2) ** (-1 / 3)  # of 1/eta + psi'(eta*a)^2/2
    assert 0.5 < best < 2.0
    assert falls.eta == 2.0
    assert falls.objective == pytest.approx(objective_at(POINT, 2.0), rel=1e-14)
    assert falls.binding == ("eta_low",)
    assert falls.multiplier == pytest.approx(1.5)
    short = cm.EtaRange(0.1, 0.5)
    rises = ended(POINT, 0.5 * (1 - 1e-9), 0.9 * objective_at(POINT, 0.5), short, tolerance=1.0)
    assert (rises.eta, rises.binding) == (0.5, ("eta_high",))
    inside = ended(POINT, best, 0.0, cm.EtaRange(0.1, 8.0), tolerance=1.0)
    assert (inside.eta, inside.binding) == (best, ())
    both = ended(POINT, 2.0, 0.0, cm.EtaRange(2.0, 2.0), tolerance=1.0)
    assert both.binding == ("eta_low", "eta_high")


def test_an_end_of_the_range_that_breaks_another_constraint_is_not_taken():
    """At the upper end these guarantees would be too large."""
    limit = cm.MaxEpsilon(0.2)
    found = ended(POINT, 0.4, 0.0, cm.EtaRange(0.1, 0.41), limit, tolerance=1.0)
    assert objective_at(POINT, 0.41) < objective_at(POINT, 0.4)
    assert (found.eta, found.binding) == (0.4, ())


def test_traces_are_dropped_below_a_hundred_thousandth_of_the_average():
    trace = np.array([0.6, 0.4 - 3e-6, 3e-6])
    cleaned = ended(trace, 1.0, 0.0, tolerance=1.0)
    assert cleaned.weights[2] == 0
    assert cleaned.weights.sum() == pytest.approx(1.0, abs=1e-15)
    assert cleaned.objective == pytest.approx(objective_at(cleaned.weights, 1.0), rel=1e-12)
    assert cleaned.n_bought == 2
    kept = np.array([0.6, 0.4 - 3.4e-6, 3.4e-6])
    assert ended(kept, 1.0, 0.0, tolerance=1.0).weights[2] == 3.4e-6


@pytest.mark.parametrize("money", [1.0, 50.0])
def test_traces_are_dropped_where_that_costs_less_than_a_tenth_of_the_gap(money):
    """Of the seller who would be the best to buy from."""
    trace = np.array([3e-6, 0.6, 0.4 - 3e-6])
    objective = money * PAID
    value = objective.value(trace, 1.0, COSTS)
    rest = trace * [0, 1, 1] / trace[1:].sum()
    share = (objective.value(rest, 1.0, COSTS) - value) / value
    assert share > 1e-7
    below, above = 10 * share / 1.05, 10 * share * 1.05
    assert ended(trace, 1.0, value, tolerance=below, objective=objective).weights[0] == 3e-6
    dropped = ended(trace, 1.0, value, tolerance=above, objective=objective)
    np.testing.assert_allclose(dropped.weights, rest, rtol=1e-15)
    assert dropped.objective == pytest.approx(value * (1 + share), rel=1e-14)


def test_who_is_left_without_traces_is_moved_back_into_the_bounds():
    """Without the trace, a weight at its cap would be above it."""
    trace = np.array([0.6, 0.4 - 3e-6, 3e-6])
    found = ended(trace, 1.0, 0.0, cm.Cap([1.8, 3.0, 3.0]), tolerance=1.0)
    np.testing.assert_allclose(found.weights, [0.6, 0.4, 0.0], rtol=1e-9)
    assert found.weights[2] == 0
    assert found.weights[0] <= 0.6 * (1 + 1e-12)


def test_traces_are_kept_where_no_point_without_them_is_inside():
    """Half of the weight lies on the three largest, so who is left out breaks that bound."""
    rng = np.random.default_rng(200)
    sellers = cm.Sellers(rng.uniform(0.1, 1, 200), prior=cm.Uniform(0.1, 1))
    bound = Bound(lambda q: [cp.sum_largest(200 * q.weights, 3) <= 7.5])
    objective = 200 * cm.Noise() + (1 / 200) * cm.Payments()
    found = cm.allocate(cm.Market(sellers, objective, [bound]))
    assert np.sort(200 * found.weights)[-3:].sum() <= 7.5 + 1e-9
    assert found.gap <= 1e-6


def test_traces_that_a_constraint_needs_are_kept():
    """Somebody has to sell a millionth, and who sells nothing cannot be mended."""
    trace = np.array([0.6, 0.4 - 3e-6, 3e-6])
    needed = Bound(lambda q: [1e6 * q.weights[2] >= 2.9])
    found = ended(trace, 1.0, 0.0, needed, tolerance=1.0)
    np.testing.assert_array_equal(found.weights, trace)
    assert found.eta == 1.0
    assert found.objective == pytest.approx(objective_at(trace, 1.0))


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize("changes", [{"gap": 0}, {"gap": np.inf}, {"max_solves": 0}])
def test_bad_limits_are_refused_before_any_work(changes, monkeypatch):
    monkeypatch.setattr(branch, "JointView", None)
    with pytest.raises(ParameterError, match=next(iter(changes))):
        branch_and_bound(market(), **changes)
    with pytest.raises(NotSupportedError, match="ABACUS"):
        branch_and_bound(market(), "ABACUS")


def test_options_reach_the_solver_of_a_search():
    with pytest.raises(SolverError, match=r"CLARABEL .* at eta = .*user_limit.*EtaRange"):
        branch_and_bound(market(), solver_options={"max_iter": 1})
